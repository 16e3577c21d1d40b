"""Git LFS in the repository here: which objects commits point to, and where they lie (git-lfs's
docs/spec.md). git-lfs itself is not run."""

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from git_daytona.git.repository import Repository

POINTER_BYTES = 1024
"""A pointer is shorter."""
MOST = 20_000
"""How many objects are sent or asked for at once."""
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-[^\n]*\n)*"
    rb"oid sha256:([0-9a-f]{64})\nsize ([0-9]{1,18})\n"
)
_CHUNK = 1024 * 1024


def pointers(repository: Repository, *revisions: str) -> dict[str, int]:
    """Find the LFS objects that pointers among revisions' objects (git-rev-list(1)) name, with
    their sizes."""
    words = ("rev-list", "--objects", "--no-object-names", "--ignore-missing", "--stdin")
    listed = repository.git(*words, stdin="".join(f"{each}\n" for each in revisions).encode())
    sizes = "--batch-check=%(objecttype) %(objectname) %(objectsize)"
    checked = repository.git("cat-file", sizes, stdin=listed.stdout).stdout.splitlines()
    small = [
        words[1]
        for words in (line.split() for line in checked)
        if words[0] == b"blob" and 0 < int(words[2]) < POINTER_BYTES
    ]
    blobs = repository.git("cat-file", "--batch=", stdin=b"".join(b"%s\n" % each for each in small))
    found = {oid.decode(): int(size) for oid, size in _POINTER.findall(blobs.stdout)}
    return dict(list(found.items())[:MOST])


@dataclass(frozen=True)
class Store:
    """The LFS objects of a repository here."""

    folder: Path

    def path(self, oid: str) -> Path:
        return self.folder / oid[:2] / oid[2:4] / oid

    def has(self, oid: str, size: int) -> bool:
        try:
            return self.path(oid).stat().st_size == size
        except OSError:
            return False

    def missing(self, wanted: dict[str, int]) -> dict[str, int]:
        return {oid: size for oid, size in wanted.items() if not self.has(oid, size)}

    def take(self, wanted: Iterable[tuple[str, int]], source: IO[bytes]) -> set[str]:
        """Take objects, one behind the other in a file, that are what they should be; return
        which."""
        return {oid for oid, size in wanted if self._take(oid, size, source)}

    def _take(self, oid: str, size: int, source: IO[bytes]) -> bool:
        digest, place = hashlib.sha256(), self.path(oid)
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent, prefix=".new-", delete=False) as new:
            left = size
            while left and (chunk := source.read(min(_CHUNK, left))):
                digest.update(chunk)
                new.write(chunk)
                left -= len(chunk)
            new.flush()
            os.fsync(new.fileno())
        if left or digest.hexdigest() != oid:
            Path(new.name).unlink()
            return False
        Path(new.name).replace(place)
        return True


def store(repository: Repository) -> Store:
    """Where a repository has its LFS objects."""
    storage = repository.git("config", "--type=path", "lfs.storage", check=False).text or "lfs"
    return Store(repository.common_dir / storage / "objects")
