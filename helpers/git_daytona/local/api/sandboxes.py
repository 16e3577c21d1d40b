"""REST calls on sandboxes: create, get, list, change of state, settings, SSH access. Paths are
below /api."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from multidict import MultiDict

from git_daytona.local.api import listing
from git_daytona.local.api.lifecycle import Lifecycle, as_text
from git_daytona.local.api.snapshots import DEFAULT_SNAPSHOT, find_snapshot
from git_daytona.local.core.answers import json_response
from git_daytona.local.core.faults import Faults
from git_daytona.local.core.model import ApiError
from git_daytona.local.core.profile import Profile
from git_daytona.local.core.records import Record, signing_key
from git_daytona.local.core.wire import (
    UNFORESEEN,
    boolean,
    integer,
    read_object,
    sandbox_json,
    timestamp,
)

MAX_AUTO_ARCHIVE = 30 * 24 * 60
"""Minutes, as in the cloud; an interval of 0 means this."""

UNSUPPORTED = (
    "volumes",
    "secrets",
    "kvm",
    "gpu",
    "gpuType",
    "spot",
    "linkedSandbox",
    "outboundProxyUrl",
    "otelEndpointOverride",
    "networkBlockAll",
    "networkAllowList",
    "domainAllowList",
    "autoPauseInterval",
)
"""Members of a creation that would promise what is not there. Any value but null, false, 0 and
empty is refused."""

RESOURCES = ("cpu", "memory", "disk")
IMAGE = f"FROM {DEFAULT_SNAPSHOT}\n"
"""The only image that there is: this machine."""
TARGETS = ("local", "us", "eu")
"""Regions that can be asked for; all are this machine."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class SandboxApi:
    """The handlers. `toolbox_url` and `ssh_endpoint` (host, port) are asked for at each call: they
    are known once it listens."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        toolbox_url: Callable[[], str],
        ssh_endpoint: Callable[[], tuple[str, int]],
        profile: Profile,
        faults: Faults,
    ):
        self._lifecycle = lifecycle
        self._toolbox_url = toolbox_url
        self._ssh_endpoint = ssh_endpoint
        self._profile = profile
        self._faults = faults

    def routes(self) -> list[web.RouteDef]:
        change = "/api/sandbox/{sandbox}"
        return [
            web.post("/api/sandbox", self.create, name="create"),
            web.get("/api/sandbox", self.list, name="list"),
            web.get("/api/sandbox/paginated", self.list_numbered, name="list-paginated"),
            web.get("/api/sandbox/ssh-access/validate", self.validate, name="validate"),
            web.get(change, self.get, name="get"),
            web.delete(change, self._call(self._lifecycle.delete), name="delete"),
            web.post(f"{change}/start", self._call(self._lifecycle.start), name="start"),
            web.post(f"{change}/stop", self._call(self._lifecycle.stop), name="stop"),
            web.post(f"{change}/archive", self._call(self._lifecycle.archive), name="archive"),
            web.post(f"{change}/recover", self.recover, name="recover"),
            web.post(f"{change}/pause", self.pause, name="pause"),
            web.post(f"{change}/resize", self._unsupported("resize sandboxes"), name="resize"),
            web.post(f"{change}/fork", self._unsupported("fork sandboxes"), name="fork"),
            web.post(f"{change}/snapshot", self._unsupported("make snapshots"), name="snapshot"),
            web.post(f"{change}/backup", self._unsupported("make backups"), name="backup"),
            web.post(
                f"{change}/network-settings",
                self._unsupported("restrict the network"),
                name="network",
            ),
            web.put(f"{change}/secrets", self._unsupported("keep secrets"), name="secrets"),
            web.put(f"{change}/labels", self.labels, name="labels"),
            web.post(f"{change}/public/{{public}}", self.public, name="public"),
            web.post(
                f"{change}/autostop/{{minutes}}",
                self._interval("auto_stop_interval"),
                name="autostop",
            ),
            web.post(
                f"{change}/autoarchive/{{minutes}}",
                self._interval("auto_archive_interval"),
                name="autoarchive",
            ),
            web.post(
                f"{change}/autodelete/{{minutes}}",
                self._interval("auto_delete_interval"),
                name="autodelete",
            ),
            web.post(f"{change}/autopause/{{minutes}}", self.autopause, name="autopause"),
            web.post(f"{change}/ttl/{{minutes}}", self.ttl, name="ttl"),
            web.post(f"{change}/last-activity", self.activity, name="activity"),
            web.get(f"{change}/toolbox-proxy-url", self.proxy_url, name="toolbox-proxy-url"),
            web.get(f"{change}/build-logs-url", self.build_logs, name="build-logs-url"),
            web.post(f"{change}/ssh-access", self.mint, name="mint"),
            web.delete(f"{change}/ssh-access", self.revoke, name="revoke"),
            *(self._signing_routes(change) if self._profile.newer_calls else ()),
        ]

    def _signing_routes(self, change: str) -> list[web.RouteDef]:
        return [
            web.get(f"{change}/signing-key", self.signing_key, name="signing-key"),
            web.post(
                f"{change}/signing-key/rotate", self.rotate_signing_key, name="signing-key-rotate"
            ),
        ]

    # Creating and finding.

    async def create(self, request: web.Request) -> web.Response:
        body = await read_object(request) | self._faults.created_with
        for member in UNSUPPORTED:
            if body.get(member):
                raise ApiError(400, f"daytona-local does not support {member}")
        _check_size(body)
        name, ttl = body.get("name") or None, _optional(body, "ttlMinutes")
        if name is not None and not isinstance(name, str):
            raise ApiError(400, "name must be a string")
        if ttl is not None and ttl < 0:
            raise ApiError(400, "ttlMinutes must be non-negative")
        record = await self._lifecycle.create(name=name, ttl=ttl, **_settings(body))
        request.match_info["sandbox"] = record.sandbox.id  # for the record of calls
        return self._shown(record)

    async def get(self, request: web.Request) -> web.Response:
        return self._shown(self._record(request))

    async def list(self, request: web.Request) -> web.Response:
        found, cursor = listing.page(self._lifecycle.records(), self._filter(request))
        return json_response(
            {"items": [self._json(record) for record in found], "nextCursor": cursor}
        )

    async def list_numbered(self, request: web.Request) -> web.Response:
        found = listing.numbered_page(self._lifecycle.records(), self._filter(request))
        return json_response({**found, "items": [self._json(record) for record in found["items"]]})

    def _filter(self, request: web.Request) -> MultiDict[str]:
        query = MultiDict(request.query)
        if self._faults.list_ignores_labels:
            query.popall("labels", None)
        return query

    # State.

    async def recover(self, request: web.Request) -> web.Response:
        start = not boolean(request.query.get("skipStart", "false"), "skipStart")
        return self._shown(
            await self._lifecycle.recover(request.match_info["sandbox"], start=start)
        )

    async def pause(self, request: web.Request) -> web.Response:
        """Containers cannot pause, in the cloud neither."""
        if self._record(request).sandbox.state != "started":
            raise ApiError(400, "Sandbox must be in started state to pause")
        raise ApiError(422, "Pausing is not supported for this sandbox")

    # Settings.

    async def labels(self, request: web.Request) -> web.Response:
        record = self._record(request)
        body = await read_object(request)
        if "labels" in body:
            record.sandbox.labels = _anything(body, "labels")
        self._lifecycle.changed(record)
        return self._shown(record)

    async def public(self, request: web.Request) -> web.Response:
        record = self._record(request)
        record.sandbox.public = boolean(request.match_info["public"], "isPublic")
        self._lifecycle.changed(record)
        return self._shown(record)

    async def autopause(self, request: web.Request) -> web.Response:
        record = self._record(request)
        if integer(request.match_info["minutes"], "interval") != 0:
            raise ApiError(422, "Pausing is not supported for this sandbox")
        return self._shown(record)

    async def ttl(self, request: web.Request) -> web.Response:
        record = self._record(request)
        minutes = integer(request.match_info["minutes"], "ttlMinutes")
        if minutes < 0:
            raise ApiError(400, "ttlMinutes must be non-negative")
        self._lifecycle.set_ttl(record, minutes)
        return self._shown(record)

    async def activity(self, request: web.Request) -> web.Response:
        self._lifecycle.touch(self._record(request).sandbox)
        return web.Response(status=201)

    async def proxy_url(self, request: web.Request) -> web.Response:
        self._record(request)
        return json_response({"url": self._toolbox_url()})

    async def build_logs(self, request: web.Request) -> web.Response:
        raise ApiError(404, f"Sandbox {self._record(request).sandbox.id} has no build info")

    # SSH access.

    async def mint(self, request: web.Request) -> web.Response:
        record = self._record(request)
        try:
            minutes = float(request.query.get("expiresInMinutes", "60"))
            timestamp(self._lifecycle.timings.clock() + minutes * 60)
        except (ValueError, OverflowError):
            raise ApiError(500, UNFORESEEN) from None
        access = self._lifecycle.mint(record, minutes)
        host, port = self._ssh_endpoint()
        return json_response(
            {
                "id": access.id,
                "sandboxId": access.sandbox_id,
                "token": access.token,
                "expiresAt": timestamp(access.expires_at),
                "createdAt": timestamp(access.created_at),
                "updatedAt": timestamp(access.created_at),
                "sshCommand": f"ssh -p {port} {access.token}@{host}",
            }
        )

    async def revoke(self, request: web.Request) -> web.Response:
        record = self._record(request)
        self._lifecycle.tokens.revoke(record.sandbox.id, request.query.get("token") or None)
        return self._shown(record)

    async def validate(self, request: web.Request) -> web.Response:
        """For the SSH gateway's own key, which users do not have: theirs may not ask."""
        raise ApiError(403, "Forbidden resource")

    # Signed file links.

    async def signing_key(self, request: web.Request) -> web.Response:
        return json_response(self._record(request).signing_key)

    async def rotate_signing_key(self, request: web.Request) -> web.Response:
        record = self._record(request)
        record.signing_key = signing_key()
        self._lifecycle.changed(record)
        return json_response(record.signing_key)

    # Shared.

    def _record(self, request: web.Request) -> Record:
        return self._lifecycle.record(request.match_info["sandbox"])

    def _json(self, record: Record) -> dict[str, Any]:
        return sandbox_json(record, self._toolbox_url(), self._profile)

    def _shown(self, record: Record) -> web.Response:
        return json_response(self._json(record))

    def _call(
        self, change: Callable[[str], Awaitable[Record]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handler(request: web.Request) -> web.StreamResponse:
            return self._shown(await change(request.match_info["sandbox"]))

        return handler

    def _interval(self, setting: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handler(request: web.Request) -> web.StreamResponse:
            record = self._record(request)
            setattr(
                record.sandbox, setting, _minutes(setting, _whole(request.match_info["minutes"]))
            )
            self._lifecycle.changed(record)
            return self._shown(record)

        return handler

    def _unsupported(self, what: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handler(request: web.Request) -> web.StreamResponse:
            self._record(request)
            raise ApiError(400, f"daytona-local cannot {what}")

        return handler


def _check_size(body: dict[str, Any]) -> None:
    """A size is of an image, and there is one image. Disks have no size here."""
    if not body.get("buildInfo"):
        if any(body.get(member) for member in RESOURCES):
            raise ApiError(400, "Cannot specify Sandbox resources when using a snapshot")
        return
    if body.get("snapshot"):
        raise ApiError(400, "Cannot specify a snapshot when using a build info entry")
    if body["buildInfo"] != {"dockerfileContent": IMAGE}:
        raise ApiError(400, f"daytona-local builds nothing but '{IMAGE.strip()}'")
    if body.get("disk"):
        raise ApiError(400, "daytona-local does not support disk")


def _settings(body: dict[str, Any]) -> dict[str, Any]:
    """The fields of Sandbox that a creation asks for."""
    user, target = body.get("user") or "daytona", body.get("target") or "local"
    if user != "daytona":
        raise ApiError(400, "daytona-local runs every sandbox as the user daytona")
    if target not in TARGETS:
        raise ApiError(404, "Region not found")
    if not isinstance(body.get("public") or False, bool):
        raise ApiError(400, "public must be true or false")
    snapshot = body.get("snapshot") or DEFAULT_SNAPSHOT
    if not isinstance(snapshot, str):
        raise ApiError(400, "snapshot must be a string")
    if find_snapshot(snapshot) is None:
        raise ApiError(
            400, f"Snapshot {snapshot} not found. Did you add it through the Daytona Dashboard?"
        )
    env = _anything(body, "env")
    for name, value in env.items():
        if not VARIABLE.fullmatch(name) or "\0" in as_text(value):
            raise ApiError(400, "env must map names of environment variables to values without NUL")
    settings: dict[str, Any] = {
        "cpu": _optional(body, "cpu") or 0,
        "memory": _optional(body, "memory") or 0,
        "snapshot": snapshot,
        "target": target,
        "public": body.get("public") or False,
        "env": env,
        "labels": _anything(body, "labels"),
    }
    for setting, member in (
        ("auto_stop_interval", "autoStopInterval"),
        ("auto_archive_interval", "autoArchiveInterval"),
        ("auto_delete_interval", "autoDeleteInterval"),
    ):
        minutes = _optional(body, member)
        if minutes is not None:
            settings[setting] = _minutes(setting, minutes)
    return settings


def _optional(body: dict[str, Any], member: str) -> int | None:
    value = body.get(member)
    return None if value is None else _whole(value)


def _whole(value: object) -> int:
    """A number without fraction; for anything else, Daytona finds out too late."""
    try:
        return integer(value, "")
    except ApiError:
        raise ApiError(500, UNFORESEEN) from None


def _anything(body: dict[str, Any], member: str) -> dict[str, Any]:
    """An object whose values are kept as they are."""
    value = body.get(member)
    if value is not None and not isinstance(value, dict):
        raise ApiError(500, UNFORESEEN)
    return value or {}


def _minutes(setting: str, minutes: int) -> int:
    """The interval to keep for the one asked for."""
    if setting == "auto_delete_interval":
        return max(-1, minutes)
    if minutes < 0:
        raise ApiError(
            400,
            f"{setting.replace('_', '-').removesuffix('-interval').capitalize()} interval "
            "must be non-negative",
        )
    if setting == "auto_archive_interval":
        return min(minutes or MAX_AUTO_ARCHIVE, MAX_AUTO_ARCHIVE)
    return minutes
