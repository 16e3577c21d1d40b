"""How the benchmarks measure: in turns, so that whatever else the machine does meets all alike, and
by medians."""

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.round_trip import BIN

ROUNDS = int(os.environ.get("DAYTONA_BENCH_ROUNDS", "9"))
"""How often everything is measured. Fewer rounds are for trying the benchmarks themselves out."""

median = statistics.median


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def in_turns(
    works: Mapping[str, Callable[[], object]], rounds: int = ROUNDS
) -> dict[str, list[float]]:
    """Measure each work once a round, in another order every time; what it returns if that is a
    number, else its seconds."""
    found: dict[str, list[float]] = {name: [] for name in works}
    names = list(works)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            begun = time.perf_counter()
            given = works[name]()
            spent = time.perf_counter() - begun
            found[name].append(given if isinstance(given, float) else spent)
    return found


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the rounds' own ratios: a slow minute slows both sides of each of them."""
    return median(a / b for a, b in zip(ours, theirs, strict=True))


@dataclass(frozen=True)
class Used:
    """What a process and those that it waited for used."""

    status: int
    wall: float
    cpu: float


def run(argv: Sequence[str], **how) -> Used:
    """Run a command to its end; its output goes nowhere unless ``how`` (as for Popen) says so."""
    streams = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    begun = time.perf_counter()
    process = subprocess.Popen(argv, **streams | how)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    return Used(process.returncode, wall, usage.ru_utime + usage.ru_stime)


def launch(*words: str, cwd=None) -> float:
    """Run one of the executables in bin/, which must succeed; seconds."""
    used = run((str(BIN / words[0]), *words[1:]), cwd=cwd)
    assert used.status == 0, words
    return used.wall


def memory(pid: int, field: str) -> int:
    """A field of /proc/PID/status that is a size, in bytes: VmRSS now, VmHWM at most so far."""
    with Path(f"/proc/{pid}/status").open() as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))
