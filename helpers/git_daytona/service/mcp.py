"""``git daytona mcp``: the tools for any agent that speaks the Model Context Protocol
(https://modelcontextprotocol.io/specification).

The protocol is the official SDK's: its newest revision, and older ones with older clients. A call
goes the way of a plugin's, through the Dispatcher, so that its checks, limits and API calls are the
same.
"""

import asyncio
import contextlib
import itertools
import os
import re
import secrets
import signal
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import mcp_types as protocol
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

from git_daytona import __version__
from git_daytona.base import log, run
from git_daytona.base.errors import GitDaytonaError, NotFound
from git_daytona.git.refs import PROJECT
from git_daytona.git.repository import find
from git_daytona.service.dispatcher import Dispatcher
from git_daytona.service.jsonrpc import Refused, Request, SilentPeer, word
from git_daytona.service.serve import ENDED_BY
from git_daytona.service.toasts import described
from git_daytona.tools import git_sync
from git_daytona.tools.context import Tool
from git_daytona.tools.registry import TOOLS

QUIET_SECONDS = 15.0
"""Without a call for so long, a turn counts as ended: the protocol does not say when one is."""
ROOTS_SECONDS = 10.0
"""How long a client has to name its roots."""
LINE_LENGTH = 200
"""Characters of a command's last line that are passed on while it runs."""

_NAMES = {"gitSync": "sync", "getPreviewURL": "preview"}
_LEFT_OUT = {"ls", "multiedit"}
_BY_HOOK = {"type": "string", "description": "Set by a hook: leave it out."}
_READING = {"read", "glob", "grep", "list", "diff", "log"}

INSTRUCTIONS = f"""These tools act in a sandbox of this session, a Linux machine apart from the \
user's. The project lies there in {PROJECT}, a git repository whose branch began at the user's \
HEAD. Use them, and no others, for commands and files of the project: they cannot reach the user's \
machine. Relative paths are relative to the project; paths of the project on the user's machine \
mean the same place there.

The sandbox is made at the first call. Your work comes back as commits on a branch in the user's \
repository. Call `sync` before you say that something is done, and tell the user what it says. \
Commits that you make yourself are kept as they are. Do not push, and add no remotes. Start \
servers by `bash` with `background: true`, and give the user the link that `preview` makes."""


def tools() -> tuple[Tool, ...]:
    """The tools by the names that they have here, in their descriptions, too."""

    def named(tool: Tool) -> Tool:
        told = re.sub("|".join(_NAMES), lambda found: _NAMES[found[0]], tool.description)
        return replace(tool, name=_NAMES.get(tool.name, tool.name), description=told)

    kept = (tool for tool in TOOLS if tool.name not in _LEFT_OUT)
    return (*map(named, kept), git_sync.diff, git_sync.log)


def serve(directory: Path | None, session: str | None, *, hooked: bool = False) -> int:
    """Serve standard input and output until the end of input or a signal; then bring the work back.

    ``directory`` is where the repository is looked for, by default in the client's first root, else
    in the working directory. ``session`` names the session of every run, an existing one or a new
    one; by default each run has its own. With ``hooked`` each call names it, by the hook of an
    agent, and is refused without: then the hook did not run. Returns the exit status.
    """
    log.to_file()
    warnings.simplefilter("ignore", MCPDeprecationWarning)  # older clients' roots
    served = _Session(directory, session, hooked)
    for number in ENDED_BY:
        signal.signal(number, lambda came, _frame: served.leave(came))
    asyncio.run(served.run())
    if served.dispatcher is not None:
        served.dispatcher.close()
    return 0


@dataclass
class _Call:
    """A call that is not answered yet. Belongs to the event loop's thread."""

    context: "ServerRequestContext[Any]"
    answer: "asyncio.Future[Mapping[str, Any]]"
    steps: int = 0


