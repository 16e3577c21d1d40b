"""`LocalDaytona`: the embedded Daytona as a `with` block, for tests and for the command line.

    with LocalDaytona(Path("/tmp/x")) as local:
        daytona = Daytona(DaytonaConfig(api_key=local.api_key, api_url=local.api_url,
        target="local"))

Everything listens on 127.0.0.1 only. The HTTP side runs in one thread's loop; the SSH gateway in
another's.
"""

import asyncio
import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from aiohttp import web

from git_daytona.local.api import snapshots
from git_daytona.local.api.events import Events
from git_daytona.local.api.gatekeeper import Call, Gatekeeper
from git_daytona.local.api.lifecycle import Lifecycle
from git_daytona.local.api.preview_links import Previews
from git_daytona.local.api.sandboxes import SandboxApi
from git_daytona.local.api.service import Endpoints, Published, Service
from git_daytona.local.core.faults import Faults
from git_daytona.local.core.model import Sandbox
from git_daytona.local.core.ports import LOOPBACK, api_url, first_free, listen_on
from git_daytona.local.core.profile import CLOUD, PROFILES
from git_daytona.local.core.records import Record
from git_daytona.local.core.refusals import Refusals
from git_daytona.local.core.registry import Timings
from git_daytona.local.core.store import Store
from git_daytona.local.core.wire import sandbox_json
from git_daytona.local.gateway.server import Gateway
from git_daytona.local.isolation import choose as isolations
from git_daytona.local.preview.forward import Forwarder
from git_daytona.local.toolbox import routes

log = logging.getLogger(__name__)

T = TypeVar("T")

WORKERS = 32
"""Threads for what blocks: starting and ending processes, files of the toolbox."""
LOGIN = "/api/login"
"""Where a browser without a preview's token is sent; nobody can log in there."""
MAX_BODY = 256 * 1024 * 1024
"""Bytes of a request that is read whole; uploads are streamed and have no limit."""


