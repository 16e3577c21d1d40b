"""Files that are written whole, private whatever the umask, and locks between processes."""

import contextlib
import difflib
import errno
import fcntl
import glob
import io
import itertools
import os
import secrets
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from git_daytona.base.errors import BadSetting, TimedOut
from git_daytona.base.secret import printable

CONFIGURATION_BYTES = 16 * 1024 * 1024
"""Some agents keep their state in it."""
LOCK_SECONDS = 60.0
STALE_SECONDS = 6 * 3600.0
"""Age of what nobody is still writing."""
POLL_SECONDS = 0.01
"""Between two looks at a lock that another holds."""


def private_directory(path: Path) -> None:
    """Make the directory with its missing parents, each 0700. Raises BadSetting."""
    try:
        missing = list(itertools.takewhile(lambda each: not each.is_dir(), (path, *path.parents)))
        _refuse_planted(missing[-1].parent if missing else path)
        for folder in reversed(missing):
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError:  # another process was faster
                if not folder.is_dir():
                    raise
            else:
                folder.chmod(0o700)
    except OSError as problem:
        raise BadSetting(
            f"cannot create the directory '{path}': {problem.strerror or problem}",
            hint="make its parent writable, or point XDG_DATA_HOME and XDG_STATE_HOME elsewhere",
        ) from problem


def _refuse_planted(path: Path) -> None:
    """Raise BadSetting where another user has put a link or folder on the way to the path into a
    shared folder (/tmp): it would lead us where he likes. Links elsewhere are followed: who moves
    ``~/.local/state`` to another disk links it."""
    for part in (path, *path.parents):
        shared = part.parent.stat().st_mode & stat.S_IWOTH
        if shared and part.lstat().st_uid not in (0, os.geteuid()):
            raise BadSetting(
                f"'{part}' belongs to another user and is in a folder that everybody may write to",
                hint="point XDG_DATA_HOME and XDG_STATE_HOME to directories of your own",
            )


def read_bounded(path: Path, limit: int) -> tuple[bytes, int]:
    """Read a regular file of at most ``limit`` bytes, and its mode. Raises OSError, also for what
    is larger or not regular: a pipe or device in a stranger's folder must not keep us waiting."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as handle:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        data = handle.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit >> 20} MiB")
    return data, mode


def read_configuration(path: Path) -> bytes | None:
    """Read a file of another program's configuration; None if there is none. Raises BadSetting."""
    try:
        return read_bounded(path, CONFIGURATION_BYTES)[0]
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise BadSetting(
            f"cannot read '{path}': {problem.strerror}", hint="make it a file that you can read"
        ) from problem


def read_text(path: Path) -> bytes | None:
    """Read such a file that is text; None if there is none. Raises BadSetting."""
    raw = read_configuration(path)
    if raw is None and path.is_symlink():
        raise BadSetting(
            f"'{path}' is a link to nowhere", hint="remove it, or make the file that it names"
        )
    try:
        (raw or b"").decode()
    except UnicodeDecodeError as problem:
        raise BadSetting(f"'{path}' is not UTF-8", hint="correct it first") from problem
    return raw


def stale(folder: Path, pattern: str) -> Iterator[Path]:
    """Find what killed processes left in a folder: what is older than anything takes."""
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime > STALE_SECONDS:
                yield path


def remove_temporary(folder: Path, name: str = "*") -> None:
    """Remove what killed processes were about to write as a file of a name (a pattern)."""
    for path in stale(folder, f".{name}.{'[0-9a-f]' * 12}"):
        with contextlib.suppress(OSError):
            path.unlink()


