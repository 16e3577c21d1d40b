"""The preview proxy: listens on loopback and forwards to a port that a sandbox's process listens
on.

Sandboxes share the machine's network, so a sandbox's port N is this machine's 127.0.0.1:N.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp import WSMsgType, web
from multidict import CIMultiDict
from yarl import URL

from git_daytona.local.core.model import ApiError
from git_daytona.local.core.refusals import Refusals

TOKEN_HEADER = "X-Daytona-Preview-Token"  # noqa: S105 - a name
TOKEN_PARAMETER = "DAYTONA_SANDBOX_AUTH_KEY"  # noqa: S105 - a name
COOKIE = "daytona-sandbox-auth-{}"
SKIP_WARNING_HEADER = "X-Daytona-Skip-Preview-Warning"

# What belongs to one connection and is not passed on (RFC 9110 section 7.6.1), and what is meant
# for this proxy.
PER_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
OURS = frozenset((TOKEN_HEADER.lower(), SKIP_WARNING_HEADER.lower()))


class Forwarder:
    """The listening ports. All methods belong to the server's loop."""

    def __init__(self, refusals: Refusals, login: Callable[[], str]) -> None:
        self._refusals = refusals
        self._login = login
        self.allow: Callable[[str, int, str], bool] = lambda sandbox_id, port, token: False
        """Asked for each request: sandbox id, port in the sandbox, token (may be empty). May raise
        ApiError."""
        self._runner: web.ServerRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self._sites: dict[tuple[str, int], tuple[web.TCPSite, int]] = {}
        self._targets: dict[int, tuple[str, int]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._opening = asyncio.Lock()

    async def start(self) -> None:
        # Bodies go through as they are, of any size and encoding; cookies and redirects are the
        # browser's business. No connection is used again: the server in the sandbox may be about to
        # close it, and a request with a body cannot be repeated.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
        )
        self._runner = web.ServerRunner(
            web.Server(self._serve, access_log=None), shutdown_timeout=1.0
        )
        await self._runner.setup()

    async def close(self) -> None:
        await asyncio.gather(*self._closing)
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    async def open(self, sandbox_id: str, port: int) -> str:
        """The URL (without a slash at its end) of that port; listens from now on."""
        assert self._runner is not None
        async with self._opening:
            if (sandbox_id, port) not in self._sites:
                site = web.TCPSite(self._runner, "127.0.0.1", 0)
                await site.start()
                here = _port_of(site)
                self._sites[sandbox_id, port] = (site, here)
                self._targets[here] = (sandbox_id, port)
        return f"http://127.0.0.1:{self._sites[sandbox_id, port][1]}"

    def close_sandbox(self, sandbox_id: str) -> None:
        """Stop listening for a sandbox that is gone."""
        for key in [key for key in self._sites if key[0] == sandbox_id]:
            site, here = self._sites.pop(key)
            del self._targets[here]
            task = asyncio.get_running_loop().create_task(site.stop())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        here = request.transport.get_extra_info("sockname")[1]
        try:
            if here not in self._targets:
                raise ApiError(404, "Sandbox not found")
            sandbox_id, port = self._targets[here]
            cookie = COOKIE.format(sandbox_id)
            token = (
                request.headers.get(TOKEN_HEADER)
                or request.query.get(TOKEN_PARAMETER)
                or request.cookies.get(cookie, "")
            )
            if not self.allow(sandbox_id, port, token):
                if not token:
                    return web.Response(status=307, headers={"Location": self._login()})
                raise ApiError(401, "this preview needs its token")
            if TOKEN_PARAMETER in request.query:
                # A browser that followed a signed link: from here on the cookie speaks for it, and
                # the address is clean.
                clean = request.rel_url.without_query_params(TOKEN_PARAMETER)
                response = web.Response(status=307, headers={"Location": str(clean)})
                response.set_cookie(cookie, token, httponly=True, samesite="Lax")
                return response
            if request.headers.get("Upgrade", "").lower() == "websocket":
                return await self._websocket(request, port, cookie)
            return await self._forward(request, port, cookie)
        except ApiError as error:
            return self._refusals.proxy(request, error)
        except aiohttp.ClientConnectionError:
            return self._refusals.proxy(
                request, ApiError(502, f"Nothing answers on port {port} of the sandbox")
            )

    async def _forward(
        self, request: web.BaseRequest, port: int, cookie: str
    ) -> web.StreamResponse:
        assert self._session is not None
        async with self._session.request(
            request.method,
            _inside(request, port),
            headers=_headers(request, cookie),
            data=request.content if request.body_exists else None,
            allow_redirects=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        ) as answer:
            response = web.StreamResponse(status=answer.status, reason=answer.reason)
            for name, value in answer.headers.items():
                if name.lower() not in PER_HOP:
                    response.headers.add(name, value)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    async def _websocket(
        self, request: web.BaseRequest, port: int, cookie: str
    ) -> web.StreamResponse:
        assert self._session is not None
        protocols = [
            p.strip()
            for p in request.headers.get("Sec-WebSocket-Protocol", "").split(",")
            if p.strip()
        ]
        headers = _headers(request, cookie)
        for name in [name for name in headers if name.lower().startswith("sec-websocket-")]:
            del headers[name]
        async with self._session.ws_connect(
            _inside(request, port), headers=headers, protocols=protocols, max_msg_size=0
        ) as inner:
            outer = web.WebSocketResponse(
                protocols=[inner.protocol] if inner.protocol else [], max_msg_size=0
            )
            await outer.prepare(request)
            pumps = [
                asyncio.create_task(_pump(outer, inner)),
                asyncio.create_task(_pump(inner, outer)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
                await outer.close()
            return outer


async def _pump(source: Any, sink: Any) -> None:
    async for message in source:
        if message.type is WSMsgType.TEXT:
            await sink.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await sink.send_bytes(message.data)
    await sink.close(code=source.close_code or 1000)


def _inside(request: web.BaseRequest, port: int) -> URL:
    return URL(f"http://127.0.0.1:{port}{request.raw_path}", encoded=True)


def _headers(request: web.BaseRequest, cookie: str) -> "CIMultiDict[str]":
    headers: CIMultiDict[str] = CIMultiDict()
    dropped = (
        {name.strip().lower() for name in request.headers.get("Connection", "").split(",")}
        | PER_HOP
        | OURS
    )
    for name, value in request.headers.items():
        if name.lower() == "cookie":
            value = "; ".join(
                part for part in value.split("; ") if not part.startswith(f"{cookie}=")
            )
        if name.lower() not in dropped and value:
            headers.add(name, value)
    headers["X-Forwarded-Host"] = request.host
    headers["X-Forwarded-Proto"] = "http"
    return headers


def _port_of(site: web.TCPSite) -> int:
    server = site._server
    assert isinstance(server, asyncio.Server)
    port: int = server.sockets[0].getsockname()[1]
    return port
