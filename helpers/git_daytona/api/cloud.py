"""Daytona's sandboxes, through the REST clients that the official distribution generates. Tokens and ``/config``: account.py.

The SDK does two things more for a sandbox, and they are here: it waits until it has started, and finds its toolbox. It repeats a POST
whose connection dropped; nothing is repeated here. Account, this module and cloud_errors are the only ones that import Daytona's
distribution.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tenacity

from git_daytona.api import bounded
from git_daytona.api.account import Account, KeyInfo, SshAccess, check_sandbox_id
from git_daytona.api.cloud_errors import gone
from git_daytona.config.settings import Settings
from git_daytona.endpoint import toolbox_base, web_link
from git_daytona.errors import BadAnswer, GitDaytonaError, NotFound, SandboxBroken, TimedOut
from git_daytona.secret import printable

START_SECONDS = 300.0
"""Limit for a sandbox to be created, started or restored."""
POLL_SECONDS, POLL_AT_MOST = 0.1, 1.0
"""Between two looks at a sandbox that starts: as the SDK has it, tighter during the first seconds."""
MARGIN_SECONDS = 5.0
"""How much longer than a command may take its answer is waited for."""
PAGE = 200
"""Sandboxes of one answer; the API gives no more."""
PAGES = 500


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


@dataclass(frozen=True)
class _Handle:
    """What a sandbox is reached by: its toolbox's client, and whether its ports are open to all."""

    toolbox: Any
    public: bool


