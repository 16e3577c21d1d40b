"""A process that is killed at a chosen step of an operation, and what must hold after it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


def places(steps: list[str]) -> list[str]:
    """Where an operation of these steps is killed."""
    return [*map(str, range(1, len(steps) + 1)), "last"]


def valid_state_files() -> bool:
    found = (Path(os.environ["XDG_DATA_HOME"]) / "opencode/storage/daytona").glob("*.json")
    return all(isinstance(json.loads(path.read_text())["sessions"], dict) for path in found)
