"""Options and arguments that several commands have, and how they print JSON."""

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import click

from git_daytona.base import messages
from git_daytona.base.errors import Declined, UsageError
from git_daytona.base.files import Change

F = TypeVar("F", bound=Callable[..., object])

PASSING_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Context settings of a command whose last words go to another program as they are."""

flag = partial(click.option, is_flag=True)
as_json = flag("--json", "as_json", help="Print JSON instead of text.")
yes = flag("--yes", "-y", help="Do not ask before anything is removed.")
dry_run = flag("--dry-run", "-n", help="Only show what would be done.")


def number(
    *names: str, metavar: str, within: tuple[int, int | None], default: float, help: str
) -> Callable[[F], F]:
    """Make an option for a number, which may have a fraction if its default is a float."""
    kind = (click.FloatRange if isinstance(default, float) else click.IntRange)(*within)
    kind.name = "number"  # click's messages have it
    return click.option(
        *names, metavar=metavar, type=kind, default=default, show_default=True, help=help
    )


def _command(context: click.Context, _: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    given = words[1:] if words[:1] == ("--",) else words
    if not given:
        raise click.UsageError("Missing argument 'COMMAND...'.", context)
    return given


command = click.argument(
    "command", nargs=-1, required=True, type=click.UNPROCESSED, callback=_command
)
"""The words of a command to run, without a ``--`` in front."""


class SessionFirst(click.Command):
    """A command that passes words on, and whose N may be left out with a ``--`` before these."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            given, _, _ = self.make_parser(ctx).parse_args(args[:at])
            if not isinstance(given.get("name"), str):
                args = [*args[:at], "", *args[at:]]
        return super().parse_args(ctx, args)


def confirm(question: str, yes: bool) -> None:
    """Ask before anything is removed, unless ``yes``. Raises Declined."""
    try:
        if yes or click.confirm(question, err=True):
            return
    except click.Abort:  # Ctrl-C, or nobody there to answer
        if sys.stdin is not None and sys.stdin.isatty():
            raise
        click.echo(err=True)  # the question has none
        raise UsageError(
            "there is nobody to ask: standard input is no terminal",
            hint="add --yes if you are sure",
        ) from None
    raise Declined("nothing was changed")


def make(change: Change, dry_run: bool, already: str = "it") -> bool:
    """Show a change of a configuration file, make it, and say so; return whether it was made."""
    if not change:
        messages.note(f"nothing to do: '{change.path}' has {already} already")
        return False
    click.echo(change.diff())
    if not dry_run:
        change.make()
    verb = "removed" if change.after is None else "written" if change.before is None else "changed"
    messages.note(f"'{change.path}' would be {verb}" if dry_run else f"{verb}: '{change.path}'")
    return not dry_run


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))
