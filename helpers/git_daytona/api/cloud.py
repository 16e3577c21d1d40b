"""Daytona's sandboxes, through the REST clients that the official distribution generates. Tokens
and ``/config``: account.py.

The SDK does two things more for a sandbox, and they are here and in toolbox.py: it waits until it
has started, and finds its toolbox. It repeats a POST whose connection dropped; nothing is repeated
here. Account, these two and cloud_errors are the only ones that import Daytona's distribution.
"""

import json
from collections.abc import Mapping

import tenacity

from git_daytona.api import limits
from git_daytona.api.account import KeyInfo, SshAccess, check_sandbox_id
from git_daytona.api.toolbox import (
    START_SECONDS,
    Execution,
    SandboxInfo,
    Toolbox,
    described,
    senseless,
)
from git_daytona.base.endpoint import web_link
from git_daytona.base.errors import GitDaytonaError, NotFound, SandboxBroken, TimedOut

POLL_SECONDS, POLL_AT_MOST = 0.1, 1.0
"""Between two looks at a sandbox that starts: as the SDK has it, tighter during the first
seconds."""
PAGE = 200
"""Sandboxes of one answer; the API gives no more."""
PAGES = 500


class Cloud(Toolbox):
    """An account with its sandboxes. Safe for many threads. Every method raises only
    GitDaytonaError."""

    def create(self, labels: Mapping[str, str]) -> SandboxInfo:
        """Create a sandbox from DAYTONA_SNAPSHOT (or the default) and wait until it has started."""
        with self._translated("create a sandbox"):
            import daytona_api_client as rest

            wanted = rest.CreateSandbox(
                snapshot=self.settings.snapshot, labels=dict(labels), target=self.settings.target
            )
            response = self._sandbox_api().create_sandbox_without_preload_content(
                wanted, _request_timeout=self.start_seconds
            )
        return self._started(self._described(response, "create a sandbox"), "create")

    def find(self, labels: Mapping[str, str]) -> list[SandboxInfo]:
        """All sandboxes that carry these labels, those being destroyed left out."""
        doing, cursor = "list the sandboxes", None
        found: dict[str, SandboxInfo] = {}
        for _ in range(PAGES):
            with self._translated(doing):
                response = self._sandbox_api().list_sandboxes_without_preload_content(
                    labels=json.dumps(dict(labels)),
                    cursor=cursor,
                    limit=PAGE,
                    _request_timeout=self.request_seconds,
                )
            page = self._json(response, doing, limit=limits.ANSWER_BYTES)[0]
            items, cursor = page.get("items"), page.get("nextCursor")
            if not isinstance(items, list) or not isinstance(cursor, str | None):
                raise senseless(doing)
            for item in items:
                info = described(item, doing)
                found[info.id] = info
            if not cursor:
                return [
                    info for info in found.values() if info.state not in ("destroyed", "destroying")
                ]
        raise senseless(doing)

    def start(self, sandbox_id: str) -> SandboxInfo:
        """Start a stopped, paused or archived sandbox and wait until it runs."""
        check_sandbox_id(sandbox_id)
        with self._translated("start", sandbox_id):
            response = self._sandbox_api().start_sandbox_without_preload_content(
                sandbox_id, _request_timeout=self.start_seconds
            )
        return self._started(self._described(response, f"start sandbox '{sandbox_id}'"), "start")

    def recover(self, sandbox_id: str) -> SandboxInfo:
        """Recover a sandbox in a recoverable error state."""
        check_sandbox_id(sandbox_id)
        with self._translated("recover", sandbox_id):
            response = self._sandbox_api().recover_sandbox_without_preload_content(
                sandbox_id, _request_timeout=self.start_seconds
            )
        return self._started(
            self._described(response, f"recover sandbox '{sandbox_id}'"), "recover"
        )

    def preview(self, sandbox_id: str, port: int, *, seconds: int) -> str:
        """A link to a port of a sandbox that a browser can open for so many seconds. It carries its
        token: it is for people's eyes."""
        doing = f"make a link to port {port} of"
        with self._translated(doing, sandbox_id):
            handle, api = self._handle(sandbox_id), self._sandbox_api()
            if handle.public:
                response = api.get_port_preview_url_without_preload_content(
                    sandbox_id, port, _request_timeout=self.request_seconds
                )
            else:
                response = api.get_signed_port_preview_url_without_preload_content(
                    sandbox_id,
                    port,
                    expires_in_seconds=seconds,
                    _request_timeout=self.request_seconds,
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
        """Load the clients now (in the background, say), so that the first call does not wait for
        that."""
        import daytona_toolbox_api_client as toolbox

        try:
            self._sandbox_api()
            toolbox.ProcessApi(toolbox.ApiClient(toolbox.Configuration(host=self.settings.api_url)))
        except GitDaytonaError:  # no key, say: the first call says it
            pass

    # -- inside ------------------------------------------------------------------------------------

    def _started(self, info: SandboxInfo, verb: str) -> SandboxInfo:
        """The sandbox once it runs; raises SandboxBroken, TimedOut."""

        def pause(state: tenacity.RetryCallState) -> float:
            late = (state.seconds_since_start or 0.0) - 5.0
            return POLL_SECONDS if late < 0 else min(POLL_SECONDS + late * 0.1, POLL_AT_MOST)

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_result(
                lambda found: found.state not in ("started", "error", "build_failed")
            ),
            stop=tenacity.stop_after_delay(self.start_seconds),
            wait=pause,
        )
        try:
            # The answer to a change may still show the state before it: an error counts only once
            # it was looked up.
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


__all__ = ["START_SECONDS", "Cloud", "Execution", "KeyInfo", "SandboxInfo", "SshAccess"]
