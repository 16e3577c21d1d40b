"""Local branches, numbers, and what is kept before it is overwritten. Local git only."""

import calendar
import contextlib
import hashlib
import itertools
import re
import time
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from git_daytona.base import files, log, paths
from git_daytona.base.errors import NoRepository, TransferFailed
from git_daytona.base.secret import printable
from git_daytona.git import worktrees
from git_daytona.git.refs import (
    BASES,
    COUNTER,
    DIRTY,
    KEPT,
    LAST_NUMBER,
    NUMBER,
    SANDBOX_BRANCH,
    Names,
    number_in,
)
from git_daytona.git.repository import Repository

RESERVE_TRIES = 200
MOVE_TRIES = 5
MOST_NAMED = 10
"""How many kept things a message names."""
_STAMP = "%Y%m%dT%H%M%S"


@contextlib.contextmanager
def changing(repository: Repository) -> Iterator[None]:
    """Hold the repository's lock, while its configuration is written or several refs are moved."""
    place = str(repository.common_dir).encode("utf-8", "surrogateescape")
    path = paths.locks() / f"repository-{hashlib.sha256(place).hexdigest()[:24]}"
    with files.lock(path, holds=f"the repository '{repository.common_dir}'"):
        try:
            yield
        finally:
            worktrees.release(repository)


# -- numbers ---------------------------------------------------------------------------------------


def in_the_way(repository: Repository, prefix: str = SANDBOX_BRANCH) -> NoRepository | None:
    """What to say of a branch ``opencode``, which makes ``opencode/N`` impossible (case 38)."""
    for name in itertools.accumulate(prefix.split("/"), "{}/{}".format):
        if f"refs/heads/{name}" in repository.refs(f"refs/heads/{name}"):
            return NoRepository(
                f"the local branch '{name}' is in the way of '{prefix}/N'",
                hint=f"rename it: git branch -m {name} other-name",
            )
    return None


def _used(repository: Repository, prefix: str = SANDBOX_BRANCH) -> tuple[int, str | None, set[int]]:
    """The last number that was given, the counter's blob (None: there is none yet), and the numbers
    that names here have."""
    refs = repository.refs(COUNTER, f"refs/heads/{prefix}", "refs/remotes")
    # a branch opencode/N/x takes the place of opencode/N, too
    taken = re.compile(
        rf"(?:refs/heads/{re.escape(prefix)}/|refs/remotes/sandbox-|remote\.sandbox-)({NUMBER})"
        r"(?:/.*|\.url)?"
    )
    keys = (each.key for each in repository.configuration())
    names = [taken.fullmatch(name) for name in (*refs, *keys)]
    last, counter = 0, refs.get(COUNTER)
    if counter:
        text = repository.git("cat-file", "blob", counter, check=False).text.strip()
        last = int(text) if re.fullmatch(NUMBER, text) else 0
    return last, counter, {int(name[1]) for name in names if name}


def _next(last: int, taken: Collection[int]) -> int:
    # Beyond the last of all numbers, which somebody else must have given, they begin anew.
    numbers = itertools.chain(range(last + 1, LAST_NUMBER + 1), itertools.count(1))
    return next(number for number in numbers if number not in taken)


def reserve(
    repository: Repository,
    prefix: str = SANDBOX_BRANCH,
    *,
    known: Collection[int] = (),
    base: bool = True,
    begin: str | None = None,
    dirty: bool = False,
) -> Names:
    """Reserve the next number, the first one after the last that no name has: the counter moves and
    ``opencode/N`` is created at HEAD (or another commit, ``begin``, which may be one of uncommitted
    work: ``dirty``) in one transaction, which one process wins.

    ``known`` are the numbers in the state file. In a repository without commits, or
    with ``base`` off, only the counter moves; where a branch is in the way, the branch is left to a
    later sync. Raises TransferFailed.
    """
    head = begin or repository.resolve("HEAD")
    blocked = None  # as is seen by trying
    for _ in range(RESERVE_TRIES):
        last, counter, taken = _used(repository, prefix)
        names = Names(_next(last, taken.union(known)), prefix)
        commands = [_count(repository, names.number, counter)]
        if head is not None and base:
            created = [names.base] if blocked else [names.ref, names.base]
            created += [names.dirty] if dirty else []
            commands += [f"create {ref} {head}" for ref in created]
        if repository.update_refs(commands):
            log.logger.info("branch.reserve number=%d", names.number)
            return names
        blocked = in_the_way(repository, prefix)
    raise TransferFailed(
        "no branch number could be reserved", hint="see whether .git can be written, then try again"
    )


