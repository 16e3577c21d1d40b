"""A person's terminal, joined to one in a sandbox over the toolbox's WebSocket.

Not over SSH: the gateway gives a terminal only to its own shell, in the home directory, and loses
its exit status. The toolbox has one in any directory, with resize and status. No token is minted.
"""

import asyncio
import contextlib
import json
import os
import queue
import secrets
import shlex
import shutil
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from git_daytona.api.cloud import Cloud
from git_daytona.api.failures import from_status
from git_daytona.api.toolbox import TerminalAddress
from git_daytona.base import log, progress, signals
from git_daytona.base.errors import ConnectionClosed, GitDaytonaError, SandboxCommandFailed
from git_daytona.base.secret import printable
from git_daytona.git.refs import PROJECT
from git_daytona.sandbox import report, scripts

if TYPE_CHECKING:
    import aiohttp

    from git_daytona.api.network import Way

CONNECT_SECONDS = 30.0
HEARTBEAT_SECONDS = 15.0
"""Between two pings: a dead connection ends the shell, and no terminal hangs."""
CONNECTIONS = 4
"""How often it is connected to: the first time, and after breaks."""
PAUSE_SECONDS = 1.0
LAST_SECONDS = 10.0
"""How long the last output of the shell may take to be shown."""
READ_BYTES = 4096
BEHIND_BYTES = 4 * 1024 * 1024
"""How far our terminal may be behind before the other side has to wait."""
MOST = 1000
"""The most columns or rows that the toolbox takes."""
ENDED_BY = (signal.SIGTERM, signal.SIGHUP)


