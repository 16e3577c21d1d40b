"""Local names: numbers, branches, remotes, and what is kept before it is overwritten. Local git
only; no network, no state file."""

import contextlib
import functools
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from git_daytona.base import files, log, paths
from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import NoRepository, TransferFailed
from git_daytona.git import worktrees
from git_daytona.git.refs import (
    COUNTER,
    KEPT,
    SANDBOX_BRANCH,
    Names,
    number_of_branch,
    number_of_remote,
    url,
)
from git_daytona.git.repository import Repository

RESERVE_TRIES = 200
MOST_TOLD = 10
"""How many kept things a message names."""


@dataclass(frozen=True)
class Kept:
    """Something that would have been overwritten, and the ref that holds it now."""

    what: str
    ref: str


@contextlib.contextmanager
def changing(repository: Repository) -> Iterator[None]:
    """Hold the repository's lock: whoever writes its configuration or moves several refs, in any
    process, does it one at a time."""
    import hashlib

    name = hashlib.sha256(
        str(repository.common_dir).encode("utf-8", "surrogateescape")
    ).hexdigest()[:24]
    with files.lock(
        paths.locks() / f"repository-{name}", holds=f"the repository '{repository.common_dir}'"
    ):
        yield


# -- numbers ---------------------------------------------------------------------------------------


def in_the_way(repository: Repository, prefix: str = SANDBOX_BRANCH) -> NoRepository | None:
    """A local branch named ``opencode`` makes ``opencode/N`` impossible (CASES 38): what to say of
    it, None where there is none."""
    pieces = prefix.split("/")
    wanted = ["refs/heads/" + "/".join(pieces[: number + 1]) for number in range(len(pieces))]
    for ref in wanted:
        if repository.has_ref(ref):
            name = ref.removeprefix("refs/heads/")
            return NoRepository(
                f"the local branch '{name}' stands in the way of '{prefix}/N'",
                hint=f"rename it: git branch -m {name} other-name",
            )
    return None


def highest(repository: Repository, prefix: str = SANDBOX_BRANCH) -> tuple[int, str | None]:
    """The highest number that was ever given, and the counter's blob (None: there is none yet)."""
    refs = repository.refs(COUNTER, f"refs/heads/{prefix}", "refs/remotes")
    # A branch opencode/N/x takes the place of opencode/N, too.
    depth = len(prefix.split("/")) + 3
    numbers = [
        number
        for ref in refs
        if (number := number_of_branch("/".join(ref.split("/")[:depth]), prefix)) is not None
    ]
    numbers += [
        number
        for ref in refs
        if ref.startswith("refs/remotes/") and (number := number_of_remote(ref.split("/")[2]))
    ]
    listing = repository.git(
        "config", "--name-only", "--get-regexp", r"^remote\.sandbox-[0-9]+\.url$", check=False
    )
    numbers += [
        number
        for key in listing.text.splitlines()
        if (number := number_of_remote(key[len("remote.") : -len(".url")]))
    ]
    counter = refs.get(COUNTER)
    if counter is not None:
        text = repository.git("cat-file", "blob", counter, check=False).text.strip()
        if text.isascii() and text.isdigit() and len(text) < 10:
            numbers.append(int(text))
    return max(numbers, default=0), counter


def reserve(
    repository: Repository, prefix: str = SANDBOX_BRANCH, *, above: int = 0, base: bool = True
) -> Names:
    """Reserve the next number: the counter moves and ``opencode/N`` is created at HEAD in one
    transaction, which one process wins.

    ``above`` is the highest number that the state file knows. In a repository without commits, or
    with ``base`` off, only the counter moves; where a branch stands in the way, the branch is left
    to a later sync. Raises TransferFailed.
    """
    head = repository.resolve("HEAD")
    blocked = in_the_way(repository, prefix)
    for _ in range(RESERVE_TRIES):
        known, counter = highest(repository, prefix)
        names = Names(max(known, above) + 1, prefix)
        blob = repository.git(
            "hash-object", "-w", "--stdin", stdin=f"{names.number}\n".encode()
        ).text
        commands = [f"update {COUNTER} {blob} {counter or repository.zero}"]
        if head is not None and base:
            commands += [
                f"create {ref} {head}"
                for ref in ([names.base] if blocked else [names.ref, names.base])
            ]
        if repository.update_refs(commands):
            log.logger.info("branch.reserve number=%d", names.number)
            return names
    raise TransferFailed(
        "no branch number could be reserved", hint="see whether .git can be written, then try again"
    )


# -- the remote ------------------------------------------------------------------------------------


