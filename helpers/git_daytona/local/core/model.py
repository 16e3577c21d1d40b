"""What the parts of the embedded Daytona agree on: the records, the states, and what each part
offers the others.

The HTTP side (api, toolbox) runs in one asyncio loop; the SSH gateway in another, in a thread of
its own. Everything below may be called from either.
"""

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

HOME = "/home/daytona"
"""Home and working directory inside every sandbox, as in Daytona's default images."""
UMASK = 0o022
"""Of every process in a sandbox, whatever this server was started with."""

Stream = int | IO[bytes] | None


@dataclass(frozen=True)
class Program:
    """A command for a sandbox. ``cwd`` is a path of the sandbox (default HOME; relative ones are
    relative to HOME); ``env`` is added to a clean base environment (see `environment`) and the
    sandbox's own ``env``."""

    argv: Sequence[str]
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    stdin: Stream = subprocess.DEVNULL
    stdout: Stream = subprocess.PIPE
    stderr: Stream = subprocess.PIPE


class ApiError(Exception):
    """A request that is refused; becomes Daytona's error envelope.

    The envelope is ``{"path", "timestamp", "statusCode", "error", "message", "code"?, "source"?}``.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.headers = dict(headers or {})


@dataclass
class Sandbox:
    """One sandbox. Times are seconds since the epoch, intervals minutes as in Daytona's API (0 or
    negative: see there)."""

    id: str
    name: str
    directory: Path
    """Host directory of this sandbox; ``home/`` in it is what the sandbox sees as /home/daytona,
    ``tmp/`` as /tmp."""
    state: str = "creating"
    desired_state: str = "started"
    labels: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    snapshot: str = ""
    user: str = "daytona"
    public: bool = False
    cpu: int = 0
    memory: int = 0
    """Cores, and GiB of each process; 0: what this machine has."""
    target: str = "local"
    sandbox_class: str = "container"
    parent: str = ""
    """The id of the sandbox that it is a fork of."""
    auto_stop_interval: int = 15
    auto_archive_interval: int = 7 * 24 * 60
    auto_delete_interval: int = -1
    error_reason: str | None = None
    recoverable: bool | None = None
    created_at: float = field(default_factory=time.time)
    updated_at: float = field(default_factory=time.time)
    last_activity_at: float = field(default_factory=time.time)

    @property
    def home(self) -> Path:
        return self.directory / "home"

    @property
    def tmp(self) -> Path:
        return self.directory / "tmp"


class Isolation(Protocol):
    """How the processes of a sandbox are kept apart from the host. One object serves all sandboxes
    of a server."""

    name: str
    """``bubblewrap``, ``namespaces`` or ``plain``."""
    isolates: bool

    def start(self, sandbox: Sandbox) -> None:
        """Make the sandbox's process tree; idempotent. Raises ApiError(500) when it cannot be
        made."""

    def stop(self, sandbox: Sandbox) -> None:
        """End every process of the sandbox; idempotent; returns when they are gone."""

    def popen(self, sandbox: Sandbox, command: Program) -> "subprocess.Popen[bytes]":
        """Run a command inside the started sandbox, in a new session (so that its process group can
        be signalled). Nothing of the host's environment goes in. The exit status is the command's;
        killing the returned process's group ends the command and its children in the sandbox.
        """

    def path(self, sandbox: Sandbox, path: str) -> Path:
        """The host path of a path of the sandbox (relative ones are relative to HOME), links
        resolved as the sandbox sees them.

        Raises ApiError(403) when the sandbox itself could not see that place (the host user's home,
        for one).
        """


class Registry(Protocol):
    """The sandboxes and tokens that exist; kept by the API, read by toolbox and gateway."""

    def sandbox(self, id_or_name: str) -> Sandbox:
        """Raises ApiError(404)."""

    def touch(self, sandbox: Sandbox) -> None:
        """Note activity, which puts auto-stop off."""

    def validate(self, token: str) -> Sandbox | None:
        """The sandbox that an unexpired SSH token opens, whatever its state; None for every other
        string."""
