"""Daytona's sandboxes, through the official SDK, which is loaded on first use: it takes a second. Tokens and ``/config``: account.py.

These two, and cloud_errors, are the only modules that import Daytona's distribution.
"""

import contextlib
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from git_daytona import files, paths
from git_daytona.account import Account, KeyInfo, SshAccess, check_sandbox_id, no_retries
from git_daytona.cloud_errors import gone
from git_daytona.errors import GitDaytonaError, NotFound
from git_daytona.secret import printable
from git_daytona.settings import Settings

START_SECONDS = 300.0
"""Limit for a sandbox to be created, started or restored."""
_CONSTRUCTION = threading.Lock()
"""Held while a client is made: that changes the working directory and the warning filters, which belong to the whole process."""


@dataclass(frozen=True)
class Execution:
    """What a command in a sandbox left: exit status and its output, stdout and stderr in one text."""

    status: int
    output: str


@dataclass(frozen=True)
class SandboxInfo:
    """A sandbox as the API describes it."""

    id: str
    state: str
    labels: Mapping[str, str]
    created_at: str | None = None
    error_reason: str | None = None
    recoverable: bool = False


class Cloud(Account):
    """An account with its sandboxes. Safe for many threads. Every method raises only GitDaytonaError."""

    start_seconds = START_SECONDS

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._sdk: Any = None
        self._handles: dict[str, Any] = {}

    def create(self, labels: Mapping[str, str]) -> SandboxInfo:
        """Create a sandbox from DAYTONA_SNAPSHOT (or the default) and wait until it has started."""
        with self._translated("create a sandbox"):
            client = self._client()
            from daytona import CreateSandboxFromSnapshotParams

            parameters = CreateSandboxFromSnapshotParams(snapshot=self.settings.snapshot, labels=dict(labels))
            return self._remember(client.create(parameters, timeout=self.start_seconds))

    def get(self, sandbox_id: str) -> SandboxInfo:
        """Look a sandbox up. Raises SandboxGone when it is gone for good, and only then."""
        check_sandbox_id(sandbox_id)
        try:
            with self._translated("find", sandbox_id):
                info = self._remember(self._client().get(sandbox_id, request_timeout=self.request_seconds))
        except NotFound:
            raise gone(sandbox_id) from None
        if info.state in ("destroyed", "destroying"):
            raise gone(sandbox_id)
        return info

    def find(self, labels: Mapping[str, str]) -> list[SandboxInfo]:
        """All sandboxes that carry these labels, those being destroyed left out."""
        with self._translated("list the sandboxes"):
            client = self._client()
            from daytona import ListSandboxesQuery

            found = [
                self._remember(each)
                for each in client.list(ListSandboxesQuery(labels=dict(labels)), request_timeout=self.request_seconds)
            ]
        return [info for info in found if info.state not in ("destroyed", "destroying")]

    def start(self, sandbox_id: str) -> SandboxInfo:
        """Start a stopped, paused or archived sandbox and wait until it runs."""
        with self._translated("start", sandbox_id):
            handle = self._handle(sandbox_id)
            handle.start(timeout=self.start_seconds)
            return self._remember(handle)

    def recover(self, sandbox_id: str) -> SandboxInfo:
        """Recover a sandbox in a recoverable error state."""
        with self._translated("recover", sandbox_id):
            handle = self._handle(sandbox_id)
            handle.recover(timeout=self.start_seconds)
            return self._remember(handle)

    def execute(self, sandbox_id: str, command: str, *, timeout: float, env: Mapping[str, str] | None = None) -> Execution:
        """Run a shell command in a sandbox, at most ``timeout`` seconds. One API call once the sandbox is known to this process.

        The SDK repeats the request when the connection drops before the answer: callers guard what must not run twice.
        """
        with self._translated("run a command in", sandbox_id):
            handle = self._handle(sandbox_id)
            answer = handle.process.exec(command, env=dict(env or {}) or None, timeout=max(1, int(timeout)))
        status = answer.exit_code
        return Execution(int(status) if status is not None else -1, answer.result or "")

    def upload(self, sandbox_id: str, path: str, content: bytes) -> None:
        """Write a file in a sandbox, making its folders."""
        with self._translated(f"write '{printable(path)[:200]}' in", sandbox_id):
            self._handle(sandbox_id).fs.upload_file(content, path, timeout=int(self.start_seconds))

    def preview(self, sandbox_id: str, port: int, *, seconds: int) -> str:
        """A link to a port of a sandbox that a browser can open for so many seconds. It carries its token: it is for people's eyes."""
        with self._translated(f"make a link to port {port} of", sandbox_id):
            handle = self._handle(sandbox_id)
            if handle.public:
                return str(handle.get_preview_link(port, request_timeout=self.request_seconds).url)
            return str(handle.create_signed_preview_url(port, seconds, request_timeout=self.request_seconds).url)

    def delete(self, sandbox_id: str) -> None:
        """Delete a sandbox; one that is gone already is fine."""
        check_sandbox_id(sandbox_id)
        try:
            with self._translated("delete", sandbox_id):
                self._sandbox_api().delete_sandbox(sandbox_id, _request_timeout=self.request_seconds)
        except NotFound:
            pass
        with self._lock:
            self._handles.pop(sandbox_id, None)

    def load(self) -> None:
        """Load the SDK now (in the background, say), so that the first call does not wait for it."""
        with contextlib.suppress(GitDaytonaError):
            self._client()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _client(self) -> Any:
        with self._lock:
            if self._sdk is None:
                key = self.key()
                from daytona import Daytona, DaytonaConfig

                config = DaytonaConfig(
                    api_key=key.reveal(),
                    api_url=self.settings.api_url,
                    target=self.settings.target,
                    # Polling: the event channel is a second connection that outlives a one-shot command.
                    use_deprecated_polling=True,
                )
                # The SDK reads .env and .env.local of the working directory, which is somebody's repository: it could switch
                # telemetry on or choose a target, and an odd file there would fail the constructor. Give it an empty one.
                empty = files.private_directory(paths.own_state() / "empty")
                with _CONSTRUCTION, warnings.catch_warnings(), contextlib.chdir(empty):
                    warnings.simplefilter("ignore")
                    self._sdk = Daytona(config)
                # As for the other client: we decide what is repeated, and a 429 comes to us with its Retry-After. There is no
                # setting for it, so this is best effort.
                with contextlib.suppress(AttributeError):
                    self._sdk._api_client.rest_client.pool_manager.connection_pool_kw["retries"] = no_retries()
            return self._sdk

    def _handle(self, sandbox_id: str) -> Any:
        check_sandbox_id(sandbox_id)
        with self._lock:
            handle = self._handles.get(sandbox_id)
        if handle is None:
            self.get(sandbox_id)
            with self._lock:
                handle = self._handles[sandbox_id]
        return handle

    def _remember(self, handle: Any) -> SandboxInfo:
        state = getattr(handle.state, "value", handle.state)
        info = SandboxInfo(
            id=check_sandbox_id(str(handle.id)),
            state=str(state or "unknown"),
            labels=dict(handle.labels or {}),
            created_at=handle.created_at,
            error_reason=handle.error_reason,
            recoverable=bool(handle.recoverable),
        )
        with self._lock:
            self._handles[info.id] = handle
        return info


__all__ = ["Cloud", "Execution", "KeyInfo", "SandboxInfo", "SshAccess"]
