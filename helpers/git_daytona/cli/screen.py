"""What the terminal can and its user wants: colours, its size, and a picture that is drawn again
and again."""

import contextlib
import os
import select
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from git_daytona.base import run
from git_daytona.base.errors import GitDaytonaError
from git_daytona.cli import table
from git_daytona.git import environment

ENTER = "\x1b[?1049h\x1b[?25l"
LEAVE = "\x1b[?25h\x1b[?1049l"


def colour(choice: str | None, directory: Path) -> bool:
    """Whether to colour what goes to stdout: as ``--color`` says; else not with NO_COLOR
    (no-color.org); else as git does here (color.daytona, color.ui)."""
    if choice in ("always", "never"):
        return choice == "always"
    terminal = sys.stdout.isatty() and os.environ.get("TERM") not in (None, "", "dumb")
    if choice == "auto":
        return terminal
    if os.environ.get("NO_COLOR"):
        return False
    argv = (
        "git",
        "-C",
        str(directory),
        "config",
        "--get-colorbool",
        "color.daytona",
        str(terminal).lower(),
    )
    try:
        return run.run(argv, env=environment.base(), timeout=10).text == "true"
    except GitDaytonaError:
        return terminal


def width() -> int | None:
    """The columns of the terminal on stdout; None where that is none: what goes into a pipe or a
    file is never cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fit(lines: Sequence[str], rows: int, columns: int) -> list[str]:
    """As many lines as the screen has room for; the last one says what is missing."""
    if len(lines) <= rows:
        return list(lines)
    missing = len(lines) - rows + 1
    return [
        *lines[: rows - 1],
        table.cut(f"… and {missing} more, below the end of this window", columns),
    ]


@contextlib.contextmanager
def watching() -> Iterator[Callable[[Callable[[int, int], Sequence[str]], float], None]]:
    """A second screen for the block's time. It gets ``draw(picture, seconds)``, which shows what
    ``picture(columns, rows)`` gives, waits so long, and draws it again at once whenever the
    window's size changes meanwhile."""
    awake, asleep = os.pipe()
    os.set_blocking(asleep, False)
    before = signal.signal(signal.SIGWINCH, lambda _number, _frame: None)
    before_wakeup = signal.set_wakeup_fd(asleep, warn_on_full_buffer=False)
    # Ended by any other signal, the terminal must be as before, too.
    ends = {number: signal.signal(number, _end) for number in (signal.SIGTERM, signal.SIGHUP)}

    def draw(picture: Callable[[int, int], Sequence[str]], seconds: float) -> None:
        while True:
            size = os.get_terminal_size(sys.stdout.fileno())
            shown = fit(picture(size.columns, size.lines), size.lines, size.columns)
            sys.stdout.write("\x1b[H" + "\r\n".join(f"{line}\x1b[K" for line in shown) + "\x1b[J")
            sys.stdout.flush()
            ready, _, _ = select.select([awake], [], [], seconds)
            if not ready:
                return
            os.read(awake, 4096)

    sys.stdout.write(ENTER)
    try:
        yield draw
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.write(LEAVE)
            sys.stdout.flush()
        signal.set_wakeup_fd(before_wakeup)
        signal.signal(signal.SIGWINCH, before)
        for number, handler in ends.items():
            signal.signal(number, handler)
        os.close(awake)
        os.close(asleep)


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
