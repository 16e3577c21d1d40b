"""The calls on terminal sessions (process/pty/…): made, attached to over WebSocket, left, ended."""

import asyncio
import base64
import json
from typing import Any

from aiohttp import WSMsgType, web

from git_daytona.local.core import pipes
from git_daytona.local.core.answers import compact, json_response
from git_daytona.local.core.model import HOME, ApiError
from git_daytona.local.toolbox.call import Call, environment, from_os, member, optional, visible
from git_daytona.local.toolbox.pty_session import Pty

EXIT_CONTROL = "X-Daytona-Pty-Exit-Control"
"""Subprotocol of clients that want to be told of the end by a message, too
(`daytona.common.pty`)."""
TERM = "xterm-256color"
ENVIRONMENT = "X-Daytona-Pty-Envs~"
"""Beginning of a subprotocol that is no protocol, but environment variables as unpadded base64url
of JSON."""


class Ptys:
    """The terminal sessions of all sandboxes of a server."""

    def __init__(self, shell: str) -> None:
        self._shell = shell
        self._ptys: dict[tuple[str, str], Pty] = {}

    async def create(self, call: Call) -> web.Response:
        """POST process/pty ``{id, cwd?, envs?, cols?, rows?, lazyStart?}``."""
        body = await call.json()
        size = (optional(body, "cols", int) or 80, optional(body, "rows", int) or 24)
        lazy = bool(optional(body, "lazyStart", bool))
        pty = self._add(
            call,
            member(body, "id", str),
            optional(body, "cwd", str),
            environment(body),
            size,
            lazy=lazy,
        )
        if not lazy:
            await self._start(call, pty)
        return json_response({"sessionId": pty.id}, status=201)

    async def create_connect(self, call: Call) -> web.StreamResponse:
        """GET process/pty/create-connect ``?id&cols&rows&cwd``: create and attach in one."""
        try:
            size = (
                int(call.request.query.get("cols", 80)),
                int(call.request.query.get("rows", 24)),
            )
        except ValueError:
            raise ApiError(400, "cols and rows must be integers", code="BAD_REQUEST") from None
        envs = environment({"envs": _given_environment(call.request)})
        pty = self._add(
            call, call.query("id"), call.request.query.get("cwd"), envs, size, lazy=False
        )
        return await self._attach(call, pty)

    async def connect(self, call: Call) -> web.StreamResponse:
        """GET process/pty/{pty}/connect: attach."""
        return await self._attach(call, self._pty(call))

    async def list_all(self, call: Call) -> web.Response:
        """GET process/pty."""
        mine = [
            pty.info() for (sandbox, _), pty in self._ptys.items() if sandbox == call.sandbox.id
        ]
        return json_response({"sessions": mine})

    async def get(self, call: Call) -> web.Response:
        """GET process/pty/{pty}."""
        return json_response(self._pty(call).info())

    async def resize(self, call: Call) -> web.Response:
        """POST process/pty/{pty}/resize ``{cols, rows}``."""
        pty, body = self._pty(call), await call.json()
        pty.resize(*_size(member(body, "cols", int), member(body, "rows", int)))
        return json_response(pty.info())

    async def delete(self, call: Call) -> web.Response:
        """DELETE process/pty/{pty}: end it."""
        pty = self._pty(call)
        del self._ptys[call.sandbox.id, pty.id]
        pty.kill()
        if pty.life is not None:
            await asyncio.wait([pty.life])
        return json_response({"message": "PTY session deleted"})

    def _add(
        self,
        call: Call,
        name: str,
        cwd: str | None,
        envs: dict[str, str],
        size: tuple[int, int],
        *,
        lazy: bool,
    ) -> Pty:
        key = (call.sandbox.id, name)
        if not name:
            raise ApiError(400, "session ID is required", code="BAD_REQUEST")
        if key in self._ptys:
            raise ApiError(409, f"PTY session with ID '{name}' already exists", code="CONFLICT")
        pty = Pty(
            name, visible(cwd) if cwd else HOME, {"TERM": TERM, **envs}, *_size(*size), lazy=lazy
        )
        self._ptys[key] = pty
        return pty

    async def _start(self, call: Call, pty: Pty) -> None:
        key = (call.sandbox.id, pty.id)
        try:
            await pty.start(call, self._shell)
        except OSError as error:
            self._ptys.pop(key, None)
            raise from_os(error, pty.id) from None
        except ApiError:
            self._ptys.pop(key, None)
            raise

        def forget(life: "asyncio.Task[None]") -> None:
            if self._ptys.get(key) is pty:
                del self._ptys[key]

        assert pty.life is not None
        pty.life.add_done_callback(forget)

    async def _attach(self, call: Call, pty: Pty) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=(EXIT_CONTROL,))
        if not socket.can_prepare(call.request).ok:
            raise ApiError(400, "expected a WebSocket", code="BAD_REQUEST")
        output: asyncio.Queue[bytes | None] = asyncio.Queue()
        pty.clients.add(output)
        try:
            await self._start(call, pty)
            await socket.prepare(call.request)
            await socket.send_json({"type": "control", "status": "connected"}, dumps=compact)
            typing = asyncio.create_task(_type(socket, pty))
            try:
                await _show(socket, pty, output, typing)
            except ConnectionResetError:
                pass  # the client has gone
            finally:
                typing.cancel()
                await asyncio.wait([typing])
        finally:
            pty.clients.discard(output)
        await _part(socket, pty)
        return socket

    def _pty(self, call: Call) -> Pty:
        pty = self._ptys.get((call.sandbox.id, call.url("pty")))
        if pty is None:
            raise ApiError(404, "PTY session not found", code="PROCESS_NOT_FOUND")
        return pty


