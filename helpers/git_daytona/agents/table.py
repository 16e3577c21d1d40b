"""What each agent calls its tools and events, what its hooks read and answer. Data alone, from the
agents' documentation or sources; ``read`` says of which version."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SERVER = "daytona"
"""The name under which an agent's configuration has our MCP server."""
TOOLS = (
    *("bash", "read", "write", "edit", "apply_patch", "glob", "grep", "list"),
    *("sync", "diff", "log", "preview"),
)
"""The tools of that server."""
SESSION = "session"
"""The argument of a call of them with which a hook says whose sandbox is meant."""

INPUT, REASON = "{input}", "{reason}"
"""In the shape of an answer: the arguments that count, and why a call is denied."""
Shape = Mapping[str, Any]


def _claudes(event: str, **more: str) -> Shape:
    """An answer in the form that Claude Code began with."""
    return {"hookSpecificOutput": {"hookEventName": event, **more}}


_REWRITTEN = _claudes("PreToolUse", permissionDecision="allow", updatedInput=INPUT)
_DENIED = _claudes("PreToolUse", permissionDecision="deny", permissionDecisionReason=REASON)
_CONTEXT = _claudes("SessionStart", additionalContext=REASON)
_EVENTS = {"SessionStart": "session.created", "Stop": "session.idle"}
_OTHERS = "another hook of yours that rewrites the same call: the agent decides which one counts"


@dataclass(frozen=True)
class Agent:
    """An agent. ``shells`` are its tools that run a command line; ``files`` maps our tools to its
    own ones for files; ``harmless`` are those that act on nothing of the user's machine. All others
    are denied. Several names are one string.

    ``prefix`` is what our server's tools begin with, empty for an agent without servers.
    ``rewritten``, ``denied`` and ``context`` (at a session's start) are the shapes of answers;
    without ``rewritten`` its hooks can only deny. ``status`` is the exit status of a denial,
    ``before`` the event that asks, ``events`` maps others to ours. ``uncovered`` is what no hook
    sees; ``off`` a setting, and its value, with which no hook runs.
    """

    name: str
    title: str
    read: str
    shells: str
    files: Mapping[str, str]
    harmless: str
    prefix: str
    denied: Shape
    rewritten: Shape | None = None
    allowed: Shape | None = None
    context: Shape | None = None
    status: int = 2
    before: str = "PreToolUse"
    events: Mapping[str, str] = field(default_factory=dict)
    uncovered: tuple[str, ...] = ()
    off: tuple[tuple[str, ...], object] = ((), None)

    def instead(self, tool: str) -> str | None:
        """The tool of ours that does what one of the agent's own does; None for others."""
        if tool in self.shells.split():
            return "bash"
        return next((ours for ours, own in self.files.items() if tool in own.split()), None)

    def ours(self, tool: str, server: object = None) -> bool:
        """Whether a tool is one of our MCP server's; ``server`` is what the agent says of that."""
        if isinstance(server, Mapping) and "command" in server and not is_server(server):
            return False
        ours = tool.removeprefix(self.prefix) in TOOLS
        return bool(self.prefix) and tool.startswith(self.prefix) and ours


def is_server(value: Mapping[str, Any]) -> bool:
    """Whether what starts an MCP server is ours, of whatever installation."""
    program, words = value.get("command", value.get("cmd")), value.get("args")
    is_mcp = isinstance(words, Sequence) and list(words[:1]) == ["mcp"]
    return is_mcp and isinstance(program, str) and program.rpartition("/")[2] == "git-daytona"


CLAUDE = Agent(
    "claude",
    "Claude Code",
    "2.1.197: run; its hooks reference of May 2026",
    shells="Bash Monitor",
    files={
        "read": "Read",
        "write": "Write",
        "edit": "Edit NotebookEdit",
        "glob": "Glob",
        "grep": "Grep",
    },
    harmless=(
        "Agent Task TaskOutput TaskStop TaskCreate TaskGet TaskUpdate TaskList BashOutput KillBash"
        " KillShell TodoWrite AskUserQuestion EnterPlanMode ExitPlanMode WebFetch WebSearch Skill"
        " ToolSearch WaitForMcpServers SendMessage"
    ),
    prefix=f"mcp__{SERVER}__",
    rewritten=_REWRITTEN,
    denied=_DENIED,
    context=_CONTEXT,
    events=_EVENTS | {"SessionEnd": "session.idle"},
    uncovered=(
        "what you run yourself with '!', and files that you name with '@'",
        "a repository whose own settings switch hooks off, unless it was set up with --project",
        "a hook that Claude Code ends because it took longer than its limit: the call goes on here",
        "a working directory that a command changes: each one begins in the project's",
        _OTHERS,
    ),
    off=(("disableAllHooks",), True),
)

CODEX = Agent(
    "codex",
    "Codex CLI",
    "0.171.0: run; codex-rs/hooks, read",
    shells="Bash",
    files={"apply_patch": "apply_patch", "read": "view_image"},
    harmless=(
        "update_plan request_user_input web_search spawn_agent send_input send_message wait"
        " wait_agent close_agent list_agents write_stdin"
    ),
    prefix=f"mcp__{SERVER}__",
    rewritten=_REWRITTEN,
    denied=_DENIED,
    context=_CONTEXT,
    events=_EVENTS,
    uncovered=(
        "hooks that you have not trusted (/hooks): Codex does not run them",
        "a hook that Codex ends because it took longer than its limit: the call goes on here",
        _OTHERS,
    ),
    off=(("features", "hooks"), False),
)

