"""A person's terminal, joined to one in a sandbox over the toolbox's WebSocket.

Not over SSH: the gateway gives a terminal only to its own shell, in the home directory, and loses how that ended. The toolbox has a
terminal in any directory, with size and resize, and says the exit status when it closes. No token is minted for it.
"""

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from git_daytona import log
from git_daytona.api.cloud import Cloud
from git_daytona.errors import BadAnswer, ConnectionClosed, GitDaytonaError
from git_daytona.secret import printable

if TYPE_CHECKING:
    import aiohttp

CONNECT_SECONDS = 30.0
HEARTBEAT_SECONDS = 15.0
"""Between two pings: a connection that is dead ends the shell, in place of a terminal that does not answer."""
READ_BYTES = 4096
MOST = 1000
"""The most columns or rows that the toolbox takes."""
ENDED_BY = (signal.SIGTERM, signal.SIGHUP)


def is_there() -> bool:
    """Whether we have a terminal to join."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def join(cloud: Cloud, sandbox_id: str, directory: str) -> int:
    """Open a login shell on a terminal in the sandbox, in the directory (the home directory where that is missing), join ours to it until
    it ends, and return its exit status; 128+N after signal N.

    Raises ConnectionClosed where the connection breaks, and what opening it raises.
    """
    joined = _Joined(cloud, sandbox_id, f"git-daytona-{secrets.token_hex(8)}")
    try:
        joined.open(directory)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # what we said comes before what the shell says
        with _raw(sys.stdin.fileno()):
            return asyncio.run(joined.run())
    finally:
        with contextlib.suppress(GitDaytonaError):  # it has ended by itself, or goes with its sandbox
            cloud.close_terminal(sandbox_id, joined.name)


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


@dataclass
class _Joined:
    """One terminal in a sandbox and ours."""

    cloud: Cloud
    sandbox_id: str
    name: str
    url: str = ""
    authorization: str = field(default="", repr=False)
    resizing: "asyncio.Task[None] | None" = None
    ended_by: int = 0

    def open(self, directory: str) -> None:
        env = {"TERM": os.environ.get("TERM") or "xterm-256color"}
        try:
            address = self.cloud.open_terminal(self.sandbox_id, self.name, directory=directory, size=_size(), env=env)
        except BadAnswer:  # what a server says of a directory that is missing; it says the same of other things
            address = self.cloud.open_terminal(self.sandbox_id, self.name, directory=None, size=_size(), env=env)
        self.url, self.authorization = address.url, address.authorization.reveal()

    async def run(self) -> int:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.ws_connect(
                    self.url,
                    headers={"Authorization": self.authorization},
                    heartbeat=HEARTBEAT_SECONDS,
                    max_msg_size=0,
                ) as socket,
            ):
                return await self._converse(socket)
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            # Its text may hold the request with its headers.
            log.logger.info("terminal: %s", type(problem).__name__)
            raise ConnectionClosed(
                "the connection to the sandbox's terminal did not come about, or broke",
                hint="check the network; 'git daytona status' shows whether the sandbox runs",
            ) from None

    async def _converse(self, socket: "aiohttp.ClientWebSocketResponse") -> int:
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
            reason = await _show(socket)
        finally:
            loop.remove_reader(sys.stdin.fileno())
            for number in (*ENDED_BY, signal.SIGINT, signal.SIGWINCH):
                loop.remove_signal_handler(number)
            for task in filter(None, (typing, self.resizing)):
                task.cancel()
            await asyncio.gather(*filter(None, (typing, self.resizing)), return_exceptions=True)
        if self.ended_by:
            return 128 + self.ended_by
        return _status(reason)

    def _resize(self) -> None:
        if self.resizing is None or self.resizing.done():
            self.resizing = asyncio.create_task(self._tell_size())

    async def _tell_size(self) -> None:
        told = None
        while told != (size := _size()):
            try:
                await asyncio.to_thread(self.cloud.resize_terminal, self.sandbox_id, self.name, size)
            except GitDaytonaError as problem:  # the next one may work, and the shell goes on
                log.logger.info("terminal: not resized: %s", problem.message)
            told = size


async def _type(socket: "aiohttp.ClientWebSocketResponse", keys: "asyncio.Queue[bytes]") -> None:
    """Send what is typed; ends with the connection, or closes it where ours has ended."""
    with contextlib.suppress(ConnectionError):  # it is closed, and _show sees how
        while data := await keys.get():
            await socket.send_bytes(data)
        await socket.close()


async def _show(socket: "aiohttp.ClientWebSocketResponse") -> str:
    """Show what comes until it ends; why it was closed, empty where nobody says."""
    from aiohttp import WSMsgType

    while True:
        message = await socket.receive()
        data = message.data
        if message.type is WSMsgType.CLOSE:
            return str(message.extra or "")
        if message.type in (WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR):
            return ""
        if message.type is WSMsgType.TEXT:
            data = b"" if _is_control(data) else data.encode()
        elif message.type is not WSMsgType.BINARY:
            data = b""
        while data:
            data = data[os.write(sys.stdout.fileno(), data) :]


def _is_control(text: str) -> bool:
    """Whether a text is no output, but what the toolbox says of the terminal (``{"type": "control", …}``)."""
    if not text.startswith("{"):
        return False
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(answer, dict) and answer.get("type") == "control"


def _status(reason: str) -> int:
    """How the shell ended: the reason of the close frame is ``{"exitCode": N, …}``. Raises ConnectionClosed where it is not."""
    try:
        code = json.loads(reason)["exitCode"]
    except (ValueError, TypeError, KeyError, RecursionError):
        code = None
    if isinstance(code, int) and not isinstance(code, bool):
        return code if 0 <= code <= 255 else 1
    raise ConnectionClosed(
        "the connection to the sandbox's terminal ended, and how the shell ended is unknown",
        hint="'git daytona status' shows whether the sandbox runs",
        details=printable(reason)[:300],
    )
