"""``git daytona hook``: for the other programs that run agents."""

import json
import signal
import sys
from pathlib import Path

import click

from git_daytona.agents import gate
from git_daytona.agents.table import AGENTS, REASON, Agent, filled
from git_daytona.base import log, messages
from git_daytona.base.errors import UsageError
from git_daytona.service.payloads import EVENTS, PAYLOAD_BYTES

PRE_TOOL = "pre-tool"


@click.command()
@click.option(
    "--agent", metavar="NAME", type=click.Choice(tuple(AGENTS)), help="Whose event it is."
)
@click.argument("event", type=click.Choice((*EVENTS, PRE_TOOL)))
def hook(agent: str | None, event: str) -> int:
    """Handle one EVENT of a client that is not OpenCode. Its JSON comes on standard input; a tool's
    result is printed as JSON.

    See git-daytona-hooks(7) for what each event needs and does. pre-tool answers an agent that asks
    before a tool runs: in the sandbox, or not at all. See git-daytona-agents(7).
    """
    if event == PRE_TOOL:
        if agent is None:
            raise UsageError("'pre-tool' needs an agent", hint=f"--agent {'|'.join(AGENTS)}")
        return _pre_tool(AGENTS[agent])
    # its tools and clients of Daytona take a while to load
    from git_daytona.service.hooks import Hook

    log.to_file()
    result = Hook(sys.stdin.buffer.read(PAYLOAD_BYTES), Path.cwd(), messages.note).run(event)
    if agent is not None and event == "session.created":
        result = _told(AGENTS[agent])
    if result is not None:
        click.echo(json.dumps(result))
    return 0


def _pre_tool(agent: Agent) -> int:
    """Answer within a time that the agent waits; it would run the call after that."""

    def late(_number: int, _frame: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, gate.ANSWER_SECONDS, 1)  # again, if somebody swallows it
    try:
        payload = sys.stdin.buffer.read(PAYLOAD_BYTES + 1)
        answer = gate.answer(agent, payload, Path.cwd())
        signal.setitimer(signal.ITIMER_REAL, 0)
    except (OSError, KeyboardInterrupt) as problem:
        answer = gate.denial(agent, f"the call was not read ({type(problem).__name__})")
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    if answer.err:
        messages.note(answer.err)
    if answer.out:
        click.echo(answer.out)
    return answer.status


def _told(agent: Agent) -> "dict[str, object] | None":
    """What the agent's model should know from the beginning."""
    if agent.context is None:
        return None
    words = (
        "This session runs in a Daytona sandbox, a Linux machine apart from the user's. Commands "
        "of your shell run there, each in the project's directory there; a change of directory or "
        f"environment does not last. For files use the tools of the MCP server ({agent.prefix}*). "
        "The work comes back by itself after each turn, as commits on a local branch. Do not push."
    )
    found: dict[str, object] = filled(agent.context, {REASON: words})
    return found
