"""What a client makes of its channels: commands, a terminal, sftp, and connections to ports and
sockets of the sandbox."""

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import termios
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import IO, Any

from git_daytona.local.core import pipes
from git_daytona.local.core.model import ApiError, Isolation, Program, Sandbox
from git_daytona.local.core.model import Stream as Source
from git_daytona.local.gateway.streams import Access, Stream
from git_daytona.local.isolation.builders import child_of
from git_daytona.local.isolation.environment import terminal_shell
from git_daytona.local.isolation.terminal import Terminals
from git_daytona.local.toolbox.places import changeable

SHELL = "/bin/sh"
SFTP_SERVERS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
)
SILENCED = 2 << 20
"""Bytes of standard error that nobody takes: the window that the daemon's hop has for both outputs
of a channel."""
PIPE_SIZE = 1 << 20
CONNECT_SECONDS = 5.0


class Session(Stream):
    """A command, a terminal or sftp."""

    def __init__(self, access: Access):
        super().__init__(access)
        self.agent = False
        """The client offers its agent."""
        self._argv: list[str] = []
        self._term: str | None = None
        self._size = (0, 0)
        self._master = -1
        self._process: subprocess.Popen[bytes] | None = None

    # What the client asks for, before the one request that starts something.

    def pty_requested(
        self, term_type: str, term_size: tuple[int, int, int, int], term_modes: object
    ) -> bool:
        self._term = term_type
        self.terminal_size_changed(*term_size)
        return True

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        self._size = (min(height, 65535), min(width, 65535))
        if self._master >= 0:
            termios.tcsetwinsize(self._master, self._size)

    def exec_requested(self, command: str) -> bool:
        command = self.access.faults.gateway.exchange(command)
        self._argv = [SHELL, "-c", command] if command.strip() else [SHELL]
        return True

    def shell_requested(self) -> bool:
        self._argv = [SHELL]
        return True

    def subsystem_requested(self, subsystem: str) -> bool:
        self._argv = [path for path in SFTP_SERVERS if subsystem == "sftp" and self._is_file(path)][
            :1
        ]
        return bool(self._argv)

    def _is_file(self, path: str) -> bool:
        try:
            return self.access.isolation.path(self.access.sandbox, path).is_file()
        except ApiError:
            return False

    def signal_received(self, name: str) -> None:
        """Pass a signal to the command alone; where it is isolated, what the server started is the
        way into the sandbox."""
        process = self._process
        if process is None or process.poll() is not None or self._master >= 0:
            return
        try:
            target = child_of(process.pid) if self.access.isolation.isolates else process.pid
            os.kill(target, signal.Signals.__members__.get(f"SIG{name}", signal.SIGKILL))
        except (ApiError, OSError):
            pass  # it has just ended

    # What happens then.

    async def serve(self) -> None:
        try:
            with self._agent_socket() as env:
                if self._term is not None and self._argv == [SHELL]:
                    await self._serve_terminal(env)
                else:
                    await self._serve_pipes(env)
        except (ApiError, OSError, ValueError):
            await self.end(None)  # not running any more, no terminal left, or a NUL in the command

    async def _serve_pipes(self, env: dict[str, str]) -> None:
        process = self._popen(self._argv, env, subprocess.PIPE)
        async with _reaped(process):
            assert (
                process.stdin is not None
                and process.stdout is not None
                and process.stderr is not None
            )
            for pipe in (process.stdin, process.stdout, process.stderr):
                os.set_blocking(pipe.fileno(), False)
                _widen(pipe.fileno())
            async with (
                _beside(self._feed(process.stdin)),
                _beside(self._silence(process.stderr)) as silence,
            ):
                with process.stdout:
                    most = self.access.faults.gateway.cut_output_after
                    whole = await self.outward(
                        process.stdout.fileno(), most=most, emulated=self._term is not None
                    )
                if not whole:
                    await self._break_off()
                await silence
                status = await pipes.exit_status(process)
                if whole:
                    await self._report(status if status >= 0 else 1)

    async def _serve_terminal(self, env: dict[str, str]) -> None:
        isolation, shell = self.access.isolation, terminal_shell()
        self._master, slave = (
            isolation.open_terminal(self.access.sandbox)
            if isinstance(isolation, Terminals)
            else os.openpty()
        )
        try:
            try:
                os.set_blocking(self._master, False)
                termios.tcsetwinsize(self._master, self._size)
                process = self._popen(
                    [shell], {**env, "TERM": self._term or "", "SHELL": shell}, slave
                )
            finally:
                os.close(slave)
            async with _reaped(process):
                async with _beside(self.inward(self._master)):
                    most = self.access.faults.gateway.cut_output_after
                    whole = await self.outward(self._master, most=most, emulated=True)
                self._hang_up()
                await (self._report(0) if whole else self._break_off())
        finally:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def _popen(
        self, argv: list[str], env: dict[str, str], stream: Source
    ) -> "subprocess.Popen[bytes]":
        access = self.access
        command = Program(argv, env=env, stdin=stream, stdout=stream, stderr=stream)
        self._process = access.isolation.popen(access.sandbox, command)
        return self._process

    async def _feed(self, pipe: IO[bytes]) -> None:
        with pipe:
            await self.inward(pipe.fileno())

    async def _silence(self, pipe: IO[bytes]) -> None:
        """Take standard error and show it to nobody, up to where the real one gets stuck."""
        with pipe:
            dropped = 0
            while data := await pipes.read(pipe.fileno()):
                dropped += len(data)
                if dropped > SILENCED:
                    await self.stick()
                if self.gone.is_set():
                    return

    async def _break_off(self) -> None:
        """Close a channel whose output was cut."""
        faults = self.access.faults.gateway
        faults.cuts += not self.gone.is_set()
        await self.end(0 if faults.cut_with_status else None)

    async def _report(self, status: int) -> None:
        await self.end(None if self.access.faults.gateway.loses_status() else status)

    @contextlib.contextmanager
    def _agent_socket(self) -> Iterator[dict[str, str]]:
        """SSH_AUTH_SOCK with a socket that nobody answers on: the gateways do not bring the
        client's agent this far."""
        if not self.agent:
            yield {}
            return
        path = f"/tmp/auth-agent{uuid.uuid4().hex[:10]}"  # noqa: S108
        isolation, sandbox = self.access.isolation, self.access.sandbox
        with socket.socket(socket.AF_UNIX) as dead, changeable(isolation, sandbox, path) as place:
            dead.bind(f"/proc/self/fd/{place.parent}/{place.name}" if isolation.isolates else path)
            try:
                yield {"SSH_AUTH_SOCK": path}
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(place.name, dir_fd=place.parent)


