"""Options and arguments that several commands have, and how they print JSON."""

import json
from typing import Any

import click

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
yes = click.option("--yes", "-y", is_flag=True, help="Do not ask before anything is removed.")
dry_run = click.option("--dry-run", "-n", is_flag=True, help="Only show what would be done.")

PASSING_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Context settings of a command whose last words go to another program as they are."""


def _command(
    context: click.Context, _parameter: click.Parameter, words: tuple[str, ...]
) -> tuple[str, ...]:
    given = words[1:] if words[:1] == ("--",) else words
    if not given:
        raise click.UsageError("Missing argument 'COMMAND...'.", context)
    return given


command = click.argument(
    "command", nargs=-1, required=True, type=click.UNPROCESSED, callback=_command
)
"""The words of a command to run, without a ``--`` in front."""


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))
