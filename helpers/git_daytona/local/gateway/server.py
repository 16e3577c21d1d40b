"""The SSH gateway of the embedded Daytona: the token is the user's name, the sandbox is the
host."""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import asyncssh

from git_daytona.local.core.faults import Faults
from git_daytona.local.core.model import Isolation, Registry
from git_daytona.local.gateway.connection import Connection, Door
from git_daytona.local.gateway.own_keys import HostKeys
from git_daytona.local.gateway.streams import Access

VERSION = "Go"
"""As Go's SSH library names itself, which Daytona's gateway is made of."""
HANDSHAKE_SECONDS = 30.0
# AES-GCM alone, which every OpenSSH since 6.2 (2013) has: it needs no MAC of its own, and the
# client's order would choose another.
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")


class Gateway:
    """Listens on ``host``:``port`` (0: any free one) between `start` and `stop`, in a thread with
    an event loop of its own."""

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
        """Makes the host keys when there are none. Raises ValueError for an unknown key type (see
        `hostkeys.TYPES`)."""
        self._registry = registry
        self._isolation = isolation
        self._address = (host, port)
        self._faults = faults or Faults()
        self._keys = HostKeys(host_keys_dir, key_types)
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        # the id of the sandbox; "": not admitted (yet)
        self._connections: dict[Connection, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # what it says names users, and a user's name is a token
        logging.getLogger("asyncssh").disabled = True

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
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        self._listener = socket.create_server(self._address, family=family, backlog=256)
        self._listener.setblocking(False)
        started = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(started)), name="ssh-gateway", daemon=True
        )
        self._thread.start()
        started.wait()

    def stop(self) -> None:
        """Stop listening, cut every connection and end what their clients started; idempotent."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join()
            self._thread = self._listener = None

    def cut(self, sandbox_id: str) -> None:
        """Cut the connections to a sandbox, which has stopped. For any thread."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._cut, sandbox_id)

    def _cut(self, sandbox_id: str) -> None:
        for connection, sandbox in list(self._connections.items()):
            if sandbox == sandbox_id:
                connection.cut()

    # In the loop.

    async def _serve(self, started: threading.Event) -> None:
        assert self._listener is not None
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        with self._listener:
            accepting = self._run(self._accept(self._listener))
            started.set()
            await self._ending.wait()
            accepting.cancel()
            await asyncio.wait([accepting])
        for connection in list(self._connections):
            connection.abort()
        while tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _run(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = await self._loop.sock_accept(listener)
            except OSError:
                # out of descriptors: those of ended connections come back
                await asyncio.sleep(0.05)
                continue
            self._run(self._meet(client))

    async def _meet(self, client: socket.socket) -> None:
        """Serve one client, from the first byte to the last."""
        faults = self._faults.gateway
        with contextlib.ExitStack() as ours:
            ours.enter_context(client)
            await asyncio.sleep(self._faults.latency + faults.latency)
            if faults.take("drop_before_handshake"):
                return
            if faults.take("hang"):
                await faults.hold()
            connection = Connection(self._loop, self._options())
            await self._loop.connect_accepted_socket(lambda: connection, client)
            ours.pop_all()  # the socket is asyncio's now
        self._connections[connection] = ""
        try:
            await connection.wait_closed()
        finally:
            connection.abort()
            del self._connections[connection]

    def _options(self) -> asyncssh.SSHServerConnectionOptions:
        return asyncssh.SSHServerConnectionOptions(
            server_factory=lambda: Door(self._admit),
            server_host_keys=self._keys.keys(),
            server_version=VERSION,
            encryption_algs=CIPHERS,
            compression_algs=None,
            login_timeout=HANDSHAKE_SECONDS,
        )

    def _admit(self, token: str, connection: Connection) -> Access | None:
        """What the token opens; None: the connection is to be cut."""
        faults = self._faults.gateway
        sandbox = self._registry.validate(token)
        if sandbox is None or sandbox.state != "started":
            return None
        if faults.take("drop_after_handshake") or faults.take_start_refusal(sandbox.id):
            return None
        self._connections[connection] = sandbox.id
        left = faults.drop_after_bytes
        return Access(
            sandbox, self._isolation, self._registry, self._faults, self._run, connection.cut, left
        )
