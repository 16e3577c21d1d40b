"""Files out of a tar archive that a sandbox made, below one directory of the user's: no name and no
link of its making leads anywhere else.

Not by tarfile's own filters: Python 3.11.2 (Debian 12) has none, they look at paths before they are
used, and later ones were escaped by long paths (CVE-2025-4517). Here each folder on the way is
opened in the one before it, and a link among them is an error, also where it was there before.
"""

import contextlib
import errno
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import IO

from git_daytona.base.errors import BadAnswer
from git_daytona.base.secret import printable

ENTRIES = 1_000_000
HEADER_BYTES = 64 * 1024
"""The largest name, link or extended header that is read."""
CHUNK_BYTES = 1024 * 1024
LINK_ERRORS = (errno.ELOOP, errno.ENAMETOOLONG, errno.EMLINK)
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE)
"""No other file could be written, either."""


@dataclass
class Unpacked:
    """How many files were written, and what was left out, one line each."""

    files: int = 0
    left_out: list[str] = field(default_factory=list)
    repositories: list[str] = field(default_factory=list)
    """The ``.git`` that did not come along, each once."""

    @contextlib.contextmanager
    def counting(self, entry: tarfile.TarInfo) -> Iterator[None]:
        """Count the file that the block writes, or note what is in its way. Raises OSError."""
        try:
            yield
            self.files += not entry.isdir()
        except OSError as problem:
            if problem.errno in DISK_ERRORS:
                raise
            in_the_way = problem.errno in LINK_ERRORS
            reason = "a link is in the way" if in_the_way else problem.strerror
            self.left_out.append(f"{_shown(entry.name)} ({reason})")


class _Entry(tarfile.TarInfo):
    """An entry whose header, which tarfile reads whole, is no larger than people make any."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if not (self.isreg() or self.islnk()) and self.size > HEADER_BYTES:
            raise tarfile.ReadError("an invalid header")
        return super()._proc_member(archive)  # type: ignore[misc, no-any-return]


def unpack(source: IO[bytes], target: Path) -> Unpacked:
    """Write the one file or directory that an archive holds as ``target``; what is there is
    overwritten, a directory added to.

    Left out and named: each ``.git`` (what is in it makes git run programs), devices and pipes,
    links out of the target, and names that are in the way of others. Symbolic links come last, so
    that nothing is written through one. Raises BadAnswer for an invalid archive, OSError for what
    cannot be written.
    """
    done = Unpacked()
    links: list[tuple[tarfile.TarInfo, tuple[str, ...]]] = []
    try:
        with tarfile.open(fileobj=source, mode="r|", tarinfo=_Entry, errorlevel=1) as archive:
            for number, entry in enumerate(archive):
                if number >= ENTRIES:
                    raise BadAnswer(
                        f"the sandbox sent more than {ENTRIES} files", hint="copy less at once"
                    )
                parts = _wanted(entry, done)
                if parts is not None and entry.issym():
                    links.append((entry, parts))
                elif parts is not None:
                    with done.counting(entry):
                        _write(archive, entry, target, parts)
    except (tarfile.TarError, EOFError, UnicodeError, ValueError) as problem:
        raise BadAnswer(
            "the sandbox sent an invalid archive",
            hint="see whether tar works there, then try again",
        ) from problem
    for entry, parts in links:
        with done.counting(entry), _place(target, parts) as (folder, name):
            os.symlink(entry.linkname, name, dir_fd=folder)
    return done


def _wanted(entry: tarfile.TarInfo, done: Unpacked) -> tuple[str, ...] | None:
    """Return where an entry goes below the target; None for what is left out, which is noted."""
    parts = _below(entry.name)
    if parts is None:
        done.left_out.append(_shown(entry.name))
    elif repository := _repository(parts):
        if repository not in done.repositories:
            done.repositories.append(repository)
    elif entry.issym() and not _stays_inside(entry.linkname, parts):
        done.left_out.append(f"{_shown('/'.join(parts))} (a link out of it)")
    elif not (entry.isdir() or entry.isreg() or entry.islnk() or entry.issym()):
        done.left_out.append(f"{_shown(entry.name)} (no file)")
    else:
        return parts
    return None


def _shown(name: str) -> str:
    return f"'{printable(name)[:200]}'"


def _below(name: str) -> tuple[str, ...] | None:
    """Split a name below the archive's one entry (itself: empty); None where it leads elsewhere."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        return None
    return tuple(parts[1:])


def _repository(parts: tuple[str, ...]) -> str:
    """Show the ``.git`` that a path is or is in; empty for none."""
    for number, part in enumerate(parts, 1):
        if part.casefold() in (".git", "git~1"):
            return _shown("/".join(parts[:number]))
    return ""


def _stays_inside(link: str, parts: tuple[str, ...]) -> bool:
    """Tell whether a link at a path leads to something else below the target, and to no ``.git``.

    It may go up first, then down: ".." behind a name could go up from wherever another link leads.
    """
    steps = [part for part in link.split("/") if part not in ("", ".")]
    up = len(list(takewhile("..".__eq__, steps)))
    inside = not link.startswith("/") and up < len(parts) and ".." not in steps[up:]
    return bool(steps) and inside and ".git" not in link.casefold().split("/")


def _write(
    archive: tarfile.TarFile, entry: tarfile.TarInfo, target: Path, parts: tuple[str, ...]
) -> None:
    """Write a file or folder, with the archive's executable bit and the user's umask."""
    if entry.isdir():
        with _folder(target, parts):
            return
    bits = 0o777 if entry.mode & stat.S_IXUSR else 0o666
    with _place(target, parts) as (folder, name):
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, bits, dir_fd=folder)
    with os.fdopen(descriptor, "wb") as file:
        if entry.islnk():
            _copy_earlier(target, _below(entry.linkname), file)
        elif content := archive.extractfile(entry):
            shutil.copyfileobj(content, file, CHUNK_BYTES)


def _copy_earlier(target: Path, parts: tuple[str, ...] | None, file: IO[bytes]) -> None:
    """Copy what a hard link of the archive names: an entry before it."""
    if not parts:
        raise FileNotFoundError(errno.ENOENT, "a hard link to nothing")
    with _folder(target, parts[:-1]) as folder:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW
        descriptor = os.open(parts[-1], flags, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as earlier:
        shutil.copyfileobj(earlier, file, CHUNK_BYTES)


@contextlib.contextmanager
def _folder(target: Path, parts: tuple[str, ...]) -> Iterator[int]:
    """Open a folder below the target, made where it is missing; no link is followed on the way."""
    with contextlib.suppress(FileExistsError):
        target.mkdir()
    # the user's own choice, also if it is a link
    current = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=current)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            following = os.open(part, flags, dir_fd=current)
            os.close(current)
            current = following
        yield current
    finally:
        os.close(current)


@contextlib.contextmanager
def _place(target: Path, parts: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Open the folder of a new file or link, and free its name, but of a folder; yield both."""
    top, names = (target, parts) if parts else (target.parent, (target.name,))
    with _folder(top, names[:-1]) as folder:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(names[-1], dir_fd=folder)
        yield folder, names[-1]
