"""The answer of ``GET /config``, asked for once per process, and again only with a reason."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from git_daytona.base.errors import GitDaytonaError
from git_daytona.trust import published
from git_daytona.trust.published import Published

AGAIN_SECONDS = 1.0
"""It is not asked for more often than this, however many transfers are refused."""
FAILED_SECONDS = 60.0
"""How long a failure to ask is believed."""


class Asked:
    """Safe for many threads: while one asks, the others wait for its answer. ``ask`` raises only
    GitDaytonaError."""

    def __init__(
        self, ask: Callable[[], Mapping[str, Any]], clock: Callable[[], float] = time.monotonic
    ):
        self._ask = ask
        self._clock = clock
        self._lock = threading.RLock()
        self._answer: Published | GitDaytonaError | None = None
        self._at = 0.0
        self._renewed_at: float | None = None

    def answer(self) -> Published | GitDaytonaError:
        """What the API says; or the error that asking ended in, or that the answer deserves."""
        with self._lock:
            age = self._clock() - self._at
            if self._answer is None or (
                isinstance(self._answer, GitDaytonaError) and age > FAILED_SECONDS
            ):
                self._at = self._clock()
                try:
                    self._answer = published.read(self._ask())
                except GitDaytonaError as problem:
                    self._answer = problem
            return self._answer

    def again(self, *, evidence: bool = False) -> bool:
        """Drop the answer, so that the next look asks anew; False when it is fresh (or was never
        asked for).

        With ``evidence`` that something has changed it is not fresh however new it is, unless such
        evidence renewed it just now.
        """
        with self._lock:
            last = self._renewed_at if evidence else self._at
            if self._answer is None or (last is not None and self._clock() - last < AGAIN_SECONDS):
                return False
            self._answer = None
            self._renewed_at = self._clock() if evidence else self._renewed_at
            return True
