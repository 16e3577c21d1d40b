"""``git daytona hook pre-tool``: what becomes of an agent's tool call before it runs.

A shell's command becomes one that runs in the session's sandbox, and everything else that would act
on the user's machine is denied. Nothing asks Daytona here: a call that cannot reach it fails later,
and not here either.
"""

import fnmatch
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from git_daytona.agents import command_line, table
from git_daytona.agents.table import INPUT, REASON, Agent
from git_daytona.base.errors import GitDaytonaError
from git_daytona.base.secret import printable
from git_daytona.service import host_tools, payloads
from git_daytona.service.jsonrpc import word

ANSWER_SECONDS = 20
"""How long one call may be thought about; agents give a hook 30 seconds, or more."""
ACTING_THERE = "Use the tools that act there"
COMMAND = "command"
"""The argument of every agent's shell that holds the command line."""
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class NotRun(Exception):
    """The call may not run; the message is for the agent."""


@dataclass(frozen=True)
class Answer:
    """What the process prints and exits with."""

    out: str = ""
    err: str = ""
    status: int = 0


def answer(agent: Agent, payload: bytes, here: Path) -> Answer:
    """Answer a call that an agent asks about. Never raises: what fails is denied."""
    try:
        instead = _judged(agent, payloads.parse(payload), here)
        if instead is None:
            return Answer("" if agent.allowed is None else json.dumps(agent.allowed))
        return Answer(json.dumps(table.filled(agent.rewritten, {INPUT: instead})))
    except (NotRun, GitDaytonaError) as problem:
        return denial(agent, str(problem))
    except Exception as problem:  # noqa: BLE001 — whatever it is, the call may not run
        return denial(agent, f"the call was not understood ({type(problem).__name__})")


def denial(agent: Agent, why: str) -> Answer:
    """Deny a call in the agent's way, and in the one that most understand: exit status 2."""
    reason = printable(f"git-daytona: {why}")
    return Answer(json.dumps(table.filled(agent.denied, {REASON: reason})), reason, agent.status)


def _judged(agent: Agent, payload: dict[str, Any], here: Path) -> Mapping[str, Any] | None:
    """Return the arguments to run with instead; None: as the call is. Raises NotRun."""
    tool, arguments = word(payload, "tool_name"), payload.get("tool_input")
    if tool is None:
        raise NotRun("the call names no tool")
    if agent.ours(tool, payload.get("mcp_context")):
        if agent.rewritten is None:
            return None
        return {**_object(arguments), table.SESSION: _session(payload)}
    if tool in agent.harmless.split():
        return None
    directory = payloads.directory(payload, here)
    allowed = host_tools.opted_in(directory)
    if allowed is None or any(fnmatch.fnmatchcase(tool, pattern) for pattern in allowed):
        return None
    if tool in agent.shells.split() and agent.rewritten is not None:
        return _moved(_object(arguments), _session(payload), directory)
    raise NotRun(host_tools.blocked(tool, _advice(agent, tool)))


def _advice(agent: Agent, tool: str) -> str:
    instead = agent.instead(tool)
    return f"Use {agent.prefix}{instead}, which acts there" if instead else ACTING_THERE


def _moved(arguments: dict[str, Any], session: str, directory: Path) -> dict[str, Any]:
    """Return a shell's arguments with a command that runs in the sandbox."""
    command = arguments.get(COMMAND)
    if not isinstance(command, str) or not command.strip():
        raise NotRun(f"the call has no '{COMMAND}' that could run in the sandbox")
    try:
        return {**arguments, COMMAND: command_line.exec_line(session, directory, command)}
    except UnicodeEncodeError:
        raise NotRun("the command is not Unicode") from None
    except ValueError as problem:
        raise NotRun(str(problem)) from None


def _object(arguments: Any) -> dict[str, Any]:
    if not isinstance(arguments, dict):
        raise NotRun("the call's arguments are no object")
    return arguments


def _session(payload: dict[str, Any]) -> str:
    session = payloads.text(payload, "session")
    if not _SESSION.fullmatch(session):
        raise NotRun("the call names no session, or not as a word")
    return session
