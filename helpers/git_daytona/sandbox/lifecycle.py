"""Sandboxes of sessions: created, found again by labels, started, recovered, deleted."""

import contextlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import tenacity

from git_daytona.api.cloud import START_SECONDS, Cloud, SandboxInfo
from git_daytona.base import errors, files, log, paths
from git_daytona.base.progress import Patience
from git_daytona.git.refs import SANDBOX_BRANCH
from git_daytona.sandbox import ownership
from git_daytona.settings.order import NOTHING, Order
from git_daytona.transfer import leases

T = TypeVar("T")

TRANSITIONAL = frozenset(
    str.split(
        "creating pending_build building_snapshot pulling_snapshot restoring starting stopping "
        "pausing resuming archiving resizing snapshotting forking unknown"
    )
)
"""States that a sandbox leaves by itself."""
BEFORE_SECONDS = 300.0
"""How long before it destroys itself a sandbox is brought back."""
SNAPSHOT_MOVES = frozenset(("pending", "pulling", "building", "snapshotting"))
"""States that a snapshot leaves by itself."""
SNAPSHOT_SECONDS = 1800.0
"""Limit for a snapshot to be made of a sandbox."""
NETWORK = ("networkBlockAll", "networkAllowList", "domainAllowList")
"""What of an order shuts a sandbox's network."""
COPY = "git-daytona-fork-"
"""The beginning of the name of a sandbox that is a copy of another one."""
_LOOK = "see it in Daytona's dashboard; its work is still in it"
FORK_TRIES = 5
"""How often a copy is asked for of a sandbox that is asleep or busy."""


@dataclass(frozen=True)
class Mark:
    """A creation under way, on disk: the sandbox may exist although nobody recorded it.

    ``number`` is None until one is reserved; ``prefix`` is of the branch reserved with it.
    ``creation`` is random, and a label of what it makes: of nothing else, whose session or project
    has the same id. An ``api_url`` is missing from the marks of earlier versions. Of a fork,
    ``origin`` is the session that it is of, and ``begin`` the commit that its branch begins with.
    """

    path: Path
    session_id: str
    project_id: str
    git_dir: str
    api_url: str = ""
    creation: str = field(default_factory=lambda: secrets.token_hex(16))
    number: int | None = None
    prefix: str = SANDBOX_BRANCH
    ordered: Mapping[str, Any] = field(default_factory=dict)
    """The record of what was ordered on the command line."""
    origin: str = ""
    begin: str | None = None

    @property
    def copy_name(self) -> str:
        """The name of its sandbox if that is a copy: it has the other one's labels at first."""
        return COPY + self.creation

    @property
    def labels(self) -> dict[str, str]:
        named = {ownership.SESSION: self.session_id, ownership.PROJECT: self.project_id}
        return named | {ownership.CREATION: self.creation}

    def write(self, number: int | None = None, prefix: str = SANDBOX_BRANCH) -> "Mark":
        new = replace(self, number=number, prefix=prefix)
        entry = {key: getattr(new, name) for name, key in {**_TEXTS, **_OTHERS}.items()}
        files.write_whole(self.path, json.dumps(entry).encode())
        return new


_TEXTS = {"session_id": "session", "project_id": "project", "git_dir": "gitDir"}
_TEXTS |= {"api_url": "apiUrl", "creation": "creation", "prefix": "prefix", "origin": "origin"}
_OTHERS = {"number": "number", "ordered": "ordered", "begin": "begin"}
"""The fields of a mark, and what they are called in its file."""


def creating() -> Path:
    """Where the marks are."""
    return paths.own_state() / "creating"


def mark_for(session_id: str, project_id: str, git_dir: str, api_url: str) -> Mark:
    """Return the mark of a session's creation, as it is on disk or as it would be."""
    name = sha256(f"{project_id}\0{git_dir}\0{session_id}".encode()).hexdigest()[:32]
    path = creating() / name
    return _read(path) or Mark(path, session_id, project_id, git_dir, api_url)


