"""An SSH server on standard input and output, for the one client that started us: an ssh, or an
editor, whose configuration has us as its ProxyCommand (ssh_config.py).

That client's connection ends here. The other one, to the gateway, is that of OpenSSH under our
wrapper, as for every connection: lease, pinned key, the user's own proxies and the start of a
sandbox are decided in one place, and what a gateway or a sandbox sends as SSH is read by OpenSSH
alone. Each channel of the client is an ssh of its own that goes over that connection (ControlPath),
so no channel begins on the sandbox's side, and no agent, X11 or port of this machine is within its
reach. What passes is the data of channels that the client has opened, and their exit status.

The server is asyncssh's: it is a dependency anyway, has windows that hold back whoever sends faster
than the other reads, and takes one connection on a socket pair without a listener. (paramiko has a
thread for each channel, and would be a second one.)

Nobody logs in: whoever has the other end of our standard streams is the process that started us. It
could start us again, and read the key of the API as we do. Nothing listens.
"""

import asyncio
import contextlib
import os
import re
import signal
import socket
import termios
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from git_daytona import ssh
from git_daytona.base import files, log, paths, run, threads
from git_daytona.base.errors import BadSetting
from git_daytona.base.secret import key_out_of_environment
from git_daytona.sessions.connect import Wish, connect
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.sessions.remote import destination

with key_out_of_environment():
    import asyncssh

NAME = "git-daytona"
"""What the client looks our key up by (HostKeyAlias)."""
VERSION = f"OpenSSH-compatible_{NAME}"
"""OpenSSH's client tells such servers alone that nobody reads a channel any more (its compat.c)."""
HOST = "sandbox"
"""What the ssh of a channel calls the other side; it is not looked up."""
CHANNELS = 100
"""So many are served at once; others wait."""
CHUNK_BYTES = 64 * 1024
WINDOW, PACKET = 2 << 20, 32768
"""Of a channel, in bytes; as OpenSSH's."""
ENCRYPTION = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes256-ctr", "aes128-ctr")
"""The quick ones: all of it stays in a pipe of this machine."""
RAW_SECONDS = 0.02
"""Between two looks whether a terminal is raw yet."""
FLUSH_SECONDS = 5.0
"""How long our last words may take."""


def known_hosts() -> Path:
    """The file by which a client knows our host key."""
    return paths.own_state() / "ssh" / "known_hosts"


def host_key() -> Any:
    """The host key of this user's servers, made once, as known_hosts has it. Raises BadSetting."""
    place = known_hosts().with_name("host_key")
    with files.lock(paths.locks() / "ssh-host-key"):
        try:
            key = asyncssh.read_private_key(place)
        except FileNotFoundError:
            key = asyncssh.generate_private_key("ssh-ed25519")
            files.write_whole(place, key.export_private_key())
        except (OSError, ValueError) as problem:
            raise BadSetting(
                f"the host key '{place}' cannot be read", hint="remove it, a new one will be made"
            ) from problem
        line = f"{NAME} ".encode() + key.export_public_key()
        if not known_hosts().exists() or known_hosts().read_bytes() != line:
            files.write_whole(known_hosts(), line)
    return key


