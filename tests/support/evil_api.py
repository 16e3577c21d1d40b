"""A server that answers whatever a test wants, down to the bytes, and remembers what it was
asked."""

import contextlib
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator

Answer = Callable[[str, str], bytes | Iterable[bytes]]
"""Method and path to the bytes that go out, headers and all; pieces are sent one by one until the
client goes away."""


class EvilApi(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer: Answer = lambda method, path: response(b"{}")
        self.requests: list[bytes] = []
        self.sent = self.connections = 0
        self.over = threading.Event()
        """Set by a test that is done with a slow answer."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address) -> None:
        pass  # a client that went away


class _Handler(socketserver.StreamRequestHandler):
    server: EvilApi
    timeout = 5  # a system may not tell a blocked writer that its reader has gone

    def handle(self) -> None:
        self.server.connections += 1
        while head := self._head():
            lines = head.split(b"\r\n")
            method, path, _ = lines[0].decode("latin-1").split(" ", 2)
            lengths = [line for line in lines if line.lower().startswith(b"content-length:")]
            body = self.rfile.read(int(lengths[0].split(b":")[1])) if lengths else b""
            self.server.requests.append(head + body)
            answer = self.server.answer(method, path)
            try:
                for piece in [answer] if isinstance(answer, bytes) else answer:
                    self.wfile.write(piece)
                    self.server.sent += len(piece)
            except OSError:
                return

    def _head(self) -> bytes:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self.rfile.readline()
            if not line:
                return b""
            head += line
        return head


def response(
    body: bytes, *headers: str, status: str = "200 OK", kind: str = "application/json"
) -> bytes:
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        *headers,
        "",
        "",
    ]
    return "\r\n".join(lines).encode("latin-1") + body


@contextlib.contextmanager
def serving() -> Iterator[EvilApi]:
    with EvilApi() as server:
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        thread.start()
        yield server
        server.shutdown()
        thread.join()