class Cloud(Account):
    """An account with its sandboxes. Safe for many threads. Every method raises only GitDaytonaError."""

    start_seconds = START_SECONDS

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._handles: dict[str, _Handle] = {}

    def create(self, labels: Mapping[str, str]) -> SandboxInfo:
        """Create a sandbox from DAYTONA_SNAPSHOT (or the default) and wait until it has started."""
        with self._translated("create a sandbox"):
            import daytona_api_client as rest

            wanted = rest.CreateSandbox(snapshot=self.settings.snapshot, labels=dict(labels), target=self.settings.target)
            response = self._sandbox_api().create_sandbox_without_preload_content(wanted, _request_timeout=self.start_seconds)
        return self._started(self._described(response, "create a sandbox"), "create")

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

    def find(self, labels: Mapping[str, str]) -> list[SandboxInfo]:
        """All sandboxes that carry these labels, those being destroyed left out."""
        doing, cursor = "list the sandboxes", None
        found: dict[str, SandboxInfo] = {}
        for _ in range(PAGES):
            with self._translated(doing):
                response = self._sandbox_api().list_sandboxes_without_preload_content(
                    labels=json.dumps(dict(labels)), cursor=cursor, limit=PAGE, _request_timeout=self.request_seconds
                )
            page = self._json(response, doing, limit=bounded.ANSWER_BYTES)[0]
            items, cursor = page.get("items"), page.get("nextCursor")
            if not isinstance(items, list) or not isinstance(cursor, str | None):
                raise _senseless(doing)
            for item in items:
                info = _info(item, doing)
                found[info.id] = info
            if not cursor:
                return [info for info in found.values() if info.state not in ("destroyed", "destroying")]
        raise _senseless(doing)

    def start(self, sandbox_id: str) -> SandboxInfo:
        """Start a stopped, paused or archived sandbox and wait until it runs."""
        check_sandbox_id(sandbox_id)
        with self._translated("start", sandbox_id):
            response = self._sandbox_api().start_sandbox_without_preload_content(sandbox_id, _request_timeout=self.start_seconds)
        return self._started(self._described(response, f"start sandbox '{sandbox_id}'"), "start")

    def recover(self, sandbox_id: str) -> SandboxInfo:
        """Recover a sandbox in a recoverable error state."""
        check_sandbox_id(sandbox_id)
        with self._translated("recover", sandbox_id):
            response = self._sandbox_api().recover_sandbox_without_preload_content(sandbox_id, _request_timeout=self.start_seconds)
        return self._started(self._described(response, f"recover sandbox '{sandbox_id}'"), "recover")

    def execute(self, sandbox_id: str, command: str, *, timeout: float, env: Mapping[str, str] | None = None) -> Execution:
        """Run a shell command in a sandbox, at most ``timeout`` seconds. One API call once the sandbox is known to this process.

        An answer that got lost is an ApiUnreachable, which callers may repeat: they guard what must not run twice.
        """
        doing = f"run a command in sandbox '{sandbox_id}'"
        seconds = max(1, int(timeout))
        with self._translated("run a command in", sandbox_id):
            handle = self._handle(sandbox_id)
            import daytona_toolbox_api_client as toolbox

            request = toolbox.ExecuteRequest(command=command, envs=dict(env or {}) or None, timeout=seconds)
            response = toolbox.ProcessApi(handle.toolbox).execute_command_without_preload_content(
                request, _request_timeout=seconds + MARGIN_SECONDS
            )
        answer = self._json(response, doing, limit=bounded.ANSWER_BYTES)[0]
        # Older servers say `code`.
        status, output = answer.get("exitCode", answer.get("code")), answer.get("result")
        if not isinstance(status, int | None) or not isinstance(output, str | None):
            raise _senseless(doing)
        return Execution(-1 if status is None else int(status), output or "")

    def upload(self, sandbox_id: str, path: str, content: bytes) -> None:
        """Write a file in a sandbox, making its folders."""
        doing = f"write '{printable(path)[:200]}' in"
        with self._translated(doing, sandbox_id):
            handle = self._handle(sandbox_id)
            import daytona_toolbox_api_client as toolbox

            response = toolbox.FileSystemApi(handle.toolbox).upload_file_without_preload_content(
                path, content, _request_timeout=self.start_seconds
            )
        self._checked(response, f"{doing} sandbox '{sandbox_id}'")

    def download(self, sandbox_id: str, path: str) -> bytes:
        """A file of a sandbox, whole. Raises BadAnswer for one that no answer may hold (bounded.ANSWER_BYTES)."""
        doing = f"read '{printable(path)[:200]}' in"
        with self._translated(doing, sandbox_id):
            handle = self._handle(sandbox_id)
            import daytona_toolbox_api_client as toolbox

            response = toolbox.FileSystemApi(handle.toolbox).download_file_without_preload_content(
                path, _request_timeout=self.start_seconds
            )
        return self._checked(response, f"{doing} sandbox '{sandbox_id}'", limit=bounded.ANSWER_BYTES)

    def preview(self, sandbox_id: str, port: int, *, seconds: int) -> str:
        """A link to a port of a sandbox that a browser can open for so many seconds. It carries its token: it is for people's eyes."""
        doing = f"make a link to port {port} of"
        with self._translated(doing, sandbox_id):
            handle, api = self._handle(sandbox_id), self._sandbox_api()
            if handle.public:
                response = api.get_port_preview_url_without_preload_content(sandbox_id, port, _request_timeout=self.request_seconds)
            else:
                response = api.get_signed_port_preview_url_without_preload_content(
                    sandbox_id, port, expires_in_seconds=seconds, _request_timeout=self.request_seconds
                )
        return web_link(self._json(response, f"{doing} sandbox '{sandbox_id}'")[0].get("url"))

    def delete(self, sandbox_id: str) -> None:
        """Delete a sandbox; one that is gone already is fine."""
        check_sandbox_id(sandbox_id)
        try:
            with self._translated("delete", sandbox_id):
                response = self._sandbox_api().delete_sandbox_without_preload_content(
                    sandbox_id, _request_timeout=self.request_seconds
                )
            self._checked(response, f"delete sandbox '{sandbox_id}'")
        except NotFound:
            pass
        with self._lock:
            self._handles.pop(sandbox_id, None)

    def load(self) -> None:
        """Load the clients now (in the background, say), so that the first call does not wait for that."""
        import daytona_toolbox_api_client as toolbox

        try:
            self._sandbox_api()
            toolbox.ProcessApi(toolbox.ApiClient(toolbox.Configuration(host=self.settings.api_url)))
        except GitDaytonaError:  # no key, say: the first call says it
            pass

    # -- inside -------------------------------------------------------------------------------------------------------

    def _started(self, info: SandboxInfo, verb: str) -> SandboxInfo:
        """The sandbox once it runs; raises SandboxBroken, TimedOut."""

        def pause(state: tenacity.RetryCallState) -> float:
            late = (state.seconds_since_start or 0.0) - 5.0
            return POLL_SECONDS if late < 0 else min(POLL_SECONDS + late * 0.1, POLL_AT_MOST)

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_result(lambda found: found.state not in ("started", "error", "build_failed")),
            stop=tenacity.stop_after_delay(self.start_seconds),
            wait=pause,
        )
        try:
            # The answer to a change may still show the state before it: an error counts only once it was looked up.
            found = info if info.state == "started" else retrying(self.get, info.id)
        except tenacity.RetryError:
            raise TimedOut(
                f"could not {verb} sandbox '{info.id}' in time",
                hint="see its state with 'git daytona status', then try again",
            ) from None
        if found.state != "started":
            reason = f": {found.error_reason}" if found.error_reason else ""
            raise SandboxBroken(
                f"could not {verb} sandbox '{info.id}': it is in state '{found.state}'{reason}",
                hint="delete the session, or see the sandbox in Daytona's dashboard",
            )
        return found

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
        info = _info(answer, doing)
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
            if known is None or (known.toolbox.configuration.host, known.public) != (address, public):
                self._handles[info.id] = _Handle(self._toolbox(address), public)
        return info

    def _toolbox(self, address: str) -> Any:
        import daytona_toolbox_api_client as toolbox

        client = toolbox.ApiClient(toolbox.Configuration(host=address))
        # The two clients' lower halves are one, generated twice: so all calls share the connections, their limits, and the key.
        rest = self._rest_client()
        client.rest_client, client.default_headers = rest.rest_client, rest.default_headers
        return client


def _info(answer: object, doing: str) -> SandboxInfo:
    if not isinstance(answer, dict):
        raise _senseless(doing)
    sandbox_id, labels, reason, created = (answer.get(name) for name in ("id", "labels", "errorReason", "createdAt"))
    if not isinstance(sandbox_id, str):
        raise _senseless(doing)
    return SandboxInfo(
        id=check_sandbox_id(sandbox_id),
        state=printable(str(answer.get("state") or "unknown"))[:50],
        labels={str(name): str(value) for name, value in labels.items()} if isinstance(labels, dict) else {},
        created_at=created if isinstance(created, str) else None,
        error_reason=printable(reason)[:300] if isinstance(reason, str) and reason else None,
        recoverable=answer.get("recoverable") is True,
    )


def _senseless(doing: str) -> BadAnswer:
    return BadAnswer(f"could not {doing}: the answer makes no sense", hint="check DAYTONA_API_URL")


__all__ = ["Cloud", "Execution", "KeyInfo", "SandboxInfo", "SshAccess"]
