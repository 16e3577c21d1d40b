"""A session's branch and its sandbox: which they are, and what can be asked of them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Self

from git_daytona.api.cloud import Cloud
from git_daytona.git.branches import Kept
from git_daytona.git.refs import Names
from git_daytona.git.repository import Repository
from git_daytona.sandbox.report import CommitText
from git_daytona.sandbox.transport import Transport


@dataclass(frozen=True)
class Outcome:
    """What a sync did: ``message`` is one line for people and the state file, ``left_behind`` what
    could not come back and is still only in the sandbox."""

    changed: bool
    head: str | None
    kept: tuple[Kept, ...] = ()
    ports: tuple[int, ...] = ()
    left_behind: str = ""
    message: str = ""
    before: str | None = None
    """The commit that the branch was at, or began with."""
    remarks: str = ""
    """The message without where the branch is."""


@dataclass(frozen=True)
class Branch(ABC):
    """A session's branch here, of a project or a submodule, and the sandbox that works on it."""

    repository: Repository
    transport: Transport
    sandbox_id: str
    names: Names
    commit: CommitText = field(default_factory=CommitText)
    """What the commit of pending changes says."""
    with_submodules: bool = False
    with_lfs: bool = False
    path: str = ""
    """Of a submodule, within its project."""

    def submodule(self, repository: Repository, path: str) -> Self:
        """Make the branch of a submodule."""
        transport = self.transport.submodule(repository, path)
        return replace(self, repository=repository, transport=transport, path=path)

    @property
    def cloud(self) -> Cloud:
        return self.transport.transfers.cloud

    @abstractmethod
    def set_up(self, *, fresh: bool) -> None:
        """Make its repository in the sandbox, with the branch in it."""

    @abstractmethod
    def sync(self, *, everything: bool = False, aside: bool = False) -> Outcome:
        """Bring the work back; of a submodule that is not there, no head."""

    @abstractmethod
    def push(self) -> str:
        """Push the branch to the sandbox."""

    @abstractmethod
    def update(self, commit: str, what: str) -> bool:
        """Merge a commit of the user's into the branch there."""
