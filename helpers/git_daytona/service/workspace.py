"""The project that a service works for: its coordinator, made behind the first answer, and what is
done once at the start."""

import threading
from functools import partial
from pathlib import Path

from git_daytona.base.errors import NotFound
from git_daytona.base.progress import Patience
from git_daytona.git.repository import NotInRepository, Repository, discover
from git_daytona.sandbox.lifecycle import Restoring
from git_daytona.service.queues import Lane
from git_daytona.service.toasts import Toasts, described
from git_daytona.sessions import recovery
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.settings import settings


class Workspace:
    """A directory that a host such as OpenCode works in. ``worktree`` is the project's root as the
    host's model knows it; ``project_id`` the host's id of the project (None: as OpenCode forms
    it)."""

    def __init__(
        self, directory: Path, worktree: str, project_id: str | None, toasts: Toasts
    ) -> None:
        self.directory, self.worktree, self.toasts = directory, worktree, toasts
        self.project_id = project_id
        self._lock = threading.Lock()
        self._made: Coordinator | None = None
        self._recovery = Lane("recovery", 1)
        self.patience = Patience(partial(toasts.show, "Please wait"))
        self.unsynced = ""
        """Why nothing is synced here; empty where it is. Known once there is a coordinator."""

    def begin(self) -> None:
        """What can be done before the first tool call, in the background: load Daytona's clients,
        make good what an earlier run left."""
        Lane("load", 1).submit(self._load)
        self._recovery.submit(self._recover)

    def coordinator(self) -> Coordinator:
        """The coordinator. Raises what reading the settings or the repository raises, each time
        until it succeeds."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    def key_came(self) -> bool:
        """After NoKey: whether there is a key by now (in ``.env``, say); the coordinator is then
        another one."""
        with self._lock:
            if self._made is not None and self._made.settings.key is None:
                again = self._make()
                if again.settings.key is None:
                    return False
                self._made = again
            return True

    def _step(self, line: str) -> None:
        if isinstance(line, Restoring):
            self.toasts.show("Restoring", line)
        else:
            self.patience.step(line)

    def _make(self) -> Coordinator:
        place: Repository | Path
        try:
            place = discover(self.directory)
            root = place.worktree
            self.unsynced = "" if root else "this is a bare repository"
        except NotInRepository as problem:
            place = root = self.directory
            self.unsynced = described(problem)
        found = settings.load(root)
        for line in found.warnings:
            self.toasts.show("Settings", line, "warning")
        return Coordinator(place, found, self._step, project_id=self.project_id)

    def settled(self, until: float) -> bool:
        """Wait for the recovery, until that moment of time.monotonic(); whether it has ended."""
        return self._recovery.wait(until)

    def delete(self, root: str) -> str:
        """Delete a session's sandbox once its work is here, and return a line on that; empty for a
        chat that never used a tool, or where another process was faster."""
        coordinator = self.coordinator()
        try:
            outcome = coordinator.delete(root)
        except NotFound:
            if coordinator.state.get(root) is None:
                return ""
            raise
        return outcome.message if outcome else "its sandbox is gone"

    def close(self) -> None:
        """Wait for what runs behind the calls (revocations)."""
        if self._made is not None:
            self._made.close()

    def _load(self) -> None:
        self.coordinator().cloud.load()

    def _recover(self) -> None:
        recovery.scrub_old_log()
        found = recovery.recover(self.coordinator())
        if found.done:
            self.toasts.show("Work of an earlier run recovered", "; ".join(found.done), "success")
        if found.failed:
            self.toasts.show("Not recovered", "; ".join(found.failed), "warning")
