"""How things look in Daytona's JSON, and how its query strings and bodies are read. Names as in the
OpenAPI clients."""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from git_daytona.local.core.model import ApiError
from git_daytona.local.core.profile import Profile
from git_daytona.local.core.records import Record

UNFORESEEN = "An unexpected error occurred."
"""What Daytona says when a value that nothing checks does not get through its database."""
MALFORMED = "MALFORMED"
"""Code, never sent, of a refusal by the API's body parser: it comes before what adds path and
time."""
ORGANIZATION = "10ca1000-0000-4000-8000-000000000001"
"""Id of the only organization there is."""


def timestamp(seconds: float) -> str:
    """ISO 8601 in UTC with milliseconds, as JavaScript writes it."""
    return (
        datetime.fromtimestamp(seconds, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def sandbox_json(record: Record, toolbox_url: str, profile: Profile) -> dict[str, Any]:
    """A sandbox as `Sandbox` (and, with more than it needs, as `SandboxListItem`)."""
    sandbox = record.sandbox
    shown: dict[str, Any] = {
        "id": sandbox.id,
        "organizationId": ORGANIZATION,
        "name": sandbox.name,
        "snapshot": sandbox.snapshot,
        "user": sandbox.user,
        "env": record.env,
        "labels": sandbox.labels,
        "public": sandbox.public,
        "networkBlockAll": False,
        "target": sandbox.target,
        "cpu": sandbox.cpu or 1,
        "gpu": 0,
        "memory": sandbox.memory or 1,
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
        "runnerId": "local",
        "toolboxProxyUrl": toolbox_url,
    }
    if profile.full_listings:
        shown |= {"kvm": False, "spot": False, "daemonVersion": "local"}
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
        raise ApiError(
            400, f"Malformed JSON in the request body: {error}", code=MALFORMED
        ) from None
    if not isinstance(body, dict):
        raise ApiError(400, "The request body must be a JSON object")
    return body


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
        raise ApiError(
            400,
            f"{name} must be a positive number" + (f" up to {most:g}" if most < math.inf else ""),
        )
    return number


def boolean(value: str, name: str) -> bool:
    """`true` or `false` from a query string or a path."""
    lowered = value.lower()
    if lowered not in ("true", "false"):
        raise ApiError(400, f"{name} must be true or false")
    return lowered == "true"
