"""Colours on a terminal, and a picture that is drawn on it again and again."""

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from git_daytona.base import run, signals
from git_daytona.base.errors import GitDaytonaError
from git_daytona.cli import table
from git_daytona.git import environment

ENTER = "\x1b[?1049h\x1b[?25l"
LEAVE = "\x1b[?25h\x1b[?1049l"
SIZE_SECONDS = 0.2
"""Between two looks whether the window has another size."""

Picture = Callable[[int], Sequence[str]]
"""The lines to show in a window of so many columns."""


def colour(choice: str | None, directory: Path) -> bool:
    """Choose by ``--color``, NO_COLOR (no-color.org), or git's color.daytona and color.ui."""
    if choice in ("always", "never"):
        return choice == "always"
    terminal = sys.stdout.isatty() and os.environ.get("TERM") not in (None, "", "dumb")
    if choice == "auto":
        return terminal
    if os.environ.get("NO_COLOR"):
        return False
    ask = ("config", "--get-colorbool", "color.daytona", str(terminal).lower())
    try:
        argv = ("git", "-C", str(directory), *ask)
        return run.run(argv, env=environment.base(), timeout=10).text == "true"
    except GitDaytonaError:
        return terminal


def columns() -> int | None:
    """Return the columns of the terminal that output goes to; None if it goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def draw(picture: Picture, seconds: float) -> None:
    """Show a picture for so long, and draw it again when the window's size changes meanwhile."""
    end, drawn = time.monotonic() + seconds, None
    while True:
        size = os.get_terminal_size(sys.stdout.fileno())
        if size != drawn:
            lines = list(picture(size.columns))
            if len(lines) > size.lines:
                missing = len(lines) - size.lines + 1
                last = f"… and {missing} more, below the end of this window"
                lines[size.lines - 1 :] = [table.cut(last, size.columns)]
            shown = "\r\n".join(f"{line}\x1b[K" for line in lines)
            sys.stdout.write(f"\x1b[H{shown}\x1b[J")
            sys.stdout.flush()
            drawn = size
        left = end - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, SIZE_SECONDS))


@contextlib.contextmanager
def second() -> Iterator[None]:
    """Use the terminal's second screen; however the block ends, the first is as before."""
    with signals.handling((signal.SIGTERM, signal.SIGHUP), signals.unwind):
        sys.stdout.write(ENTER)
        try:
            yield
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.write(LEAVE)
                sys.stdout.flush()
