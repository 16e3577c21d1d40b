"""Every setting, its value, and where it came from, for ``git daytona config`` and ``doctor``."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from git_daytona.base.errors import GitDaytonaError, NoKey, NoRepository
from git_daytona.git import repository
from git_daytona.settings import order, preferences, settings

DEFAULT = "default"
ENVIRONMENT_ONLY = ("DAYTONA_ALLOW_HOST_TOOLS", "DAYTONA_SERVICE_BINARY", "DAYTONA_DEBUG")
NOT_SHOWN = "(set, not shown)"


@dataclass(frozen=True)
class SettingRow:
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

    def __str__(self) -> str:
        source = f" ({self.source})" if self.source else ""
        return f"{self.name}: {self.value or '-'}{source}"


def _row(name: str, value: str | None, source: str | None) -> SettingRow:
    return SettingRow(name, value, source or (DEFAULT if value is not None else ""))


def collect() -> tuple[settings.Settings, list[SettingRow], list[GitDaytonaError]]:
    """Collect all settings for the current directory, and what is wrong with some."""
    directory = repository.here()
    problems: list[GitDaytonaError] = []
    try:
        if found_here := repository.find(directory):
            directory = found_here.worktree or directory
    except NoRepository as problem:
        problems.append(problem)
    preferred = preferences.load(directory)
    found = order.applied(settings.load(directory), preferred)
    key = None
    try:
        key = found.api_key()[1]
    except NoKey:
        pass
    except GitDaytonaError as problem:
        problems.append(problem)
    rows = [SettingRow("DAYTONA_API_KEY", key and NOT_SHOWN, key or "", secret=True)]
    return found, [*rows, *_rows(found, preferred)], problems + order.problems(preferred)


def _rows(found: settings.Settings, preferred: preferences.Preferences) -> Iterator[SettingRow]:
    for name, value in found.values().items():
        yield _row(name, value, found.sources.get(name))
    for name in ENVIRONMENT_ONLY:
        value = os.environ.get(name, "").strip() or None
        yield _row(name, value, value and f"the environment variable {name}")
    for name, default in {**preferences.DEFAULTS, **dict.fromkeys(order.KEYS)}.items():
        if preference := preferred.get(name):
            is_secret = name in order.KEYS and order.may_be_secret(name, preference.value)
            value = NOT_SHOWN if is_secret else preference.value
            yield SettingRow(name, value, preference.source, secret=is_secret)
        else:
            yield _row(name, default, None)
