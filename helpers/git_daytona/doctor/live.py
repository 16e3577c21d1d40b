"""Where the agent really acts: the user's own OpenCode is run once, with their configuration, in a
scratch project, with a scripted model and an embedded Daytona in place of the real ones."""

import contextlib
import json
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from git_daytona.base.errors import MissingProgram, TimedOut
from git_daytona.base.progress import Progress
from git_daytona.base.run import run
from git_daytona.doctor import machine
from git_daytona.doctor.findings import Finding, fail, ok
from git_daytona.git import environment
from git_daytona.git.repository import Repository, discover, failure
from git_daytona.opencode import registration
from git_daytona.service import host_tools
from git_daytona.tools.registry import TOOLS

RUN_SECONDS = 120.0
"""How long OpenCode may take; three seconds is usual."""
SETTLE_SECONDS = 30.0
"""How long the plugin's service may go on after it."""
POLL_SECONDS = 0.05
REQUEST_BYTES = 16 * 1024 * 1024
KEPT = ("DAYTONA_SERVICE_BINARY", "DAYTONA_SSH_BINARY", host_tools.VARIABLE)
"""Of our variables, those that say what runs; the others would lead to the user's account."""
RENAMED = {"shell", "patch"}
"""What two of our tools are called in OpenCode 2."""
PROVIDER, BRANCH = "git-daytona-doctor", "opencode/1"
AGAIN = "see what the rows 'plugin' and 'confined' say, then: git daytona install"
STOP = f"run no agent here before that is mended; {AGAIN}"


@dataclass(frozen=True)
class Embedded:
    """An embedded Daytona that runs: what leads to it, and how many sandboxes it has."""

    variables: Mapping[str, str]
    sandboxes: Callable[[], int]


Daytona = Callable[[Path], AbstractContextManager[Embedded]]
"""Starts an embedded Daytona in a folder."""


def look(worktree: Path, start: Path, daytona: Daytona) -> Finding:
    """Run the OpenCode on PATH as it is set up for a worktree. Nothing of it is left."""
    program = machine.find_opencode()
    if program is None:
        return fail("OpenCode is not on PATH", machine.NO_OPENCODE)
    with (
        Progress() as progress,
        tempfile.TemporaryDirectory(prefix="git-daytona-live-", ignore_cleanup_errors=True) as name,
    ):
        progress.quietly("OpenCode is tried in a scratch project")
        folder = Path(name).resolve()
        plan = Plan(folder / "project")
        with daytona(folder / "daytona") as embedded, _model(plan) as port:
            repository = _make(plan, port, _set_up(worktree, start))
            done = _run(program, plan, folder, embedded.variables)
            _settle(folder / "data/opencode/log/daytona.log")
            came = repository.git("cat-file", "-e", f"{BRANCH}:{plan.marker}", check=False)
            done.returned = came.status == 0
            done.sandboxes = embedded.sandboxes()
            done.acted_here = any(plan.project.rglob(plan.marker)) or (start / plan.marker).exists()
            return verdict(plan, done)


# -- the model -------------------------------------------------------------------------------------


@dataclass
class Plan:
    """What the model asks for: a command that makes a file, then the content of one that is only on
    this machine. And what it has seen meanwhile."""

    project: Path
    marker: str = field(default_factory=lambda: f"made-{secrets.token_hex(8)}")
    canary: str = field(default_factory=lambda: secrets.token_hex(16))
    offered: set[str] = field(default_factory=set)
    results: list[str] = field(default_factory=list)
    leaked: bool = False

    @property
    def secret(self) -> Path:
        """The file with the canary. It is in no commit, so it is in no sandbox."""
        return self.project / "secret"

    @property
    def shell(self) -> str | None:
        """The tool that runs commands, in OpenCode 1 or 2; None where there is none."""
        return next((name for name in ("shell", "bash") if name in self.offered), None)

    def answer(self, raw: bytes) -> str | tuple[str, dict[str, str]]:
        """A text, or a tool and its arguments."""
        self.leaked |= self.canary.encode() in raw
        body = json.loads(raw)
        names = {each["function"]["name"] for each in body.get("tools") or ()}
        if not names:
            return "A look at where the agent acts"  # it asks for a title
        self.offered |= names
        self.results = [_text(each) for each in body["messages"] if each["role"] == "tool"]
        if not self.results and self.shell:
            command = f"echo made > {self.marker} && pwd && uname -n"
            return self.shell, {"command": command, "description": "Says where it runs"}
        if len(self.results) == 1 and "read" in names:
            return "read", {"path" if self.shell == "shell" else "filePath": str(self.secret)}
        return "done"


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(it.get("text", "") for it in content)


