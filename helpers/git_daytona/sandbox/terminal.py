"""A person's terminal, joined to one in a sandbox over the toolbox's WebSocket.

Not over SSH: the gateway gives a terminal only to its own shell, in the home directory, and loses
how that ended. The toolbox has a terminal in any directory, with size and resize, and says the exit
status when it closes. No token is minted for it.
"""

import asyncio
import contextlib
import json
import os
import queue
import re
import secrets
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from git_daytona.api.cloud import Cloud
from git_daytona.api.failures import from_status
from git_daytona.api.toolbox import TerminalAddress
from git_daytona.base import log, progress
from git_daytona.base.errors import ConnectionClosed, GitDaytonaError
from git_daytona.base.secret import printable
from git_daytona.sandbox import report

if TYPE_CHECKING:
    import aiohttp

CONNECT_SECONDS = 30.0
HEARTBEAT_SECONDS = 15.0
"""Between two pings: a connection that is dead ends the shell, in place of a terminal that does not
answer."""
CONNECTIONS = 4
"""How often it is connected to: the first time, and after breaks."""
PAUSE_SECONDS = 1.0
LAST_SECONDS = 10.0
"""How long what the shell has said last may take to be shown."""
READ_BYTES = 4096
BEHIND_BYTES = 4 * 1024 * 1024
"""How far our terminal may be behind before the other side has to wait."""
UNAUTHORIZED, NOT_FOUND = 401, 404
URL_ORIGIN = re.compile(r"[a-z]+://[^/?#]+")
MOST = 1000
"""The most columns or rows that the toolbox takes."""
ENDED_BY = (signal.SIGTERM, signal.SIGHUP)


def is_there() -> bool:
    """Whether we have a terminal to join."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def join(cloud: Cloud, sandbox_id: str, directory: str) -> int:
    """Open a login shell on a terminal in the sandbox, in the directory (the home directory where
    that is missing), join ours to it until it ends, and return its exit status; 128+N after signal
    N.

    Raises ConnectionClosed where the connection breaks and cannot be had again, and what opening it
    raises.
    """
    there = (
        report.run_once(cloud, sandbox_id, '[ -d "$1" ]', directory, timeout=CONNECT_SECONDS).status
        == 0
    )
    name = f"git-daytona-{secrets.token_hex(8)}"
    env = {"TERM": os.environ.get("TERM") or "xterm-256color"}
    address = cloud.open_terminal(
        sandbox_id, name, directory=directory if there else None, size=_size(), env=env
    )
    progress.give_way()
    try:
        return asyncio.run(_Joined(cloud, sandbox_id, name, address).run())
    finally:
        # it has ended by itself, or goes with its sandbox
        with contextlib.suppress(GitDaytonaError):
            cloud.close_terminal(sandbox_id, name)


@contextlib.contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    """Our terminal handing on every key as it is."""
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
    """Writes to our terminal, which may be slow, or stopped by Ctrl-S: neither keys nor signals
    wait for it, nor does the other side, which would take us for gone."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._pieces: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.behind = 0
        """Bytes that are not written yet."""

    def show(self, data: bytes) -> None:
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
    resizing: "asyncio.Task[None] | None" = None
    ended_by: int = 0

    async def run(self) -> int:
        """Connect, and again where the connection breaks: the shell goes on meanwhile. Its exit
        status."""
        import aiohttp

        screen = _Screen()
        screen.start()
        wanted = URL_ORIGIN.match(self.address.url)

        async def same_place(
            request: "aiohttp.ClientRequest", handler: "aiohttp.ClientHandlerType"
        ) -> "aiohttp.ClientResponse":
            """No redirects: what is typed is for this host alone."""
            found = URL_ORIGIN.match(str(request.url))
            if not (wanted and found and wanted[0] == found[0]):
                raise aiohttp.ClientError("redirected")
            return await handler(request)

        problem: GitDaytonaError = _broken()
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout, middlewares=(same_place,)) as session:
            for attempt in range(CONNECTIONS):
                if attempt:
                    await asyncio.sleep(attempt * PAUSE_SECONDS)
                try:
                    socket = await asyncio.wait_for(
                        session.ws_connect(
                            self.address.url,
                            headers={"Authorization": self.address.authorization.reveal()},
                            heartbeat=HEARTBEAT_SECONDS,
                            max_msg_size=0,
                        ),
                        CONNECT_SECONDS,
                    )
                except aiohttp.WSServerHandshakeError as refused:
                    # later it means that the shell has ended meanwhile
                    if not attempt or refused.status != NOT_FOUND:
                        problem = await asyncio.to_thread(self._why_refused, refused.status)
                    break
                except (aiohttp.ClientError, TimeoutError, OSError) as failed:
                    # its text may hold the request with its headers
                    log.logger.info("terminal: %s", type(failed).__name__)
                    continue
                try:
                    with _raw(sys.stdin.fileno()):
                        status = _status(await self._converse(socket, screen))
                        screen.finish() if status is not None else None
                finally:
                    await socket.close()
                if self.ended_by:
                    return 128 + self.ended_by
                if status is not None:
                    return status
        raise problem

    def _why_refused(self, status: int) -> GitDaytonaError:
        doing = "connect to the terminal of"
        if status == UNAUTHORIZED:
            return self.cloud.why_refused(self.sandbox_id, doing)
        return from_status(
            status, "", f"{doing} sandbox '{self.sandbox_id}'", self.cloud.settings, {}
        )

    async def _converse(self, socket: "aiohttp.ClientWebSocketResponse", screen: _Screen) -> str:
        """Hand on what is typed and what is shown until one of the two ends; why the connection was
        closed, as far as that is said."""
        loop = asyncio.get_running_loop()
        keys: asyncio.Queue[bytes] = asyncio.Queue()

        def end(number: int) -> None:
            self.ended_by = number
            keys.put_nowait(b"")

        def read() -> None:
            try:
                data = os.read(sys.stdin.fileno(), READ_BYTES)
            except OSError:  # hung up
                data = b""
            if data:
                keys.put_nowait(data)
            else:
                loop.remove_reader(sys.stdin.fileno())
                end(signal.SIGHUP)

        loop.add_reader(sys.stdin.fileno(), read)
        for number in ENDED_BY:
            loop.add_signal_handler(number, end, number)
        loop.add_signal_handler(signal.SIGINT, keys.put_nowait, b"\x03")
        loop.add_signal_handler(signal.SIGWINCH, self._resize)
        self._resize()  # it may have changed since it was opened
        typing = asyncio.create_task(_type(socket, keys))
        try:
            return await _show(socket, screen)
        finally:
            loop.remove_reader(sys.stdin.fileno())
            for number in (*ENDED_BY, signal.SIGINT, signal.SIGWINCH):
                loop.remove_signal_handler(number)
            for task in filter(None, (typing, self.resizing)):
                task.cancel()
            await asyncio.gather(*filter(None, (typing, self.resizing)), return_exceptions=True)

    def _resize(self) -> None:
        if self.resizing is None or self.resizing.done():
            self.resizing = asyncio.create_task(self._tell_size())

    async def _tell_size(self) -> None:
        told = None
        while told != (size := _size()):
            try:
                await asyncio.to_thread(
                    self.cloud.resize_terminal, self.sandbox_id, self.name, size
                )
            except GitDaytonaError as problem:  # the next one may work, and the shell goes on
                log.logger.info("terminal: not resized: %s", problem.message)
            told = size


