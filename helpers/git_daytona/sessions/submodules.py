"""What a session does with its project's submodules: what it does with the project. In a sync each
comes before the repository that records it, so that no branch moves to what is not here."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from git_daytona.base.errors import CutShort, GitDaytonaError, SandboxCommandFailed
from git_daytona.base.secret import printable
from git_daytona.git import branches, submodules
from git_daytona.git.repository import Repository
from git_daytona.sessions.branch import Branch, Outcome
from git_daytona.sessions.state import bounded


@dataclass
class Synced:
    """What a sync found in a repository's submodules."""

    there: dict[str, Branch] = field(default_factory=dict)
    """Those that are repositories in the sandbox, too, by path."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    """Commits that the branch records, and that did not come."""

    def complete(self, repository: Repository, head: str | None, *, aside: bool) -> None:
        """See that the commits which ``head`` records are here, before the branch moves to it: the
        agent may have gone on meanwhile. Raises what a sync does."""
        recorded = submodules.recorded(repository, head) if head and self.there else {}
        for path, inner in self.there.items():
            commit = recorded.get(path)
            if commit and not inner.repository.resolve(commit):
                with naming(path):
                    self.outcomes[path] = _and(self.outcomes[path], inner.sync(aside=aside))
                if not inner.repository.resolve(commit):
                    self.absent[path] = commit

    def joined(self, outcome: Outcome) -> Outcome:
        """Add what is to be said of the submodules to their project's outcome."""
        for path, inner in self.outcomes.items():
            outcome = _and(outcome, inner, f"submodule '{shown(path)}'")
        absent = [
            f"submodule '{shown(path)}' is recorded at {commit[:10]}, which it does not have"
            for path, commit in self.absent.items()
        ]
        return replace(
            outcome,
            left_behind=bounded(outcome.left_behind, *self.failed),
            message=bounded(outcome.message, *self.failed, *absent),
            remarks=bounded(outcome.remarks, *self.failed, *absent),
        )


def of(branch: Branch) -> dict[str, Branch]:
    """Find the submodules that the session has begun in, by path."""
    names = branch.names
    return {
        path: inner
        for path, inner in _candidates(branch).items()
        if inner.repository.refs(names.base)
    }


def _candidates(branch: Branch) -> dict[str, Branch]:
    """Find the submodules that may take part, by path: those of the commit that the session began
    with that are checked out here, unless a session of their own has its number."""
    repository, names = branch.repository, branch.names
    refs = repository.refs(names.base, names.ref) if branch.with_submodules else {}
    begun = refs.get(names.base) or refs.get(names.ref)
    found = submodules.checked_out(repository, begun) if begun else {}
    return {
        path: branch.submodule(inner, path)
        for path, inner in found.items()
        if not inner.section(f"remote.{names.remote}")
    }


def repositories(branch: Branch) -> Iterator[Repository]:
    """Give the repository of a branch, and those of all its submodules."""
    yield branch.repository
    for inner in of(branch).values():
        yield from repositories(inner)


def numbers(repository: Repository, prefix: str) -> set[int]:
    """The numbers that names in any submodule have."""
    head = repository.resolve("HEAD")
    found: set[int] = set()
    for inner in (submodules.checked_out(repository, head) if head else {}).values():
        found |= branches.numbers(inner, prefix) | numbers(inner, prefix)
    return found


def set_up(branch: Branch) -> None:
    """Push what a branch records of its submodules, if that is here, and check it out there."""
    names, repository = branch.names, branch.repository
    found = _candidates(branch)
    refs = repository.refs(names.ref, names.base) if found else {}
    tip = refs.get(names.ref) or refs.get(names.base)
    recorded = submodules.recorded(repository, tip) if tip else {}
    for path, inner in found.items():
        if path in recorded and branches.begin(inner.repository, names, recorded[path]):
            with naming(path):
                inner.set_up(fresh=False)


def sync(branch: Branch, *, everything: bool, aside: bool) -> Synced:
    """Sync all submodules. One that its sandbox's git cannot use is left there, and named."""
    found = Synced()
    for path, inner in of(branch).items():
        try:
            with naming(path):
                outcome = inner.sync(everything=everything, aside=aside)
        except SandboxCommandFailed as problem:
            if problem.transient or isinstance(problem, CutShort):
                raise
            found.failed.append(problem.message)
            continue
        if outcome.head is not None:
            found.there[path], found.outcomes[path] = inner, outcome
    return found


def update(branch: Branch, commit: str, what: str) -> bool:
    """Merge what a commit of the user's records of submodules; tell whether any was new there."""
    recorded = submodules.recorded(branch.repository, commit) if branch.with_submodules else {}
    new = False
    for path, inner in of(branch).items():
        if path in recorded and inner.repository.resolve(recorded[path]):
            with naming(path):
                new |= inner.update(recorded[path], what)
    return new


def push(branch: Branch) -> None:
    """Push the branch of each submodule that has one here."""
    for path, inner in of(branch).items():
        if inner.repository.refs(branch.names.ref):
            with naming(path):
                inner.push()


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Let errors of the block say of which submodule they are."""
    try:
        yield
    except GitDaytonaError as problem:
        message = f"submodule '{shown(path)}': {problem.message}"
        raise problem.but(message=message) from problem


def shown(path: str) -> str:
    return printable(path).replace("\n", "?")[:100]


def _and(outcome: Outcome, more: Outcome, name: str = "") -> Outcome:
    """Join two outcomes; of the second one it is said whose it is."""
    message = more.message if more.changed else more.remarks
    begin = f"{name}: " if name else ""
    return replace(
        outcome,
        changed=outcome.changed or more.changed,
        head=outcome.head if name else more.head,
        kept=(*outcome.kept, *more.kept),
        left_behind=bounded(outcome.left_behind, more.left_behind and begin + more.left_behind),
        message=bounded(outcome.message, message and begin + message),
        remarks=bounded(outcome.remarks, more.remarks and begin + more.remarks),
    )
