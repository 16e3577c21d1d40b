"""The log, ``…/opencode/log/daytona.log``: a line per event, redacted, private, trimmed."""

import collections
import contextlib
import contextvars
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from git_daytona.base import files, paths
from git_daytona.base.errors import GitDaytonaError
from git_daytona.base.secret import printable, redact

TRIM_ABOVE = 3 * 1024 * 1024
TRIM_TO = 1024 * 1024

logger = logging.getLogger("git_daytona")
logger.addHandler(logging.NullHandler())
logger.propagate = False  # nothing of ours reaches a terminal through somebody's root logger


class _Handler(logging.Handler):
    """Appends whole lines with one write each (O_APPEND keeps those of many processes apart)."""

    def __init__(self, path: Path):
        super().__init__()
        self.path = path
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s [%(process)d] %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = printable(redact(self.format(record))).replace("\n", "\n    ") + "\n"
            # O_NOFOLLOW: a link planted in place of the log must not make us write elsewhere.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self.path, flags, 0o600)
            try:
                os.write(descriptor, line.encode("utf-8", "backslashreplace"))
                status = os.fstat(descriptor)
                if status.st_mode & 0o777 != 0o600:  # an odd umask, or made by an earlier tool
                    os.fchmod(descriptor, 0o600)
                size = status.st_size
            finally:
                os.close(descriptor)
            if size > TRIM_ABOVE:
                self._trim()
        # a full disk or a read-only home must not fail the work that is being logged
        except OSError:
            pass

    def _trim(self) -> None:
        try:
            with files.lock(paths.locks() / "log", seconds=1.0):
                content = self.path.read_bytes()
                if len(content) <= TRIM_ABOVE:  # another process was faster
                    return
                tail = content[-TRIM_TO:]
                files.write_whole(self.path, tail[tail.find(b"\n") + 1 :])
        except GitDaytonaError:  # busy or unwritable: the next line tries again
            pass


def to_file() -> None:
    """Send what is logged from now on to the log file; called once by each executable."""
    with contextlib.suppress(GitDaytonaError):
        files.private_directory(paths.log_file().parent)
    if not any(isinstance(handler, _Handler) for handler in logger.handlers):
        logger.addHandler(_Handler(paths.log_file()))
        debug = os.environ.get("DAYTONA_DEBUG", "").strip().lower() in {"1", "true", "yes", "on"}
        logger.setLevel(logging.DEBUG if debug else logging.INFO)


_subject: contextvars.ContextVar[dict[str, object] | None] = contextvars.ContextVar(
    "subject", default=None
)


@contextlib.contextmanager
def about(**subject: object) -> Iterator[None]:
    """Add key=value pairs (the session) to what this thread logs while the block runs."""
    token = _subject.set({**(_subject.get() or {}), **subject})
    try:
        yield
    finally:
        _subject.reset(token)


@contextlib.contextmanager
def event(name: str, **subject: object) -> Iterator[dict[str, object]]:
    """Log one line when the block ends: ``name key=value … ms=12 ok``, or the error in place of ok.

    The yielded dictionary takes more key=value pairs while the block runs.
    """
    begin = time.monotonic()
    pairs = {**(_subject.get() or {}), **subject}
    outcome = "ok"
    try:
        yield pairs
    except GitDaytonaError as problem:
        outcome = f"{type(problem).__name__}: {problem.message}"
        if problem.details:
            outcome += "\n" + problem.details
        raise
    except BaseException as problem:
        outcome = type(problem).__name__
        raise
    finally:
        words = " ".join(f"{key}={value}" for key, value in pairs.items())
        logger.info("%s %s ms=%d %s", name, words, (time.monotonic() - begin) * 1000, outcome)


def tail(lines: int, *, follow: bool = False) -> Iterator[str]:
    """Yield the last lines of the log, and with ``follow`` every later one, across trimmings."""
    path = paths.log_file()
    position = 0
    with contextlib.suppress(FileNotFoundError), path.open(errors="replace") as handle:
        yield from (line.rstrip("\n") for line in collections.deque(handle, maxlen=lines))
        position = handle.tell()
    while follow:
        time.sleep(0.3)  # there is no portable way to be told of an append
        with contextlib.suppress(FileNotFoundError), path.open(errors="replace") as handle:
            handle.seek(0, os.SEEK_END)
            position = position if handle.tell() >= position else 0
            handle.seek(position)
            yield from (line.rstrip("\n") for line in handle)
            position = handle.tell()
