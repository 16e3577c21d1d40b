"""One SSH channel of the gateway: a command of the sandbox, with its streams, its terminal and its status."""

import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Any

from .model import ApiError, Isolation, Sandbox
from .streams import Allow, Streams, kill_group
from .terminal import Terminal, Terminals

SFTP_SERVERS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
)
SHELLS = ("zsh", "bash", "sh")
SHELL_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin")


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
        isolation = self._isolation
        try:
            pair = isolation.open_terminal(self._sandbox) if isinstance(isolation, Terminals) else os.openpty()
        except (ApiError, OSError):
            return False  # not running, or no pseudo-terminal left
        self._terminal = Terminal(*pair, term)
        return self.resize(columns, rows)

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
            self._process = self._isolation.popen(self._sandbox, argv, env=env, stdin=stream, stdout=stream, stderr=stream)
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
        master = self._terminal.master if self._terminal else None
        Streams(self._channel, self._process, master, allow=self._allow, cut=self._cut, ended=self._end).start()

    def abandon(self) -> None:
        """The connection ended; ends a command that was never let go, the threads see to all others."""
        if self._streaming:
            return
        if self._process is not None:
            kill_group(self._process)
            self._process.communicate()
        self._end()

    def _end(self) -> None:
        with self._lock:
            terminal, self._terminal = self._terminal, None
        if terminal is not None:
            os.close(terminal.master)
            if terminal.slave >= 0:
                os.close(terminal.slave)
        self.done.set()