def set_remote(repository: Repository, names: Names, endpoint: Endpoint) -> None:
    """Add or correct remote sandbox-N. Keys that the user put into its section stay."""
    wanted = {
        "url": url(endpoint),
        "fetch": f"+refs/heads/*:{names.tracking}*",
        # The user's own `git fetch --all` and `git remote update` shall not try it: only a lease
        # can (CASES 18).
        "skipFetchAll": "true",
        "skipDefaultUpdate": "true",
        "tagOpt": "--no-tags",
    }
    with changing(repository):
        there = repository.section(f"remote.{names.remote}")
        for key, value in wanted.items():
            name = f"remote.{names.remote}.{key}"
            if there.get(key.lower()) != value:
                result = repository.set_config("--replace-all", name, value)
                if result.status != 0:
                    raise TransferFailed(
                        f"cannot add the remote '{names.remote}': {result.complaint.splitlines()[-1] if result.complaint else 'git config failed'}",
                        hint="another program may hold .git/config.lock; remove it if none does",
                    )


def remove_remote(repository: Repository, names: Names) -> None:
    """Remove remote sandbox-N, its tracking refs and what a fetch left; the branch opencode/N
    stays."""
    with changing(repository):
        if repository.config(f"remote.{names.remote}.url") is not None:
            repository.set_config("--remove-section", f"remote.{names.remote}")
        leftovers = repository.refs(names.tracking, names.incoming, names.resetting)
        if leftovers:
            repository.update_refs([f"delete {ref} {oid}" for ref, oid in leftovers.items()])


# -- what comes back -------------------------------------------------------------------------------


def integrate(
    repository: Repository, names: Names, head: str | None, operation: str | None
) -> list[Kept]:
    """Move what was fetched under ``names.incoming`` to where it belongs; what that overwrites is
    kept under a ref and returned.

    First refs for the tips that the new ones do not contain; then, in one transaction, the tracking
    refs and ``opencode/N`` (compare-and-swap to ``head``); then every worktree that has the branch
    checked out follows. Raises TransferFailed.
    """
    with changing(repository):
        for _ in range(5):
            here = repository.refs(names.incoming, names.ref, names.tracking, names.kept)
            fetched = {ref: oid for ref, oid in here.items() if ref.startswith(names.incoming)}
            current = {
                ref: oid
                for ref, oid in here.items()
                if ref == names.ref or ref.startswith(names.tracking)
            }
            held = {oid for ref, oid in here.items() if ref.startswith(names.kept)}
            old = current.get(names.ref)
            if head is not None and head not in fetched.values():
                raise TransferFailed(
                    "the sandbox did not send the commit that it reported",
                    hint=f"try again: git daytona sync {names.number}",
                )
            branches = {
                ref.removeprefix(f"{names.incoming}heads/"): oid
                for ref, oid in fetched.items()
                if ref.startswith(f"{names.incoming}heads/")
            }
            extra = {
                what: fetched[ref]
                for what in ("pending", "stash")
                if (ref := f"{names.incoming}daytona/{what}") in fetched and fetched[ref] != head
            }
            commands, kept = _plan(
                repository, names, head, operation, current, branches, extra, held
            )
            places = repository.showing(names.ref) if head and head != old else []
            # In the worktrees' own files there may be work, too: capture it while the branch still
            # stands where it was.
            for place in places:
                kept += _keep_worktree(repository.at(place), names, head or "", old)
            if places:
                commands.append(f"update {names.resetting} {old or head}")
            commands += [f"delete {ref} {oid}" for ref, oid in fetched.items()]
            # Two steps, because git cannot delete 'a' and create 'a/b' in one transaction: first
            # what is kept and what goes.
            first = [
                command
                for command in commands
                if command.startswith(("create", f"delete {names.tracking}"))
            ]
            if repository.update_refs(first) and repository.update_refs(
                [each for each in commands if each not in first]
            ):
                break
        else:
            raise TransferFailed(
                f"'{names.branch}' kept moving during the sync",
                hint=f"try again: git daytona sync {names.number}",
            )
        if places:
            _follow(repository, names, old or head or "")
        return kept


def forget_incoming(repository: Repository, names: Names) -> None:
    """Remove what an interrupted sync left under ``names.incoming``."""
    leftovers = repository.refs(names.incoming)
    if leftovers:
        repository.update_refs([f"delete {ref} {oid}" for ref, oid in leftovers.items()])


