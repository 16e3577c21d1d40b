"""The snapshots that sandboxes are made from. Some stand for this machine, with an empty home; the
others are copies of what a sandbox saw. No image can be built or pulled."""

import asyncio
import logging
import uuid
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from git_daytona.local.core.answers import json_response
from git_daytona.local.core.model import ApiError, Sandbox
from git_daytona.local.core.store import Store
from git_daytona.local.core.wire import integer, timestamp

log = logging.getLogger(__name__)

DEFAULT_SNAPSHOT = "daytona-local"


VM_SNAPSHOT = "daytona-vm-small"


class Snapshot(NamedTuple):
    id: str
    name: str
    sandbox_class: str
    """Only virtual machines fork. Here they are one in name alone."""
    made: float = 0.0
    source: str | None = None
    """The sandbox that it is a copy of."""


SNAPSHOTS = tuple(
    Snapshot(str(uuid.uuid5(uuid.NAMESPACE_URL, f"snapshot:{name}")), name, sandbox_class)
    for name, sandbox_class in (
        (DEFAULT_SNAPSHOT, "container"),
        ("daytonaio/sandbox", "container"),
        (VM_SNAPSHOT, "linux-vm"),
    )
)


class Snapshots:
    """The snapshots of a root, and the API's calls on them."""

    def __init__(self, store: Store):
        self._store = store
        kept = (Snapshot(**record) for record in store.load_snapshots())
        self._all = [*SNAPSHOTS, *sorted(kept, key=lambda each: each.made)]

    def find(self, id_or_name: str) -> Snapshot | None:
        return next((each for each in self._all if id_or_name in (each.id, each.name)), None)

    def files(self, snapshot: Snapshot) -> Path | None:
        """Where the files of a copy are."""
        return self._store.snapshots / snapshot.id if snapshot.source else None

    def make(self, sandbox: Sandbox, name: str, moment: float) -> None:
        """Copy what a sandbox sees, unless there is one of the name: nobody is told of that."""
        if self.find(name) is not None:
            log.warning("there is a snapshot '%s' already", name)
            return
        made = Snapshot(str(uuid.uuid4()), name, sandbox.sandbox_class, moment, sandbox.id)
        self._store.make_snapshot(made.id, sandbox.directory, made._asdict())
        self._all.append(made)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/snapshots", self._list, name="snapshots"),
            web.post("/api/snapshots", _refuse, name="snapshot-create"),
            web.get("/api/snapshots/{snapshot:.+}", self._get, name="snapshot-get"),
            web.delete("/api/snapshots/{snapshot:.+}", self._remove, name="snapshot-delete"),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        wanted = request.query.get("name", "").lower()
        return _page(request, [each for each in self._all if wanted in each.name.lower()])

    async def _get(self, request: web.Request) -> web.Response:
        return json_response(_json(self._named(request)))

    async def _remove(self, request: web.Request) -> web.Response:
        snapshot = self._named(request)
        if snapshot.source is None:
            raise ApiError(403, f"Snapshot {snapshot.name} is general and cannot be deleted")
        self._all.remove(snapshot)
        await asyncio.to_thread(self._store.remove_trash, self._store.snapshots / snapshot.id)
        return json_response(_json(snapshot))

    def _named(self, request: web.Request) -> Snapshot:
        wanted = request.match_info["snapshot"]
        snapshot = self.find(wanted)
        if snapshot is None:
            raise ApiError(404, f"Snapshot with ID or name {wanted} not found")
        return snapshot


def _page(request: web.Request, found: list[Snapshot]) -> web.Response:
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


async def _refuse(request: web.Request) -> web.Response:
    raise ApiError(
        400, "daytona-local cannot build or pull images; use the snapshot 'daytona-local'"
    )


def _json(snapshot: Snapshot) -> dict[str, Any]:
    made = timestamp(snapshot.made)
    return {
        "id": snapshot.id,
        "general": snapshot.source is None,
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
        "createdAt": made,
        "updatedAt": made,
        "lastUsedAt": None,
        "sourceSandboxId": snapshot.source,
        "sandboxClass": snapshot.sandbox_class,
    }
