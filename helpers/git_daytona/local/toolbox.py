"""The toolbox API of the embedded Daytona: what happens inside a sandbox over HTTP, mounted under ``/toolbox/{sandbox}``."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from git_daytona.local import download, files, info, search, upload
from git_daytona.local.call import Call, Handler, envelope
from git_daytona.local.execute import Commands
from git_daytona.local.model import ApiError, Isolation, Registry
from git_daytona.local.ptys import Ptys
from git_daytona.local.sessions import Sessions

NOT_RUNNING = "bad request: failed to resolve container IP after 3 attempts: no IP address found. Is the Sandbox started?"
"""Daytona's own words for a sandbox that is not started; clients look for them (daytonaio/daytona issue 4142)."""


def routes(registry: Registry, isolation: Isolation) -> list[web.RouteDef]:
    """The routes of the toolbox API, below the path ``/toolbox/{sandbox}``.

    Keys are checked by the application they are added to. An unknown sandbox raises ApiError(404), one that is not started
    ApiError(400), for the application to answer, as Daytona's proxy does; errors inside a sandbox are answered here, in the
    envelope of Daytona's daemon. Every call notes activity when it comes and when it is answered.
    """
    commands = Commands()
    sessions = Sessions(commands.shell)
    ptys = Ptys(commands.shell)
    table: list[tuple[str, str, Handler]] = [
        ("GET", "/work-dir", info.home),
        ("GET", "/user-home-dir", info.home),
        ("GET", "/version", info.server_version),
        ("GET", "/system/metrics", info.metrics),
        ("GET", "/files", files.list_files),
        ("DELETE", "/files", files.delete),
        ("GET", "/files/info", files.info),
        ("POST", "/files/folder", files.make_folder),
        ("POST", "/files/move", files.move),
        ("POST", "/files/permissions", files.permissions),
        ("GET", "/files/find", search.find),
        ("GET", "/files/search", search.search),
        ("POST", "/files/replace", search.replace),
        ("POST", "/files/upload", upload.upload),
        ("POST", "/files/upload-v2", upload.upload),
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
        ("GET", "/process/pty/create-connect", ptys.create_connect),
        ("GET", "/process/pty/{pty}", ptys.get),
        ("DELETE", "/process/pty/{pty}", ptys.delete),
        ("GET", "/process/pty/{pty}/connect", ptys.connect),
        ("POST", "/process/pty/{pty}/resize", ptys.resize),
        ("*", "/{rest:.*}", not_implemented),
    ]
    return [
        web.route(method, "/toolbox/{sandbox}" + path, _entrance(handler, registry, isolation)) for method, path, handler in table
    ]


async def not_implemented(call: Call) -> web.Response:
    """What the embedded Daytona does not have (LSP, computer use, interpreter, …)."""
    raise ApiError(501, f"{call.request.method} {call.request.path}: the embedded Daytona does not have this")


def _entrance(handler: Handler, registry: Registry, isolation: Isolation) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def enter(request: web.Request) -> web.StreamResponse:
        sandbox = registry.sandbox(request.match_info["sandbox"])
        if sandbox.state != "started":
            raise ApiError(400, NOT_RUNNING, code="SANDBOX_NOT_RUNNING")
        registry.touch(sandbox)
        try:
            return await handler(Call(request, sandbox, isolation))
        except ApiError as error:
            return web.json_response(envelope(error, request), status=error.status, headers=error.headers)
        finally:
            registry.touch(sandbox)

    enter.__name__ = handler.__name__
    return enter
