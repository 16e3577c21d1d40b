"""The sandboxes and tokens that exist: the `Registry` that toolbox, gateway and API look things up
in, and its copy on disk."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from git_daytona.local.core.model import ApiError, Sandbox
from git_daytona.local.core.records import Record
from git_daytona.local.core.store import Store
from git_daytona.local.core.tokens import Access, Tokens

log = logging.getLogger(__name__)

Listener = Callable[[Record, str | None], None]
"""Told of every change of state: the record, and the state before (None for a new sandbox)."""


@dataclass(frozen=True)
class Timings:
    """How time passes for the sandboxes."""

    minute: float = 60.0
    """Seconds that a minute of auto-stop, auto-archive, auto-delete and token expiry lasts."""
    clock: Callable[[], float] = time.time
    """Seconds since the epoch. After moving a clock of your own, call `LocalDaytona.tick`."""
    change: float = 0.05
    """Seconds that a creation, start, stop or archiving takes at least: it is answered before."""
    destroying: float = 0.2
    """Seconds that a deleted sandbox is still shown."""


class Sandboxes:
    """The records of one server. `sandbox`, `touch` and `validate` may be called from any thread;
    the rest belongs to the loop."""

    def __init__(self, store: Store, timings: Timings):
        self.tokens = Tokens(timings.clock)
        self._store = store
        self.timings = timings
        # The dictionary of records, and who may change which of them, between the loop and the
        # gateway's threads.
        self._lock = threading.RLock()
        self._records: dict[str, Record] = {}
        self._listeners: list[Listener] = []

    def record(self, id_or_name: str) -> Record:
        """Raises ApiError(404)."""
        with self._lock:
            record = self._records.get(id_or_name)
            if record is None:
                record = next(
                    (r for r in self._records.values() if r.sandbox.name == id_or_name), None
                )
        if record is None:
            raise ApiError(404, f"Sandbox with ID or name {id_or_name} not found")
        return record

    def sandbox(self, id_or_name: str) -> Sandbox:
        return self.record(id_or_name).sandbox

    def records(self) -> list[Record]:
        with self._lock:
            return list(self._records.values())

    def touch(self, sandbox: Sandbox) -> None:
        sandbox.last_activity_at = self.timings.clock()

    @contextmanager
    def at_work(self, record: Record) -> Iterator[None]:
        """A toolbox call: activity at its start and its end, and no auto-stop in between."""
        self.touch(record.sandbox)
        record.calls += 1
        try:
            yield
        finally:
            record.calls -= 1
            self.touch(record.sandbox)

    def mint(self, record: Record, minutes: float) -> Access:
        """A new SSH token for the sandbox, which ends all its earlier ones."""
        return self.tokens.mint(record.sandbox.id, minutes * self.timings.minute)

    def validate(self, token: str) -> Sandbox | None:
        sandbox_id = self.tokens.sandbox_of(token)
        with self._lock:
            record = self._records.get(sandbox_id or "")
        return record.sandbox if record else None

    def on_change(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def _announce(self, record: Record, before: str | None) -> None:
        for listener in self._listeners:
            listener(record, before)

    def _save(self, record: Record) -> None:
        # Not of one whose files have been taken away, and which is only shown any more.
        if record.sandbox.directory.is_dir():
            self._store.save_sandbox(record.sandbox.directory, record.to_json())

    def _load(self) -> None:
        """Take over what an earlier server left. What ran then is stopped now, as after a reboot of
        a machine."""
        for directory, kept in self._store.load_sandboxes():
            try:
                record = Record.from_json(directory, kept)
            except (KeyError, TypeError, ValueError) as error:
                log.warning(
                    "sandbox %s is skipped: its record is not understood: %s", directory.name, error
                )
                continue
            if record.sandbox.desired_state == "destroyed":
                self._store.remove_trash(self._store.discard_sandbox(directory))
                continue
            if record.sandbox.state not in ("stopped", "archived", "error"):
                record.sandbox.state = record.sandbox.desired_state = "stopped"
                record.stopped_at = self.timings.clock()
            self._records[record.sandbox.id] = record
