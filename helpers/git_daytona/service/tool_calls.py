"""One tool call of a host: what the tools are given as their Context, over the coordinator and the
JSON-RPC peer."""

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from git_daytona.api.cloud import Cloud, Execution
from git_daytona.base.errors import NoKey
from git_daytona.git.refs import PROJECT
from git_daytona.sandbox import report
from git_daytona.service.jsonrpc import Closed, Refused, Request
from git_daytona.service.previews import Previews
from git_daytona.service.toasts import Toasts
from git_daytona.service.turns import Turns
from git_daytona.service.workspace import Workspace
from git_daytona.sessions import state
from git_daytona.tools.context import Cancelled, Denied, ToolError

T = TypeVar("T")

# Runs a script in a directory. $1 directory (empty: the project, or home where that is gone), $2
# project, $3 script, then its arguments.
_HERE = """if [ -n "$1" ]; then cd -- "$1" || exit 125; else cd -- "$2" 2>/dev/null || cd || exit 125; fi
script=$3
shift 3
exec sh -c "$script" sh "$@"
"""


class Locks:
    """A lock for each file of each session, forgotten when nobody holds it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: weakref.WeakValueDictionary[tuple[str, str], Any] = (
            weakref.WeakValueDictionary()
        )

    def of(self, root: str, path: str) -> "threading.Lock":
        with self._lock:
            found: threading.Lock | None = self._locks.get((root, path))
            if found is None:
                found = self._locks[(root, path)] = threading.Lock()
            return found


class Shared:
    """What all calls of a service have in common."""

    def __init__(
        self, workspace: Workspace, toasts: Toasts, turns: Turns, previews: Previews
    ) -> None:
        self.workspace, self.toasts, self.turns, self.previews = workspace, toasts, turns, previews
        self.locks = Locks()
        self._lock = threading.Lock()
        self._met: set[str] = set()
        self._known: dict[str, bool] = {}

    def known(self, root: str) -> bool:
        """Whether the session had a sandbox when this process first heard of it. Asked before
        anything is done for a call: several come at once, and while one of them makes the sandbox,
        the others find it half made."""
        with self._lock:
            if root not in self._known:
                self._known[root] = self.workspace.coordinator().state.get(root) is not None
            return self._known[root]

    def meet(self, session: state.Session, *, new: bool) -> None:
        """The first use of a session in this process is shown."""
        with self._lock:
            if session.sandbox_id in self._met:
                return
            self._met.add(session.sandbox_id)
        branch = f"{session.prefix}/{session.number}" if session.number else None
        (self.toasts.created if new else self.toasts.connected)(session.sandbox_id, branch)
        if session.number is None:
            self.toasts.disabled(self.workspace.unsynced or session.git_return.message)


class Call:
    """The Context of one call (tools/context.py). ``notices`` is what the agent has to be told
    besides the tool's result."""

    def __init__(self, shared: Shared, request: Request, root: str) -> None:
        self._shared, self._request = shared, request
        self.session_id = root
        self.worktree = shared.workspace.worktree
        self.cancelled = threading.Event()
        self.notices: list[str] = []
        self.sandbox_id = ""
        self._asking: Future[Any] | None = None
        self._lock = threading.Lock()

    def cancel(self) -> None:
        """The user aborts. The tool sees it and ends what it runs in the sandbox; a question that
        is open is answered with no."""
        with self._lock:
            self.cancelled.set()
            asking = self._asking
        if asking is not None:
            asking.cancel()

    # -- Context -----------------------------------------------------------------------------------

    def execute(
        self, script: str, *arguments: str, timeout: float, directory: str | None = None
    ) -> Execution:
        words = (directory or "", PROJECT, script, *arguments)
        return self._within(
            lambda sandbox_id: report.run_once(
                self._cloud, sandbox_id, _HERE, *words, timeout=timeout
            )
        )

    def upload(self, path: str, content: bytes) -> None:
        self._within(lambda sandbox_id: self._cloud.upload(sandbox_id, path, content))

    def exclusive(self, path: str) -> "threading.Lock":
        return self._shared.locks.of(self.session_id, path)

    def preview(self, port: int) -> str:
        link = self._within(lambda sandbox_id: self._shared.previews.link(sandbox_id, port))
        self._shared.previews.mark(self.session_id, port)
        return link

    def sync(self) -> str:
        coordinator = self._shared.workspace.coordinator()
        before = coordinator.ensure(self.session_id).session
        if before.number is None:
            return f"nothing is synced here: {self._shared.workspace.unsynced or before.git_return.message}"
        message = self._shared.turns.now(self.session_id).message
        if before.git_return.state == state.FAILED:
            return f"{message} (the sync before this one had failed: {before.git_return.message})"
        return message

    def ask(
        self,
        permission: str,
        patterns: Sequence[str],
        always: Sequence[str],
        metadata: Mapping[str, Any],
    ) -> None:
        params = {
            "permission": permission,
            "patterns": list(patterns),
            "always": list(always),
            "metadata": dict(metadata),
        }
        with self._lock:
            if self.cancelled.is_set():
                raise Cancelled("the call was aborted")
            self._asking = self._request.peer.ask("ask", {"call": self._request.id} | params)
        try:
            self._asking.result()
        except Refused as refused:
            raise Denied(refused.message) from None
        except (CancelledError, Closed):
            raise Cancelled("the call was aborted") from None
        finally:
            self._asking = None

    def progress(
        self, *, title: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> None:
        self._request.peer.notify(
            "progress", {"call": self._request.id, "title": title, "metadata": dict(metadata or {})}
        )

    # -- inside ------------------------------------------------------------------------------------

    @property
    def _cloud(self) -> Cloud:
        return self._shared.workspace.coordinator().cloud

    def _within(self, work: Callable[[str], T]) -> T:
        if self._shared.turns.is_deleted(self.session_id):
            raise ToolError("this session was deleted")
        try:
            return self._try(work)
        except NoKey:
            if not self._shared.workspace.key_came():
                raise
            return self._try(work)

    def _try(self, work: Callable[[str], T]) -> T:
        coordinator = self._shared.workspace.coordinator()
        known = self._shared.known(self.session_id)

        patience = self._shared.workspace.patience

        def met(sandbox_id: str) -> T:
            patience.done()  # from here on it is the tool that takes its time
            self.sandbox_id = sandbox_id
            return work(sandbox_id)

        try:
            value, session, notice = coordinator.within(self.session_id, met)
        finally:
            patience.done()
        if notice:
            self.notices.append(notice)
        self._shared.meet(session, new=not known or bool(notice))
        return value