GEMINI = Agent(
    "gemini",
    "Gemini CLI",
    "0.61.0: run; its docs/hooks and docs/reference/tools",
    shells="run_shell_command",
    files={
        "read": "read_file read_many_files",
        "write": "write_file",
        "edit": "replace",
        "glob": "glob",
        "grep": "grep_search search_file_content",
        "list": "list_directory",
    },
    harmless=(
        "write_todos ask_user google_web_search web_fetch enter_plan_mode exit_plan_mode"
        " list_background_processes read_background_output update_topic complete_task"
        " activate_skill get_internal_docs tracker_create_task tracker_update_task"
        " tracker_get_task tracker_list_tasks tracker_add_dependency tracker_visualize"
    ),
    prefix=f"mcp_{SERVER}_",
    rewritten={
        "decision": "allow",
        "hookSpecificOutput": {"hookEventName": "BeforeTool", "tool_input": INPUT},
    },
    denied={"decision": "deny", "reason": REASON},
    allowed={},
    context=_CONTEXT,
    status=0,
    before="BeforeTool",
    events={
        "SessionStart": "session.created",
        "AfterAgent": "session.idle",
        "SessionEnd": "session.idle",
    },
    uncovered=(
        "what you run yourself with '!', and files that you name with '@'",
        "hooks of a project that you have not trusted, or that are switched off (/hooks)",
        "a hook that Gemini CLI ends because it took longer than its limit: the call goes on here",
        _OTHERS,
    ),
    off=(("hooksConfig", "enabled"), False),
)

CURSOR = Agent(
    "cursor",
    "Cursor",
    "cursor.com/docs/hooks of 2026, read",
    shells="Shell",
    files={
        "read": "Read",
        "write": "Write",
        "edit": "Edit StrReplace",
        "bash": "Delete",
        "grep": "Grep",
        "glob": "Glob",
        "list": "LS",
    },
    harmless="Task TodoWrite WebSearch WebFetch AskQuestion",
    prefix="MCP:",
    rewritten={"permission": "allow", "updated_input": INPUT},
    denied={"permission": "deny", "user_message": REASON, "agent_message": REASON},
    allowed={"permission": "allow"},
    context={"additional_context": REASON},
    status=0,
    before="preToolUse",
    events={
        "sessionStart": "session.created",
        "stop": "session.idle",
        "sessionEnd": "session.idle",
    },
    uncovered=(
        "a tool of another MCP server with the name of one of ours: Cursor does not tell whose",
        "inline completion (Tab), which reads and writes files here",
        _OTHERS,
    ),
)

VSCODE = Agent(
    "vscode",
    "VS Code (Copilot)",
    "docs/copilot/customization/hooks of February 2026 (preview), read",
    shells="run_in_terminal",
    files={
        "read": "read_file",
        "write": "create_file",
        "edit": (
            "replace_string_in_file multi_replace_string_in_file insert_edit_into_file"
            " edit_notebook_file"
        ),
        "apply_patch": "apply_patch",
        "list": "list_dir",
        "bash": "create_directory",
        "glob": "file_search",
        "grep": "grep_search semantic_search",
    },
    harmless=(
        "manage_todo_list ask_questions vscode_askQuestions fetch_webpage runSubagent"
        " get_terminal_output kill_terminal"
    ),
    prefix=f"mcp_{SERVER}_",
    rewritten=_REWRITTEN,
    denied=_DENIED,
    context=_CONTEXT,
    status=0,
    events=_EVENTS,
    uncovered=(
        "files that you attach to a chat, and inline completion",
        "a hook that VS Code ends because it took longer than its limit: the call goes on here",
        "hooks that are switched off (chat.useHooks), or by your organization",
        _OTHERS,
    ),
)

GOOSE = Agent(
    "goose",
    "goose",
    "documentation/docs/guides/context-engineering/hooks.md of November 2026, read",
    shells="developer__shell",
    files={
        "write": "developer__write",
        "edit": "developer__edit developer__text_editor",
        "list": "developer__tree",
        "read": "developer__read_image",
    },
    harmless="todo__todo_write todo__todo_read",
    prefix=f"{SERVER}__",
    denied={"decision": "block", "reason": REASON},
    allowed={"decision": "allow"},
    uncovered=("the shell cannot be redirected: it is denied, and the agent told to use ours",),
)

PI = Agent(
    "pi",
    "pi",
    "0.73.1: run; its docs/extensions.md",
    shells="bash",
    files={"bash": "read write edit grep find ls"},
    harmless="",
    prefix="",
    rewritten={"input": INPUT},
    denied={"reason": REASON},
    allowed={},
    events={"session_start": "session.created", "agent_end": "session.idle"},
    uncovered=(
        "what you run yourself with '!'",
        "an extension that pi cannot load: it goes on without",
        "another extension that changes the same call after ours",
    ),
)

AGENTS = {agent.name: agent for agent in (CLAUDE, CODEX, GEMINI, CURSOR, VSCODE, GOOSE, PI)}


def filled(shape: Any, values: Mapping[str, Any]) -> Any:
    """Return the shape of an answer with values in the places of INPUT and REASON."""
    if isinstance(shape, Mapping):
        return {key: filled(value, values) for key, value in shape.items()}
    return values.get(shape, shape) if isinstance(shape, str) else shape
