"""``git daytona hook EVENT < JSON``: one event of a client without a plugin."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from git_daytona.base.errors import GitDaytonaError, TransferFailed, UsageError
from git_daytona.service import payloads
from git_daytona.service.jsonrpc import Request, SilentPeer
from git_daytona.service.toasts import Toasts
from git_daytona.service.tool_calls import Shared, ToolCall
from git_daytona.service.workspace import Workspace
from git_daytona.sessions import recovery
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.tools.registry import TOOLS


class Hook:
    """One event; ``tell`` gets a line for people now and then."""

    def __init__(self, payload: bytes, directory: Path, tell: Callable[[str], None]) -> None:
        self._payload = payloads.parse(payload)
        place = payloads.directory(self._payload, directory)
        self._tell = tell
        self._peer = SilentPeer(tell)
        self._workspace = Workspace(place, str(place), None, Toasts(self._peer.notify))

    def run(self, event: str) -> dict[str, Any] | None:
        """Return what goes to standard output, or None. Raises what the event's work raises."""
        works: dict[str, Callable[[Coordinator], dict[str, Any] | None]] = {
            "session.created": self._created,
            "session.idle": self._idle,
            "session.deleted": self._deleted,
            "shutdown": self._shutdown,
            "tool": self._tool,
        }
        try:
            return works[event](self._workspace.coordinator())
        finally:
            self._workspace.close()

    def _created(self, coordinator: Coordinator) -> None:
        if parent := payloads.text(self._payload, "parent"):
            coordinator.state.note_child(
                self._need_session(), coordinator.state.root_of(parent) or parent
            )
            return
        found = recovery.recover(coordinator)
        for line in (*found.done, *found.failed):
            self._tell(line)

    def _idle(self, coordinator: Coordinator) -> None:
        root = self._root(coordinator)
        session = coordinator.state.get(root)
        synced = session is not None and session.number is not None and root == self._need_session()
        if session and synced and coordinator.syncs_on_idle(session):
            self._tell(coordinator.sync(root).message)

    def _deleted(self, coordinator: Coordinator) -> None:
        session_id = self._need_session()
        if self._root(coordinator) != session_id:  # a sub-agent's: its root goes on
            return
        if said := self._workspace.delete(session_id):
            self._tell(said)

    def _shutdown(self, coordinator: Coordinator) -> None:
        failed = []
        for session in coordinator.sessions():
            if session.needs_sync:
                try:
                    self._tell(coordinator.sync(session.id).message)
                except GitDaytonaError as problem:
                    failed.append(f"session {session.number}: {problem.message}")
        if failed:
            hint = "'git daytona status' shows each; 'git daytona recover' tries again"
            raise TransferFailed("; ".join(failed), hint=hint)

    def _tool(self, coordinator: Coordinator) -> dict[str, Any]:
        root = self._root(coordinator)
        name, arguments = self._payload.get("tool"), self._payload.get("arguments", {})
        tool = next((each for each in TOOLS if each.name == name), None)
        if tool is None:
            hint = f"one of: {', '.join(each.name for each in TOOLS)}"
            raise UsageError("'tool' does not name a tool", hint=hint)
        if not isinstance(arguments, dict):
            raise UsageError("'arguments' must be an object", hint="see git-daytona-hooks(7)")
        request = Request(self._peer, 1, "tool", {}, wants_answer=False)
        call = ToolCall(Shared(self._workspace), request, tool, arguments, root)
        return call.answer(call.run())

    def _root(self, coordinator: Coordinator) -> str:
        session_id = self._need_session()
        return coordinator.state.root_of(session_id) or session_id

    def _need_session(self) -> str:
        session_id = payloads.text(self._payload, "session")
        if not session_id:
            hint = "give it as 'sessionID' (or 'session_id') in the JSON object"
            raise UsageError("the event names no session", hint=hint)
        return session_id