class Forward(Stream):
    """A connection to a port or a socket of the sandbox. As in Daytona, the end of either direction
    is the end of both."""

    def __init__(self, access: Access, connect: Callable[[], socket.socket]):
        super().__init__(access)
        self._connect = connect

    async def serve(self) -> None:
        try:
            there = await asyncio.to_thread(self._connect)
        # the last two: no host name, no port
        except (ApiError, OSError, ValueError, OverflowError):
            await self.end(None)  # the real one opens the channel, too, before it looks
            return
        with there:
            there.setblocking(False)
            async with (
                _beside(self.outward(there.fileno())) as outward,
                _beside(self.inward(there.fileno())) as inward,
            ):
                await asyncio.wait([outward, inward], return_when=asyncio.FIRST_COMPLETED)
        await self.end(None)


def port(host: str, number: int) -> socket.socket:
    """Connect to a port, as anything in a sandbox could: sandboxes share the machine's network."""
    return socket.create_connection((host, number), CONNECT_SECONDS)


def unix_socket(isolation: Isolation, sandbox: Sandbox, path: str) -> socket.socket:
    """Connect to a socket in the sandbox's own directories. Raises ApiError or OSError.

    The sandbox could put a link to a socket of the host in its place at any moment; hence by a
    descriptor of the socket itself.
    """
    there = socket.socket(socket.AF_UNIX)
    try:
        there.settimeout(CONNECT_SECONDS)
        if not isolation.isolates:
            there.connect(str(isolation.path(sandbox, path)))
            return there
        with changeable(isolation, sandbox, path, follow=True) as place:
            itself = os.open(
                place.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.parent
            )
            try:
                there.connect(f"/proc/self/fd/{itself}")
            finally:
                os.close(itself)
        return there
    except BaseException:
        there.close()
        raise


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[Any, Any, Any]) -> AsyncIterator["asyncio.Task[Any]"]:
    """Run something for as long as the block takes."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


@contextlib.asynccontextmanager
async def _reaped(process: "subprocess.Popen[bytes]") -> AsyncIterator[None]:
    """Wait for the process behind the block. Only the end of the server ends it: that of a
    connection does not."""
    try:
        yield
        await pipes.exit_status(process)
    finally:
        if process.poll() is None:
            pipes.kill_group(process)
            await pipes.exit_status(process)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def _widen(descriptor: int) -> None:
    """Fewer, larger reads; only Linux can."""
    operation = getattr(fcntl, "F_SETPIPE_SZ", None)
    if operation is not None:
        try:
            fcntl.fcntl(descriptor, operation, PIPE_SIZE)
        except OSError:
            pass  # the user's share of pipe memory is used up (pipe(7))
