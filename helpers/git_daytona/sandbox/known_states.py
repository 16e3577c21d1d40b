"""In which state each sandbox was last, and when: for ``git daytona status`` without the API.

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
    """A sandbox's state, and when it was in it: milliseconds since the epoch."""

    state: str
    at: int


def _path(state_file: Path) -> Path:
    name = hashlib.sha256(str(state_file).encode()).hexdigest()[:24]
    return paths.own_state() / "seen" / f"{name}.json"


def read(state_file: Path) -> dict[str, Seen]:
    """Read sandbox id → what was seen; nothing from a file that is missing or broken."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
        entries = json.loads(_path(state_file).read_bytes()).items()
        return {
            id_: Seen(state, at)
            for id_, (state, at) in entries
            if isinstance(state, str) and isinstance(at, int)
        }
    return {}


def write(state_file: Path, seen: Mapping[str, Seen]) -> None:
    """Remember what was seen, if the file can be written."""
    content = json.dumps({id_: (each.state, each.at) for id_, each in seen.items()}).encode()
    with contextlib.suppress(GitDaytonaError):
        files.write_whole(_path(state_file), content)
