"""What the user is told in passing: short notes that OpenCode shows over its display, one after
another (the shim queues them)."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from git_daytona.base import log
from git_daytona.base.errors import GitDaytonaError
from git_daytona.base.secret import one_line, redact
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
        """Show a toast: info, success, warning or error. Return it as one line, cleaned."""
        text = one_line(redact(message))
        text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
        with self._lock:
            repeated, self._last = self._last == (title, text), (title, text)
        if not repeated:
            log.logger.info("toast: %s: %s", title, text)
            self._notify("toast", {"title": title, "message": text, "variant": variant})
        return f"{title}: {text}"

    def ready(self, session: Session, *, new: bool) -> str:
        """Show that a session has its sandbox, and return that as one line."""
        if new:
            way = f"session {session.name}, work comes back to {session.branch}"
            title, alone = "Sandbox created", "for this session; nothing comes back from it"
        else:
            way = f"session {session.name}, branch {session.branch}"
            title, alone = "Connected", "to the sandbox of this session"
        text = f"{way}; {look_at(session)}" if session.branch else alone
        return self.show(title, text, "success" if new else "info")

    def failed(self, title: str, problem: GitDaytonaError) -> None:
        self.show(title, described(problem), "error")

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
