"""A worktree that is about to be reset: who is at work in it, what only it holds, the reset."""

import contextlib
import itertools
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from git_daytona.base import files
from git_daytona.base.errors import TransferFailed, UsageError
from git_daytona.git.repository import Repository, failure

SNAPSHOT_TRIES = 3
COMPARED = 200
"""How many commits are looked at for whether they have uncommitted work of earlier."""
LINES_BYTES = 1024 * 1024
"""The longest list of branches that a rebase in a worktree here may have."""
_OWN = "daytona-index-"
_KEEP = "git-daytona: its ref is being made"
# gitrepository-layout(5) and git's wt-status.c: what a rebase or bisection comes back to. Files of
# the worktree, in repositories of every format of refs.
_HELD = {
    "rebase-merge/head-name": "rebase",
    "rebase-merge/update-refs": "rebase",
    "rebase-apply/head-name": "rebase",
    "BISECT_START": "bisection",
}
_HEADS = {"MERGE_HEAD": "merge", "CHERRY_PICK_HEAD": "cherry-pick", "REVERT_HEAD": "revert"}


def in_use(repository: Repository, ref: str) -> str:
    """Say what of the user's own keeps a branch where it is: an operation in a worktree here, or a
    worktree whose files git cannot find; empty for nothing."""
    short = ref.removeprefix("refs/heads/")
    for git_dir in (repository.common_dir, *repository.common_dir.glob("worktrees/*")):
        for name, operation in _HELD.items():
            if not {ref, short}.isdisjoint(_lines(git_dir / name)) and (
                place := _place(repository, git_dir)
            ):
                return f"a {operation} of it is in progress in '{place}'"
    for tree in repository.showing(ref):
        if tree.worktree is None:
            return f"it is checked out in a worktree of '{tree.git_dir}' that git cannot find"
        if operation := _operation(tree):
            return f"{operation} in '{tree.worktree}'"
    return ""


def _lines(path: Path) -> list[str]:
    try:
        return os.fsdecode(files.read_bounded(path, LINES_BYTES)[0]).removesuffix("\n").split("\n")
    except OSError:
        return []


def _place(repository: Repository, git_dir: Path) -> Path | None:
    """Tell where a worktree is, for people; None for one that was removed, which git prunes."""
    if git_dir == repository.common_dir:
        known = repository.worktree if git_dir == repository.git_dir else None
        return known or git_dir
    dot_git = git_dir / "\n".join(_lines(git_dir / "gitdir"))  # or an absolute path
    return dot_git.parent if dot_git.exists() or (git_dir / "locked").exists() else None


def _operation(repository: Repository) -> str:
    """Say which operation is in progress on the branch of a worktree; empty for none."""
    heads = "".join(f"{head}\n" for head in _HEADS).encode()
    found = repository.git("cat-file", "--batch-check=%(objecttype)", stdin=heads).text.splitlines()
    for operation, answer in zip(_HEADS.values(), found, strict=True):
        if answer == "commit":
            return f"a {operation} is in progress"
    if (repository.git_dir / "rebase-apply" / "applying").exists():
        return "'git am' is in progress"
    return "there are conflicts" if repository.git("ls-files", "--unmerged").stdout else ""


def snapshot(repository: Repository, new: str, old: str | None) -> str | None:
    """A commit of everything in the worktree, if a reset to ``new`` would take some of it away:
    staged and unstaged edits, and files that ``new`` would overwrite, ignored ones, too. None when
    there is nothing of that kind: other files stay where they are.

    The index and the files stay as they are. The commit's parents are ``old`` and, when the index
    differs from both, a commit of the index, as ``git stash`` records it. Its objects are safe from
    any gc until ``release``.
    """
    for again in reversed(range(SNAPSHOT_TRIES)):
        try:
            return _snapshot(repository, new, old)
        except TransferFailed:  # of an object that was there already, a gc may have taken it
            if not again:
                raise
    raise AssertionError


def _snapshot(repository: Repository, new: str, old: str | None) -> str | None:
    head = old or new
    before = repository.git("rev-parse", f"{head}^{{tree}}").text
    with _apart(repository) as (folder, env):
        # An index with conflicts makes no tree; it is captured as files.
        staged = repository.git("write-tree", check=False, env=env).text or before
        _look_again(repository, new, env, everywhere=True)
        # also what lies outside of a sparse checkout's patterns
        repository.git("add", "--update", "--sparse", "--", ":/", env=env)
        _add_overwritten(repository, new, env)
        if repository.git("write-tree", env=env).text == staged == before:
            return None
        repository.git("add", "--all", "--sparse", "--", ":/", env=env)
        tree = repository.git("write-tree", env=env).text
        place, parents = f"'{repository.worktree}'", ["-p", head]
        if staged not in (tree, before):
            parents += ["-p", _commit(repository, staged, parents, f"index of {place}", env)]
        message = f"uncommitted work in {place}, kept by git-daytona"
        commit = _commit(repository, tree, parents, message, env)
        _store(repository, folder, env, f"{commit}\n^{head}\n")
        return commit