class LocalDaytona:
    """A server on `root` (made if there is none). Ports 0: the ones of the root's last server if
    they are free, else any; `api_key` None: the root's own; `like`: the name of a profile.

    Entering starts it and raises RootInUse, or OSError when a port or the root cannot be had;
    leaving ends it and all processes of its sandboxes. It may be entered again afterwards.
    """

    def __init__(
        self,
        root: Path,
        *,
        api_port: int = 0,
        gateway_port: int = 0,
        api_key: str | None = None,
        isolation: str = "auto",
        timings: Timings | None = None,
        like: str = CLOUD.name,
    ):
        self.root = root
        self.profile = PROFILES[like]
        self.faults = Faults(self.profile)
        self.published = Published()
        """What `/config` says of the gateway."""
        self._timings = timings or Timings()
        self._ports = (api_port, gateway_port)
        self._given_key = api_key
        self._isolation_mode = isolation
        self._thread: threading.Thread | None = None

    # What is known once it runs.

    api_key: str
    api_port: int
    gateway: Gateway
    isolation: Any

    @property
    def api_url(self) -> str:
        return api_url(self.api_port)

    @property
    def toolbox_url(self) -> str:
        return f"http://{LOOPBACK}:{self.api_port}/toolbox"

    @property
    def gateway_host(self) -> str:
        return LOOPBACK

    @property
    def gateway_port(self) -> int:
        return self.gateway.port

    @property
    def calls(self) -> list[Call]:
        """The API and toolbox calls so far, in the order in which they ended."""
        return self._gatekeeper.calls.all()

    @property
    def counts(self) -> "Counter[str]":
        """Route name → how many calls of it succeeded."""
        return self._gatekeeper.calls.counts()

    def forget_calls(self) -> None:
        self._gatekeeper.calls.clear()

    def live_tokens(self) -> int:
        """How many SSH tokens would be accepted now."""
        return self._lifecycle.tokens.live()

    def watch_tokens(self, seen: Callable[[str], None]) -> None:
        """Call `seen` with every token that is minted from now on: for who looks whether one
        leaked."""
        self._lifecycle.tokens.on_mint = seen

    @property
    def sandboxes(self) -> list[Sandbox]:
        """Those that nobody has deleted: not the ones that are still shown while they are
        destroyed."""
        return [
            r.sandbox for r in self._lifecycle.records() if r.sandbox.desired_state != "destroyed"
        ]

    # What tests do to it.

    def force_state(
        self,
        sandbox_id: str,
        state: str,
        *,
        reason: str | None = None,
        recoverable: bool | None = None,
    ) -> None:
        """Pretend that a sandbox came into this state."""
        self._call(
            lambda: self._lifecycle.force_state(
                self._lifecycle.record(sandbox_id), state, reason, recoverable
            )
        )

    def tick(self) -> None:
        """Look at all deadlines again, after `Timings.clock` was moved."""
        self._call(self._lifecycle.tick)

    # Life.

    def __enter__(self) -> "LocalDaytona":
        self._store = Store(self.root)
        self._store.open()
        try:
            self._start()
        except BaseException:
            self._store.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._thread is not None
        # What hangs on purpose would hang the end, too.
        self.faults.clear()
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()
        self._thread = None
        self._store.close()

    def _start(self) -> None:
        self.api_key = self._given_key or self._store.api_key()
        self.isolation = isolations.choose(self._store.root, mode=self._isolation_mode)
        listening = first_free(listen_on, self._ports[0], self._store.ports()[0])
        self.api_port = listening.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        started = threading.Event()
        failure: list[BaseException] = []
        self._thread = threading.Thread(
            target=self._run, args=(listening, started, failure), name="daytona-local", daemon=True
        )
        self._thread.start()
        started.wait()
        if failure:
            self._thread.join()
            raise failure[0]

    def _run(
        self, listening: socket.socket, started: threading.Event, failure: list[BaseException]
    ) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._serve(listening, started))
            except BaseException as error:
                # Handed to the thread that waits for the start; after the start, there is only the
                # log.
                if started.is_set():
                    log.exception("daytona-local ended")
                failure.append(error)
                started.set()
            finally:
                listening.close()

    async def _serve(self, listening: socket.socket, started: threading.Event) -> None:
        executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="daytona-local")
        self._loop.set_default_executor(executor)
        self._lifecycle = Lifecycle(self._store, self.isolation, self.faults, self._timings)
        self._lifecycle.load()
        events = Events(self.api_key)
        forwarder = Forwarder(
            Refusals(self.profile), lambda: f"http://{LOOPBACK}:{self.api_port}{LOGIN}"
        )
        self._lifecycle.on_change(lambda record, before: self._tell(events, record, before))
        self._gatekeeper = Gatekeeper(self._lifecycle, self.faults, self.api_key, self.profile)
        app = web.Application(middlewares=[self._gatekeeper.middleware()], client_max_size=MAX_BODY)
        app.add_routes(
            self._routes(events, Previews(self._lifecycle, forwarder, self._timings.clock))
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
        await runner.setup()
        try:
            last_port = self._store.ports()[1]
            self.gateway = await asyncio.to_thread(
                first_free, self._start_gateway, self._ports[1], last_port
            )
            self._lifecycle.on_change(lambda record, _: self._hang_up(record))
            self._store.save_ports(self.api_port, self.gateway.port)
            try:
                await forwarder.start()
                await web.SockSite(runner, listening).start()
                started.set()
                await self._ending.wait()
            finally:
                await events.close()
                await asyncio.to_thread(self.gateway.stop)
        finally:
            await self._lifecycle.close()
            await forwarder.close()
            await runner.cleanup()

    def _start_gateway(self, port: int) -> Gateway:
        gateway = Gateway(
            self._lifecycle,
            self.isolation,
            port=port,
            host_keys_dir=self._store.host_keys,
            faults=self.faults,
        )
        gateway.start()
        return gateway

    def _routes(self, events: Events, previews: Previews) -> list[web.RouteDef]:
        endpoints = Endpoints(
            origin=lambda: f"http://{LOOPBACK}:{self.api_port}",
            toolbox=lambda: self.toolbox_url,
            ssh=lambda: (self.gateway_host, self.gateway_port),
            presented_keys=self._presented_keys,
        )
        found = snapshots.Snapshots(self._store)
        return [
            *Service(self.published, endpoints, self._timings.clock(), self.profile).routes(),
            *SandboxApi(
                self._lifecycle, endpoints.toolbox, endpoints.ssh, self.profile, self.faults, found
            ).routes(),
            *found.routes(),
            *previews.routes(),
            *events.routes(),
            *routes.routes(self._lifecycle, self.isolation, self.profile),
        ]

    def _presented_keys(self) -> list[str]:
        return self.gateway.presented_keys()

    def _hang_up(self, record: Record) -> None:
        """Cut the SSH connections to a sandbox that does not run any more."""
        if record.sandbox.state not in ("started", "forking", "snapshotting"):
            self.gateway.cut(record.sandbox.id)

    def _tell(self, events: Events, record: Record, before: str | None) -> None:
        """Pass a change of state on to the SDKs' event channel."""
        shown = sandbox_json(record, self.toolbox_url, self.profile)
        if before is None:
            events.emit("sandbox.created", shown)
        else:
            events.emit(
                "sandbox.state.updated",
                {"sandbox": shown, "oldState": before, "newState": record.sandbox.state},
            )

    def _call(self, action: Callable[[], T]) -> T:
        """Do something in the loop's thread, and wait for it."""

        async def act() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result()
