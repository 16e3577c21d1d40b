"""Files between a session's sandbox and this machine, in both directions, as tar archives."""

import posixpath
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from git_daytona.base import errors, log
from git_daytona.git.refs import PROJECT
from git_daytona.sandbox.parts import PART_BYTES, Parts
from git_daytona.sessions.archive import Unpacked, unpack
from git_daytona.sessions.coordinator import Coordinator

LIMIT_BYTES = 4 * 1024**3
"""The largest archive that is copied."""


@dataclass(frozen=True)
class Place:
    """One end of a copy: a path in a session's project, or one of this machine (no session)."""

    session: str | None
    path: str


def place(text: str) -> Place:
    """Read ``N:PATH`` or a path of this machine: as scp does, one with a slash before a colon."""
    name, colon, path = text.partition(":")
    if not colon or not name or "/" in name:
        return Place(None, text)
    return Place(name, path or ".")


def copy_out(coordinator: Coordinator, name: str, source: str, target: str) -> Unpacked:
    """Copy a file or directory out of a session's sandbox. An existing directory gets it below its
    own name, a file is overwritten. Raises NotFound, UsageError, and what the calls raise."""
    session = coordinator.find(name)
    parts = Parts(coordinator.cloud, session.sandbox_id)

    def work() -> Unpacked:
        sizes = (str(PART_BYTES), str(LIMIT_BYTES + 1))
        try:
            kind, *lines = parts.run("pack", source, parts.folder, *sizes)
            if kind == "missing":
                raise errors.NotFound(
                    f"there is no '{source}' in the sandbox",
                    hint="paths are relative to the project there",
                )
            if kind == "large" or len(lines) * PART_BYTES > LIMIT_BYTES:
                raise errors.BadAnswer(
                    f"'{source}' has more than {LIMIT_BYTES >> 30} GiB", hint="copy less at once"
                )
            to = _local_target(target, source, kind)
            with tempfile.TemporaryFile() as archive:
                parts.download(lines, archive)
                archive.seek(0)
                return unpack(archive, to)
        finally:
            parts.remove()

    with log.event("copy.out", session=session.id) as event:
        done = coordinator.awake(session, lambda _: work())
        event["files"] = done.files
    return done


def _local_target(target: str, source: str, kind: str) -> Path:
    """Choose where a file or directory goes here. Raises UsageError, NotFound."""
    path = Path(target)
    if path.is_dir():
        own = posixpath.basename(posixpath.normpath(posixpath.join(PROJECT, source)))
        if not own or own.casefold() == ".git":
            raise errors.UsageError(
                f"'{source}' cannot be copied below its own name",
                hint="say what it shall be called here",
            )
        path = path / own
    elif target.endswith("/") or not path.parent.is_dir():
        folder = path if target.endswith("/") else path.parent
        raise errors.NotFound(f"there is no directory '{folder}' here", hint="make it first")
    other_kind = "directory" if path.is_dir() else "file"
    if path.exists() and other_kind != kind:
        raise errors.UsageError(
            f"'{path}' is a {other_kind}, and '{source}' a {kind}",
            hint="remove it first, or choose another name",
        )
    return path


def copy_in(coordinator: Coordinator, name: str, source: str, target: str) -> Unpacked:
    """Copy a file or directory into a session's sandbox, as copy_out does; links as links."""
    session = coordinator.find(name)
    path = Path(source)
    if not path.exists():
        raise errors.NotFound(f"there is no '{source}' here", hint="see which files are there: ls")
    parts = Parts(coordinator.cloud, session.sandbox_id)

    def work() -> Unpacked:
        kind = parts.run("kind", target)[0]
        parent, own = posixpath.split(target.rstrip("/"))
        if kind == "directory":
            parent, own = target, _own_name(path)
        elif kind == "file" and path.is_dir():
            raise errors.UsageError(
                f"'{target}' is a file there, and '{source}' a directory",
                hint="choose another name",
            )
        if own in ("", "..") or (target.endswith("/") and kind != "directory"):
            raise errors.NotFound(
                f"there is no directory '{target}' in the sandbox",
                hint="make it first: git daytona exec N -- mkdir -p DIR",
            )
        with tempfile.TemporaryFile() as archive:
            done = Unpacked(_pack(path, own, archive))
            if archive.tell() > LIMIT_BYTES:
                raise errors.UsageError(
                    f"'{source}' has more than {LIMIT_BYTES >> 30} GiB", hint="copy less at once"
                )
            archive.seek(0)
            coordinator.state.touch(session.id)
            try:
                parts.upload(archive)
                parts.run("unpack", parent or ".", parts.folder)
            except BaseException:  # also Ctrl-C: nothing of it stays there
                parts.remove()
                raise
        return done

    with log.event("copy.in", session=session.id) as event:
        done = coordinator.awake(session, lambda _: work())
        event["files"] = done.files
    return done


def _own_name(path: Path) -> str:
    """Return what a path calls the file that it names: a link as the link, as cp(1) has it."""
    return path.name if path.name not in ("", "..") else path.resolve().name


def _pack(source: Path, name: str, archive: IO[bytes]) -> int:
    """Write a file or directory into an archive, nobody's; return how many files."""

    def nobodys(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as made:
        made.add(source.resolve() if source.is_symlink() else source, name, filter=nobodys)
        return sum(not entry.isdir() for entry in made.getmembers())
