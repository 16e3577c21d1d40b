"""Files out of a tar archive that a sandbox made, below one directory of the user's: no name and no
link of its making leads anywhere else.

Python's own extraction filter came with 3.11.4, and goes by paths; here each folder on the way is
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
from pathlib import Path
from typing import IO

from git_daytona.base.errors import BadAnswer
from git_daytona.base.secret import printable

ENTRIES = 1_000_000
HEADER_BYTES = 64 * 1024
"""The largest name, link or extended header that is read."""
CHUNK = 1024 * 1024
LINKS_ON = getattr(os, "O_NOFOLLOW", 0) | os.O_CLOEXEC
LINK_ERRORS = (errno.ELOOP, errno.ENAMETOOLONG, errno.EMLINK)
IN_THE_WAY = (
    NotADirectoryError,
    IsADirectoryError,
    FileExistsError,
    FileNotFoundError,
    PermissionError,
)


@dataclass
class Unpacked:
    """How many files were written, and what was left out, one line each."""

    files: int = 0
    left_out: list[str] = field(default_factory=list)
    repositories: list[str] = field(default_factory=list)
    """The ``.git`` that did not come along, each once."""


_EXTENDED = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
"""Entries that are about the next one."""


class _Entry(tarfile.TarInfo):
    """An entry whose header is no larger than people make any: tarfile reads headers whole."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in _EXTENDED and self.size > HEADER_BYTES:
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
    links: list[tuple[tuple[str, ...], str]] = []
    try:
        with tarfile.open(fileobj=source, mode="r|", tarinfo=_Entry, errorlevel=1) as archive:
            for number, entry in enumerate(archive):
                if number >= ENTRIES:
                    raise BadAnswer(
                        f"the sandbox sent more than {ENTRIES} files", hint="copy less at once"
                    )
                parts = _below(entry.name)
                if parts is None:
                    done.left_out.append(_shown(entry.name))
                elif repository := _repository(parts):
                    if repository not in done.repositories:
                        done.repositories.append(repository)
                elif entry.issym():
                    links.append((parts, entry.linkname))
                else:
                    _take(archive, entry, target, parts, done)
    except (tarfile.TarError, EOFError, UnicodeError, ValueError) as problem:
        raise BadAnswer(
            "the sandbox sent no archive that makes sense",
            hint="see whether tar works there, then try again",
        ) from problem
    for parts, to in links:
        _link(target, parts, to, done)
    return done


def _shown(name: str) -> str:
    return f"'{printable(name)[:200]}'"


def _repository(parts: tuple[str, ...]) -> str:
    """The ``.git`` that a path is or is in, as it is shown; empty for none."""
    for number, part in enumerate(parts, 1):
        if part.casefold() in (".git", "git~1"):
            return _shown("/".join(parts[:number]))
    return ""


def _take(
    archive: tarfile.TarFile,
    entry: tarfile.TarInfo,
    target: Path,
    parts: tuple[str, ...],
    done: Unpacked,
) -> None:
    """Write an entry that is no symbolic link, or note why not."""
    if not (entry.isdir() or entry.isreg() or entry.islnk()):
        done.left_out.append(f"{_shown(entry.name)} (no file)")
        return
    try:
        if entry.isdir():
            with _folder(target, parts):
                return
        with _file(target, parts, entry.mode) as file:
            if entry.islnk():
                _copy_earlier(target, _below(entry.linkname), file)
            elif content := archive.extractfile(entry):
                shutil.copyfileobj(content, file, CHUNK)
        done.files += 1
    except OSError as problem:
        if problem.errno in LINK_ERRORS:
            done.left_out.append(f"{_shown(entry.name)} (a link is in the way)")
        elif isinstance(problem, IN_THE_WAY):
            done.left_out.append(f"{_shown(entry.name)} ({problem.strerror})")
        else:
            raise


def _below(name: str) -> tuple[str, ...] | None:
    """The parts of an entry's name below the one that the archive is of (empty: itself); None for
    one that leads elsewhere."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or any("\0" in part for part in parts):
        return None
    return tuple(parts[1:])


@contextlib.contextmanager
def _folder(target: Path, parts: tuple[str, ...]) -> Iterator[int]:
    """A descriptor of a folder below the target, made where it is missing; no link is followed on
    the way."""
    with contextlib.suppress(FileExistsError):
        target.mkdir()
    # the user's own choice, also if it is a link
    current = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=current)
            following = os.open(part, os.O_RDONLY | os.O_DIRECTORY | LINKS_ON, dir_fd=current)
            os.close(current)
            current = following
        yield current
    finally:
        os.close(current)


@contextlib.contextmanager
def _file(target: Path, parts: tuple[str, ...], mode: int) -> Iterator[IO[bytes]]:
    """A new file in place of whatever has the name (no directory), with the archive's executable
    bit and the user's umask."""
    bits = 0o777 if mode & stat.S_IXUSR else 0o666
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | LINKS_ON
    if not parts:
        target.unlink(missing_ok=True)
        descriptor = os.open(target, flags, bits)
    else:
        with _folder(target, parts[:-1]) as folder:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(parts[-1], dir_fd=folder)
            descriptor = os.open(parts[-1], flags, bits, dir_fd=folder)
    with os.fdopen(descriptor, "wb") as file:
        yield file


def _copy_earlier(target: Path, parts: tuple[str, ...] | None, file: IO[bytes]) -> None:
    """A hard link in the archive: the content of an entry before it."""
    if not parts:
        raise FileNotFoundError(2, "a hard link to nothing")
    with _folder(target, parts[:-1]) as folder:
        descriptor = os.open(parts[-1], os.O_RDONLY | os.O_NONBLOCK | LINKS_ON, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as earlier:
        shutil.copyfileobj(earlier, file, CHUNK)


def _link(target: Path, parts: tuple[str, ...], to: str, done: Unpacked) -> None:
    """A symbolic link, if it stays below the target."""
    shown = _shown("/".join(parts))
    steps = [part for part in to.split("/") if part not in ("", ".")]
    up = next((number for number, part in enumerate(steps) if part != ".."), len(steps))
    # Only first up, then down: ".." behind a name could go up from wherever another link leads.
    inside = not to.startswith("/") and up <= len(parts) - 1 and ".." not in steps[up:]
    if not parts or not steps or not inside or ".git" in to.casefold().split("/"):
        done.left_out.append(f"{shown} (a link out of it)")
        return
    try:
        with _folder(target, parts[:-1]) as folder:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(parts[-1], dir_fd=folder)
            os.symlink(to, parts[-1], dir_fd=folder)
        done.files += 1
    except OSError as problem:
        done.left_out.append(f"{shown} ({problem.strerror})")
