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
    from git_daytona.settings import preferences as names

    problems: list[GitDaytonaError] = []
    found = preferred.applied(found)

    def setting(name: str, value: str | None) -> Line:
        return Line(name, value, found.sources.get(name, DEFAULT if value is not None else ""))

    try:
        key = Line("DAYTONA_API_KEY", NOT_SHOWN, found.api_key()[1], secret=True)
    except NoKey:
        key = Line("DAYTONA_API_KEY", None, "", secret=True)
    except GitDaytonaError as problem:
        key = Line("DAYTONA_API_KEY", None, "", secret=True)
        problems.append(problem)
    lines = [
        key,
        setting("DAYTONA_API_URL", found.api_url),
        setting("DAYTONA_TARGET", found.target),
        setting("DAYTONA_SNAPSHOT", found.snapshot),
        setting("DAYTONA_SSH_BINARY", found.ssh_binary),
        setting("DAYTONA_SSH_KNOWN_HOSTS", found.ssh_known_hosts),
        setting("DAYTONA_SSH_AUTO_PIN", str(found.auto_pin).lower()),
    ]
    for name in ENVIRONMENT_ONLY:
        value = os.environ.get(name, "").strip() or None
        lines.append(Line(name, value, f"the environment variable {name}" if value else ""))
    checks = {
        names.BRANCH_PREFIX: preferred.branch_prefix,
        names.SYNC_ON_IDLE: preferred.sync_on_idle,
        names.KEPT_AGE: preferred.kept_until,
        names.MAX_FETCH_SIZE: preferred.max_fetch_bytes,
    }
    for name in (
        names.BRANCH_PREFIX,
        names.SYNC_ON_IDLE,
        names.KEPT_AGE,
        names.MAX_FETCH_SIZE,
        names.SNAPSHOT,
        names.ALLOW_HOST_TOOLS,
    ):
        preference, default = preferred.get(name), names.DEFAULTS.get(name)
        try:
            if name in checks:
                checks[name]()
        except GitDaytonaError as problem:
            problems.append(problem)
        if preference is not None:
            lines.append(Line(name, preference.value, preference.source))
        else:
            lines.append(Line(name, default, DEFAULT if default is not None else ""))
    return lines, problems
