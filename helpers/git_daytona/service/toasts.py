"""What the user is told in passing: short notes that OpenCode shows over its display, one after
another (the shim queues them)."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from git_daytona.base import log
from git_daytona.base.errors import GitDaytonaError
from git_daytona.base.secret import printable, redact
from git_daytona.sandbox.lifecycle import Restoring
from git_daytona.sessions.state import Session

LONGEST = 300
"""Characters of a message."""


class Toasts:
    """Sends toasts through ``notify(method, params)``. The same one twice in a row is sent once."""

    def __init__(self, notify: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._notify = notify
        self._lock = threading.Lock()
        self._last: tuple[str, str] | None = None

    def show(self, title: str, message: str, variant: str = "info") -> str:
        """Show a toast, and return it as one line. ``variant`` is info, success, warning or error.
        Words of the sandbox's making are cleaned."""
        text = " ".join(printable(redact(message)).split())
        text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
        with self._lock:
            repeated, self._last = self._last == (title, text), (title, text)
        if not repeated:
            log.logger.info("toast: %s: %s", title, text)
            self._notify("toast", {"title": title, "message": text, "variant": variant})
        return f"{title}: {text}"

    def created(self, session: Session) -> str:
        way = f"session {session.name}, work comes back to {session.branch}; {look_at(session)}"
        stays = "for this session; nothing comes back from it"
        return self.show("Sandbox created", way if session.branch else stays, "success")

    def connected(self, session: Session) -> str:
        where = f"session {session.name}, branch {session.branch}; {look_at(session)}"
        return self.show("Connected", where if session.branch else "to the sandbox of this session")

    def step(self, line: str) -> bool:
        """Show at once a step that brings a sandbox back; whether it was one."""
        if isinstance(line, Restoring):
            self.show("Restoring", line)
        return isinstance(line, Restoring)

    def slow(self, line: str) -> None:
        """A step that takes longer than one likes to wait without a word."""
        self.show("Please wait", line)

    def synced(self, message: str, remarks: str = "") -> None:
        self.show("Changes synced", "; ".join(filter(None, (message, remarks))), "success")

    def sync_failed(self, problem: GitDaytonaError) -> None:
        self.show("Sync failed", described(problem), "error")

    def unavailable(self, problem: GitDaytonaError) -> None:
        """What only the user can mend; the agent was told, and may not pass it on."""
        self.show("Daytona is not available", described(problem), "error")

    def disabled(self, reason: str) -> None:
        self.show("Git syncing disabled", reason, "warning")

    def danger(self, line: str) -> None:
        self.show("Sandbox", line, "warning")

    def deleted(self, message: str) -> None:
        self.show("Session deleted", message, "success")

    def delete_failed(self, problem: GitDaytonaError) -> None:
        self.show("Delete failed", described(problem), "error")

    def recovered(self, lines: list[str]) -> None:
        self.show("Work of an earlier run recovered", "; ".join(lines), "success")

    def not_recovered(self, lines: list[str]) -> None:
        self.show("Not recovered", "; ".join(lines), "warning")

    def server(self, port: int, link: str) -> None:
        # Not through show(): redaction would take the token out of the link, which is there to be
        # opened.
        self._notify(
            "toast", {"title": f"Server on port {port}", "message": link, "variant": "info"}
        )


def look_at(session: Session) -> str:
    return f"look at it: git daytona diff {session.name}"


def described(problem: GitDaytonaError) -> str:
    """An error, its entry in git-daytona-errors(7) and what to do about it, in one text."""
    about = f" (session {problem.session})" if problem.session else ""
    message = f"{problem.message}{about} [{problem.entry}]"
    return f"{message}\nhint: {problem.hint}" if problem.hint else message
