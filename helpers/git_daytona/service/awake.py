"""Keeping a turn's sandbox awake, and bringing back work: now and then, and before it is lost."""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from git_daytona.api.cloud import SandboxInfo
from git_daytona.base import log
from git_daytona.base.errors import Elsewhere, GitDaytonaError, NotFound, RateLimited
from git_daytona.sandbox.lifecycle import BEFORE_SECONDS, dangers
from git_daytona.service.workspace import Workspace
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.sessions.state import Session
from git_daytona.settings import preferences

TICK_SECONDS = 15.0
"""Between two looks at the turns that go on: what is shorter costs no API call."""
SILENT_SECONDS = 2 * 3600.0
"""A turn of which nothing is heard for so long counts as ended: its end may have got lost."""
RETRY_SECONDS = 60.0
"""Between two tries to keep a sandbox awake that fail, where the server asks for no more."""
OFTEN_SECONDS = 60.0
"""How often a sandbox is brought back that may be gone at any moment (spot), or soon."""
PARTS = 3
"""How often a sandbox is kept awake within its idle time."""


@dataclass(frozen=True)
class Moment:
    """A moment of both clocks: a laptop's sleep stops one, somebody may set the other."""

    monotonic: float
    wall: float

    def since(self, before: "Moment") -> float:
        return max(self.monotonic - before.monotonic, self.wall - before.wall)


def now() -> Moment:
    return Moment(time.monotonic(), time.time())


@dataclass
class _Turn:
    """What is known of a session since its last turn began."""

    heard: Moment
    """When its client was heard of last."""
    synced: Moment
    """When it was brought back last, or began."""
    goes_on: bool = True
    tried: Moment | None = None
    """When keeping its sandbox awake failed, and for how long that is left alone then."""
    pause: float = RETRY_SECONDS
    used: bool = False
    """Whether a tool was, since it was brought back."""
    every: float | None = None
    """Seconds, of daytona.syncEvery; read when it is needed."""
    end: datetime | None = None
    """When its sandbox destroys itself, once it was brought back for that."""


