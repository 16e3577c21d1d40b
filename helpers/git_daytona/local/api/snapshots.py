"""The snapshots that sandboxes are made from. All stand for this machine; no image can be
built or pulled."""

import uuid
from typing import Any, NamedTuple

from aiohttp import web

from git_daytona.local.core.answers import json_response
from git_daytona.local.core.model import ApiError
from git_daytona.local.core.wire import integer

DEFAULT_SNAPSHOT = "daytona-local"


VM_SNAPSHOT = "daytona-vm-small"


class Snapshot(NamedTuple):
    id: str
    name: str
    sandbox_class: str
    """Only virtual machines fork. Here they are one in name alone."""


SNAPSHOTS = tuple(
    Snapshot(str(uuid.uuid5(uuid.NAMESPACE_URL, f"snapshot:{name}")), name, sandbox_class)
    for name, sandbox_class in (
        (DEFAULT_SNAPSHOT, "container"),
        ("daytonaio/sandbox", "container"),
        (VM_SNAPSHOT, "linux-vm"),
    )
)


def find_snapshot(id_or_name: str) -> Snapshot | None:
    return next((snapshot for snapshot in SNAPSHOTS if id_or_name in snapshot[:2]), None)


def routes() -> list[web.RouteDef]:
    return [
        web.get("/api/snapshots", _list, name="snapshots"),
        web.post("/api/snapshots", _refuse, name="snapshot-create"),
        web.get("/api/snapshots/{snapshot:.+}", _get, name="snapshot-get"),
        web.delete("/api/snapshots/{snapshot:.+}", _keep, name="snapshot-delete"),
    ]


async def _list(request: web.Request) -> web.Response:
    found = [
        snapshot
        for snapshot in SNAPSHOTS
        if request.query.get("name", "").lower() in snapshot.name.lower()
    ]
    limit = max(1, integer(request.query.get("limit", "100"), "limit"))
    page = max(1, integer(request.query.get("page", "1"), "page"))
    return json_response(
        {
            "items": [_json(snapshot) for snapshot in found[(page - 1) * limit : page * limit]],
            "total": len(found),
            "page": page,
            "totalPages": -(-len(found) // limit),
        }
    )


async def _get(request: web.Request) -> web.Response:
    return json_response(_json(_named(request)))


async def _refuse(request: web.Request) -> web.Response:
    raise ApiError(
        400, "daytona-local cannot build or pull images; use the snapshot 'daytona-local'"
    )


async def _keep(request: web.Request) -> web.Response:
    raise ApiError(403, f"Snapshot {_named(request).name} is general and cannot be deleted")


def _named(request: web.Request) -> Snapshot:
    wanted = request.match_info["snapshot"]
    snapshot = find_snapshot(wanted)
    if snapshot is None:
        raise ApiError(404, f"Snapshot with ID or name {wanted} not found")
    return snapshot


def _json(snapshot: Snapshot) -> dict[str, Any]:
    epoch = "1970-01-01T00:00:00.000Z"
    return {
        "id": snapshot.id,
        "general": True,
        "name": snapshot.name,
        "imageName": "",
        "state": "active",
        "size": None,
        "entrypoint": None,
        "cpu": 1,
        "gpu": 0,
        "mem": 1,
        "disk": 3,
        "errorReason": None,
        "createdAt": epoch,
        "updatedAt": epoch,
        "lastUsedAt": None,
        "sourceSandboxId": None,
        "sandboxClass": snapshot.sandbox_class,
    }
