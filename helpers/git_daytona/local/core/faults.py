"""Faults for tests: what the embedded Daytona does wrong on purpose. Switched from Python only,
never over HTTP.

with local.faults.call(route="mint", status=429, retry_after=1):
    ...  # minting is refused
local.faults.gateway.drop_after_bytes = 4096  # every SSH channel breaks in mid-stream
"""

import asyncio
import random
import re
import shlex
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from git_daytona.local.core.profile import CLOUD, Profile


@dataclass
class CallFault:
    """One fault of API or toolbox calls: which calls it meets, then what happens to them.

    Everything given happens, in this order: latency, hang, drop before, redirect/status/body (the
    call is then not processed), processing, drop after.
    """

    method: str = ".*"
    """Regular expression that the whole HTTP method matches."""
    route: str = ".*"
    """Regular expression found in the route's name (see `LocalDaytona.calls`) or in the path below
    /api or /toolbox."""
    sandbox: str | None = None
    """Sandbox id; None meets calls for all sandboxes and for none."""
    nth: int = 1
    """The first of the matching calls that is met, counted from 1."""
    times: int | None = None
    """How many calls are met from there on; None: all."""

    latency: float = 0.0
    """Seconds."""
    hang: bool = False
    """Do not go on until `release()`."""
    drop: Literal["before", "after"] | None = None
    """Cut the connection without an answer, before or after the call was processed."""
    status: int | None = None
    """Refuse with this status, in Daytona's envelope unless `body` is given."""
    message: str = "fault"
    code: str | None = None
    retry_after: float | None = None
    """Seconds for a Retry-After header."""
    redirect: str | None = None
    """Answer 302 (or `status`) with this Location."""
    body: bytes | None = None
    """Answer with exactly this (status 200 unless given)."""
    content_type: str = "application/json"

    seen: int = 0
    """How many calls matched so far, met or not."""
    reached: threading.Event = field(default_factory=threading.Event)
    """Set once a call has been met: what a test waits for."""
    released: "Future[None]" = field(default_factory=Future)

    def release(self) -> None:
        """Let hanging calls, and all later ones, go on."""
        if not self.released.done():
            self.released.set_result(None)

    def matches(self, method: str, route: str, path: str, sandbox: str | None) -> bool:
        return (
            re.fullmatch(self.method, method) is not None
            and (
                re.search(self.route, route) is not None or re.search(self.route, path) is not None
            )
            and self.sandbox in (None, sandbox)
        )


_GIT_OF_ITS_OWN = r"""#!/bin/sh
PATH=${PATH#*:}
DAYTONA_COMMAND=git
for word do DAYTONA_COMMAND="$DAYTONA_COMMAND '$(printf %s "$word" | sed "s/'/'\\\\''/g")'"; done
export PATH DAYTONA_COMMAND
"""


