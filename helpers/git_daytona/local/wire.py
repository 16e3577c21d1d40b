"""How things look in Daytona's JSON, and how its query strings and bodies are read. Names as in the OpenAPI clients."""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from aiohttp import web

from git_daytona.local.model import ApiError
from git_daytona.local.records import Record

ORGANIZATION = "10ca1000-0000-4000-8000-000000000001"
"""Id of the only organization there is."""


def timestamp(seconds: float) -> str:
    """ISO 8601 in UTC with milliseconds, as JavaScript writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def envelope(request: web.BaseRequest, status: int, message: str, code: str | None = None) -> dict[str, Any]:
    """The body of every refusal."""
    phrase = HTTPStatus(status).phrase if status in HTTPStatus.__members__.values() else "Error"
    body: dict[str, Any] = {
        "path": request.rel_url.path,
        "timestamp": timestamp(datetime.now(UTC).timestamp()),
        "statusCode": status,
        "error": phrase,
        "message": message,
        "source": "DAYTONA_DAEMON" if request.path.startswith("/toolbox/") else "DAYTONA_API",
    }
    if code is not None:
        body["code"] = code
    return body


def sandbox_json(record: Record, toolbox_url: str) -> dict[str, Any]:
    """A sandbox as `Sandbox` (and, with more than it needs, as `SandboxListItem`)."""
    sandbox = record.sandbox
    shown: dict[str, Any] = {
        "id": sandbox.id,
        "organizationId": ORGANIZATION,
        "name": sandbox.name,
        "snapshot": sandbox.snapshot,
        "user": sandbox.user,
        "env": sandbox.env,
        "labels": sandbox.labels,
        "public": sandbox.public,
        "networkBlockAll": False,
        "kvm": False,
        "target": sandbox.target,
        "cpu": 1,
        "gpu": 0,
        "memory": 1,
        "disk": 3,
        "state": sandbox.state,
        "desiredState": sandbox.desired_state,
        "backupState": "None",
        "autoStopInterval": sandbox.auto_stop_interval,
        "autoArchiveInterval": sandbox.auto_archive_interval,
        "autoDeleteInterval": sandbox.auto_delete_interval,
        "volumes": [],
        "createdAt": timestamp(sandbox.created_at),
        "updatedAt": timestamp(sandbox.updated_at),
        "lastActivityAt": timestamp(sandbox.last_activity_at),
        "sandboxClass": "container",
        "daemonVersion": "local",
        "runnerId": "local",
        "toolboxProxyUrl": toolbox_url,
    }
    if sandbox.error_reason is not None:
        shown["errorReason"] = sandbox.error_reason
    if sandbox.recoverable is not None:
        shown["recoverable"] = sandbox.recoverable
    if record.destroy_at is not None:
        shown["autoDestroyAt"] = timestamp(record.destroy_at)
    return shown


async def read_object(request: web.Request) -> dict[str, Any]:
    """The request's body, which must be a JSON object."""
    try:
        body = json.loads(await request.read())
    except ValueError as error:  # UnicodeDecodeError is one
        raise ApiError(400, f"Malformed JSON in the request body: {error}") from None
    if not isinstance(body, dict):
        raise ApiError(400, "The request body must be a JSON object")
    return body


def strings(body: Mapping[str, Any], name: str) -> dict[str, str]:
    """A member that maps strings to strings; empty when absent."""
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise ApiError(400, f"{name} must be an object of strings")
    return value


def integer(value: object, name: str) -> int:
    """A number without fraction, from JSON or from a path."""
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if not isinstance(number, int) or isinstance(number, bool):
        raise ApiError(400, f"{name} must be an integer")
    return number


def positive(query: Mapping[str, str], name: str, default: float, most: float = math.inf) -> float:
    """A query parameter that is a positive number."""
    text = query.get(name)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= most or math.isinf(number):
        raise ApiError(400, f"{name} must be a positive number" + (f" up to {most:g}" if most < math.inf else ""))
    return number


def boolean(value: str, name: str) -> bool:
    """`true` or `false` from a query string or a path."""
    lowered = value.lower()
    if lowered not in ("true", "false"):
        raise ApiError(400, f"{name} must be true or false")
    return lowered == "true"