class _Session(SilentPeer):
    """A server's one session: to the Dispatcher it is the client."""

    def __init__(self, directory: Path | None, name: str | None, hooked: bool) -> None:
        super().__init__(lambda _line: None)
        self._directory, self._name, self._hooked = directory, name, hooked
        self._begun: set[str] = set()
        self._turns: set[str] = set()
        """The sessions that were called since their turns ended last."""
        self._id = f"mcp-{secrets.token_hex(8)}"
        self._tools = {tool.name: tool for tool in tools()}
        self.dispatcher: Dispatcher | None = None
        self._numbers = itertools.count(1)
        self._calls: dict[int, _Call] = {}
        self._warnings: list[str] = []
        self._quiet: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Serve until the end of input."""
        self._loop, self._making = asyncio.get_running_loop(), asyncio.Lock()
        server: Server[Any] = Server(
            "git-daytona",
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=self._list,
            on_call_tool=self._called,
        )
        async with stdio_server() as (source, sink):
            await server.run(source, sink, server.create_initialization_options())

    def leave(self, number: int) -> None:
        """End at a signal, at once: clients send SIGKILL two seconds after it. Another process
        brings the work back."""
        log.logger.info("mcp: ending: %s", signal.Signals(number).name)
        if self.dispatcher is not None:
            words = ("-EP", "-X", "utf8", "-m", "git_daytona", "git-daytona", "recover")
            place = self.dispatcher.workspace.directory
            run.leave_running((sys.executable, *words), env=os.environ, cwd=place)
        os._exit(0)

    # -- the client --------------------------------------------------------------------------------

    async def _list(self, _context: Any, _params: Any) -> protocol.ListToolsResult:
        return protocol.ListToolsResult(tools=[*map(self._declared, self._tools.values())])

    def _declared(self, tool: Tool) -> protocol.Tool:
        schema = tool.parameters
        if self._hooked:  # clients check what a hook adds, too
            schema["properties"]["session"] = _BY_HOOK
        return protocol.Tool(
            name=tool.name,
            description=tool.description,
            input_schema=schema,
            annotations=protocol.ToolAnnotations(read_only_hint=tool.name in _READING),
        )

    async def _called(
        self, context: "ServerRequestContext[Any]", params: protocol.CallToolRequestParams
    ) -> protocol.CallToolResult:
        if params.name not in self._tools:
            raise MCPError(protocol.INVALID_PARAMS, f"there is no tool '{params.name[:80]}'")
        call, number = _Call(context, self._loop.create_future()), next(self._numbers)
        self._calls[number] = call
        self._turn_goes_on()
        try:
            dispatcher = await self._ready(context)
            arguments = dict(params.arguments or {})
            if self._hooked:
                self._id = _named(arguments)
                del arguments["session"]
            self._begin(dispatcher, context)
            self._turns.add(self._id)
            words = {"name": params.name, "arguments": arguments, "sessionID": self._id}
            dispatcher.tool(self._new_request("tool", number, **words))
            return self._result(await call.answer)
        except GitDaytonaError as problem:
            return _failed(described(problem))
        except Refused as refused:
            return _failed(refused.message)
        except asyncio.CancelledError:
            if self.dispatcher is not None:
                self.dispatcher.cancel(self._new_request("cancel", id=number))
            raise
        finally:
            del self._calls[number]
            self._turn_goes_on()

    async def _ready(self, context: "ServerRequestContext[Any]") -> Dispatcher:
        async with self._making:
            if self.dispatcher is None:
                place = self._directory or await _root(context) or Path.cwd()
                self.dispatcher = await asyncio.to_thread(self._make, place)
            return self.dispatcher

    def _begin(self, dispatcher: Dispatcher, context: "ServerRequestContext[Any]") -> None:
        """Say at the first call of a session that there is one."""
        if self._id not in self._begun:
            self._begun.add(self._id)
            client = context.session.client_params
            info = {"id": self._id, "title": client.client_info.name if client else ""}
            created = self._new_request("event", type="session.created", properties={"info": info})
            dispatcher.event(created)

    def _make(self, place: Path) -> Dispatcher:
        repository = find(place)
        worktree = repository.worktree if repository and repository.worktree else place
        made = Dispatcher(self, self._tools, place, str(worktree), None, {})
        if self._name:
            self._id = _session_id(made, self._name)
        made.workspace.begin()
        return made

    def _turn_goes_on(self) -> None:
        if self._quiet is not None:
            self._quiet.cancel()
        if not self._calls:
            self._quiet = self._loop.call_later(QUIET_SECONDS, self._turn_ended)

    def _turn_ended(self) -> None:
        while self.dispatcher is not None and self._turns:
            session = {"sessionID": self._turns.pop()}
            ended = self._new_request("event", type="session.idle", properties=session)
            self.dispatcher.event(ended)

    def _result(self, message: Mapping[str, Any]) -> protocol.CallToolResult:
        warned, self._warnings = self._warnings, []
        if "error" in message:
            return _failed("\n\n".join([*warned, message["error"]["message"]]))
        result = message["result"]
        text = "\n\n".join(filter(None, [result["place"], *warned, result["output"]]))
        files = [_content(each) for each in result["attachments"]]
        return protocol.CallToolResult(content=[protocol.TextContent(text=text), *files])

    # -- the Dispatcher, in its threads ------------------------------------------------------------

    def _new_request(self, method: str, number: int | None = None, **params: Any) -> Request:
        return Request(self, number, method, params, wants_answer=number is not None)

    def write(self, message: Mapping[str, Any]) -> None:
        """Give a call its answer."""

        def answer() -> None:
            call = self._calls.get(message["id"])
            if call is not None and not call.answer.done():
                call.answer.set_result(message)

        with contextlib.suppress(RuntimeError):  # the loop has ended, and with it who asked
            self._loop.call_soon_threadsafe(answer)

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Pass on what a command prints, and keep for the next answer what the user should know:
        the protocol has no other way to people."""
        if method == "toast" and params["variant"] in ("warning", "error"):
            self._warnings.append(f"Tell the user: {params['title']}: {params['message']}")
        elif method == "progress":
            lines = str(params["metadata"].get("output", "")).strip().split("\n")
            with contextlib.suppress(RuntimeError):
                asyncio.run_coroutine_threadsafe(
                    self._progress(params["call"], lines[-1][:LINE_LENGTH]), self._loop
                )

    async def _progress(self, number: int, line: str) -> None:
        if call := self._calls.get(number):
            call.steps += 1
            await call.context.session.report_progress(call.steps, None, line)


