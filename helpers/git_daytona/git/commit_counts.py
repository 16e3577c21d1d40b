"""How many commits each session's branch has over its base, for all sessions by three git calls."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from git_daytona.git.refs import Names
from git_daytona.git.repository import Repository

WALKED = 100_000
"""Commits that are walked for all sessions together, at most."""

Pair = tuple[str, str]
"""The commit that a session started from, and its branch's tip."""


@dataclass(frozen=True)
class BranchPosition:
    """Where a session's branch is. None: there is no such ref (an adopted session has no base), or
    its commits could not be counted."""

    base: str | None = None
    tip: str | None = None
    ahead: int | None = None


def branch_positions(
    repository: Repository, sessions: Iterable[Names]
) -> dict[int, BranchPosition]:
    """Session number → where its branch is."""
    sessions = list(sessions)
    folders = {ref.rpartition("/")[0] for names in sessions for ref in (names.ref, names.base)}
    oids = repository.refs(*sorted(folders)) if sessions else {}
    ends = {names.number: (oids.get(names.base), oids.get(names.ref)) for names in sessions}
    pairs = {(base, tip) for base, tip in ends.values() if base and tip}
    counts = {pair: 0 for pair in pairs if pair[0] == pair[1]}
    counts |= _counted(repository, sorted(pairs - counts.keys()))
    return {
        number: BranchPosition(base, tip, counts.get((base, tip)) if base and tip else None)
        for number, (base, tip) in ends.items()
    }


def _counted(repository: Repository, pairs: Sequence[Pair]) -> dict[Pair, int]:
    """Count as ``git rev-list --count BASE..TIP`` does, for all pairs in one walk of the history.

    ``%(ahead-behind)`` of for-each-ref needs git 2.41, and a call for each base.
    """
    if not pairs:
        return {}
    # What all bases contain counts for no session, and need not be walked.
    common = repository.git("merge-base", "--octopus", *{base for base, _ in pairs}, check=False)
    ends = [*{oid for pair in pairs for oid in pair}, *(f"^{each}" for each in common.text.split())]
    listing = repository.git(
        "rev-list",
        "--topo-order",
        "--parents",
        f"--max-count={WALKED}",
        "--stdin",
        stdin="\n".join(ends).encode(),
        check=False,
    )
    lines = listing.text.splitlines()
    if listing.status != 0 or len(lines) == WALKED:
        return _counted_singly(repository, pairs)
    # For each commit, as bits, the pairs whose base and whose tip contain it.
    in_base: defaultdict[str, int] = defaultdict(int)
    in_tip: defaultdict[str, int] = defaultdict(int)
    for place, (base, tip) in enumerate(pairs):
        in_base[base] |= 1 << place
        in_tip[tip] |= 1 << place
    sets: Counter[int] = Counter()
    for line in lines:  # children before parents
        oid, *parents = line.split(" ")
        sets[in_tip[oid] & ~in_base[oid]] += 1
        for parent in parents:
            in_base[parent] |= in_base[oid]
            in_tip[parent] |= in_tip[oid]
    counts = dict.fromkeys(pairs, 0)
    for bits, number in sets.items():
        for place in (place for place in range(bits.bit_length()) if bits >> place & 1):
            counts[pairs[place]] += number
    return counts


def _counted_singly(repository: Repository, pairs: Sequence[Pair]) -> dict[Pair, int]:
    """Count for each pair on its own: an object is missing, or histories have nothing in common."""
    counts = {}
    for base, tip in pairs:
        counted = repository.git("rev-list", "--count", f"{base}..{tip}", check=False)
        if counted.status == 0:
            counts[base, tip] = int(counted.text)
    return counts
