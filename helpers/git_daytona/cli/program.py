"""An executable as a group of commands, each imported when it is called."""

import difflib
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

import click
from click.shell_completion import CompletionItem

from git_daytona import __version__

Sections = Mapping[str, Mapping[str, tuple[str, str]]]
"""Heading of ``--help`` → name → module in git_daytona.cli, short help (56 characters)."""


HELP_COLUMNS = 120
"""The widest that help gets in a wide window; longer lines are hard to read."""


class Program(click.Group):
    """A group whose commands are looked up in the modules that its sections name."""

    def __init__(
        self, *arguments: Any, sections: Sections, aliases: Mapping[str, str], **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self.sections, self.aliases = sections, aliases
        self.places = {name: place for rows in sections.values() for name, place in rows.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = self.aliases.get(cmd_name, cmd_name)
        if cmd_name not in self.places:
            return None
        module, short_help = self.places[cmd_name]
        named = vars(import_module(f"git_daytona.cli.{module}")).values()
        command = next(c for c in named if isinstance(c, click.Command) and c.name == cmd_name)
        command.short_help = short_help
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            name = args[0]
            # a key, perhaps, typed in the wrong place: it is not repeated
            if not re.fullmatch(r"-*[a-z-]{1,30}", name):
                raise click.UsageError("No such command", ctx) from None
            near = difflib.get_close_matches(name, self.places, 1)
            clause = f"; did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"No such command '{name}'{clause}", ctx) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem[str]]":
        """Complete names and options, without the import of every command that click's own does."""
        names = [
            CompletionItem(name, help=short_help)
            for name, (_, short_help) in self.places.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, rows in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name, short_help) for name, (_, short_help) in rows.items()])


def program(
    name: str,
    sections: Sections,
    epilog: str | None = None,
    aliases: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Callable[[], None]], Program]:
    """Make the decorator for an executable's function, whose docstring describes it."""

    version = click.version_option(__version__, "--version", message=f"{name} %(version)s")
    how = {"help_option_names": ["-h", "--help"], "max_content_width": HELP_COLUMNS}
    group = click.group(
        name, cls=Program, sections=sections, aliases=aliases, epilog=epilog, context_settings=how
    )
    return lambda function: group(version(function))
