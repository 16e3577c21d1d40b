"""JSON-RPC 2.0 over two byte streams: one object a line, UTF-8, requests and notifications both
ways (git-daytona-hooks(7)).

No batches. A line that is no request is answered with an error where it can be, and never ends the
conversation.
"""

import contextlib
import itertools
import json
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from typing import Any, BinaryIO

LINE_BYTES = 64 * 1024 * 1024
"""Longest line that is read: a tool call may carry a whole file."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
FAILED = -32000
"""Ours: it was refused or failed; ``data`` has ``kind`` (the error's class) and ``hint``."""

Id = str | int | float | None


class Refused(Exception):
    """An error answer, ours or the other side's."""

    def __init__(self, code: int, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, dict(data or {})


def text(params: Mapping[str, Any], name: str) -> str:
    """A parameter that must be a string and not empty; raises Refused."""
    if (value := word(params, name)) is None:
        raise Refused(INVALID_PARAMS, f"'{name}' must be a string")
    return value


def word(params: Mapping[str, Any], name: str) -> str | None:
    """A parameter that is a string and not empty; None for anything else."""
    value = params.get(name)
    return value if isinstance(value, str) and value else None


def members(value: object) -> Mapping[str, Any]:
    """The members of an object; none of anything else."""
    return value if isinstance(value, dict) else {}


class Closed(Exception):
    """The other side is gone; no answer will come."""


class Request:
    """One request, or a notification (``id`` is None). It is answered once; later answers are
    dropped."""

    def __init__(
        self, peer: "Peer", id_: Id, method: str, params: Mapping[str, Any], *, wants_answer: bool
    ) -> None:
        self.peer, self.id, self.method, self.params = peer, id_, method, params
        self._open = wants_answer
        self._lock = threading.Lock()

    def answer(self, result: object) -> None:
        self._send({"result": result})

    def refuse(self, refused: Refused) -> None:
        error: dict[str, Any] = {"code": refused.code, "message": refused.message}
        self._send({"error": error | ({"data": refused.data} if refused.data else {})})

    def _send(self, outcome: dict[str, Any]) -> None:
        with self._lock:
            wanted, self._open = self._open, False
        if wanted:
            self.peer.write({"jsonrpc": "2.0", "id": self.id} | outcome)


class Peer:
    """The other side. Safe for many threads; one of them reads, in ``serve``."""

    def __init__(self, source: BinaryIO, sink: int, handle: Callable[[Request], None]) -> None:
        self._source, self._sink, self._handle = source, sink, handle
        self._writing = threading.Lock()
        self._numbers = itertools.count(1)
        self._asked: dict[str, Future[Any]] = {}
        self._closed = False

    def serve(self) -> None:
        """Handle line after line until the end of input. ``handle`` must not block."""
        try:
            while line := self._source.readline(LINE_BYTES + 1):
                if len(line) > LINE_BYTES:
                    while line and not line.endswith(b"\n"):
                        line = self._source.readline(LINE_BYTES)
                    self._complain(INVALID_REQUEST, f"a line is longer than {LINE_BYTES} bytes")
                elif line.strip():
                    self._receive(line)
        except (OSError, ValueError):  # closed under us
            pass
        finally:
            self._closed = True
            for future in list(self._asked.values()):
                with contextlib.suppress(Exception):
                    future.set_exception(Closed())

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        self.write({"jsonrpc": "2.0", "method": method, "params": dict(params)})

    def ask(self, method: str, params: Mapping[str, Any]) -> "Future[Any]":
        """Send a request of ours. The future gives its result; it raises Refused for an error
        answer, Closed when none will come."""
        id_ = f"s{next(self._numbers)}"
        future: Future[Any] = Future()
        self._asked[id_] = future
        if self._closed:
            with contextlib.suppress(Exception):  # serve() may have done it
                future.set_exception(Closed())
        else:
            self.write({"jsonrpc": "2.0", "id": id_, "method": method, "params": dict(params)})
        return future

    def write(self, message: Mapping[str, Any]) -> None:
        """Send a line. That nobody reads it is no error: the end of input says so, too."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._writing:
            while line:
                try:
                    line = line[os.write(self._sink, line) :]
                except OSError:
                    return

    def _receive(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._complain(PARSE_ERROR, "a line is no JSON")
            return
        if not isinstance(message, dict):
            self._complain(INVALID_REQUEST, "a line is no object")
        elif "method" in message:
            self._request(message)
        elif (future := self._asked.pop(str(message.get("id")), None)) is not None:
            error = message.get("error")
            with contextlib.suppress(InvalidStateError):  # who asked has given up
                if isinstance(error, dict):
                    future.set_exception(Refused(FAILED, str(error.get("message") or "refused")))
                else:
                    future.set_result(message.get("result"))

    def _request(self, message: dict[str, Any]) -> None:
        id_, method, params = message.get("id"), message["method"], message.get("params", {})
        if isinstance(id_, bool) or not isinstance(id_, (str, int, float, type(None))):
            id_ = None
        request = Request(self, id_, str(method), members(params), wants_answer="id" in message)
        if message.get("jsonrpc") != "2.0" or not isinstance(method, str):
            request.refuse(Refused(INVALID_REQUEST, "not a JSON-RPC 2.0 request"))
        elif not isinstance(params, dict):
            request.refuse(Refused(INVALID_PARAMS, "params must be an object"))
        else:
            self._handle(request)

    def _complain(self, code: int, message: str) -> None:
        Request(self, None, "", {}, wants_answer=True).refuse(Refused(code, message))


class SilentPeer(Peer):
    """A client that is asked nothing, as it has asked its user itself. Toasts become lines."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "toast":
            self._tell(f"{params['title']}: {params['message']}")

    def ask(self, method: str, params: Mapping[str, Any]) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_result(None)
        return future

    def write(self, message: Mapping[str, Any]) -> None:
        """Drop it: nobody wants an answer."""
