"""The file calls of the toolbox that neither move contents nor look for them: list, info, folder,
delete, move, permissions."""

import asyncio
import os
import posixpath
import shutil
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

from aiohttp import web

from git_daytona.local.core.answers import json_response
from git_daytona.local.core.model import UMASK, ApiError
from git_daytona.local.toolbox.call import Call, from_os, visible
from git_daytona.local.toolbox.places import changeable, readable

T = TypeVar("T")


async def blocking(path: str, work: Callable[[], T]) -> T:
    """Run file work on a thread; an OSError of it becomes the answer of the daemon."""
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        raise from_os(error, path) from None


async def list_files(call: Call) -> web.Response:
    """GET files ``?path&depth``: the entries of a directory (default: home) as a list of FileInfo.
    Older daemons ignore the depth."""
    path = call.request.query.get("path") or "."
    try:
        depth = int(call.request.query.get("depth", "1")) if call.profile.full_listings else 1
    except ValueError:
        depth = 0
    if depth < 1:
        raise ApiError(400, "depth must be an integer of at least 1", code="BAD_REQUEST")
    return json_response(await blocking(path, lambda: list(_entries(call, path, depth))))


async def info(call: Call) -> web.Response:
    """GET files/info ``?path``: FileInfo of what the path leads to."""
    path = call.query("path")
    return json_response(await blocking(path, lambda: _info(call, path)))


async def make_folder(call: Call) -> web.Response:
    """POST files/folder ``?path&mode`` (octal): make it and its parents; one that is there already
    is left as it is."""
    path = call.query("path")
    mode = _octal(call.request.query.get("mode") or "755")

    def make() -> None:
        if readable(call.isolation, call.sandbox, path).is_dir():
            return
        with changeable(call.isolation, call.sandbox, path, follow=True, parents=True) as place:
            os.mkdir(place.name, 0o700, dir_fd=place.parent)
            folder = place.open(os.O_RDONLY | os.O_DIRECTORY)
            try:
                # not by mkdir: that goes by the umask of this server
                os.fchmod(folder, mode & ~UMASK)
            finally:
                os.close(folder)

    await blocking(path, make)
    return web.Response(status=201)


async def delete(call: Call) -> web.Response:
    """DELETE files ``?path&recursive``: remove a file, a link (not its target), or with
    ``recursive=true`` a directory.

    Daytona looks through links first: one that leads nowhere is not found, and stays.
    """
    path = call.query("path")
    recursive = call.request.query.get("recursive", "").lower() == "true"

    def remove() -> None:
        followed = readable(call.isolation, call.sandbox, path).stat()
        if stat.S_ISDIR(followed.st_mode) and not recursive:
            raise ApiError(400, "cannot delete directory without recursive flag")
        with changeable(call.isolation, call.sandbox, path) as place:
            if not stat.S_ISDIR(place.stat().st_mode):
                os.unlink(place.name, dir_fd=place.parent)
            elif recursive:
                shutil.rmtree(place.name, dir_fd=place.parent)

    try:
        await blocking(path, remove)
    except ApiError as error:
        if error.status != 403:
            raise
        raise ApiError(400, error.message) from None  # what is denied is a bad request here
    return web.Response(status=204)


async def move(call: Call) -> web.Response:
    """POST files/move ``?source&destination``: rename; 409 when the destination exists."""
    source, destination = call.query("source"), call.query("destination")

    def rename() -> None:
        with (
            changeable(call.isolation, call.sandbox, source) as old,
            changeable(call.isolation, call.sandbox, destination) as new,
        ):
            old.stat()
            try:
                new.stat()
            except FileNotFoundError:
                os.rename(old.name, new.name, src_dir_fd=old.parent, dst_dir_fd=new.parent)
            else:
                raise ApiError(409, "destination already exists", code="CONFLICT")

    await blocking(source, rename)
    return web.Response(status=200)


