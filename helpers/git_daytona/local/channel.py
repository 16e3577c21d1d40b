"""One SSH channel of the gateway: a command of the sandbox, with its streams, its terminal and its status."""

import fcntl
import os
import select
import signal
import subprocess
import termios
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import paramiko  # type: ignore[import-untyped]

from .model import ApiError, Isolation, Sandbox

# What fits into two packets of the size that OpenSSH takes (32 KiB less paramiko's margin of 64 bytes).
CHUNK = 2 * (32768 - 64)
PIPE_SIZE = 1 << 20
POLL_SECONDS = 0.5
GRACE_SECONDS = 0.5
MSG_CHANNEL_REQUEST = 98  # RFC 4254, 9

SFTP_SERVERS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
)
SHELLS = ("zsh", "bash", "sh")
SHELL_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin")

Allow = Callable[[int], int]
"""How many of so many bytes may still pass; fewer than asked means that the connection is to be cut after them."""


class HungUp(Exception):
    """The client is gone, or is to be cut off."""


@dataclass
class Terminal:
    """A pseudo-terminal that the client asked for. ``slave`` is open until the command has it."""

    master: int
    slave: int
    term: str

    @classmethod
    def open(cls, term: str, columns: int, rows: int) -> "Terminal":
        master, slave = os.openpty()
        terminal = cls(master, slave, term)
        terminal.resize(columns, rows)
        return terminal

    def resize(self, columns: int, rows: int) -> None:
        termios.tcsetwinsize(self.master, (min(rows, 65535), min(columns, 65535)))


