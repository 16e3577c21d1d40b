"""``.venv/bin/python tests/develop/helptexts.py``: write the help texts of all commands, as click
makes them, into helpers/git_daytona/cli/help."""

import contextlib
import io
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click

from git_daytona.cli import boundary
from git_daytona.cli import help as helping

CLI = {
    name: name.replace("-", "_")
    for name in ("git-daytona", "daytona-token", "daytona-pin", "daytona-local")
}
RENEW = "run '.venv/bin/python tests/develop/helptexts.py' to renew them"


def commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The command itself and all below it that are shown, each as its words after the program's
    name."""
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, name
            if not below.hidden:
                yield from commands(below, (*words, name))


def texts() -> dict[str, str]:
    """File name → what click prints."""
    found = {}
    for program, module in CLI.items():
        cli = import_module(f"git_daytona.cli.{module}").cli
        for words in commands(cli):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                status = boundary.run(
                    cli, program, (*words, "--help"), display=program.replace("git-", "git ")
                )
            assert status == 0, (program, words)
            found[helping.name_of(program, list(words))] = printed.getvalue()
    return found


def written() -> dict[str, str]:
    """File name → what stands there."""
    return {path.name: path.read_text("utf-8") for path in Path(helping.FOLDER).glob("*.txt")}


def write() -> None:
    wanted, folder = texts(), Path(helping.FOLDER)
    folder.mkdir(exist_ok=True)
    for name in written().keys() - wanted.keys():
        (folder / name).unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    write()
