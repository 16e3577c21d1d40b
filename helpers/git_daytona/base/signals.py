"""Signals that are handled for a while."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from git_daytona.base import inherited


def interrupt_waits() -> None:
    """Let every signal end what the main thread waits for, such as an answer.

    Python notes a signal in any thread, and acts on it in the main one, between two instructions:
    one that comes just before a system call, or to another thread, is seen when that has ended.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGURG, lambda *_: None)  # not ignored: it ends a system call
    main = threading.main_thread().ident or 0

    def interrupt() -> None:
        while came := os.read(reading, 64):
            if set(came) != {signal.SIGURG}:
                signal.pthread_kill(main, signal.SIGURG)

    threading.Thread(target=interrupt, daemon=True).start()


@contextmanager
def handling(numbers: Iterable[signal.Signals], act: Callable[[int], None]) -> Iterator[None]:
    """Call ``act`` with the number of each of these signals; an ignored one stays so (nohup)."""
    before = {number: signal.getsignal(number) for number in numbers}
    for number, earlier in before.items():
        if earlier not in (signal.SIG_IGN, inherited.ignore):
            signal.signal(number, lambda came, _frame: act(came))
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def unwind(number: int) -> None:
    """End by an exception, so that every ``with`` block is left."""
    raise SystemExit(128 + number)
