"""Answers of at most so many bytes, within so much time, from the host that was asked: whatever an
API or a sandbox sends.

The generated REST clients read an answer of any size, wait anew after each byte, and follow
redirects. They all get their connections from one pool manager, which ``bind`` replaces.
"""

import contextlib
import io
import socket
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any

from git_daytona.base.errors import ApiUnreachable, BadAnswer

ANSWER_BYTES = 32 * 1024 * 1024
"""The largest answer that is read. A command's output is cut to 4 MiB in the sandbox
(scripts/guard.sh); JSON may make six of one."""
SLACK_SECONDS = 0.25
"""How much later than the socket's own limit, which has the better message for a server that says
nothing at all."""
ANSWER_SECONDS = 600.0
"""How long a whole answer may take where the caller gives no limit; where one is given, it counts
for the whole answer, too."""


def bind(client: Any) -> None:
    """Make a generated ``ApiClient`` keep to these bounds. Its calls then raise BadAnswer for an
    answer that is too long, or encoded without having been asked for (a small one may unpack to any
    size), and ApiUnreachable for one that does not end."""
    rest = client.rest_client
    rest.pool_manager = _manager()(**rest.pool_manager.connection_pool_kw)


@cache
def _manager() -> Any:
    """urllib3's pool manager, bounded; made here because importing urllib3 takes its time."""
    import urllib3
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

    class Bounded(HTTPConnection):
        def getresponse(self) -> Any:
            response = None
            try:
                with _cut(self.sock, self.timeout or ANSWER_SECONDS):
                    response = super().getresponse()
                    body = _body(response)
            except BaseException:
                if response is not None:
                    response.close()  # it may hold the connection, and what is raised may live long
                raise
            return urllib3.HTTPResponse(
                body=io.BytesIO(body),
                headers=response.headers,
                status=response.status,
                version=response.version,
                reason=response.reason,
                preload_content=False,
                decode_content=False,
                # urllib3 takes the connection back into its pool once this one is closed, which it
                # is when it was read to its end.
                original_response=response._original_response,
                request_url=None,
            )

    class BoundedTls(Bounded, HTTPSConnection):
        pass

    class Pool(HTTPConnectionPool):
        ConnectionCls = Bounded

    class PoolTls(HTTPSConnectionPool):
        ConnectionCls = BoundedTls

    class Manager(urllib3.PoolManager):
        def __init__(self, **keywords: Any) -> None:
            super().__init__(**keywords)
            self.pool_classes_by_scheme = {"http": Pool, "https": PoolTls}

        def urlopen(self, *arguments: Any, **keywords: Any) -> Any:
            # Not even without the key: what a command says and does is for this host alone.
            return super().urlopen(*arguments, **{**keywords, "redirect": False})

    return Manager


def _body(response: Any) -> bytes:
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise BadAnswer(
            "the server compressed its answer without being asked", hint="check DAYTONA_API_URL"
        )
    body: bytes = response.read(ANSWER_BYTES + 1)
    if len(body) > ANSWER_BYTES:
        raise BadAnswer(
            f"the server's answer is larger than {ANSWER_BYTES >> 20} MiB",
            hint="check DAYTONA_API_URL",
        )
    return body


@contextlib.contextmanager
def _cut(connection: socket.socket, seconds: float) -> Iterator[None]:
    """Cut a connection after so long, whatever trickles in on it; a time limit of a socket begins
    anew with each byte."""
    late = threading.Event()

    def cut() -> None:
        late.set()
        with contextlib.suppress(OSError):
            # Below TLS, whose own shutdown is not for two threads: the reading one sees the end of
            # the stream.
            socket.socket.shutdown(connection, socket.SHUT_RDWR)

    timer = threading.Timer(seconds + SLACK_SECONDS, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as problem:
        if late.is_set():
            raise _endless(seconds) from problem
        raise
    finally:
        timer.cancel()
    if late.is_set():  # an answer without a length ends with its connection
        raise _endless(seconds)


def _endless(seconds: float) -> ApiUnreachable:
    return ApiUnreachable(
        f"the server's answer did not end within {seconds:g} seconds",
        hint="check the network and DAYTONA_API_URL, then try again",
    )
