"""The gateway's host keys: made once, kept in private files, replaced by a rotation."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import asyncssh

TYPES = {"ed25519": "ssh-ed25519", "ecdsa": "ecdsa-sha2-nistp256", "rsa": "ssh-rsa"}


class HostKeys:
    """One key of each of ``types`` in ``folder`` (files ``ssh_host_<type>_key``, as sshd names
    them)."""

    def __init__(self, folder: Path, types: Sequence[str] = ("ed25519",)):
        unknown = set(types) - set(TYPES)
        if unknown or not types:
            raise ValueError(
                f"host key types are some of {', '.join(TYPES)}, not "
                f"{', '.join(sorted(unknown)) or 'none'}"
            )
        self._folder = folder
        self._types = tuple(types)
        self._lock = threading.Lock()  # guards _keys and the files
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        self._keys = [self._load(kind) for kind in self._types]

    def keys(self) -> list[asyncssh.SSHKey]:
        """What the next connection is to present."""
        with self._lock:
            return list(self._keys)

    def lines(self) -> list[str]:
        """The public keys as ``<type> <base64>``."""
        return [key.export_public_key().decode().strip() for key in self.keys()]

    def rotate(self) -> None:
        """Replace every key by a new one."""
        with self._lock:
            for kind in self._types:
                self._make(kind)
            self._keys = [self._load(kind) for kind in self._types]

    def _path(self, kind: str) -> Path:
        return self._folder / f"ssh_host_{kind}_key"

    def _load(self, kind: str) -> asyncssh.SSHKey:
        if not self._path(kind).exists():
            self._make(kind)
        return asyncssh.import_private_key(self._path(kind).read_bytes())

    def _make(self, kind: str) -> None:
        text = asyncssh.generate_private_key(TYPES[kind]).export_private_key()
        fresh = self._path(kind).with_suffix(".new")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path(kind))
