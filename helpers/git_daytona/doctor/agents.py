"""`git daytona doctor --agent NAME`: what of an agent is routed to a sandbox, what is denied, and
what nothing covers. Its configuration is read, the agent is not run."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from git_daytona.agents import command_line, entries, install, places
from git_daytona.agents.table import SERVER, Agent
from git_daytona.base import files
from git_daytona.base.errors import GitDaytonaError, NoRepository, UsageError
from git_daytona.doctor import findings
from git_daytona.doctor.findings import Check, Finding, fail, ok, warn
from git_daytona.git.repository import discover
from git_daytona.service import host_tools
from git_daytona.settings.preferences import ALLOW_HOST_TOOLS


def examine(agent: Agent, start: Path) -> Iterator[Finding]:
    """Look at an agent's configuration for a directory, of the user and of the project."""
    checks = [
        Check("set up", lambda: _set_up(agent, start)),
        Check("mcp server", lambda: _server(agent, start)),
        Check("shell", lambda: _shell(agent), ("set up",)),
        Check("own tools", lambda: _own_tools(agent, start), ("set up",)),
        *(Check("not covered", partial(warn, gap)) for gap in agent.uncovered),
        Check("tried", lambda: ok(f"{agent.title}: {agent.read}")),
    ]
    return findings.run(checks)


def _set_up(agent: Agent, start: Path) -> Finding:
    """One scope has to be whole; half of one is worse than none."""
    partly: list[Path] = []
    for scope, there in _scopes(agent, start):
        if off := _switched_off(agent, there):
            return fail(off, "take that out: without its hooks the agent acts on this machine")
        missing = [place.path for place in there if not install.present(place)]
        if not missing:
            return _whole(agent, scope, there, start)
        if len(missing) < len(there) or any(map(install.partly, there)):
            partly += missing
    again = f"git daytona install --agent {agent.name} --global"
    if partly:
        return fail(f"'{partly[0]}' lacks what belongs there, or has it of another version", again)
    return fail(f"{agent.title} is not set up: its tools act on this machine", again)


def _whole(agent: Agent, scope: str, there: list[places.Place], start: Path) -> Finding:
    worktree = _worktree(start) if scope == "global" else None
    if worktree and (off := _switched_off(agent, places.also_read(agent, worktree))):
        return fail(off, f"git daytona install --agent {agent.name} --project")
    program = command_line.program()
    if not Path(program).is_absolute():
        return fail(f"'{program}' is not on PATH", "install git-daytona again")
    return ok(f"{scope}: {', '.join(str(place.path) for place in there)}")


def _switched_off(agent: Agent, there: list[places.Place]) -> str | None:
    keys, value = agent.off
    for place in there if keys else ():
        if _value(place, keys) is value:
            return f"'{place.path}' switches hooks off: {'.'.join(keys)}"
    return None


def _worktree(start: Path) -> Path | None:
    with suppress(NoRepository):
        return discover(start).worktree
    return None


def _server(agent: Agent, start: Path) -> Finding:
    """Every server of our name has to be ours: its tools are let through by their names."""
    if not agent.prefix:
        return ok(f"{agent.title} has no MCP servers")
    for _, there in _scopes(agent, start):
        for place in there:
            keys = next((it.keys for it in place.entries if it.keys[-1] == SERVER), ())
            server = _value(place, keys) if keys else None
            if server is not None and not entries.is_ours(server):
                text = f"'{place.path}' has another MCP server as '{SERVER}'"
                return fail(f"{text}, whose tools would be taken for ours", "give it another name")
    return ok(f"no other MCP server is called '{SERVER}'")


def _shell(agent: Agent) -> Finding:
    names = ", ".join(agent.shells.split())
    if agent.rewritten is None:
        text = f"{names}: denied; the hooks of {agent.title} cannot redirect it to a sandbox"
        return warn(text, f"its model is told to use {agent.prefix}bash instead")
    return ok(f"{names}: each command runs in the session's sandbox")


def _own_tools(agent: Agent, start: Path) -> Finding:
    allowed = host_tools.opted_in(start)
    if allowed is None or allowed:
        names = "all tools" if allowed is None else ", ".join(sorted(allowed))
        return warn(f"allowed on this machine: {names}", f"git config --unset {ALLOW_HOST_TOOLS}")
    names = ", ".join(name for own in agent.files.values() for name in own.split())
    return ok(f"denied: {names}, and all that are not known to be harmless")


def _scopes(agent: Agent, start: Path) -> Iterator[tuple[str, list[places.Place]]]:
    for scope, place in (("project", _worktree(start)), ("global", None)):
        if scope == "global" or place is not None:
            try:
                yield scope, places.places(agent, place)
            except UsageError:
                continue  # the agent has no configuration of a project


def _value(place: places.Place, keys: Sequence[str]) -> Any:
    """What a file has below some keys; None where there is nothing. Raises GitDaytonaError."""
    raw = files.read_text(place.path)
    if raw is None or not raw.strip():
        return None
    try:
        return place.kind.value(raw.decode(), keys)
    except entries.Unfit as problem:
        raise GitDaytonaError(f"'{place.path}' {problem}", hint="correct it") from problem
