"""Pipes and exits of child processes, awaited in the event loop: a waiting command takes no thread.

Descriptors are those of pipes, named pipes or terminals; they are made non-blocking by the caller
(`os.set_blocking`).
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

CHUNK = 64 * 1024
"""Bytes read at once: what a pipe holds on Linux."""


async def _ready(fd: int, add: Callable[..., object], remove: Callable[[int], object]) -> None:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    add(fd, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        remove(fd)


async def read(fd: int) -> bytes:
    """The next bytes, at most CHUNK; empty at the end of input."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return os.read(fd, CHUNK)
        except BlockingIOError:
            await _ready(fd, loop.add_reader, loop.remove_reader)


async def write(fd: int, data: bytes) -> None:
    """Write all of it, waiting for the reader. A reader that has gone is no error: what it did not
    want is dropped."""
    loop = asyncio.get_running_loop()
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            await _ready(fd, loop.add_writer, loop.remove_writer)
        except BrokenPipeError:
            return


async def exit_status(process: "subprocess.Popen[bytes]") -> int:
    """Wait for the end of a process and return its status, negative for a signal, as `Popen.wait`
    does."""
    if process.poll() is None and sys.platform == "linux":
        loop = asyncio.get_running_loop()
        fd = os.pidfd_open(process.pid)
        try:
            await _ready(fd, loop.add_reader, loop.remove_reader)
        finally:
            os.close(fd)
    delay = 0.001
    while (status := process.poll()) is None:  # no pidfd elsewhere
        await asyncio.sleep(delay)
        delay = min(2 * delay, 0.05)
    return status


def kill_group(process: "subprocess.Popen[bytes]", number: signal.Signals = signal.SIGKILL) -> None:
    """Signal a child and all that still belongs to its process group."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # gone already; macOS says EPERM of a group of zombies


def family(leader: int) -> list[int]:
    """A process, its process group and its descendants; elsewhere than on Linux, the process
    alone."""
    parents: dict[int, tuple[int, int]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            # Parent and group follow the name, which stands in parentheses and may hold anything
            # (proc_pid_stat(5)).
            _, parent, group = file.read_text(errors="replace").rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue  # gone
        parents[int(file.parent.name)] = (int(parent), int(group))
    found = {leader} | {pid for pid, (_, group) in parents.items() if group == leader}
    while more := {pid for pid, (parent, _) in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)
