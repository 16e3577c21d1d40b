"""A sandbox's toolbox: commands, files, terminals.

It is reached through a proxy before the toolboxes of all sandboxes. That asks for the same key as
the API, but knows less: for a sandbox that does not exist it answers 401 as for a wrong key, and
remembers answers for two minutes.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from git_daytona.api.account import Account, check_sandbox_id
from git_daytona.api.failures import gone, senseless
from git_daytona.base.endpoint import toolbox_base
from git_daytona.base.errors import Forbidden, GitDaytonaError, KeyRefused, NotFound
from git_daytona.base.secret import Secret, printable
from git_daytona.settings.settings import Settings

if TYPE_CHECKING:
    from git_daytona.api.http import Answer

START_SECONDS = 300.0
"""Limit for a sandbox to be created, started or restored, and for a file to be moved."""
MARGIN_SECONDS = 5.0
"""How much longer than a command may take its answer is waited for."""


@dataclass(frozen=True)
class Execution:
    """A command's exit status and its output, stdout and stderr in one text."""

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


@dataclass(frozen=True)
class TerminalAddress:
    """Where a client's WebSocket connects to a terminal, and its Authorization header."""

    url: str
    authorization: Secret


@dataclass(frozen=True)
class _Handle:
    """The base URL of a sandbox's toolbox, and whether its ports are open to all."""

    url: str
    public: bool