class Server:
    """The client's connection, from ``with`` on, so that no time limit of its handshake runs while
    a sandbox is started. Its channels wait for ``serve``."""

    def __init__(self, program: str) -> None:
        """``program`` is the OpenSSH client."""
        self._program = program
        self._env = ssh.scrubbed(dict(os.environ))
        self._key = host_key()
        # what anything else of this process reads or writes is not the client's
        self._wire = (os.dup(0), os.dup(1))
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1):
            os.dup2(nothing, number)
        os.close(nothing)
        self._ended = threading.Event()

    def __enter__(self) -> "Server":
        started = threading.Event()
        self._thread = threads.start(partial(asyncio.run, self._run(started)))
        started.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # the client would end us before that is said
            return
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._stop.set)
        with contextlib.suppress(TimeoutError):
            self._thread.result(FLUSH_SECONDS)

    def serve(self, path: str, _input: int) -> None:
        """Serve the channels over the connection at that control path, until the client has gone
        (a Feed of connect.py, which writes nothing)."""
        self._over = ssh.over(self._program, path)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stands.set)
        self._ended.wait()

    # In the loop.

    async def _run(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop, self._stands = asyncio.Event(), asyncio.Event()
        self._places = asyncio.Semaphore(CHANNELS)
        started.set()
        ours, wire = socket.socketpair()
        outward = threads.start(partial(_copy_out, wire, self._wire[1]))
        threads.start(partial(_copy_in, self._wire[0], wire))
        try:
            async with _task(self._converse(ours)) as serving, _task(self._stop.wait()) as stop:
                await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
                if serving.done() and (problem := serving.exception()):
                    log.logger.error("ssh-proxy: %r", problem)
        finally:
            ours.close()
            self._ended.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.wrap_future(outward), FLUSH_SECONDS)

    async def _converse(self, ours: socket.socket) -> None:
        with contextlib.suppress(asyncssh.Error, OSError):  # it is for the client to say why
            connection = await asyncssh.run_server(
                ours,
                server_factory=partial(_Door, self),
                server_host_keys=[self._key],
                server_version=VERSION,
                encryption_algs=ENCRYPTION,
                compression_algs=None,
                agent_forwarding=False,
                gss_host=None,
            )
            async with connection:
                await connection.wait_closed()

    async def session(self, process: "asyncssh.SSHServerProcess[bytes]") -> None:
        """Serve a command, a shell, a terminal or a subsystem."""
        terminal = process.term_type and not (process.command or process.subsystem)
        work = self._terminal(process) if terminal else self._pipes(process)
        status = await _while_open(process.channel, self._in_turn(work))
        process.exit(ssh.EXIT_UNKNOWN if status is None else status)

    async def forward(
        self, place: str, reader: "asyncssh.SSHReader[bytes]", writer: "asyncssh.SSHWriter[bytes]"
    ) -> None:
        """Serve a connection to a port of the sandbox."""

        async def work() -> None:
            async with (
                self._child("-W", place, "--", HOST, stderr=None) as child,
                _task(_feed(reader, child)),
            ):
                await _copy(child.stdout, writer)

        await _while_open(writer.channel, self._in_turn(work()))
        writer.close()

    async def _in_turn(self, work: Coroutine[Any, Any, Any]) -> Any:
        with contextlib.closing(work):
            await self._stands.wait()
            async with self._places:
                return await work

    async def _pipes(self, process: "asyncssh.SSHServerProcess[bytes]") -> int:
        ending = ssh.Ending(os.urandom(16).hex())
        words = ["-s", "--", HOST, process.subsystem or ""]
        if not process.subsystem:
            command, protocol = process.command or "exec /bin/sh", process.env.get("GIT_PROTOCOL")
            words = ["--", HOST, ssh.remote_command(command, protocol or "", ending.nonce)]

        def lines(output: bytes) -> bytes:
            """As the gateways do where there should be a terminal, which a command has none of."""
            return output.replace(b"\n", b"\r\n") if process.term_type else output

        served = False
        async with self._child(*words) as child, _task(_feed(process.stdin, child)):
            async with _task(_copy(child.stderr, process.stderr)) as complaints:
                async for data in _chunks(child.stdout, ending):
                    served = True
                    if not process.subsystem:
                        data = ending.feed(data) if data else ending.release()
                    await _write(process.stdout, lines(data))
                await complaints
            status = await child.wait()
        if process.subsystem:
            return await self._known(status) if served else status
        await _write(process.stdout, lines(ending.rest()))
        said = ending.stderr.splitlines()  # without the newline at its end, which has been lost
        await _write(process.stderr, lines(b"".join(b"%b\n" % line for line in said)))
        if ending.status is None:  # the connection may not be known to be broken yet
            await _write(process.stderr, lines(ssh.printed(ssh.broken(ending))))
            return ssh.EXIT_UNKNOWN
        return ending.status

    async def _terminal(self, process: "asyncssh.SSHServerProcess[bytes]") -> int:
        master, slave = os.openpty()
        try:
            with os.fdopen(master, "rb", buffering=0) as there:
                _resize(master, process.term_size)
                words = ("-tt", "--", HOST)
                streams = dict.fromkeys(("stdin", "stdout", "stderr"), slave)
                term = process.term_type or ""
                async with self._child(*words, term=term, **streams) as child:
                    os.close(slave)
                    slave = -1
                    async with _task(_type(process, there, child)):
                        await _show(there, process.stdout)
                    return await self._known(await child.wait())
        finally:
            if slave >= 0:
                os.close(slave)

    async def _known(self, status: int) -> int:
        """A channel's status: one that the gateway has lost, on a connection that goes on, is no
        failure (ssh.py, ``_serve``)."""
        if status == ssh.EXIT_UNKNOWN:
            async with self._child("-O", "check", "--", HOST, stdin=None) as child:
                await child.communicate()
                return 0 if child.returncode == 0 else status
        return status

    @contextlib.asynccontextmanager
    async def _child(
        self, *words: str, term: str = "dumb", **streams: Any
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run an ssh over the connection, which ends with the block."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
        child = await run.beside(
            (*self._over, *words), {**self._env, "TERM": term}, **{**pipes, **streams}
        )
        try:
            yield child
        finally:
            if child.returncode is None:
                _send(child, signal.SIGTERM)
            await child.wait()


class _Door(asyncssh.SSHServer):
    """What is granted: channels into the sandbox. No port here for its side (tcpip-forward)."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn

    def begin_auth(self, username: str) -> bool:
        return False

    def session_requested(self) -> Any:
        channel = _Channel(
            self._connection,
            asyncio.get_running_loop(),
            allow_pty=True,
            line_editor=False,
            line_echo=False,
            line_history=0,
            max_line_length=0,
            encoding=None,
            errors="strict",
            window=WINDOW,
            max_pktsize=PACKET,
        )
        return channel, _Session(self._server.session)

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Any:
        if not re.fullmatch(r"[A-Za-z0-9_.:-]+", dest_host):
            return False
        return partial(self._server.forward, f"[{dest_host}]:{dest_port}")


class _Channel(asyncssh.SSHServerChannel[bytes]):
    """asyncssh's, with what it lacks; it finds the handler of a request by the request's name."""

    def _process_exec_request(self, packet: Any) -> bool:
        """Take a command of any bytes; asyncssh refuses those that are not UTF-8."""
        command = packet.get_string()
        packet.check_end()
        return bool(self._start_session(command=command.decode("utf-8", "surrogateescape")))

    def _process_eow_at_openssh_dot_com_request(self, packet: Any) -> bool:
        """End what nobody reads any more: OpenSSH says nothing else when a program of its shared
        connection has gone (its file PROTOCOL, 2.1)."""
        packet.check_end()
        self.close()
        return True


class _Session(asyncssh.SSHServerProcess[bytes]):
    """asyncssh's, which does not serve sftp itself, with the files of this machine."""

    def __init__(self, serve: "Callable[[_Session], Coroutine[Any, Any, None]]") -> None:
        super().__init__(lambda _process: None, None, 0, False)
        self._serve = serve

    def subsystem_requested(self, subsystem: str) -> bool:
        return True

    def session_started(self) -> None:
        channel = self.channel
        self._start_process(
            asyncssh.SSHReader(self, channel),
            asyncssh.SSHWriter(self, channel),
            asyncssh.SSHWriter(self, channel, asyncssh.EXTENDED_DATA_STDERR),
        )
        self._serving = asyncio.create_task(self._serve(self))


def connect_through(coordinator: Coordinator, name: str, server: Server) -> int:
    """Connect the client of a server with a sandbox, which is started; return the exit status.
    Raises what ``destination`` and ``connect`` do."""
    found = destination(coordinator, name)
    with ExitStack() as left, ssh.control_path() as path:
        if found.session is not None:  # what is done there is not here yet
            coordinator.state.touch(found.session.id)
            left.callback(coordinator.state.touch, found.session.id)
        wish = Wish(ssh.WAITING, more=ssh.holding(path))
        return connect(coordinator, found.sandbox_id, wish, feed=partial(server.serve, path))


# -- moving data -----------------------------------------------------------------------------------


def _copy_in(descriptor: int, wire: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(descriptor, CHUNK_BYTES):
            wire.sendall(data)
        wire.shutdown(socket.SHUT_WR)


def _copy_out(wire: socket.socket, descriptor: int) -> None:
    with contextlib.suppress(OSError):
        while data := wire.recv(CHUNK_BYTES):
            while data:
                data = data[os.write(descriptor, data) :]
    with contextlib.suppress(OSError):  # nobody reads it any more
        wire.shutdown(socket.SHUT_RDWR)


async def _while_open(channel: Any, work: Coroutine[Any, Any, Any]) -> Any:
    """Do the work while the client has the channel open; its result, None where it broke."""
    async with _task(work) as task, _task(channel.wait_closed()) as gone:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            try:
                return task.result()
            except (asyncssh.Error, OSError, ValueError) as problem:  # the last: a NUL
                log.logger.warning("ssh-proxy: a channel broke: %s", problem)
    return None


@contextlib.asynccontextmanager
async def _task(work: Coroutine[Any, Any, Any]) -> AsyncIterator["asyncio.Task[Any]"]:
    """Do something beside the block, for as long as that takes."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # known to whoever asked for the result; asyncio would print it


async def _chunks(
    reader: asyncio.StreamReader | None, ending: ssh.Ending | None = None
) -> AsyncIterator[bytes]:
    """What can be read; empty where the ending has held something back for long enough."""
    assert reader is not None
    while True:
        limit = ssh.HOLD_SECONDS if ending and ending.holds else None
        try:
            data = await asyncio.wait_for(reader.read(CHUNK_BYTES), limit)
        except TimeoutError:
            yield b""
            continue
        if not data:
            return
        yield data


async def _write(writer: "asyncssh.SSHWriter[bytes]", data: bytes) -> None:
    """Write, and wait until the client has room."""
    if data:
        writer.write(data)
        await writer.drain()


async def _copy(reader: asyncio.StreamReader | None, writer: "asyncssh.SSHWriter[bytes]") -> None:
    async for data in _chunks(reader):
        await _write(writer, data)


async def _feed(reader: "asyncssh.SSHReader[bytes]", child: asyncio.subprocess.Process) -> None:
    """Hand on what the client sends, to its end."""
    assert child.stdin is not None
    with contextlib.suppress(ConnectionError):  # it reads no more
        while data := await _received(reader, child):
            child.stdin.write(data)
            await child.stdin.drain()
    child.stdin.close()


async def _received(
    reader: "asyncssh.SSHReader[bytes]",
    child: asyncio.subprocess.Process,
    terminal: int | None = None,
) -> bytes:
    """Read what the client sends, and do what it asks for in between."""
    while True:
        try:
            return await reader.read(CHUNK_BYTES)
        except asyncssh.TerminalSizeChanged as size:
            if terminal is not None:
                _resize(terminal, size.term_size)
                _send(child, signal.SIGWINCH)
        except asyncssh.SignalReceived:
            # no gateway is known to pass one on, so what is signalled is the channel
            _send(child, signal.SIGTERM)
        except asyncssh.BreakReceived:
            continue


def _send(child: asyncio.subprocess.Process, number: int) -> None:
    # not by its own method, which would reap it behind asyncio's back
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid, number)


def _resize(terminal: int, size: tuple[int, int, int, int]) -> None:
    termios.tcsetwinsize(terminal, (min(size[1], 65535), min(size[0], 65535)))


async def _type(
    process: "asyncssh.SSHServerProcess[bytes]", terminal: Any, child: asyncio.subprocess.Process
) -> None:
    """Hand on what the client types, once the ssh at the terminal's other end takes it raw."""
    while termios.tcgetattr(terminal)[3] & termios.ICANON:
        await asyncio.sleep(RAW_SECONDS)
    loop = asyncio.get_running_loop()
    there = os.fdopen(os.dup(terminal.fileno()), "wb", buffering=0)  # the transport's
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, there)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    try:
        while data := await _received(process.stdin, child, terminal.fileno()):
            writer.write(data)
            await writer.drain()
    finally:
        transport.abort()


async def _show(terminal: Any, writer: "asyncssh.SSHWriter[bytes]") -> None:
    """Hand on what a terminal shows, until nobody has it open any more."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), terminal)
    with contextlib.suppress(OSError):  # EIO: the end (pty(7))
        await _copy(reader, writer)