SECRETS = (".env", ".env.*")
"""Names of files whose changes are never taken along: they hold keys."""


def take_along(repository: Repository, author: tuple[str, str]) -> str | None:
    """Make a commit of the uncommitted and untracked work on top of HEAD; None where there is none.

    Index and files stay as they are. Left out are what git ignores, files with a mark
    (assume-unchanged, skip-worktree), nested repositories and SECRETS. Raises UsageError in the
    middle of a merge or the like.
    """
    head = repository.resolve("HEAD")
    if head is None or repository.worktree is None:
        return None
    if operation := _operation(repository):
        hint = "finish or abort that first, or start without --dirty"
        raise UsageError(f"uncommitted work cannot be taken along: {operation}", hint=hint)
    with _apart(repository) as (folder, env):
        repository.git("add", "--all", "--sparse", "--", ":/", env=env)
        _leave_out(repository, head, env)
        tree = repository.git("write-tree", env=env).text
        if tree == repository.git("rev-parse", f"{head}^{{tree}}").text:
            return None
        text = f"Uncommitted work in '{repository.worktree.name}', taken along by git-daytona"
        commit = _commit(repository, tree, ["-p", head], text, env, author)
        _store(repository, folder, env, f"{commit}\n^{head}\n")
        return commit


def _differing(repository: Repository, commit: str, other: str) -> set[bytes]:
    words = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", commit, other)
    return set(repository.listed(*words))


def is_clean(repository: Repository, commit: str) -> bool:
    """Tell whether the files that were taken along, by that commit, are in the worktree as in
    HEAD."""
    words = ("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all")
    changed = {entry[3:] for entry in repository.listed(*words)}
    return changed.isdisjoint(_differing(repository, f"{commit}^", commit))


def is_committed(repository: Repository, commit: str) -> bool:
    """Tell whether a commit since then has the files as they were when they were taken along."""
    taken = _differing(repository, f"{commit}^", commit)
    since = repository.git("rev-list", f"--max-count={COMPARED}", f"{commit}^..HEAD")
    return any(
        taken.isdisjoint(_differing(repository, commit, each)) for each in since.text.split()
    )


@contextlib.contextmanager
def as_index(repository: Repository, changes: str) -> Iterator[dict[str, str]]:
    """Give git an index of its own that has the files which a range changes as they are in the
    worktree, staged or not, while the block runs."""
    assert repository.worktree is not None
    words = ("diff", "-z", "--name-only", "--no-renames", "--no-ext-diff", changes)
    names = repository.listed(*words)
    top = os.fsencode(repository.worktree)
    with tempfile.TemporaryDirectory(prefix="git-daytona-") as folder:
        env = _own_index(repository, folder)
        tracked = set(repository.listed("ls-files", "-z", "--full-name", ":/", env=env))
        known = [name for name in names if name in tracked or os.path.lexists(top + b"/" + name)]
        if known:
            paths = b"\0".join(b":(literal,top)" + name for name in known)
            options = ("--all", "--force", "--sparse", "--pathspec-from-file=-")
            repository.git("add", *options, "--pathspec-file-nul", stdin=paths, env=env)
        yield env


def _leave_out(repository: Repository, head: str, env: dict[str, str]) -> None:
    """Take repositories inside this one that are not recorded, and changes of secrets, out of an
    index again."""
    words = ("diff-index", "--cached", "-z", "--no-renames", head)
    fields = repository.listed(*words, env=env)
    added = [
        name
        for about, name in zip(fields[0::2], fields[1::2], strict=False)
        if about.startswith(b":000000 160000 ")
    ]
    if added:
        gone = ("update-index", "--force-remove", "-z", "--stdin")
        repository.git(*gone, stdin=b"\0".join(added) + b"\0", env=env)
    secret = [f":(top,glob)**/{name}" for name in SECRETS]
    repository.git("reset", "--quiet", head, "--", *secret, env=env)


def _own_index(repository: Repository, folder: str) -> dict[str, str]:
    """Copy the worktree's index to a folder, and let git use that."""
    with contextlib.suppress(FileNotFoundError):
        # With its time: by it git tells which files may have changed within the second in which the
        # index was written.
        shutil.copy2(repository.git_dir / "index", folder)
    return {"GIT_INDEX_FILE": f"{folder}/index"}


