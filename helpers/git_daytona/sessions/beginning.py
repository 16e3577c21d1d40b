"""What a new session begins with: a revision, or the work of the session that it is a fork of."""

from dataclasses import dataclass
from pathlib import Path

from git_daytona.git import worktrees
from git_daytona.git.repository import Repository
from git_daytona.sessions.state import Session
from git_daytona.settings import preferences

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
class Beginning:
    """What a user wants a new session to begin with: a revision (empty: HEAD), uncommitted work
    (None: as preferred), so many generations of its history (0: all)."""

    revision: str = ""
    dirty: bool | None = None
    depth: int = 0

    def first(self, repository: Repository, directory: Path) -> tuple[str | None, bool]:
        """Return the commit to begin with (None: HEAD), and whether it is of uncommitted work.
        Raises NotFound, UsageError."""
        if self.revision:
            return repository.commit(self.revision), False
        preferred = preferences.load(directory)
        dirty = preferred.start_dirty() if self.dirty is None else self.dirty
        taken = worktrees.take_along(repository, preferred.user()) if dirty else None
        return taken, taken is not None


@dataclass(frozen=True)
class Origin:
    """What a fork is of: a session's id (empty: no fork), the session (None: not known here), the
    commit that its branch is at (None: none), and why that may not be all, as words to append."""

    id: str = ""
    session: Session | None = None
    commit: str | None = None
    problem: str = ""

    def told(self, *, copied: bool) -> str:
        """Say what the fork's sandbox has, which may be a copy."""
        if self.session and copied:
            return COPY.format(number=self.session.number)
        if self.session and self.commit:
            number, branch = self.session.number, self.session.branch
            told = FORK.format(number=number, branch=branch, commit=self.commit[:10])
            return f"{told}{self.problem}"
        return UNKNOWN if self.id else ""


HEAD, NOBODY = Beginning(), Origin()
