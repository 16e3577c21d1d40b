"""Waiting for something that only looking shows."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    look: Callable[[], T], what: str = "it", *, seconds: float = 60, every: float = 0.02
) -> T:
    """Look until what is seen is true, and return it; raises TimeoutError naming ``what``."""
    end = time.monotonic() + seconds
    while not (seen := look()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(every)
    return seen
