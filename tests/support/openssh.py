"""SSH to a sandbox: the OpenSSH client with a private configuration, and paramiko's where one must
look at single messages."""

import contextlib
import os
import re
import shlex
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import paramiko
from paramiko.common import cMSG_CHANNEL_REQUEST

from support.waiting import until

SECONDS = 20.0
LOST = 255
"""The status that OpenSSH ends with when the server sends none."""
ATTEMPTS = 80
"""So often a command is run until its status arrives; at four of five lost, one row in 50 million
sees none."""


class Ran(NamedTuple):
    """How an ssh command ended; status None: it did not."""

    status: int | None
    out: str
    err: str


class Client:
    """OpenSSH's client for one token; the token is in its configuration file only."""

    def __init__(self, host: str, port: int, token: str, keys: list[str]):
        self.host, self.port, self.token = host, port, token
        # Short, because the path of a socket may have no more than about a hundred bytes.
        self._place = tempfile.TemporaryDirectory(prefix="conf-")
        self.folder = Path(self._place.name)
        self.config = self.folder / "config"
        (self.folder / "known_hosts").write_text("".join(f"sandbox {key}\n" for key in keys))
        self.config.touch(0o600)
        lines = [
            "Host sandbox",
            f"HostName {host}",
            f"Port {port}",
            f"User {token}",
            "HostKeyAlias sandbox",
            f"UserKnownHostsFile {self.folder}/known_hosts",
            "GlobalKnownHostsFile /dev/null",
            # Pinned where the server publishes its keys.
            f"StrictHostKeyChecking {'yes' if keys else 'accept-new'}",
            "BatchMode yes",
            "IdentityFile none",
            "IdentityAgent none",
            "ConnectTimeout 20",
            "LogLevel ERROR",
        ]
        self.config.write_text("\n".join(lines) + "\n")

    def close(self) -> None:
        self._place.cleanup()

    def environment(self) -> dict[str, str]:
        return {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SSH_", "LC_", "LANG"))
        }

    def argv(self, *options: str, program: str = "ssh") -> list[str]:
        return [program, "-F", str(self.config), *options]

    def start(self, command: str | None, *options: str, **popen: Any) -> "subprocess.Popen[bytes]":
        argv = self.argv(*options, "sandbox", *([] if command is None else [command]))
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(argv, **{**streams, "env": self.environment(), **popen})

    def run(
        self, command: str | None, *options: str, data: bytes = b"", seconds: float = SECONDS
    ) -> Ran:
        with self.start(command, *options) as process:
            try:
                out, err = process.communicate(data, timeout=seconds)
                status: int | None = process.returncode
            except subprocess.TimeoutExpired as error:
                # What has come so far; a shared connection may hold the pipes open.
                process.kill()
                out, err, status = error.stdout or b"", error.stderr or b"", None
        return Ran(status, out.decode(errors="replace"), err.decode(errors="replace"))

    def out(self, command: str | None, *options: str, data: bytes = b"") -> str:
        return self.run(command, *options, data=data).out

    def tool(self, program: str, *arguments: str, data: bytes = b"") -> int:
        """Run scp or sftp, and return its status."""
        done = subprocess.run(
            self.argv(*arguments, program=program),
            input=data,
            capture_output=True,
            timeout=SECONDS,
            env=self.environment(),
        )
        return done.returncode

    @contextlib.contextmanager
    def shared(self) -> Iterator[tuple[str, ...]]:
        """One connection; what is yielded are the options of commands that use it."""
        path = self.folder / "shared"
        with self.start(None, "-M", "-N", "-S", str(path), stdin=subprocess.DEVNULL) as master:
            try:
                until(lambda: path.exists() or master.poll() is not None, "the shared connection")
                yield ("-S", str(path))
            finally:
                _end(master, path)

    def status(self, command: str) -> int | str:
        """The command's exit status, run until the gateway does not lose it."""
        with self.shared() as options:
            for _ in range(ATTEMPTS):
                ran = self.run(command, *options)
                if ran.status != LOST:
                    return "no end" if ran.status is None else ran.status
        return "never told"

    def told(self, command: str | None, *options: str) -> str:
        """What the client notes of the protocol (-v) while it runs a command."""
        return self.run(command, *options, "-v", "-o", "LogLevel=DEBUG3").err

    def requests(self, command: str) -> list[str]:
        """The channel requests that the server sends for a command, over all runs until one of them
        has any."""
        for _ in range(ATTEMPTS):
            found = re.findall(
                r"client_input_channel_req: channel \d+ rtype (\S+)", self.told(command)
            )
            if found:
                return sorted(set(found))
        return []

    @contextlib.contextmanager
    def forwarded(self, remote: str) -> Iterator[socket.socket]:
        """A connection to the unix socket at that path of the sandbox, by -L."""
        path = self.folder / "forward"
        forward = (
            "-o",
            "ExitOnForwardFailure=yes",
            "-o",
            "StreamLocalBindUnlink=yes",
            "-N",
            "-L",
            f"{path}:{remote}",
        )
        with self.start(None, *forward, stdin=subprocess.DEVNULL) as process:
            try:
                until(lambda: path.exists() or process.poll() is not None, "the forward")
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.settimeout(SECONDS)
                    connection.connect(str(path))
                    yield connection
            finally:
                _end(process, path)

    @contextlib.contextmanager
    def transport(self) -> Iterator[paramiko.Transport]:
        """Paramiko's client, in by none."""
        connection = socket.create_connection((self.host, self.port), timeout=SECONDS)
        transport = paramiko.Transport(connection)
        try:
            transport.start_client(timeout=SECONDS)
            transport.auth_none(self.token)
            yield transport
        finally:
            transport.close()


def _end(process: "subprocess.Popen[bytes]", path: Path) -> None:
    """End a client that listens on a socket. One that is asked to end (SIGTERM) just before it
    waits for events may go on waiting."""
    process.kill()
    path.unlink(missing_ok=True)


def endpoint(ssh_command: str) -> tuple[str, int]:
    """Host and port of the command that minting answers with: `ssh -p 2222 TOKEN@host`."""
    words = shlex.split(ssh_command)
    port = int(words[words.index("-p") + 1]) if "-p" in words else 22
    return next(word for word in words if "@" in word).rpartition("@")[2], port


def granted(channel: paramiko.Channel, kind: str, *add: Callable[[paramiko.Message], Any]) -> bool:
    """Whether the server grants a channel request; `add` puts its members into the message."""
    message = paramiko.Message()
    message.add_byte(cMSG_CHANNEL_REQUEST)
    message.add_int(channel.remote_chanid)
    message.add_string(kind)
    message.add_boolean(True)
    for member in add:
        member(message)
    channel._event_pending()
    channel.transport._send_user_message(message)
    try:
        channel._wait_for_event()
    except paramiko.SSHException:
        return False
    return True


def read_all(channel: paramiko.Channel) -> str:
    channel.settimeout(SECONDS)
    data = b""
    while more := channel.recv(65536):
        data += more
    return data.decode(errors="replace")
