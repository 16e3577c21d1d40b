"""The schema of the state file, git-daytona-state(5): which session has which sandbox, number and
worktree, and how its last sync went. Its JSON form is records.py, the file state_file.py."""

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from git_daytona.base.errors import NoRepository
from git_daytona.git.refs import LAST_NUMBER, SANDBOX_BRANCH, Names, is_prefix

TITLE = 200
"""Characters of a session's title that are kept."""
MESSAGE_LENGTH = 4000
"""The longest message of a sync, characters."""


class GitState(StrEnum):
    """How the last sync of a session ended."""

    PENDING = "pending"
    SYNCED = "synced"
    FAILED = "failed"
    SETUP_FAILED = "setup-failed"
    DISABLED = "disabled"


PENDING, SYNCED, FAILED, SETUP_FAILED, DISABLED = GitState


def now() -> int:
    """Return milliseconds since the epoch, as JavaScript's Date.now()."""
    return int(time.time() * 1000)


def one_line(title: str) -> str:
    """Make a title one line of bounded length, without what moves a cursor or turns the writing."""
    return "".join(c for c in " ".join(title.split()) if c.isprintable())[:TITLE]


def joined(*parts: str) -> str:
    """Make one line of what is to be said."""
    return "; ".join(filter(None, parts))


def bounded(*parts: str) -> str:
    """Make one line of what a sandbox has to do with, and may make long."""
    return joined(*parts)[:MESSAGE_LENGTH]


# -- the schema: each field's type has the function that reads any JSON value as one ---------------


def _milliseconds(value: Any) -> int:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool)
    return int(value) if usable and 0 <= value < 1e15 else 0


# Without these a session is another one, and its work would go nowhere: what they cannot read is
# left alone (records.BadRecord).


def _number(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= LAST_NUMBER:
        raise ValueError
    return value


def _sandbox(value: Any) -> str:
    if not isinstance(value, str | None):
        raise ValueError
    return value or ""


def _git_dir(value: Any) -> str | None:
    return _sandbox(value) or None


def _object(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) and value else None


def _prefix(value: Any) -> str:
    if value is not None and not is_prefix(_sandbox(value)):
        raise ValueError
    return value or SANDBOX_BRANCH


Milliseconds = Annotated[int, _milliseconds]
Text = Annotated[str, lambda value: str(value or "")]


@dataclass(frozen=True)
class GitReturn:
    """How the work came back last: state, one line for people, when."""

    state: Annotated[str, lambda value: str(value or PENDING)]
    """A GitState, or a word of another program's."""
    message: Text = ""
    updated_at: Milliseconds = 0


@dataclass(frozen=True)
class SetUp:
    """How a sandbox's set-up went (sessions/provision.py): ``waiting`` for consent, ``running``,
    ``done`` or ``failed``; empty where there is none."""

    state: Text = ""
    commit: Text = ""
    """What the set-up is read from."""
    digest: Text = ""
    """What there has to be consent to."""
    run: Milliseconds = 0
    """The number of the run there."""
    message: Text = ""


@dataclass(frozen=True)
class Session:
    """One session; times are since the epoch. The existing plugin's records lack what is ours."""

    id: str
    sandbox_id: Annotated[str, _sandbox]
    number: Annotated[int | None, _number]
    """None where there is no repository to sync with."""
    worktree: Text
    created: Milliseconds
    last_accessed: Milliseconds
    git_return: GitReturn
    git_dir: Annotated[str | None, _git_dir] = None
    """The repository's common directory (ours): tells clones of one project apart."""
    repository: Text = ""
    """The repository's identity (ours), by which it is known wherever it is moved; empty for a
    directory without one, and in records of versions that went by ``git_dir`` alone."""
    deleting: Milliseconds = 0
    """When a deletion began that has not succeeded (ours); 0: none did."""
    synced_at: Milliseconds = 0
    """``last_accessed`` as the last good sync found it (ours): what came later may not be here."""
    title: Annotated[str, lambda value: one_line(value) if isinstance(value, str) else ""] = ""
    """What its client or its user calls it (ours), in one line."""
    prefix: Annotated[str, _prefix] = SANDBOX_BRANCH
    """What is before ``/N`` in its branch's name (ours)."""
    notice: Text = ""
    """What its agent has to be told with the next tool result (ours)."""
    api_url: Text = ""
    """The API that its sandbox was seen on first (ours); empty until then."""
    organization_id: Text = ""
    """The sandbox's organisation there (ours); empty where that API does not say."""
    depth: Milliseconds = 0
    """How many generations of the history its sandbox has (ours); 0: all."""
    setup: SetUp = SetUp()
    """How the project's set-up went in its sandbox (ours)."""
    own_number: Annotated[int | None, _number] = None
    """What it is called where nothing is synced, and ``number`` is missing (ours)."""
    ordered: Annotated[dict[str, Any] | None, _object] = None
    """What of its sandbox was ordered on the command line (ours), as ``Order.record`` has it."""

    @property
    def names(self) -> Names:
        """The names of its branch and remote; raises NoRepository if it is not synced."""
        if self.number is None:
            raise NoRepository(
                f"session {self.name} is not synced: {self.git_return.message}",
                hint=f"reach it: git daytona exec {self.name} -- COMMAND",
            )
        return Names(self.number, self.prefix)

    @property
    def name(self) -> str:
        """What a person calls it: its number, or its id if it has none."""
        return str(self.number or self.own_number or self.id)

    @property
    def branch(self) -> str:
        """The branch here that its work comes back to; empty if it is not synced."""
        return "" if self.number is None else Names(self.number, self.prefix).branch

    @property
    def needs_sync(self) -> bool:
        """Whether its sandbox may hold work that is not here."""
        return self.number is not None and (
            self.git_return.state != SYNCED or self.last_accessed > self.synced_at
        )
