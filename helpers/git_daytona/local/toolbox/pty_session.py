"""One terminal session: a shell on a pseudo-terminal, and the clients that hear it."""

import asyncio
import os
import subprocess
import termios
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from git_daytona.local.core import pipes
from git_daytona.local.core.model import Program
from git_daytona.local.isolation.terminal import Terminals
from git_daytona.local.toolbox.call import Call

BACKLOG = 1024
"""Pieces of output that wait for a client; one that is further behind is dropped, so that it does
not hold up the others."""


@dataclass(eq=False)
class Pty:
    """One terminal session."""

    id: str
    cwd: str
    envs: dict[str, str]
    cols: int
    rows: int
    lazy: bool
    """Whether the shell starts only with the first client."""
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    clients: set["asyncio.Queue[bytes | None]"] = field(default_factory=set)
    process: "subprocess.Popen[bytes] | None" = None
    master: int = -1
    exit_code: int | None = None
    starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    life: "asyncio.Task[None] | None" = None

    def info(self) -> dict[str, Any]:
        """As `PtySessionInfo`."""
        return {
            "id": self.id,
            "cwd": self.cwd,
            "envs": self.envs,
            "cols": self.cols,
            "rows": self.rows,
            "createdAt": self.created.isoformat().replace("+00:00", "Z"),
            "active": self.life is not None and self.exit_code is None,
            "lazyStart": self.lazy,
        }

    async def start(self, call: Call, shell: str) -> None:
        """Start the shell, unless it was started; OSError or ApiError."""
        async with self.starting:
            if self.life is None:
                await asyncio.to_thread(self._start, call, shell)
                self.life = asyncio.create_task(self._live())

    def resize(self, cols: int, rows: int) -> None:
        """Tell the terminal its new size."""
        self.cols, self.rows = cols, rows
        if self.master >= 0:
            termios.tcsetwinsize(self.master, (rows, cols))

    def kill(self) -> None:
        """End the shell and what it runs."""
        if self.process is not None and self.process.poll() is None:
            pipes.kill_group(self.process)

    def _start(self, call: Call, shell: str) -> None:
        isolation = call.isolation
        master, slave = (
            isolation.open_terminal(call.sandbox)
            if isinstance(isolation, Terminals)
            else os.openpty()
        )
        try:
            termios.tcsetwinsize(slave, (self.rows, self.cols))
            os.set_blocking(master, False)
            streams = {"stdin": slave, "stdout": slave, "stderr": slave}
            command = Program([shell, "-i", "-l"], self.cwd, self.envs, **streams)
            self.process = isolation.popen(call.sandbox, command)
        except BaseException:
            os.close(master)
            raise
        finally:
            os.close(slave)
        self.master = master

    async def _live(self) -> None:
        assert self.process is not None
        ended = asyncio.create_task(pipes.exit_status(self.process))
        reading = asyncio.create_task(self._read())
        try:
            # Not until the terminal is left by all: a background process may hold it for ever.
            code = await ended
            await asyncio.wait([reading], timeout=1)
            # Daytona's daemon says of signals what shells say.
            self.exit_code = code if code >= 0 else 128 - code
        finally:
            ended.cancel()
            reading.cancel()
            await asyncio.wait([ended, reading])
            self.kill()
            self.process.wait()
            master, self.master = self.master, -1
            os.close(master)
            for client in list(self.clients):
                self._give(client, None)

    async def _read(self) -> None:
        while True:
            try:
                data = await pipes.read(self.master)
            except OSError:
                return  # EIO: nobody has the terminal any more (pty(7))
            if not data:
                return
            for client in list(self.clients):
                self._give(client, data)

    def _give(self, client: "asyncio.Queue[bytes | None]", data: bytes | None) -> None:
        if client.qsize() >= BACKLOG:
            self.clients.discard(client)
            data = None
        client.put_nowait(data)