def is_there() -> bool:
    """Tell whether we have a terminal to join."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def join(cloud: Cloud, sandbox_id: str, directory: str, command: str = "") -> int:
    """Join our terminal to a login shell in the sandbox, in the directory (else the project, or the
    home directory), or to a command that takes the shell's place, until it ends; return its exit
    status, 128+N after signal N. Raises ConnectionClosed where the connection breaks for good."""
    mark = secrets.token_hex(12)
    words = (scripts.read("terminal"), mark, directory, PROJECT, command, secrets.token_hex(8))
    opening = report.Command(*words, timeout=CONNECT_SECONDS).run(cloud, sandbox_id)
    found = opening.output.splitlines()
    place = found[0] if found and found[0] in (directory, PROJECT) else None
    typed = f" exec sh {shlex.quote(found[1])}\r" if command and len(found) == 2 else ""
    if command and not typed:
        raise SandboxCommandFailed(
            "cannot write to ~/.cache in the sandbox; is its disk full?",
            hint="look into it: git daytona shell",
        )
    name = f"git-daytona-{secrets.token_hex(8)}"
    env = {"TERM": os.environ.get("TERM") or "xterm-256color"}
    address = cloud.open_terminal(sandbox_id, name, directory=place, size=_size(), env=env)
    progress.give_way()
    try:
        screen = _Screen(mark.encode() if command else b"")
        return asyncio.run(_Joined(cloud, sandbox_id, name, address, screen, typed.encode()).run())
    finally:
        with contextlib.suppress(GitDaytonaError):  # it has ended, or goes with its sandbox
            cloud.close_terminal(sandbox_id, name)


@contextlib.contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    """Let our terminal pass on every key as it is."""
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor, termios.TCSADRAIN)  # what was typed ahead is not lost
        yield
    finally:
        with contextlib.suppress(termios.error):  # it was hung up
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _size() -> tuple[int, int]:
    columns, rows = shutil.get_terminal_size()
    return min(max(columns, 1), MOST), min(max(rows, 1), MOST)


class _Screen(threading.Thread):
    """A writer to our terminal. While that is stopped by Ctrl-S, neither keys nor signals wait, nor
    does the other side, which would take us for gone."""

    def __init__(self, mark: bytes = b"") -> None:
        super().__init__(daemon=True)
        self._pieces: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.behind = 0
        """Bytes that are not written yet."""
        self._mark, self._held = mark, b""
        self._patience = time.monotonic() + CONNECT_SECONDS

    def _after_mark(self, data: bytes) -> bytes:
        """Leave out what the shell prints before the command begins: a greeting, a prompt, the
        line that was typed. If the mark does not come, something is amiss, and all is shown."""
        self._held += data
        before, mark, after = self._held.partition(self._mark)
        if mark or time.monotonic() > self._patience or len(self._held) > BEHIND_BYTES:
            self._mark = b""
            return after if mark else before
        return b""

    def show(self, data: bytes) -> None:
        if self._mark:
            data = self._after_mark(data)
        if not data:
            return
        self.behind += len(data)
        self._pieces.put(data)

    def finish(self) -> None:
        """Let all of it be shown; a terminal that is stopped for long is not waited for."""
        self._pieces.put(b"")
        self.join(LAST_SECONDS)

    def run(self) -> None:
        with contextlib.suppress(OSError):  # hung up
            while data := self._pieces.get():
                self.behind -= len(data)
                while data:
                    data = data[os.write(sys.stdout.fileno(), data) :]


@dataclass
class _Joined:
    """One terminal in a sandbox and ours."""

    cloud: Cloud
    sandbox_id: str
    name: str
    address: TerminalAddress
    screen: _Screen
    typed: bytes = b""
    """What is typed first."""
    ended_by: int = 0

    async def run(self) -> int:
        """Connect, and again after breaks, during which the shell goes on; returns its status."""
        import aiohttp

        from git_daytona.api import network  # TLS is not loaded by what needs no terminal

        self.screen.start()

        async def refuse(*_: object) -> None:
            raise aiohttp.ClientError("redirected")  # what is typed is for this server alone

        tracing = aiohttp.TraceConfig()
        tracing.on_request_redirect.append(refuse)
        timeout = aiohttp.ClientTimeout(total=None)
        way = network.way_to(self.address.url)
        problem = _broken(way)
        async with aiohttp.ClientSession(timeout=timeout, trace_configs=[tracing]) as session:
            for attempt in range(CONNECTIONS):
                await asyncio.sleep(attempt * PAUSE_SECONDS)
                try:
                    connecting = session.ws_connect(
                        self.address.url,
                        headers={"Authorization": self.address.authorization.reveal()},
                        heartbeat=HEARTBEAT_SECONDS,
                        max_msg_size=0,
                        **_how(way),
                    )
                    socket = await asyncio.wait_for(connecting, CONNECT_SECONDS)
                except aiohttp.WSServerHandshakeError as refused:
                    # a 404 later means that the shell has ended meanwhile
                    if not attempt or refused.status != HTTPStatus.NOT_FOUND:
                        problem = await asyncio.to_thread(self._why_refused, refused.status)
                    break
                except (aiohttp.ClientError, TimeoutError, OSError) as failed:
                    # its text may hold the request with its headers
                    log.logger.info("terminal: %s", type(failed).__name__)
                    continue
                try:
                    with _raw(sys.stdin.fileno()):
                        status = _status(await self._converse(socket))
                        if status is not None:
                            self.screen.finish()
                finally:
                    await socket.close()
                if self.ended_by:
                    return 128 + self.ended_by
                if status is not None:
                    return status
        raise problem

    def _why_refused(self, status: int) -> GitDaytonaError:
        doing = "connect to the terminal of"
        if status == HTTPStatus.UNAUTHORIZED:
            return self.cloud.why_refused(self.sandbox_id, doing)
        return from_status(status, "", f"{doing} the sandbox", self.cloud.settings, {})

    async def _converse(self, socket: "aiohttp.ClientWebSocketResponse") -> str:
        """Pass on what is typed and shown until one ends; return the reason in the close frame."""
        loop, resized = asyncio.get_running_loop(), asyncio.Event()
        keys: asyncio.Queue[bytes] = asyncio.Queue()
        if self.typed:
            keys.put_nowait(self.typed)
            self.typed = b""

        def end(number: int) -> None:
            self.ended_by = number
            keys.put_nowait(b"")

        def read() -> None:
            data = b""
            with contextlib.suppress(OSError):  # hung up
                data = os.read(sys.stdin.fileno(), READ_BYTES)
            if data:
                keys.put_nowait(data)
            else:
                loop.remove_reader(sys.stdin.fileno())
                end(signal.SIGHUP)

        acts: dict[int, Callable[[], None]] = {each: partial(end, each) for each in ENDED_BY}
        acts |= {signal.SIGINT: partial(keys.put_nowait, b"\x03"), signal.SIGWINCH: resized.set}

        def signalled(number: int) -> None:
            # not the loop's own handling of signals, which would end interrupt_waits()
            loop.call_soon_threadsafe(acts[number])

        loop.add_reader(sys.stdin.fileno(), read)
        works = (_type(socket, keys), self._follow_size(resized))
        tasks = [asyncio.create_task(work) for work in works]
        try:
            with signals.handling((*ENDED_BY, signal.SIGINT, signal.SIGWINCH), signalled):
                return await _show(socket, self.screen)
        finally:
            loop.remove_reader(sys.stdin.fileno())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow_size(self, resized: asyncio.Event) -> None:
        """Give the terminal there the size of ours: now, and whenever that changes."""
        sent = None
        while True:
            resized.clear()
            if sent != (size := _size()):
                sent, resize = size, self.cloud.resize_terminal
                try:
                    await asyncio.to_thread(resize, self.sandbox_id, self.name, size)
                except GitDaytonaError as problem:  # the next one may work, and the shell goes on
                    log.logger.info("terminal: not resized: %s", problem.message)
            await resized.wait()


def _how(way: "Way") -> dict[str, Any]:
    """What aiohttp has to be told of the way."""
    from aiohttp import BasicAuth

    how: dict[str, Any] = {"ssl": way.tls} if way.tls else {}
    if way.proxy:
        how["proxy"] = way.proxy.url
        if way.proxy.userinfo:
            user, password = (each.reveal() for each in way.proxy.userinfo)
            how["proxy_auth"] = BasicAuth(user, password, "utf-8")
    return how


def _broken(way: "Way") -> GitDaytonaError:
    status = "'git daytona status' shows whether the sandbox runs"
    return ConnectionClosed(
        "the connection to the sandbox's terminal failed; the shell's exit status is unknown",
        hint=f"{way.proxy} may not let WebSockets through; {status}"
        if way.proxy
        else f"check the network; {status}",
    )


async def _type(socket: "aiohttp.ClientWebSocketResponse", keys: "asyncio.Queue[bytes]") -> None:
    """Send what is typed; ends with the connection, or closes it where ours has ended."""
    with contextlib.suppress(ConnectionError):  # it is closed, and _show gets the reason
        while data := await keys.get():
            await socket.send_bytes(data)
        await socket.close()


async def _show(socket: "aiohttp.ClientWebSocketResponse", screen: _Screen) -> str:
    """Show what comes until it ends; returns the close frame's reason, empty without one."""
    from aiohttp import WSMsgType

    while True:
        message = await socket.receive()
        if message.type is WSMsgType.CLOSE:
            return str(message.extra or "")
        if message.type in (WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR):
            return ""
        if message.type is WSMsgType.BINARY:
            screen.show(message.data)
        elif message.type is WSMsgType.TEXT and _object(message.data).get("type") != "control":
            screen.show(message.data.encode())  # else it is the toolbox's own
        while screen.behind > BEHIND_BYTES:
            await asyncio.sleep(0.05)


def _object(text: str) -> dict[str, object]:
    """Read a JSON object; an empty one from any other text."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _status(reason: str) -> int | None:
    """Read the exit status from the close frame's reason, ``{"exitCode": N, …}``, if any."""
    code = _object(reason).get("exitCode")
    if isinstance(code, int) and not isinstance(code, bool):
        return code if 0 <= code <= 255 else 1
    log.logger.info("terminal: closed: %s", printable(reason)[:300])
    return None
