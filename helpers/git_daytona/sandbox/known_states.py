"""In which state each sandbox was seen last, and when: what ``git daytona status`` shows when
nobody can be asked.

A file of its own, one per state file: the state file is shared with OpenCode's service and the
existing plugin, and looking must not write there.
"""

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from git_daytona.base import files, paths
from git_daytona.base.errors import GitDaytonaError


@dataclass(frozen=True)
class Seen:
    """A sandbox's state, and when it was seen in it: milliseconds since the epoch."""

    state: str
    at: int


def _place(state_file: Path) -> Path:
    return (
        paths.own_state()
        / "seen"
        / f"{hashlib.sha256(str(state_file).encode()).hexdigest()[:24]}.json"
    )


def read(state_file: Path) -> dict[str, Seen]:
    """Sandbox id → what was seen. Nothing where there is no such file, or one that makes no sense:
    it is only a memory."""
    found = {}
    try:
        for id_, (state, at) in json.loads(_place(state_file).read_bytes()).items():
            if isinstance(state, str) and isinstance(at, int):
                found[id_] = Seen(state, at)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return found
    return found


def write(state_file: Path, seen: Mapping[str, Seen]) -> None:
    """Remember it; where that cannot be written, it is forgotten."""
    content = json.dumps({id_: (each.state, each.at) for id_, each in seen.items()}).encode()
    with contextlib.suppress(GitDaytonaError):
        files.write_whole(_place(state_file), content)
