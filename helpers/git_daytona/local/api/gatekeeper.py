"""What every API and toolbox call passes: the record of calls, faults, the bearer key, and
Daytona's error envelopes."""

import asyncio
import hmac
import logging
import threading
from collections import Counter, deque
from typing import NamedTuple

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from git_daytona.local.api.admission import Admission
from git_daytona.local.api.lifecycle import Lifecycle
from git_daytona.local.core.faults import CallFault, Faults
from git_daytona.local.core.model import ApiError
from git_daytona.local.core.profile import Profile
from git_daytona.local.core.refusals import Refusals

log = logging.getLogger(__name__)

OPEN_ROUTES = frozenset({"config", "health", "health-ready", "events"})
"""Routes that need no key. (The event channel checks its own.)"""


KEPT_CALLS = 100_000
"""A server that runs for months forgets the oldest."""


class Call(NamedTuple):
    """One call that was answered, or cut off (status 0)."""

    method: str
    route: str
    sandbox: str | None
    status: int


class Calls:
    """The calls of API and toolbox in the order of their ends; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: deque[Call] = deque(maxlen=KEPT_CALLS)

    def append(self, call: Call) -> None:
        with self._lock:
            self._calls.append(call)

    def all(self) -> list[Call]:
        with self._lock:
            return list(self._calls)

    def clear(self) -> None:
        with self._lock:
            self._calls.clear()

    def counts(self) -> "Counter[str]":
        """How many calls of each route succeeded (status below 400)."""
        return Counter(call.route for call in self.all() if 0 < call.status < 400)


class Gatekeeper:
    """The middleware of the server."""

    def __init__(self, lifecycle: Lifecycle, faults: Faults, api_key: str, profile: Profile):
        self.calls = Calls()
        self._lifecycle = lifecycle
        self._faults = faults
        self._api_key = api_key.encode()
        self._refusals = Refusals(profile)
        self._admission = Admission(
            lifecycle, lifecycle.timings, self._is_key, signed_links=profile.newer_calls
        )

    def middleware(self) -> Middleware:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._handle(request, handler)

        return guard

    async def _handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        route = route_name(request)
        if route == "events":  # a connection of its own kind, open as long as the client lives
            return await handler(request)
        sandbox = self._sandbox_id(request)
        status = 0
        try:
            response = await self._answer(request, handler, route, sandbox)
            status = (
                0
                if request.transport is None or request.transport.is_closing()
                else response.status
            )
            return response
        finally:
            self.calls.append(
                Call(request.method, route, sandbox or request.match_info.get("sandbox"), status)
            )

    async def _answer(
        self, request: web.Request, handler: Handler, route: str, sandbox: str | None
    ) -> web.StreamResponse:
        if self._faults.latency:
            await asyncio.sleep(self._faults.latency)
        fault = self._faults.meet(request.method, route, request.path, sandbox)
        if fault is not None:
            faulty = await self._before(request, fault)
            if faulty is not None:
                return faulty
        response = await self._process(request, handler, route)
        if fault is not None and fault.drop == "after":
            _cut(request)
        return response

    async def _process(
        self, request: web.Request, handler: Handler, route: str
    ) -> web.StreamResponse:
        try:
            if _is_toolbox(request):
                self._admission.admit(request, _key(request))
            elif route not in OPEN_ROUTES and not self._is_key(_key(request)):
                raise ApiError(401, "Invalid credentials")
            if self._lifecycle.closed:
                raise ApiError(503, "daytona-local is shutting down")
            if not _is_toolbox(request):
                return await handler(request)
            with self._lifecycle.at_work(
                self._lifecycle.record(request.match_info.get("sandbox", ""))
            ):
                return await handler(request)
        except ApiError as error:
            return self._refuse(request, error)
        except web.HTTPException as error:
            if error.status in (404, 405):
                return self._refuse(
                    request, ApiError(404, f"Cannot {request.method} {request.rel_url}")
                )
            if error.status < 400:
                raise
            return self._refuse(request, ApiError(error.status, error.text or error.reason))
        except (ConnectionError, asyncio.CancelledError):
            raise  # the client went away, or the server ends
        except Exception:
            # The last line of defence of a server: what nobody foresaw becomes a 500 and a
            # traceback in the log.
            log.exception("%s %s failed", request.method, route)
            return self._refuse(request, ApiError(500, "Internal server error"))

    async def _before(self, request: web.Request, fault: CallFault) -> web.StreamResponse | None:
        """Do what the fault asks for before the call is processed; an answer here takes the call's
        place."""
        if fault.latency:
            await asyncio.sleep(fault.latency)
        if fault.hang:
            # Shielded: a client that gives up must not release the others.
            await asyncio.shield(asyncio.wrap_future(fault.released))
        if fault.drop == "before":
            _cut(request)
            return web.Response(status=503)
        headers = {} if fault.retry_after is None else {"Retry-After": f"{fault.retry_after:g}"}
        if fault.redirect is not None:
            return web.Response(
                status=fault.status or 302, headers={**headers, "Location": fault.redirect}
            )
        if fault.body is not None:
            return web.Response(
                status=fault.status or 200,
                body=fault.body,
                headers={**headers, "Content-Type": fault.content_type},
            )
        if fault.status is not None:
            return self._refuse(
                request, ApiError(fault.status, fault.message, code=fault.code, headers=headers)
            )
        return None

    def _is_key(self, key: str) -> bool:
        return hmac.compare_digest(key.encode("utf-8", "replace"), self._api_key)

    def _refuse(self, request: web.Request, error: ApiError) -> web.Response:
        return (
            self._refusals.proxy(request, error)
            if _is_toolbox(request)
            else self._refusals.api(request, error)
        )

    def _sandbox_id(self, request: web.Request) -> str | None:
        named = request.match_info.get("sandbox")
        if named is None:
            return None
        try:
            return self._lifecycle.sandbox(named).id
        except ApiError:
            return named


def route_name(request: web.Request) -> str:
    """The API's route names are short (`create`, `mint`); the toolbox's are its paths
    (`process/execute`)."""
    resource = request.match_info.route.resource
    if resource is None:
        return "unknown"
    if resource.canonical.startswith("/toolbox/{sandbox}/"):
        return resource.canonical.removeprefix("/toolbox/{sandbox}/")
    return resource.name or resource.canonical


def _is_toolbox(request: web.Request) -> bool:
    return request.path.startswith("/toolbox/")


def _key(request: web.Request) -> str:
    """The bearer key that came with a call; empty when none did."""
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def _cut(request: web.Request) -> None:
    """Close the connection; whatever is written to it afterwards goes nowhere."""
    if request.transport is not None:
        request.transport.abort()
