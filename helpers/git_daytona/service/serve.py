"""``git-daytona serve``: what OpenCode's plugin talks to (git-daytona-hooks(7)).

``initialize`` is answered within 150 ms of the process's start: all that the answer does not need
is imported behind it.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from git_daytona import __version__
from git_daytona.base import log
from git_daytona.service.events import EVENTS
from git_daytona.service.host_tools import HARMLESS, opted_in, system_prompt
from git_daytona.service.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Peer,
    Refused,
    Request,
    text,
    word,
)
from git_daytona.tools.registry import TOOLS

if TYPE_CHECKING:
    from git_daytona.service.dispatcher import Dispatcher


def serve() -> int:
    """Serve standard input and output until the end of input, ``shutdown`` or a signal. Returns the
    exit status."""
    # Nothing but the protocol may reach standard output, whatever a library prints.
    sink = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdout = sys.stderr
    log.to_file()
    ending = _Ending()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: ending.say(signal.Signals(number).name))
    service = Service(ending.say)
    # Not sys.stdin: at its end the interpreter would wait for the reader's lock on that.
    service.peer = Peer(os.fdopen(os.dup(0), "rb"), sink, service.handle)

    def read() -> None:
        service.peer.serve()
        ending.say("end of input")

    threading.Thread(target=read, name="reader", daemon=True).start()
    log.logger.info("service: ending: %s", ending.wait())
    service.close()
    log.logger.info("service: ended")
    return 0


class _Ending:
    """Why the service ends. It is waited for at a pipe: the system may give a signal to any thread,
    which would not end the main one's wait for a lock (signal.set_wakeup_fd)."""

    def __init__(self) -> None:
        self._reasons: list[str] = []
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def say(self, reason: str) -> None:
        self._reasons.append(reason)
        with contextlib.suppress(BlockingIOError):  # full: there is enough to wake up for
            os.write(self._wake, b"\0")

    def wait(self) -> str:
        """Return the first reason."""
        while not self._reasons:
            os.read(self._woken, 4096)
        return self._reasons[0]


class Service:
    """The methods; ``handle`` runs in the reader's thread."""

    peer: Peer

    def __init__(self, end: Callable[[str], None]) -> None:
        self._end = end
        self._dispatcher: Dispatcher | None = None

    def handle(self, request: Request) -> None:
        try:
            self._dispatch(request)
        except Refused as refused:
            request.refuse(refused)
        # whatever one request stumbles over, the next one is served
        except Exception:  # noqa: BLE001
            log.logger.exception("service: internal error in '%s'", request.method)
            request.refuse(Refused(INTERNAL_ERROR, "internal error; the log holds the details"))

    def close(self) -> None:
        """Bring everything back, as far as the time allows."""
        if self._dispatcher is not None:
            self._dispatcher.close()

    def _dispatch(self, request: Request) -> None:
        method, dispatcher = request.method, self._dispatcher
        if method == "initialize":
            self._initialize(request)
        elif method == "ping":  # whether anybody is there; calls themselves may take their time
            request.answer({})
        elif method not in ("tool", "event", "guard", "cancel", "charge", "shutdown"):
            raise Refused(METHOD_NOT_FOUND, f"there is no method '{method[:80]}'")
        elif dispatcher is None:
            raise Refused(INVALID_PARAMS, "call 'initialize' first")
        elif method == "shutdown":
            threading.Thread(
                target=self._shutdown, args=(request, dispatcher), name="shutdown", daemon=True
            ).start()
        else:
            getattr(dispatcher, method)(request)

    def _initialize(self, request: Request) -> None:
        if self._dispatcher is not None:
            raise Refused(INVALID_PARAMS, "initialized already")
        directory = Path(text(request.params, "directory"))
        if not directory.is_absolute():
            raise Refused(INVALID_PARAMS, "'directory' must be absolute")
        client = request.params.get("client")
        worktree = word(request.params, "worktree") or "/"
        worktree = str(directory) if worktree == "/" else worktree
        tools = {tool.name: tool for tool in TOOLS}
        chosen = opted_in(directory)
        request.answer(
            {
                "name": "git-daytona",
                "version": __version__,
                "tools": [
                    {"name": t.name, "description": t.description, "parameters": dict(t.parameters)}
                    for t in TOOLS
                ],
                "allowed": [*tools, *HARMLESS],
                "hostTools": True if chosen is None else sorted(chosen),
                "events": list(EVENTS),
                "system": system_prompt(worktree, tuple(tools)),
            }
        )
        from git_daytona.service.dispatcher import Dispatcher

        self._dispatcher = Dispatcher(
            self.peer,
            tools,
            directory,
            worktree,
            word(request.params, "projectID"),
            client if isinstance(client, dict) else {},
        )
        self._dispatcher.workspace.begin()

    def _shutdown(self, request: Request, dispatcher: "Dispatcher") -> None:
        request.answer({"finished": dispatcher.finish(), "said": dispatcher.said()})
        self._end("shutdown")
