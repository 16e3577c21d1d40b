"""The one place that writes to stderr. stdout is data, stderr is talk.

``PROGRAM: error: message [entry]`` in one line, the entry being that of git-daytona-errors(7); what
to do on a ``hint:`` line; control characters and secrets never get through.
"""

import sys

from git_daytona.base.errors import GitDaytonaError
from git_daytona.base.secret import printable, redact


def _write(text: str) -> None:
    if sys.stderr is None:  # closed from the beginning, which is no reason to fail the work
        return
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        # broken: what is in its buffer would fail the interpreter's last flush, and its exit status
        sys.stderr = None


def _one_line(text: str) -> str:
    return " ".join(text.split())


def note(message: str) -> None:
    """Write a line of progress or advice, without the program's name, as git does."""
    _write(printable(redact(message)) + "\n")


def error(program: str, problem: GitDaytonaError) -> None:
    """Write an error, with the session that it is about, and its hint."""
    about = f" (session {problem.session})" if problem.session else ""
    note(f"{program}: error: {_one_line(problem.message)}{about} [{problem.entry}]")
    if problem.hint:
        note(f"hint: {_one_line(problem.hint)}")


def warning(program: str, message: str) -> None:
    note(f"{program}: warning: {_one_line(message)}")


def git_progress(chunk: bytes) -> None:
    """Write git's progress as it comes; of control characters, a sandbox's perhaps, CR and LF."""
    text = redact(chunk.decode("utf-8", "replace"))
    _write("".join(each if each in "\r\n" or each.isprintable() else "?" for each in text))
