"""The submodules that are checked out here. What decides is a commit of the user's and what lies at
its paths here: no .gitmodules, and so nothing that a sandbox names."""

from contextlib import suppress
from functools import partial
from pathlib import Path

from git_daytona.git.repository import FOLDERS, Repository, made, parsed

MOST = 100
"""How many submodules of a repository are looked at."""


def recorded(repository: Repository, commit: str) -> dict[str, str]:
    """Read which commit of each submodule a commit records, by path; of paths that a sandbox
    cannot be told of (not UTF-8, or a line break at the end) none."""
    found = {}
    for entry in repository.listed("ls-tree", "-r", "-z", "--full-tree", commit):
        words, _, path = entry.partition(b"\t")
        if words.startswith(b"160000 ") and not path.endswith(b"\n"):
            with suppress(UnicodeDecodeError):
                found[path.decode()] = words.split()[2].decode()
    return found


def checked_out(repository: Repository, commit: str) -> dict[str, Repository]:
    """Find the repositories of the submodules that a commit records and that are checked out in the
    worktree, by path."""
    found: dict[str, Repository] = {}
    seen = {repository.common_dir}
    if repository.worktree is not None and repository.worktree.is_dir():
        for path in list(recorded(repository, commit))[:MOST]:
            inner = _at(repository, path)
            if inner is not None and inner.common_dir not in seen:
                seen.add(inner.common_dir)
                found[path] = inner
    return found


def _at(repository: Repository, path: str) -> Repository | None:
    """Find the repository whose worktree a path is; None where there is none."""
    assert repository.worktree is not None
    top = repository.worktree.resolve() / path
    if not (top / ".git").exists() or top.resolve() != top:
        return None
    ask = partial(repository.git, "-C", str(top), "rev-parse", check=False)
    found = parsed(ask, *FOLDERS, "--show-toplevel")
    return made(top, *found) if found and Path(found[3]) == top else None
