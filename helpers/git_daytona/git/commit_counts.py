"""How many commits each session's branch has over its base, for all sessions by five git calls."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from git_daytona.git.refs import Names
from git_daytona.git.repository import Repository

WALKED = 100_000
"""Commits that are walked for all sessions together, at most."""

Pair = tuple[str, str]
"""The commit that a session started from, and its branch's tip."""


@dataclass(frozen=True)
class BranchPosition:
    """Where a session's branch is; None where there is no such ref, or no count."""

    base: str | None = None
    tip: str | None = None
    ahead: int | None = None
    merged: bool = False
    """Whether it has commits, and HEAD, or the upstream of HEAD, has them, too."""


def branch_positions(
    repository: Repository, sessions: Sequence[Names]
) -> dict[int, BranchPosition]:
    """Session number → where its branch is."""
    refs = {names.number: (names.base, names.ref) for names in sessions}
    folders = {ref.rpartition("/")[0] for pair in refs.values() for ref in pair}
    oids = repository.refs(*folders) if folders else {}
    ends = {number: (oids.get(base), oids.get(ref)) for number, (base, ref) in refs.items()}
    counts = _counted(repository, [(base, tip) for base, tip in set(ends.values()) if base and tip])
    merged = _merged(repository, [names.ref for names in sessions]) if any(counts.values()) else ()
    found = {}
    for number, (base, tip) in ends.items():
        ahead = counts.get((base or "", tip or ""))
        found[number] = BranchPosition(base, tip, ahead, bool(ahead) and refs[number][1] in merged)
    return found


def _merged(repository: Repository, refs: Sequence[str]) -> set[str]:
    """Choose the refs whose commits are in HEAD or in its upstream."""
    words = ("for-each-ref", "--format=%(refname)", "--merged=HEAD")
    found = repository.git(*words, "--merged=@{upstream}", *refs, check=False)
    if found.status != 0:  # there is no upstream
        found = repository.git(*words, *refs, check=False)
    return set(found.text.splitlines())


def _counted(repository: Repository, pairs: Sequence[Pair]) -> dict[Pair, int]:
    """Count as ``git rev-list --count BASE..TIP`` does, for all pairs in one walk of the history.

    ``%(ahead-behind)`` of for-each-ref needs git 2.41, and a call for each base.
    """
    if not pairs:
        return {}
    # What all bases contain counts for no session, and need not be walked.
    common = repository.git("merge-base", "--octopus", *{base for base, _ in pairs}, check=False)
    ends = [*(oid for pair in pairs for oid in pair), *(f"^{oid}" for oid in common.text.split())]
    walk = ("rev-list", "--topo-order", "--parents", f"--max-count={WALKED}", "--stdin")
    listing = repository.git(*walk, stdin="\n".join(ends).encode(), check=False)
    lines = listing.text.splitlines()
    if listing.status != 0 or len(lines) == WALKED:
        return _counted_singly(repository, pairs)
    return _walked([line.split(" ") for line in lines], pairs)


def _walked(history: Sequence[Sequence[str]], pairs: Sequence[Pair]) -> dict[Pair, int]:
    """Count for pairs, given each commit and its parents, children first."""
    # For each commit, as bits, the pairs whose base and whose tip contain it.
    in_base: defaultdict[str, int] = defaultdict(int)
    in_tip: defaultdict[str, int] = defaultdict(int)
    for place, (base, tip) in enumerate(pairs):
        in_base[base] |= 1 << place
        in_tip[tip] |= 1 << place
    commits: Counter[int] = Counter()
    for oid, *parents in history:
        commits[in_tip[oid] & ~in_base[oid]] += 1
        for parent in parents:
            in_base[parent] |= in_base[oid]
            in_tip[parent] |= in_tip[oid]
    return {
        pair: sum(number for bits, number in commits.items() if bits >> place & 1)
        for place, pair in enumerate(pairs)
    }


def _counted_singly(repository: Repository, pairs: Sequence[Pair]) -> dict[Pair, int]:
    """Count for each pair on its own: an object is missing, or histories have nothing in common."""
    ranges = {pair: f"{pair[0]}..{pair[1]}" for pair in pairs}
    counted = {
        pair: repository.git("rev-list", "--count", each, check=False)
        for pair, each in ranges.items()
    }
    return {pair: int(result.text) for pair, result in counted.items() if result.status == 0}
