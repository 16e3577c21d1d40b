"""Files that git ignores and a sandbox gets all the same: ``daytona.copyFiles``."""

import errno
import io
import re
import stat
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from git_daytona.base import files
from git_daytona.base.errors import UsageError
from git_daytona.base.secret import printable
from git_daytona.git.repository import Repository, need_worktree
from git_daytona.sandbox.parts import PART_BYTES, Parts
from git_daytona.settings.preferences import COPY_FILES

MOST_FILES = 200
MOST_BYTES = PART_BYTES // 2
"""How much is copied: one upload's worth."""


@dataclass(frozen=True)
class Copies:
    """An archive of files, their names in it, and what is left out, with the reason."""

    archive: bytes
    names: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def matched(repository: Repository, patterns: Sequence[str]) -> list[str]:
    """Find the worktree's ignored files that a pattern names (gitglossary(7): pathspec, glob)."""
    specs = [f":(top,glob){each.lstrip('/')}" for each in patterns]
    words = ("ls-files", "-o", "-i", "--exclude-standard", "-z", "--", *specs)
    listed = repository.git(*words).stdout.decode("utf-8", "surrogateescape")
    return sorted(filter(None, listed.split("\0")))


def pack(worktree: Path, names: Sequence[str], key: bytes) -> Copies:
    """Pack files with their modes, but links, what they lead to, and what holds the API key. Raises
    UsageError for too much."""
    if len(names) > MOST_FILES:
        raise _too_much(f"{len(names)} files")
    made, packed, left_out, left = io.BytesIO(), [], [], MOST_BYTES
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in names:
            path = worktree / name
            if why := _unfit(worktree, name):
                left_out.append(f"{printable(name)[:80]} ({why})")
                continue
            try:
                data, mode = files.read_bounded(path, left)
                changed = int(path.stat().st_mtime)
            except OSError as problem:
                if problem.errno == errno.EFBIG:
                    raise _too_much(f"more than {MOST_BYTES >> 20} MiB") from None
                left_out.append(f"{printable(name)[:80]} ({problem.strerror})")
                continue
            if key and key in data:
                left_out.append(f"{printable(name)[:80]} (it holds Daytona's API key)")
                continue
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(data), mode & 0o777, changed
            archive.addfile(entry, io.BytesIO(data))
            packed.append(name)
            left -= len(data)
    return Copies(made.getvalue(), tuple(packed), tuple(left_out))


def _unfit(worktree: Path, name: str) -> str:
    """Say why a file is left out; empty for one that goes."""
    path, root = worktree / name, worktree.resolve()
    if "\n" in name:
        return "a line break in its name"
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return "no regular file"
    except OSError as problem:
        return problem.strerror or "gone"
    return "" if path.resolve() == root / name else "behind a link"


def _too_much(what: str) -> UsageError:
    return UsageError(
        f"{COPY_FILES} names {what}, and nothing was copied",
        hint=f"name less: git config --get-all {COPY_FILES}",
    )


def send(parts: Parts, repository: Repository, patterns: Sequence[str], key: bytes) -> Copies:
    """Copy what patterns name into a sandbox, whose git then ignores it: two calls or none."""
    worktree = need_worktree(repository)
    copies = pack(worktree, matched(repository, patterns), key)
    if copies.names:
        parts.upload(io.BytesIO(copies.archive))
        excludes = (re.sub(r"([\\*?\[\]!# ])", r"\\\1", f"/{name}") for name in copies.names)
        parts.run("place", parts.folder, "\n".join(copies.names), "\n".join(excludes))
    return copies