def _plan(
    repository: Repository,
    names: Names,
    head: str | None,
    operation: str | None,
    current: Mapping[str, str],
    branches: Mapping[str, str],
    extra: Mapping[str, str],
    held: set[str],
) -> tuple[list[str], list[Kept]]:
    """The transaction's commands for the refs, and what of the old ones they keep, unless it is
    held by a kept ref already."""
    new_tracking = {names.tracking + name: oid for name, oid in branches.items()}
    old = current.get(names.ref)
    commands: list[str] = []
    kept: list[Kept] = []

    def keep(what: str, oid: str, label: str) -> None:
        if oid in held:  # already kept by an earlier sync
            return
        ref = f"{names.kept}{_stamp()}-{label}-{oid[:12]}"
        held.add(oid)
        commands.append(f"create {ref} {oid}")
        kept.append(Kept(what, ref))

    tips = sorted({*new_tracking.values(), *([head] if head else [])})

    @functools.cache
    def lost(oid: str) -> bool:
        return not repository.contains(tips, oid)

    if head is not None and old != head:
        if old is not None and lost(old):
            keep(
                f"commits of '{names.branch}' that are not in the sandbox's history", old, "commits"
            )
        commands.append(f"update {names.ref} {head} {old or repository.zero}")
    for ref, oid in current.items():
        if ref.startswith(names.tracking) and new_tracking.get(ref) != oid:
            if lost(oid) and oid != old:
                keep(f"the sandbox's earlier '{ref.removeprefix(names.tracking)}'", oid, "branch")
            if ref not in new_tracking:
                commands.append(f"delete {ref} {oid}")
    commands += [
        f"update {ref} {oid}" for ref, oid in new_tracking.items() if current.get(ref) != oid
    ]
    if "pending" in extra:
        what = (
            "the state of a git command that was running"
            if operation == "git"
            else f"the state of the {operation or 'operation'} in progress"
        )
        keep(what, extra["pending"], "pending")
    if "stash" in extra:
        keep("the sandbox's stash", extra["stash"], "stash")
    return commands, kept


def _keep_worktree(repository: Repository, names: Names, new: str, old: str | None) -> list[Kept]:
    snapshot = worktrees.snapshot(repository, new, old)
    if snapshot is None:
        return []
    ref = f"{names.kept}{_stamp()}-worktree-{snapshot[:12]}"
    repository.git("update-ref", ref, snapshot)
    return [Kept(f"uncommitted work in '{repository.worktree}'", ref)]


def finish_reset(repository: Repository, names: Names) -> list[Kept]:
    """Finish what a crash interrupted between the branch's move and the worktrees' reset; what was
    edited since then is kept."""
    old = repository.refs(names.resetting).get(names.resetting)
    if old is None:
        return []
    kept: list[Kept] = []
    with changing(repository):
        new = repository.refs(names.ref).get(names.ref)
        for tree in repository.worktrees():
            if new is not None and tree.branch == names.ref:
                kept += _keep_worktree(repository.at(tree.path), names, new, old)
        _follow(repository, names, old)
    return kept


def _follow(repository: Repository, names: Names, old: str) -> None:
    """Make every worktree that has ``opencode/N`` checked out show it, and take the marker of that
    back."""
    for tree in repository.worktrees():
        if tree.branch == names.ref:
            worktrees.reset(repository.at(tree.path))
    repository.update_refs([f"delete {names.resetting} {old}"])


def keep_branches(repository: Repository, names: Names) -> list[Kept]:
    """Before the sandbox goes: keep its branches that opencode/N does not contain."""
    with changing(repository):
        tip = repository.refs(names.ref).get(names.ref)
        held = set(repository.refs(names.kept).values())
        commands, kept = [], []
        for ref, oid in repository.refs(names.tracking).items():
            name = ref.removeprefix(names.tracking)
            if oid in held or (tip is not None and repository.contains([tip], oid)):
                continue
            place = f"{names.kept}{_stamp()}-branch-{oid[:12]}"
            held.add(oid)
            commands.append(f"create {place} {oid}")
            kept.append(Kept(f"the sandbox's branch '{name}'", place))
        if commands and not repository.update_refs(commands):
            raise TransferFailed(
                "the sandbox's other branches could not be kept",
                hint="see whether .git can be written, then try again",
            )
        return kept


def kept_before(repository: Repository, moment: int) -> dict[str, str]:
    """Refs with what was kept before a moment (seconds since the epoch), and their commits. A ref
    that does not say when is never old."""
    limit = time.strftime(_STAMP, time.gmtime(min(moment, 2**33)))
    refs = repository.refs(KEPT)
    stamps = {ref: re.match(r"\d{8}T\d{6}(?=-)", ref.rpartition("/")[2]) for ref in refs}
    return {ref: refs[ref] for ref, stamp in stamps.items() if stamp and stamp[0] < limit}


_STAMP = "%Y%m%dT%H%M%S"


def _stamp() -> str:
    return time.strftime(_STAMP, time.gmtime())


def describe(kept: Sequence[Kept]) -> str:
    """``kept: WHAT as REF; …`` for a message, empty for nothing."""
    told = [f"{each.what} kept as {each.ref}" for each in kept[:MOST_TOLD]]
    if len(kept) > MOST_TOLD:
        told.append(f"{len(kept) - MOST_TOLD} more kept, see 'git for-each-ref {KEPT}'")
    return "; ".join(told)
