"""That something takes its time: a spinner on a terminal, a plain line every few seconds elsewhere,
a word to a host after three."""

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from git_daytona.base import messages

FIRST_SECONDS = 1.0
"""After this the spinner turns."""
TURN_SECONDS = 0.15
LINE_SECONDS = 5.0
"""Between the plain lines."""
PATIENCE_SECONDS = 3.0
_ERASE = "\r\x1b[K"


class Progress:
    """Steps of one command, for its user: call it with each as it begins. Use it as a ``with``
    block.

    A step is a line of its own at once. What is drawn below it while it lasts goes away before
    anything else is written.
    """

    def __init__(self, *, seconds: float = LINE_SECONDS) -> None:
        self._seconds = seconds
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._step = ""
        self._begun = 0.0
        self._drawn = False
        self._ended = False
        self._streams: tuple[TextIO, TextIO] | None = None
        self._thread: threading.Thread | None = None

    def __call__(self, line: str) -> None:
        messages.note(line)
        with self._changed:
            self._begin(line)

    def _begin(self, line: str) -> None:
        self._step, self._begun = line, time.monotonic()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
            self._thread.start()
        self._changed.notify()

    def quietly(self, line: str) -> None:
        """A step that is worth a word only if it takes its time."""
        with self._changed:
            self._begin(line)

    def __enter__(self) -> "Progress":
        if _terminal():
            self._streams = (sys.stdout, sys.stderr)
            sys.stdout, sys.stderr = (_Careful(stream, self._clear) for stream in self._streams)
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._clear()
            self._ended = True
            self._changed.notify()
        if self._streams is not None:
            sys.stdout, sys.stderr = self._streams

    def _clear(self) -> None:
        """Something else is about to be written, or nothing more: it tells that things go on, and
        where."""
        with self._lock:
            self._step = ""
            if self._drawn and self._streams is not None:
                self._drawn = False
                with contextlib.suppress(OSError, ValueError):
                    self._streams[1].write(_ERASE)
                    self._streams[1].flush()

    def _run(self) -> None:
        turning = itertools.cycle("|/-\\")
        with self._changed:
            while not self._ended:
                if not self._step:
                    self._changed.wait()
                elif self._streams is not None:
                    spent = time.monotonic() - self._begun
                    if spent >= FIRST_SECONDS:
                        self._drawn = True
                        with contextlib.suppress(OSError, ValueError):
                            self._streams[1].write(f"{_ERASE}{next(turning)} {spent:.0f} s")
                            self._streams[1].flush()
                    self._changed.wait(TURN_SECONDS)
                else:
                    step, begun = self._step, self._begun
                    self._changed.wait(self._seconds)
                    if not self._ended and (step, begun) == (self._step, self._begun):
                        messages.note(f"{step}: {time.monotonic() - begun:.0f} s")


def _terminal() -> bool:
    import os

    return (
        sys.stderr is not None
        and sys.stdout is not None
        and sys.stderr.isatty()
        and os.environ.get("TERM", "dumb") != "dumb"
    )


class _Careful:
    """A stream that has something taken off the terminal before it writes there."""

    def __init__(self, stream: TextIO, before: Callable[[], None]) -> None:
        self._stream, self._before = stream, before

    def write(self, text: str) -> int:
        if text:
            self._before()
        return self._stream.write(text)

    def flush(self) -> None:
        self._before()  # whoever hands the terminal on to another program flushes first
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Patience:
    """Tells a host what is waited for, once it has taken three seconds. Safe for many threads: each
    waits for one thing at a time."""

    def __init__(self, tell: Callable[[str], None], *, seconds: float = PATIENCE_SECONDS) -> None:
        self._tell, self._seconds = tell, seconds
        self._lock = threading.Lock()
        self._timers: dict[int, threading.Timer] = {}

    def step(self, line: str) -> None:
        """This thread begins to wait for that, and for nothing else any more."""
        timer = threading.Timer(self._seconds, self._tell, (line,))
        timer.daemon = True
        with self._lock:
            earlier, self._timers[threading.get_ident()] = (
                self._timers.get(threading.get_ident()),
                timer,
            )
        if earlier is not None:
            earlier.cancel()
        timer.start()

    def done(self) -> None:
        """This thread waits for nothing any more."""
        with self._lock:
            timer = self._timers.pop(threading.get_ident(), None)
        if timer is not None:
            timer.cancel()

    @contextlib.contextmanager
    def waiting(self, line: str) -> Iterator[None]:
        """Wait for something while the block runs."""
        self.step(line)
        try:
            yield
        finally:
            self.done()