async def _root(context: "ServerRequestContext[Any]") -> Path | None:
    """The first directory among a client's roots. The newest protocol has no roots any more."""
    session = context.session
    has_roots = getattr(session.client_capabilities, "roots", None) is not None
    if not has_roots or not session.can_send_request:
        return None
    try:
        async with asyncio.timeout(ROOTS_SECONDS):
            roots = (await session.list_roots()).roots
    except (MCPError, TimeoutError):
        return None
    urls = (urlsplit(str(root.uri)) for root in roots)
    paths = (Path(unquote(url.path)) for url in urls if url.scheme == "file")
    return next((path for path in paths if path.is_absolute() and path.is_dir()), None)


def _session_id(dispatcher: Dispatcher, name: str) -> str:
    """The id of the session that a user means. Raises NotFound if it cannot be a new one's."""
    try:
        return dispatcher.workspace.coordinator().find(name).id
    except NotFound:
        if re.fullmatch(r"(sandbox-|opencode/)?[0-9]+|[^\w]*|.{100,}", name):
            raise
        return name


def _named(arguments: Mapping[str, Any]) -> str:
    """The session that a hook has put into a call. Raises Refused."""
    if (session := word(arguments, "session")) is None:
        raise Refused(
            protocol.INVALID_PARAMS,
            "the agent's hook did not run, so this call was not made: "
            "the user should run 'git daytona doctor --agent NAME'",
        )
    return session


def _failed(text: str) -> protocol.CallToolResult:
    return protocol.CallToolResult(content=[protocol.TextContent(text=text)], is_error=True)


def _content(attachment: Mapping[str, Any]) -> Any:
    """An attachment, ``{mime, url: "data:…;base64,…"}``, as the protocol has it."""
    mime, data = attachment["mime"], attachment["url"].partition(",")[2]
    if mime.startswith("image/"):
        return protocol.ImageContent(data=data, mime_type=mime)
    return protocol.EmbeddedResource(
        resource=protocol.BlobResourceContents(uri="attachment:", mime_type=mime, blob=data)
    )
