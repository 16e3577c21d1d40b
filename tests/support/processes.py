"""What /proc knows of processes: who descends from whom, with which arguments and environment, and
who is still alive."""

import os
from dataclasses import dataclass
from pathlib import Path

from support.waiting import until


@dataclass(frozen=True)
class Process:
    """A process as it was seen at one moment."""

    pid: int
    arguments: bytes
    environment: bytes

    @property
    def words(self) -> list[str]:
        return os.fsdecode(self.arguments).rstrip("\0").split("\0")

    @property
    def name(self) -> str:
        return self.words[0].rsplit("/", 1)[-1]


def parent(pid: int) -> int:
    """Return the id of its parent; *OSError* if it has ended."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[-1].split()[1])


def descendants(top: int | None = None) -> list[Process]:
    """All processes below this one (or another); those that end meanwhile are left out."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = parent(int(entry.name))
            except (OSError, IndexError):
                continue
    below, found = {top or os.getpid()}, []
    grown = True
    while grown:
        new = {pid for pid, parent in parents.items() if parent in below} - below
        grown = bool(new)
        below |= new
        found += sorted(new)
    seen = []
    for pid in found:
        try:
            seen.append(
                Process(
                    pid,
                    Path(f"/proc/{pid}/cmdline").read_bytes(),
                    Path(f"/proc/{pid}/environ").read_bytes(),
                )
            )
        except OSError:
            continue
    return seen


def services(top: int) -> list[int]:
    """The ids of the services (``git daytona serve``) below a process. What one of them is just
    starting looks like it for a moment, and is none."""
    found = {
        each.pid: each
        for each in descendants(top)
        if each.words[-1] == "serve" and any("git_daytona" in word for word in each.words)
    }

    def is_started_by_one(pid: int) -> bool:
        try:
            return parent(pid) in found
        except OSError:
            return True

    return [pid for pid in found if not is_started_by_one(pid)]


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[-1].split()[0] not in "ZX"
    except OSError:
        return False


def gone(*pids: int, seconds: float = 20) -> bool:
    """Wait for the ends of processes that were told to end; whether they came."""
    try:
        return until(lambda: not any(map(alive, pids)), "their ends", seconds=seconds)
    except TimeoutError:
        return False
