"""A worktree that is about to be reset: what only it holds, and the reset itself."""

import contextlib
import itertools
import os
import shutil
import tempfile
from pathlib import Path

from git_daytona.base.errors import TransferFailed
from git_daytona.git.repository import Repository, failure


def snapshot(repository: Repository, new: str, old: str | None) -> str | None:
    """A commit of everything in the worktree that resetting it to ``new`` would take away: staged,
    unstaged and untracked files, and ignored ones that ``new`` would overwrite. None when there is
    nothing of that kind.

    The index and the files stay as they are. The commit's parents are ``old`` and, when the index
    differs from both, a commit of the index, as ``git stash`` records it.
    """
    head = old or new
    before = repository.git("rev-parse", f"{head}^{{tree}}").text
    # An index with conflicts makes no tree; it is captured as files.
    staged = repository.git("write-tree", check=False).text or before
    with tempfile.TemporaryDirectory(prefix="daytona-index-", dir=repository.git_dir) as folder:
        env = {"GIT_INDEX_FILE": f"{folder}/index"}
        with contextlib.suppress(FileNotFoundError):
            # With its time: by it git tells which files may have changed within the second in which
            # the index was written.
            shutil.copy2(repository.git_dir / "index", folder)
        _look_again(repository, new, env, everywhere=True)
        repository.git("add", "--all", "--", ":/", env=env)
        _add_overwritten(repository, new, env)
        tree = repository.git("write-tree", env=env).text
    if tree == staged == before:
        return None
    place, parents = f"'{repository.worktree}'", ["-p", head]
    if staged not in (tree, before):
        parents += ["-p", _commit(repository, staged, parents, f"index of {place}")]
    message = f"uncommitted work in {place}, kept by git-daytona"
    return _commit(repository, tree, parents, message)


def _add_overwritten(repository: Repository, new: str, env: dict[str, str]) -> None:
    """Add ignored files that ``new`` tracks: the reset would overwrite them."""
    assert repository.worktree is not None
    tree = repository.git("write-tree", env=env).text
    words = ("-r", "-z", "--name-only", "--diff-filter=A", tree, new)
    names = repository.git("diff-tree", *words).stdout.split(b"\0")
    there = [b":(literal,top)" + name for name in names if name and _has(repository.worktree, name)]
    if there:
        arguments = ("add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul")
        repository.git(*arguments, stdin=b"\0".join(there), env=env)


def _has(worktree: Path, name: bytes) -> bool:
    """Whether the worktree has that path, but not by way of a link, which git does not follow."""
    path = worktree / os.fsdecode(name)
    folders = itertools.takewhile(lambda folder: folder != worktree, path.parents)
    return os.path.lexists(path) and not any(folder.is_symlink() for folder in folders)


def _look_again(
    repository: Repository, new: str, env: dict[str, str] | None = None, *, everywhere: bool = False
) -> None:
    """Take the marks assume-unchanged (core.ignoreStat sets it on all files) and skip-worktree from
    files that differ between the index and ``new``: git would miss the edits in them, and then
    refuse to overwrite them. ``everywhere``: assume-unchanged from all files, because a reset
    overwrites those, too, whether they differ or not."""
    assert repository.worktree is not None
    top = os.fsencode(repository.worktree)
    differing = repository.git("diff-index", "--cached", "-z", "--name-only", new, env=env).stdout
    changed = set(differing.split(b"\0"))
    lines = repository.git("ls-files", "-v", "-z", env=env).stdout.split(b"\0")
    skipped = {line[2:] for line in lines if line[:1] in (b"S", b"s")}
    unchanged = {line[2:] for line in lines if line[:1].islower()} - skipped
    # Else they are outside a sparse checkout's patterns: nothing is there, and nothing shall be.
    there = set(filter(lambda name: os.path.lexists(top + b"/" + name), skipped & changed))
    marked = there | (unchanged if everywhere else unchanged & changed)
    for option in ("--no-assume-unchanged", "--no-skip-worktree") if marked else ():
        names = b"\0".join(marked)
        repository.git("update-index", option, "-z", "--stdin", stdin=names, env=env)


def _commit(repository: Repository, tree: str, parents: list[str], message: str) -> str:
    identity = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "git-daytona")
    identity |= dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "git-daytona@localhost")
    return repository.git("commit-tree", tree, *parents, "-m", message, env=identity).text


def reset(repository: Repository) -> None:
    """Make index and files of the worktree show its HEAD. Raises TransferFailed when git cannot."""
    with contextlib.suppress(TransferFailed):  # the reset says it better
        _look_again(repository, "HEAD")
    # LFS would load what the sandbox's own .lfsconfig names, from where that points to; LFS objects
    # do not travel anyway.
    env = {"GIT_LFS_SKIP_SMUDGE": "1"}
    result = repository.git("reset", "--hard", "--quiet", check=False, env=env)
    if result.status != 0:
        problem = failure(result, f"'{repository.worktree}' could not be reset to its branch")
        raise problem.but(hint="close what uses that worktree; the next sync finishes it")
