"""The work of a service for one workspace: tool calls, events and the end."""

import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from git_daytona.base import errors, log, paths
from git_daytona.base.errors import GitDaytonaError
from git_daytona.service import charge, host_tools, jsonrpc
from git_daytona.service.charge import Stamp
from git_daytona.service.events import Events
from git_daytona.service.jsonrpc import Peer, Refused, Request, members, text
from git_daytona.service.queues import Lane
from git_daytona.service.toasts import Toasts, described
from git_daytona.service.tool_calls import Shared, ToolCall
from git_daytona.service.workspace import Workspace
from git_daytona.tools.context import Tool

DRAIN_SECONDS = 60.0
"""How long a shutdown waits for syncs."""
CLOSE_SECONDS = 10.0
"""How long it waits, after that, for revocations."""
CALLS_SECONDS = 5.0
"""How long it waits, before that, for tool calls to end what they run."""
CALLS_AT_ONCE = 8
"""Tool calls of one session that run at once; more of them wait, for each other only."""
ABORT_SECONDS = 2.0
"""How long a cancelled call has to say how far it came."""


OF_THE_ENVIRONMENT = (errors.NoKey, errors.KeyRefused, errors.ApiUnreachable)
FOR_THE_USER = (
    *(*OF_THE_ENVIRONMENT, errors.Forbidden, errors.LimitReached),
    *(errors.Elsewhere, errors.HostKeyRefused),
)
"""Failures that an agent can do nothing about."""
BACKGROUND = (
    "OpenCode's background service has the environment of the shell that started it: "
    "'opencode service stop', or run it with --standalone"
)


class Dispatcher:
    """Does what a client such as OpenCode requests for one directory. The methods that take a
    request run in the reader's thread, so they hand on what takes time."""

    def __init__(
        self,
        peer: Peer,
        tools: Mapping[str, Tool],
        directory: Path,
        worktree: str,
        project_id: str | None,
        client: Mapping[str, Any],
    ) -> None:
        self._client = client
        self._stamp = ExitStack()
        self.workspace = Workspace(directory, worktree, project_id, Toasts(peer.notify))
        self._shared = Shared(self.workspace)
        self._turns, self._previews = self._shared.turns, self._shared.previews
        self._events = Events(peer, self.workspace, self._turns)
        self._shared.origin = self._events.origin
        self._tools = tools
        self._lock = threading.Lock()
        self._lanes: dict[str, Lane] = {}
        self._calls: dict[object, ToolCall] = {}
        self._finishing = threading.Lock()
        self._finished: bool | None = None

    def tool(self, request: Request) -> None:
        name, session_id = text(request.params, "name"), text(request.params, "sessionID")
        arguments = request.params.get("arguments")
        if not isinstance(arguments, dict):
            raise Refused(jsonrpc.INVALID_PARAMS, "'arguments' must be an object")
        if name not in self._tools:
            raise Refused(jsonrpc.INVALID_PARAMS, f"there is no tool '{name[:80]}'")
        call = ToolCall(self._shared, request, self._tools[name], arguments, session_id)
        with self._lock:
            self._calls[request.id] = call
            lane = self._lanes.setdefault(session_id, Lane(f"tools {session_id}", CALLS_AT_ONCE))
        lane.submit(lambda: self._run(call))

    def event(self, request: Request) -> None:
        properties = members(request.params.get("properties"))
        self._events.handle(text(request.params, "type"), properties)
        request.answer(None)

    def guard(self, request: Request) -> None:
        tool = text(request.params, "tool")
        builtin, servers = (
            [str(each) for each in request.params.get(key) or ()] for key in ("builtin", "servers")
        )

        def look() -> None:
            allowed = host_tools.opted_in(self.workspace.directory)
            why = host_tools.refusal(tool, builtin=builtin, servers=servers, allowed=allowed)
            request.answer({"refusal": why})

        Lane("guard", 1).submit(look)

    def cancel(self, request: Request) -> None:
        id_ = request.params.get("id")
        with self._lock:
            call = self._calls.get(id_) if isinstance(id_, (str, int, float)) else None
        if call is not None:
            aborted = Refused(jsonrpc.FAILED, "aborted", {"kind": "Cancelled"})
            late = threading.Timer(ABORT_SECONDS, call.request.refuse, (aborted,))
            late.daemon = True
            late.start()
            call.cancel()
        request.answer(None)

    def charge(self, request: Request) -> None:
        """The plugin is in charge: its tools are in the place of the client's own."""
        pid, tools = self._client.get("pid"), request.params.get("tools")
        stamp = Stamp(
            version=str(self._client.get("version", "")),
            pid=pid if isinstance(pid, int) else 0,
            directory=str(self.workspace.directory),
            project=self.workspace.project_id or "",
            tools=tuple(str(each) for each in tools) if isinstance(tools, list) else (),
        )

        Lane("stamp", 1).submit(lambda: charge.leave(stamp, self._stamp))
        request.answer(None)

    def _run(self, call: ToolCall) -> None:
        request, name = call.request, call.tool.name
        try:
            call.session_id = root = self._events.root(call.session_id)
            self._turns.begun(root)
            try:
                result = call.run()
            finally:
                # what it did after a sync that began meanwhile is worth another one
                self._turns.used(root)
                self._events.note_title(root)
            if name == "bash" and call.arguments.get("background") and call.sandbox_id:
                self._previews.watch(root, call.sandbox_id)
            call.notices.append(self._previews.notes(root))
            request.answer(call.answer(result))
        except GitDaytonaError as problem:
            kind = type(problem).__name__
            if self._client.get("background") and isinstance(problem, OF_THE_ENVIRONMENT):
                hint = f"{problem.hint or ''}; {BACKGROUND}".removeprefix("; ")
                problem = problem.but(hint=hint)
            if isinstance(problem, FOR_THE_USER):
                # the agent is told, too, and may not pass it on
                self.workspace.toasts.failed("Daytona is not available", problem)
            words = (name, call.session_id, kind, problem.message)
            log.logger.info("tool %s session=%s %s: %s", *words)
            data = {"kind": kind, "hint": problem.hint}
            request.refuse(Refused(jsonrpc.FAILED, described(problem), data))
        except Exception:  # noqa: BLE001 — the traceback goes to the log only
            log.logger.exception("tool %s: internal error", name)
            report = f"internal error; please report it with the end of '{paths.log_file()}'"
            request.refuse(Refused(jsonrpc.INTERNAL_ERROR, report))
        finally:
            with self._lock:
                self._calls.pop(request.id, None)

    def said(self) -> list[str]:
        """What has come back, a line for each session's branch."""
        return self._turns.brought()

    def finish(self) -> bool:
        """End the calls and bring everything back within DRAIN_SECONDS and a little; whether all
        of it was. What was not is on record."""
        with self._finishing:
            if self._finished is None:
                with self._lock:
                    calls = list(self._calls.values())
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
        self._stamp.close()
        last = threading.Thread(target=self.workspace.close, name="revocations", daemon=True)
        last.start()
        last.join(CLOSE_SECONDS)