def begin(repository: Repository, names: Names, commit: str) -> bool:
    """Create ``opencode/N`` at a commit where the session has not begun yet; False for a commit
    that is not here, and where the branch is another's or cannot be."""
    if repository.refs(names.base):
        return True
    if in_the_way(repository, names.prefix):
        return False
    commands = [f"create {ref} {commit}" for ref in (names.ref, names.base)]
    last, counter, _ = _used(repository, names.prefix)
    if last < names.number:  # it is no other session's any more
        commands.append(_count(repository, names.number, counter))
    return repository.resolve(commit) is not None and repository.update_refs(commands)


def _count(repository: Repository, number: int, before: str | None) -> str:
    """Make the command that moves the counter to a number; without one, away."""
    if not number:
        return f"delete {COUNTER} {before}"
    text = f"{number}\n".encode()
    blob = repository.git("hash-object", "-w", "--stdin", stdin=text).text
    return f"update {COUNTER} {blob} {before or repository.zero}"


def numbers(repository: Repository, prefix: str) -> set[int]:
    """The numbers that names in a repository have."""
    return _used(repository, prefix)[2]


def give_back(repository: Repository, names: Names, begun: str | None) -> None:
    """Remove what says nothing of a session that is gone: its branch unless there is work on it
    since it was ``begun``, and, if nothing else has its number, that."""
    with changing(repository):
        refs = repository.refs(names.ref, names.kept)
        tip, commands = refs.get(names.ref), []
        if tip and tip == begun and not repository.showing(names.ref):
            commands.append(f"delete {names.ref} {refs.pop(names.ref)}")
        last, counter, _ = _used(repository, names.prefix)
        if counter and last == names.number and not refs:
            commands.append(_count(repository, last - 1, counter))
        repository.update_refs(commands)


def forget_bases(repository: Repository, living: Callable[[], Container[int | None]]) -> None:
    """Remove the bases of sessions that are gone: of those that ``living`` (asked once the refs are
    read) does not have, and that have no remote, either."""
    bases = repository.refs(BASES, DIRTY)
    remotes = {each.key for each in repository.configuration()} if bases else ()
    numbers = living() if bases else ()
    gone = [
        f"delete {ref} {oid}"
        for ref, oid in bases.items()
        if (number := number_in(ref.removeprefix(BASES).removeprefix(DIRTY)))
        and number not in numbers
        and f"remote.sandbox-{number}.url" not in remotes
    ]
    repository.update_refs(gone)


# -- what is kept ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """Something that would have been overwritten, and the ref that holds it now."""

    what: str
    ref: str


class _Keeper:
    """Keeps what would be lost under refs of its own, unless a ref among ``here`` keeps it."""

    def __init__(self, repository: Repository, names: Names, here: Mapping[str, str]) -> None:
        self.repository, self.names = repository, names
        self.held = set(_below(here, names.kept).values())
        self.last = max(map(_moment, _below(here, names.kept)), default=0)
        self.commands: list[str] = []
        self.kept: list[Kept] = []

    def keep(self, what: str, oid: str, label: str, tips: Sequence[str] = ()) -> None:
        """Keep a commit, unless it is in the history of one of the tips."""
        if oid not in self.held and not (tips and self.repository.contains(tips, oid)):
            self.held.add(oid)
            # later than those before it, also when the clock was set back: names tell the order
            self.last = max(int(time.time()), self.last + 1)
            stamp = time.strftime(_STAMP, time.gmtime(self.last))
            ref = f"{self.names.kept}{stamp}-{label}-{oid[:12]}"
            self.commands.append(f"create {ref} {oid}")
            self.kept.append(Kept(what, ref))

    def keep_worktrees(self, new: str, old: str | None) -> bool:
        """Keep what only the files have in the worktrees that show the branch, if there are any."""
        trees = self.repository.showing(self.names.ref)
        for tree in trees:
            snapshot = worktrees.snapshot(tree, new, old)
            if snapshot is not None:
                self.keep(f"uncommitted work in '{tree.worktree}'", snapshot, "worktree")
        return bool(trees)

    def create(self) -> None:
        """Create the refs, all or none. Raises TransferFailed."""
        if not self.repository.update_refs(self.commands):
            raise TransferFailed(
                f"what '{self.names.branch}' does not contain could not be kept",
                hint="see whether .git can be written, then try again",
            )