@contextlib.contextmanager
def _written(path: Path, content: bytes, mode: int | None = 0o600) -> Iterator[Path]:
    """Write a file next to the path, on the disk when the block begins and gone when it ends; with
    the path's own mode if none is given. Raises BadSetting, for what fails in the block, too."""
    remove_temporary(path.parent, glob.escape(path.name))
    temporary = path.parent / f".{path.name}.{secrets.token_hex(6)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if mode is None and path.exists():
            mode = path.stat().st_mode & 0o7777
        descriptor = os.open(temporary, flags, 0o666 if mode is None else 0o600)
        with os.fdopen(descriptor, "wb") as handle:
            if mode is not None:
                os.fchmod(descriptor, mode)
            handle.write(content)
            handle.flush()
            os.fsync(descriptor)
        yield temporary
    except OSError as problem:
        raise BadSetting(
            f"cannot write '{path}': {problem.strerror or problem}",
            hint="make the file and its directory writable, or free some space",
        ) from problem
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def write_whole(path: Path, content: bytes, *, replace: bool = True) -> bool:
    """Write a file so that a reader sees the old content or the new, never a part; 0600 from birth.

    With ``replace=False`` an existing file (also a dangling link) wins and False is returned.
    Raises BadSetting.
    """
    private_directory(path.parent)
    with _written(path, content) as temporary:
        if replace:
            temporary.replace(path)
            return True
        try:
            os.link(temporary, path)  # fails if the name exists: create-only and whole at once
        except FileExistsError:
            return False
    return True


def rewrite(path: Path, content: bytes) -> None:
    """Write a file of the user's whole, keeping its mode; behind a link the file that it names is
    written. A new one gets the mode that the umask leaves. Raises BadSetting."""
    real = Path(os.path.realpath(path))
    with _written(real, content, mode=None) as temporary:
        temporary.replace(real)


@dataclass(frozen=True)
class Change:
    """A configuration file before and after, None where there is no file; ``replaced`` names what
    of other installations goes."""

    path: Path
    before: bytes | None
    after: bytes | None
    replaced: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.before != self.after

    def diff(self) -> str:
        """A unified diff, fit for a terminal."""
        sides = (self.before, self.after)
        texts = ((side or b"").decode("utf-8", "replace") for side in sides)
        # by line feeds alone, as diff and git do
        old, new = (list(io.StringIO(text, newline="\n")) for text in texts)
        was, becomes = ("/dev/null" if side is None else str(self.path) for side in sides)
        lines = [
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in difflib.unified_diff(old, new, was, becomes)
        ]
        return printable("".join(lines).removesuffix("\n").replace("\r", ""))

    def make(self) -> None:
        """Write or remove the file. Raises BadSetting, also for one that was changed meanwhile."""
        if read_configuration(self.path) != self.before:
            raise BadSetting(f"'{self.path}' was changed meanwhile", hint="try again")
        if self.after is not None:
            rewrite(self.path, self.after)
            return
        try:
            self.path.unlink()
        except OSError as problem:
            raise BadSetting(
                f"cannot remove '{self.path}': {problem.strerror}",
                hint="make its directory writable",
            ) from problem


@contextlib.contextmanager
def lock(path: Path, *, seconds: float = LOCK_SECONDS, holds: str = "") -> Iterator[None]:
    """Hold an exclusive lock between processes and threads; the kernel frees it when we die. Its
    file is there while it is held; what killed holders left, ``remove_locks`` removes.

    ``holds`` says what it protects, for the message. Raises TimedOut after ``seconds``, and
    BadSetting for a lock that cannot be, or is a link.
    """
    private_directory(path.parent)
    until = time.monotonic() + seconds
    try:
        while (descriptor := _try_lock(path)) is None:
            if time.monotonic() >= until:
                raise TimedOut(
                    f"another process has been holding the lock on {holds or path.name}"
                    f" for {seconds:.0f} seconds",
                    hint="wait for it to finish; 'git daytona status' shows what is going on",
                )
            time.sleep(POLL_SECONDS)
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            raise BadSetting(
                f"the lock '{path}' is a link, which is not followed", hint="remove it"
            ) from problem
        raise BadSetting(
            f"cannot lock '{path}': {problem.strerror or problem}",
            hint="make its directory writable",
        ) from problem
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Tell whether anybody holds a lock; what a killed holder left of it goes."""
    with contextlib.suppress(BadSetting):
        try:
            if os.path.lexists(path):
                with lock(path, seconds=0):
                    pass
        except TimedOut:
            return True
    return False


def _try_lock(path: Path) -> int | None:
    """Lock a file, made where it is missing; None if another holds it, or held and removed it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        os.fchmod(descriptor, 0o600)  # whatever the umask
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.lstat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def remove_locks(folder: Path) -> None:
    """Remove the files of locks that nobody holds."""
    for path in folder.glob("*"):
        with contextlib.suppress(TimedOut, BadSetting), lock(path, seconds=0):
            pass
