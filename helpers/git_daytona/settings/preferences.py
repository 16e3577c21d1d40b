"""What a user sets with ``git config daytona.…``, for one repository or all: nothing that trust or
the key depend on.

``.git/config`` is the user's own: git itself runs programs that it names. A file of the repository
(``.env``) may come from a stranger.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from git_daytona.base import run
from git_daytona.base.errors import BadSetting, GitDaytonaError
from git_daytona.base.secret import printable
from git_daytona.git import environment
from git_daytona.git.refs import SANDBOX_BRANCH, is_prefix
from git_daytona.settings.settings import Settings

BRANCH_PREFIX = "daytona.branchPrefix"
SNAPSHOT = "daytona.snapshot"
SYNC_ON_IDLE = "daytona.syncOnIdle"
KEPT_AGE = "daytona.keptAge"
MAX_FETCH_SIZE = "daytona.maxFetchSize"
ALLOW_HOST_TOOLS = "daytona.allowHostTools"
DEFAULTS = {
    BRANCH_PREFIX: SANDBOX_BRANCH,
    SYNC_ON_IDLE: "true",
    KEPT_AGE: "never",
    MAX_FETCH_SIZE: "4g",
}
FETCH_BYTES = 4 * 1024**3


@dataclass(frozen=True)
class Preference:
    """A value in git's configuration, its scope (local, global, …) and its place
    (``file:.git/config``)."""

    value: str
    scope: str
    origin: str

    @property
    def source(self) -> str:
        """As messages name it."""
        return f"git config ({self.scope}, {printable(self.origin.removeprefix('file:'))})"


@dataclass(frozen=True)
class Preferences:
    """Names in lower case → the value that counts. What makes no sense raises BadSetting when it is
    asked for, and not before."""

    directory: Path
    found: Mapping[str, Preference]

    def get(self, name: str) -> Preference | None:
        return self.found.get(name.lower())

    def branch_prefix(self) -> str:
        """What stands before ``/N`` in the names of the branches of new sessions."""
        preference = self.get(BRANCH_PREFIX)
        if preference is None:
            return SANDBOX_BRANCH
        prefix = preference.value.strip("/")
        if (
            not is_prefix(prefix)
            or self._git("check-ref-format", f"refs/heads/{prefix}/1").status != 0
        ):
            raise _unusable(BRANCH_PREFIX, preference, "is no part of a branch's name")
        return prefix

    def sync_on_idle(self) -> bool:
        """Whether the end of a turn is synced."""
        preference = self.get(SYNC_ON_IDLE)
        if preference is None:
            return True
        asked = self._git("config", "--type=bool", "--get", SYNC_ON_IDLE)
        if asked.status != 0:
            raise _unusable(SYNC_ON_IDLE, preference, "is neither true nor false")
        return asked.text == "true"

    def kept_until(self) -> int:
        """Seconds since the epoch: what was kept before that may be pruned; 0: nothing."""
        preference = self.get(KEPT_AGE)
        if preference is None:
            return 0
        asked = self._git("config", "--type=expiry-date", "--get", KEPT_AGE)
        if asked.status != 0 or not re.fullmatch(r"\d{1,20}", asked.text):
            raise _unusable(KEPT_AGE, preference, "is no age such as 90.days, nor 'never'")
        return int(asked.text)

    def max_fetch_bytes(self) -> int:
        """The largest pack that a fetch takes from a sandbox."""
        preference = self.get(MAX_FETCH_SIZE)
        if preference is None:
            return FETCH_BYTES
        asked = self._git("config", "--type=int", "--get", MAX_FETCH_SIZE)
        if asked.status != 0 or not re.fullmatch(r"[1-9]\d{0,18}", asked.text):
            raise _unusable(MAX_FETCH_SIZE, preference, "is no size such as 512m or 16g")
        return int(asked.text)

    def applied(self, settings: Settings) -> Settings:
        """The settings with the snapshot that is preferred here: behind the environment, before the
        project's ``.env``."""
        preference = self.get(SNAPSHOT)
        if (
            preference is None
            or not preference.value.strip()
            or os.environ.get("DAYTONA_SNAPSHOT", "").strip()
        ):
            return settings
        sources = {**settings.sources, "DAYTONA_SNAPSHOT": f"{SNAPSHOT}, {preference.source}"}
        return replace(settings, snapshot=preference.value.strip(), sources=sources)

    def _git(self, *arguments: str) -> run.Result:
        return run.run(
            ("git", "-C", str(self.directory), *arguments), env=environment.base(), timeout=10
        )


def load(directory: Path) -> Preferences:
    """All of ``daytona.*`` as git finds it from a directory, by one call; none where git cannot
    say."""
    argv = (
        "git",
        "-C",
        str(directory),
        "config",
        "-z",
        "--show-scope",
        "--show-origin",
        "--get-regexp",
        r"^daytona\.",
    )
    try:
        listing = run.run(argv, env=environment.base(), timeout=10)
    except GitDaytonaError:
        return Preferences(directory, {})
    words = listing.text.split("\0")
    found = {}
    for scope, origin, entry in zip(words[0::3], words[1::3], words[2::3], strict=False):
        name, separator, value = entry.partition("\n")
        # the last one counts, as for git
        found[name.lower()] = Preference(value if separator else "true", scope, origin)
    return Preferences(directory, found)


def _unusable(name: str, preference: Preference, why: str) -> BadSetting:
    return BadSetting(
        f"{name} is '{printable(preference.value)[:80]}', which {why}",
        hint="set it anew: git config "
        f"--{preference.scope if preference.scope in ('global', 'system') else 'local'} "
        f"{name} VALUE",
    )
