"""Daytona's sandboxes: created, found, started, deleted, and links to their ports."""

import contextlib
import json
from collections.abc import Mapping

import tenacity

from git_daytona.api.account import KeyInfo, SshAccess, check_sandbox_id
from git_daytona.api.failures import senseless
from git_daytona.api.toolbox import START_SECONDS, Execution, SandboxInfo, Toolbox, described
from git_daytona.base.endpoint import web_link
from git_daytona.base.errors import GitDaytonaError, NotFound, SandboxBroken, TimedOut

POLL_SECONDS, POLL_AT_MOST = 0.1, 1.0
"""Between two looks at a sandbox that starts."""
PAGE = 200
"""Sandboxes of one answer; the API gives no more."""
PAGES = 500


class Cloud(Toolbox):
    """An account with its sandboxes. Safe for many threads. Every method raises only
    GitDaytonaError."""

    def create(self, labels: Mapping[str, str]) -> SandboxInfo:
        """Create a sandbox from DAYTONA_SNAPSHOT (or the default) and wait until it has started."""
        doing = "create a sandbox"
        wanted = {
            "snapshot": self.settings.snapshot,
            "labels": dict(labels),
            "target": self.settings.target,
        }
        body = {name: value for name, value in wanted.items() if value is not None}
        answer = self._ask(doing, "POST", "/sandbox", body=body, seconds=self.start_seconds)
        return self._started(self._described(answer, doing), "create")

    def find(self, labels: Mapping[str, str]) -> list[SandboxInfo]:
        """All sandboxes that carry these labels, those being destroyed left out."""
        from git_daytona.api.http import ANSWER_BYTES

        doing, cursor = "list the sandboxes", None
        found: dict[str, SandboxInfo] = {}
        for _ in range(PAGES):
            query = {"cursor": cursor, "limit": PAGE, "labels": json.dumps(dict(labels))}
            answer = self._ask(doing, "GET", "/sandbox", query=query)
            page = self._json(answer, doing, limit=ANSWER_BYTES)
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
        return self._begin(sandbox_id, "start")

    def recover(self, sandbox_id: str) -> SandboxInfo:
        """Recover a sandbox in a recoverable error state and wait until it runs."""
        return self._begin(sandbox_id, "recover")

    def preview(self, sandbox_id: str, port: int, *, seconds: int) -> str:
        """A link to a port of a sandbox that a browser can open for so many seconds. It carries its
        token: it is for people's eyes."""
        doing = f"make a link to port {port} of sandbox '{sandbox_id}'"
        is_public = self._handle(sandbox_id).public
        answer = self._ask(
            doing,
            "GET",
            f"/sandbox/{sandbox_id}/ports/{port}/{'' if is_public else 'signed-'}preview-url",
            query=None if is_public else {"expiresInSeconds": seconds},
        )
        return web_link(self._json(answer, doing).get("url"))

    def delete(self, sandbox_id: str) -> None:
        """Delete a sandbox; one that is gone already is fine."""
        path = f"/sandbox/{check_sandbox_id(sandbox_id)}"
        with contextlib.suppress(NotFound):
            self._ask(f"delete sandbox '{sandbox_id}'", "DELETE", path)
        with self._lock:
            self._handles.pop(sandbox_id, None)

    def load(self) -> None:
        """Load what the first call needs, so that it does not wait for that."""
        with contextlib.suppress(GitDaytonaError):  # no key, say: the first call reports it
            self._http()
            self.key()

    # -- inside ------------------------------------------------------------------------------------

    def _begin(self, sandbox_id: str, verb: str) -> SandboxInfo:
        doing = f"{verb} sandbox '{check_sandbox_id(sandbox_id)}'"
        path = f"/sandbox/{sandbox_id}/{verb}"
        answer = self._ask(doing, "POST", path, seconds=self.start_seconds)
        return self._started(self._described(answer, doing), verb)

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
