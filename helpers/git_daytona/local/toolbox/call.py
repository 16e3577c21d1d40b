"""One call of the toolbox API: what a handler gets, how it reads what was sent, and how it refuses.

The paths, names and answers are those of `daytona_toolbox_api_client` 0.226; the codes are its
`DaemonErrorCode`. What an older daemon says instead is `Refusals`' business.
"""

import json
import posixpath
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web

from git_daytona.local.core.model import HOME, ApiError, Isolation, Sandbox
from git_daytona.local.core.profile import Profile
from git_daytona.local.core.refusals import Refusals
from git_daytona.local.isolation.plain import replace_home

BODY_LIMIT = 64 * 1024 * 1024
"""Bytes of a JSON body; larger ones are refused with 413. Uploads are streamed and have no
limit."""

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """A request to the started sandbox it names."""

    request: web.Request
    sandbox: Sandbox
    isolation: Isolation
    profile: Profile
    refusals: Refusals

    def query(self, name: str) -> str:
        """A query parameter; ApiError(400) when it is missing or empty."""
        value = self.request.query.get(name, "")
        if not value:
            raise ApiError(400, f"{name} is required", code="BAD_REQUEST")
        return value

    def url(self, name: str) -> str:
        """A variable part of the path."""
        return self.request.match_info[name]

    async def json(self) -> dict[str, Any]:
        """The body, which must be a JSON object; ApiError(400 or 413)."""
        body = bytearray()
        async for chunk in self.request.content.iter_any():
            body += chunk
            if len(body) > BODY_LIMIT:
                raise ApiError(413, f"request body is larger than {BODY_LIMIT} bytes")
        try:
            value = json.loads(body)
        except ValueError as error:
            raise ApiError(
                400, f"invalid request body: {error}", code="INVALID_REQUEST_BODY"
            ) from None
        if not isinstance(value, dict):
            raise ApiError(400, "invalid request body: not an object", code="INVALID_REQUEST_BODY")
        return value


Handler = Callable[[Call], Awaitable[web.StreamResponse]]


def member(body: dict[str, Any], name: str, kind: type[T]) -> T:
    """A member of a JSON object that must be there and of this type; ApiError(400) otherwise."""
    value = optional(body, name, kind)
    if value is None:
        raise ApiError(
            400, f"invalid request body: {name} is required", code="INVALID_REQUEST_BODY"
        )
    return value


def optional(body: dict[str, Any], name: str, kind: type[T]) -> T | None:
    """The same for a member that may be missing or null."""
    value = body.get(name)
    # bool is an int in Python, and is none in JSON.
    if value is not None and (
        not isinstance(value, kind) or (kind is int and isinstance(value, bool))
    ):
        raise ApiError(
            400,
            f"invalid request body: {name} must be of type {kind.__name__}",
            code="INVALID_REQUEST_BODY",
        )
    return value


def strings(value: object, name: str) -> list[str]:
    """A list of strings; ApiError(400) for anything else."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ApiError(
            400,
            f"invalid request body: {name} must be a list of strings",
            code="INVALID_REQUEST_BODY",
        )
    return value


def environment(body: dict[str, Any]) -> dict[str, str]:
    """The member ``envs``: names and values of environment variables; ApiError(400) for a name no
    shell could use."""
    env = optional(body, "envs", dict) or {}
    for name, value in env.items():
        if not isinstance(value, str) or not VARIABLE.fullmatch(name):
            raise ApiError(400, f"invalid environment variable: {name!r}", code="BAD_REQUEST")
    return env


def script(isolation: Isolation, sandbox: Sandbox, text: str) -> bytes:
    """A command as it is given to the sandbox's shell. Where nothing is isolated, /home/daytona
    means the host's folder."""
    if not isolation.isolates:
        text = replace_home(text, str(sandbox.home.resolve()))
    return text.encode("utf-8", "replace")


def visible(path: str) -> str:
    """The absolute path of the sandbox that a path of a call means: relative ones start at the home
    directory."""
    if "\0" in path:
        raise ApiError(400, "invalid path: NUL byte", code="INVALID_FILE_PATH")
    # normpath keeps a leading double slash, as POSIX allows.
    return posixpath.join(HOME, path) if not path.startswith("//") else "/" + path.lstrip("/")


def from_os(error: OSError, path: str) -> ApiError:
    """What the daemon answers for a failed file operation. The message names the sandbox's path,
    never the host's."""
    reason = f"{path}: {(error.strerror or 'failed').lower()}"
    if isinstance(error, FileNotFoundError):
        return ApiError(404, reason, code="FILE_NOT_FOUND")
    if isinstance(error, PermissionError):
        return ApiError(403, reason, code="FILE_ACCESS_DENIED")
    return ApiError(400, reason, code="BAD_REQUEST")
