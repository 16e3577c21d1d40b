"""The output of one command of a session, kept for those who ask later and for those who follow it."""

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web

from git_daytona.local.execute import OUTPUT_LIMIT, clipped

STDOUT = b"\x01\x01\x01"
STDERR = b"\x02\x02\x02"
"""What stands before each piece of a followed log; the SDKs tell the streams apart by it (`daytona.common.process`)."""


class CommandLog:
    """Pieces of output in the order they came. At most OUTPUT_LIMIT bytes are kept; what comes later is counted and dropped."""

    def __init__(self) -> None:
        self._pieces: list[tuple[bytes, bytes]] = []
        self._size = 0
        self._dropped = 0
        self._ended = False
        self._news = asyncio.Event()

    def add(self, stream: bytes, data: bytes) -> None:
        """Note output of STDOUT or STDERR."""
        kept = data[: OUTPUT_LIMIT - self._size]
        self._size += len(kept)
        self._dropped += len(data) - len(kept)
        if kept:
            self._pieces.append((stream, kept))
            self._tell()

    def end(self) -> None:
        """Note that nothing comes any more."""
        self._ended = True
        self._tell()

    def answer(self) -> dict[str, str]:
        """The members output, stdout and stderr of the answers about this command."""
        return {"output": self._text(STDOUT, STDERR), "stdout": self._text(STDOUT), "stderr": self._text(STDERR)}

    async def pieces(self, *, follow: bool) -> AsyncIterator[bytes]:
        """What there is, each piece behind its label; with ``follow`` also what comes, until the command has ended."""
        position = 0
        while True:
            news = self._news
            while position < len(self._pieces):
                stream, data = self._pieces[position]
                position += 1
                yield stream + data
            if self._ended or not follow:
                return
            await news.wait()

    def _text(self, *streams: bytes) -> str:
        return clipped(b"".join(data for stream, data in self._pieces if stream in streams), self._dropped)

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


async def send(request: web.Request, pieces: AsyncIterator[bytes]) -> web.StreamResponse:
    """Answer with a log as it comes: over WebSocket, closed with 1000 at its end, or as the chunks of a plain answer."""
    if request.headers.get("Upgrade", "").lower() != "websocket":
        response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        await response.prepare(request)
        async for piece in pieces:
            await response.write(piece)
        return response

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
