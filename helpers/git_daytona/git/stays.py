"""What of the user's work a session's sandbox does not get, and how that is said."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from git_daytona.base.secret import printable
from git_daytona.git import environment
from git_daytona.git.repository import Repository
from git_daytona.git.worktrees import SECRETS

NAMED = 3
"""How many files of a kind are named."""


@dataclass(frozen=True)
class Stays:
    """Names of what stays here, as git has them."""

    uncommitted: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()
    lfs: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    """Files such as .env, which go with no commit of ours, and mostly are ignored."""


def look(
    repository: Repository,
    taken: str | None = None,
    submodules: Mapping[str, Repository] = MappingProxyType({}),
) -> Stays:
    """Look what stays here of a worktree; ``taken`` is the commit of uncommitted work that goes,
    ``submodules`` go along, by path, but for what is not committed in them."""
    secrets = _secrets(repository)
    uncommitted = (
        [] if taken else [name for name in _uncommitted(repository) if name not in secrets]
    )
    for path, inner in submodules.items() if taken else ():  # or it is among them, as one name
        uncommitted += [f"{path}/{name}" for name in _uncommitted(inner)]
    staying = [path for path in _submodules(repository) if path not in submodules]
    return Stays(tuple(uncommitted), tuple(staying), tuple(_lfs(repository)), tuple(secrets))


def described(stays: Stays) -> str:
    """Say it in one line, empty for nothing."""
    parts = [
        _counted(stays.uncommitted, "uncommitted file", "uncommitted files"),
        _counted(stays.submodules, "submodule", "submodules"),
        _counted(stays.lfs, "file's LFS content", "files' LFS content"),
        ", ".join(map(_shown, stays.secrets[:NAMED])),
    ]
    said = "; ".join(filter(None, parts))
    return f"stays here: {said}" if said else ""


def _counted(names: tuple[str, ...], one: str, several: str) -> str:
    if not names:
        return ""
    more = ", …" if len(names) > NAMED else ""
    shown = ", ".join(map(_shown, names[:NAMED]))
    return f"{len(names)} {one if len(names) == 1 else several} ({shown}{more})"


def _shown(name: str) -> str:
    return printable(name).replace("\n", "?")[:60]


def _names(repository: Repository, *arguments: str, **how: Any) -> list[str]:
    found = repository.listed(*arguments, **how)
    return [each.decode("utf-8", "surrogateescape") for each in found]


def _uncommitted(repository: Repository) -> list[str]:
    words = ("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=normal")
    listed = _names(repository, *words, env=_without_own_filters(repository))
    return [entry[3:] for entry in listed]


def _without_own_filters(repository: Repository) -> dict[str, str]:
    """Return what keeps git from running the filters that only the repository's configuration
    names: it may have come from a stranger, and git compares what they make of files."""
    drivers = {
        each.key.rpartition(".")[0]
        for each in repository.configuration()
        if each.key.startswith("filter.") and each.scope in ("local", "worktree")
    }
    values = {"clean": "", "process": "", "required": "false"}
    return environment.config_variables(
        [(f"{driver}.{key}", value) for driver in sorted(drivers) for key, value in values.items()]
    )


def _submodules(repository: Repository) -> list[str]:
    worktree = repository.worktree
    if worktree is None or not (worktree / ".gitmodules").is_file():
        return []
    entries = _names(repository, "ls-files", "--stage", "-z")
    return [entry.partition("\t")[2] for entry in entries if entry.startswith("160000 ")]


def _lfs(repository: Repository) -> list[str]:
    attributes = ("--", ":(top,glob)**/.gitattributes")
    if repository.git("grep", "--quiet", "filter=lfs", *attributes, check=False).status != 0:
        return []
    return _names(repository, "ls-files", "-z", "--", ":(top,attr:filter=lfs)")


def _secrets(repository: Repository) -> list[str]:
    """Find the files of the root that hold keys and are not as in HEAD, or ignored."""
    assert repository.worktree is not None
    there = sorted({path.name for each in SECRETS for path in repository.worktree.glob(each)})
    if not there:
        return []
    same = _names(repository, "ls-files", "-z", "--", *(f":(top,literal){each}" for each in there))
    changed = _names(repository, "diff", "--name-only", "-z", "HEAD", "--", check=False)
    return [name for name in there if name not in same or name in changed]
