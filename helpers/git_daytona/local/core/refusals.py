"""How each part of a Daytona says no: the API, the proxy before the toolboxes, the daemon in the
sandbox. Profiles differ here."""

from datetime import UTC, datetime
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

from aiohttp import web

from git_daytona.local.core.answers import json_response
from git_daytona.local.core.model import ApiError
from git_daytona.local.core.profile import Profile
from git_daytona.local.core.wire import MALFORMED, timestamp

GENERIC = {
    400: "BAD_REQUEST",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    408: "REQUEST_TIMEOUT",
    409: "CONFLICT",
    410: "GONE",
    500: "INTERNAL_SERVER_ERROR",
    501: "NOT_IMPLEMENTED",
}
"""Code of a refusal that has none of its own, by status."""

PREFIXES = {
    "BAD_REQUEST": "bad request: ",
    "UNAUTHORIZED": "unauthorized: ",
    "FORBIDDEN": "forbidden: ",
    "NOT_FOUND": "not found: ",
    "REQUEST_TIMEOUT": "request timeout: ",
    "CONFLICT": "conflict: ",
    "GONE": "gone: ",
    "INVALID_REQUEST_BODY": "invalid body request: ",
}
"""What the messages of generic codes begin with. Codes of their own kind have bare messages."""


class Kind(Enum):
    """Whose error it is: the older daemon answers each kind in its own way."""

    FILES = auto()
    TERMINALS = auto()
    OTHER = auto()


class Refusals:
    """The answers to calls that are refused."""

    def __init__(self, profile: Profile):
        self._profile = profile

    def api(self, request: web.BaseRequest, error: ApiError) -> web.Response:
        """The API's. A body that is no JSON is refused before the filter that adds path and
        time."""
        phrase = (
            HTTPStatus(error.status).phrase
            if error.status in HTTPStatus.__members__.values()
            else "Error"
        )
        body: dict[str, Any] = {
            "message": error.message,
            "error": phrase,
            "statusCode": error.status,
        }
        if error.code != MALFORMED:
            body |= {
                "path": str(request.rel_url),
                "timestamp": timestamp(datetime.now(UTC).timestamp()),
            }
            if self._profile.coded_errors:
                body["source"] = "DAYTONA_API"
            if error.code is not None:
                body["code"] = error.code
        return json_response(body, status=error.status, headers=error.headers)

    def proxy(self, request: web.BaseRequest, error: ApiError) -> web.Response:
        """The proxy's own, and what it passes on of the runner."""
        body = self.envelope(error, request, source="DAYTONA_PROXY", path=request.rel_url.path)
        return json_response(body, status=error.status, headers=error.headers)

    def daemon(self, request: web.Request, error: ApiError, kind: Kind) -> web.Response:
        """The daemon's, which sees the path without the sandbox."""
        if not self._profile.coded_errors and kind is Kind.FILES:
            return web.Response(status=error.status, headers=error.headers)
        if not self._profile.coded_errors and kind is Kind.TERMINALS:
            return json_response(
                {"error": error.message}, status=error.status, headers=error.headers
            )
        return json_response(
            self.envelope(error, request), status=error.status, headers=error.headers
        )

    def envelope(
        self,
        error: ApiError,
        request: web.BaseRequest,
        *,
        source: str = "DAYTONA_DAEMON",
        path: str = "",
    ) -> dict[str, Any]:
        """`ErrorResponse` of the daemon and the proxy. The SDKs pick their error class by (source,
        code), else by status."""
        generic = GENERIC.get(error.status, "INTERNAL_SERVER_ERROR")
        code = error.code or generic
        if not self._profile.coded_errors and code not in PREFIXES:
            code = generic
        return {
            "statusCode": error.status,
            **({"source": source} if self._profile.coded_errors else {}),
            "code": code,
            "message": PREFIXES.get(code, "") + error.message,
            "timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "path": path or inner_path(request),
            "method": request.method,
        }


def inner_path(request: web.BaseRequest) -> str:
    """The path of a toolbox call as the daemon sees it: without `/toolbox/ID`."""
    return "/" + "/".join(request.rel_url.path.split("/")[3:])
