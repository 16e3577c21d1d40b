"""Plan the changes to an agent's configuration, in which alone is what was done."""

import os
from collections.abc import Collection
from pathlib import Path

from git_daytona.agents import entries
from git_daytona.agents.entries import Unfit
from git_daytona.agents.places import Place, places
from git_daytona.agents.table import Agent
from git_daytona.base import files
from git_daytona.base.errors import BadSetting, UsageError
from git_daytona.base.files import Change


def install(agent: Agent, worktree: Path | None) -> list[Change]:
    """Plan for the files of a project, or with None the user's. Raises BadSetting for one that
    cannot be edited, and UsageError where the agent has none."""
    found = []
    for place in places(agent, worktree):
        before = files.read_text(place.path)
        text = place.beginning if before is None or not before.strip() else before.decode()
        after = text if _has(place, text) else _made(place, text)
        found.append(Change(place.path, before, after.encode()))
    return found


def uninstall(agent: Agent, worktree: Path | None) -> list[Change]:
    """Plan for the files that have something of ours. A file that holds nothing else goes."""
    found = []
    for place in places(agent, worktree):
        before = files.read_text(place.path)
        if before is None or not _found(place, before.decode()):
            continue
        after = _made(place, before.decode(), out=True)
        alone = after == place.beginning and not place.path.is_symlink()
        found.append(Change(place.path, before, None if alone else after.encode()))
    return found


def is_of_project(agent: Agent, worktree: Path) -> bool:
    """Tell whether a project has a configuration of its own for an agent."""
    try:
        return any(os.path.lexists(place.path) for place in places(agent, worktree))
    except UsageError:  # it has none for projects
        return False


def present(place: Place) -> bool:
    """Whether a file has all of our entries as this installation writes them. Raises BadSetting."""
    before = files.read_text(place.path)
    return before is not None and (not place.entries or _has(place, before.decode()))


def partly(place: Place) -> bool:
    """Whether a file has something of ours. Raises BadSetting."""
    before = files.read_text(place.path)
    return before is not None and _found(place, before.decode())


def remove_empty(path: Path, roots: Collection[Path]) -> None:
    """Remove the folders that are empty without a file, up to one of the roots."""
    for folder in path.parents:
        if folder in roots:
            return
        try:
            folder.rmdir()
        except OSError:
            return  # it holds something


def _has(place: Place, text: str) -> bool:
    try:
        return place.kind.has(text, place.entries)
    except Unfit:
        return False  # _made() says why


def _found(place: Place, text: str) -> bool:
    if not place.entries:
        return text == place.beginning
    try:
        return place.kind.found(text, place.entries)
    except Unfit as problem:
        raise _unusable(place, problem) from problem


def _made(place: Place, text: str, *, out: bool = False) -> str:
    try:
        if out:
            return place.kind.remove(text, place.entries)
        return entries.checked(text, place.entries, place.kind)
    except Unfit as problem:
        raise _unusable(place, problem) from problem


def _unusable(place: Place, problem: Unfit) -> BadSetting:
    return BadSetting(f"'{place.path}' {problem}", hint="correct it first; nothing was changed")
