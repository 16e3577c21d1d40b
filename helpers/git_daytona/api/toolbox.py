"""A sandbox's toolbox: commands, files, terminals.

It is reached through a proxy before the toolboxes of all sandboxes. That asks for the same key as
the API, but knows less: for a sandbox that does not exist it answers 401 as for a wrong key, and
remembers answers for two minutes.
"""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from git_daytona.api.account import Account, check_sandbox_id, label, moment, path_of
from git_daytona.api.failures import senseless
from git_daytona.base.endpoint import toolbox_base
from git_daytona.base.errors import Forbidden, GitDaytonaError, KeyRefused, NotFound, SandboxGone
from git_daytona.base.secret import Secret, one_line, printable
from git_daytona.settings import order
from git_daytona.settings.settings import Settings

if TYPE_CHECKING:
    from git_daytona.api.http import Answer

START_SECONDS = 300.0
"""Limit for a sandbox to be created, started or restored, and for a file to be moved."""
ENDED = ("destroyed", "destroying")
"""States that a sandbox does not come back from."""
MARGIN_SECONDS = 5.0
"""How much longer than a command may take its answer is waited for."""


@dataclass(frozen=True)
class Execution:
    """A command's exit status and its output, stdout and stderr in one text."""

    status: int
    output: str


class TerminalAddress(NamedTuple):
    """Where a client's WebSocket connects to a terminal, and its Authorization header."""

    url: str
    authorization: Secret


@dataclass(frozen=True)
class SandboxInfo:
    """A sandbox as the API describes it."""

    id: str
    state: str
    labels: Mapping[str, str]
    created_at: str | None = None
    error_reason: str | None = None
    recoverable: bool = False
    organization_id: str = ""
    """Empty where the API does not say."""
    destroyed_at: datetime | None = None
    """When it destroys itself, whatever state it is in."""
    deleted_after: int | None = None
    """How many minutes after it has stopped it is deleted by itself; None: it is not."""
    stops_after: int | None = None
    """After how many idle minutes it stops by itself; None: never."""
    is_spot: bool = False
    """Whether it may be destroyed at any moment, for others who pay more."""
    is_public: bool = False
    """Whether its ports are open to all."""
    ordered: Mapping[str, str | int | bool] = field(default_factory=dict)
    """What it was made with, by the members of the API's request, as far as the API says."""
    variables: frozenset[str] = frozenset()
    """The names of those it was made with."""
    name: str = ""

    @property
    def ends_by_itself(self) -> bool:
        """Whether what is only in it may be gone without anybody's doing."""
        return self.is_spot or self.destroyed_at is not None or self.deleted_after is not None

    def seconds_left(self, now: float) -> float:
        """How long it has until it destroys itself, from a moment in seconds since the epoch."""
        return self.destroyed_at.timestamp() - now if self.destroyed_at else math.inf


