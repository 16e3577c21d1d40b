"""Preview links: calls that hand them out. The forwarding itself is in forward.py."""

import secrets
import string
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from git_daytona.local.api.lifecycle import Lifecycle
from git_daytona.local.core.answers import json_response
from git_daytona.local.core.model import ApiError
from git_daytona.local.core.records import Record
from git_daytona.local.core.wire import integer, positive
from git_daytona.local.preview.forward import TOKEN_PARAMETER, Forwarder

DAY = 24 * 60 * 60


@dataclass(frozen=True)
class Signed:
    """What a signed link's token opens, and until when (seconds since the epoch)."""

    sandbox_id: str
    port: int
    expires_at: float


class Previews:
    """Every (sandbox, port) that a link was asked for gets a port of its own on loopback, so that
    absolute paths work there."""

    def __init__(self, lifecycle: Lifecycle, forwarder: Forwarder, clock: Callable[[], float]):
        self._lifecycle = lifecycle
        self._forwarder = forwarder
        self._clock = clock
        self._signed: dict[str, Signed] = {}
        forwarder.allow = self.allows
        lifecycle.on_change(self._forget)

    def routes(self) -> list[web.RouteDef]:
        ports = "/api/sandbox/{sandbox}/ports/{port}"
        return [
            web.get(f"{ports}/preview-url", self.link, name="preview"),
            web.get(f"{ports}/signed-preview-url", self.signed_link, name="signed-preview"),
            web.post(
                f"{ports}/signed-preview-url/{{token}}/expire",
                self.expire,
                name="signed-preview-expire",
            ),
        ]

    async def link(self, request: web.Request) -> web.Response:
        record = self._lifecycle.record(request.match_info["sandbox"])
        if request.match_info["port"].isdigit():
            url = await self._forwarder.open(record.sandbox.id, self._asked(request)[1])
        else:
            # Daytona takes it for a number, whatever it is
            url = f"http://NaN-{record.sandbox.id}.localhost"
        return json_response(
            {"sandboxId": record.sandbox.id, "url": url, "token": record.preview_token}
        )

    async def signed_link(self, request: web.Request) -> web.Response:
        record, port = self._asked(request)
        seconds = positive(request.query, "expiresInSeconds", 60, DAY)
        token = "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(16))
        now = self._clock()
        self._signed = {
            key: signed for key, signed in self._signed.items() if signed.expires_at > now
        }
        self._signed[token] = Signed(record.sandbox.id, port, now + seconds)
        url = await self._forwarder.open(record.sandbox.id, port)
        return json_response(
            {
                "sandboxId": record.sandbox.id,
                "port": port,
                "token": token,
                "url": f"{url}/?{TOKEN_PARAMETER}={token}",
            }
        )

    async def expire(self, request: web.Request) -> web.Response:
        record, port = self._asked(request)
        signed = self._signed.get(request.match_info["token"])
        if signed is not None and (signed.sandbox_id, signed.port) == (record.sandbox.id, port):
            del self._signed[request.match_info["token"]]
        return web.Response()

    def allows(self, sandbox_id: str, port: int, token: str) -> bool:
        """Whether a request with this token (empty: none) may reach that port. Raises ApiError when
        there is no sandbox."""
        record = self._lifecycle.record(sandbox_id)
        if record.sandbox.state != "started":
            raise ApiError(400, f"Sandbox {sandbox_id} is not started")
        signed = self._signed.get(token)
        allowed = (
            record.sandbox.public
            or secrets.compare_digest(
                token.encode("utf-8", "replace"), record.preview_token.encode()
            )
            or (
                signed is not None
                and (signed.sandbox_id, signed.port) == (sandbox_id, port)
                and signed.expires_at > self._clock()
            )
        )
        if allowed:
            self._lifecycle.touch(record.sandbox)
        return allowed

    def _asked(self, request: web.Request) -> tuple[Record, int]:
        record = self._lifecycle.record(request.match_info["sandbox"])
        port = integer(request.match_info["port"], "port")
        if not 1 <= port <= 65535:
            raise ApiError(400, "Invalid port")
        return record, port

    def _forget(self, record: Record, before: str | None) -> None:
        if record.sandbox.state == "destroyed":
            self._signed = {
                k: s for k, s in self._signed.items() if s.sandbox_id != record.sandbox.id
            }
            self._forwarder.close_sandbox(record.sandbox.id)