class Awake:
    """The turns of a service, by the ids of their sessions' roots. Safe for many threads; one of
    its own looks at them. ``sync(root, end)`` has a session brought back in the background; ``end``
    says of one whose sandbox is about to destroy itself what will happen."""

    def __init__(self, workspace: Workspace, sync: Callable[[str, str], None]) -> None:
        self._workspace, self._sync = workspace, sync
        self._changed = threading.Condition()
        self._turns: dict[str, _Turn] = {}
        self._active: dict[str, Moment] = {}
        """When the sandbox of each session was used last; its idle time began then."""
        self._calls: Counter[str] = Counter()
        """How many of its tools are at work in the sandbox."""
        self._running = self._closed = False

    def begun(self, root: str) -> None:
        """A turn has begun, or is heard of."""
        moment = now()
        with self._changed:
            turn = self._turns.get(root)
            if turn is not None and turn.goes_on:
                turn.heard = moment
                return
            self._turns[root] = _Turn(moment, moment, end=turn.end if turn else None)
            if not self._running and not self._closed:
                self._running = True
                threading.Thread(target=self._watch, name="awake", daemon=True).start()

    def ended(self, root: str) -> None:
        """The turn has ended: from now on its sandbox may fall asleep."""
        with self._changed:
            if root in self._turns:
                self._turns[root].goes_on = self._turns[root].used = False

    def goes_on(self, root: str) -> bool:
        with self._changed:
            return root in self._turns and self._turns[root].goes_on

    def forget(self, root: str) -> None:
        """The session was deleted."""
        with self._changed:
            for known in (self._turns, self._active, self._calls):
                known.pop(root, None)

    @contextmanager
    def at_work(self, root: str) -> Iterator[None]:
        """A tool of the session works in its sandbox while the block runs."""
        self._worked(root, 1)
        try:
            yield
        finally:
            self._worked(root, -1)

    def _worked(self, root: str, calls: int) -> None:
        with self._changed:
            moment = self._active[root] = now()
            self._calls[root] += calls
            if turn := self._turns.get(root):
                turn.heard, turn.used = moment, True

    def failed(self, root: str) -> None:
        """It was not brought back: that is still to be done."""
        with self._changed:
            if root in self._turns:
                self._turns[root].used = True

    def close(self) -> None:
        """Begin nothing any more."""
        with self._changed:
            self._closed = True
            self._turns.clear()
            self._changed.notify_all()

    # -- the thread --------------------------------------------------------------------------------

    def _watch(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed, TICK_SECONDS)
                if not self._turns:
                    self._running = False
                    return
            self.look()

    def look(self) -> None:
        """Do for each turn what is due."""
        with self._changed:
            turns = dict(self._turns)
        for root, turn in turns.items():
            try:
                self._look_at(root, turn)
            # the others' turns go on; what was not done is tried again
            except GitDaytonaError as problem:
                log.logger.warning("awake: session=%s %s", root, problem.message)
            except Exception:  # noqa: BLE001
                log.logger.exception("awake: internal error")

    def _look_at(self, root: str, turn: _Turn) -> None:
        coordinator, moment = self._workspace.coordinator(), now()
        if turn.goes_on and not self._calls[root] and moment.since(turn.heard) > SILENT_SECONDS:
            log.logger.warning("awake: session=%s nothing is heard of its turn any more", root)
            turn.goes_on = False
        session = coordinator.state.get(root)
        info = coordinator.cloud.known(session.sandbox_id) if session else None
        if not turn.goes_on and not (info and 0 <= info.seconds_left(moment.wall) < math.inf):
            self._drop(root, turn)
            return
        if session is None:
            return
        if turn.goes_on and not (turn.tried and moment.since(turn.tried) < turn.pause):
            info = self._keep_awake(coordinator, session, root, turn)
        if self._calls[root]:
            turn.used = True
        near = info is not None and info.seconds_left(moment.wall) < BEFORE_SECONDS
        if not (info and session.number and self._is_due(coordinator, turn, info, moment, near)):
            return
        with self._changed:
            turn.synced, turn.used = moment, False
            turn.end = info.destroyed_at if near else None
        self._sync(root, dangers(info)[0] if near else "")

    def _drop(self, root: str, turn: _Turn) -> None:
        with self._changed:
            if self._turns.get(root) is turn:
                del self._turns[root]

    def _keep_awake(
        self, coordinator: Coordinator, session: Session, root: str, turn: _Turn
    ) -> SandboxInfo | None:
        """Keep a session's sandbox awake, if it is time; return it, None where it is not known."""
        cloud, moment, active = coordinator.cloud, now(), self._active.get(root)
        info = cloud.known(session.sandbox_id)
        try:
            with coordinator.at_home(session):
                info = info or cloud.get(session.sandbox_id)
                lasts = (info.stops_after or 0) * 60 / PARTS
                if info.stops_after and (active is None or moment.since(active) >= lasts):
                    cloud.keep_awake(info.id)
                    self._active[root] = moment
                turn.tried = None
        except (NotFound, Elsewhere):  # the next tool call, which begins the turn anew, has another
            self._drop(root, turn)
            return None
        except GitDaytonaError as problem:  # offline, say: nobody is told, it is tried again
            asked = problem.retry_after if isinstance(problem, RateLimited) else None
            turn.tried, turn.pause = moment, max(RETRY_SECONDS, asked or 0)
            log.logger.warning("awake: session=%s %s", root, problem.message)
        return info

    @staticmethod
    def _is_due(
        coordinator: Coordinator, turn: _Turn, info: SandboxInfo, moment: Moment, near: bool
    ) -> bool:
        if near and turn.end != info.destroyed_at:
            return True
        passed = moment.since(turn.synced)
        if not turn.used or passed < OFTEN_SECONDS:
            return False
        if turn.every is None:
            minutes = preferences.load(coordinator.directory).sync_every()
            turn.every = minutes * 60 if minutes else math.inf
        return near or info.is_spot or passed >= turn.every
