"""What happens behind the conversation: a turn's sync, a session's deletion, and the end."""

import threading
import time
from functools import partial

from git_daytona.base import log, run
from git_daytona.base.errors import GitDaytonaError, NotFound
from git_daytona.git import changes
from git_daytona.service.awake import Awake
from git_daytona.service.previews import Previews
from git_daytona.service.queues import Lane
from git_daytona.service.toasts import look_at
from git_daytona.service.workspace import Workspace
from git_daytona.sessions import state
from git_daytona.sessions.branch import Outcome

LAST_SECONDS = 10.0
"""After a drain's time is over: for what was ended to revoke its token."""
NOT_FINISHED = "not finished at shutdown"


class Turns:
    """Background work of sessions, by the ids of their roots. One lane per session; nothing here
    blocks its caller but ``now`` and ``drain``."""

    def __init__(self, workspace: Workspace, previews: Previews) -> None:
        self._workspace, self._toasts, self._previews = workspace, workspace.toasts, previews
        self._lock = threading.Lock()
        self._lanes: dict[str, Lane] = {}
        self._due: set[str] = set()
        """Sessions in which something may have happened since their last sync was asked for."""
        self._waiting: set[str] = set()
        """Sessions whose sync has not begun yet: another one would be the same."""
        self._deleted: set[str] = set()
        self.awake = Awake(workspace, self._bring)
        self._brought: dict[str, tuple[str | None, Outcome]] = {}
        """Where the branch of each session was first, and what has come to it last."""

    def begun(self, root: str) -> None:
        """A turn has begun, or goes on."""
        self.used(root)
        self.awake.begun(root)

    def used(self, root: str) -> None:
        """Something was done: the next end of a turn is worth a sync."""
        with self._lock:
            self._due.add(root)

    def ended(self, root: str, *, last: bool = False) -> None:
        """The session is idle; several ends of one turn are one. ``last``: there is no later
        chance, so that it is synced whatever daytona.syncOnIdle says."""
        self.awake.ended(root)
        with self._lock:
            if root not in self._due or root in self._waiting:
                return
            self._due.discard(root)
            self._waiting.add(root)
        self._lane(root).submit(partial(self._sync, root, last=last))

    def delete(self, root: str) -> None:
        """The session was deleted: its sandbox goes once its work is here."""
        self.awake.forget(root)
        with self._lock:
            self._deleted.add(root)
            self._due.discard(root)
        self._lane(root).submit(partial(self._delete, root))

    def is_deleted(self, root: str) -> bool:
        with self._lock:
            return root in self._deleted

    def now(self, root: str) -> Outcome:
        """Sync and wait for it."""
        with self._lock:
            self._due.discard(root)
        outcome = self._workspace.coordinator().sync(root)
        self._came(root, outcome)
        return outcome

    def drain(self, seconds: float) -> bool:
        """Bring back what was not, and wait for everything, at most so long; whether all was
        finished. What was not is recorded as failed and ended, and its tokens are revoked."""
        until = time.monotonic() + seconds
        self.awake.close()
        with self._lock:
            due = list(self._due)
        for root in due:
            self.ended(root, last=True)
        with self._lock:
            lanes = dict(self._lanes)
        late = [root for root, lane in lanes.items() if not lane.wait(until)]
        settled = self._workspace.settled(until)
        if late or not settled:
            what = " ".join(late) or "recovery"
            log.logger.error("shutdown: not finished after %.0f seconds: %s", seconds, what)
            run.end_all()
            until = time.monotonic() + LAST_SECONDS
            for root in late:
                lanes[root].wait(until)
                try:
                    self._workspace.coordinator().state.note(root, state.FAILED, NOT_FINISHED)
                except GitDaytonaError as problem:  # there is nobody left to tell
                    log.logger.error("shutdown: %s", problem.message)
        return settled and not late

    def brought(self) -> list[str]:
        """What has come back since the beginning, a line for each session that is there."""
        with self._lock:
            brought = dict(self._brought)
        lines = []
        for root, (first, outcome) in brought.items():
            coordinator = self._workspace.coordinator()
            session = coordinator.state.get(root)
            if session is not None and outcome.head is not None:
                new = changes.described(coordinator.repository, first, outcome.head)
                lines.append(f"{session.branch}: {new or 'new work'}; {look_at(session)}")
        return lines

    def _lane(self, root: str) -> Lane:
        with self._lock:
            return self._lanes.setdefault(root, Lane(f"session {root}", 1))

    def _sync(self, root: str, *, last: bool) -> None:
        with self._lock:
            self._waiting.discard(root)
        try:
            coordinator = self._workspace.coordinator()
            session = coordinator.state.get(root)
            if session is None or session.number is None:
                return
            if not last and not coordinator.syncs_on_idle(session):
                with self._lock:
                    self._due.add(root)
                return
            with self._workspace.patience.waiting("bringing the session's work back"):
                outcome = coordinator.sync(root)
            self._came(root, outcome)
        except GitDaytonaError as problem:
            if not (isinstance(problem, NotFound) and self.is_deleted(root)):
                self._toasts.failed("Sync failed", problem)

    def _bring(self, root: str, end: str) -> None:
        self._lane(root).submit(partial(self._sync_between, root, end))

    def _sync_between(self, root: str, end: str) -> None:
        """Bring a session back in the middle of its turn, or before the ``end`` of its sandbox."""
        coordinator, turn = self._workspace.coordinator(), self.awake.goes_on(root)
        session = coordinator.state.get(root)
        if session is None or self.is_deleted(root) or not (turn or end):
            return  # what a turn's end needs is done at its end
        sync = coordinator.sync_aside if turn else coordinator.sync
        try:
            outcome = sync(root, everything=bool(end))
        except GitDaytonaError as problem:
            log.logger.warning("turn: session=%s not synced: %s", root, problem.message)
            self.awake.failed(root)
            if end:
                self._toasts.failed("Sync failed", problem)
            return
        if outcome.head != outcome.before:
            self._came(root, outcome)
        if end:
            words = f"session {session.name}: {end}; {outcome.message}"
            self._toasts.show("Sandbox", words, "warning")

    def _came(self, root: str, outcome: Outcome) -> None:
        coordinator, words = self._workspace.coordinator(), outcome.message
        session = coordinator.state.get(root)
        if outcome.changed and session is not None and outcome.head is not None:
            with self._lock:
                first = self._brought.get(root, (outcome.before, outcome))[0]
                self._brought[root] = (first, outcome)
            new = changes.described(coordinator.repository, outcome.before, outcome.head)
            words = f"{session.branch}: {new or 'new work'}"
            words += f"; {outcome.remarks}" if outcome.remarks else ""
        if outcome.changed:
            self._toasts.show("Changes synced", words, "success")
        elif outcome.left_behind:
            self._toasts.show("Not everything synced", outcome.left_behind, "warning")
        if session is not None and outcome.ports:
            self._previews.seen(root, session.sandbox_id, outcome.ports)

    def _delete(self, root: str) -> None:
        try:
            with self._workspace.patience.waiting(
                "syncing the session before its sandbox is deleted"
            ):
                said = self._workspace.delete(root)
        except GitDaytonaError as problem:
            self._toasts.failed("Delete failed", problem)
        else:
            if said:
                self._toasts.show("Session deleted", said, "success")
