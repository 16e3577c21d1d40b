"""Work that is done beside other work: what needs no network is done while the network is waited
for."""

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Beside(Generic[T]):
    """Begins the work in a thread; ``result`` waits for it and gives what it gave, or raises what
    it raised.

    As a context it has ended when the block has, whatever becomes of its result.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._future: Future[T] = Future()
        # With its lines in the log under the session's name.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._do, work))
        self._thread.start()

    def _do(self, work: Callable[[], T]) -> None:
        try:
            self._future.set_result(work())
        except BaseException as problem:  # noqa: BLE001 — it is raised by result()
            self._future.set_exception(problem)

    def result(self) -> T:
        return self._future.result()

    def __enter__(self) -> "Beside[T]":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.join()