class _Handler(BaseHTTPRequestHandler):
    """The stream of OpenAI's chat completions."""

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        length = min(int(self.headers.get("content-length") or 0), REQUEST_BYTES)
        plan: Plan = self.server.plan  # type: ignore[attr-defined]
        answer = plan.answer(self.rfile.read(length))
        end = "stop"
        delta: dict[str, Any] = {"role": "assistant", "content": answer}
        if not isinstance(answer, str):
            function = {"name": answer[0], "arguments": json.dumps(answer[1])}
            call = {"index": 0, "id": secrets.token_hex(8), "type": "function"}
            calls = [call | {"function": function}]
            end, delta = "tool_calls", {"role": "assistant", "tool_calls": calls}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for part, reason in ((delta, None), ({}, end)):
            choice = {"index": 0, "delta": part, "finish_reason": reason}
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
            self._send(json.dumps(chunk | {"choices": [choice]}))
        self._send("[DONE]")

    def _send(self, data: str) -> None:
        self.wfile.write(f"data: {data}\n\n".encode())


class _Server(ThreadingHTTPServer):
    plan: Plan

    def handle_error(self, *_: object) -> None:
        """OpenCode went away, or asked for what this model does not know."""


@contextlib.contextmanager
def _model(plan: Plan) -> Iterator[int]:
    """The scripted model on loopback; its port."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.plan = plan
        threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


# -- the project -----------------------------------------------------------------------------------


def _set_up(worktree: Path, start: Path) -> tuple[list[str], str | None]:
    """What a project's own configuration says of the plugin: what names it or switches it off, and
    the permission rules beside it. That of all projects holds in the scratch project by itself."""
    shared = registration.usable(None, start)
    everywhere = any(it.own() for it in shared)
    plugins, rules = [], None
    for config in registration.usable(worktree, start):
        for spec in () if config in shared else config.specs():
            if registration.is_ours(spec.text) and not everywhere:
                plugins.append(config.place(spec.text).as_uri())
                if found := config.document.root.item("permission"):
                    rules = config.document.source(found.value)
            elif registration.is_off(spec.text):
                plugins.append(spec.text)
    return plugins, rules


def _make(plan: Plan, port: int, set_up: tuple[list[str], str | None]) -> Repository:
    plugins, rules = set_up
    options = {"baseURL": f"http://127.0.0.1:{port}/v1", "apiKey": "none"}
    models = {"m": {"tool_call": True, "limit": {"context": 100_000, "output": 10_000}}}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": models}
    config: dict[str, Any] = {
        "plugin": plugins,
        "provider": {PROVIDER: provider},
        "model": f"{PROVIDER}/m",
        "small_model": f"{PROVIDER}/m",
        "share": "disabled",
        **dict.fromkeys(("autoupdate", "snapshot", "lsp", "formatter"), False),
    }
    text = json.dumps(config)
    if rules is not None:
        text = f'{text[:-1]}, "permission": {rules}\n}}'
    plan.project.mkdir()
    _git(plan, "init", "-q", "--template=")
    (plan.project / "README").write_text("A scratch project of git daytona doctor.\n")
    _git(plan, "add", "README")
    _git(plan, "commit", "-q", "-m", "Begin")
    _git(plan, "config", "daytona.branchPrefix", BRANCH.partition("/")[0])
    _git(plan, "config", "daytona.syncOnIdle", "true")
    (plan.project / "opencode.jsonc").write_text(text)  # the rules may have comments
    plan.secret.write_text(plan.canary + "\n")
    return discover(plan.project)


def _git(plan: Plan, *words: str) -> None:
    who = ("user.name=git daytona doctor", "user.email=doctor@git-daytona.invalid")
    settings = environment.config_arguments((*environment.LOCAL_CONFIG, *who))
    argv = ("git", "-C", str(plan.project), *settings, *words)
    result = run(argv, env=environment.base(), timeout=machine.PROGRAM_SECONDS)
    if result.status != 0:
        raise failure(result, f"git {words[0]} failed")


# -- the run ---------------------------------------------------------------------------------------


@dataclass
class Done:
    """How it ended: what OpenCode said last, and where the command acted."""

    version: str
    late: bool = False
    said: str = ""
    sandboxes: int = 0
    returned: bool = False
    """The file is on the session's branch."""
    acted_here: bool = False


