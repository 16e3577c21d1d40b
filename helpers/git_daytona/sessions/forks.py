"""What a fork of a session begins with, and what its agent is told of that."""

from dataclasses import dataclass
from typing import Any

from git_daytona.sessions.state import Session

FORK = (
    "this session is a fork of session {number}: its sandbox is a new one, with what is on "
    "{branch} ({commit}), without what git does not hold (ignored files, packages, servers)"
)
COPY = (
    "this session is a fork of session {number}: its sandbox is a copy of that one's, ignored files"
    " and packages included; what runs there does not run here"
)
UNKNOWN = (
    "this session is a fork of one whose work is not known here: its sandbox is a new one and does "
    "not have what that one did"
)


@dataclass(frozen=True)
class Origin:
    """What a fork is of: a session's id (empty: it is no fork), the session (None: one that is not
    known here), the commit that its branch is at (None: there is none), and why that may not be
    all, as words to append."""

    id: str = ""
    session: Session | None = None
    commit: str | None = None
    problem: str = ""

    @property
    def sandbox_id(self) -> str:
        """The sandbox that a copy can be made of; empty for none."""
        return self.session.sandbox_id if self.session else ""

    @property
    def depth(self) -> int:
        return self.session.depth if self.session else 0

    @property
    def ordered(self) -> dict[str, Any] | None:
        """What of the session's sandbox was ordered, as its record has it."""
        return self.session.ordered if self.session else None

    def told(self, *, copied: bool) -> str:
        """Say what the fork's sandbox has, which may be a copy."""
        if self.session is None:
            return UNKNOWN if self.id else ""
        names = self.session.names
        if copied:
            return COPY.format(number=names.number)
        if self.commit is None:
            return UNKNOWN
        told = FORK.format(number=names.number, branch=names.branch, commit=self.commit[:10])
        return f"{told}{self.problem}"


NOBODY = Origin()
