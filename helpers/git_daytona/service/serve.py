"""``git-daytona serve``: what OpenCode's plugin talks to (git-daytona-hooks(7)).

``initialize`` is answered within 150 ms of the process's start: all that the answer does not need
is imported behind it.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from git_daytona import __version__
from git_daytona.base import log
from git_daytona.service import jsonrpc
from git_daytona.service.events import EVENTS
from git_daytona.service.host_tools import HARMLESS, opted_in, system_prompt
from git_daytona.service.jsonrpc import Peer, Refused, Request, members, text, word
from git_daytona.service.queues import Lane
from git_daytona.tools.registry import TOOLS

if TYPE_CHECKING:
    from git_daytona.service.dispatcher import Dispatcher

ENDED_BY = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def serve() -> int:
    """Serve until the end of input, ``shutdown`` or a signal, and return the exit status."""
    # Nothing but the protocol may reach standard output, whatever a library prints.
    sink = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdout = sys.stderr
    log.to_file()
    ending: SimpleQueue[str] = SimpleQueue()  # safe to write to in a signal's handler
    for number in ENDED_BY:
        signal.signal(number, lambda came, _frame: ending.put(signal.Signals(came).name))
    service = Service(ending.put)
    # Not sys.stdin: at its end the interpreter would wait for the reader's lock on that.
    service.peer = Peer(os.fdopen(os.dup(0), "rb"), sink, service.handle)

    def read() -> None:
        service.peer.serve()
        ending.put("end of input")

    threading.Thread(target=read, name="reader", daemon=True).start()
    log.logger.info("service: ending: %s", ending.get())
    if service.dispatcher is not None:
        service.dispatcher.close()
    log.logger.info("service: ended")
    return 0


class Service:
    """The methods; ``handle`` runs in the reader's thread."""

    peer: Peer

    def __init__(self, end: Callable[[str], None]) -> None:
        self._end = end
        self.dispatcher: Dispatcher | None = None

    def handle(self, request: Request) -> None:
        try:
            self._dispatch(request)
        except Refused as refused:
            request.refuse(refused)
        # whatever one request stumbles over, the next one is served
        except Exception:  # noqa: BLE001
            log.logger.exception("service: internal error in '%s'", request.method)
            words = "internal error; the log holds the details"
            request.refuse(Refused(jsonrpc.INTERNAL_ERROR, words))

    def _dispatch(self, request: Request) -> None:
        method, dispatcher = request.method, self.dispatcher
        if method == "initialize":
            self._initialize(request)
        elif method == "ping":  # whether anybody is there; calls themselves may take their time
            request.answer({})
        elif method not in ("tool", "event", "guard", "cancel", "charge", "shutdown"):
            raise Refused(jsonrpc.METHOD_NOT_FOUND, f"there is no method '{method[:80]}'")
        elif dispatcher is None:
            raise Refused(jsonrpc.INVALID_PARAMS, "call 'initialize' first")
        elif method == "shutdown":
            Lane("shutdown", 1).submit(lambda: self._shutdown(request, dispatcher))
        else:
            getattr(dispatcher, method)(request)

    def _initialize(self, request: Request) -> None:
        if self.dispatcher is not None:
            raise Refused(jsonrpc.INVALID_PARAMS, "initialized already")
        params, tools = request.params, {tool.name: tool for tool in TOOLS}
        directory = Path(text(params, "directory"))
        if not directory.is_absolute():
            raise Refused(jsonrpc.INVALID_PARAMS, "'directory' must be absolute")
        worktree = word(params, "worktree") or "/"
        worktree = str(directory) if worktree == "/" else worktree
        chosen = opted_in(directory)
        request.answer(
            {
                "name": "git-daytona",
                "version": __version__,
                "tools": [
                    {"name": t.name, "description": t.description, "parameters": t.parameters}
                    for t in TOOLS
                ],
                "allowed": [*tools, *HARMLESS],
                "hostTools": True if chosen is None else sorted(chosen),
                "events": EVENTS,
                "system": system_prompt(worktree, tuple(tools)),
            }
        )
        from git_daytona.service.dispatcher import Dispatcher

        project, client = word(params, "projectID"), members(params.get("client"))
        self.dispatcher = Dispatcher(self.peer, tools, directory, worktree, project, client)
        self.dispatcher.workspace.begin()

    def _shutdown(self, request: Request, dispatcher: "Dispatcher") -> None:
        request.answer({"finished": dispatcher.finish(), "said": dispatcher.said()})
        self._end("shutdown")
