"""What has come to a branch, in a few words: ``2 commits, README and 3 more``."""

from contextlib import suppress

from git_daytona.base.errors import GitDaytonaError
from git_daytona.base.secret import one_line
from git_daytona.git.repository import Repository

NAMED = 2
"""How many changed files are named."""


def described(repository: Repository, before: str | None, after: str) -> str:
    """Say what one commit has over another; empty where git cannot tell. Without the one before it
    is all that the other has."""
    with suppress(GitDaytonaError):
        between = f"{before}..{after}" if before else after
        count = int(repository.git("rev-list", "--count", between).text)
        begin = before or repository.git("hash-object", "-t", "tree", "--stdin").text
        words = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", begin, after)
        names = repository.listed(*words)
        shown = ", ".join(one_line(each.decode(errors="replace")) for each in names[:NAMED])
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        commits = f"{count} commit{'' if count == 1 else 's'}"
        return ", ".join(filter(None, (commits, f"{shown}{more}")))
    return ""