async def _show(
    socket: web.WebSocketResponse,
    pty: Pty,
    output: "asyncio.Queue[bytes | None]",
    typing: "asyncio.Task[None]",
) -> None:
    """Send output until the end of the session or of the client."""
    # A client that leaves wakes this up like the end of the session does.
    typing.add_done_callback(lambda _: output.put_nowait(None))
    while (data := await output.get()) is not None:
        await socket.send_bytes(data)


async def _type(socket: web.WebSocketResponse, pty: Pty) -> None:
    async for message in socket:
        if message.type in (WSMsgType.TEXT, WSMsgType.BINARY) and pty.master >= 0:
            data = message.data if isinstance(message.data, bytes) else message.data.encode()
            try:
                await pipes.write(pty.master, data)
            except OSError:
                return  # the terminal is gone


async def _part(socket: web.WebSocketResponse, pty: Pty) -> None:
    """Close, saying how the shell ended; what the SDKs read from the close frame, or, if they ask,
    from a message before."""
    code = pty.exit_code
    if code is None:
        await socket.close()
        return
    ending: dict[str, Any] = {"exitCode": code}
    if code:
        reasons = {130: "Ctrl+C", 137: "SIGKILL", 143: "SIGTERM"}
        ending["exitReason"] = reasons.get(
            code, f"signal {code - 128}" if code > 128 else "non-zero exit"
        )
    try:
        if socket.ws_protocol == EXIT_CONTROL and not socket.closed:
            await socket.send_json({"type": "control", "status": "exited", **ending}, dumps=compact)
        await socket.close(code=1011 if code else 1000, message=compact(ending).encode())
    except ConnectionResetError:
        pass  # the client has gone


def _given_environment(request: web.Request) -> dict[str, Any]:
    for protocol in request.headers.get("Sec-WebSocket-Protocol", "").split(","):
        if protocol.strip().startswith(ENVIRONMENT):
            encoded = protocol.strip().removeprefix(ENVIRONMENT)
            try:
                value = json.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
            except ValueError:
                value = None
            if not isinstance(value, dict):
                raise ApiError(
                    400, "the environment of the terminal is not understood", code="BAD_REQUEST"
                )
            return value
    return {}


def _size(cols: int, rows: int) -> tuple[int, int]:
    if not (1 <= cols <= 1000 and 1 <= rows <= 1000):
        raise ApiError(400, "cols and rows must be from 1 to 1000", code="BAD_REQUEST")
    return cols, rows
