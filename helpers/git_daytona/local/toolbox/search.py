"""The file calls that look through many files: find (text), search (names) and replace."""

import asyncio
import os
import posixpath
import re
import stat
from collections.abc import Iterator
from typing import Any

from aiohttp import web

from git_daytona.local.core.answers import json_response
from git_daytona.local.core.model import ApiError
from git_daytona.local.toolbox.call import Call, from_os, member, strings
from git_daytona.local.toolbox.files import blocking
from git_daytona.local.toolbox.places import changeable, readable

MATCHES_LIMIT = 100_000
"""Matches of one find; the rest is left out, so that the answer has a bounded size."""


async def find(call: Call) -> web.Response:
    """GET files/find ``?path&pattern``: the lines with this text in a file, or in all text files
    below a directory."""
    path, pattern = call.query("path"), call.query("pattern")
    return json_response(await blocking(path, lambda: _matches(call, path, pattern)))


async def search(call: Call) -> web.Response:
    """GET files/search ``?path&pattern``: what is named so, at any depth below a folder, and the
    folder itself.

    The pattern is Go's (path/filepath.Match) and meets the last name of a path only: no ``**``, no
    braces, and case counts.
    """
    path, pattern = call.query("path"), call.query("pattern")
    expression = name_expression(pattern)
    return json_response({"files": await blocking(path, lambda: _named(call, path, expression))})


async def replace(call: Call) -> web.Response:
    """POST files/replace ``{files, pattern, newValue}``: replace a text in each file; one result
    per file."""
    body = await call.json()
    old, new = member(body, "pattern", str).encode(), member(body, "newValue", str).encode()
    if not old:
        raise ApiError(400, "pattern is required", code="INVALID_REQUEST_BODY")
    paths = strings(body.get("files"), "files")
    return json_response(
        [await asyncio.to_thread(_replace, call, path, old, new) for path in paths]
    )


def name_expression(pattern: str) -> re.Pattern[str]:
    """A pattern of Go's path/filepath.Match as a regular expression; ApiError(400) when it is
    broken."""
    expression, rest = "", pattern
    while rest:
        if rest[0] == "*":
            expression, rest = expression + "[^/]*", rest[1:]
        elif rest[0] == "?":
            expression, rest = expression + "[^/]", rest[1:]
        elif rest[0] == "[":
            found = re.match(r"\[(\^?)((?:\\.|[^\]\\])+)\]", rest, re.DOTALL)
            if found is None:
                raise ApiError(400, "syntax error in pattern")
            # Of Python's own characters in a set, all but the range's '-' and the escape are taken
            # as they are.
            expression += "[" + found[1] + re.sub(r"([\[&~|^])", r"\\\1", found[2]) + "]"
            rest = rest[len(found[0]) :]
        elif rest[0] == "\\":
            if len(rest) == 1:
                raise ApiError(400, "syntax error in pattern")
            expression, rest = expression + re.escape(rest[1]), rest[2:]
        else:
            expression, rest = expression + re.escape(rest[0]), rest[1:]
    try:
        return re.compile(expression, re.DOTALL)
    except re.error:
        raise ApiError(400, "syntax error in pattern") from None


def _named(call: Call, path: str, expression: re.Pattern[str]) -> list[str]:
    return [
        name
        for name, _ in _walk(call, path)
        if expression.fullmatch(posixpath.basename(name.rstrip("/")) or "/")
    ]


def _walk(call: Call, path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Path and status of a path and of everything below it; nothing when it is not there. No link
    is followed but in the path."""
    try:
        host = readable(call.isolation, call.sandbox, path)
        status = host.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return
    yield path, status
    if not stat.S_ISDIR(status.st_mode):
        return
    for entry in sorted(host.iterdir()):
        name = posixpath.normpath(posixpath.join(path, entry.name))
        try:
            # Each directory is asked for by the sandbox's name: on the host, other things may lie
            # below it.
            status = entry.lstat()
            if stat.S_ISDIR(status.st_mode):
                yield from _walk(call, name)
            else:
                yield name, status
        except (OSError, ApiError):
            continue  # vanished meanwhile, or not visible in the sandbox


def _matches(call: Call, path: str, pattern: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name, status in _walk(call, path):
        if not stat.S_ISREG(status.st_mode):
            continue
        try:
            with readable(call.isolation, call.sandbox, name).open("rb") as file:
                if b"\0" in file.read(512):
                    continue  # binary
                file.seek(0)
                for number, line in enumerate(file, 1):
                    text = line.decode("utf-8", "replace").rstrip("\r\n")
                    if pattern in text:
                        found.append({"file": name, "line": number, "content": text})
                        if len(found) == MATCHES_LIMIT:
                            return found
        except (OSError, ApiError):
            continue  # vanished or unreadable
    return found


def _replace(call: Call, path: str, old: bytes, new: bytes) -> dict[str, Any]:
    try:
        with (
            changeable(call.isolation, call.sandbox, path, follow=True) as place,
            os.fdopen(place.open(os.O_RDWR), "r+b") as file,
        ):
            content = file.read()
            if old in content:
                file.seek(0)
                file.write(content.replace(old, new))
                file.truncate()
    except ApiError as error:
        return {"file": path, "success": False, "error": error.message}
    except OSError as error:
        return {"file": path, "success": False, "error": from_os(error, path).message}
    return {"file": path, "success": True}
