"""``git daytona serve``: for OpenCode's plugin. Alone, so that it answers soon."""

import click

from git_daytona.service import serve


@click.command("serve")
def serve_() -> int:
    """Serve OpenCode's plugin: JSON-RPC on standard input and output, until the end of input. See
    git-daytona-hooks(7)."""
    return serve.serve()