def marks() -> Iterator[Mark]:
    """Find all creations that were begun and not recorded."""
    return filter(None, map(_read, sorted(creating().glob("*"))))


def move_marks(before: str, now: str) -> None:
    """Let the creations that were begun in a repository go on at its new place."""
    for mark in marks():
        if mark.git_dir == before:
            path = mark_for(mark.session_id, mark.project_id, now, mark.api_url).path
            replace(mark, path=path, git_dir=now).write(mark.number, mark.prefix)
            mark.path.unlink(missing_ok=True)


def _read(path: Path) -> Mark | None:
    try:
        entry = json.loads(path.read_bytes())
        there = {name: str(entry[key]) for name, key in _TEXTS.items() if entry.get(key)}
        number = int(entry["number"]) if entry["number"] else None
        ordered, begin = dict(entry.get("ordered") or {}), str(entry.get("begin") or "") or None
        return Mark(path, number=number, ordered=ordered, begin=begin, **there)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _until_settled(retry: tenacity.retry_base, seconds: float) -> tenacity.Retrying:
    """Make a retry for as long as a change of a sandbox's state may take."""
    return tenacity.Retrying(
        retry=retry,
        stop=tenacity.stop_after_delay(seconds),
        wait=tenacity.wait_exponential(multiplier=0.1, max=2.0),
        reraise=True,
    )


def dangers(info: SandboxInfo) -> list[str]:
    """Say what may end a sandbox without being asked, and who else gets into it."""
    found, lost = [], "what is not synced by then is lost"
    if info.destroyed_at is not None:
        moment = f"{info.destroyed_at:%Y-%m-%d at %H:%M %Z}"
        found.append(f"its sandbox destroys itself on {moment}: {lost}")
    if info.is_spot:
        found.append(f"its sandbox is a spot one, which may be destroyed at any moment: {lost}")
    if info.deleted_after is not None:
        after = f"{info.deleted_after} minutes after" if info.deleted_after else "as soon as"
        found.append(f"its sandbox is deleted {after} it stops: {lost}")
    if info.is_public:
        found.append("its sandbox is public: everybody gets to the ports of its servers")
    return found


class Restoring(str):
    """A step that brings a sandbox back: long enough for a client to show it at once."""


