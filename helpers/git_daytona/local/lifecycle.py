"""The life of the sandboxes: created, started, stopped, archived, deleted, by call or when their time has come.

Calls are answered when the work is done, which takes milliseconds here, so that the SDKs need not poll. Of two changes of one
sandbox at the same time the second is refused with 409, as by the cloud.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from git_daytona.local.faults import Faults
from git_daytona.local.model import ApiError, Isolation, Sandbox
from git_daytona.local.records import Record, next_due, preview_token
from git_daytona.local.registry import Sandboxes, Timings
from git_daytona.local.store import Store

log = logging.getLogger(__name__)


class Lifecycle(Sandboxes):
    """The sandboxes of one server, and what the API does to them. Refusals are ApiErrors."""

    def __init__(self, store: Store, isolation: Isolation, faults: Faults, timings: Timings):
        super().__init__(store, timings)
        self._isolation = isolation
        self._faults = faults
        self._tasks: set[asyncio.Task[None]] = set()
        self.closed = False
        """The server ends: nothing is started any more."""

    # Start and end of the server.

    def load(self) -> None:
        """Take over what an earlier server left."""
        self._load()
        self.tick()

    async def close(self) -> None:
        """End the processes of all sandboxes; their records stay as they are for the next start."""
        self.closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for record in self.records():
            if record.timer is not None:
                record.timer.cancel()
            self._save(record)
        started = [r.sandbox for r in self.records() if r.sandbox.state not in ("stopped", "archived")]
        ends = (asyncio.to_thread(self._isolation.stop, sandbox) for sandbox in started)
        for sandbox, failure in zip(started, await asyncio.gather(*ends, return_exceptions=True), strict=True):
            if failure is not None:
                log.warning("sandbox %s does not end: %s", sandbox.id, failure)

    def tick(self) -> None:
        """Look at all deadlines again, after the clock was moved."""
        for record in self.records():
            self._schedule(record)

    # What the API does.

    async def create(self, *, name: str | None, ttl: float | None = None, **settings: Any) -> Record:
        """A started sandbox. `settings` are fields of Sandbox; `ttl` is in minutes."""
        sandbox_id = str(uuid.uuid4())
        with self._lock:
            if name is not None and any(name in (r.sandbox.name, r.sandbox.id) for r in self._records.values()):
                raise ApiError(409, f"Sandbox with name {name} already exists")
            now = self._timings.clock()
            directory = self._store.make_sandbox(sandbox_id)
            sandbox = Sandbox(sandbox_id, name or sandbox_id, directory, **settings)
            sandbox.created_at = sandbox.updated_at = sandbox.last_activity_at = now
            record = Record(sandbox, pending=True)
            if ttl:
                record.destroy_at = now + ttl * self._timings.minute
            self._records[sandbox_id] = record
        self._save(record)
        self._announce(record, None)
        await self._bring_up(record)
        return record

    async def start(self, id_or_name: str) -> Record:
        record = self.record(id_or_name)
        sandbox = record.sandbox
        if sandbox.state == "started" and not record.pending:
            return record
        self._claim(record, "stopped", "archived", refusal="Sandbox is not in valid state")
        record.preview_token = preview_token()  # the cloud's changes with every start, too
        self._enter(record, "restoring" if sandbox.state == "archived" else "starting", "started")
        await self._bring_up(record)
        return record

    async def stop(self, id_or_name: str) -> Record:
        record = self.record(id_or_name)
        self._claim(record, "started", refusal="Sandbox is not in a stoppable state")
        try:
            self._enter(record, "stopping", "stopped")
            await asyncio.to_thread(self._isolation.stop, record.sandbox)
            record.stopped_at = self._timings.clock()
            self._enter(record, "stopped", "stopped")
        except (ApiError, OSError) as error:
            self._fail(record, error)
            raise
        finally:
            record.pending = False
        if record.sandbox.auto_delete_interval == 0:
            await self.delete(record.sandbox.id)
        return record

    async def archive(self, id_or_name: str) -> Record:
        """Archived files stay where they are; only the state differs, and that it takes a start to use them."""
        record = self.record(id_or_name)
        if record.sandbox.auto_delete_interval == 0:
            raise ApiError(400, "Ephemeral sandboxes cannot be archived")
        self._claim(record, "stopped", refusal="Sandbox is not stopped")
        self._enter(record, "archived", "archived")
        record.pending = False
        return record

    async def recover(self, id_or_name: str, *, start: bool = True) -> Record:
        record = self.record(id_or_name)
        if record.sandbox.state != "error" or not record.sandbox.recoverable:
            raise ApiError(400, "Sandbox is not in a recoverable state")
        record.sandbox.error_reason = record.sandbox.recoverable = None
        record.stopped_at = self._timings.clock()
        self._enter(record, "stopped", "stopped")
        return await self.start(id_or_name) if start else record

    async def delete(self, id_or_name: str) -> Record:
        """Gone for good; its files are taken away at once and removed in the background."""
        record = self.record(id_or_name)
        self._claim(record, refusal="")
        self._enter(record, "destroying", "destroyed")
        try:
            await asyncio.to_thread(self._isolation.stop, record.sandbox)
            trash = self._store.discard_sandbox(record.sandbox.directory)
        except (ApiError, OSError) as error:
            self._fail(record, error)
            record.pending = False
            raise
        with self._lock:
            del self._records[record.sandbox.id]
        self.tokens.revoke(record.sandbox.id)
        record.sandbox.state = "destroyed"
        self._announce(record, "destroying")
        self._spawn(asyncio.to_thread(self._store.remove_trash, trash))
        return record

    def changed(self, record: Record) -> None:
        """A setting was changed: keep it, and look at its deadlines again."""
        record.sandbox.updated_at = self._timings.clock()
        self._save(record)
        self._schedule(record)

    def set_ttl(self, record: Record, minutes: float) -> None:
        """Delete the sandbox so many minutes from now whatever its state; 0: never."""
        record.destroy_at = self._timings.clock() + minutes * self._timings.minute if minutes else None
        self.changed(record)

    def force_state(self, record: Record, state: str, reason: str | None, recoverable: bool | None) -> None:
        """For tests: pretend that the sandbox came into this state."""
        record.sandbox.error_reason, record.sandbox.recoverable = reason, recoverable
        self._enter(record, state, record.sandbox.desired_state)

    # Below the surface.

    async def _bring_up(self, record: Record) -> None:
        """Finish a claimed creation or start: now, or in the background when tests want it slow."""
        if self._faults.start_delay:
            self._spawn(self._come_up(record, self._faults.start_delay))
        else:
            await self._come_up(record, 0)

    async def _come_up(self, record: Record, delay: float) -> None:
        try:
            await asyncio.sleep(delay)
            if self._faults.start_error is not None:
                raise ApiError(500, self._faults.start_error)
            await asyncio.to_thread(self._isolation.start, record.sandbox)
        except (ApiError, OSError) as error:
            self._fail(record, error)
        else:
            self._faults.gateway.note_start(record.sandbox.id)
            self.touch(record.sandbox)
            record.stopped_at = None
            self._enter(record, "started", "started")
        finally:
            record.pending = False

    def _fail(self, record: Record, error: Exception) -> None:
        log.warning("sandbox %s: %s failed: %s", record.sandbox.id, record.sandbox.state, error)
        record.sandbox.error_reason, record.sandbox.recoverable = str(error), True
        self._enter(record, "error", record.sandbox.desired_state)

    def _claim(self, record: Record, *states: str, refusal: str) -> None:
        """Take the right to change the sandbox's state, which must be one of `states` (any, when none is given)."""
        with self._lock:
            if record.pending or self.closed:
                raise ApiError(409, "Sandbox state change in progress")
            if record.sandbox.id not in self._records:
                raise ApiError(404, f"Sandbox with ID or name {record.sandbox.id} not found")
            if states and record.sandbox.state == "error":
                raise ApiError(400, "Sandbox is in an errored state")
            if states and record.sandbox.state not in states:
                raise ApiError(400, refusal)
            record.pending = True

    def _enter(self, record: Record, state: str, desired: str) -> None:
        before = record.sandbox.state
        record.sandbox.state, record.sandbox.desired_state = state, desired
        self.changed(record)
        self._announce(record, before)

    def _schedule(self, record: Record) -> None:
        if record.timer is not None:
            record.timer.cancel()
            record.timer = None
        due = next_due(record, self._timings.minute)
        if due is None or self.closed:
            return
        # Activity moves a deadline without telling anybody: the timer looks again when it rings.
        wait = max(0.0, due[0] - self._timings.clock())
        record.timer = asyncio.get_running_loop().call_later(wait, self._ring, record)

    def _ring(self, record: Record) -> None:
        record.timer = None
        if record.calls:
            self.touch(record.sandbox)
        due = next_due(record, self._timings.minute)
        if due is None or record.pending or record.sandbox.id not in self._records:
            return  # the end of a pending change schedules anew
        if due[0] > self._timings.clock():
            self._schedule(record)
            return
        action = {"stop": self.stop, "archive": self.archive, "delete": self.delete}[due[1]]
        log.info("sandbox %s: auto-%s", record.sandbox.id, due[1])
        self._spawn(self._act(action, record))

    async def _act(self, action: Callable[[str], Coroutine[Any, Any, Record]], record: Record) -> None:
        try:
            await action(record.sandbox.id)
        except (ApiError, OSError) as error:
            # Somebody changed the sandbox at the same moment; what they did set a new deadline.
            log.info("sandbox %s: not done: %s", record.sandbox.id, error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
