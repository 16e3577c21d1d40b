"""Which files of an agent's configuration have entries of ours, and which: its hooks, our MCP
server, and what forbids its own tools. With a worktree those of that project, else the user's."""

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from git_daytona.agents import command_line, table
from git_daytona.agents.entries import Entry, Kind
from git_daytona.agents.in_json import Json
from git_daytona.agents.in_toml import Toml
from git_daytona.agents.in_yaml import Yaml
from git_daytona.agents.table import SERVER, Agent
from git_daytona.base import paths
from git_daytona.base.errors import UsageError
from git_daytona.settings.settings import VARIABLES

HOOK_SECONDS = 60
"""How long an agent waits for a hook before a tool; it answers in 20 seconds at the latest."""
EVENT_SECONDS = 600
"""How long it waits for another hook: a turn's work comes back."""

_ENVIRONMENT = (
    *(each.name for each in VARIABLES),
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
)


@dataclass(frozen=True)
class Place:
    """A file, its format, our entries in it, and what it is made from where there is none."""

    path: Path
    kind: type[Kind]
    entries: Sequence[Entry]
    fresh: str | None = None

    @property
    def beginning(self) -> str:
        return self.kind.FRESH if self.fresh is None else self.fresh


def places(agent: Agent, worktree: Path | None) -> list[Place]:
    """Return the files of an agent. Raises UsageError where it has none of that scope."""
    return _PLACES[agent.name](agent, worktree)


def also_read(agent: Agent, worktree: Path) -> list[Place]:
    """Return files of a project that count, too, and come with the repository."""
    shared = Place(worktree / ".claude" / "settings.json", Json, ())
    return [shared] if agent is table.CLAUDE else []


def pre_tool(agent: Agent) -> str:
    """The shell command of the hook before a tool. What fails without an answer denies the call:
    exit status 2 with a reason on standard error is what all agents take for that."""
    return _line(
        f'"$0" hook pre-tool --agent {agent.name} || {{ [ $? = 2 ] '
        '|| echo "git-daytona: the hook failed, so the call is denied" >&2; exit 2; }'
    )


def event(agent: Agent, ours: str) -> str:
    """The shell command of another hook: never exit status 2, which keeps a turn from ending."""
    return _line(f'"$0" hook {ours} --agent {agent.name} || exit 1')


def _line(script: str) -> str:
    """A command line for whatever shell the agent starts hooks with, fish, say."""
    return f"sh -c '{script}' {shlex.quote(command_line.program())}"


def _hooks(agent: Agent, shape: Callable[[str, int], Any]) -> list[Entry]:
    hooks = {agent.before: shape(pre_tool(agent), HOOK_SECONDS)}
    for name, ours in agent.events.items():
        hooks[name] = shape(event(agent, ours), EVENT_SECONDS)
    return [Entry(("hooks", name), each, listed=True) for name, each in hooks.items()]


def _server(agent: Agent, **more: Any) -> dict[str, Any]:
    hooked = ["--hooked"] if agent.rewritten is not None else []
    return {**more, "command": command_line.program(), "args": ["mcp", *hooked]}


def _own_tools(agent: Agent, *keys: str) -> list[Entry]:
    """A rule for each of its own tools for files. Its shell stays: the hook redirects that."""
    names = (name for own in agent.files.values() for name in own.split())
    # Gemini CLI takes such a rule for tools of servers, too
    return [Entry(keys, name, listed=True) for name in names if name not in table.TOOLS]


def _hook(command: str, seconds: int, **more: object) -> dict[str, Any]:
    return {"type": "command", "command": command, "timeout": seconds, **more}


def _grouped(command: str, seconds: int, **more: object) -> dict[str, Any]:
    return {"hooks": [_hook(command, seconds, **more)]}


def _claude(agent: Agent, worktree: Path | None) -> list[Place]:
    own = os.environ.get("CLAUDE_CONFIG_DIR")
    folder = Path(own) if own else paths.home() / ".claude"
    settings = [*_hooks(agent, _grouped), *_own_tools(agent, "permissions", "deny")]
    servers = [Entry(("mcpServers", SERVER), _server(agent, type="stdio"))]
    if worktree is None:
        state = (folder if own else paths.home()) / ".claude.json"
        return [Place(folder / "settings.json", Json, settings), Place(state, Json, servers)]
    settings += [
        Entry(("enabledMcpjsonServers",), SERVER, listed=True),
        Entry(("disableAllHooks",), False),  # the repository's own settings might say otherwise
    ]
    return [
        Place(worktree / ".claude" / "settings.local.json", Json, settings),
        Place(worktree / ".mcp.json", Json, servers),
    ]


