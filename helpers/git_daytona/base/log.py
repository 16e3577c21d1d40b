"""The log, ``…/opencode/log/daytona.log``: a line per event, redacted, private, trimmed."""

import collections
import contextlib
import contextvars
import logging
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from git_daytona.base import files, paths
from git_daytona.base.errors import BadSetting, GitDaytonaError
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
        # A full disk or a read-only home must not fail the work that is being logged; where the log
        # is busy or unwritable, the next line trims it.
        with contextlib.suppress(OSError, GitDaytonaError):
            line = printable(redact(self.format(record))).replace("\n", "\n    ") + "\n"
            if self._append(line.encode("utf-8", "backslashreplace")) > TRIM_ABOVE:
                self._trim()

    def _append(self, line: bytes) -> int:
        """Write a line, and return the size of the file in bytes."""
        # O_NOFOLLOW: a link planted in place of the log must not make us write elsewhere.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.path, flags, 0o600)
        try:
            os.write(descriptor, line)
            os.fchmod(descriptor, 0o600)  # an odd umask, or made by an earlier tool
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def _trim(self) -> None:
        with files.lock(paths.locks() / "log", seconds=1.0):
            content = self.path.read_bytes()
            if len(content) > TRIM_ABOVE:  # else another process was faster
                _, _, whole_lines = content[-TRIM_TO:].partition(b"\n")
                files.write_whole(self.path, whole_lines)


def to_file() -> None:
    """Send what is logged from now on to the log file; called once by each executable."""
    try:
        place = paths.log_file()
    except BadSetting:  # no home directory: whoever needs one says so
        return
    with contextlib.suppress(GitDaytonaError):
        files.private_directory(place.parent)
    if not any(isinstance(handler, _Handler) for handler in logger.handlers):
        logger.addHandler(_Handler(place))
        debug = os.environ.get("DAYTONA_DEBUG", "").strip().lower() in {"1", "true", "yes", "on"}
        logger.setLevel(logging.DEBUG if debug else logging.INFO)


_subject: contextvars.ContextVar[dict[str, object]] = contextvars.ContextVar("subject")


@contextlib.contextmanager
def about(**subject: object) -> Iterator[None]:
    """Add key=value pairs (the session) to what this thread logs while the block runs."""
    token = _subject.set({**_subject.get({}), **subject})
    try:
        yield
    finally:
        _subject.reset(token)


@contextlib.contextmanager
def event(name: str, **subject: object) -> Iterator[dict[str, object]]:
    """Log ``name key=value … ms=12 ok`` (or the error) at the block's end; it may add pairs."""
    begin, pairs, outcome = time.monotonic(), {**_subject.get({}), **subject}, "ok"
    try:
        yield pairs
    except BaseException as problem:
        outcome = type(problem).__name__
        if isinstance(problem, GitDaytonaError):
            outcome = "\n".join(filter(None, (f"{outcome}: {problem.message}", problem.details)))
        raise
    finally:
        words = " ".join(f"{key}={value}" for key, value in pairs.items())
        logger.info("%s %s ms=%d %s", name, words, (time.monotonic() - begin) * 1000, outcome)


def tail(lines: int, *, follow: bool = False) -> Iterator[str]:
    """Yield the last lines of the log, and with ``follow`` every later one, across trimmings."""
    path, position, most = paths.log_file(), 0, lines
    while True:
        with contextlib.suppress(FileNotFoundError), path.open(errors="replace") as handle:
            handle.seek(position if position <= os.fstat(handle.fileno()).st_size else 0)
            yield from (line.rstrip("\n") for line in collections.deque(handle, most))
            position = handle.tell()
        if not follow:
            return
        most = sys.maxsize
        time.sleep(0.3)  # there is no portable way to be told of an append
