"""``git daytona hook``: for the other programs that run agents."""

import json
import sys
from pathlib import Path

import click

from git_daytona.base import log, messages
from git_daytona.service.hooks import EVENTS, PAYLOAD_BYTES, Hook


@click.command()
@click.argument("event", type=click.Choice(EVENTS))
def hook(event: str) -> None:
    """Handle one EVENT of a client that is not OpenCode. Its JSON comes on standard input; a tool's
    result is printed as JSON.

    See git-daytona-hooks(7) for what each event needs and does.
    """
    log.to_file()
    result = Hook(sys.stdin.buffer.read(PAYLOAD_BYTES), Path.cwd(), messages.note).run(event)
    if result is not None:
        click.echo(json.dumps(result))
