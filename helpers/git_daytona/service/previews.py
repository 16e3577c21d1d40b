"""Servers in sandboxes: a port that begins to listen is shown once, with a link to it."""

import threading
from collections.abc import Iterable

from git_daytona.base import log
from git_daytona.base.errors import GitDaytonaError
from git_daytona.sandbox import report
from git_daytona.service.queues import Lane
from git_daytona.service.workspace import Workspace

LINK_SECONDS = 24 * 60 * 60
"""How long a link can be opened: the most that Daytona signs."""
DAYTONAS_OWN = frozenset({2280, 22220, 22222, 33333})
"""Ports of Daytona's daemon in every sandbox (toolbox, SSH, terminal)."""
LOOKS = (0.3, 0.7, 1.0, 2.0, 3.0, 5.0, 8.0)
"""Seconds before each look for a server that a command has just left in the background."""


class Previews:
    """Which ports of which session were shown. Safe for many threads."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._lock = threading.Lock()
        self._known: dict[str, set[int]] = {}
        self._notes: dict[str, list[str]] = {}
        self._watching = Lane("previews", 4)
        self._ending = threading.Event()

    def link(self, sandbox_id: str, port: int) -> str:
        return self._workspace.coordinator().cloud.preview(sandbox_id, port, seconds=LINK_SECONDS)

    def mark(self, root: str, port: int) -> None:
        """This one was shown otherwise."""
        with self._lock:
            self._known.setdefault(root, set()).add(port)

    def seen(self, root: str, sandbox_id: str, ports: Iterable[int]) -> bool:
        """Ports that listen now: what is new is shown by toast and noted for the agent. Whether
        anything was."""
        with self._lock:
            known = self._known.setdefault(root, set())
            new = sorted(set(ports) - known - DAYTONAS_OWN)
            known.update(new)
        for port in new:
            try:
                link = self.link(sandbox_id, port)
            except GitDaytonaError as problem:
                log.logger.warning("no link to port %d: %s", port, problem.message)
                continue
            self._workspace.toasts.server(port, link)
            with self._lock:
                self._notes.setdefault(root, []).append(
                    f"A server listens on port {port} of the sandbox; the user opens it at {link}"
                )
        return bool(new)

    def notes(self, root: str) -> str:
        """What the agent was not told yet, once."""
        with self._lock:
            return "\n".join(self._notes.pop(root, []))

    def watch(self, root: str, sandbox_id: str) -> None:
        """Look, for a while and in the background, whether a server comes up."""
        self._watching.submit(lambda: self._watch(root, sandbox_id))

    def end(self) -> None:
        self._ending.set()

    def _watch(self, root: str, sandbox_id: str) -> None:
        for seconds in LOOKS:
            if self._ending.wait(seconds):
                return
            ports = report.ports(self._workspace.coordinator().cloud, sandbox_id)
            if self.seen(root, sandbox_id, ports):
                return
