"""Sandboxes of sessions: created with labels that find them again, waited for, started,
recovered."""

import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import tenacity

from git_daytona.api.cloud import START_SECONDS, Cloud, SandboxInfo
from git_daytona.base import files, log, paths
from git_daytona.base.errors import (
    ApiUnreachable,
    BadAnswer,
    Conflict,
    NotFound,
    RateLimited,
    SandboxBroken,
    SandboxGone,
    SandboxNotRunning,
    ServerError,
    TimedOut,
)
from git_daytona.git.refs import SANDBOX_BRANCH
from git_daytona.transfer import leases

T = TypeVar("T")

LABEL = "git-daytona"
TRANSITIONAL = frozenset(
    {
        "creating",
        "pending_build",
        "building_snapshot",
        "pulling_snapshot",
        "restoring",
        "starting",
        "stopping",
        "pausing",
        "resuming",
        "archiving",
        "resizing",
        "snapshotting",
        "forking",
        "unknown",
    }
)
"""States that a sandbox leaves by itself."""
PATIENCE = 3.0
"""Seconds after which a person is told what is waited for."""


def host_label() -> str:
    """What tells this machine's sandboxes from those of others in the same account."""
    return socket.gethostname()[:60] or "unknown"


@dataclass(frozen=True)
class Mark:
    """A creation under way, on disk: the sandbox may exist although nobody recorded it. ``number``
    is None until one is reserved."""

    path: Path
    session_id: str
    project_id: str
    git_dir: str
    number: int | None = None
    prefix: str = SANDBOX_BRANCH
    """Of the branch that is reserved with the number."""

    def write(self, number: int | None = None, prefix: str = SANDBOX_BRANCH) -> "Mark":
        mark = Mark(self.path, self.session_id, self.project_id, self.git_dir, number, prefix)
        entry = {
            "session": mark.session_id,
            "project": mark.project_id,
            "gitDir": mark.git_dir,
            "number": number,
            "prefix": prefix,
        }
        files.write_whole(self.path, json.dumps(entry).encode())
        return mark


def mark_for(session_id: str, project_id: str, git_dir: str) -> Mark:
    """The mark of a session's creation, as it is on disk or as it would be."""
    path = (
        paths.own_state()
        / "creating"
        / sha256(f"{project_id}\0{git_dir}\0{session_id}".encode()).hexdigest()[:32]
    )
    return _read(path) or Mark(path, session_id, project_id, git_dir)


def marks() -> Iterator[Mark]:
    """All creations that were begun and not recorded."""
    for path in sorted((paths.own_state() / "creating").glob("*")):
        if mark := _read(path):
            yield mark


def _read(path: Path) -> Mark | None:
    try:
        entry = json.loads(path.read_bytes())
        number = entry["number"]
        prefix = str(entry.get("prefix", SANDBOX_BRANCH))
        return Mark(
            path,
            str(entry["session"]),
            str(entry["project"]),
            str(entry["gitDir"]),
            int(number) if number else None,
            prefix,
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True)
class Sandboxes:
    """The sandboxes of an account as a session needs them."""

    cloud: Cloud
    tell: Callable[[str], None]

    def create(self, mark: Mark) -> SandboxInfo:
        """Create a session's sandbox; one that an interrupted creation left is found by its label
        and adopted instead."""
        labels = {f"{LABEL}/session": mark.session_id, f"{LABEL}/project": mark.project_id}
        begun = mark.path.exists()
        if not begun:
            mark.write()

        def attempt() -> SandboxInfo:
            nonlocal begun
            # Not before the first try of a new session: there cannot be one. After a lost answer
            # there may.
            left = self.cloud.find(labels) if begun else []
            begun = True
            if left:
                self.tell("taking over the sandbox of an interrupted start")
                return self.awake(left[0])
            self.tell("creating a sandbox")
            return self.cloud.create(labels | {f"{LABEL}/host": host_label()})

        with log.event("sandbox.create", session=mark.session_id) as event:
            info = leases.patiently(attempt)
            event["sandbox"] = info.id
        return info

    def settle(self, info: SandboxInfo) -> SandboxInfo:
        """Wait until the sandbox is in a state that lasts. Raises TimedOut."""
        if info.state not in TRANSITIONAL:
            return info
        told = False

        def look() -> SandboxInfo:
            nonlocal told
            spent = float(retrying.statistics.get("delay_since_first_attempt", 0.0))
            if spent > PATIENCE and not told:
                told = True
                self.tell(f"waiting for the sandbox ({info.state})")
            return leases.patiently(lambda: self.cloud.get(info.id))

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_result(lambda found: found.state in TRANSITIONAL),
            stop=tenacity.stop_after_delay(START_SECONDS),
            wait=tenacity.wait_exponential(multiplier=0.1, max=2.0),
        )
        try:
            return retrying(look)
        except tenacity.RetryError as problem:
            raise TimedOut(
                f"sandbox '{info.id}' stayed in state '{info.state}' for {START_SECONDS:.0f} seconds",
                hint="see it in Daytona's dashboard; its work is still in it",
            ) from problem

    def awake(self, info: SandboxInfo) -> SandboxInfo:
        """The sandbox running: started if it was not, recovered from an error where Daytona offers
        it. Raises SandboxBroken."""
        info = self.settle(info)
        if info.state == "started":
            return info
        if info.state in ("error", "build_failed"):
            if info.recoverable:
                self.tell("recovering the sandbox")
                with log.event("sandbox.recover", sandbox=info.id):
                    return self.cloud.recover(info.id)
            reason = f": {info.error_reason}" if info.error_reason else ""
            raise SandboxBroken(
                f"sandbox '{info.id}' is in state '{info.state}'{reason}",
                hint="see it in Daytona's dashboard; its work is still in it",
            )
        self.tell(f"starting the sandbox ({info.state})")
        with log.event("sandbox.start", sandbox=info.id, state=info.state):
            return self._change(info.id, self.cloud.start)

    def delete(self, sandbox_id: str) -> None:
        """Delete a sandbox; one that is gone, or about to be, is fine."""
        with contextlib.suppress(SandboxGone):
            self._change(sandbox_id, self.cloud.delete)

    def _change(self, sandbox_id: str, change: Callable[[str], T]) -> T:
        """Change a sandbox's state once an earlier change, which the server refuses another beside
        (409), has come to its end."""
        for attempt in tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Conflict),
            stop=tenacity.stop_after_delay(START_SECONDS),
            wait=tenacity.wait_exponential(multiplier=0.1, max=2.0),
            reraise=True,
        ):
            with attempt:
                if attempt.retry_state.attempt_number > 1:
                    self.settle(self.cloud.get(sandbox_id))
                return leases.patiently(
                    lambda: change(sandbox_id), kinds=(ApiUnreachable, ServerError, RateLimited)
                )
        raise AssertionError("the last attempt returns or raises")

    def while_awake(self, sandbox_id: str, work: Callable[[], T]) -> T:
        """Do the work at once; only if it fails because the sandbox does not run, start that and do
        it again.

        The services say in many ways that it does not; after a refusal its state tells.
        """
        try:
            return work()
        except SandboxGone:
            raise
        except (SandboxNotRunning, Conflict, BadAnswer, NotFound):
            # Also after a 404: the proxy in front of a sandbox's toolbox gives one for archived
            # ones. Here the API itself says.
            info = self.cloud.get(sandbox_id)
            if info.state == "started":
                raise
            self.awake(info)
            return work()
