"""Work in another thread: while the caller goes on, or for as long as the caller wants to wait."""

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")


class Late(Exception):
    """Work that did not end within its time. It goes on, and nobody waits for it any more."""


def start(work: Callable[[], T], *, daemon: bool = True) -> "Future[T]":
    """Begin work in a thread; the future has what it returned or raised.

    The thread logs about the caller's session. A daemon does not keep the process from ending.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as problem:  # noqa: BLE001 — result() raises it
            future.set_exception(problem)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), daemon=daemon).start()
    return future


def within(seconds: float, work: Callable[[], T]) -> T:
    """Return what the work returns, or raise what it raises; raise Late after ``seconds``."""
    future = start(work)
    # not result(seconds): the work's own TimeoutError would look like its lateness
    if not wait([future], seconds).done:
        raise Late
    return future.result()


@contextlib.contextmanager
def concurrently(work: Callable[[], T]) -> Iterator["Future[T]"]:
    """Do the work while the block runs. It has ended when the block has, read or not."""
    future = start(work, daemon=False)
    try:
        yield future
    finally:
        wait([future])
