"""``git daytona mcp``: for every agent that speaks the Model Context Protocol."""

from pathlib import Path

import click

from git_daytona.base.errors import MissingProgram
from git_daytona.cli.options import flag


@click.command("mcp")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True),
    metavar="DIR",
    help="Work for the repository of this directory; by default the client's, else the current "
    "one.",
)
@click.option(
    "--session",
    metavar="NAME",
    help="Go on with this session in every run: an existing one, or a name for a new one. By "
    "default each run has its own.",
)
@flag("--hooked", help="Each call names its session, by the hook of an agent.")
def mcp_(directory: Path | None, session: str | None, hooked: bool) -> int:
    """Serve an agent's tools by the Model Context Protocol, on standard input and output.

    The tools act in a sandbox, which is made at the first call. The work comes back when the agent
    calls sync, when it has been quiet for a while, and when input ends. See git-daytona-hooks(7).
    """
    try:
        from git_daytona.service import mcp
    except ModuleNotFoundError as missing:
        raise MissingProgram(
            f"the Python package '{missing.name}' is not installed",
            hint="pipx inject git-daytona 'mcp>=2', or pip install 'git-daytona[mcp]'",
        ) from None
    return mcp.serve(directory, session, hooked=hooked)