def _codex(agent: Agent, worktree: Path | None) -> list[Place]:
    own = Path(os.environ.get("CODEX_HOME") or paths.home() / ".codex")
    folder = own if worktree is None else worktree / ".codex"
    # it passes on nothing else of the environment to a server
    server = {**_server(agent), "env_vars": list(_ENVIRONMENT)}
    entries = [Entry(("mcp_servers", SERVER), server), *_hooks(agent, _grouped)]
    return [Place(folder / "config.toml", Toml, entries)]


def _gemini(agent: Agent, worktree: Path | None) -> list[Place]:
    def in_milliseconds(command: str, seconds: int) -> dict[str, Any]:
        return _grouped(command, seconds * 1000, name="git-daytona")

    # it keeps from a server what looks like a secret, unless it is named
    environment = {name: f"${{{name}:-}}" for name in _ENVIRONMENT}
    entries = [
        *_hooks(agent, in_milliseconds),
        Entry(("mcpServers", SERVER), {**_server(agent), "env": environment}),
        *_own_tools(agent, "tools", "exclude"),
    ]
    return [Place((worktree or paths.home()) / ".gemini" / "settings.json", Json, entries)]


def _cursor(agent: Agent, worktree: Path | None) -> list[Place]:
    def closed(command: str, seconds: int) -> dict[str, Any]:
        more = {"failClosed": True} if "pre-tool" in command else {}
        return {"command": command, "timeout": seconds, **more}

    folder, fresh = (worktree or paths.home()) / ".cursor", '{\n  "version": 1\n}\n'
    servers = [Entry(("mcpServers", SERVER), _server(agent))]
    return [
        Place(folder / "hooks.json", Json, _hooks(agent, closed), fresh),
        Place(folder / "mcp.json", Json, servers),
    ]


def _vscode(agent: Agent, worktree: Path | None) -> list[Place]:
    hooks, servers = paths.home() / ".copilot" / "hooks", _user_settings("Code")
    if worktree is not None:
        hooks, servers = worktree / ".github" / "hooks", worktree / ".vscode"
    server = Entry(("servers", SERVER), _server(agent, type="stdio"))
    return [
        Place(hooks / "git-daytona.json", Json, _hooks(agent, _hook)),
        Place(servers / "mcp.json", Json, [server]),
    ]


def _goose(agent: Agent, worktree: Path | None) -> list[Place]:
    if worktree is not None:
        raise UsageError("goose has no MCP servers of a project", hint="for all projects: --global")
    server = _server(agent)
    extension = {
        "enabled": True,
        "type": "stdio",
        "name": SERVER,
        "description": "Daytona sandbox",
        "cmd": server["command"],
        "args": server["args"],
        "timeout": 3600,
    }
    plugin = paths.home() / ".agents" / "plugins" / "git-daytona"
    config = paths.xdg("XDG_CONFIG_HOME", ".config") / "goose" / "config.yaml"
    manifest = '{\n  "name": "git-daytona",\n  "version": "1.0.0"\n}\n'
    hooks = _hooks(agent, partial(_grouped, on_failure="block"))
    return [
        Place(plugin / "plugin.json", Json, (), manifest),
        Place(plugin / "hooks" / "hooks.json", Json, hooks),
        Place(config, Yaml, [Entry(("extensions", SERVER), extension)]),
    ]


def _pi(agent: Agent, worktree: Path | None) -> list[Place]:
    own = Path(os.environ.get("PI_CODING_AGENT_DIR") or paths.home() / ".pi" / "agent")
    folder = own if worktree is None else worktree / ".pi"
    extension = str(Path(__file__).absolute().parent / "pi" / "index.js")
    return [Place(folder / "settings.json", Json, [Entry(("extensions",), extension, listed=True)])]


def _user_settings(program: str) -> Path:
    if sys.platform == "darwin":
        return paths.home() / "Library" / "Application Support" / program / "User"
    return paths.xdg("XDG_CONFIG_HOME", ".config") / program / "User"


_PLACES: dict[str, Callable[[Agent, Path | None], list[Place]]] = {
    each.__name__.removeprefix("_"): each
    for each in (_claude, _codex, _gemini, _cursor, _vscode, _goose, _pi)
}
assert set(_PLACES) == set(table.AGENTS)
