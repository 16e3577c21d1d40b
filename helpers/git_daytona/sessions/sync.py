"""One sync: a report from the sandbox and, if something moved, one lease, one fetch, and the refs
moved to where they belong."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from git_daytona.base import log
from git_daytona.base.errors import NotFound, TransferFailed
from git_daytona.base.threads import concurrently
from git_daytona.git import branches
from git_daytona.git.branches import Kept
from git_daytona.git.refs import PROJECT, SANDBOX_BRANCH, Names
from git_daytona.git.repository import Repository
from git_daytona.sandbox import report as sandbox
from git_daytona.sandbox.report import Report
from git_daytona.transfer.failures import RefGone
from git_daytona.transfer.transfer import Transfers

MESSAGE = "Changes of the OpenCode session"
"""Subject of the commits that a sync makes in the sandbox."""


MESSAGE_LENGTH = 4000
"""The longest message of a sync, characters."""


@dataclass(frozen=True)
class Outcome:
    """What a sync did. ``message`` is one line for people and the state file."""

    changed: bool
    head: str | None
    kept: tuple[Kept, ...] = ()
    left_behind: str = ""
    """What could not come back and is still only in the sandbox."""
    message: str = ""
    ports: tuple[int, ...] = field(default=())


def sync(
    repository: Repository,
    transfers: Transfers,
    sandbox_id: str,
    names: Names,
    *,
    show: bool = False,
) -> Outcome:
    """Commit what is pending in the sandbox and bring all of it back. Raises SandboxCommandFailed,
    TransferFailed and its kinds, NotFound for a sandbox that is gone."""
    with log.event("session.sync", sandbox=sandbox_id, number=names.number) as event:
        kept: list[Kept] = []
        # What stands here is looked up while the sandbox's answer is waited for.
        with concurrently(lambda: _here(repository, names)) as beside:
            try:
                report = sandbox.report(transfers.cloud, sandbox_id, MESSAGE)
            finally:
                here = beside.result()
                if names.resetting in here:
                    kept = branches.finish_reset(repository, names)
                    here = _here(repository, names)
        # Where the branch is, none of a part of its name can be.
        if names.ref not in here and (blocked := branches.in_the_way(repository, names.prefix)):
            raise blocked
        if report.missing is not None:
            report = _restore(repository, transfers, sandbox_id, names, report)
        outcome = _take(repository, transfers, sandbox_id, names, report, here, kept, show=show)
        event.update(changed=outcome.changed, head=outcome.head, kept=len(outcome.kept))
        return outcome


def fetch(
    repository: Repository,
    transfers: Transfers,
    sandbox_id: str,
    names: Names,
    *,
    show: bool = False,
) -> Outcome:
    """Fetch the sandbox's branches into the tracking refs, and nothing else."""
    before = repository.refs(names.tracking)
    branches.forget_incoming(repository, names)
    _fetch(
        repository,
        transfers,
        sandbox_id,
        names,
        sandbox.refs(transfers.cloud, sandbox_id),
        show=show,
    )
    kept = branches.integrate(repository, names, None, None)
    changed = repository.refs(names.tracking) != before
    return Outcome(
        changed, None, tuple(kept), message="fetched" if changed else "nothing new in the sandbox"
    )


def push(
    repository: Repository,
    transfers: Transfers,
    sandbox_id: str,
    names: Names,
    *,
    show: bool = False,
) -> str:
    """Push opencode/N to the branch that the sandbox has checked out, fast-forward only. Returns
    the commit.

    What is pending in the sandbox is committed there first, so that nothing of it can be
    overwritten. Raises TransferFailed.
    """
    local = repository.refs(names.ref).get(names.ref)
    if local is None:
        raise NotFound(
            f"there is no local branch '{names.branch}'",
            hint=f"get it: git daytona sync {names.number}",
        )
    report = sandbox.report(transfers.cloud, sandbox_id, MESSAGE)
    if report.missing is not None:
        raise TransferFailed(
            "the sandbox has no repository any more",
            hint=f"'git daytona sync {names.number}' makes it again",
        )
    if report.operation is not None:
        raise TransferFailed(
            f"a {report.operation} is in progress in the sandbox",
            hint="let the agent finish or abort it, then push again",
        )
    if report.branch is None:
        raise TransferFailed(
            "the sandbox has no branch checked out", hint="check one out there, then push again"
        )
    if report.head == local:
        return local
    known = report.head is None or repository.resolve(report.head) is not None
    if not known or (report.head is not None and not repository.contains([local], report.head)):
        raise TransferFailed(
            f"the sandbox has work that '{names.branch}' does not contain",
            hint=f"bring it back first: git daytona sync {names.number}",
        )
    transfers.push(repository, sandbox_id, [f"{local}:{report.branch}"], show=show)
    return local


