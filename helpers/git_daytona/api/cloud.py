"""Daytona's sandboxes: created, found, started, deleted, and links to their ports."""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import tenacity

from git_daytona.api.account import KeyInfo, SshAccess, path_of
from git_daytona.api.failures import Refused, senseless
from git_daytona.api.toolbox import (
    ENDED,
    START_SECONDS,
    Execution,
    SandboxInfo,
    Toolbox,
    described,
    gone,
)
from git_daytona.base import errors
from git_daytona.base.endpoint import web_link
from git_daytona.settings.likeness import like
from git_daytona.settings.order import NOTHING, Order

POLL_SECONDS, POLL_AT_MOST = 0.1, 1.0
"""Between two looks at a sandbox that starts."""
PAGE = 200
"""Sandboxes of one answer; the API gives no more."""
PAGES = 500


class Cloud(Toolbox):
    """An account with its sandboxes. Safe for many threads. Every method raises only
    GitDaytonaError."""

    _notes_activity = True
    """Whether the server has a call that says that a sandbox is in use; found out by trying."""

    def create(self, labels: Mapping[str, str], order: Order = NOTHING) -> SandboxInfo:
        """Create a sandbox as ordered, and wait until it has started. Raises BadSetting, in the
        server's words, where it does not take the order."""
        try:
            return self._begin("create", "/sandbox", body={"labels": dict(labels), **order.body()})
        except (Refused, errors.NotOffered, errors.NotFound) as problem:  # 404: of a region
            if not order:
                raise
            ordered = ", ".join(dict.fromkeys(order.sources.values())) or "--env, --secret"
            raise errors.BadSetting(
                problem.message, hint=f"change or leave out what was ordered by {ordered}"
            ) from problem

    def find(self, labels: Mapping[str, str]) -> list[SandboxInfo]:
        """List all sandboxes that carry these labels, those being destroyed left out.

        The labels are compared here, whatever the server made of the question: what is found is
        adopted, offered and deleted.
        """
        doing, cursor = "list the sandboxes", None
        found: dict[str, SandboxInfo] = {}
        for _ in range(PAGES):
            query = {"cursor": cursor, "limit": PAGE, "labels": json.dumps(dict(labels))}
            page = self._object(self._ask(doing, "GET", "/sandbox", query=query), most=None)
            items, cursor = page.get("items"), page.get("nextCursor")
            if not isinstance(items, list) or not isinstance(cursor, str | None):
                break
            for info in (described(item, doing) for item in items):
                found[info.id] = info
            if not cursor:
                return [info for info in found.values() if _carries(info, labels)]
        raise senseless(doing)

    def start(self, sandbox_id: str) -> SandboxInfo:
        """Start a stopped, paused or archived sandbox and wait until it runs."""
        return self._begin("start", path_of(sandbox_id, "/start"))

    def order(self, sandbox_id: str) -> Order:
        """Look up what would order another sandbox like this one, but for its variables. Raises
        SandboxGone."""
        try:
            answer = self._ask("find the sandbox", "GET", path_of(sandbox_id))
        except errors.NotFound:
            raise gone() from None
        return like(self._object(answer))

    def fork(self, sandbox_id: str, name: str, labels: Mapping[str, str]) -> SandboxInfo:
        """Copy a sandbox that runs, with all its files, and wait until the copy runs. It gets these
        labels; until then it can be told by its name.

        Raises NotOffered for a sandbox of a class without forks, NotFound on a server without,
        BadAnswer for one that does not run, Conflict while it is being changed.
        """
        path = path_of(sandbox_id, "/fork")
        info = self._described(self._ask("fork the sandbox", "POST", path, body={"name": name}))
        with contextlib.suppress(errors.Conflict):  # while it is made
            self.label(info.id, labels)  # it has those of the other one
        return self._running("fork", info)

    def snapshot(self, sandbox_id: str, name: str) -> None:
        """Ask for a snapshot of a sandbox. Whether one comes of it, its state tells, once the
        sandbox has left its own. Raises BadAnswer, Conflict."""
        path = path_of(sandbox_id, "/snapshot")
        answer = self._send("make a snapshot of the sandbox", "POST", path, body={"name": name})
        # what is said of a snapshot is not about the one that new sandboxes are made from
        self._checked(answer, replace(self.settings, snapshot=None))

    def restrict(self, sandbox_id: str, network: Mapping[str, Any]) -> None:
        """Restrict a sandbox's network, by members of an order."""
        path = path_of(sandbox_id, "/network-settings")
        self._ask("restrict the network of the sandbox", "POST", path, body=dict(network))

    def label(self, sandbox_id: str, labels: Mapping[str, str]) -> None:
        """Replace a sandbox's labels."""
        path = path_of(sandbox_id, "/labels")
        self._ask("label the sandbox", "PUT", path, body={"labels": dict(labels)})

    def stop(self, sandbox_id: str) -> None:
        """Ask for a sandbox to stop. Raises Conflict while its state changes."""
        self._ask(f"stop sandbox '{sandbox_id}'", "POST", path_of(sandbox_id, "/stop"))

    def keep_awake(self, sandbox_id: str) -> None:
        """Let a sandbox's idle time begin anew, by a command in it where the server has no call for
        that. Does not start one that sleeps. Raises SandboxGone."""
        if self._notes_activity:
            try:
                self._ask("keep the sandbox awake", "POST", path_of(sandbox_id, "/last-activity"))
                return
            except (errors.NotFound, errors.Forbidden, errors.BadAnswer) as problem:
                if problem.transient:
                    raise
                self.get(sandbox_id)
                self._notes_activity = False
        with contextlib.suppress(errors.SandboxNotRunning):
            self.execute(sandbox_id, ":", timeout=self.request_seconds)

    def recover(self, sandbox_id: str) -> SandboxInfo:
        """Recover a sandbox in a recoverable error state and wait until it runs."""
        return self._begin("recover", path_of(sandbox_id, "/recover"))

    def preview(self, sandbox_id: str, port: int, *, seconds: int) -> str:
        """Make a link to a port of a sandbox that a browser can open for so many seconds. It
        carries its token: it is for people's eyes."""
        doing = f"make a link to port {port} of the sandbox"
        kind, query = "signed-preview-url", {"expiresInSeconds": seconds}
        if self._reach(sandbox_id)[1].is_public:
            kind, query = "preview-url", {}
        path = f"/sandbox/{sandbox_id}/ports/{port}/{kind}"
        return web_link(self._object(self._ask(doing, "GET", path, query=query)).get("url"))

    def delete(self, sandbox_id: str) -> None:
        """Delete a sandbox. Raises SandboxGone when it is gone already."""
        path = path_of(sandbox_id)
        self._reached.pop(sandbox_id, None)
        try:
            self._ask("delete the sandbox", "DELETE", path)
        except errors.NotFound:
            raise gone() from None

    def organization_id(self) -> str:
        """Return the id of the key's organisation; empty where the API does not say. One API call,
        if no sandbox of it was seen."""
        if not self._organization:
            try:
                self._organization = self.key_info().organization_id
            except (errors.NotFound, errors.Forbidden, errors.BadAnswer) as problem:
                if problem.transient:
                    raise
                # else an older server, or a lesser key
        return self._organization

    def load(self) -> None:
        """Load what the first call needs, so that it does not wait for that."""
        with contextlib.suppress(errors.GitDaytonaError):  # no key, say: the first call reports it
            self._http()
            self.key()

    # -- inside ------------------------------------------------------------------------------------

    def _begin(self, verb: str, path: str, **request: Any) -> SandboxInfo:
        """Ask for a sandbox to run, and wait for it; raises SandboxBroken, TimedOut."""
        request["seconds"] = self.start_seconds
        answer = self._ask(f"{verb} the sandbox", "POST", path, **request)
        return self._running(verb, self._described(answer))

    def _running(self, verb: str, info: SandboxInfo) -> SandboxInfo:
        """Wait until a sandbox runs; raises SandboxBroken, TimedOut."""

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
            hint = "see its state with 'git daytona status', then try again"
            raise errors.TimedOut(f"could not {verb} the sandbox in time", hint=hint) from None
        if found.state != "started":
            reason = f": {found.error_reason}" if found.error_reason else ""
            raise errors.SandboxBroken(
                f"could not {verb} the sandbox: it is in state '{found.state}'{reason}",
                hint="delete the session, or see the sandbox in Daytona's dashboard",
            )
        return found


__all__ = ["START_SECONDS", "Cloud", "Execution", "KeyInfo", "SandboxInfo", "SshAccess"]


def _carries(info: SandboxInfo, labels: Mapping[str, str]) -> bool:
    """Tell whether a sandbox that is not ending has these labels."""
    return info.state not in ENDED and labels.items() <= info.labels.items()
