"""Files that leave a sandbox: one as it is, or many in one multipart answer; streamed, byte for
byte."""

import asyncio
import os
import stat
from email.utils import formatdate
from typing import BinaryIO
from urllib.parse import quote

from aiohttp import web

from git_daytona.local.core.answers import compact
from git_daytona.local.core.model import ApiError
from git_daytona.local.toolbox.call import Call, from_os, strings
from git_daytona.local.toolbox.files import blocking
from git_daytona.local.toolbox.places import readable

PART = 256 * 1024
"""Bytes read and sent at once."""
BOUNDARY = "DAYTONA-FILE-BOUNDARY"
"""Always this one: a file that holds it as a line of its own does not come through whole, as from
Daytona."""


async def download(call: Call) -> web.StreamResponse:
    """GET files/download ``?path``: the file, or the range of it that is asked for."""
    path = call.query("path")
    file, size = await blocking(path, lambda: _open(call, path))
    with file:
        # Not FileResponse: that would send a neighbour of the name with .gz at its end instead, to
        # clients that accept gzip.
        headers = {
            "Content-Disposition": f"attachment; {_filename(path.rpartition('/')[2])}",
            "Accept-Ranges": "bytes",
            "Last-Modified": formatdate(int(os.fstat(file.fileno()).st_mtime), usegmt=True),
        }
        status, start = 200, 0
        if "Range" in call.request.headers:
            try:
                start, end, _ = call.request.http_range.indices(size)
            except ValueError:
                start, end = size, size
            if start >= end:
                headers["Content-Range"] = f"bytes */{size}"
                return web.Response(status=416, headers=headers)
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
            status, size = 206, end - start
            file.seek(start)
        response = web.StreamResponse(
            status=status, headers={**headers, "Content-Length": str(size)}
        )
        response.content_type = "application/octet-stream"
        await response.prepare(call.request)
        await _send(file, size, response, call.request)
    return response


async def bulk_download(call: Call) -> web.StreamResponse:
    """POST files/bulk-download ``{paths}``: multipart/form-data with a part ``file`` or ``error``
    for each path, in order.

    The part's file name is the path as it was asked for; an error part is JSON in the daemon's
    envelope.
    """
    paths = strings((await call.json()).get("paths"), "paths")
    if not paths:
        raise ApiError(
            400, 'request body must be {"paths": [ ... ]} and non-empty', code="BAD_REQUEST"
        )
    response = web.StreamResponse(
        headers={"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    )
    await response.prepare(call.request)
    for path in paths:
        await response.write(f"--{BOUNDARY}\r\n".encode())
        try:
            file, size = await asyncio.to_thread(_open, call, path)
        except (ApiError, OSError) as error:
            refusal = error if isinstance(error, ApiError) else from_os(error, path)
            content = compact(_said(call, refusal, path)).encode()
            await response.write(
                _head("error", path, "application/json; charset=utf-8", len(content)) + content
            )
        else:
            with file:
                await response.write(_head("file", path, "application/octet-stream", size))
                await _send(file, size, response, call.request)
        await response.write(b"\r\n")
    await response.write(f"--{BOUNDARY}--\r\n".encode())
    await response.write_eof()
    return response


def _said(call: Call, refusal: ApiError, path: str) -> dict[str, object]:
    """Why a file is not sent: here the older daemon, too, names the kind of error."""
    said = call.refusals.envelope(refusal, call.request, path=path)
    return {**said, "code": refusal.code or said["code"]}


def _open(call: Call, path: str) -> tuple[BinaryIO, int]:
    if not path:
        raise ApiError(400, "path is required", code="INVALID_FILE_PATH")
    host = readable(call.isolation, call.sandbox, path)
    # Not blocking, lest a named pipe hold the thread until somebody writes to it.
    fd = os.open(host, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise ApiError(400, f"path points to {kind}: {path}", code="INVALID_FILE_PATH")
    return os.fdopen(fd, "rb", buffering=0), status.st_size


async def _send(
    file: BinaryIO, size: int, response: web.StreamResponse, request: web.Request
) -> None:
    """Exactly the announced size, whatever happens to the file meanwhile. When it became shorter or
    unreadable, the connection is cut and ConnectionResetError raised: the answer has begun, and
    that is all that is left to say.
    """
    while size:
        try:
            chunk = await asyncio.to_thread(file.read, min(size, PART))
        except OSError:
            chunk = b""
        if not chunk:
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError("the file changed while it was sent")
        size -= len(chunk)
        await response.write(chunk)


def _head(name: str, path: str, content_type: str, size: int) -> bytes:
    disposition = f'Content-Disposition: form-data; name="{name}"; {_filename(path)}'
    return (
        f"{disposition}\r\nContent-Type: {content_type}\r\nContent-Length: {size}\r\n\r\n".encode()
    )


def _filename(path: str) -> str:
    """The parameter of Content-Disposition. Parsers differ on quotes and backslashes: RFC 5987 says
    such names without doubt."""
    if path.isascii() and path.isprintable() and not set(path) & set('"\\'):
        return f'filename="{path}"'
    return f"filename*=UTF-8''{quote(path, safe='')}"
