"""Which sessions are worked in right now, by whatever process of this machine: a mark for each
command and each turn, which goes with the process that made it."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from git_daytona.base import files, paths
from git_daytona.base.errors import BadSetting, TimedOut


@contextmanager
def mark(git_dir: str, session_id: str) -> Iterator[None]:
    """Mark a session as worked in while the block runs."""
    folder, name = _place(git_dir, session_id)
    with ExitStack() as held:
        with suppress(BadSetting, TimedOut):  # a full disk, say: it is only for people's eyes
            held.enter_context(files.lock(folder / f"{name}-{secrets.token_hex(6)}"))
        yield


def is_marked(git_dir: str, session_id: str) -> bool:
    """Tell whether anybody works in a session; marks of those who were killed go."""
    folder, name = _place(git_dir, session_id)
    with suppress(OSError):  # nobody ever held a lock
        marks = [each for each in folder.iterdir() if each.name.startswith(f"{name}-")]
        return any(map(files.is_locked, marks))
    return False


def _place(git_dir: str, session_id: str) -> tuple[Path, str]:
    digest = sha256(f"{git_dir}\0{session_id}".encode("utf-8", "surrogateescape")).hexdigest()
    return paths.locks(), f"working-{digest[:24]}"
