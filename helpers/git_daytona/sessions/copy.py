"""Files between a session's sandbox and this machine, in both directions: as tar archives in parts,
through the toolbox's file calls.

No token is minted for it, and no part is larger than what any answer may be.
"""

import contextlib
import posixpath
import re
import secrets
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from git_daytona.api.cloud import Cloud
from git_daytona.base import log
from git_daytona.base.errors import (
    BadAnswer,
    GitDaytonaError,
    NotFound,
    SandboxCommandFailed,
    UsageError,
)
from git_daytona.base.secret import printable
from git_daytona.git.refs import PROJECT
from git_daytona.sandbox import report
from git_daytona.sessions.archive import Unpacked, unpack
from git_daytona.sessions.coordinator import Coordinator

PART_BYTES = 16 * 1024 * 1024
LIMIT_BYTES = 4 * 1024**3
"""The largest archive that is copied."""
COPY_SECONDS = 1800.0
"""How long packing or unpacking in the sandbox may take."""

# $1 mark, $2 project, $3 source, $4 folder for the parts, $5 bytes of a part, $6 the most bytes.
_PACK = """cd -- "$2" 2>/dev/null || cd || exit 125
if [ -d "$3" ]; then
  cd -- "$3" && name=$(pwd -P) && name=${name##*/} && [ -n "$name" ] && cd .. || exit 125
  kind=directory
elif [ -f "$3" ]; then
  source=$(readlink -f -- "$3") && cd -- "${source%/*}/" && name=${source##*/} || exit 125
  kind=file
else echo "$1 missing"; exit 0; fi
umask 077
mkdir -- "$4" && { tar -cf - -- "$name"; echo "$?" >"$4/status"; } | head -c "$6" |
  split -b "$5" -a 4 - "$4/part."
parts=0
for part in "$4"/part.*; do parts=$((parts + 1)); done
if [ "$((parts * $5))" -ge "$6" ]; then echo "$1 large"; exit 0; fi
[ "$(cat "$4/status")" -le 1 ] || exit 125
echo "$1 $kind"
for part in "$4"/part.*; do echo "$1 part ${part##*/}"; done
"""
# $1 mark, $2 project, $3 target.
_PROBE = """cd -- "$2" 2>/dev/null || cd || exit 125
if [ -d "$3" ]; then echo "$1 directory"
elif [ -e "$3" ]; then echo "$1 file"
else echo "$1 missing"; fi
"""
# $1 mark, $2 project, $3 parent, $4 folder with the parts.
_UNPACK = """cd -- "$2" 2>/dev/null || cd || exit 125
cd -- "$3" || exit 125
cat "$4"/part.* | tar -xof - && echo "$1 done"
rm -rf -- "$4"
"""


@dataclass(frozen=True)
class Place:
    """One end of a copy: a path of this machine (no session), or one in a session's sandbox,
    relative to its project."""

    session: str | None
    path: str


def place(text: str) -> Place:
    """``N:PATH`` or a path, as scp tells them apart: with a slash before the first colon it is one
    of this machine."""
    name, colon, path = text.partition(":")
    if not colon or not name or "/" in name:
        return Place(None, text)
    return Place(name, path or ".")


def copy_out(coordinator: Coordinator, name: str, source: str, target: str) -> Unpacked:
    """Copy a file or directory out of a session's sandbox. An existing directory gets it below its
    own name, a file is overwritten.

    Raises NotFound, UsageError, SandboxCommandFailed, BadAnswer, and what the calls raise.
    """
    session = coordinator.find(name)
    folder = f"/tmp/.git-daytona-{secrets.token_hex(8)}"  # noqa: S108 — in the sandbox

    def work() -> Unpacked:
        arguments = (source, folder, str(PART_BYTES), str(LIMIT_BYTES + 1))
        try:
            said = _told(coordinator.cloud, session.sandbox_id, _PACK, *arguments)
            if said[:1] == ["missing"]:
                raise NotFound(
                    f"there is no '{source}' in the sandbox",
                    hint="paths are relative to the project there",
                )
            parts = [
                word.removeprefix("part ")
                for word in said
                if re.fullmatch(r"part part\.[a-z]{4}", word)
            ]
            if said[:1] == ["large"] or len(parts) * PART_BYTES > LIMIT_BYTES:
                raise BadAnswer(
                    f"'{source}' has more than {LIMIT_BYTES >> 30} GiB", hint="copy less at once"
                )
            to = _local_target(target, source, directory=said[:1] == ["directory"])
            with tempfile.TemporaryFile() as archive:
                for part in parts:
                    archive.write(
                        coordinator.cloud.download(session.sandbox_id, f"{folder}/{part}")
                    )
                archive.seek(0)
                return unpack(archive, to)
        finally:
            _remove(coordinator, session.sandbox_id, folder)

    with log.event("copy.out", session=session.id) as event:
        done = coordinator.sandboxes.while_awake(session.sandbox_id, work)
        event["files"] = done.files
    return done


