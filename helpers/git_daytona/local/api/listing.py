"""Lists of sandboxes: filters, order and pages, on values (no server needed)."""

import base64
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from multidict import MultiMapping

from git_daytona.local.core.model import ApiError, Sandbox
from git_daytona.local.core.records import Record
from git_daytona.local.core.wire import UNFORESEEN, boolean, integer

SORT: dict[str, Callable[[Sandbox], Any]] = {
    "name": lambda sandbox: sandbox.name,
    "cpu": lambda sandbox: 0,
    "memoryGib": lambda sandbox: 0,
    "diskGib": lambda sandbox: 0,
    "lastActivityAt": lambda sandbox: sandbox.last_activity_at,
    "createdAt": lambda sandbox: sandbox.created_at,
}
STATES = (
    "creating",
    "restoring",
    "destroyed",
    "destroying",
    "started",
    "stopped",
    "starting",
    "stopping",
    "error",
    "build_failed",
    "pending_build",
    "building_snapshot",
    "unknown",
    "pulling_snapshot",
    "archived",
    "archiving",
    "resizing",
    "snapshotting",
    "forking",
)
"""What can be asked for."""
MOST = 200
"""Longest page, as in the cloud."""


def page(records: Sequence[Record], query: MultiMapping[str]) -> tuple[list[Record], str | None]:
    """One page by cursor, and the next page's cursor. The cursor names the last item, so that
    deletions shift nothing."""
    field = query.get("sort", "createdAt")
    if field not in SORT:
        raise ApiError(400, f"sort must be one of {', '.join(SORT)}")
    found = _sorted(_filtered(records, query), field, query.get("order", "desc"))
    if cursor := query.get("cursor"):
        value, last = _decode(cursor)
        descending = query.get("order", "desc") == "desc"
        try:
            found = [r for r in found if _beyond(r, field, (value, last), descending)]
        except TypeError:
            raise ApiError(400, "Invalid cursor") from None
    limit = _limit(query)
    rest = found[limit:]
    found = found[:limit]
    following = _encode(SORT[field](found[-1].sandbox), found[-1].sandbox.id) if rest else None
    return found, following


def numbered_page(records: Sequence[Record], query: MultiMapping[str]) -> dict[str, Any]:
    """One page by number, for older clients: `items` (records), `total`, `page`, `totalPages`."""
    if query.get("labels", "").lstrip().startswith("["):
        raise ApiError(500, UNFORESEEN)  # nothing checks it here, and the database does not take it
    found = _sorted(
        _filtered(records, query), query.get("sort", "createdAt"), query.get("order", "desc")
    )
    limit, number = _limit(query), max(1, integer(query.get("page", "1"), "page"))
    return {
        "items": found[(number - 1) * limit : number * limit],
        "total": len(found),
        "page": number,
        "totalPages": -(-len(found) // limit),
    }


def _filtered(records: Sequence[Record], query: MultiMapping[str]) -> list[Record]:
    if not set(_items(query, "states")) <= set(STATES):
        raise ApiError(
            400, f"each value in states must be one of the following values: {', '.join(STATES)}"
        )
    return [record for record in records if _wanted(record, query)]


def _wanted(record: Record, query: MultiMapping[str]) -> bool:
    sandbox = record.sandbox
    return (
        sandbox.id.startswith(query.get("id", ""))
        and sandbox.name.lower().startswith(query.get("name", "").lower())
        and all(sandbox.labels.get(name) == value for name, value in _labels(query).items())
        and _one_of(sandbox.state, query, "states")
        and _one_of(sandbox.snapshot, query, "snapshots")
        and _one_of(sandbox.target, query, "regionIds")
        and ("isPublic" not in query or boolean(query["isPublic"], "isPublic") == sandbox.public)
        and (
            "isRecoverable" not in query
            or boolean(query["isRecoverable"], "isRecoverable") == bool(sandbox.recoverable)
        )
        and _between(sandbox.created_at, query, "createdAt")
        and _between(sandbox.last_activity_at, query, "lastEvent")
    )


def _labels(query: MultiMapping[str]) -> dict[str, Any]:
    try:
        labels = json.loads(query.get("labels") or "{}")
    except ValueError:
        labels = None
    if not isinstance(labels, dict):
        raise ApiError(400, "Invalid labels JSON format")
    return labels


def _one_of(value: str, query: MultiMapping[str], name: str) -> bool:
    """Lists come as repeated parameters or, from older clients, with commas."""
    wanted = _items(query, name)
    return not wanted or value in wanted


def _items(query: MultiMapping[str], name: str) -> list[str]:
    return [item for text in query.getall(name, []) for item in text.split(",")]


def _between(seconds: float, query: MultiMapping[str], name: str) -> bool:
    try:
        after, before = (
            datetime.fromisoformat(query[name + suffix]).timestamp()
            if name + suffix in query
            else None
            for suffix in ("After", "Before")
        )
    except ValueError:
        raise ApiError(400, f"{name}After and {name}Before must be ISO 8601 times") from None
    return (after is None or seconds >= after) and (before is None or seconds <= before)


def _sorted(records: list[Record], field: str, order: str) -> list[Record]:
    key = SORT.get(field, SORT["createdAt"])
    return sorted(records, key=lambda r: (key(r.sandbox), r.sandbox.id), reverse=order == "desc")


def _limit(query: MultiMapping[str]) -> int:
    limit = integer(query.get("limit", "100"), "limit")
    if not 1 <= limit <= MOST:
        raise ApiError(400, f"limit must be between 1 and {MOST}")
    return limit


def _beyond(record: Record, field: str, last: tuple[Any, str], descending: bool) -> bool:
    here = (SORT[field](record.sandbox), record.sandbox.id)
    return here < last if descending else here > last


def _encode(value: object, sandbox_id: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([value, sandbox_id]).encode()).decode().rstrip("=")


def _decode(cursor: str) -> tuple[Any, str]:
    try:
        value, sandbox_id = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except ValueError:
        raise ApiError(400, "Invalid cursor") from None
    return value, str(sandbox_id)
