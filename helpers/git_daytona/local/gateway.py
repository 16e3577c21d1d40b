"""The SSH gateway of the embedded Daytona: the token is the user's name, the sandbox is the host."""

import logging
import selectors
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from .connection import LOG, Connection
from .faults import Faults
from .hostkeys import HostKeys
from .model import Isolation, Registry

BANNER = "daytona-local"
STOP_SECONDS = 10.0


class Gateway:
    """Listens on ``host``:``port`` (0: any free one) between `start` and `stop`; a thread per connection."""

    def __init__(
        self,
        registry: Registry,
        isolation: Isolation,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        host_keys_dir: Path,
        faults: Faults | None = None,
        key_types: Sequence[str] = ("ed25519",),
    ):
        """Makes the host keys when there are none. Raises ValueError for an unknown key type (see `hostkeys.TYPES`)."""
        self._registry = registry
        self._isolation = isolation
        self._address = (host, port)
        self._faults = faults or Faults()
        self._keys = HostKeys(host_keys_dir, key_types)
        self._listener: socket.socket | None = None
        self._wake: socket.socket | None = None
        self._acceptor: threading.Thread | None = None
        self._stopping = threading.Event()
        self._lock = threading.Lock()  # guards _connections
        self._connections: dict[Connection, threading.Thread] = {}
        logging.getLogger(LOG).disabled = True  # see Connection: what paramiko says there names tokens

    @property
    def port(self) -> int:
        """The port that is listened on. Raises RuntimeError before `start`."""
        if self._listener is None:
            raise RuntimeError("the gateway has not been started")
        return int(self._listener.getsockname()[1])

    def presented_keys(self) -> list[str]:
        """The host keys that the next connection is presented, as ``<type> <base64>``."""
        return self._keys.lines()

    def rotate(self) -> None:
        """Make new host keys; connections from now on are presented these alone."""
        self._keys.rotate()

    def start(self) -> None:
        """Begin to listen. Raises OSError when the port is taken."""
        self._stopping.clear()
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        self._listener = socket.create_server(self._address, family=family, backlog=256)
        self._listener.setblocking(False)
        waker, self._wake = socket.socketpair()
        self._acceptor = threading.Thread(target=self._accept, args=(self._listener, waker), name="ssh-accept", daemon=True)
        self._acceptor.start()

    def stop(self) -> None:
        """Stop listening, cut every connection and end its commands; idempotent."""
        if self._listener is None or self._wake is None or self._acceptor is None:
            return
        self._stopping.set()
        self._wake.close()
        self._acceptor.join()
        self._listener.close()
        self._listener = self._wake = self._acceptor = None
        with self._lock:
            connections = dict(self._connections)
        for connection in connections:
            connection.close()
        deadline = time.monotonic() + STOP_SECONDS
        for thread in connections.values():
            thread.join(max(0.0, deadline - time.monotonic()))

    def _accept(self, listener: socket.socket, waker: socket.socket) -> None:
        with waker, selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(waker, selectors.EVENT_READ)
            while not self._stopping.is_set():
                selector.select()
                try:
                    client, _ = listener.accept()
                except BlockingIOError:
                    continue  # woken up by stop, or the client left the queue
                except OSError:
                    self._stopping.wait(0.05)  # out of descriptors: those of ended connections come back
                    continue
                client.setblocking(True)
                self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        connection = Connection(client, self._keys.keys(), self._registry, self._isolation, self._faults, BANNER, self._stopping)
        thread = threading.Thread(target=self._run, args=(connection,), name="ssh-connection", daemon=True)
        with self._lock:
            self._connections[connection] = thread
        thread.start()

    def _run(self, connection: Connection) -> None:
        try:
            connection.serve()
        finally:
            with self._lock:
                self._connections.pop(connection, None)