def _local_target(target: str, source: str, *, directory: bool) -> Path:
    path = Path(target)
    if path.is_dir():
        own = posixpath.basename(posixpath.normpath(posixpath.join(PROJECT, source)))
        if not own or own.casefold() == ".git":
            raise UsageError(
                f"'{source}' cannot be copied below its own name",
                hint="say what it shall be called here",
            )
        path = path / own
    elif target.endswith("/") or not path.parent.is_dir():
        raise NotFound(
            f"there is no directory '{path if target.endswith('/') else path.parent}' here",
            hint="make it first",
        )
    if directory and path.exists() and not path.is_dir():
        raise UsageError(
            f"'{path}' is a file, and '{source}' a directory",
            hint="remove it first, or choose another name",
        )
    if not directory and path.is_dir():
        raise UsageError(
            f"'{path}' is a directory, and '{source}' a file",
            hint="remove it first, or choose another name",
        )
    return path


def copy_in(coordinator: Coordinator, name: str, source: str, target: str) -> Unpacked:
    """Copy a file or directory into a session's sandbox, as copy_out does in the other direction.
    Links are copied as links."""
    session = coordinator.find(name)
    path = Path(source)
    if not path.exists():
        raise NotFound(f"there is no '{source}' here", hint="see which files are there: ls")

    def work() -> Unpacked:
        (kind,) = _told(coordinator.cloud, session.sandbox_id, _PROBE, target)[:1] or ["missing"]
        if kind == "directory":
            parent, own = target, path.resolve().name
        else:
            parent, own = posixpath.split(target.rstrip("/"))
            if path.is_dir() and kind == "file":
                raise UsageError(
                    f"'{target}' is a file there, and '{source}' a directory",
                    hint="choose another name",
                )
        if not own or own == ".." or (target.endswith("/") and kind != "directory"):
            raise NotFound(
                f"there is no directory '{target}' in the sandbox",
                hint="make it first: git daytona exec N -- mkdir -p DIR",
            )
        folder = f"/tmp/.git-daytona-{secrets.token_hex(8)}"  # noqa: S108 — in the sandbox
        done = Unpacked()
        with tempfile.TemporaryFile() as archive:
            _pack(path, own, archive, done)
            if archive.tell() > LIMIT_BYTES:
                raise UsageError(
                    f"'{source}' has more than {LIMIT_BYTES >> 30} GiB", hint="copy less at once"
                )
            archive.seek(0)
            try:
                for number in range(LIMIT_BYTES // PART_BYTES + 1):
                    if content := archive.read(PART_BYTES):
                        coordinator.cloud.upload(
                            session.sandbox_id, f"{folder}/part.{number:04}", content
                        )
                _told(coordinator.cloud, session.sandbox_id, _UNPACK, parent or ".", folder)
            except BaseException:  # also Ctrl-C: nothing of it stays there
                _remove(coordinator, session.sandbox_id, folder)
                raise
        return done

    coordinator.state.touch(session.id)
    with log.event("copy.in", session=session.id) as event:
        done = coordinator.sandboxes.while_awake(session.sandbox_id, work)
        event["files"] = done.files
    return done


def _remove(coordinator: Coordinator, sandbox_id: str, folder: str) -> None:
    with contextlib.suppress(GitDaytonaError):  # what went wrong before it is what is told
        report.run_once(
            coordinator.cloud, sandbox_id, 'rm -rf -- "$1"', folder, timeout=COPY_SECONDS
        )


def _pack(source: Path, name: str, archive: IO[bytes], done: Unpacked) -> None:
    def ours(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        done.files += not entry.isdir()
        return entry

    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as made:
        made.add(source.resolve() if source.is_symlink() else source, arcname=name, filter=ours)


def _told(cloud: Cloud, sandbox_id: str, script: str, *arguments: str) -> list[str]:
    """What a script says behind its mark, line by line. Raises SandboxCommandFailed where it says
    nothing."""
    mark = secrets.token_hex(8)
    result = report.run_once(
        cloud, sandbox_id, script, mark, PROJECT, *arguments, timeout=COPY_SECONDS
    )
    said = [
        line.removeprefix(f"{mark} ")
        for line in result.output.splitlines()
        if line.startswith(f"{mark} ")
    ]
    if not said:
        text = " ".join(printable(result.output).split())[-300:]
        raise SandboxCommandFailed(
            f"the files could not be copied: {text or f'exit status {result.status}'}",
            hint="see the path, and the space, in the sandbox",
        )
    return said
