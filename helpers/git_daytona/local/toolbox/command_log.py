"""The output of one command of a session, kept for those who ask later and for those who follow it.

A log is lines: each gets a label that says which stream it came from, and a last one without an end
gets one. The lines of the two streams stand in the order in which they came to the server.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator

from aiohttp import web

from git_daytona.local.toolbox.execute import OUTPUT_LIMIT, clipped

STDOUT = b"\x01\x01\x01"
STDERR = b"\x02\x02\x02"
"""What stands before each line of a log; the SDKs tell the streams apart by it
(`daytona.common.process`)."""

VERSION_HEADER = "X-Daytona-SDK-Version"
SPLITTING = (0, 167)
"""The first SDK for which the server takes the streams apart."""


class CommandLog:
    """Lines of output in the order they came. At most OUTPUT_LIMIT bytes are kept; what comes later
    is counted and dropped."""

    def __init__(self) -> None:
        self._lines: list[tuple[bytes, bytes]] = []
        self._unfinished = {STDOUT: b"", STDERR: b""}
        self._size = 0
        self._dropped = 0
        self._ended = False
        self._news = asyncio.Event()
        self.file: int | None = None
        """Descriptor of the copy that the sandbox can read, while the command runs."""

    def add(self, stream: bytes, data: bytes) -> None:
        """Note output of STDOUT or STDERR."""
        kept = data[: OUTPUT_LIMIT - self._size]
        self._size += len(kept)
        self._dropped += len(data) - len(kept)
        *lines, self._unfinished[stream] = (self._unfinished[stream] + kept).split(b"\n")
        self._note(stream, lines)

    def echo(self, line: bytes) -> None:
        """Note input that was sent: a line of its own, whatever the command has begun to print."""
        self._note(STDOUT, [line.removesuffix(b"\n")])

    def end(self) -> None:
        """Note that nothing comes any more."""
        for stream, rest in self._unfinished.items():
            self._note(stream, [rest] if rest else [])
        self._unfinished = dict.fromkeys(self._unfinished, b"")
        self._ended = True
        self._tell()

    def answer(self, version: tuple[int, int] | None) -> dict[str, str | None]:
        """The members output, stdout and stderr for a client of this SDK version; None: for one
        that is no SDK."""
        split = version is not None and version >= SPLITTING
        return {
            "output": self.text(version),
            "stdout": self._streams(STDOUT) if split else None,
            "stderr": self._streams(STDERR) if split else None,
        }

    def text(self, version: tuple[int, int] | None) -> str:
        """All lines, labelled for SDKs."""
        if version is None:
            return self._streams(STDOUT, STDERR)
        return clipped(b"".join(stream + line for stream, line in self._lines), self._dropped)

    async def pieces(self, *, follow: bool, labelled: bool) -> AsyncIterator[bytes]:
        """The lines there are; with ``follow`` also those that come, until the command has
        ended."""
        position = 0
        while True:
            news = self._news
            while position < len(self._lines):
                stream, line = self._lines[position]
                position += 1
                yield stream + line if labelled else line
            if self._ended or not follow:
                return
            await news.wait()

    def _note(self, stream: bytes, lines: list[bytes]) -> None:
        if not lines:
            return
        self._lines += [(stream, line + b"\n") for line in lines]
        if self.file is not None:
            try:
                os.write(self.file, b"".join(stream + line + b"\n" for line in lines))
            except OSError:
                pass  # the sandbox's disk is full: the copy ends here, as its own would
        self._tell()

    def _streams(self, *streams: bytes) -> str:
        return clipped(
            b"".join(line for stream, line in self._lines if stream in streams), self._dropped
        )

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def sdk_version(request: web.Request) -> tuple[int, int] | None:
    """The version of the SDK that calls; None when it is no SDK. Browsers say it as a
    subprotocol."""
    protocols = request.headers.get("Sec-WebSocket-Protocol", "").split(",")
    said = [
        one.strip().removeprefix(f"{VERSION_HEADER}~")
        for one in protocols
        if one.strip().startswith(f"{VERSION_HEADER}~")
    ]
    version = request.headers.get(VERSION_HEADER) or next(iter(said), "")
    found = re.match(r"v?(\d+)\.(\d+)", version)
    if found is None:
        return (0, 0) if version else None
    return int(found[1]), int(found[2])


async def send(request: web.Request, pieces: AsyncIterator[bytes]) -> web.StreamResponse:
    """Send a log over WebSocket as it comes, closed with 1000 at its end."""
    socket = web.WebSocketResponse()
    await socket.prepare(request)

    async def forward() -> None:
        async for piece in pieces:
            await socket.send_bytes(piece)

    async def listen() -> None:
        async for _ in socket:
            pass  # nothing is expected; reading answers pings and notices that the client has gone

    tasks = [asyncio.create_task(forward()), asyncio.create_task(listen())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            # A client that went away while it was written to is no error of ours.
            if isinstance(outcome, Exception) and not isinstance(outcome, ConnectionResetError):
                raise outcome
        await socket.close()
    return socket
