"""A click group that imports a command when it is called: ``git daytona status`` does not pay for
``doctor``."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """A group of commands that stand in modules of git_daytona.cli.

    ``sections`` maps the headings of ``--help`` to the commands below each, in order; ``places``
    maps a command to its module, or to ``module:attribute`` where that is not the command's own
    name.
    """

    def __init__(
        self,
        *arguments: Any,
        sections: Mapping[str, Sequence[str]],
        places: Mapping[str, str],
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.sections = sections
        self.places = places

    def list_commands(self, ctx: click.Context | None) -> list[str]:
        return [name for names in self.sections.values() for name in names]

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> click.Command | None:
        place = self.places.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        found = getattr(import_module(f"git_daytona.cli.{module}"), attribute or cmd_name)
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            import difflib
            import re

            name = args[0]
            # a key, perhaps, typed in the wrong place: it is not repeated
            if not re.fullmatch(r"-*[a-z-]{1,30}", name):
                raise click.UsageError("No such command", ctx) from None
            for near in difflib.get_close_matches(name, self.places, 1):
                raise click.UsageError(
                    f"No such command '{name}'; did you mean '{near}'?", ctx
                ) from None
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem[str]]":
        found = super().shell_complete(ctx, incomplete)
        for item in found:
            if (
                item.value in self.places
                and (command := self.get_command(ctx, item.value)) is not None
            ):
                item.help = _first_sentence(command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands below their headings, each with its short help (at most 56 characters: one
        line)."""
        for heading, names in self.sections.items():
            rows = [
                (name, _first_sentence(command))
                for name in names
                if (command := self.get_command(ctx, name)) is not None
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)


def _first_sentence(command: click.Command) -> str:
    """click's own short help cuts it off at the terminal's width."""
    return command.get_short_help_str(limit=1000)