@contextlib.contextmanager
def _apart(repository: Repository) -> Iterator[tuple[Path, dict[str, str]]]:
    """Make a folder with an index and objects of its own, beside the repository's, which no gc
    looks into; what killed runs have left of that kind is removed."""
    objects = repository.common_dir / "objects"
    for stale in files.stale(objects, _OWN + "*"):
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_OWN, dir=objects) as folder:
        quoted = re.sub(r'(["\\])', r"\\\1", str(objects))
        env = _own_index(repository, folder) | {
            "GIT_OBJECT_DIRECTORY": f"{folder}/objects",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"',
        }
        (Path(folder) / "objects").mkdir()
        yield Path(folder), env


def _store(repository: Repository, folder: Path, env: dict[str, str], revisions: str) -> None:
    """Give the repository a pack of all that the revisions have, also of what lay in it and was in
    use by nothing. A gc that runs just now leaves it alone for its ``.keep``, as one that git's own
    fetch writes; one that had begun before does not know it."""
    words = ("pack-objects", "--revs", "--quiet", "--window=0", f"{folder}/pack")
    repository.git(*words, stdin=revisions.encode(), env=env)
    target = repository.common_dir / "objects" / "pack"
    target.mkdir(exist_ok=True)
    # the index of a pack last: by it git finds the pack
    for part in sorted(folder.glob("pack-*"), key=lambda path: path.suffix == ".idx"):
        (target / part.with_suffix(".keep").name).write_text(_KEEP)
        part.replace(target / part.name)


def release(repository: Repository) -> None:
    """Give the packs of snapshots to git's care: their refs are made, or their run was killed."""
    for path in (repository.common_dir / "objects" / "pack").glob("*.keep"):
        if _lines(path) == [_KEEP]:
            path.unlink(missing_ok=True)


def _add_overwritten(repository: Repository, new: str, env: dict[str, str]) -> None:
    """Add what ``new`` would overwrite, and git does not look at: untracked and ignored files."""
    assert repository.worktree is not None
    tree = repository.git("write-tree", env=env).text
    words = ("-r", "-z", "--name-only", "--diff-filter=A", tree, new)
    names = repository.listed("diff-tree", *words, env=env)
    there = {_in_the_way(repository.worktree, name) for name in names} - {b""}
    if there:
        arguments = ("add", "--force", "--sparse", "--pathspec-from-file=-", "--pathspec-file-nul")
        paths = b"\0".join(b":(literal,top)" + name for name in sorted(there))
        repository.git(*arguments, stdin=paths, env=env)


def _in_the_way(worktree: Path, name: bytes) -> bytes:
    """Return what takes a path's place in a worktree: itself, or a file or link among its folders;
    empty for nothing."""
    for folder in itertools.accumulate(name.split(b"/"), lambda *pair: b"/".join(pair)):
        path = worktree / os.fsdecode(folder)
        if path.is_symlink() or not path.is_dir():
            return folder if os.path.lexists(path) else b""
    return name


def _look_again(
    repository: Repository, new: str, env: dict[str, str] | None = None, *, everywhere: bool = False
) -> None:
    """Take the marks assume-unchanged (core.ignoreStat sets it on all files) and skip-worktree from
    files that differ between the index and ``new``: git would miss the edits in them, and then
    refuse to overwrite them. ``everywhere``: assume-unchanged from all files, because a reset
    overwrites those, too, whether they differ or not."""
    assert repository.worktree is not None
    top = os.fsencode(repository.worktree)
    changed = set(repository.listed("diff-index", "--cached", "-z", "--name-only", new, env=env))
    lines = repository.listed("ls-files", "-v", "-z", env=env)
    skipped = {line[2:] for line in lines if line[:1] in (b"S", b"s")}
    unchanged = {line[2:] for line in lines if line[:1].islower()} - skipped
    # Else they are outside a sparse checkout's patterns: nothing is there, and nothing shall be.
    there = set(filter(lambda name: os.path.lexists(top + b"/" + name), skipped & changed))
    marked = there | (unchanged if everywhere else unchanged & changed)
    for option in ("--no-assume-unchanged", "--no-skip-worktree") if marked else ():
        names = b"\0".join(marked)
        repository.git("update-index", option, "-z", "--stdin", stdin=names, env=env)


def _commit(
    repository: Repository,
    tree: str,
    parents: list[str],
    message: str,
    env: dict[str, str],
    author: tuple[str, str] = ("", ""),
) -> str:
    own = ("git-daytona", "git-daytona@localhost")
    identity, roles = dict(env), {"AUTHOR": author if all(author) else own, "COMMITTER": own}
    for role, (name, address) in roles.items():
        identity |= {f"GIT_{role}_NAME": name, f"GIT_{role}_EMAIL": address}
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
