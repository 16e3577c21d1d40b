"""``git daytona help``: the manual page, also where man(1) does not find it by its name."""

import os
import shutil
import sysconfig
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from git_daytona import ssh
from git_daytona.base import run
from git_daytona.cli.program import Program

NAME = "git-daytona.1"
PLACES = (Path(__file__).parents[3] / "man", Path(sysconfig.get_path("data")) / "share/man/man1")
"""Where the page is: in a copy of the repository, in an installation."""


def _commands(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> "list[CompletionItem[str]]":
    names = vars(context.find_root().command).get("places", ())
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command("help")
@click.argument("command", required=False, default="", shell_complete=_commands)
@click.pass_context
def help_(context: click.Context, command: str) -> int:
    """Show the manual page, or print what COMMAND does and takes."""
    program = context.find_root()
    assert isinstance(program.command, Program)
    if command:
        name, found, _ = program.command.resolve_command(program, [command])
        if found is not None:
            with click.Context(found, info_name=name, parent=program) as inner:
                click.echo(found.get_help(inner))
            return 0
    page = next((each for place in PLACES if (each := place / NAME).is_file()), None)
    own = ssh.scrubbed(dict(os.environ))
    if not page or not shutil.which("man") or run.foreground(("man", str(page)), own) != 0:
        click.echo(program.command.get_help(program))
    return 0
