"""Work that takes its time: lines for a person, a word to the client after three seconds."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

from git_daytona.base import messages

LINE_SECONDS = 5.0
"""Between two lines for a person."""
PATIENCE_SECONDS = 3.0
"""Until the client is told what is waited for."""


class Progress:
    """Steps of one command: each is announced, and again with its time every few seconds."""

    def __init__(self, *, seconds: float = LINE_SECONDS) -> None:
        self._seconds = seconds
        self.step: tuple[str, float] | None = None
        self._ended = threading.Event()

    def __call__(self, line: str) -> None:
        messages.note(line)
        self.quietly(line)

    def quietly(self, line: str) -> None:
        """Begin a step that is worth a word only if it takes its time."""
        self.step = (line, time.monotonic())

    def __enter__(self) -> "Progress":
        _shown.append(self)
        threading.Thread(target=self._run, name="progress", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        _shown.remove(self)

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            line, begun = self.step or ("", time.monotonic())
            # one that has just begun was just announced
            if (spent := time.monotonic() - begun) >= self._seconds / 2:
                messages.note(f"{line}: {spent:.0f} s")


_shown: list[Progress] = []


def give_way() -> None:
    """Flush what was written and end the steps: another program writes to the terminal."""
    for progress in _shown:
        progress.step = None
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


class Patience:
    """Tells the client what is waited for, once it has taken its time. Safe for many threads."""

    def __init__(self, tell: Callable[[str], object], *, seconds: float = PATIENCE_SECONDS) -> None:
        self._tell, self._seconds = tell, seconds
        self._waiting = threading.local()

    def step(self, line: str) -> None:
        """Wait for something in this thread, and for nothing else any more."""
        self.done()
        timer = self._waiting.timer = threading.Timer(self._seconds, self._tell, (line,))
        timer.daemon = True
        timer.start()

    def done(self) -> None:
        """Wait for nothing in this thread any more."""
        if timer := getattr(self._waiting, "timer", None):
            timer.cancel()

    @contextlib.contextmanager
    def waiting(self, line: str) -> Iterator[None]:
        """Wait for something while the block runs."""
        self.step(line)
        try:
            yield
        finally:
            self.done()
