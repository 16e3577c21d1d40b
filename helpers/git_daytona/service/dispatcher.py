"""The work of a service for one workspace: tool calls, events, and the end (service.py speaks to
the host)."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from git_daytona.base import log, paths
from git_daytona.base.errors import GitDaytonaError
from git_daytona.service import host_tools
from git_daytona.service.events import Events
from git_daytona.service.jsonrpc import (
    FAILED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    Peer,
    Refused,
    Request,
    text,
)
from git_daytona.service.previews import Previews
from git_daytona.service.queues import Lane
from git_daytona.service.toasts import Toasts, told
from git_daytona.service.tool_calls import Call, Shared
from git_daytona.service.turns import Turns
from git_daytona.service.workspace import Workspace
from git_daytona.tools.context import Tool

DRAIN_SECONDS = 60.0
"""How long a shutdown waits for syncs."""
CLOSE_SECONDS = 10.0
"""How long it waits, after that, for revocations."""
CALLS_SECONDS = 5.0
"""How long it waits, before that, for tool calls to end what they run."""
CALLS_AT_ONCE = 8
"""Tool calls of one session that run at the same time; more of them wait, and never for another
session's."""
ABORT_SECONDS = 2.0
"""How long a cancelled call has to say how far it came."""


class Hosting:
    """What is done for a host such as OpenCode in one directory. The methods that take a request do
    not block: they run in the reader's thread and hand on what takes time."""

    def __init__(
        self,
        peer: Peer,
        tools: Mapping[str, Tool],
        directory: Path,
        worktree: str,
        project_id: str | None,
    ) -> None:
        toasts = Toasts(peer.notify)
        self.workspace = Workspace(directory, worktree, project_id, toasts)
        self._previews = Previews(self.workspace, toasts)
        self._turns = Turns(self.workspace, toasts, self._previews)
        self._shared = Shared(self.workspace, toasts, self._turns, self._previews)
        self._events = Events(peer, self.workspace, self._turns)
        self._tools = tools
        self._lock = threading.Lock()
        self._lanes: dict[str, Lane] = {}
        self._calls: dict[object, tuple[Request, Call | None]] = {}
        self._cancelled: set[object] = set()
        self._finishing = threading.Lock()
        self._finished: bool | None = None

    def tool(self, request: Request) -> None:
        name, session_id = text(request.params, "name"), text(request.params, "sessionID")
        arguments = request.params.get("arguments")
        if not isinstance(arguments, dict):
            raise Refused(INVALID_PARAMS, "'arguments' must be an object")
        if name not in self._tools:
            raise Refused(INVALID_PARAMS, f"there is no tool '{name[:80]}'")
        with self._lock:
            self._calls[request.id] = (request, None)
            lane = self._lanes.setdefault(session_id, Lane(f"tools {session_id}", CALLS_AT_ONCE))
        lane.submit(lambda: self._run(request, name, session_id, arguments))

    def event(self, request: Request) -> None:
        properties = request.params.get("properties")
        self._events.handle(
            text(request.params, "type"), properties if isinstance(properties, dict) else {}
        )
        request.answer(None)

    def guard(self, request: Request) -> None:
        tool = text(request.params, "tool")
        names = {
            key: [str(each) for each in request.params.get(key) or ()]
            for key in ("builtin", "servers")
        }

        def look() -> None:
            allowed = host_tools.opted_in(self.workspace.directory)
            request.answer({"refusal": host_tools.refusal(tool, **names, allowed=allowed)})

        Lane("guard", 1).submit(look)

    def cancel(self, request: Request) -> None:
        id_ = request.params.get("id")
        with self._lock:
            asked, call = (
                self._calls.get(id_, (None, None))
                if isinstance(id_, (str, int, float))
                else (None, None)
            )
            if asked is not None and call is None:
                self._cancelled.add(id_)
        if asked is not None:
            late = threading.Timer(
                ABORT_SECONDS,
                lambda: asked.refuse(Refused(FAILED, "aborted", {"kind": "Cancelled"})),
            )
            late.daemon = True
            late.start()
        if call is not None:
            call.cancel()
        request.answer(None)

    # -- inside ------------------------------------------------------------------------------------

    def _run(self, request: Request, name: str, session_id: str, arguments: dict[str, Any]) -> None:
        shared, root = self._shared, session_id
        try:
            root = self._events.root(session_id)
            call = Call(shared, request, root)
            with self._lock:
                self._calls[request.id] = (request, call)
                if request.id in self._cancelled:
                    call.cancelled.set()
            shared.turns.begun(root)
            try:
                result = self._tools[name].run(call, arguments)
            finally:
                # what it did after a sync that began meanwhile is worth another one
                shared.turns.begun(root)
            if name == "bash" and arguments.get("background") and call.sandbox_id:
                shared.previews.watch(root, call.sandbox_id)
            notices = [*call.notices, shared.previews.notes(root)]
            output = "\n\n".join([*(each for each in notices if each), result.output])
            request.answer(
                {
                    "title": result.title,
                    "output": output,
                    "metadata": dict(result.metadata),
                    "attachments": [dict(each) for each in result.attachments],
                }
            )
        except GitDaytonaError as problem:
            log.logger.info(
                "tool %s session=%s %s: %s", name, root, type(problem).__name__, problem.message
            )
            request.refuse(
                Refused(
                    FAILED, told(problem), {"kind": type(problem).__name__, "hint": problem.hint}
                )
            )
        except Exception:  # noqa: BLE001 — the traceback goes to the log only
            log.logger.exception("tool %s: internal error", name)
            request.refuse(internal())
        finally:
            with self._lock:
                self._calls.pop(request.id, None)
                self._cancelled.discard(request.id)

    def finish(self) -> bool:
        """End the calls and bring everything back, at most 60 seconds and a little. Whether all of
        it was; what was not is on record."""
        with self._finishing:
            if self._finished is None:
                with self._lock:
                    calls = [call for _, call in self._calls.values() if call is not None]
                    lanes = list(self._lanes.values())
                self._previews.end()
                for call in calls:
                    call.cancel()
                until = time.monotonic() + CALLS_SECONDS
                for lane in lanes:
                    lane.wait(until)
                self._finished = self._turns.drain(DRAIN_SECONDS)
            return self._finished

    def close(self) -> None:
        """Finish, and wait a little for the revocations."""
        self.finish()
        last = threading.Thread(target=self.workspace.close, name="revocations", daemon=True)
        last.start()
        last.join(CLOSE_SECONDS)


def internal() -> Refused:
    """What is said of an error of our own; the traceback is in the log only."""
    return Refused(
        INTERNAL_ERROR, f"internal error; please report it with the end of '{paths.log_file()}'"
    )