def _take(
    repository: Repository,
    transfers: Transfers,
    sandbox_id: str,
    names: Names,
    report: Report,
    here: Mapping[str, str],
    kept: list[Kept],
    *,
    show: bool,
) -> Outcome:
    changed = _moved(names, report, here)
    if changed:
        if any(ref.startswith(names.incoming) for ref in here):
            branches.forget_incoming(repository, names)
        try:
            _fetch(repository, transfers, sandbox_id, names, report, show=show)
        except RefGone:  # deleted since the report: the next one does not name it
            report = sandbox.report(transfers.cloud, sandbox_id, MESSAGE)
            _fetch(repository, transfers, sandbox_id, names, report, show=show)
        kept = kept + branches.integrate(repository, names, report.head, report.operation)
    left = []
    if report.nested:
        left.append(f"nested repositories do not travel: {', '.join(report.nested)}")
    if report.refused:
        left.append(
            f"branches that cannot be taken stay in the sandbox: {', '.join(report.refused)}"
        )
    behind = "; ".join(left)
    return Outcome(
        changed,
        report.head,
        tuple(kept),
        behind,
        _message(names, report, changed, kept, behind),
        tuple(report.ports),
    )


def _here(repository: Repository, names: Names) -> dict[str, str]:
    """The session's refs here, name to object id."""
    return repository.refs(names.ref, names.tracking, names.kept, names.resetting, names.incoming)


def _moved(names: Names, report: Report, here: Mapping[str, str]) -> bool:
    """Whether anything in the sandbox is not where it belongs here."""
    if report.head is not None and here.get(names.ref) != report.head:
        return True
    tracking = {
        names.tracking + ref.removeprefix("refs/heads/"): oid
        for ref, oid in report.refs.items()
        if ref.startswith("refs/heads/")
    }
    if tracking != {ref: oid for ref, oid in here.items() if ref.startswith(names.tracking)}:
        return True
    extra = {
        report.refs[ref]
        for what in ("pending", "stash")
        if (ref := f"refs/daytona/{what}") in report.refs
    }
    known = {oid for ref, oid in here.items() if not ref.startswith(names.incoming)}
    return not extra <= {*known, report.head}


def _fetch(
    repository: Repository,
    transfers: Transfers,
    sandbox_id: str,
    names: Names,
    report: Report,
    *,
    show: bool,
) -> None:
    """Fetch what the report names, and nothing else that the sandbox's git may offer, to where
    ``branches.integrate`` expects it."""
    if report.refs:
        refspecs = [f"+{ref}:{names.incoming}{ref.removeprefix('refs/')}" for ref in report.refs]
        transfers.fetch(repository, sandbox_id, refspecs, show=show)


def _restore(
    repository: Repository, transfers: Transfers, sandbox_id: str, names: Names, report: Report
) -> Report:
    """The sandbox's .git is gone (CASES 62): give it the history that is here, so that its files
    come back on top of that."""
    local = repository.refs(names.ref).get(names.ref)
    log.logger.warning("session.restore sandbox=%s %s is missing", sandbox_id, report.missing)
    sandbox.prepare(transfers.cloud, sandbox_id, repository.object_format)
    if local is not None:
        # HEAD must not be the pushed branch: the push would check it out over the agent's files.
        sandbox.run_once(
            transfers.cloud,
            sandbox_id,
            'cd "$1" && git -c "safe.directory=*" symbolic-ref HEAD refs/heads/daytona-restore',
            PROJECT,
            timeout=sandbox.PREPARE_SECONDS,
        )
        transfers.push(repository, sandbox_id, [f"+{local}:refs/heads/{SANDBOX_BRANCH}"])
    again = sandbox.report(transfers.cloud, sandbox_id, MESSAGE, adopt=local is not None)
    if again.missing is not None:
        raise TransferFailed(
            "the repository in the sandbox could not be made again",
            hint="look into it: git daytona exec N -- ls -la",
        )
    again.notes.append(
        f"the sandbox's {'.git' if report.missing == 'repository' else 'project directory'} was gone and was made again"
    )
    return again


def _message(names: Names, report: Report, changed: bool, kept: list[Kept], left: str) -> str:
    parts = []
    if changed and report.head:
        parts.append(f"{names.branch} is at {report.head[:10]}")
    else:
        parts.append("nothing new in the sandbox")
    if report.operation:
        parts.append(f"a {report.operation} is in progress in the sandbox")
    parts += report.notes
    if kept:
        parts.append(branches.describe(kept))
    if left:
        parts.append(left)
    if report.lfs:
        parts.append(f"{report.lfs} LFS objects stay in the sandbox")
    return "; ".join(parts)[:MESSAGE_LENGTH]
