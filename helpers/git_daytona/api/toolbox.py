"""A sandbox's toolbox: commands, files, terminals, through the REST client that the official
distribution generates.

It is reached through a proxy that stands before the toolboxes of all sandboxes. That asks for the
same key as the API, but knows less: for a sandbox that does not exist it answers 401 as for a wrong
key, and remembers answers for two minutes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from git_daytona.api import limits
from git_daytona.api.account import CONFIG_BYTES, Account, check_sandbox_id, no_retries
from git_daytona.api.failures import gone
from git_daytona.base.endpoint import toolbox_base
from git_daytona.base.errors import BadAnswer, Forbidden, GitDaytonaError, KeyRefused, NotFound
from git_daytona.base.secret import Secret, printable
from git_daytona.settings.settings import Settings

START_SECONDS = 300.0
"""Limit for a sandbox to be created, started or restored, and for a file to be moved."""
MARGIN_SECONDS = 5.0
"""How much longer than a command may take its answer is waited for."""


@dataclass(frozen=True)
class Execution:
    """What a command in a sandbox left: exit status and its output, stdout and stderr in one
    text."""

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
    """Where a client's WebSocket connects to a terminal, and what it says in its Authorization
    header."""

    url: str
    authorization: Secret


@dataclass(frozen=True)
class _Handle:
    """What a sandbox is reached by: its toolbox's client, and whether its ports are open to all."""

    toolbox: Any
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
        check_sandbox_id(sandbox_id)
        try:
            with self._translated("find", sandbox_id):
                response = self._sandbox_api().get_sandbox_without_preload_content(
                    sandbox_id, _request_timeout=self.request_seconds
                )
            info = self._described(response, f"find sandbox '{sandbox_id}'")
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
        seconds = max(1, int(timeout))

        def call(client: Any) -> Any:
            import daytona_toolbox_api_client as toolbox

            request = toolbox.ExecuteRequest(
                command=command, envs=dict(env or {}) or None, timeout=seconds
            )
            return toolbox.ProcessApi(client).execute_command_without_preload_content(
                request, _request_timeout=seconds + MARGIN_SECONDS
            )

        body = self._asked(sandbox_id, "run a command in", call, limit=limits.ANSWER_BYTES)
        doing = f"run a command in sandbox '{sandbox_id}'"
        answer = self._parsed(body, doing, limits.ANSWER_BYTES)
        # Older servers say `code`.
        status, output = answer.get("exitCode", answer.get("code")), answer.get("result")
        if not isinstance(status, int | None) or not isinstance(output, str | None):
            raise senseless(doing)
        return Execution(-1 if status is None else int(status), output or "")

    # -- files -------------------------------------------------------------------------------------

    def upload(self, sandbox_id: str, path: str, content: bytes) -> None:
        """Write a file in a sandbox, making its folders. Servers take blanks off the ends of a
        path: name none that has some.

        By ``files/bulk-upload``, which every server has and Daytona's own SDKs use. The generated
        client cannot send its form: the path is a field of its own, before the file.
        """

        def call(client: Any) -> Any:
            headers = {
                name: value
                for name, value in client.default_headers.items()
                if name.lower() != "content-type"
            }
            return client.rest_client.pool_manager.request(
                "POST",
                f"{client.configuration.host}/files/bulk-upload",
                fields=[
                    ("files[0].path", path),
                    ("files[0].file", ("file", content, "application/octet-stream")),
                ],
                headers=headers,
                timeout=self.start_seconds,
                preload_content=False,
                retries=no_retries(),
            )

        self._asked(sandbox_id, f"write '{printable(path)[:200]}' in", call)

    def download(self, sandbox_id: str, path: str) -> bytes:
        """A file of a sandbox, whole. Raises BadAnswer for one that no answer may hold
        (bounded.ANSWER_BYTES)."""

        def call(client: Any) -> Any:
            import daytona_toolbox_api_client as toolbox

            return toolbox.FileSystemApi(client).download_file_without_preload_content(
                path, _request_timeout=self.start_seconds
            )

        return self._asked(
            sandbox_id, f"read '{printable(path)[:200]}' in", call, limit=limits.ANSWER_BYTES
        )

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
        """Start a shell on a terminal of ``size`` (columns, rows), and say where to connect to
        it."""
        columns, rows = size

        def call(client: Any) -> Any:
            import daytona_toolbox_api_client as toolbox

            request = toolbox.PtyCreateRequest(
                id=name, cwd=directory, cols=columns, rows=rows, envs=dict(env)
            )
            return toolbox.ProcessApi(client).create_pty_session_without_preload_content(
                request, _request_timeout=self.request_seconds
            )

        self._asked(sandbox_id, "open a terminal in", call)
        base = str(self._handle(sandbox_id).toolbox.configuration.host)
        return TerminalAddress(
            f"{base}/process/pty/{name}/connect", Secret(f"Bearer {self.key().reveal()}")
        )

    def resize_terminal(self, sandbox_id: str, name: str, size: tuple[int, int]) -> None:
        """Tell a terminal its new size (columns, rows)."""
        columns, rows = size

        def call(client: Any) -> Any:
            import daytona_toolbox_api_client as toolbox

            request = toolbox.PtyResizeRequest(cols=columns, rows=rows)
            return toolbox.ProcessApi(client).resize_pty_session_without_preload_content(
                name, request, _request_timeout=self.request_seconds
            )

        self._asked(sandbox_id, "resize a terminal in", call)

    def close_terminal(self, sandbox_id: str, name: str) -> None:
        """End a terminal and what runs on it; one that has ended is fine."""

        def call(client: Any) -> Any:
            import daytona_toolbox_api_client as toolbox

            return toolbox.ProcessApi(client).delete_pty_session_without_preload_content(
                name, _request_timeout=self.request_seconds
            )

        try:
            self._asked(sandbox_id, "close a terminal in", call)
        except NotFound:
            pass

    # -- inside ------------------------------------------------------------------------------------

    def _asked(
        self, sandbox_id: str, doing: str, call: Callable[[Any], Any], *, limit: int = CONFIG_BYTES
    ) -> bytes:
        """The body of what a sandbox's toolbox answers to a call, which gets its client; raises the
        error that any other answer deserves."""
        with self._translated(doing, sandbox_id):
            response = call(self._handle(sandbox_id).toolbox)
        try:
            return self._checked(response, f"{doing} sandbox '{sandbox_id}'", limit=limit)
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
            f"could not {doing} sandbox '{sandbox_id}': its proxy does not take the key that the API accepts",
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

    def _described(self, response: Any, doing: str) -> SandboxInfo:
        """The sandbox that an answer describes; how it is reached is kept."""
        answer = self._json(response, doing)[0]
        info = described(answer, doing)
        address = answer.get("toolboxProxyUrl")
        if not address:  # an older server
            with self._translated(doing):
                response = self._sandbox_api().get_toolbox_proxy_url_without_preload_content(
                    info.id, _request_timeout=self.request_seconds
                )
            address = self._json(response, doing)[0].get("url")
        base = toolbox_base(address, self.settings.api_url)
        address, public = f"{base}/{info.id}", answer.get("public") is True
        with self._lock:
            known = self._handles.get(info.id)
            if known is None or (known.toolbox.configuration.host, known.public) != (
                address,
                public,
            ):
                self._handles[info.id] = _Handle(self._toolbox(address), public)
        return info

    def _toolbox(self, address: str) -> Any:
        import daytona_toolbox_api_client as toolbox

        client = toolbox.ApiClient(toolbox.Configuration(host=address))
        # The two clients' lower halves are one, generated twice: so all calls share the
        # connections, their limits, and the key.
        rest = self._rest_client()
        client.rest_client, client.default_headers = rest.rest_client, rest.default_headers
        return client


def described(answer: object, doing: str) -> SandboxInfo:
    if not isinstance(answer, dict):
        raise senseless(doing)
    sandbox_id, labels, reason, created = (
        answer.get(name) for name in ("id", "labels", "errorReason", "createdAt")
    )
    if not isinstance(sandbox_id, str):
        raise senseless(doing)
    return SandboxInfo(
        id=check_sandbox_id(sandbox_id),
        state=printable(str(answer.get("state") or "unknown"))[:50],
        labels={str(name): str(value) for name, value in labels.items()}
        if isinstance(labels, dict)
        else {},
        created_at=created if isinstance(created, str) else None,
        error_reason=printable(reason)[:300] if isinstance(reason, str) and reason else None,
        recoverable=answer.get("recoverable") is True,
    )


def senseless(doing: str) -> BadAnswer:
    return BadAnswer(f"could not {doing}: the answer makes no sense", hint="check DAYTONA_API_URL")