def keep_branches(repository: Repository, names: Names) -> list[Kept]:
    """Before the sandbox goes: keep its branches that opencode/N does not contain."""
    with changing(repository):
        here = repository.refs(names.ref, names.tracking, names.kept, names.turn)
        keeper = _Keeper(repository, names, here)
        tips = [here[names.ref]] if names.ref in here else []
        for name, oid in _below(here, names.tracking).items():
            keeper.keep(f"the sandbox's branch '{printable(name)}'", oid, "branch", tips)
        if names.turn in here:  # nothing came from the sandbox after that
            keeper.keep("the sandbox's files during a turn", here[names.turn], "pending", tips)
        keeper.create()
        return keeper.kept


def kept_before(repository: Repository, moment: int) -> dict[str, str]:
    """Refs that were kept before a moment (seconds since the epoch), and their commits."""
    return {ref: oid for ref, oid in repository.refs(KEPT).items() if 0 < _moment(ref) < moment}


def _moment(ref: str) -> int:
    """Read from its name when a ref was kept, in seconds since the epoch; 0 for another name."""
    stamp, dash, _ = ref.rpartition("/")[2].partition("-")
    with contextlib.suppress(ValueError):
        return calendar.timegm(time.strptime(stamp, _STAMP)) if dash else 0
    return 0


def describe(kept: Sequence[Kept]) -> str:
    """``WHAT kept as REF; …`` for a message, empty for nothing."""
    parts = [f"{each.what} kept as {each.ref}" for each in kept[:MOST_NAMED]]
    if len(kept) > MOST_NAMED:
        parts.append(f"{len(kept) - MOST_NAMED} more kept, see 'git for-each-ref {KEPT}'")
    return "; ".join(parts)


# -- what comes back -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Integrated:
    """What was kept, and why ``opencode/N`` stayed where it is, as a clause (empty: it moved)."""

    kept: list[Kept]
    in_use: str = ""


def integrate(
    repository: Repository,
    names: Names,
    head: str | None,
    operation: str | None,
    held: Mapping[str, str] = MappingProxyType({}),
    *,
    aside: bool = False,
) -> Integrated:
    """Move what was fetched under ``names.incoming`` to where it belongs; what that overwrites is
    kept under a ref and returned, and so is what an inventory found, ``held`` by what there.
    What is pending ``aside`` is ``names.turn``, until the next time.

    First refs for the tips that the new ones do not contain; then, in one transaction, the tracking
    refs and ``opencode/N`` (compare-and-swap to ``head``); then every worktree that has the branch
    checked out follows. While the user is in the middle of something on the branch, it stays, and
    what it would have moved to is kept. Raises TransferFailed.
    """
    with changing(repository):
        for _ in range(MOVE_TRIES):
            here = repository.refs(names.incoming, names.ref, names.tracking, names.kept)
            fetched, old = _below(here, names.incoming), here.get(names.ref)
            keeper = _Keeper(repository, names, here)
            new, in_use = _destination(keeper, fetched, head, old)
            gone, moves = _moves(keeper, here, new)
            if aside and (pending := fetched.pop("daytona/pending", None)):
                moves.append(f"update {names.turn} {pending}")
            _keep_extra(keeper, fetched, head, operation)
            _keep_inventory(keeper, fetched, held)
            # while the branch still is where it was
            shown = new is not None and keeper.keep_worktrees(new, old)
            before = old or new or ""
            if shown:
                moves.append(f"update {names.resetting} {before}")
            moves += [f"delete {ref} {here[ref]}" for ref in here if ref.startswith(names.incoming)]
            # Two steps, because git cannot delete 'a' and create 'a/b' in one transaction.
            if repository.update_refs(keeper.commands + gone) and repository.update_refs(moves):
                if shown:
                    _follow(repository, names, before)
                return Integrated(keeper.kept, in_use)
    hint = f"try again: git daytona sync {names.number}"
    raise TransferFailed(f"'{names.branch}' kept moving during the sync", hint=hint)


def _destination(
    keeper: _Keeper, fetched: Mapping[str, str], head: str | None, old: str | None
) -> tuple[str | None, str]:
    """Return where the branch has to go (None: nowhere), and what keeps it from going there; then
    what it would have become is kept. Raises TransferFailed."""
    names = keeper.names
    if head is not None and head not in fetched.values():
        hint = f"try again: git daytona sync {names.number}"
        raise TransferFailed("the sandbox did not send the commit that it reported", hint=hint)
    if head is None or head == old:
        return None, ""
    if in_use := worktrees.in_use(keeper.repository, names.ref):
        tips = list(_below(fetched, "heads/").values())
        keeper.keep("what the sandbox has checked out", head, "head", tips)
        return None, in_use
    return head, ""


