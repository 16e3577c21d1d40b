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

from git_daytona.base.errors import BadSetting, GitDaytonaError
from git_daytona.base.run import Result, run
from git_daytona.base.secret import printable
from git_daytona.git import environment
from git_daytona.git.refs import SANDBOX_BRANCH, is_prefix
from git_daytona.settings.settings import Settings

BRANCH_PREFIX = "daytona.branchPrefix"
SYNC_ON_IDLE = "daytona.syncOnIdle"
KEPT_AGE = "daytona.keptAge"
MAX_FETCH_SIZE = "daytona.maxFetchSize"
SNAPSHOT = "daytona.snapshot"
ALLOW_HOST_TOOLS = "daytona.allowHostTools"
TRANSPORT = "daytona.transport"
TRANSPORTS = ("auto", "ssh", "api")
DEFAULTS = {
    BRANCH_PREFIX: SANDBOX_BRANCH,
    SYNC_ON_IDLE: "true",
    KEPT_AGE: "never",
    MAX_FETCH_SIZE: "4g",
    SNAPSHOT: None,
    TRANSPORT: "auto",
    ALLOW_HOST_TOOLS: None,
}
"""All preferences, and what counts where they are unset."""
FETCH_BYTES = 4 * 1024**3
# The type that git reads a value as, what it makes of one, and what is wrong with any other.
_TYPES = {
    SYNC_ON_IDLE: ("bool", "true|false", "is neither true nor false"),
    KEPT_AGE: ("expiry-date", r"\d{1,20}", "is no age such as 90.days, nor 'never'"),
    MAX_FETCH_SIZE: ("int", r"[1-9]\d{0,18}", "is no size such as 512m or 16g"),
}


@dataclass(frozen=True)
class Preference:
    """A value in git's configuration, its scope (local, …) and place (``file:.git/config``)."""

    value: str
    scope: str
    origin: str

    @property
    def source(self) -> str:
        """As messages name it."""
        return f"git config ({self.scope}, {printable(self.origin.removeprefix('file:'))})"


@dataclass(frozen=True)
class Preferences:
    """Names in lower case → the value that counts; BadSetting is raised where one is read."""

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
        check = ("check-ref-format", f"refs/heads/{prefix}/1")
        if not is_prefix(prefix) or _git(self.directory, *check).status != 0:
            raise _unusable(BRANCH_PREFIX, preference, "is no part of a branch's name")
        return prefix

    def sync_on_idle(self) -> bool:
        """Whether the end of a turn is synced."""
        return self._typed(SYNC_ON_IDLE, "true") == "true"

    def kept_until(self) -> int:
        """Seconds since the epoch: what was kept before that may be pruned; 0: nothing."""
        return int(self._typed(KEPT_AGE, "0"))

    def max_fetch_bytes(self) -> int:
        """The largest pack that a fetch takes from a sandbox."""
        return int(self._typed(MAX_FETCH_SIZE, str(FETCH_BYTES)))

    def transport(self) -> str:
        """How commits travel, one of TRANSPORTS; auto: over SSH, and through the API if that is
        blocked."""
        preference = self.get(TRANSPORT)
        if preference is None:
            return TRANSPORTS[0]
        if preference.value not in TRANSPORTS:
            raise _unusable(TRANSPORT, preference, "is neither auto, ssh nor api")
        return preference.value

    def _typed(self, name: str, default: str) -> str:
        preference = self.get(name)
        if preference is None:
            return default
        type_, form, fault = _TYPES[name]
        read = _git(self.directory, "config", f"--type={type_}", "--get", name)
        if read.status != 0 or not re.fullmatch(form, read.text):
            raise _unusable(name, preference, fault)
        return read.text

    def check(self) -> list[GitDaytonaError]:
        """What is wrong with them."""
        problems: list[GitDaytonaError] = []
        reads = (
            *(self.branch_prefix, self.sync_on_idle, self.kept_until),
            *(self.max_fetch_bytes, self.transport),
        )
        for read in reads:
            try:
                read()
            except GitDaytonaError as problem:
                problems.append(problem)
        return problems

    def applied(self, settings: Settings) -> Settings:
        """The settings with the preferred snapshot: behind the environment, before ``.env``."""
        preference = self.get(SNAPSHOT)
        snapshot = preference.value.strip() if preference else ""
        if not preference or not snapshot or os.environ.get("DAYTONA_SNAPSHOT", "").strip():
            return settings
        sources = {**settings.sources, "DAYTONA_SNAPSHOT": f"{SNAPSHOT}, {preference.source}"}
        return replace(settings, snapshot=snapshot, sources=sources)


def _git(directory: Path, *arguments: str) -> Result:
    return run(("git", "-C", str(directory), *arguments), env=environment.base(), timeout=10)


def load(directory: Path, *, embedded: bool = True) -> Preferences:
    """All of ``daytona.*`` as git finds it from a directory; none where git cannot say. Without
    ``embedded`` a bare repository does not count: one may come as files of another."""
    show = ("-z", "--show-scope", "--show-origin")
    safe = () if embedded else ("-c", "safe.bareRepository=explicit")
    try:
        words = _git(directory, *safe, "config", *show, "--get-regexp", r"^daytona\.").text.split(
            "\0"
        )
    except GitDaytonaError:
        return Preferences(directory, {})
    found = {}
    for scope, origin, entry in zip(words[0::3], words[1::3], words[2::3], strict=False):
        name, separator, value = entry.partition("\n")
        # the last one counts, as for git
        found[name.lower()] = Preference(value if separator else "true", scope, origin)
    return Preferences(directory, found)


def _unusable(name: str, preference: Preference, why: str) -> BadSetting:
    scope = preference.scope if preference.scope in ("global", "system") else "local"
    return BadSetting(
        f"{name} is '{printable(preference.value)[:80]}', which {why}",
        hint=f"set it anew: git config --{scope} {name} VALUE",
    )
