"""The data of one SSH channel: between the client's window and the command's pipes, and how both ends learn of the other's end."""

import fcntl
import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import paramiko  # type: ignore[import-untyped]

# What fits into two packets of the size that OpenSSH takes (32 KiB less paramiko's margin of 64 bytes).
CHUNK = 2 * (32768 - 64)
PIPE_SIZE = 1 << 20
POLL_SECONDS = 0.5
GRACE_SECONDS = 0.5
CHANNEL_REQUEST = 98  # RFC 4254, 9

Allow = Callable[[int], int]
"""How many of so many bytes may still pass; fewer than asked means that the connection is to be cut after them."""


class HungUp(Exception):
    """The client is gone, or is to be cut off."""


class Streams:
    """Moves the data of a running command in threads, reports its status, closes the channel, calls ``ended``.

    ``master`` is the command's terminal, when it has one; it stays the caller's.
    """

    def __init__(
        self,
        channel: Any,
        process: "subprocess.Popen[bytes]",
        master: int | None,
        *,
        allow: Allow,
        cut: Callable[[], None],
        ended: Callable[[], None],
    ):
        self._channel = channel
        self._process = process
        self._master = master
        self._allow = allow
        self._cut = cut
        self._ended = ended

    def start(self) -> None:
        process = self._process
        outputs: list[tuple[int, Callable[[bytes], int]]]
        # Each descriptor is closed by the one thread that uses it, never under another's hands: hence the copies.
        if self._master is not None:
            source = os.dup(self._master)
            outputs = [(os.dup(self._master), self._channel.send)]
        else:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            source, output, error = (os.dup(pipe.fileno()) for pipe in (process.stdin, process.stdout, process.stderr))
            for pipe in (process.stdin, process.stdout, process.stderr):
                pipe.close()
            for descriptor in (source, output):
                _widen(descriptor)
            outputs = [(output, self._channel.send), (error, self._channel.send_stderr)]
        readers = [self._thread("ssh-output", self._read, *output) for output in outputs[1:]]
        writer = self._thread("ssh-input", self._write, source)
        self._thread("ssh-command", self._run, *outputs[0], readers, writer)

    def _thread(self, name: str, target: Callable[..., None], *args: object) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, name=name, daemon=True)
        thread.start()
        return thread

    def _run(
        self,
        descriptor: int,
        send: Callable[[bytes], int],
        readers: list[threading.Thread],
        writer: threading.Thread,
    ) -> None:
        process = self._process
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
                kill_group(process)
                process.wait()
            self._shut(lambda: self._report(process.returncode))
            self._shut(self._channel.close)
            writer.join()  # a closed channel ends it
        finally:
            self._ended()

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
            if self._master is not None and not broken and not self._channel.closed:
                os.write(descriptor, b"\x04")  # end of file, as typed
        except (OSError, EOFError, paramiko.SSHException):
            pass  # the terminal is gone, or the client: recv() sends, too, to widen the window
        finally:
            os.close(descriptor)

    def _report(self, status: int) -> None:
        """Send exit-status, or exit-signal for a command that a signal ended (RFC 4254, 6.10)."""
        if status >= 0:
            self._channel.send_exit_status(status)
            return
        message = paramiko.Message()
        message.add_byte(bytes([CHANNEL_REQUEST]))
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


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """End a command and what it started."""
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
