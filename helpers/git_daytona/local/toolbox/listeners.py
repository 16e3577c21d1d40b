"""The calls about ports that a sandbox's processes listen on, and the daemon's own way to them.

Sandboxes share the machine's network, so what is found is what anybody on this machine listens on.
"""

import asyncio
import socket
import time
from pathlib import Path

import aiohttp
from aiohttp import web
from yarl import URL

from git_daytona.local.core.answers import json_response
from git_daytona.local.core.model import ApiError
from git_daytona.local.preview.forward import PER_HOP
from git_daytona.local.toolbox.call import Call

RANGE = range(3000, 10_000)
"""Ports that Daytona looks at."""
REFRESH = 1.0
"""Seconds that what was found is shown: Daytona looks again each second."""
PATIENCE = 0.05
"""Seconds that a connection may take."""
LISTEN = "0A"
"""State of a listening socket in /proc/net/tcp (Linux, include/net/tcp_states.h)."""


class Listeners:
    """What was found last, and when."""

    def __init__(self) -> None:
        self._found: list[int] = []
        self._looked = -REFRESH

    async def list_all(self, call: Call) -> web.Response:
        """GET port: the ports that something listens on with IPv4. One that listens on :: only, as
        Node.js does, is missing."""
        if time.monotonic() - self._looked >= REFRESH:
            self._looked = time.monotonic()
            self._found = await asyncio.to_thread(_listening)
        return json_response({"ports": self._found})


async def in_use(call: Call) -> web.Response:
    """GET port/{port}/in-use."""
    try:
        port = int(call.url("port"))
    except ValueError:
        raise ApiError(400, "invalid port: must be a number between 3000 and 9999") from None
    if port not in RANGE:
        raise ApiError(400, "port out of range: must be between 3000 and 9999")
    return json_response({"isInUse": await asyncio.to_thread(_answers, port)})


async def forward(call: Call) -> web.StreamResponse:
    """* proxy/{port}/…: passed on to what listens there."""
    port = call.url("port")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ApiError(400, "invalid port")
    request = call.request
    # The key is for Daytona and not for what the sandbox serves.
    headers = {
        name: value
        for name, value in request.headers.items()
        if name.lower() not in (*PER_HOP, "authorization", "host")
    }
    # As it came: decoding and encoding again would change it.
    rest = request.raw_path.partition(f"/proxy/{port}")[2]
    url = URL(
        f"http://127.0.0.1:{port}{rest if rest.startswith('/') else '/' + rest}", encoded=True
    )
    try:
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(
                request.method,
                url,
                headers=headers,
                data=request.content if request.body_exists else None,
                allow_redirects=False,
            ) as answer,
        ):
            kept = [
                (name, value)
                for name, value in answer.headers.items()
                if name.lower() not in PER_HOP
            ]
            response = web.StreamResponse(status=answer.status, reason=answer.reason)
            response.headers.extend(kept)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response
    except aiohttp.ClientConnectionError:
        raise ApiError(502, f"nothing answers on port {port}") from None


def _listening() -> list[int]:
    table = Path("/proc/net/tcp")
    if not table.exists():  # not Linux
        return [port for port in RANGE if _answers(port)]
    found = set()
    for line in table.read_text().splitlines()[1:]:
        _, local, _, state, *_ = line.split()
        if state == LISTEN:
            found.add(int(local.rpartition(":")[2], 16))
    return sorted(found.intersection(RANGE))


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE):
            return True
    except OSError:
        return False