@dataclass(frozen=True)
class Sandboxes:
    """The sandboxes of an account as a session needs them."""

    cloud: Cloud
    tell: Callable[[str], None]
    woke: Callable[[str], None] = lambda _sandbox_id: None
    """What is called when one was started, by its id."""

    def create(
        self, mark: Mark, repository: str, order: Order = NOTHING, *, synced: bool, like: str = ""
    ) -> SandboxInfo:
        """Create a session's sandbox for a repository of that name, or adopt what an interrupted
        creation left. It is a copy of the sandbox ``like``, if that can be copied."""
        labels = mark.labels | ownership.labels(repository)
        begun = mark.path.exists()
        if not begun:
            mark.write()

        def attempt() -> SandboxInfo:
            nonlocal begun
            # a new session's first attempt finds none; after a lost answer there may be one
            left = self.left(mark) if begun else []
            begun = True
            for found in left:
                self.tell("taking over the sandbox of an interrupted start")
                with contextlib.suppress(errors.SandboxGone):  # a list may show what was
                    return self.awake(self.cloud.get(found.id))
            if like and (copy := self._copy(like, mark.copy_name, labels)):
                return copy
            self.tell("creating a sandbox")
            return self.cloud.create(labels, order)

        with log.event("sandbox.create", session=mark.session_id) as event:
            info = leases.patiently(attempt)
            event["sandbox"] = info.id
        if info.name == mark.copy_name:
            self._own(info, labels, like, order)
        git_dir = mark.git_dir if synced else ""
        ownership.here(self.cloud.settings.api_url, info.id, git_dir).write()
        return info

    def left(self, mark: Mark) -> list[SandboxInfo]:
        """Find what an interrupted creation has made."""
        # the first: a copy of its labels is younger
        found = sorted(self.cloud.find(mark.labels), key=lambda info: info.created_at or "~")
        if mark.origin and not found:
            with contextlib.suppress(errors.SandboxGone):
                found = [self.cloud.get(mark.copy_name)]
        return found

    def _copy(self, sandbox_id: str, name: str, labels: Mapping[str, str]) -> SandboxInfo | None:
        """Copy a sandbox; None where that is not possible, which its class and its server decide.
        Raises what a creation would meet as well: limits, say."""
        for _ in range(FORK_TRIES):
            try:
                self.tell("copying the sandbox")
                with log.event("sandbox.fork", sandbox=sandbox_id):
                    return self.cloud.fork(sandbox_id, name, labels)
            except (errors.NotOffered, errors.NotFound):
                return None
            except errors.ServerError:
                raise
            except (errors.BadAnswer, errors.SandboxNotRunning, errors.Conflict):
                try:  # asleep, or another change of it is under way
                    self.awake(self.cloud.get(sandbox_id))
                except (errors.SandboxGone, errors.SandboxBroken):
                    return None
        return None

    def is_copy(self, sandbox_id: str) -> bool:
        """Tell whether a sandbox was made as a copy of another one."""
        info = self.cloud.known(sandbox_id) or self.cloud.get(sandbox_id)
        return info.name.startswith(COPY)

    def _own(self, copy: SandboxInfo, labels: Mapping[str, str], of: str, order: Order) -> None:
        """Give a copy its own labels, and shut its network as the other one's is (if that is gone,
        as it was ordered); a copy that cannot be shut likewise goes."""
        if not labels.items() <= copy.labels.items():
            self.cloud.label(copy.id, labels)
        shut = order.members
        if of:
            with contextlib.suppress(errors.SandboxGone):
                shut = self.cloud.get(of).ordered
        open_ = {name for name in NETWORK if copy.ordered.get(name) != shut.get(name)}
        if lost := {name: shut[name] for name in open_ if shut.get(name)}:
            try:
                self.cloud.restrict(copy.id, lost)
            except errors.GitDaytonaError:
                self._change(copy.id, self.cloud.delete)
                raise

    def made(self, sandbox_id: str) -> ownership.Made:
        """Return the record that a sandbox made here has, or would have."""
        return ownership.here(self.cloud.settings.api_url, sandbox_id)

    def settle(self, info: SandboxInfo, seconds: float | None = None) -> SandboxInfo:
        """Wait until the sandbox is in a state that lasts. Raises TimedOut."""
        if info.state not in TRANSITIONAL:
            return info
        limit = START_SECONDS if seconds is None else seconds
        retrying = _until_settled(
            tenacity.retry_if_result(lambda found: found.state in TRANSITIONAL), limit
        )
        line = Restoring(f"waiting for the sandbox ({info.state})")
        try:
            with Patience(self.tell).waiting(line):
                return retrying(lambda: leases.patiently(lambda: self.cloud.get(info.id)))
        except tenacity.RetryError as problem:
            state = problem.last_attempt.result().state
            raise errors.TimedOut(
                f"the sandbox stayed in state '{state}' for {limit:.0f} seconds", hint=_LOOK
            ) from None

    def awake(self, info: SandboxInfo) -> SandboxInfo:
        """Start the sandbox, or recover it where Daytona offers that. Raises SandboxBroken."""
        info = self.settle(info)
        if info.state == "started":
            return info
        if info.state in ("error", "build_failed"):
            if info.recoverable:
                self.tell(Restoring("recovering the sandbox"))
                with log.event("sandbox.recover", sandbox=info.id):
                    info = self.cloud.recover(info.id)
                self.woke(info.id)
                return info
            reason = f": {info.error_reason}" if info.error_reason else ""
            raise errors.SandboxBroken(
                f"the sandbox is in state '{info.state}'{reason}", hint=_LOOK
            )
        self.tell(Restoring(f"starting the sandbox ({info.state})"))
        with log.event("sandbox.start", sandbox=info.id, state=info.state):
            others = False

            def start(sandbox_id: str) -> SandboxInfo:
                nonlocal others
                try:
                    return self.cloud.start(sandbox_id)
                except errors.Conflict:  # somebody else is starting it
                    others = True
                    raise

            info = self._change(info.id, start)
        if not others:
            self.woke(info.id)
        return info

    def stop(self, sandbox_id: str) -> None:
        """Stop a sandbox that runs, and wait until it has stopped."""
        info = self.settle(self.cloud.get(sandbox_id))
        if info.state == "started":
            with log.event("sandbox.stop", sandbox=sandbox_id):
                self._change(sandbox_id, self.cloud.stop)
                self.settle(self.cloud.get(sandbox_id))

    def snapshot(self, sandbox_id: str, name: str) -> None:
        """Make a snapshot of a sandbox, running or not, and wait until it can be used. Raises
        UsageError where there is one of the name, SandboxCommandFailed where none came of it."""
        with contextlib.suppress(errors.NotFound):
            self.cloud.snapshot_state(name)
            raise errors.UsageError(
                f"there is a snapshot '{name}' already", hint="choose another name"
            )
        info = self.settle(self.cloud.get(sandbox_id))
        if info.state not in ("started", "stopped"):
            self.awake(info)
        self.tell("making a snapshot of the sandbox")
        with log.event("sandbox.snapshot", sandbox=sandbox_id, snapshot=name):
            with contextlib.suppress(errors.ApiUnreachable):  # or it is being made
                self.cloud.snapshot(sandbox_id, name)
            self.settle(self.cloud.get(sandbox_id), SNAPSHOT_SECONDS)
            state = self._snapshot_state(name)
        if state != "active":
            raise errors.SandboxCommandFailed(
                f"no snapshot came of it: '{name}' is {state}",
                hint="see it in Daytona's dashboard; the sandbox is as it was",
            )

    def _snapshot_state(self, name: str) -> str:
        """Wait for the state that a snapshot stays in."""
        moving = tenacity.retry_if_result(lambda state: state in SNAPSHOT_MOVES)
        try:
            return _until_settled(moving, SNAPSHOT_SECONDS)(self.cloud.snapshot_state, name)
        except errors.NotFound:
            return "not there"
        except tenacity.RetryError as problem:
            return f"{problem.last_attempt.result()} still"

    def delete(self, sandbox_id: str) -> None:
        """Delete a sandbox. Raises SandboxGone when it is gone already, or about to be."""
        self._change(sandbox_id, self.cloud.delete)
        self.made(sandbox_id).forget()

    def _change(self, sandbox_id: str, change: Callable[[str], T]) -> T:
        """Change a sandbox's state once an earlier change, which forbids it (409), has ended."""
        refused = False
        kinds = (errors.ApiUnreachable, errors.ServerError, errors.RateLimited)

        def attempt() -> T:
            nonlocal refused
            if refused:
                self.settle(self.cloud.get(sandbox_id))
            refused = True
            return leases.patiently(lambda: change(sandbox_id), kinds=kinds)

        refusals = tenacity.retry_if_exception_type(errors.Conflict)
        return _until_settled(refusals, START_SECONDS)(attempt)

    def while_awake(self, sandbox_id: str, work: Callable[[], T]) -> T:
        """Do the work at once; only if it fails because the sandbox does not run, start that and do
        it again. The services report that in many ways; after a refusal its state counts."""
        try:
            return work()
        except errors.SandboxGone:
            raise
        except (errors.SandboxNotRunning, errors.Conflict, errors.BadAnswer, errors.NotFound):
            # A 404, too, which the toolbox's proxy gives for archived ones: ask the API itself.
            info = self.cloud.get(sandbox_id)
            if info.state == "started":
                raise
            self.awake(info)
            return work()