def _below(refs: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The refs under a prefix, by the rest of their names."""
    return {ref.removeprefix(prefix): oid for ref, oid in refs.items() if ref.startswith(prefix)}


def _moves(
    keeper: _Keeper, here: Mapping[str, str], head: str | None
) -> tuple[list[str], list[str]]:
    """The commands that delete tracking refs, and those that move refs; what is lost is kept."""
    names, old = keeper.names, here.get(keeper.names.ref)
    fetched, tracked = _below(here, f"{names.incoming}heads/"), _below(here, names.tracking)
    tips = sorted({*fetched.values(), *filter(None, [head])})
    moves, gone = [], []
    if head is not None and old != head:
        if old is not None:
            what = f"commits of '{names.branch}' that are not in the sandbox's history"
            keeper.keep(what, old, "commits", tips)
        moves.append(f"update {names.ref} {head} {old or keeper.repository.zero}")
    for name in sorted(fetched.keys() | tracked.keys()):
        before, after = tracked.get(name), fetched.get(name)
        if before is not None and before not in (after, old):
            keeper.keep(f"the sandbox's earlier '{printable(name)}'", before, "branch", tips)
        if after is None:
            gone.append(f"delete {names.tracking}{name} {before}")
        elif after != before:
            moves.append(f"update {names.tracking}{name} {after}")
    return gone, moves


def finish_turn(repository: Repository, names: Names) -> bool:
    """Make what was brought during a turn, whose sandbox is lost since, the branch's tip, as the
    turn's end would have; return whether it is. Where that cannot be, it is kept."""
    here = repository.refs(names.turn, names.tracking)
    turn = here.pop(names.turn, None)
    if turn is None:
        return False
    repository.remove_refs(names.incoming)
    commands = [f"create {names.incoming}daytona/head {turn}"]
    for name, oid in _below(here, names.tracking).items():
        commands.append(f"create {names.incoming}heads/{name} {oid}")
    repository.update_refs(commands)
    try:
        finished = not integrate(repository, names, turn, None).in_use
    except TransferFailed as problem:  # a branch is in the way, say
        log.logger.warning("branch.turn number=%d %s", names.number, problem.message)
        keep_branches(repository, names)
        finished = False
    repository.remove_refs(names.turn)
    return finished


def running(operation: str) -> str:
    """Say what an operation of a sandbox's report is."""
    words = {"git": "a git command is running", "conflict": "a conflict is not resolved"}
    return words.get(operation, f"a {operation} is in progress")


def _keep_extra(
    keeper: _Keeper, fetched: Mapping[str, str], head: str | None, operation: str | None
) -> None:
    """Keep what was fetched besides the branches: an operation in progress, a stash."""
    state = f"the sandbox's files as they are ({running(operation or 'operation')})"
    for label, what in (("pending", state), ("stash", "the sandbox's stash")):
        oid = fetched.get(f"daytona/{label}")
        if oid is not None and oid != head:
            keeper.keep(what, oid, label)


def _keep_inventory(keeper: _Keeper, fetched: Mapping[str, str], held: Mapping[str, str]) -> None:
    """Keep what was held in the sandbox by other refs, reflogs and worktrees, and is not here."""
    for name, oid in fetched.items():
        if name.startswith("daytona/inventory/") and not keeper.repository.has(oid):
            where = held.get(oid)
            what = f"the sandbox's {where}" if where else "a commit in a reflog of the sandbox"
            keeper.keep(what, oid, "inventory")


def finish_reset(repository: Repository, names: Names) -> list[Kept]:
    """Finish the reset of worktrees that a crash interrupted; what was edited since is kept."""
    old = repository.refs(names.resetting).get(names.resetting)
    if old is None or worktrees.in_use(repository, names.ref):
        return []
    with changing(repository):
        here = repository.refs(names.ref, names.kept)
        keeper = _Keeper(repository, names, here)
        if names.ref in here:
            keeper.keep_worktrees(here[names.ref], old)
        keeper.create()
        _follow(repository, names, old)
        return keeper.kept


def _follow(repository: Repository, names: Names, old: str) -> None:
    """Make every worktree that has ``opencode/N`` checked out show it; then the marker goes."""
    for tree in repository.showing(names.ref):
        worktrees.reset(tree)
    repository.update_refs([f"delete {names.resetting} {old}"])
