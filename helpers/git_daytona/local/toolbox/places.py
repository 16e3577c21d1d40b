"""Where a path of the sandbox lies on the host, for reading and for changing.

Reading goes by `Isolation.path`. Changes are allowed below the sandbox's home and /tmp only
(without isolation, that is the host's /tmp): the rest of what it sees is the host's, read-only. The
sandbox is untrusted and runs at the same time, so a directory could be replaced by a link between
the check and the change; changes are therefore made relative to a descriptor of the parent
directory, which is reached from the sandbox's own directory without following any link (openat(2),
O_NOFOLLOW).
"""

import os
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from git_daytona.local.core.model import ApiError, Isolation, Sandbox
from git_daytona.local.toolbox.call import visible

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Place:
    """A directory entry that may be changed, existing or not."""

    parent: int
    """Descriptor of the directory, open while the place is in use."""
    name: str

    def stat(self) -> os.stat_result:
        """Of the entry itself, links not followed; FileNotFoundError."""
        return os.stat(self.name, dir_fd=self.parent, follow_symlinks=False)

    def open(self, flags: int, mode: int = 0o666) -> int:
        """Open the entry itself; a link is refused with OSError(ELOOP)."""
        return os.open(self.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=self.parent)


def readable(isolation: Isolation, sandbox: Sandbox, path: str) -> Path:
    """The host path that a path of the sandbox leads to, links followed; ApiError(403) where the
    sandbox could not look."""
    return isolation.path(sandbox, visible(path))


@contextmanager
def changeable(
    isolation: Isolation,
    sandbox: Sandbox,
    path: str,
    *,
    follow: bool = False,
    parents: bool = False,
) -> Iterator[Place]:
    """The entry that a path of the sandbox names, to be made, changed or removed.

    ``follow``: the entry that the path leads to, when it is a link, instead of the link.
    ``parents``: make missing parent directories (mode 755). Raises ApiError(403) outside the
    sandbox's own directories and OSError as open(2) does.
    """
    full = visible(path).rstrip("/")
    name = posixpath.basename(full)
    if follow or name in ("", ".", ".."):
        target = isolation.path(sandbox, full or "/")
    else:
        target = isolation.path(sandbox, posixpath.dirname(full)) / name
    own = [sandbox.home, sandbox.tmp] if isolation.isolates else [sandbox.home, Path("/tmp")]  # noqa: S108
    parent = _open_parent(own, target, path, parents)
    try:
        yield Place(parent, target.name)
    finally:
        os.close(parent)


def _open_parent(own: list[Path], target: Path, path: str, make: bool) -> int:
    bases = [base for root in own for base in (root, root.resolve())]
    # The directories themselves stay: in the sandbox they are mount points.
    if not any(base.is_relative_to(target) for base in bases):
        for base in bases:
            if target.parent.is_relative_to(base):
                return _descend(base, target.parent.relative_to(base).parts, make)
    raise ApiError(403, f"{path}: permission denied", code="FILE_ACCESS_DENIED")


def _descend(base: Path, parts: tuple[str, ...], make: bool) -> int:
    # The server's own path to the sandbox may go through links; what lies below may not.
    fd = os.open(base, DIRECTORY & ~os.O_NOFOLLOW)
    for part in parts:
        try:
            try:
                below = os.open(part, DIRECTORY, dir_fd=fd)
            except FileNotFoundError:
                if not make:
                    raise
                os.mkdir(part, 0o755, dir_fd=fd)
                below = os.open(part, DIRECTORY, dir_fd=fd)
                os.fchmod(below, 0o755)  # whatever this server's umask is
        finally:
            os.close(fd)
        fd = below
    return fd
