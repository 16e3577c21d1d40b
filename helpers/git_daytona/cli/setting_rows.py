"""Every setting, its value, and where it came from, for ``git daytona config`` and ``doctor``."""

import os
from dataclasses import dataclass

from git_daytona.base.errors import GitDaytonaError, NoKey, NoRepository
from git_daytona.git import repository
from git_daytona.settings import order, preferences, settings
from git_daytona.settings.settings import VARIABLES, Settings

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


def collect() -> tuple[Settings, list[SettingRow], list[GitDaytonaError]]:
    """Collect all settings for the current directory, and what is wrong with some."""
    directory = repository.here()
    problems: list[GitDaytonaError] = []
    try:
        directory = repository.discover(directory).worktree or directory
    except NoRepository as problem:
        if not isinstance(problem, repository.NotInRepository):
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
    for variable in VARIABLES[1:]:  # the first is the key
        value = getattr(found, variable.field)
        text = str(value).lower() if isinstance(value, bool) else value
        rows.append(_row(variable.name, text, found.sources.get(variable.name)))
    for name in ENVIRONMENT_ONLY:
        value = os.environ.get(name, "").strip() or None
        rows.append(_row(name, value, value and f"the environment variable {name}"))
    for name, default in {**preferences.DEFAULTS, **dict.fromkeys(order.KEYS)}.items():
        if preference := preferred.get(name):
            is_secret = name in order.KEYS and order.may_be_secret(name, preference.value)
            value = NOT_SHOWN if is_secret else preference.value
            rows.append(SettingRow(name, value, preference.source, secret=is_secret))
        else:
            rows.append(_row(name, default, None))
    try:
        order.configured(preferred)
    except GitDaytonaError as problem:
        problems.append(problem)
    return found, rows, problems + preferred.check()
