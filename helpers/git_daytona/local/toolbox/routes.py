"""The toolbox API of the embedded Daytona: what happens inside a sandbox over HTTP, mounted under
``/toolbox/{sandbox}``."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from git_daytona.local.core.model import ApiError, Isolation, Registry
from git_daytona.local.core.profile import Profile
from git_daytona.local.core.refusals import Kind, Refusals
from git_daytona.local.toolbox import download, files, git_calls, info, listeners, search, upload
from git_daytona.local.toolbox.call import Call, Handler
from git_daytona.local.toolbox.execute import Commands
from git_daytona.local.toolbox.ptys import Ptys
from git_daytona.local.toolbox.sessions import Sessions

NOT_RUNNING = (
    "failed to resolve container IP after 3 attempts: no IP address found. Is the Sandbox started?"
)
"""Daytona's own words for a sandbox that is not started; clients look for them (daytonaio/daytona
issue 4142)."""


def routes(registry: Registry, isolation: Isolation, profile: Profile) -> list[web.RouteDef]:
    """The routes of the toolbox API, below the path ``/toolbox/{sandbox}``.

    Keys are checked by the application they are added to. An unknown sandbox raises ApiError(404),
    one that is not started ApiError(400), for the application to answer, as Daytona's proxy does;
    errors inside a sandbox are answered here, as Daytona's daemon does. Every call notes activity
    when it comes and when it is answered.
    """
    commands = Commands()
    sessions = Sessions(commands.shell)
    ptys = Ptys(commands.shell)
    table: list[tuple[str, str, Handler]] = [
        ("GET", "/project-dir", info.home),
        ("GET", "/work-dir", info.home),
        ("GET", "/user-home-dir", info.home),
        ("GET", "/version", info.server_version),
        ("GET", "/files", files.list_files),
        ("GET", "/files/", files.list_files),
        ("DELETE", "/files", files.delete),
        ("DELETE", "/files/", files.delete),
        ("GET", "/files/info", files.info),
        ("POST", "/files/folder", files.make_folder),
        ("POST", "/files/move", files.move),
        ("POST", "/files/permissions", files.permissions),
        ("GET", "/files/find", search.find),
        ("GET", "/files/search", search.search),
        ("POST", "/files/replace", search.replace),
        ("POST", "/files/upload", upload.upload),
        ("POST", "/files/bulk-upload", upload.bulk_upload),
        ("GET", "/files/download", download.download),
        ("POST", "/files/bulk-download", download.bulk_download),
        ("POST", "/process/execute", commands.execute),
        ("POST", "/process/code-run", commands.code_run),
        ("POST", "/process/session", sessions.create),
        ("GET", "/process/session", sessions.list_all),
        ("GET", "/process/session/entrypoint", sessions.entrypoint),
        ("GET", "/process/session/entrypoint/logs", sessions.entrypoint_logs),
        ("GET", "/process/session/{session}", sessions.get),
        ("DELETE", "/process/session/{session}", sessions.delete),
        ("POST", "/process/session/{session}/exec", sessions.execute),
        ("GET", "/process/session/{session}/command/{command}", sessions.command),
        ("GET", "/process/session/{session}/command/{command}/logs", sessions.logs),
        ("POST", "/process/session/{session}/command/{command}/input", sessions.send_input),
        ("POST", "/process/pty", ptys.create),
        ("GET", "/process/pty", ptys.list_all),
        *newer(profile, [("GET", "/process/pty/create-connect", ptys.create_connect)]),
        ("GET", "/process/pty/{pty}", ptys.get),
        ("DELETE", "/process/pty/{pty}", ptys.delete),
        ("GET", "/process/pty/{pty}/connect", ptys.connect),
        ("POST", "/process/pty/{pty}/resize", ptys.resize),
        ("GET", "/port", listeners.Listeners().list_all),
        ("GET", "/port/{port}/in-use", listeners.in_use),
        *git_calls.CALLS,
        *newer(
            profile,
            [
                ("GET", "/system/metrics", info.metrics),
                ("POST", "/files/upload-v2", upload.upload),
                *git_calls.NEWER_CALLS,
            ],
        ),
        ("*", "/proxy/{port}", listeners.forward),
        ("*", "/proxy/{port}/{rest:.*}", listeners.forward),
        *(
            ("*", f"/{part}/{{rest:.*}}", not_implemented)
            for part in ("lsp", "computeruse", "process/interpreter")
        ),
        ("*", "/{rest:.*}", unknown),
    ]
    enter = _Entrance(registry, isolation, profile)
    return [
        web.route(method, "/toolbox/{sandbox}" + path, enter(handler, _kind(path)))
        for method, path, handler in table
    ]


def newer(
    profile: Profile, calls: list[tuple[str, str, Handler]]
) -> list[tuple[str, str, Handler]]:
    """Calls that only newer daemons know."""
    return calls if profile.newer_calls else []


async def not_implemented(call: Call) -> web.Response:
    """What Daytona has and the embedded one does not (LSP, computer use, interpreter)."""
    raise ApiError(
        501, f"{call.request.method} {call.request.path}: the embedded Daytona does not have this"
    )


async def unknown(call: Call) -> web.Response:
    """What Daytona does not have, either: its HTTP framework answers."""
    return web.Response(status=404, text="404 page not found")


def _kind(path: str) -> Kind:
    """Whose errors a call has. The bulk calls say why in their answers."""
    if path.startswith("/files") and "bulk" not in path:
        return Kind.FILES
    return Kind.TERMINALS if path.startswith("/process/pty") else Kind.OTHER


class _Entrance:
    """Gives a handler its call, and answers what it refuses."""

    def __init__(self, registry: Registry, isolation: Isolation, profile: Profile):
        self._registry = registry
        self._isolation = isolation
        self._profile = profile
        self._refusals = Refusals(profile)

    def __call__(
        self, handler: Handler, kind: Kind
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def enter(request: web.Request) -> web.StreamResponse:
            sandbox = self._registry.sandbox(request.match_info["sandbox"])
            if sandbox.state != "started":
                raise ApiError(400, NOT_RUNNING)
            self._registry.touch(sandbox)
            try:
                return await handler(
                    Call(request, sandbox, self._isolation, self._profile, self._refusals)
                )
            except ApiError as error:
                return self._refusals.daemon(request, error, kind)
            finally:
                self._registry.touch(sandbox)

        enter.__name__ = handler.__name__
        return enter
