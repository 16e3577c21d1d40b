"""The submodules that are checked out here. What decides is a commit of the user's and what lies at
its paths here: no .gitmodules, and so nothing that a sandbox names."""

from pathlib import Path

from git_daytona.git.repository import Repository

MOST = 100
"""How many submodules of a repository are looked at."""


def recorded(repository: Repository, commit: str) -> dict[str, str]:
    """Read which commit of each submodule a commit records, by path; of paths that a sandbox
    cannot be told of (not UTF-8, or a line break at the end) none."""
    listing = repository.git("ls-tree", "-r", "-z", "--full-tree", commit).stdout
    found = {}
    for entry in listing.split(b"\0"):
        words, _, path = entry.partition(b"\t")
        if words.startswith(b"160000 ") and not path.endswith(b"\n") and _is_utf8(path):
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
    folders = ("--absolute-git-dir", "--git-common-dir", "--show-toplevel")
    words = ("--show-object-format", *folders)
    ask = ("-C", str(top), "rev-parse")
    found = repository.git(*ask, *words, check=False).text.split("\n")
    if len(found) > len(words):  # one has a line break in its name
        found = [repository.git(*ask, word).text for word in words]
    if len(found) < len(words) or Path(found[3]) != top:
        return None
    return Repository(Path(found[1]), (top / found[2]).resolve(), top, found[0])


def _is_utf8(path: bytes) -> bool:
    try:
        path.decode()
    except UnicodeDecodeError:
        return False
    return True