class Toolbox(Account):
    """An account with the toolboxes of its sandboxes. Safe for many threads. Every method raises
    only GitDaytonaError."""

    start_seconds = START_SECONDS

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._handles: dict[str, _Handle] = {}

    def get(self, sandbox_id: str) -> SandboxInfo:
        """Look a sandbox up. Raises SandboxGone when it is gone for good, and only then."""
        doing = f"find sandbox '{check_sandbox_id(sandbox_id)}'"
        try:
            info = self._described(self._ask(doing, "GET", f"/sandbox/{sandbox_id}"), doing)
        except NotFound:
            raise gone(sandbox_id) from None
        if info.state in ("destroyed", "destroying"):
            raise gone(sandbox_id)
        return info

    # -- commands ----------------------------------------------------------------------------------

    def execute(
        self, sandbox_id: str, command: str, *, timeout: float, env: Mapping[str, str] | None = None
    ) -> Execution:
        """Run a shell command in a sandbox, at most ``timeout`` seconds. One API call once the
        sandbox is known to this process.

        An answer that got lost is an ApiUnreachable, which callers may repeat: they guard what must
        not run twice.
        """
        from git_daytona.api.http import ANSWER_BYTES

        seconds = max(1, int(timeout))
        body: dict[str, Any] = {"command": command, "timeout": seconds}
        if env:
            body["envs"] = dict(env)
        answer = self._ask_toolbox(
            sandbox_id,
            "run a command in",
            "POST",
            "/process/execute",
            body=body,
            seconds=seconds + MARGIN_SECONDS,
        )
        doing = f"run a command in sandbox '{sandbox_id}'"
        found = self._json(answer, doing, limit=ANSWER_BYTES)
        # Older servers say `code`.
        status, output = found.get("exitCode", found.get("code")), found.get("result")
        if not isinstance(status, int | None) or not isinstance(output, str | None):
            raise senseless(doing)
        return Execution(-1 if status is None else int(status), output or "")

    # -- files -------------------------------------------------------------------------------------

    def upload(self, sandbox_id: str, path: str, content: bytes) -> None:
        """Write a file in a sandbox, making its folders. Servers take blanks off the ends of a
        path: name none that has some.

        By ``files/bulk-upload``, which every server has and Daytona's own SDKs use: the path is a
        field of its own, before the file.
        """
        self._ask_toolbox(
            sandbox_id,
            f"write '{printable(path)[:200]}' in",
            "POST",
            "/files/bulk-upload",
            fields=[
                ("files[0].path", path),
                ("files[0].file", ("file", content, "application/octet-stream")),
            ],
            seconds=self.start_seconds,
        )

    def download(self, sandbox_id: str, path: str) -> bytes:
        """A file of a sandbox, whole. Raises BadAnswer beyond http.ANSWER_BYTES."""
        return self._ask_toolbox(
            sandbox_id,
            f"read '{printable(path)[:200]}' in",
            "GET",
            "/files/download",
            query={"path": path},
            seconds=self.start_seconds,
        ).body

    # -- terminals ---------------------------------------------------------------------------------

    def open_terminal(
        self,
        sandbox_id: str,
        name: str,
        *,
        directory: str | None,
        size: tuple[int, int],
        env: Mapping[str, str],
    ) -> TerminalAddress:
        """Start a shell on a terminal of ``size`` (columns, rows); return where to connect."""
        body: dict[str, Any] = {"id": name, "cols": size[0], "rows": size[1], "envs": dict(env)}
        if directory is not None:
            body["cwd"] = directory
        self._ask_toolbox(sandbox_id, "open a terminal in", "POST", "/process/pty", body=body)
        return TerminalAddress(
            f"{self._handle(sandbox_id).url}/process/pty/{name}/connect",
            Secret(f"Bearer {self.key().reveal()}"),
        )

    def resize_terminal(self, sandbox_id: str, name: str, size: tuple[int, int]) -> None:
        """Tell a terminal its new size (columns, rows)."""
        body = {"cols": size[0], "rows": size[1]}
        path = f"/process/pty/{name}/resize"
        self._ask_toolbox(sandbox_id, "resize a terminal in", "POST", path, body=body)

    def close_terminal(self, sandbox_id: str, name: str) -> None:
        """End a terminal and what runs on it; one that has ended is fine."""
        with contextlib.suppress(NotFound):
            path = f"/process/pty/{name}"
            self._ask_toolbox(sandbox_id, "close a terminal in", "DELETE", path)

    # -- inside ------------------------------------------------------------------------------------

    def _ask_toolbox(
        self, sandbox_id: str, doing: str, method: str, path: str, **request: Any
    ) -> "Answer":
        """Ask a sandbox's toolbox as _ask() asks the API."""
        url = f"{self._handle(sandbox_id).url}{path}"
        whole = f"{doing} sandbox '{sandbox_id}'"
        answer = self._send(whole, method, url, key=self.key(), **request)
        try:
            return self._checked(answer, whole)
        except KeyRefused:
            raise self.why_refused(sandbox_id, doing) from None

    def why_refused(self, sandbox_id: str, doing: str) -> GitDaytonaError:
        """What is behind a 401 of the proxy: the API itself is asked, whose 404 and 401 mean what
        they say."""
        try:
            self.get(sandbox_id)
        except GitDaytonaError as problem:
            return problem
        return Forbidden(
            f"could not {doing} sandbox '{sandbox_id}': its proxy does not take the key that the"
            " API accepts",
            hint="try again in a few seconds; if it stays so, tell whoever runs the server",
        )

    def _handle(self, sandbox_id: str) -> _Handle:
        check_sandbox_id(sandbox_id)
        with self._lock:
            handle = self._handles.get(sandbox_id)
        if handle is None:
            self.get(sandbox_id)
            with self._lock:
                handle = self._handles[sandbox_id]
        return handle

    def _described(self, answer: "Answer", doing: str) -> SandboxInfo:
        """The sandbox that an answer describes; how it is reached is kept."""
        found = self._json(answer, doing)
        info = described(found, doing)
        url = found.get("toolboxProxyUrl")
        if not url:  # an older server
            path = f"/sandbox/{info.id}/toolbox-proxy-url"
            url = self._json(self._ask(doing, "GET", path), doing).get("url")
        base = toolbox_base(url, self.settings.api_url)
        with self._lock:
            self._handles[info.id] = _Handle(f"{base}/{info.id}", found.get("public") is True)
        return info


def described(answer: object, doing: str) -> SandboxInfo:
    """Read the description of a sandbox. Raises BadAnswer, or NotFound for an invalid id."""
    if not isinstance(answer, dict) or not isinstance(answer.get("id"), str):
        raise senseless(doing)
    labels, reason, created = (answer.get(name) for name in ("labels", "errorReason", "createdAt"))
    return SandboxInfo(
        id=check_sandbox_id(answer["id"]),
        state=printable(str(answer.get("state") or "unknown"))[:50],
        labels={str(name): str(value) for name, value in labels.items()}
        if isinstance(labels, dict)
        else {},
        created_at=created if isinstance(created, str) else None,
        error_reason=printable(reason)[:300] if isinstance(reason, str) and reason else None,
        recoverable=answer.get("recoverable") is True,
    )
