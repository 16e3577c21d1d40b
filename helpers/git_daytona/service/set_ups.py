"""What users hear of their sandboxes' set-ups: one waits for consent, runs, has ended."""

import threading

from git_daytona.service.queues import Lane
from git_daytona.service.workspace import Workspace
from git_daytona.sessions.provision import DONE, RUNNING, SAID, WAITING
from git_daytona.sessions.state import Session, SetUp

_VARIANTS = {WAITING: "warning", RUNNING: "info", DONE: "success"}


class SetUps:
    """What was shown of which session. Safe for many threads."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._lock = threading.Lock()
        self._shown: dict[str, SetUp] = {}
        self._following = Lane("set-ups", 4)

    def seen(self, root: str, *, new: bool = True) -> None:
        """Show where the set-up of a session stands if that is new, and follow one that runs; of a
        session that is not ``new`` here only what is still to be done."""
        session = self._workspace.coordinator().state.get(root)
        if session is None or session.number is None:
            return
        setup = session.setup
        with self._lock:
            new = new or root in self._shown
            before, self._shown[root] = self._shown.get(root, SetUp()), setup
        if setup == before:
            return
        if new or setup.state not in ("", DONE):
            self._show(session)
        if setup.state == RUNNING:
            self._following.submit(lambda: self._follow(session))

    def _show(self, session: Session) -> None:
        lines = self._workspace.coordinator().provision.said(session)
        if session.setup.state == DONE:
            lines = [SAID[DONE], *lines]
        for line in lines:
            variant = _VARIANTS.get(session.setup.state, "warning")
            self._workspace.toasts.show("Set-up", line, variant)

    def _follow(self, session: Session) -> None:
        """Wait for the end of a set-up. What it writes is in its log."""
        self._workspace.coordinator().provision.follow(session, lambda _: None)
        self.seen(session.id)