async def permissions(call: Call) -> web.Response:
    """POST files/permissions ``?path&mode&owner&group``. The one user of a sandbox owns its files:
    other owners are refused."""
    path = call.query("path")
    mode = call.request.query.get("mode")
    bits = None if not mode else _octal(mode)

    def change() -> None:
        with changeable(call.isolation, call.sandbox, path, follow=True) as place:
            status = place.stat()
            _check_owner(call, "owner", "user", status.st_uid)
            _check_owner(call, "group", "group", status.st_gid)
            if bits is None:
                return
            if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
                # Through a descriptor, because chmod(2) would follow a link put there meanwhile.
                fd = place.open(os.O_RDONLY | os.O_NONBLOCK)
                try:
                    os.fchmod(fd, bits)
                finally:
                    os.close(fd)
            else:
                raise ApiError(400, f"{path}: not a file or directory", code="BAD_REQUEST")

    await blocking(path, change)
    return web.Response(status=200)


def _check_owner(call: Call, parameter: str, kind: str, current: int) -> None:
    wanted = call.request.query.get(parameter)
    number = 0 if call.isolation.isolates else current  # as it is there
    if not wanted or wanted in (call.sandbox.user, str(number)):
        return
    if wanted.isdigit() or wanted == "root":
        raise ApiError(
            403,
            f"failed to change ownership to {wanted}: operation not permitted",
            code="FILE_ACCESS_DENIED",
        )
    raise ApiError(400, f"{kind} not found", code="BAD_REQUEST")


def _octal(text: str) -> int:
    """The nine bits of permission. Go keeps the others elsewhere in a mode, so that they do not get
    through."""
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode < 1 << 32:
        raise ApiError(400, "invalid mode format", code="BAD_REQUEST")
    return mode & 0o777


def _entries(call: Call, path: str, depth: int) -> Iterator[dict[str, Any]]:
    for name in sorted(
        entry.name for entry in readable(call.isolation, call.sandbox, path).iterdir()
    ):
        entry = posixpath.join(path, name)
        try:
            found = _info(call, entry)
        except (OSError, ApiError):
            # a dangling link, or a place that the sandbox cannot see: Daytona leaves it out, too
            continue
        yield found
        if depth > 1 and found["isDir"] and not _is_link(call, entry):
            yield from _entries(call, entry, depth - 1)


def _is_link(call: Call, path: str) -> bool:
    parent = readable(call.isolation, call.sandbox, posixpath.dirname(path) or ".")
    return (parent / posixpath.basename(path)).is_symlink()


def _info(call: Call, path: str) -> dict[str, Any]:
    status = readable(call.isolation, call.sandbox, path).stat()
    seconds, nanoseconds = divmod(status.st_mtime_ns, 10**9)
    modified = datetime.fromtimestamp(seconds, UTC)
    fraction = f".{nanoseconds:09}".rstrip("0") if nanoseconds else ""
    return {
        "name": posixpath.basename(visible(path).rstrip("/")) or "/",
        **({"path": posixpath.normpath(visible(path))} if call.profile.full_listings else {}),
        "size": status.st_size,
        "isDir": stat.S_ISDIR(status.st_mode),
        "mode": go_mode(status.st_mode),
        "permissions": f"{status.st_mode & 0o777:04o}",
        "modTime": f"{modified:%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC",  # Go's time.String
        "modifiedAt": f"{modified:%Y-%m-%dT%H:%M:%S}{fraction}Z",
        "owner": str(status.st_uid),
        "group": str(status.st_gid),
    }


def go_mode(mode: int) -> str:
    """A file's mode as Go writes it (os.FileMode.String): a letter for each special bit, then the
    nine of permission."""
    letters = [
        letter
        for letter, there in (
            ("d", stat.S_ISDIR(mode)),
            ("L", stat.S_ISLNK(mode)),
            ("D", stat.S_ISBLK(mode) or stat.S_ISCHR(mode)),
            ("p", stat.S_ISFIFO(mode)),
            ("S", stat.S_ISSOCK(mode)),
            ("u", mode & stat.S_ISUID),
            ("g", mode & stat.S_ISGID),
            ("c", stat.S_ISCHR(mode)),
            ("t", mode & stat.S_ISVTX),
        )
        if there
    ]
    return ("".join(letters) or "-") + stat.filemode(stat.S_IFREG | mode & 0o777)[1:]
