"""Work in other threads: its value, its failure, its lateness."""

import threading

import pytest

from git_daytona.base.threads import Late, concurrently, within


def fail() -> None:
    raise TimeoutError("its own")


def test_within_returns_raises_and_gives_up():
    assert within(60, lambda: "value") == "value"
    with pytest.raises(TimeoutError, match="its own"):
        within(60, fail)
    hold = threading.Event()
    with pytest.raises(Late):
        within(0.01, hold.wait)
    hold.set()


def test_concurrent_work_has_ended_with_the_block():
    hold, done = threading.Event(), []
    with pytest.raises(KeyError), concurrently(lambda: done.append(hold.wait(60))):
        hold.set()
        raise KeyError
    assert done == [True]
    with concurrently(fail) as work:
        pass
    with pytest.raises(TimeoutError, match="its own"):
        work.result()
