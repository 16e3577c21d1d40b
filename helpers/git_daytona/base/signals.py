"""Signals that are handled for a while."""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from git_daytona.base import inherited


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
