"""The one place that writes to stderr. stdout is data, stderr is talk.

Rules: ``PROGRAM: error: message`` in one line, lower case, no full stop, subjects in single quotes; what to do on a ``hint:``
line; control characters and secrets never get through.
"""

import sys

from git_daytona.errors import GitDaytonaError
from git_daytona.secret import printable, redact


def _write(line: str) -> None:
    try:
        sys.stderr.write(printable(redact(line)) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):  # stderr is closed: there is nobody to talk to, and no reason to fail the work
        pass


def _one_line(text: str) -> str:
    return " ".join(text.split())


def error(program: str, problem: GitDaytonaError) -> None:
    """An error and its hint."""
    _write(f"{program}: error: {_one_line(problem.message)}")
    if problem.hint:
        _write(f"hint: {_one_line(problem.hint)}")


def warning(program: str, message: str) -> None:
    _write(f"{program}: warning: {_one_line(message)}")


def note(message: str) -> None:
    """A line of progress or advice; no program name, as git does for what is not an error."""
    _write(message)
