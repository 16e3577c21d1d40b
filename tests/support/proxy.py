"""What lies between the suite and a server in many companies, real and on loopback: an HTTP proxy,
TLS by an authority of their own, an address of IPv6."""

import asyncio
import base64
import contextlib
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.contextmanager
def serving(
    handler: Handler, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> Iterator[int]:
    """Handle connections in a thread until the block ends; yields the port."""
    loop, started = asyncio.new_event_loop(), threading.Event()
    port, over = 0, asyncio.Event()
    accepted: list[asyncio.StreamWriter] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Awaitable[None]:
        accepted.append(writer)
        return handler(reader, writer)

    async def serve() -> None:
        nonlocal port
        server = await asyncio.start_server(accept, host, 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        started.set()
        await over.wait()
        server.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for each in rest:
            each.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        for writer in accepted:  # the task of one may not have begun
            _abort(writer)
        for _ in range(5):  # what was cut is closed in the next rounds of the loop
            await asyncio.sleep(0)

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            loop.set_exception_handler(lambda *_: None)  # a client that went away
            runner.run(serve())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)


def _abort(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(AttributeError):  # of closed TLS, in the first releases of 3.11
        writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def _join(one: Streams, other: Streams) -> None:
    """Pass on what comes from either side until one ends."""
    works = [asyncio.create_task(_copy(*each)) for each in ((one[0], other[1]), (other[0], one[1]))]
    try:
        await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in works:
            each.cancel()
        for writer in (one[1], other[1]):
            await _end(writer)


async def _end(writer: asyncio.StreamWriter) -> None:
    """Close a connection after what was written to it."""
    writer.close()
    with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
        await asyncio.wait_for(writer.wait_closed(), 1)
    _abort(writer)  # TLS may wait for the other side's farewell


def to(port: int) -> Handler:
    """Pass connections on to a port of 127.0.0.1."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _join((reader, writer), await asyncio.open_connection("127.0.0.1", port))

    return handle


@dataclass
class Proxy:
    """An HTTP proxy: CONNECT and requests in absolute form (RFC 9112, 3.2), to the ports of
    loopback that it knows by names of its own."""

    ports: Mapping[str, int]
    userinfo: str | None = None
    """What it asks for, ``user:password``."""
    status: int = 200
    """Its answer to CONNECT."""
    asked: list[str] = field(default_factory=list)
    """Methods and targets of the requests that it let through."""
    heads: list[str] = field(default_factory=list)
    """Of all requests."""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.heads.append(head)
            status = await self._answer(head, reader, writer)
            if status:
                lines = (f"HTTP/1.1 {status} No", 'Proxy-Authenticate: Basic realm="proxy"')
                length = ("Content-Length: 0", "Connection: close", "", "")
                writer.write("\r\n".join((*lines, *length)).encode())
                await writer.drain()
        await _end(writer)

    async def _answer(
        self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> int:
        """Serve a request to its end; return the status that it is refused with, if it is."""
        first, *headers = head.split("\r\n")
        method, target, version = first.split(" ")
        authority = target if method == "CONNECT" else target.split("/")[2]
        port = self.ports.get(authority.rpartition(":")[0] or authority)
        if not self._is_allowed(headers):
            return 407
        if port is None or (method == "CONNECT" and self.status != 200):
            return 502 if port is None else self.status
        self.asked.append(f"{method} {target}")
        server = await asyncio.open_connection("127.0.0.1", port)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            path = "/" + target.split("/", 3)[3]
            kept = [each for each in headers if not each.lower().startswith("proxy-")]
            if "upgrade: websocket" not in head.lower():  # each request has a connection
                kept.insert(0, "Connection: close")
            server[1].write("\r\n".join((f"{method} {path} {version}", *kept)).encode("latin-1"))
        await _join((reader, writer), server)
        return 0

    def _is_allowed(self, headers: list[str]) -> bool:
        if self.userinfo is None:
            return True
        word = base64.b64encode(self.userinfo.encode()).decode()
        return f"proxy-authorization: basic {word}".lower() in (each.lower() for each in headers)
