"""What a new session begins with."""

from dataclasses import dataclass
from pathlib import Path

from git_daytona.base.errors import NotFound
from git_daytona.git import worktrees
from git_daytona.git.repository import Repository
from git_daytona.settings import preferences


@dataclass(frozen=True)
class Beginning:
    """What a user wants a new session to begin with: a revision (empty: HEAD), uncommitted work
    (None: as preferred), so many generations of its history (0: all)."""

    revision: str = ""
    dirty: bool | None = None
    depth: int = 0

    def first(self, repository: Repository, directory: Path) -> tuple[str | None, bool]:
        """Return the commit to begin with (None: HEAD), and whether it is one of uncommitted work.
        Raises NotFound, UsageError."""
        if self.revision:
            found = repository.resolve(self.revision)
            if found is None:
                raise NotFound(
                    f"there is no commit '{self.revision}' here", hint="see what is: git log --all"
                )
            return found, False
        preferred = preferences.load(directory)
        dirty = preferred.start_dirty() if self.dirty is None else self.dirty
        taken = worktrees.take_along(repository, preferred.user()) if dirty else None
        return taken, taken is not None


HEAD = Beginning()
