"""The names that git sees: branches, remotes, and the refs of our own. Pure."""

import re
from dataclasses import dataclass

from git_daytona.endpoint import Endpoint

PROJECT = "/home/daytona/project"
"""Where the repository lies in every sandbox."""
SANDBOX_BRANCH = "opencode"
"""The branch that local HEAD is pushed to in the sandbox."""

_BRANCH = re.compile(r"refs/heads/opencode/([1-9][0-9]{0,8})")
_REMOTE = re.compile(r"sandbox-([1-9][0-9]{0,8})")

COUNTER = "refs/daytona/counter"
"""A blob that holds the highest number ever given: numbers are never used again, also not after a branch was deleted."""
KEPT = "refs/daytona/kept/"
"""What a sync or a deletion would have overwritten."""


@dataclass(frozen=True)
class Names:
    """All names of session number N."""

    number: int

    @property
    def branch(self) -> str:
        return f"opencode/{self.number}"

    @property
    def ref(self) -> str:
        return f"refs/heads/opencode/{self.number}"

    @property
    def remote(self) -> str:
        return f"sandbox-{self.number}"

    @property
    def tracking(self) -> str:
        """Prefix of the sandbox's branches here."""
        return f"refs/remotes/sandbox-{self.number}/"

    @property
    def incoming(self) -> str:
        """Prefix under which a fetch lands before its tips are moved, all at once, to where they belong."""
        return f"refs/daytona/incoming/{self.number}/"

    @property
    def kept(self) -> str:
        return f"{KEPT}opencode-{self.number}/"

    @property
    def resetting(self) -> str:
        """The branch's old tip, while worktrees that have it checked out still have to follow it to the new one."""
        return f"refs/daytona/resetting/{self.number}"

    @property
    def base(self) -> str:
        """The commit that the session started from."""
        return f"refs/daytona/base/{self.number}"


def url(endpoint: Endpoint) -> str:
    """The remote's URL: no user, the token is nowhere in it."""
    return f"ssh://{endpoint.url_authority}{PROJECT}"


def number_of_branch(ref: str) -> int | None:
    found = _BRANCH.fullmatch(ref)
    return int(found[1]) if found else None


def number_of_remote(name: str) -> int | None:
    found = _REMOTE.fullmatch(name)
    return int(found[1]) if found else None


def number_in(text: str) -> int | None:
    """The number that a person means by ``3``, ``sandbox-3`` or ``opencode/3``; None for anything else (a sandbox or session id)."""
    found = re.fullmatch(r"(?:sandbox-|(?:refs/heads/)?opencode/)?([1-9][0-9]{0,8})", text)
    return int(found[1]) if found else None