async def _type(socket: "aiohttp.ClientWebSocketResponse", keys: "asyncio.Queue[bytes]") -> None:
    """Send what is typed; ends with the connection, or closes it where ours has ended."""
    with contextlib.suppress(ConnectionError):  # it is closed, and _show sees how
        while data := await keys.get():
            await socket.send_bytes(data)
        await socket.close()


async def _show(socket: "aiohttp.ClientWebSocketResponse", screen: _Screen) -> str:
    """Show what comes until it ends; why it was closed, empty where nobody says."""
    from aiohttp import WSMsgType

    while True:
        message = await socket.receive()
        if message.type is WSMsgType.CLOSE:
            return str(message.extra or "")
        if message.type in (WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR):
            return ""
        if message.type is WSMsgType.BINARY:
            screen.show(message.data)
        elif message.type is WSMsgType.TEXT and not _is_control(message.data):
            screen.show(message.data.encode())
        while screen.behind > BEHIND_BYTES:
            await asyncio.sleep(0.05)


def _is_control(text: str) -> bool:
    """Whether a text is no output, but what the toolbox says of the terminal (``{"type": "control",
    …}``)."""
    if not text.startswith("{"):
        return False
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(answer, dict) and answer.get("type") == "control"


def _status(reason: str) -> int | None:
    """How the shell ended: the reason of the close frame is ``{"exitCode": N, …}``. None where it
    does not say."""
    try:
        code = json.loads(reason)["exitCode"]
    except (ValueError, TypeError, KeyError, RecursionError):
        code = None
    if isinstance(code, int) and not isinstance(code, bool):
        return code if 0 <= code <= 255 else 1
    log.logger.info("terminal: closed: %s", printable(reason)[:300])
    return None


def _broken() -> ConnectionClosed:
    return ConnectionClosed(
        "the connection to the sandbox's terminal broke or did not come about, and how the shell ended is unknown",
        hint="check the network; 'git daytona status' shows whether the sandbox runs",
    )
