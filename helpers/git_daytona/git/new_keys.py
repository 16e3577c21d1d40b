"""Keys that a repository's configuration does not have yet, added together: a process of git's for
each would be most of what a session's start takes on this machine."""

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from git_daytona.git.repository import LOCK_SECONDS, Repository, to_bytes

LOOK_SECONDS = 0.05
"""Between two looks whether another program still writes the configuration."""


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[int]:
    """Hold git's own lock on a file: a file beside it, which takes its place when the block has
    come to its end. Raises OSError: FileExistsError where another program keeps the lock."""
    lock, end = path.with_name(f"{path.name}.lock"), time.monotonic() + LOCK_SECONDS
    while True:
        try:
            descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            break
        except FileExistsError:
            if time.monotonic() > end:
                raise
            time.sleep(LOOK_SECONDS)
    try:
        with os.fdopen(descriptor, closefd=True):
            yield descriptor
        lock.replace(path)
    except BaseException:
        lock.unlink(missing_ok=True)
        raise


def _quoted(text: str) -> str:
    """A text between quotation marks, as git-config(1) has it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _value(text: str) -> str:
    return text if re.fullmatch(r"""[^\s"\\;#]+""", text) else _quoted(text)


def add(repository: Repository, sections: Mapping[str, Mapping[str, str]]) -> None:
    """Add keys at the end of .git/config, all or none; what is there stays as it is. A section is
    named as for git-config(1): ``remote.sandbox-1``. Raises OSError."""
    text = ""
    for section, values in sections.items():
        kind, _, name = section.partition(".")
        lines = (f"\t{key} = {_value(value)}\n" for key, value in values.items())
        text += f"[{kind} {_quoted(name)}]\n{''.join(lines)}"
    path = (repository.common_dir / "config").resolve()
    with _lock(path) as descriptor:
        before = path.read_bytes()
        os.fchmod(descriptor, path.stat().st_mode & 0o7777)
        separator = b"\n" if before and not before.endswith(b"\n") else b""
        rest = memoryview(before + separator + to_bytes(text))
        while rest:  # not synced to the disk, as git does not: a lock is held as briefly as can be
            rest = rest[os.write(descriptor, rest) :]
