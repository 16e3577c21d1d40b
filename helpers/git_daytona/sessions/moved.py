"""A repository whose folder was moved or copied since its sessions were recorded: the records say
where it is, and which one it is, once they are settled."""

from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from git_daytona.git import identity
from git_daytona.sandbox import lifecycle

Record = dict[str, Any]


def is_settled(records: Iterable[Record], git_dir: str, own: str) -> bool:
    """Tell whether the records are right for a repository with that identity (empty: none yet)."""
    can_have_one = identity.can_be(git_dir)
    return not any(
        _is_away(each, git_dir, own)
        or (can_have_one and each.get("gitDir") == git_dir and not each.get("repository"))
        for each in records
    )


def settle(records: Collection[Record], git_dir: str, worktree: str) -> list[str]:
    """Put the records right; return what a person has to know.

    Sessions follow a repository that is not where they say. If one with its identity still is
    there, this one is a copy, which gets an identity of its own.
    """
    before, lines = identity.give(git_dir), []
    own, away = before, [each for each in records if _is_away(each, git_dir, before)]
    if first := _original(away, git_dir):
        own, away = identity.give(git_dir, anew=True), []
        lines.append(f"this repository is a copy of '{first}', which keeps its sessions")
    for record in records:
        if own and record.get("gitDir") == git_dir and record.get("repository", before) == before:
            record["repository"] = own
    for record in away:
        _move(record, git_dir, worktree)
    return lines


def left_here(records: Iterable[Record], git_dir: str, own: str) -> list[str]:
    """Say which sessions belong to another repository, which was at this place before."""
    return [
        f"session {record.get('branchNumber')} is of a repository that was here before: use it"
        f" where that is now, or take it over: git daytona adopt {record.get('sandboxId')}"
        for record in records
        if record.get("gitDir") == git_dir and record.get("repository", own) != own
    ]


def _is_away(record: Record, git_dir: str, own: str) -> bool:
    place = record.get("gitDir")
    return isinstance(place, str) and place != git_dir and record.get("repository") == own != ""


def _original(away: Iterable[Record], git_dir: str) -> str:
    """Find where the repository still is, if that is not only another way to it; empty: nowhere."""
    for place in {record["gitDir"] for record in away}:
        with suppress(OSError):
            if Path(place).samefile(git_dir):
                continue
        if identity.is_at(place, identity.read(git_dir)):
            return str(place)
    return ""


def _move(record: Record, git_dir: str, worktree: str) -> None:
    before, place = Path(record["gitDir"]).parent, Path(str(record.get("worktree")))
    if place.is_relative_to(before):
        place = Path(git_dir).parent / place.relative_to(before)
    record["worktree"] = str(place) if place.is_dir() else worktree
    lifecycle.move_marks(record["gitDir"], git_dir)
    record["gitDir"] = git_dir
