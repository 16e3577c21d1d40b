"""A process that is killed at a chosen step of an operation, and what must hold after it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "crash_worker.py"


class Worker:
    """A process that crashes on demand (crash_worker.py). Made by worker()."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            (sys.executable, str(PROGRAM)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def steps(self, folder: Path, operation: str, *arguments: str) -> list[str]:
        """Run an operation to its end; return its steps."""
        steps = json.loads(self._ask(folder, operation, arguments, "count"))
        assert self.process.stdout is not None and self.process.stdout.readline() == "0\n"
        return steps

    def kill(self, folder: Path, operation: str, *arguments: str, step: str) -> None:
        """Kill an operation right before a step (from 1), or after the ``last`` one."""
        status = self._ask(folder, operation, arguments, step)
        assert int(status) == -signal.SIGKILL, f"{operation} was not killed at {step}: {status}"

    def _ask(self, folder: Path, operation: str, arguments: tuple[str, ...], step: str) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([str(folder), operation, arguments, step]) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()


@contextmanager
def worker() -> Iterator[Worker]:
    made = Worker()
    try:
        yield made
    finally:
        _, complaints = made.process.communicate(timeout=30)
        print(complaints)


@pytest.fixture(
    params=[
        "kinds",
        pytest.param("pairs", marks=pytest.mark.complete("crashes between more kinds of steps")),
        pytest.param("each", marks=pytest.mark.fuzz),
    ]
)
def chosen(request: pytest.FixtureRequest) -> Callable[[list[str]], list[int]]:
    """Choose from an operation's steps (counted from 1): the first of each kind; with --complete
    also the others that are the first of their kind behind another kind; with ``-m fuzz`` each
    step, also in a row of the same."""

    def choose(steps: list[str]) -> list[int]:
        places = [*enumerate(steps, 1)]
        kinds = {step: place for place, step in reversed(places)}.values()
        behind = {pair: place for place, pair in reversed([*enumerate(pairwise(["", *steps]), 1)])}
        chosen = {
            "kinds": {*kinds},
            "pairs": {*behind.values()} - {*kinds},
            "each": {place for place, _ in places},
        }
        return sorted(chosen[request.param])

    return choose


def valid_state_files() -> bool:
    found = (Path(os.environ["XDG_DATA_HOME"]) / "opencode/storage/daytona").glob("*.json")
    return all(isinstance(json.loads(path.read_text())["sessions"], dict) for path in found)
