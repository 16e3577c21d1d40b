"""What a user sets with ``git config daytona.…``, for one repository or all: nothing that trust or
the key depend on.

``.git/config`` is the user's own: git itself runs programs that it names. A file of the repository
(``.env``) may come from a stranger.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partialmethod
from pathlib import Path

from git_daytona.base.errors import BadSetting, GitDaytonaError
from git_daytona.base.run import Result, run
from git_daytona.base.secret import printable
from git_daytona.git import configuration, environment
from git_daytona.git.refs import SANDBOX_BRANCH, is_prefix

BRANCH_PREFIX = "daytona.branchPrefix"
SYNC_ON_IDLE = "daytona.syncOnIdle"
SYNC_EVERY = "daytona.syncEvery"
KEPT_AGE = "daytona.keptAge"
MAX_FETCH_SIZE = "daytona.maxFetchSize"
ENV, SECRETS = "daytona.env", "daytona.secrets"
"""Those whose values add up; an empty one takes back what a wider scope says."""
ALLOW_HOST_TOOLS = "daytona.allowHostTools"
TRANSPORT = "daytona.transport"
EDITOR = "daytona.editor"
AUTHOR = "daytona.author"
COMMIT_MESSAGE = "daytona.commitMessage"
START_DIRTY = "daytona.startDirty"
SETUP = "daytona.setup"
COPY_FILES = "daytona.copyFiles"
SUBMODULES = "daytona.submodules"
LFS = "daytona.lfs"
DEFAULTS = {
    BRANCH_PREFIX: SANDBOX_BRANCH,
    SYNC_ON_IDLE: "true",
    SYNC_EVERY: "5",
    KEPT_AGE: "never",
    MAX_FETCH_SIZE: "4g",
    TRANSPORT: "auto",
    EDITOR: None,
    AUTHOR: None,
    COMMIT_MESSAGE: "{title}",
    START_DIRTY: "false",
    SETUP: "ask",
    COPY_FILES: None,
    SUBMODULES: "false",
    LFS: "false",
    ALLOW_HOST_TOOLS: None,
}
"""All preferences but those of order.py, and what counts where they are unset."""
PEOPLE = ("user.name", "user.email")
FETCH_BYTES = 4 * 1024**3
_SWITCH = ("bool", "true|false", "is neither true nor false")
# The type that git reads a value as, what it makes of one, and what is wrong with any other.
_TYPES = {
    **dict.fromkeys((SYNC_ON_IDLE, START_DIRTY, SUBMODULES, LFS), _SWITCH),
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
    people: Mapping[str, Preference] = field(default_factory=dict)
    """``user.name`` and ``user.email``, which are git's own."""

    def get(self, name: str) -> Preference | None:
        return self.found.get(name.lower())

    def _typed(self, name: str, default: str) -> str:
        preference = self.get(name)
        if preference is None:
            return default
        type_, form, fault = _TYPES[name]
        read = _git(self.directory, "config", f"--type={type_}", "--get", name)
        if read.status != 0 or not re.fullmatch(form, read.text):
            raise _unusable(name, preference, fault)
        return read.text

    def _is_on(self, name: str) -> bool:
        return self._typed(name, DEFAULTS[name] or "") == "true"

    def _one_of(self, name: str, words: tuple[str, str, str]) -> str:
        """The preferred one of three words; the first is the default."""
        preference = self.get(name)
        if preference and preference.value not in words:
            raise _unusable(name, preference, "is neither {}, {} nor {}".format(*words))
        return preference.value if preference else words[0]

    sync_on_idle = partialmethod(_is_on, SYNC_ON_IDLE)
    """Whether the end of a turn is synced."""
    start_dirty = partialmethod(_is_on, START_DIRTY)
    """Whether a new session takes uncommitted and untracked work along."""
    submodules = partialmethod(_is_on, SUBMODULES)
    """Whether submodules that are checked out here take part in sessions."""
    lfs = partialmethod(_is_on, LFS)
    """Whether LFS objects travel with the commits that point to them."""
    transport = partialmethod(_one_of, TRANSPORT, ("auto", "ssh", "api"))
    """How commits travel; auto: by the API where SSH is blocked."""
    setup = partialmethod(_one_of, SETUP, ("ask", "always", "never"))
    """Whether what a devcontainer.json wants to run may run in sandboxes."""

    def branch_prefix(self) -> str:
        """What stands before ``/N`` in the names of the branches of new sessions."""
        preference = self.get(BRANCH_PREFIX)
        if preference is None:
            return SANDBOX_BRANCH
        prefix = preference.value.strip("/")
        check = ("check-ref-format", f"refs/heads/{prefix}/1")
        if not is_prefix(prefix) or _git(self.directory, *check).status != 0:
            raise _unusable(BRANCH_PREFIX, preference, "cannot begin a branch's name")
        return prefix

    def sync_every(self) -> int | None:
        """After how many minutes of a turn it is synced; None: not before its end."""
        preference = self.get(SYNC_EVERY)
        value = preference.value.strip() if preference else DEFAULTS[SYNC_EVERY] or ""
        if preference and not re.fullmatch(r"never|\d{1,5}", value):
            raise _unusable(SYNC_EVERY, preference, "is no number of minutes, nor 'never'")
        return None if value == "never" else int(value) or None

    def kept_until(self) -> int:
        """Seconds since the epoch: what was kept before that may be pruned; 0: nothing."""
        return int(self._typed(KEPT_AGE, "0"))

    def max_fetch_bytes(self) -> int:
        """The largest pack that a fetch takes from a sandbox."""
        return int(self._typed(MAX_FETCH_SIZE, str(FETCH_BYTES)))

    def copy_files(self) -> list[str]:
        """Patterns of the ignored files that a sandbox gets, too."""
        if self.get(COPY_FILES) is None:
            return []
        listed = _git(self.directory, "config", "-z", "--get-all", COPY_FILES).text
        found: list[str] = []
        for each in listed.split("\0")[:-1]:
            found = [*found, each] if each.strip() else []  # as git has it, "" takes all back
        return found

    def editor(self) -> str:
        """The program that 'git daytona code' starts; empty: any. One that a repository's own
        configuration names, and perhaps brings along, is not started."""
        preference = self.get(EDITOR)
        if preference and preference.scope not in ("global", "system", "command"):
            raise BadSetting(
                f"{EDITOR} is set in {preference.source}, where it names no program",
                hint=f"set it for yourself: git config --global {EDITOR} PROGRAM",
            )
        return preference.value.strip() if preference else ""

    def author(self) -> tuple[str, str]:
        """Name and address of the author of a sync's commits; empty for the sandbox's own."""
        preference = self.get(AUTHOR)
        if preference is None:
            return "", ""
        found = re.fullmatch(r"\s*([^<>]*[^<>\s])\s*<([^<>\s]+)>\s*", preference.value)
        if not found or not preference.value.isprintable():
            raise _unusable(AUTHOR, preference, "is not NAME <ADDRESS>")
        return found[1], found[2]

    def commit_message(self) -> str:
        """The template of a sync's commits, as the user wrote it."""
        preference = self.get(COMMIT_MESSAGE)
        return preference.value if preference and preference.value.strip() else "{title}"

    def user(self) -> tuple[str, str]:
        """The user's name and address, as git has them; empty where one is missing."""
        found = (each.value if (each := self.people.get(name)) else "" for name in PEOPLE)
        name, address = ("".join(filter(str.isprintable, each)) for each in found)
        name, address = re.sub("[<>]", "", name).strip(), re.sub(r"[<>\s]", "", address)
        return (name, address) if name and address else ("", "")

    def check(self) -> list[GitDaytonaError]:
        """What is wrong with them."""
        problems: list[GitDaytonaError] = []
        for read in (
            *(self.branch_prefix, self.sync_on_idle, self.sync_every, self.kept_until),
            *(self.max_fetch_bytes, self.transport, self.editor, self.author, self.start_dirty),
            *(self.setup, self.submodules, self.lfs),
        ):
            try:
                read()
            except GitDaytonaError as problem:
                problems.append(problem)
        return problems