def _run(program: str, plan: Plan, folder: Path, variables: Mapping[str, str]) -> Done:
    done = Done("".join(machine.first_line(program, "--version").split()[-1:]))
    major = (machine.version_in(done.version) or (1, 0))[0]
    alone = ("--standalone",) if major >= 2 else ()
    words = ("--model", f"{PROVIDER}/m", "--title", "doctor", "Where do you act?")
    local = ",".join(filter(None, (os.environ.get("NO_PROXY"), "127.0.0.1")))
    own = {name: os.environ[name] for name in KEPT if name in os.environ}
    scratch = {f"XDG_{it.upper()}_HOME": str(folder / it) for it in ("data", "state", "cache")}
    scratch["TMPDIR"] = str(folder)  # it leaves libraries there
    quiet = dict.fromkeys(("OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_AUTOUPDATE"), "1")
    env = environment.base() | own | scratch | quiet | dict(variables)
    env |= {"PWD": str(plan.project), "NO_PROXY": local, "no_proxy": local}
    try:
        argv = (program, "run", *alone, *words)
        result = run(argv, env=env, cwd=plan.project, timeout=RUN_SECONDS)
        last = list(filter(None, result.complaint.split("\n")))[-1:]
        done.said = ": ".join((f"status {result.status}", *last))
    except TimedOut:
        done.late = True
    except MissingProgram as problem:
        done.said = problem.message
    return done


def _settle(log: Path) -> None:
    """Wait until each of the plugin's services has brought back its work, and ended."""
    until = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < until and (lines := _lines(log)):
        pids = {line.partition("[")[2].partition("]")[0] for line in lines}
        if sum(line.endswith("service: ended") for line in lines) >= len(pids):
            return
        time.sleep(POLL_SECONDS)


def _lines(log: Path) -> list[str]:
    text = log.read_text(errors="replace") if log.exists() else ""
    return [line for line in text.splitlines() if not line.startswith(" ")]


def verdict(plan: Plan, done: Done) -> Finding:
    """What was seen, the worst of it first."""
    which = f"OpenCode {done.version}".rstrip()
    if done.acted_here:
        return fail(f"{which} acted on this machine: its '{plan.shell}' made a file here", STOP)
    if plan.leaked:
        return fail(f"{which} acted on this machine: it read a file for the model", STOP)
    if done.late:
        text = f"{which} did not finish within {RUN_SECONDS:.0f} seconds"
        return fail(text, "see what keeps it, in a scratch project: opencode run hello")
    if not plan.offered:
        return fail(f"{which} ended without asking the model ({done.said})", AGAIN)
    if other := _strange(plan):
        text = f"{which} offers '{other}', which may act on this machine"
        return fail(text, "update git-daytona, or take away what brings it")
    if plan.shell is None:
        text = f"the plugin is not in charge of {which}, whose own shell is forbidden"
        return fail(f"{text}; nothing acted", AGAIN)
    if not done.sandboxes:
        words = " ".join(plan.results[:1])[:200]
        return fail(f"no tool of {which} acted, neither in a sandbox nor here: {words}", AGAIN)
    if not done.returned:
        text = f"{which} acted in a sandbox, but its work did not come back on '{BRANCH}'"
        return fail(text, "see whether a session's does: git daytona sync")
    return ok(f"{which} acted in a sandbox, its work came back, and nothing happened here")


def _strange(plan: Plan) -> str | None:
    """A tool that is offered and is neither ours, harmless, nor allowed by the user.

    OpenCode 1 offers what other plugins bring; there, each call is refused instead.
    """
    if plan.shell == "bash":
        return None
    others = sorted(plan.offered - {tool.name for tool in TOOLS} - RENAMED)
    allowed, servers = host_tools.opted_in(plan.project), _servers(plan.project)
    for name in others:
        if host_tools.refusal(name, builtin=(), servers=servers, allowed=allowed):
            return name
    return None


def _servers(project: Path) -> list[str]:
    """The names of the user's MCP servers, whose tools run where the user put them."""
    places = registration.global_files()
    places += [it.path for it in registration.usable(None, project)]
    found = []
    for path in dict.fromkeys(places):
        if (config := registration.read(path)) and (mcp := config.document.root.item("mcp")):
            found += [item.key for item in mcp.value.items if item.key]
    return found