class Toolbox(Account):
    """An account with the toolboxes of its sandboxes. Safe for many threads. Every method raises
    only GitDaytonaError."""

    start_seconds = START_SECONDS

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._reached: dict[str, tuple[str, SandboxInfo]] = {}
        """Sandbox id → the base URL of its toolbox, and how the API described it last."""
        self._organization = ""
        """Of the key in use, once that is known."""

    def known(self, sandbox_id: str) -> SandboxInfo | None:
        """Return a sandbox as this process has seen it last, without an API call."""
        return self._reached[sandbox_id][1] if sandbox_id in self._reached else None

    def get(self, sandbox_id: str) -> SandboxInfo:
        """Look a sandbox up. Raises SandboxGone when it is gone for good, and only then."""
        path, info = path_of(sandbox_id), None  # no sandbox's id is not a sandbox that is gone
        with contextlib.suppress(NotFound):
            info = self._described(self._ask("find the sandbox", "GET", path))
        if info is None or info.state in ENDED:
            self._reached.pop(sandbox_id, None)
            raise gone()
        return info

    def execute(self, sandbox_id: str, command: str, *, timeout: float) -> Execution:
        """Run a shell command in a sandbox, at most ``timeout`` seconds. One API call once the
        sandbox is known to this process.

        An answer that got lost is an ApiUnreachable, which callers may repeat: they guard what must
        not run twice.
        """
        limit = max(1, int(timeout))
        body = {"command": command, "timeout": limit}
        seconds = limit + MARGIN_SECONDS
        request = (sandbox_id, "run a command in", "POST", "/process/execute")
        answer = self._inside(*request, body=body, seconds=seconds)
        found = self._object(answer, most=None)
        # Older servers say `code`.
        status, output = found.get("exitCode", found.get("code")), found.get("result")
        if not isinstance(status, int | None) or not isinstance(output, str | None):
            raise senseless(answer.doing)
        return Execution(-1 if status is None else int(status), output or "")

    def upload(self, sandbox_id: str, path: str, content: bytes) -> None:
        """Write a file in a sandbox, making its folders. Servers take blanks off the ends of a
        path: name none that has some.

        By ``files/bulk-upload``, which every server has and Daytona's own SDKs use: the path is a
        field of its own, before the file.
        """
        file = ("file", content, "application/octet-stream")
        fields = [("files[0].path", path), ("files[0].file", file)]
        request = (sandbox_id, f"write '{printable(path)[:200]}' in", "POST", "/files/bulk-upload")
        self._inside(*request, fields=fields, seconds=self.start_seconds)

    def download(self, sandbox_id: str, path: str) -> bytes:
        """Read a file of a sandbox, whole. Raises BadAnswer beyond http.ANSWER_BYTES."""
        request = (sandbox_id, f"read '{printable(path)[:200]}' in", "GET", "/files/download")
        return self._inside(*request, query={"path": path}, seconds=self.start_seconds).body

    def open_terminal(
        self,
        sandbox_id: str,
        name: str,
        *,
        size: tuple[int, int],
        directory: str | None,
        env: Mapping[str, str],
    ) -> TerminalAddress:
        """Start a shell on a terminal of ``size`` (columns, rows); return where to connect."""
        body: dict[str, Any] = {"id": name, "cols": size[0], "rows": size[1], "envs": dict(env)}
        if directory is not None:
            body["cwd"] = directory
        self._inside(sandbox_id, "open a terminal in", "POST", "/process/pty", body=body)
        return TerminalAddress(
            f"{self._reach(sandbox_id)[0]}/process/pty/{name}/connect",
            Secret(f"Bearer {self.key().reveal()}"),
        )

    def resize_terminal(self, sandbox_id: str, name: str, size: tuple[int, int]) -> None:
        """Tell a terminal its new size (columns, rows)."""
        body = {"cols": size[0], "rows": size[1]}
        path = f"/process/pty/{name}/resize"
        self._inside(sandbox_id, "resize a terminal in", "POST", path, body=body)

    def close_terminal(self, sandbox_id: str, name: str) -> None:
        """End a terminal and what runs on it; one that has ended is fine."""
        with contextlib.suppress(NotFound):
            self._inside(sandbox_id, "close a terminal in", "DELETE", f"/process/pty/{name}")

    def why_refused(self, sandbox_id: str, doing: str) -> GitDaytonaError:
        """Find what is behind a 401 of the proxy: the API itself is asked, whose 404 and 401 mean
        what they say. ``doing`` is what it refused, up to the sandbox's name."""
        try:
            self.get(sandbox_id)
        except GitDaytonaError as problem:
            return problem
        return Forbidden(
            f"could not {doing} the sandbox: its proxy does not take the key that the API accepts",
            hint="try again in a few seconds; if it stays so, tell whoever runs the server",
        )

    # -- inside ------------------------------------------------------------------------------------

    def _inside(self, sandbox_id: str, doing: str, method: str, path: str, **more: Any) -> "Answer":
        """Ask a sandbox's toolbox as ``_ask`` asks the API."""
        base, _ = self._reach(sandbox_id)
        try:
            return self._ask(f"{doing} the sandbox", method, path, base=base, **more)
        except KeyRefused:
            raise self.why_refused(sandbox_id, doing) from None

    def _reach(self, sandbox_id: str) -> tuple[str, SandboxInfo]:
        """Find how a sandbox is reached (see ``_reached``): one API call, the first time."""
        if (found := self._reached.get(check_sandbox_id(sandbox_id))) is None:
            self.get(sandbox_id)
            found = self._reached[sandbox_id]
        return found

    def _described(self, answer: "Answer") -> SandboxInfo:
        """Read the sandbox that an answer describes, and keep how it is reached."""
        found = self._object(answer)
        info = described(found, answer.doing)
        url = found.get("toolboxProxyUrl")
        if not url:  # an older server
            path = f"/sandbox/{info.id}/toolbox-proxy-url"
            url = self._object(self._ask(answer.doing, "GET", path)).get("url")
        base = toolbox_base(url, self.settings.api_url)
        self._reached[info.id] = f"{base}/{info.id}", info
        self._organization = self._organization or info.organization_id
        return info


def _minutes(value: object) -> int | None:
    """Read an interval; None for one that never ends, or for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9:
        return int(value)
    return None


def gone() -> SandboxGone:
    return SandboxGone("the sandbox does not exist", hint="'git daytona status' lists the sessions")


def described(answer: object, doing: str) -> SandboxInfo:
    """Read the description of a sandbox. Raises BadAnswer, or NotFound for an invalid id."""
    if not isinstance(answer, dict) or not isinstance(answer.get("id"), str):
        raise senseless(doing)
    labels, reason, created = (answer.get(name) for name in ("labels", "errorReason", "createdAt"))
    name = answer.get("name")
    return SandboxInfo(
        id=check_sandbox_id(answer["id"]),
        state=one_line(str(answer.get("state") or "unknown"))[:50],
        labels={str(name): str(value) for name, value in labels.items()}
        if isinstance(labels, dict)
        else {},
        created_at=created if isinstance(created, str) else None,
        error_reason=one_line(reason)[:300] if isinstance(reason, str) and reason else None,
        recoverable=answer.get("recoverable") is True,
        organization_id=label(answer.get("organizationId")),
        destroyed_at=moment(answer.get("autoDestroyAt"), datetime.fromisoformat),
        deleted_after=_minutes(answer.get("autoDeleteInterval")),
        stops_after=_minutes(answer.get("autoStopInterval")) or None,
        is_spot=answer.get("spot") is True,
        is_public=answer.get("public") is True,
        ordered=order.seen(answer),
        variables=frozenset(env) if isinstance(env := answer.get("env"), dict) else frozenset(),
        name=name if isinstance(name, str) else "",
    )
