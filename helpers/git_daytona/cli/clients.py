"""``git daytona serve`` and ``git daytona hook``: for the programs that run agents."""

import json
import sys
from pathlib import Path

import click

# hooks.EVENTS; that module loads more than --help needs (tests/test_commands.py compares them).
EVENTS = ("session.created", "session.idle", "session.deleted", "tool", "shutdown")


@click.command(short_help="Serve OpenCode's plugin (it starts this itself)")
def serve() -> int:
    """Serve OpenCode's plugin: JSON-RPC on standard input and output, until the end of input. See
    git-daytona-hooks(7)."""
    from git_daytona.service.serve import serve as serve_

    return serve_()


@click.command(short_help="Handle one event of another host")
@click.argument("event", type=click.Choice(EVENTS))
def hook(event: str) -> None:
    """Handle one EVENT of a host that is not OpenCode. Its JSON comes on standard input; a tool's
    result is printed as JSON.

    See git-daytona-hooks(7) for what each event needs and does.
    """
    from git_daytona.base import log, messages
    from git_daytona.service.hooks import PAYLOAD_BYTES, Hook

    log.to_file()
    result = Hook(sys.stdin.buffer.read(PAYLOAD_BYTES), Path.cwd(), messages.note).run(event)
    if result is not None:
        click.echo(json.dumps(result))
