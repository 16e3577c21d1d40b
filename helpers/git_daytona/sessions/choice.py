"""Which session is meant where nobody names one."""

from collections.abc import Sequence

from git_daytona.base.errors import NotFound, UsageError
from git_daytona.git.repository import Repository
from git_daytona.sessions.state import Session

LISTED = 10
"""How many sessions the question "which session?" lists."""


class WhichSession(UsageError):
    """Nobody said which of several sessions is meant."""


def meant(sessions: Sequence[Session], repository: Repository | None) -> Session:
    """Return the session whose branch is checked out where one stands, or the only one there is;
    who stands on the branch of one that is gone means no other. Raises WhichSession, NotFound."""
    if not sessions:
        raise NotFound("no sessions here yet", hint="start one: git daytona start")
    branch = _branch(repository) if repository else ""
    for each in sessions:
        if branch and each.branch == branch:
            return each
    if len(sessions) > 1 or branch.startswith(f"{sessions[0].prefix}/"):
        raise which(sessions)
    return sessions[0]


def which(sessions: Sequence[Session]) -> WhichSession:
    """Make the question which of them is meant."""
    named = [f"{each.name} ({each.title})" if each.title else each.name for each in sessions]
    more = f" and {len(named) - LISTED} more" if len(named) > LISTED else ""
    return WhichSession(
        f"which session? {', '.join(named[:LISTED])}{more}",
        hint="give its number; 'git daytona status' says more of them",
    )


def _branch(repository: Repository) -> str:
    """Return the branch that is checked out where one stands; empty for none."""
    head = repository.git("symbolic-ref", "--quiet", "HEAD", check=False).text
    return head.removeprefix("refs/heads/")
