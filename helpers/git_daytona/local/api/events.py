"""The event channel of the SDKs: Socket.IO 5 over Engine.IO 4, websocket transport only, server to
client only.

Served because it is little and spares both SDKs trouble: refused, the TypeScript one goes on trying
for minutes and keeps its process from ending. Protocol:
https://socket.io/docs/v4/engine-io-protocol/ and https://socket.io/docs/v4/socket-io-protocol/
"""

import asyncio
import hmac
import json
import uuid
from collections.abc import Coroutine
from typing import Any

from aiohttp import WSMsgType, web

from git_daytona.local.core.answers import compact
from git_daytona.local.core.model import ApiError

PING_SECONDS = 25.0
PONG_SECONDS = 20.0
GOODBYE_SECONDS = 0.5
"""Clients are left that long to close a connection themselves: python-socketio leaks the socket of
one that the server closes."""

# Engine.IO packet types, and those of Socket.IO inside its message packets.
OPEN, CLOSE, PING, PONG, MESSAGE = "01234"
CONNECT, DISCONNECT, EVENT, _, CONNECT_ERROR = "01234"


class Events:
    """The connected clients. `emit` belongs to the server's loop."""

    def __init__(self, api_key: str):
        self._api_key = api_key.encode()
        self._clients: set[web.WebSocketResponse] = set()
        self._serving: set[asyncio.Task[Any]] = set()
        self._sending: set[asyncio.Task[object]] = set()

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/api/socket.io/", self.serve, name="events")]

    async def serve(self, request: web.Request) -> web.StreamResponse:
        client = web.WebSocketResponse(timeout=1.0)
        if not client.can_prepare(request):
            raise ApiError(400, "Only the websocket transport is served")
        await client.prepare(request)
        handshake = {
            "sid": uuid.uuid4().hex,
            "upgrades": [],
            "pingInterval": int(PING_SECONDS * 1000),
            "pingTimeout": int(PONG_SECONDS * 1000),
            "maxPayload": 1_000_000,
        }
        await client.send_str(OPEN + compact(handshake))
        pinging = asyncio.create_task(self._ping(client))
        serving = asyncio.current_task()
        assert serving is not None
        self._serving.add(serving)
        try:
            async for message in client:
                if message.type is not WSMsgType.TEXT or not await self._take(client, message.data):
                    break
        except ConnectionError:
            pass  # the client went away
        finally:
            pinging.cancel()
            self._serving.discard(serving)
            self._clients.discard(client)
            await client.close()
        return client

    def emit(self, event: str, data: dict[str, Any]) -> None:
        """Send an event to all clients, without waiting."""
        packet = MESSAGE + EVENT + compact([event, data])
        for client in self._clients:
            self._spawn(_send(client, packet))

    async def close(self) -> None:
        """Say goodbye: a client that is told so does not try to come back."""
        for client in list(self._clients):
            await _send(client, MESSAGE + DISCONNECT)
        if self._serving:
            await asyncio.wait(self._serving, timeout=GOODBYE_SECONDS)
        for client in list(self._clients):
            await client.close()

    async def _take(self, client: web.WebSocketResponse, packet: str) -> bool:
        """Answer one packet; False ends the connection."""
        if packet.startswith(MESSAGE + CONNECT):
            if self._known(packet[2:]):
                await client.send_str(MESSAGE + CONNECT + compact({"sid": uuid.uuid4().hex}))
                self._clients.add(client)
                return True
            await client.send_str(MESSAGE + CONNECT_ERROR + compact({"message": "Unauthorized"}))
            asyncio.get_running_loop().call_later(GOODBYE_SECONDS, self._drop, client)
            return True
        return not packet.startswith((CLOSE, MESSAGE + DISCONNECT))

    def _known(self, payload: str) -> bool:
        try:
            token = json.loads(payload)["token"]
        except (ValueError, KeyError, TypeError):
            return False
        return isinstance(token, str) and hmac.compare_digest(
            token.encode("utf-8", "replace"), self._api_key
        )

    def _drop(self, client: web.WebSocketResponse) -> None:
        """Cut the connection of one that has no business here and does not go."""
        if not client.closed:
            self._spawn(client.close())

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _ping(self, client: web.WebSocketResponse) -> None:
        """Clients give a connection up when no ping comes in time."""
        while True:
            await asyncio.sleep(PING_SECONDS)
            await _send(client, PING)


async def _send(client: web.WebSocketResponse, packet: str) -> None:
    try:
        await client.send_str(packet)
    except ConnectionError:
        pass  # it went away; `serve` notices and forgets it
