"""The data of one SSH channel: between the client's window and the sandbox's descriptors, and how
each learns of the other's end."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import asyncssh

from git_daytona.local.core import pipes
from git_daytona.local.core.faults import Faults
from git_daytona.local.core.model import Isolation, Registry, Sandbox

TOUCH_SECONDS = 45.0
"""How often an open channel is noted as activity."""


@dataclass
class Access:
    """What the channels of an admitted connection share."""

    sandbox: Sandbox
    isolation: Isolation
    registry: Registry
    faults: Faults
    run: Callable[[Coroutine[Any, Any, None]], object]
    """Runs what may outlast the connection."""
    cut: Callable[[], None]
    """Cuts the connection."""
    left: int | None
    """How many bytes of data may pass before that (`GatewayFaults.drop_after_bytes`)."""
    passed: int = 0

    async def passing(self, data: bytes) -> bytes:
        """As much of the data as may pass, once it may. If that is not all of it, the connection is
        to be cut behind it."""
        self.passed += len(data)
        faults = self.faults.gateway
        if faults.stall_after_bytes is not None and self.passed > faults.stall_after_bytes:
            await faults.hold()
        if self.left is not None:
            data = data[: self.left]
            self.left -= len(data)
        return data


class Stream(asyncssh.SSHServerSession[bytes]):
    """One channel. asyncssh calls what it calls of every session; `serve` is what becomes of the
    channel once it is wanted."""

    def __init__(self, access: Access):
        self.access = access
        self.channel: Any = None
        self.gone = asyncio.Event()
        """The channel is closed."""
        self._stuck = False
        self._room = asyncio.Event()
        self._room.set()
        self._input: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(self) -> None:
        """Move the channel's data, then close it."""
        raise NotImplementedError

    def connection_made(self, chan: Any) -> None:
        self.channel = chan
        self.access.run(self._note_activity())

    def session_started(self) -> None:
        self.access.run(self.serve())

    def data_received(self, data: bytes, datatype: object) -> None:
        self._input.put_nowait(data)
        self.channel.pause_reading()

    def eof_received(self) -> bool:
        self._input.put_nowait(b"")
        return True  # the other direction stays open

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        if not self._stuck:
            self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        self._room.set()
        self._input.put_nowait(b"")

    async def outward(
        self, descriptor: int, *, most: int | None = None, emulated: bool = False
    ) -> bool:
        """Move the sandbox's output to the client. False if it has not ended: ``most`` bytes have
        passed, or the client is gone.

        That the client is gone is noticed as by the daemon: by what cannot be sent any more, so a
        silent command never hears of it. ``emulated``: write line ends as a terminal does.
        """
        sent = 0
        while True:
            try:
                data = await pipes.read(descriptor)
            except OSError:
                # EIO: a terminal that nobody has open any more (pty(7)); a socket that was reset
                return True
            if not data:
                return True
            if emulated:
                data = data.replace(b"\n", b"\r\n").replace(b"\r\r\n", b"\r\n")
            left = len(data) if most is None else most - sent
            cut = left < len(data)
            data = data[:left]
            passing = await self.access.passing(data)
            await self._room.wait()
            if self.gone.is_set():
                return False
            self.channel.write(passing)
            if len(passing) < len(data):
                await self._flushed()
                self.access.cut()
                return False
            sent += len(data)
            self.access.faults.gateway.output_bytes += len(data)
            if cut:
                return False
            await asyncio.sleep(0)  # a command that writes without a pause is not the only one

    async def inward(self, descriptor: int) -> None:
        """Move what the client sends to the sandbox until the client ends it. What is not wanted
        there is dropped."""
        while data := await self._input.get():
            passing = await self.access.passing(data)
            try:
                await pipes.write(descriptor, passing)
            except OSError:
                pass  # its reader is gone, which the channel's end will tell
            if len(passing) < len(data):
                self.access.cut()
                return
            if self._input.empty() and not self.gone.is_set():
                self.channel.resume_reading()

    async def end(self, status: int | None) -> None:
        """Close the channel behind the output; None: without a status."""
        await self._flushed()
        if self.gone.is_set():
            return
        self.channel.write_eof()
        if status is None:
            self.channel.close()
        else:
            self.channel.exit(status)

    async def stick(self) -> None:
        """Let no more output pass for as long as there is somebody who waits for it."""
        self._stuck = True
        if not self.gone.is_set():
            self._room.clear()
        await self.gone.wait()

    async def _flushed(self) -> None:
        if not self.gone.is_set():
            self.channel.set_write_buffer_limits(0)  # pauses writing until all has been taken
            await self._room.wait()

    async def _note_activity(self) -> None:
        while not self.gone.is_set():
            self.access.registry.touch(self.access.sandbox)
            try:
                await asyncio.wait_for(self.gone.wait(), TOUCH_SECONDS)
            except TimeoutError:
                pass  # still there
