"""How many commits each session's branch has over the commit it started from: for all sessions
together, by two or three git calls.

git 2.41 has ``%(ahead-behind:…)`` for this; the oldest git that we run with has not.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from git_daytona.git.refs import Names
from git_daytona.git.repository import Repository

COMMITS = 100_000
"""How much of the history is looked at for all sessions in common."""
SINGLE_CALLS = 20
"""How many sessions whose history lies beyond that are counted with a call of their own."""

Graph = Mapping[str, tuple[int, Sequence[str]]]
"""Commit → its place (children before parents) and its parents."""


@dataclass(frozen=True)
class Progress:
    """Where a session's branch stands. None: there is no such ref (an adopted session has no base),
    or it was not counted."""

    base: str | None = None
    tip: str | None = None
    ahead: int | None = None


def progress(repository: Repository, sessions: Iterable[Names]) -> dict[int, Progress]:
    """Session number → how far it is."""
    sessions = list(sessions)
    if not sessions:
        return {}
    folders = sorted(
        {ref.rpartition("/")[0] for names in sessions for ref in (names.ref, names.base)}
    )
    oids = repository.refs(*folders)
    pairs = {names.number: (oids.get(names.base), oids.get(names.ref)) for names in sessions}
    moved = [
        (base, tip) for _, (base, tip) in sorted(pairs.items()) if base and tip and base != tip
    ]
    counted = _counted(repository, moved) if moved else {}
    counted |= {(base, base): 0 for base, _ in pairs.values() if base}
    return {
        number: Progress(base, tip, counted.get((base, tip)) if base and tip else None)
        for number, (base, tip) in pairs.items()
    }


def _counted(
    repository: Repository, pairs: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], int]:
    """(base, tip) → commits, for pairs in the order in which sessions began. What lies behind the
    first base is left out, so that a long history costs nothing."""
    oldest = pairs[0][0]
    wanted = sorted({oid for pair in pairs for oid in pair} - {oldest})
    asked = "".join(f"{word}\n" for word in (*wanted, f"^{oldest}"))
    arguments = (
        "rev-list",
        "--topo-order",
        "--parents",
        f"--max-count={COMMITS}",
        "--ignore-missing",
        "--stdin",
    )
    listing = repository.git(*arguments, check=False, stdin=asked.encode()).text
    graph: dict[str, tuple[int, Sequence[str]]] = {}
    for place, line in enumerate(listing.splitlines()):
        oid, *parents = line.split(" ")
        graph[oid] = (place, parents)
    # its parents are not in the graph: who gets past it alone is counted otherwise
    graph[oldest] = (len(graph), ("",))
    found, singly = {}, 0
    for base, tip in dict.fromkeys(pairs):
        number = count(graph, base, tip)
        if number is None and singly < SINGLE_CALLS:
            singly += 1
            said = repository.git("rev-list", "--count", f"{base}..{tip}", check=False)
            number = int(said.text) if said.status == 0 and said.text.isdigit() else None
        if number is not None:
            found[(base, tip)] = number
    return found


def count(graph: Graph, base: str, tip: str) -> int | None:
    """How many commits are in the history of ``tip`` and not in that of ``base``; None where the
    graph ends too early to know. Pure.

    As git does it: both histories are walked together, children before parents, until nothing is
    left that only ``tip`` has.
    """
    if base not in graph or tip not in graph:
        return None
    bases = {base}
    todo = [(graph[oid][0], oid) for oid in {base, tip}]
    heapq.heapify(todo)
    met, number = {base, tip}, 0
    open_tips = 1 if tip != base else 0
    while open_tips:
        _, oid = heapq.heappop(todo)
        is_base = oid in bases
        if not is_base:
            open_tips -= 1
            number += 1
        for parent in graph[oid][1]:
            if parent not in graph:
                if not is_base:
                    return None
                continue
            if parent not in met:
                met.add(parent)
                heapq.heappush(todo, (graph[parent][0], parent))
                open_tips += not is_base
                if is_base:
                    bases.add(parent)
            elif is_base and parent not in bases:
                bases.add(parent)
                open_tips -= 1
    return number
