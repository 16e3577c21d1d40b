"""The one place that writes to stderr. stdout is data, stderr is talk.

Rules: ``PROGRAM: error: message [entry]`` in one line, lower case, no full stop, subjects in single
quotes, the entry being the one of git-daytona-errors(7); what to do on a ``hint:`` line; control
characters and secrets never get through.
"""

import sys

from git_daytona.base.errors import GitDaytonaError
from git_daytona.base.secret import printable, redact


def _write(line: str) -> None:
    # closed from the beginning: there is nobody to talk to, and no reason to fail the work
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(printable(redact(line)) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        # Broken meanwhile. What is left in its buffer would fail the interpreter's own last flush,
        # and with it the exit status.
        sys.stderr = None


def _one_line(text: str) -> str:
    return " ".join(text.split())


def error(program: str, problem: GitDaytonaError) -> None:
    """An error and its hint."""
    _write(f"{program}: error: {_one_line(problem.message)} [{problem.entry}]")
    if problem.hint:
        _write(f"hint: {_one_line(problem.hint)}")


def warning(program: str, message: str) -> None:
    _write(f"{program}: warning: {_one_line(message)}")


def note(message: str) -> None:
    """A line of progress or advice; no program name, as git does for what is not an error."""
    _write(message)