class Session:
    """What the client asks of one channel. The requests are called by the connection's thread, each answers yes or no."""

    def __init__(self, channel: Any, sandbox: Sandbox, isolation: Isolation, allow: Allow, cut: Callable[[], None]):
        self._channel = channel
        self._sandbox = sandbox
        self._isolation = isolation
        self._allow = allow
        self._cut = cut
        self._env: dict[str, str] = {}
        self._terminal: Terminal | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._streaming = False
        self._lock = threading.Lock()  # guards the terminal against being closed while it is resized
        self.done = threading.Event()
        """The command has ended and its channel is closed, or there will be none."""

    @property
    def forsaken(self) -> bool:
        """Whether the client closed the channel without having had a command's output."""
        return bool(self._channel.closed) and not self._streaming and not self.done.is_set()

    def accept_env(self, name: str, value: str) -> bool:
        """Only what cannot change which program runs: git's protocol and the locale."""
        if name not in ("GIT_PROTOCOL", "LANG", "TZ") and not name.startswith("LC_"):
            return False
        self._env[name] = value
        return True

    def open_terminal(self, term: str, columns: int, rows: int) -> bool:
        if self._terminal is not None or self._process is not None:
            return False
        try:
            self._terminal = Terminal.open(term, columns, rows)
        except OSError:
            return False  # the host has no pseudo-terminal left
        return True

    def resize(self, columns: int, rows: int) -> bool:
        with self._lock:
            if self._terminal is None:
                return False
            self._terminal.resize(columns, rows)
            return True

    def execute(self, command: str) -> bool:
        return self._spawn([self._shell(), "-c", command])

    def shell(self) -> bool:
        return self._spawn([self._shell(), "-l"])

    def subsystem(self, name: str) -> bool:
        if name != "sftp":
            return False
        server = next((path for path in SFTP_SERVERS if self._is_file(path)), None)
        return server is not None and self._spawn([server])

    def _shell(self) -> str:
        for name in SHELLS:
            for folder in SHELL_FOLDERS:
                if self._is_file(f"{folder}/{name}"):
                    return f"{folder}/{name}"
        return "/bin/sh"

    def _is_file(self, path: str) -> bool:
        try:
            return self._isolation.path(self._sandbox, path).is_file()
        except ApiError:
            return False

    def _spawn(self, argv: Sequence[str]) -> bool:
        if self._process is not None:
            return False  # RFC 4254, 6.5: one request of these per channel
        terminal = self._terminal
        env = {**self._env, **({"TERM": terminal.term} if terminal and terminal.term else {})}
        stream = terminal.slave if terminal else subprocess.PIPE
        try:
            self._process = self._isolation.popen(
                self._sandbox, argv, env=env, stdin=stream, stdout=stream, stderr=stream
            )
        except (ApiError, OSError, ValueError):  # ValueError: a NUL in the command or in a variable
            return False
        finally:
            if terminal is not None:
                os.close(terminal.slave)
                terminal.slave = -1
        return True

    def stream(self) -> None:
        """Begin to move data; called once the client has been told that its request was granted."""
        if self._process is None or self._streaming:
            return
        self._streaming = True
        process, terminal = self._process, self._terminal
        outputs: list[tuple[int, Callable[[bytes], int]]]
        if terminal is not None:
            source = os.dup(terminal.master)
            outputs = [(os.dup(terminal.master), self._channel.send)]
        else:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            # The descriptors change owner: each is closed by the thread that uses it, never under another's hands.
            source, output, error = (os.dup(pipe.fileno()) for pipe in (process.stdin, process.stdout, process.stderr))
            for pipe in (process.stdin, process.stdout, process.stderr):
                pipe.close()
            for descriptor in (source, output):
                _widen(descriptor)
            outputs = [(output, self._channel.send), (error, self._channel.send_stderr)]
        readers = [
            threading.Thread(target=self._read, args=(descriptor, send), name="ssh-output", daemon=True)
            for descriptor, send in outputs[1:]
        ]
        threading.Thread(target=self._write, args=(source,), name="ssh-input", daemon=True).start()
        for reader in readers:
            reader.start()
        threading.Thread(
            target=self._run, args=(process, *outputs[0], readers), name="ssh-command", daemon=True
        ).start()

    def abandon(self) -> None:
        """The connection ended; ends a command that was never let go, the threads see to all others."""
        if self._streaming:
            return
        if self._process is not None:
            _kill_group(self._process)
            self._process.communicate()
        self._close_terminal()
        self.done.set()

    def _run(
        self,
        process: "subprocess.Popen[bytes]",
        descriptor: int,
        send: Callable[[bytes], int],
        readers: list[threading.Thread],
    ) -> None:
        try:
            self._read(descriptor, send)
            for reader in readers:
                reader.join()
            if not self._channel.closed:
                self._shut(self._channel.shutdown_write)
            while not self._channel.closed:
                try:
                    process.wait(POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    continue  # its output is closed, it still works
            try:
                # The client is gone or all is said. The pipes are closed by now, which lets git clean up behind itself.
                process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                _kill_group(process)
                process.wait()
            self._shut(lambda: self._report(process.returncode))
            self._shut(self._channel.close)
        finally:
            self._close_terminal()
            self.done.set()

    def _read(self, descriptor: int, send: Callable[[bytes], int]) -> None:
        """Move the command's output to the client until one of them ends it. `send` waits for the client's window."""
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            while not self._channel.closed:
                if not poll.poll(POLL_SECONDS * 1000):
                    continue
                data = os.read(descriptor, CHUNK)
                if not data:
                    return
                self._send(data, send)
        except (OSError, EOFError, HungUp, paramiko.SSHException):
            pass  # EIO: the terminal's last user is gone; else: the client is
        finally:
            os.close(descriptor)

    def _send(self, data: bytes, send: Callable[[bytes], int]) -> None:
        allowed = self._allow(len(data))
        rest = data[:allowed]
        while rest:
            sent = send(rest)
            if sent == 0:
                raise HungUp
            rest = rest[sent:]
        if allowed < len(data):
            self._cut()
            raise HungUp

    def _write(self, descriptor: int) -> None:
        """Move the client's data to the command; what it does not take is dropped, as sshd does."""
        try:
            os.set_blocking(descriptor, False)
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            broken = False
            while data := self._channel.recv(CHUNK):
                allowed = self._allow(len(data))
                rest = memoryview(data)[:allowed]
                while rest and not broken and not self._channel.closed:
                    poll.poll(POLL_SECONDS * 1000)
                    try:
                        rest = rest[os.write(descriptor, rest) :]
                    except BlockingIOError:
                        continue
                    except OSError:
                        broken = True  # EPIPE: the command has closed its input
                if allowed < len(data):
                    self._cut()
                    return
            if self._terminal is not None and not broken and not self._channel.closed:
                os.write(descriptor, b"\x04")  # end of file, as typed
        except OSError:
            pass  # the terminal is gone
        finally:
            os.close(descriptor)

    def _report(self, status: int) -> None:
        """Send exit-status, or exit-signal for a command that a signal ended (RFC 4254, 6.10)."""
        if status >= 0:
            self._channel.send_exit_status(status)
            return
        message = paramiko.Message()
        message.add_byte(bytes([MSG_CHANNEL_REQUEST]))
        message.add_int(self._channel.remote_chanid)
        message.add_string("exit-signal")
        message.add_boolean(False)
        message.add_string(signal.Signals(-status).name.removeprefix("SIG"))
        message.add_boolean(False)
        message.add_string("")
        message.add_string("")
        self._channel.transport._send_user_message(message)

    def _shut(self, action: Callable[[], object]) -> None:
        try:
            action()
        except (OSError, EOFError, paramiko.SSHException):
            pass  # the client is gone, which is one way of being told

    def _close_terminal(self) -> None:
        with self._lock:
            terminal, self._terminal = self._terminal, None
        if terminal is not None:
            os.close(terminal.master)
            if terminal.slave >= 0:
                os.close(terminal.slave)


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # it has just ended


def _widen(descriptor: int) -> None:
    """Fewer, larger reads: a pack of 100 MB passes in the default 64 KiB steps otherwise. Only Linux can."""
    operation = getattr(fcntl, "F_SETPIPE_SZ", None)
    if operation is not None:
        try:
            fcntl.fcntl(descriptor, operation, PIPE_SIZE)
        except OSError:
            pass  # the user's share of pipe memory is used up (pipe(7))
