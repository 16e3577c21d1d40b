"""The life of the sandboxes: created, started, stopped, archived, deleted, by call or when their
time has come.

Calls are answered at once, and the work is done afterwards, as by Daytona. Of two changes of one
sandbox at the same time the second is refused with 409.
"""

import asyncio
import json
import logging
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from git_daytona.local.core.faults import Faults
from git_daytona.local.core.model import ApiError, Isolation, Sandbox
from git_daytona.local.core.records import Record, next_due, preview_token
from git_daytona.local.core.registry import Sandboxes, Timings
from git_daytona.local.core.store import Store

log = logging.getLogger(__name__)

FORKED = (
    *("snapshot", "sandbox_class", "target", "cpu", "memory"),
    *("auto_stop_interval", "auto_archive_interval", "auto_delete_interval"),
)
"""What a fork has of its sandbox besides files, environment and labels: no ttl, no open ports."""
ACTIVE_FORKS = (
    "Cannot delete sandbox which has active fork children. The forks must be deleted first."
)


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
        started = [
            r.sandbox for r in self.records() if r.sandbox.state not in ("stopped", "archived")
        ]
        ends = (asyncio.to_thread(self._isolation.stop, sandbox) for sandbox in started)
        for sandbox, failure in zip(
            started, await asyncio.gather(*ends, return_exceptions=True), strict=True
        ):
            if failure is not None:
                log.warning("sandbox %s does not end: %s", sandbox.id, failure)

    def tick(self) -> None:
        """Look at all deadlines again, after the clock was moved."""
        for record in self.records():
            self._schedule(record)

    # What the API does.

    async def create(
        self,
        *,
        name: str | None,
        ttl: float | None = None,
        env: dict[str, Any],
        files: Path | None = None,
        **settings: Any,
    ) -> Record:
        """A sandbox that is being created, with these files. `settings` are fields of Sandbox;
        `ttl` is in minutes."""
        record = self._admit(name, env, ttl, **settings)
        self._spawn(self._come_up(record, files))
        return record

    def _admit(
        self, name: str | None, env: dict[str, Any], ttl: float | None = None, **settings: Any
    ) -> Record:
        sandbox_id = str(uuid.uuid4())
        with self._lock:
            if name is not None and any(
                name in (r.sandbox.name, r.sandbox.id) for r in self._records.values()
            ):
                raise ApiError(409, f"Sandbox with name {name} already exists")
            now = self.timings.clock()
            directory = self._store.make_sandbox(sandbox_id)
            texts = {variable: as_text(value) for variable, value in env.items()}
            sandbox = Sandbox(sandbox_id, name or sandbox_id, directory, env=texts, **settings)
            sandbox.created_at = sandbox.updated_at = sandbox.last_activity_at = now
            record = Record(sandbox, env=env, pending=True)
            if ttl:
                record.destroy_at = now + ttl * self.timings.minute
            self._records[sandbox_id] = record
        self._save(record)
        self._announce(record, None)
        return record

    async def fork(self, id_or_name: str, name: str | None) -> Record:
        """A copy that is being made: of the files and what was ordered, its labels included. The
        sandbox itself runs on, and cannot be deleted while there is one."""
        source = self.record(id_or_name)
        sandbox = source.sandbox
        if sandbox.sandbox_class == "container":
            raise ApiError(422, "Forking is not supported for this sandbox")
        if sandbox.state != "started":
            raise ApiError(400, "Sandbox must be in started state to fork")
        self._claim(source, refusal="")
        try:
            same = {setting: getattr(sandbox, setting) for setting in FORKED}
            labels = dict(sandbox.labels)
            record = self._admit(name, source.env, labels=labels, parent=sandbox.id, **same)
        except BaseException:
            source.pending = False
            raise
        self._enter(source, "forking", "started")
        self._spawn(self._copy(source, record))
        return record

    async def _copy(self, source: Record, record: Record) -> None:
        """Finish a claimed fork."""
        directories = source.sandbox.directory, record.sandbox.directory
        await self._beside(source, "started", lambda: self._store.copy_seen(*directories))
        await self._come_up(record)

    async def snapshot(self, id_or_name: str, make: Callable[[Sandbox], None]) -> Record:
        """The sandbox while a snapshot is made of it; whether there is one then, is to be seen."""
        record = self.record(id_or_name)
        before = record.sandbox.state
        if before not in ("started", "stopped"):
            message = "Sandbox must be in started or stopped state to create a snapshot"
            raise ApiError(400, message)
        self._claim(record, refusal="")
        self._enter(record, "snapshotting", before)
        self._spawn(self._beside(record, before, lambda: make(record.sandbox)))
        return record

    async def _beside(self, record: Record, state: str, work: Callable[[], None]) -> None:
        """Finish what changes nothing of a sandbox, which is in this state again then."""
        try:
            await asyncio.to_thread(work)
        except OSError as error:
            log.warning("sandbox %s: %s failed: %s", record.sandbox.id, record.sandbox.state, error)
        finally:
            record.pending = False
            self._enter(record, state, state)

    async def start(self, id_or_name: str) -> Record:
        record = self.record(id_or_name)
        sandbox = record.sandbox
        if sandbox.state == "started" and not record.pending:
            return record
        self._claim(
            record, "stopped", "archived", "archiving", refusal="Sandbox is not in valid state"
        )
        record.preview_token = preview_token()  # the cloud's changes with every start, too
        self._enter(record, "restoring" if sandbox.state == "archived" else "starting", "started")
        self._spawn(self._come_up(record))
        return record

    async def stop(self, id_or_name: str) -> Record:
        record = self.record(id_or_name)
        self._claim(record, "started", refusal="Sandbox is not in a stoppable state")
        self._enter(record, "stopping", "stopped")
        self._spawn(self._go_down(record))
        return record

    async def archive(self, id_or_name: str) -> Record:
        """Archived files stay where they are; only the state differs, and that it takes a start to
        use them."""
        record = self.record(id_or_name)
        if record.sandbox.auto_delete_interval == 0:
            raise ApiError(400, "Ephemeral sandboxes cannot be archived")
        self._claim(record, "stopped", refusal="Sandbox is not stopped")
        self._enter(record, "archiving", "archived")
        record.pending = False  # a start may come in between
        self._spawn(self._put_away(record))
        return record

    async def recover(self, id_or_name: str, *, start: bool = True) -> Record:
        record = self.record(id_or_name)
        if record.sandbox.state != "error" or not record.sandbox.recoverable:
            raise ApiError(400, "Sandbox is not in a recoverable state")
        record.sandbox.error_reason = record.sandbox.recoverable = None
        record.stopped_at = self.timings.clock()
        self._enter(record, "stopped", "stopped")
        return await self.start(id_or_name) if start else record

    async def delete(self, id_or_name: str) -> Record:
        """Gone for good, a little later: until then it is found by its id only, for its name is
        free at once."""
        record = self.record(id_or_name)
        self._claim(record, refusal="")
        forks = (
            each.sandbox for each in self.records() if each.sandbox.parent == record.sandbox.id
        )
        if any(fork.desired_state != "destroyed" for fork in forks):
            record.pending = False
            raise ApiError(400, ACTIVE_FORKS)
        record.sandbox.name = f"DESTROYED_{record.sandbox.name}_{int(self.timings.clock() * 1000)}"
        self.tokens.revoke(record.sandbox.id)
        self._enter(record, "destroying", "destroyed")
        self._spawn(self._destroy(record))
        return record

    def changed(self, record: Record) -> None:
        """A setting was changed: keep it, and look at its deadlines again."""
        record.sandbox.updated_at = self.timings.clock()
        self._save(record)
        self._schedule(record)

    def set_ttl(self, record: Record, minutes: float) -> None:
        """Delete the sandbox so many minutes from now whatever its state; 0: never."""
        record.destroy_at = (
            self.timings.clock() + minutes * self.timings.minute if minutes else None
        )
        self.changed(record)

    def force_state(
        self, record: Record, state: str, reason: str | None, recoverable: bool | None
    ) -> None:
        """For tests: pretend that the sandbox came into this state."""
        record.sandbox.error_reason, record.sandbox.recoverable = reason, recoverable
        self._enter(record, state, record.sandbox.desired_state)

    # Below the surface.

    async def _come_up(self, record: Record, files: Path | None = None) -> None:
        """Finish a claimed creation or start."""
        try:
            if files is not None:
                await asyncio.to_thread(self._store.copy_seen, files, record.sandbox.directory)
            await asyncio.sleep(max(self.timings.change, self._faults.start_delay))
            if self._faults.start_error is not None:
                raise ApiError(500, self._faults.start_error)
            await asyncio.to_thread(self._isolation.start, record.sandbox)
        except (ApiError, OSError) as error:
            self._fail(record, error)
        else:
            self._faults.gateway.note_start(record.sandbox.id)
            self.touch(record.sandbox)
            record.stopped_at = None
            record.pending = False
            self._enter(record, "started", "started")
        finally:
            record.pending = False

    async def _go_down(self, record: Record) -> None:
        """Finish a claimed stop."""
        try:
            await asyncio.to_thread(self._isolation.stop, record.sandbox)
            await asyncio.sleep(max(self.timings.change, self._faults.stop_delay))
        except (ApiError, OSError) as error:
            self._fail(record, error)
            return
        finally:
            record.pending = False
        record.stopped_at = self.timings.clock()
        self._enter(record, "stopped", "stopped")
        if record.sandbox.auto_delete_interval == 0:
            await self._act(self.delete, record)

    async def _put_away(self, record: Record) -> None:
        """Finish a claimed archiving."""
        await asyncio.sleep(self.timings.change)
        if record.sandbox.state == "archiving":
            self._enter(record, "archived", "archived")

    async def _destroy(self, record: Record) -> None:
        """Finish a claimed deletion: its files are taken away at once, and removed when nobody sees
        it any more."""
        try:
            await asyncio.to_thread(self._isolation.stop, record.sandbox)
            trash = self._store.discard_sandbox(record.sandbox.directory)
        except (ApiError, OSError) as error:
            record.pending = False
            self._fail(record, error)
            return
        await asyncio.sleep(max(self.timings.destroying, self._faults.stop_delay))
        with self._lock:
            del self._records[record.sandbox.id]
        record.sandbox.state = "destroyed"
        self._announce(record, "destroying")
        await asyncio.to_thread(self._store.remove_trash, trash)

    def _fail(self, record: Record, error: Exception) -> None:
        log.warning("sandbox %s: %s failed: %s", record.sandbox.id, record.sandbox.state, error)
        record.sandbox.error_reason, record.sandbox.recoverable = str(error), True
        self._enter(record, "error", record.sandbox.desired_state)

    def _claim(self, record: Record, *states: str, refusal: str) -> None:
        """Take the right to change the sandbox's state, which must be one of `states` (any, when
        none is given)."""
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
        due = next_due(record, self.timings.minute)
        if due is None or self.closed:
            return
        # Activity moves a deadline without telling anybody: the timer looks again when it rings.
        wait = max(0.0, due[0] - self.timings.clock())
        record.timer = asyncio.get_running_loop().call_later(wait, self._ring, record)

    def _ring(self, record: Record) -> None:
        record.timer = None
        if record.calls:
            self.touch(record.sandbox)
        due = next_due(record, self.timings.minute)
        if due is None or record.pending or record.sandbox.id not in self._records:
            return  # the end of a pending change schedules anew
        if due[0] > self.timings.clock():
            self._schedule(record)
            return
        action = {"stop": self.stop, "archive": self.archive, "delete": self.delete}[due[1]]
        log.info("sandbox %s: auto-%s", record.sandbox.id, due[1])
        self._spawn(self._act(action, record))

    async def _act(
        self, action: Callable[[str], Coroutine[Any, Any, Record]], record: Record
    ) -> None:
        try:
            await action(record.sandbox.id)
        except (ApiError, OSError) as error:
            # Somebody changed the sandbox at the same moment; what they did set a new deadline.
            log.info("sandbox %s: not done: %s", record.sandbox.id, error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def as_text(value: object) -> str:
    """The value of an environment variable that was given as any JSON."""
    return value if isinstance(value, str) else json.dumps(value)
