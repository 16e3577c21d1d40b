"""Threads for work that must not block its caller: each lane does its jobs in order, a few at a
time, and never waits for another's."""

import threading
import time
from collections import deque
from collections.abc import Callable

from git_daytona.base import log
from git_daytona.base.errors import GitDaytonaError


class Lane:
    """A queue and up to ``width`` daemon threads, which end when there is nothing to do."""

    def __init__(self, name: str, width: int) -> None:
        self.name, self.width = name, width
        self._jobs: deque[Callable[[], None]] = deque()
        self._threads = 0
        self._changed = threading.Condition()

    def submit(self, job: Callable[[], None]) -> None:
        """Have a job done. What it raises goes to the log alone; it tells people itself."""
        with self._changed:
            self._jobs.append(job)
            if self._threads >= self.width:
                return
            self._threads += 1
        threading.Thread(target=self._work, name=self.name, daemon=True).start()

    def wait(self, until: float) -> bool:
        """Wait for everything until that moment of time.monotonic(); whether it is done."""
        with self._changed:
            left = max(0.0, until - time.monotonic())
            return self._changed.wait_for(lambda: not self._threads, left)

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._jobs:
                    self._threads -= 1
                    self._changed.notify_all()
                    return
                job = self._jobs.popleft()
            try:
                job()
            except GitDaytonaError as problem:
                log.logger.warning("%s: %s", self.name, problem.message)
            # a job that fails in an unforeseen way must not end the others
            except Exception:  # noqa: BLE001
                log.logger.exception("%s: internal error", self.name)
