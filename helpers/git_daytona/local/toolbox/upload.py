"""Files that come into a sandbox: single and bulk uploads, streamed to disk whatever their size.

A file is written under a temporary name beside its place and renamed, so that nobody sees half of
it. It gets mode 644, missing parent directories are made, and a link at its place is followed, as
by Daytona's daemon.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass

from aiohttp import BodyPartReader, MultipartReader, web

from git_daytona.local.core.answers import json_response
from git_daytona.local.core.model import ApiError
from git_daytona.local.toolbox.call import Call, from_os
from git_daytona.local.toolbox.places import Place, changeable, readable

PART = 256 * 1024
"""Bytes read and written at once."""
PATH_LIMIT = 64 * 1024
"""Bytes of a path in a form."""


async def upload(call: Call) -> web.Response:
    """POST files/upload-v2 and files/upload ``?path``: the body, or the field ``file`` of a form,
    becomes the file."""
    path = call.query("path")
    if call.request.content_type == "multipart/form-data":
        async for part in _parts(call):
            if part.name == "file":
                await store(call, path, _chunks(part))
                break
        else:
            raise ApiError(400, "the form has no field 'file'", code="BAD_REQUEST")
    else:
        await store(call, path, call.request.content.iter_chunked(PART))
    return json_response(
        {"name": path.rstrip("/").rpartition("/")[2], "path": path, "type": "file"}
    )


async def bulk_upload(call: Call) -> web.Response:
    """POST files/bulk-upload: a form of pairs ``files[N].path``, ``files[N].file``; answers what
    was stored.

    The SDKs show the ``errors`` of an answer with status 400; the files that could be stored are
    stored all the same.
    """
    destinations: dict[str, str] = {}
    stored: list[dict[str, object]] = []
    errors: list[str] = []
    try:
        async for part in _parts(call):
            await _take(call, part, destinations, stored, errors)
    except ApiError as error:
        errors.append(error.message)
    # Go writes a list that nothing was put into as null.
    answer = {"errors": errors, "files": stored or None} if errors else {"files": stored or None}
    return json_response(answer, status=400 if errors else 200)


async def _take(
    call: Call,
    part: BodyPartReader,
    destinations: dict[str, str],
    stored: list[dict[str, object]],
    errors: list[str],
) -> None:
    """One part of the form: a path is noted, a file is stored at the path of its number."""
    name = part.name or ""
    number = name.removeprefix("files[").removesuffix("].path").removesuffix("].file")
    if name.endswith(".path"):
        path = (await part.read(decode=False))[:PATH_LIMIT].decode("utf-8", "replace").strip()
        if path:
            destinations[number] = path
        else:
            errors.append(f"path[{number}]: empty path")
    elif name.endswith(".file"):
        try:
            if number not in destinations:
                raise ApiError(400, f"file[{number}]: missing .path metadata")
            path = destinations[number]
            stored.append({"path": path, "bytes": await store(call, path, _chunks(part))})
        except ApiError as error:
            errors.append(error.message)
            await part.release()


async def store(call: Call, path: str, content: AsyncIterator[bytes]) -> int:
    """Write a file; returns its size in bytes. Raises ApiError, with nothing left behind."""
    with ExitStack() as stack:
        try:
            draft = await asyncio.to_thread(_begin, call, path, stack)
            size = 0
            async for chunk in content:
                await asyncio.to_thread(_write, draft.fd, chunk)
                size += len(chunk)
            await asyncio.to_thread(draft.finish)
        except OSError as error:
            raise from_os(error, path) from None
    return size


@dataclass
class _Draft:
    """A file that is being written under a temporary name."""

    place: Place
    name: str
    fd: int
    finished: bool = False

    def finish(self) -> None:
        os.fchmod(self.fd, 0o644)
        os.replace(
            self.name, self.place.name, src_dir_fd=self.place.parent, dst_dir_fd=self.place.parent
        )
        self.finished = True

    def drop(self) -> None:
        os.close(self.fd)
        if not self.finished:
            os.unlink(self.name, dir_fd=self.place.parent)


def _begin(call: Call, path: str, stack: ExitStack) -> _Draft:
    if readable(call.isolation, call.sandbox, path).is_dir():
        raise ApiError(400, f"{path}: is a directory", code="INVALID_FILE_PATH")
    place = stack.enter_context(
        changeable(call.isolation, call.sandbox, path, follow=True, parents=True)
    )
    name = f".daytona-upload-{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    draft = _Draft(place, name, os.open(name, flags, 0o600, dir_fd=place.parent))
    stack.callback(draft.drop)
    return draft


def _write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


async def _parts(call: Call) -> AsyncIterator[BodyPartReader]:
    try:
        reader = await call.request.multipart()
        while (part := await reader.next()) is not None:
            if isinstance(part, MultipartReader):
                raise ApiError(400, "invalid multipart form: nested", code="BAD_REQUEST")
            yield part
    except (ValueError, AssertionError) as error:  # what aiohttp raises for a broken form
        raise ApiError(400, f"invalid multipart form: {error}", code="BAD_REQUEST") from None


async def _chunks(part: BodyPartReader) -> AsyncIterator[bytes]:
    while chunk := await part.read_chunk(PART):
        yield chunk