@dataclass
class GatewayFaults:
    """Faults of the SSH gateway. Counters are of connections: 0 none, N the next N, -1 all; `take`
    counts them down."""

    latency: float = 0.0
    """Seconds between a connection's acceptance and the server's banner, besides
    `Faults.latency`."""
    drop_before_handshake: int = 0
    """Close these connections without a byte."""
    drop_after_handshake: int = 0
    """Close these connections after authentication, as for a bad token."""
    hang: int = 0
    """Accept these connections and send nothing until `release()` (or the gateway stops)."""
    drop_after_bytes: int | None = None
    """Close a connection once this many bytes of its channels' data (both directions together) have
    passed."""
    stall_after_bytes: int | None = None
    """Let so many of these bytes through, then no more until `release()`; 0: nothing after
    authentication."""
    cut_output_after: int | None = None
    """Close a channel, and nothing else, once this many bytes of its output have passed and more
    would: end of file and no status, as when the gateway loses the sandbox. 0: before the first."""
    cut_with_status: bool = False
    """Whether such a channel's client is told status 0 all the same."""
    cuts: int = field(default=0, repr=False)
    """How many channels were closed so: what a test looks at."""
    output_bytes: int = field(default=0, repr=False)
    """How many bytes commands have written to their clients."""
    refuse_after_start: int = 0
    """Close the first so many connections to a sandbox after each of its starts, after
    authentication."""
    lost_statuses: float = 0.0
    """The share of commands (0 to 1) whose exit status the client is not told: a nuisance of the
    real gateways, and on by default."""
    git_server: str | None = None
    """A shell command that stands for git in what SSH clients ask for; what it stands for it gets
    as DAYTONA_COMMAND, a command line for the sandbox's own git: what an agent could make of its
    sandbox."""
    held: threading.Event = field(default_factory=threading.Event, repr=False)
    """Set once a connection hangs or stalls: what a test waits for."""

    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _released: threading.Event = field(default_factory=threading.Event, repr=False)
    _since_start: dict[str, int] = field(default_factory=dict, repr=False)
    # seeded: runs are alike
    _chance: random.Random = field(
        default_factory=lambda: random.Random(5027),  # noqa: S311
        repr=False,
    )

    def take(
        self, counter: Literal["drop_before_handshake", "drop_after_handshake", "hang"]
    ) -> bool:
        """Whether this connection is met by that fault; counts it down."""
        with self._lock:
            left: int = getattr(self, counter)
            if left > 0:
                setattr(self, counter, left - 1)
            return left != 0

    def take_start_refusal(self, sandbox_id: str) -> bool:
        """Whether this connection is one of the sandbox's first `refuse_after_start` since its
        start; counts it."""
        with self._lock:
            count = self._since_start.get(sandbox_id, 0)
            self._since_start[sandbox_id] = count + 1
            return count < self.refuse_after_start

    def loses_status(self) -> bool:
        """Whether the exit status of this command gets lost."""
        with self._lock:
            return self._chance.random() < self.lost_statuses

    def note_start(self, sandbox_id: str) -> None:
        """The sandbox was started (told by the life cycle)."""
        with self._lock:
            self._since_start.pop(sandbox_id, None)

    def exchange(self, command: str) -> str:
        """What the sandbox runs when this command is asked for: the same, with a git of
        `git_server`'s before its own."""
        if self.git_server is None:
            return command
        program = f"{_GIT_OF_ITS_OWN}{self.git_server}\n"
        return (
            f'd=$(mktemp -d); printf %s {shlex.quote(program)} >"$d/git"; chmod +x "$d/git"; '
            f"PATH=$d:$PATH; export PATH; {command}"
        )

    def release(self) -> None:
        """Let hanging connections go on."""
        self._released.set()

    def wait_released(self, timeout: float | None = None) -> bool:
        """Wait for `release()`, at most `timeout` seconds; False when the time ran out."""
        return self._released.wait(timeout)

    async def hold(self) -> None:
        """Hold a connection until `release()`."""
        self.held.set()
        while not self._released.is_set():
            await asyncio.sleep(0.02)


class Faults:
    """All faults of one server; safe to use from any thread."""

    def __init__(self, profile: Profile = CLOUD) -> None:
        self._profile = profile
        self.latency: float = 0.0
        """Seconds added to each API and toolbox call and to each SSH connection."""
        self.start_delay: float = 0.0
        """Seconds that a sandbox stays `creating` or `starting` at least."""
        self.stop_delay: float = 0.0
        """Seconds that a sandbox stays `stopping` or `destroying` at least."""
        self.list_ignores_labels = False
        """Whether the list has the sandboxes of all labels, whatever is asked for."""
        self.created_with: dict[str, Any] = {}
        """What an organisation's settings add to the body of each creation, `ttlMinutes` say."""
        self.start_error: str | None = None
        """When set, creating or starting a sandbox ends in state `error` for this reason."""
        self.gateway = GatewayFaults(lost_statuses=profile.lost_statuses)
        self._lock = threading.Lock()
        self._calls: list[CallFault] = []

    def add(self, fault: CallFault) -> CallFault:
        """Switch a fault on until `remove` or `clear`; the first added that meets a call wins."""
        with self._lock:
            self._calls.append(fault)
        return fault

    def remove(self, fault: CallFault) -> None:
        """Switch it off and release what hangs in it."""
        with self._lock:
            if fault in self._calls:
                self._calls.remove(fault)
        fault.release()

    @contextmanager
    def call(self, **what: object) -> Iterator[CallFault]:
        """`with faults.call(route="ssh-access", status=500) as fault:`; arguments as the fields of
        CallFault."""
        fault = self.add(CallFault(**what))  # type: ignore[arg-type]
        try:
            yield fault
        finally:
            self.remove(fault)

    def clear(self) -> None:
        """No faults any more but those of the profile; releases everything that hangs."""
        self.latency = self.start_delay = self.stop_delay = 0.0
        self.start_error, self.list_ignores_labels, self.created_with = None, False, {}
        with self._lock:
            calls, self._calls = self._calls, []
        for fault in calls:
            fault.release()
        self.gateway.release()
        self.gateway = GatewayFaults(lost_statuses=self._profile.lost_statuses)

    def meet(self, method: str, route: str, path: str, sandbox: str | None) -> CallFault | None:
        """The fault that meets this call, if any; counts the call on every fault that it
        matches."""
        met: CallFault | None = None
        with self._lock:
            for fault in self._calls:
                if not fault.matches(method, route, path, sandbox):
                    continue
                fault.seen += 1
                last = None if fault.times is None else fault.nth + fault.times
                if met is None and fault.seen >= fault.nth and (last is None or fault.seen < last):
                    met = fault
        if met is not None:
            met.reached.set()
        return met
