"""``git daytona config``: every setting, its value, and where it came from."""

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from git_daytona.cli import common

if TYPE_CHECKING:
    from git_daytona.base.errors import GitDaytonaError
    from git_daytona.settings.preferences import Preferences
    from git_daytona.settings.settings import Settings

DEFAULT = "default"
ENVIRONMENT_ONLY = ("DAYTONA_ALLOW_HOST_TOOLS", "DAYTONA_SERVICE_BINARY", "DAYTONA_DEBUG")
NOT_SHOWN = "(set, not shown)"


@dataclass(frozen=True)
class Line:
    """A setting. ``value`` is None where it is unset; a secret's is never here."""

    name: str
    value: str | None
    source: str
    secret: bool = False

    def document(self) -> dict[str, object]:
        return {
            "name": self.name,
            "value": None if self.secret else self.value,
            "isSet": self.value is not None,
            "source": self.source,
        }


@click.command(short_help="Show every setting, and where it came from")
@click.option("--json", "as_json", is_flag=True, help="Print a list of JSON objects.")
def config(as_json: bool) -> int:
    """Show every setting, its value, and where it came from: environment, .env, git's
    configuration, keyring or default.

    Preferences that trust does not depend on are set by git itself: git config daytona.NAME VALUE.
    See git-daytona(1) for them.
    """
    from git_daytona.base import messages
    from git_daytona.base.errors import BadSetting, NoRepository
    from git_daytona.base.secret import printable
    from git_daytona.git import repository
    from git_daytona.settings import preferences, settings

    try:
        directory = repository.discover(repository.here()).worktree or repository.here()
    except NoRepository:
        directory = repository.here()
    found = settings.load(directory)
    for warning in found.warnings:
        messages.warning(common.PROGRAM, warning)
    preferred = preferences.load(directory)
    lines, problems = collect(found, preferred)
    if as_json:
        click.echo(json.dumps([line.document() for line in lines], indent=2))
    else:
        values = [printable(line.value) if line.value is not None else "-" for line in lines]
        name_width, value_width = (
            max(len(line.name) for line in lines),
            min(44, max(map(len, values))),
        )
        for line, value in zip(lines, values, strict=True):
            click.echo(f"{line.name:{name_width}}  {value:{value_width}}  {line.source}".rstrip())
    for problem in problems:
        messages.error(common.PROGRAM, problem)
    return BadSetting.status if problems else 0


def collect(
    found: "Settings", preferred: "Preferences"
) -> "tuple[list[Line], list[GitDaytonaError]]":
    """All settings, and what is wrong with some of them."""
    from git_daytona.base.errors import GitDaytonaError, NoKey
    from git_daytona.settings.preferences import DEFAULTS
    from git_daytona.settings.settings import VARIABLES

    found = preferred.applied(found)
    problems = preferred.check()
    try:
        lines = [_line("DAYTONA_API_KEY", NOT_SHOWN, found.api_key()[1], secret=True)]
    except GitDaytonaError as problem:
        lines = [_line("DAYTONA_API_KEY", None, None, secret=True)]
        if not isinstance(problem, NoKey):
            problems.insert(0, problem)
    for variable in VARIABLES[1:]:  # the first is the key
        value = getattr(found, variable.field)
        text = str(value).lower() if isinstance(value, bool) else value
        lines.append(_line(variable.name, text, found.sources.get(variable.name)))
    for name in ENVIRONMENT_ONLY:
        value = os.environ.get(name, "").strip() or None
        lines.append(_line(name, value, f"the environment variable {name}" if value else ""))
    for name, default in DEFAULTS.items():
        preference = preferred.get(name)
        value, source = (preference.value, preference.source) if preference else (default, None)
        lines.append(_line(name, value, source))
    return lines, problems


def _line(name: str, value: str | None, source: str | None, secret: bool = False) -> Line:
    return Line(name, value, source or (DEFAULT if value is not None else ""), secret)
