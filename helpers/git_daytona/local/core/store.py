"""What a `daytona-local` root holds on disk, and how it is written: private whatever the umask,
whole or not at all.

ROOT/lock                       held while a server runs on this root
ROOT/api-key                    the bearer key, made at the first start
ROOT/host-keys/                 the SSH gateway's
ROOT/sandboxes/ID/sandbox.json  one sandbox: its record,
                 /home, /tmp    what it sees as /home/daytona and /tmp
ROOT/snapshots/ID               a snapshot that was made of one, likewise
"""

import json
import logging
import os
import secrets
import shutil
import stat
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

log = logging.getLogger(__name__)

SEEN = ("home", "tmp")
"""What of a sandbox's directory it sees itself."""
COPY_SECONDS = 600.0


class RootInUse(Exception):
    """Another server runs on this root. `root` says which."""

    def __init__(self, root: Path):
        super().__init__(f"another daytona-local runs on '{root}'")
        self.root = root


class Store:
    """The files of one root. `open` takes the lock, or raises RootInUse; OSError when the root
    cannot be written."""

    def __init__(self, root: Path):
        self.root = root.absolute()
        self.sandboxes = self.root / "sandboxes"
        self.snapshots = self.root / "snapshots"
        self.host_keys = self.root / "host-keys"
        # One server per root: two would run the same sandboxes' processes and overwrite each
        # other's records.
        self._lock_file = self.root / "lock"
        self._lock = FileLock(self._lock_file, timeout=0, mode=0o600, thread_local=False)

    def open(self) -> None:
        self.root.parent.mkdir(parents=True, exist_ok=True)
        for directory in (self.root, self.sandboxes, self.snapshots, self.host_keys):
            _private_directory(directory)
        try:
            self._lock.acquire()
        except Timeout:
            raise RootInUse(self.root) from None
        for leftover in self.sandboxes.glob(".trash-*"):
            self.remove_trash(leftover)

    def close(self) -> None:
        self._lock.release()

    def api_key(self) -> str:
        """The root's bearer key; made at the first call of all."""
        path = self.root / "api-key"
        try:
            key = path.read_text("ascii").strip()
        except FileNotFoundError:
            key = ""
        if not key:
            key = f"dtn_{secrets.token_hex(32)}"
            write_private(path, key.encode("ascii") + b"\n")
        return key

    def is_in_use(self) -> bool:
        """Tell whether a server runs on the root. Makes nothing."""
        if not self._lock_file.is_file():
            return False
        try:
            with self._lock:
                return False
        except Timeout:
            return True

    def ports(self) -> tuple[int, int]:
        """The last server's ports (API, gateway); 0 for what is not known."""
        try:
            kept = json.loads((self.root / "ports.json").read_bytes())
            return int(kept["api"]), int(kept["gateway"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0, 0  # a convenience: the system chooses others

    def save_ports(self, api: int, gateway: int) -> None:
        write_private(
            self.root / "ports.json", json.dumps({"api": api, "gateway": gateway}).encode()
        )

    def make_sandbox(self, sandbox_id: str) -> Path:
        """The new sandbox's directory, with `home` and `tmp` in it."""
        directory = self.sandboxes / sandbox_id
        self._make_seen(directory)
        # Without one, a first zsh on a terminal asks its questions for new users.
        (directory / "home" / ".zshrc").touch()
        return directory

    def _make_seen(self, directory: Path) -> None:
        directory.mkdir(mode=0o700)
        # Nobody else gets past ROOT; inside, the modes are those of an ordinary machine, as git and
        # ssh there expect.
        for name, mode in ((".", 0o700), ("home", 0o755), ("tmp", 0o1777)):
            (directory / name).mkdir(exist_ok=True)
            (directory / name).chmod(mode)

    def make_snapshot(self, snapshot_id: str, source: Path, record: dict[str, Any]) -> None:
        """Keep a copy of what a sandbox sees, and a record of it."""
        directory = self.snapshots / snapshot_id
        self._make_seen(directory)
        self.copy_seen(source, directory)
        write_private(directory / "snapshot.json", json.dumps(record).encode())

    def load_snapshots(self) -> Iterator[dict[str, Any]]:
        """The record of every snapshot that was made; what is without one was not finished."""
        for directory in self.snapshots.iterdir():
            try:
                yield json.loads((directory / "snapshot.json").read_bytes())
            except (OSError, ValueError):
                self.remove_trash(directory)

    def copy_seen(self, source: Path, directory: Path) -> None:
        """Copy what a sandbox sees into another one's directory. What its programs write meanwhile,
        or what only its owner could read, may be missing: it is said in the log."""
        for name in SEEN:
            done = subprocess.run(
                ("cp", "-a", f"{source}/{name}/.", f"{directory}/{name}"),
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=COPY_SECONDS,
            )
            if done.returncode:
                log.warning("not all of '%s' was copied: %s", source, done.stderr[-2000:])

    def save_sandbox(self, directory: Path, record: dict[str, Any]) -> None:
        write_private(
            directory / "sandbox.json", json.dumps(record, indent=1, sort_keys=True).encode()
        )

    def load_sandboxes(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Every sandbox's directory and record. One that cannot be read is left alone and named in
        the log."""
        for directory in sorted(self.sandboxes.iterdir()):
            if directory.name.startswith("."):
                continue
            try:
                record = json.loads((directory / "sandbox.json").read_bytes())
            except (OSError, ValueError) as error:
                log.warning(
                    "sandbox %s is skipped: its record cannot be read: %s", directory.name, error
                )
                continue
            if isinstance(record, dict):
                yield directory, record

    def discard_sandbox(self, directory: Path) -> Path:
        """Take a sandbox's files away at once; the result is for `remove_trash`, which may take
        long."""
        trash = self.sandboxes / f".trash-{directory.name}-{uuid.uuid4().hex[:8]}"
        directory.rename(trash)
        return trash

    def remove_trash(self, trash: Path) -> None:
        """Delete a tree that its owner may have made read-only. What cannot be deleted is kept for
        the next start."""
        for parent, directories, _ in os.walk(trash):
            for name in directories:
                path = Path(parent, name)
                if not path.is_symlink():
                    try:
                        path.chmod(stat.S_IRWXU)
                    except OSError:
                        pass  # another's: rmtree below says so
        try:
            shutil.rmtree(trash)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("cannot delete '%s' of a deleted sandbox: %s", trash, error)


def write_private(path: Path, content: bytes) -> None:
    """Replace a file whole: readers see the old or the new content; mode 0600 from birth."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _private_directory(path: Path) -> None:
    path.mkdir(mode=0o700, exist_ok=True)
    if stat.S_IMODE(path.stat().st_mode) != 0o700:
        path.chmod(0o700)
