"""HTTP with Daytona's API and its toolboxes: answers of bounded size, within bounded time, from the
host that was asked. What is sent and received is untrusted on its way in, secret on its way out."""

import contextlib
import functools
import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from git_daytona import __version__
from git_daytona.api import network, unreachable
from git_daytona.api.network import Proxy
from git_daytona.api.unreachable import Untunnelled, origin
from git_daytona.base.errors import ApiUnreachable, BadAnswer, GitDaytonaError
from git_daytona.base.secret import Secret

ANSWER_BYTES = 32 * 1024 * 1024
"""The largest answer that is read. A command's output is cut to 4 MiB in the sandbox
(scripts/guard.sh); JSON may make six of one."""
SLACK_SECONDS = 0.25
"""How much later than the socket's own limit, which has the better message for a silent server."""
ANSWER_SECONDS = 600.0
"""How long a whole answer may take where the caller gives no limit."""
CONNECTIONS = 64
"""Connections kept to one host: as many as sandboxes may be at work at once."""
HOSTS = 10
"""Hosts to which connections are kept."""


@dataclass(frozen=True)
class Answer:
    """An answer with any status, read whole; ``doing`` is what it was asked for, for messages."""

    doing: str
    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class Client:
    """A pool of connections that all threads share. Nothing is repeated: leases and transfers
    decide that. No redirect is followed: what is sent is for one host alone."""

    def __init__(self, api_url: str) -> None:
        self._api_url = api_url
        self._pool_for = functools.lru_cache(HOSTS)(_make_pool)

    def request(
        self,
        doing: str,
        method: str,
        url: str,
        *,
        seconds: float,
        key: Secret | None,
        query: Mapping[str, object] | None = None,
        body: object = None,
        fields: list[tuple[str, Any]] | None = None,
    ) -> Answer:
        """Send a JSON body or a form of ``fields``; read the answer, as a whole within ``seconds``.

        Raises ApiUnreachable, BadAnswer. The texts of exceptions below may hold URLs with tokens,
        and their frames the key: they go, redacted, into the details, and the chain is cut.
        """
        pool, proxy = self._pool_for(origin(url))
        try:
            response = pool.request(
                method,
                url + _query(query or {}),
                body=None if body is None else json.dumps(body, default=Secret.reveal),
                fields=fields,
                headers=_headers(key, is_json=body is not None),
                timeout=urllib3.Timeout(total=seconds),
                retries=False,
                redirect=False,
                preload_content=False,  # _Connection reads, within bounds
                release_conn=True,
            )
        except GitDaytonaError as problem:
            raise problem.with_traceback(None) from None
        except Exception as problem:  # noqa: BLE001 — urllib3 lets through what its parsers raise
            raise unreachable.explain(problem, doing, url, self._api_url, proxy) from None
        if proxy and response.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            raise unreachable.refused(response.status, self._api_url, proxy)
        # urllib3 has None for an empty body
        return Answer(doing, response.status, response.headers, response.data or b"")


def _make_pool(origin: str) -> tuple[urllib3.PoolManager, Proxy | None]:
    """Make the connections for all URLs that begin so. Raises BadSetting."""
    way = network.way_to(origin)
    how: dict[str, Any] = {"maxsize": CONNECTIONS}
    if way.tls:
        how |= {"ssl_context": way.tls, "cert_reqs": "CERT_REQUIRED"}
    if way.proxy is None:
        pool = urllib3.PoolManager(**how)
    else:
        secret = way.proxy.authorization()
        headers = {"Proxy-Authorization": secret.reveal()} if secret else {}
        how |= {"proxy_headers": headers, "proxy_ssl_context": way.tls}
        pool = urllib3.ProxyManager(way.proxy.url, **how)
    pool.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return pool, way.proxy


def _query(query: Mapping[str, object]) -> str:
    present = {name: value for name, value in query.items() if value is not None}
    return f"?{urlencode(present, quote_via=quote)}" if present else ""


def _headers(key: Secret | None, *, is_json: bool) -> dict[str, str]:
    headers = {"Accept": "application/json", "User-Agent": f"git-daytona/{__version__}"}
    if is_json:
        headers["Content-Type"] = "application/json"
    if key is not None:
        headers["Authorization"] = f"Bearer {key.reveal()}"
    return headers


class _TunnelAnswer(http.client.HTTPResponse):
    """A proxy's answer to CONNECT, of whose status http.client gives no more than words."""

    def _read_status(self) -> tuple[str, int, str]:
        answer: tuple[str, int, str] = super()._read_status()  # type: ignore[misc]
        if answer[1] != HTTPStatus.OK:
            raise Untunnelled(answer[1])
        return answer


class _Connection(HTTPConnection):
    """A connection that reads an answer whole, bounded, before anybody else sees it."""

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]  # as urllib3 itself
        with (
            _cut(self.sock, self.timeout or ANSWER_SECONDS),
            # it may hold the connection, and what is raised may live long
            contextlib.closing(super().getresponse()) as response,
        ):
            body = _body(response)
        return urllib3.HTTPResponse(body, response.headers, response.status)


class _TlsConnection(_Connection, HTTPSConnection):
    def _tunnel(self) -> None:
        self.response_class = _TunnelAnswer
        try:
            with _cut(self.sock, self.timeout or ANSWER_SECONDS):
                super()._tunnel()
        finally:
            self.response_class = http.client.HTTPResponse


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def _body(response: urllib3.HTTPResponse) -> bytes:
    """Read a body; refuse one that is encoded unasked: a small one may unpack to any size."""
    hint = "check DAYTONA_API_URL"
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise BadAnswer("the server compressed its answer without being asked", hint=hint)
    body = response.read(ANSWER_BYTES + 1)
    if len(body) > ANSWER_BYTES:
        raise BadAnswer(f"the server's answer is larger than {ANSWER_BYTES >> 20} MiB", hint=hint)
    return body


@contextlib.contextmanager
def _cut(connection: socket.socket, seconds: float) -> Iterator[None]:
    """Cut a connection after so long, whatever trickles in on it: a socket's own time limit begins
    anew with each byte."""
    late = threading.Event()

    def cut() -> None:
        late.set()
        with contextlib.suppress(OSError):
            # below TLS, whose own shutdown is not for two threads: the reader sees the stream end
            below = getattr(connection, "socket", connection)  # of TLS within TLS
            socket.socket.shutdown(below, socket.SHUT_RDWR)

    timer = threading.Timer(seconds + SLACK_SECONDS, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception:
        if not late.is_set():
            raise
    finally:
        timer.cancel()
    if late.is_set():  # even without an exception: an answer without a length ends this way, too
        raise ApiUnreachable(
            f"the server's answer did not end within {seconds:g} seconds",
            hint="check the network and DAYTONA_API_URL, then try again",
        )
