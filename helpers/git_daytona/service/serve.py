"""``git-daytona serve``: what OpenCode's plugin talks to (DESIGN.md §7, git-daytona-hooks(7)).

``initialize`` is answered within 150 ms of the process's start: all that the answer does not need
is imported behind it.
"""

import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from git_daytona import __version__
from git_daytona.base import log
from git_daytona.service import prompt
from git_daytona.service.harmless import EVENTS, HARMLESS
from git_daytona.service.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Peer,
    Refused,
    Request,
    text,
)
from git_daytona.tools.registry import TOOLS

if TYPE_CHECKING:
    from git_daytona.service.dispatcher import Hosting


def serve() -> int:
    """Serve standard input and output until the end of input, ``shutdown`` or a signal. Returns the
    exit status."""
    # Nothing but the protocol may reach standard output, whatever a library prints.
    sink = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdout = sys.stderr
    log.to_file()
    ending: queue.SimpleQueue[str] = queue.SimpleQueue()  # its put() is safe in a signal handler
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: ending.put(signal.Signals(number).name))
    service = Service(ending.put)
    # Not sys.stdin: at its end the interpreter would wait for the reader's lock on that.
    service.peer = Peer(os.fdopen(os.dup(0), "rb"), sink, service.handle)

    def read() -> None:
        service.peer.serve()
        ending.put("end of input")

    threading.Thread(target=read, name="reader", daemon=True).start()
    log.logger.info("service: ending: %s", ending.get())
    service.close()
    return 0


class Service:
    """The methods; ``handle`` runs in the reader's thread."""

    peer: Peer

    def __init__(self, end: Callable[[str], None]) -> None:
        self._end = end
        self._hosting: Hosting | None = None

    def handle(self, request: Request) -> None:
        try:
            self._dispatch(request)
        except Refused as refused:
            request.refuse(refused)
        except Exception:  # noqa: BLE001 — whatever one request stumbles over, the next one is served
            log.logger.exception("service: internal error in '%s'", request.method)
            request.refuse(Refused(INTERNAL_ERROR, "internal error; the log holds the details"))

    def close(self) -> None:
        """Bring everything back, as far as the time allows."""
        if self._hosting is not None:
            self._hosting.close()

    def _dispatch(self, request: Request) -> None:
        if request.method == "initialize":
            self._initialize(request)
            return
        # the host asks whether anybody is there; calls themselves may take their time
        if request.method == "ping":
            request.answer({})
            return
        if request.method not in ("tool", "event", "guard", "cancel", "shutdown"):
            raise Refused(METHOD_NOT_FOUND, f"there is no method '{request.method[:80]}'")
        hosting = self._hosting
        if hosting is None:
            raise Refused(INVALID_PARAMS, "call 'initialize' first")
        match request.method:
            case "tool":
                hosting.tool(request)
            case "event":
                hosting.event(request)
            case "guard":
                hosting.guard(request)
            case "cancel":
                hosting.cancel(request)
            case _:
                threading.Thread(
                    target=self._shutdown, args=(request, hosting), name="shutdown", daemon=True
                ).start()

    def _initialize(self, request: Request) -> None:
        if self._hosting is not None:
            raise Refused(INVALID_PARAMS, "initialized already")
        directory = Path(text(request.params, "directory"))
        if not directory.is_absolute():
            raise Refused(INVALID_PARAMS, "'directory' must be absolute")
        given, project = request.params.get("worktree"), request.params.get("projectID")
        worktree = given if isinstance(given, str) and given not in ("", "/") else str(directory)
        tools = {tool.name: tool for tool in TOOLS}
        request.answer(
            {
                "name": "git-daytona",
                "version": __version__,
                "tools": [
                    {"name": t.name, "description": t.description, "parameters": dict(t.parameters)}
                    for t in TOOLS
                ],
                "allowed": [*tools, *HARMLESS],
                "events": list(EVENTS),
                "system": prompt.system(worktree, tuple(tools)),
            }
        )
        from git_daytona.service.dispatcher import Hosting

        self._hosting = Hosting(
            self.peer,
            tools,
            directory,
            worktree,
            project if isinstance(project, str) and project else None,
        )
        self._hosting.workspace.begin()

    def _shutdown(self, request: Request, hosting: "Hosting") -> None:
        request.answer({"finished": hosting.finish()})
        self._end("shutdown")
