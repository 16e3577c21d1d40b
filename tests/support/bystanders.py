"""What an adversary must not have changed: everything outside of the repository's refs and objects,
the reset worktree and our own state."""

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from support.processes import descendants
from support.waiting import until

MAY = (
    *("objects", "refs", "packed-refs", "logs", "index", "ORIG_HEAD", "shallow.lock"),
    "git-daytona-id",
)
"""Of a .git: what a sync is there to change, the index and ORIG_HEAD of a worktree that it resets,
and the repository's identity."""
OURS = (".local/state/git-daytona", ".local/share/opencode", "cwd/.coverage", ".cache/git-daytona")
"""Below HOME: our own state and log (and what measures these tests)."""
ABOVE = {str(folder) for each in OURS for folder in Path(each).parents}


def snapshot(top: Path, skip: Callable[[Path], bool]) -> dict[str, str]:
    """Path → kind, mode and content of all below a folder, links not followed."""
    found = {}
    for folder, folders, names in os.walk(top):
        here = Path(folder)
        folders[:] = [name for name in folders if not skip(here / name)]
        for name in (*folders, *names):
            path = here / name
            if skip(path):
                continue
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                content = ""
                if stat.S_ISREG(status.st_mode):
                    content = hashlib.sha256(path.read_bytes()).hexdigest()
                elif stat.S_ISLNK(status.st_mode):
                    content = os.fspath(path.readlink())
                found[str(path.relative_to(top))] = f"{status.st_mode:o} {content}"
    return found


def left_over() -> list[str]:
    """Processes of ours that still run; those in sandboxes are the embedded Daytona's."""
    return [
        " ".join(each.words)
        for each in descendants()
        if b"DAYTONA_SANDBOX_ID=" not in each.environment
        and (
            "git" in each.name
            or "ssh" in each.name
            or any("git_daytona.ssh" in word for word in each.words)
        )
    ]


@dataclass
class Watched:
    """The places of one test, and what may change in them."""

    home: Path
    repository: Path
    temporary: Path
    worktree: bool = False
    """Whether the repository's worktree is reset, so that its files may change."""
    remotes: bool = False
    """Whether a session starts or ends, so that remotes come and go in .git/config."""

    def seen(self) -> dict[str, dict[str, str]]:
        git = self.repository / ".git"
        ours = {self.home / each for each in OURS}

        def in_repository(path: Path) -> bool:
            if path == self.repository.parent / "stdin":  # of program.py
                return True
            if path.is_relative_to(git):
                inner = path.relative_to(git).parts
                return bool(inner) and (inner[0] in MAY or (self.remotes and inner == ("config",)))
            return self.worktree and path.is_relative_to(self.repository)

        return {
            "home": {
                name: what
                for name, what in snapshot(self.home, lambda path: path in ours).items()
                if name not in ABOVE
            },
            # With the folder around it: a path that climbs out of the worktree ends there.
            "repository": snapshot(self.repository.parent, in_repository),
            "temporary": snapshot(self.temporary, lambda path: False),
        }

    @contextlib.contextmanager
    def nothing_else_changed(self, what: str) -> Iterator[None]:
        before = self.seen()
        yield
        until(lambda: not left_over(), seconds=20)
        after = self.seen()
        for place, was in before.items():
            now = after[place]
            changed = sorted(
                name for name in was.keys() | now.keys() if was.get(name) != now.get(name)
            )
            assert changed == [], f"{what}: changed in {place}: {changed}"