def _git(directory: Path, *arguments: str) -> Result:
    return run(("git", "-C", str(directory), *arguments), env=environment.base(), timeout=10)


def load(directory: Path, *, embedded: bool = True) -> Preferences:
    """All of ``daytona.*`` and who the user is, as git finds it from a directory; none where git
    cannot say. Without ``embedded`` a bare repository does not count: one may come as files of
    another."""
    safe = () if embedded else ("-c", "safe.bareRepository=explicit")
    try:
        entries = configuration.read("-C", str(directory), *safe)
    except GitDaytonaError:
        return Preferences(directory, {})
    found: dict[str, Preference] = {}
    for scope, origin, key, value in entries:
        name = key.lower()
        if not name.startswith("daytona.") and name not in PEOPLE:
            continue
        if name in (ENV, SECRETS) and value and name in found:
            value = f"{found[name].value} {value}"
        # of the others the last one counts, as for git
        found[name] = Preference("true" if value is None else value, scope, origin)
    people = {name: found.pop(name) for name in PEOPLE if name in found}
    return Preferences(directory, found, people)


def _unusable(name: str, preference: Preference, why: str) -> BadSetting:
    scope = preference.scope if preference.scope in ("global", "system") else "local"
    return BadSetting(
        f"{name} is '{printable(preference.value)[:80]}', which {why}",
        hint=f"set it anew: git config --{scope} {name} VALUE",
    )
