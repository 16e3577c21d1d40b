"""What ``git daytona status`` and ``wait`` report of sessions."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from git_daytona.api.cloud import SandboxInfo
from git_daytona.base import errors, files, paths
from git_daytona.base.errors import GitDaytonaError
from git_daytona.base.secret import printable
from git_daytona.base.threads import Late, within
from git_daytona.git.commit_counts import BranchPosition, branch_positions
from git_daytona.sandbox import lifecycle, ownership
from git_daytona.sessions import home, state, state_file, working
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.sessions.records import camel_case
from git_daytona.sessions.state import Session

LOOK_SECONDS = 3.0
"""How long the API is asked for the states of all sandboxes together."""
UNLISTED = 20
"""How many sandboxes without the project's label (the existing plugin's) are looked up."""
GONE = "gone"
UNKNOWN = "unknown"

Seen = dict[str, tuple[str, int]]
"""Sandbox id → its state, and when it was in it: milliseconds since the epoch."""


@dataclass(frozen=True)
class Row:
    """One session as it is shown; times in milliseconds since the epoch, 0 for never."""

    number: int | None
    branch: str | None
    session_id: str
    sandbox_id: str
    sandbox_state: str
    """As the API names it, ``gone`` or ``unknown``; seen so at ``sandbox_seen``."""
    sandbox_seen: int
    git_return: str
    message: str
    updated_at: int
    needs_sync: bool
    base: str | None
    ahead: int | None
    """Commits of the branch that the base does not have; None where that is not known."""
    worktree: str
    title: str
    created: int
    last_accessed: int
    api_url: str = ""
    organization_id: str = ""
    elsewhere: bool = False
    """Whether it lives on another Daytona, or in another organisation."""
    notes: tuple[str, ...] = ()
    """Where it lives if that is elsewhere, and what may end its sandbox by itself."""
    deleting: int = 0
    """When a deletion began that has not succeeded."""
    merged: bool = False
    """Whether all that it has committed is in HEAD, or in the upstream of HEAD."""
    working: bool = False
    """Whether a turn or a command goes on in it, or a sync."""
    ordered: Mapping[str, str | int | bool] = field(default_factory=dict)
    """What the sandbox was made with, as the API says, by the names of its request's members."""

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return str(self.number or self.session_id)

    def document(self) -> dict[str, object]:
        """Return it as ``git daytona status --json`` prints it."""
        values = vars(self) | {"sandbox_seen": self.sandbox_seen or None}
        names = {"sandbox_seen": "sandboxSeenAt"}
        return {names.get(name) or camel_case(name): value for name, value in values.items()}


@dataclass(frozen=True)
class Overview:
    """All sessions, and why their sandboxes' states are not of now (None: they are)."""

    rows: tuple[Row, ...]
    problem: GitDaytonaError | None = None


@dataclass
class _Look:
    """What is known of the sandboxes, by their ids, and of where sessions live, by theirs."""

    seen: Seen
    dangers: dict[str, list[str]] = field(default_factory=dict)
    ordered: dict[str, Mapping[str, str | int | bool]] = field(default_factory=dict)
    away: dict[str, str] = field(default_factory=dict)
    """Why a session cannot be acted on here."""

    def compare(self, session: Session, api_url: str, organization_id: str = "") -> bool:
        """Note it if a session does not live here; whether it does not."""
        if problem := home.elsewhere(session, api_url, organization_id):
            self.away[session.id] = problem.message
        return problem is not None


def overview(coordinator: Coordinator, *, offline: bool) -> Overview:
    """List a repository's sessions; unless ``offline``, the API is asked for three seconds."""
    sessions = coordinator.sessions()
    # A file of its own: the state file is shared, and looking must not write there.
    name = hashlib.sha256(str(coordinator.state.path).encode()).hexdigest()[:24]
    memory = paths.own_state() / "seen" / f"{name}.json"
    look, problem = _Look(_remembered(memory)), None
    for each in sessions:
        look.compare(each, coordinator.settings.api_url)
    if sessions and not offline:
        try:
            _look_again(coordinator, sessions, look)
            with suppress(GitDaytonaError):
                files.write_whole(memory, json.dumps(look.seen).encode())
        except GitDaytonaError as failed:
            problem = failed
    positions = _positions(coordinator, sessions)

    def busy(each: Session) -> bool:
        return working.is_marked(coordinator.git_dir, each.id) or coordinator.busy(each.id)

    rows = (_row(each, look, positions, working=busy(each)) for each in sessions)
    return Overview(tuple(rows), problem)


def _positions(coordinator: Coordinator, sessions: Sequence[Session]) -> dict[int, BranchPosition]:
    synced = [each.names for each in sessions if each.number is not None]
    if synced and coordinator.has_repository:
        # a repository that git cannot read: the sessions are shown all the same
        with suppress(GitDaytonaError):
            return branch_positions(coordinator.repository, synced)
    return {}


def everywhere(coordinator: Coordinator, *, offline: bool) -> Overview:
    """List every repository's sessions, this one's first; after an API that fails none is asked."""
    found = overview(coordinator, offline=offline)
    rows, problem = list(found.rows), found.problem
    seen = {row.session_id for row in rows}
    sessions = state_file.all_sessions()
    places = {each.git_dir or each.worktree: each for each in sessions}
    for place in sorted(places.keys() - {coordinator.git_dir}):
        with suppress(GitDaytonaError, OSError):  # removed, or it cannot be read: then as recorded
            other = Coordinator.of(Path(places[place].worktree), anywhere=True)
            found = overview(other, offline=offline or problem is not None)
            rows += [row for row in found.rows if row.session_id not in seen]
            seen.update(row.session_id for row in found.rows)
            problem = problem or found.problem
    left = (each for each in sessions if printable(each.id) not in seen)
    rows += [_row(each, _Look({}), {}, working=False) for each in left]
    return Overview(tuple(rows), problem)


def _remembered(memory: Path) -> Seen:
    """Read what was seen; nothing from a file that is missing or broken."""
    with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        entries = json.loads(memory.read_bytes()).items()
        return {id_: (str(state), int(at)) for id_, (state, at) in entries}
    return {}


def _row(
    session: Session, look: _Look, positions: dict[int, BranchPosition], *, working: bool
) -> Row:
    sandbox_state, sandbox_seen = look.seen.get(session.sandbox_id, (UNKNOWN, 0))
    away = look.away.get(session.id)
    position = positions.get(session.number or 0, BranchPosition())
    return Row(
        number=session.number or session.own_number,
        branch=session.names.branch if session.number is not None else None,
        session_id=printable(session.id),
        sandbox_id=printable(session.sandbox_id),
        sandbox_state=printable(sandbox_state),
        sandbox_seen=sandbox_seen,
        git_return=printable(session.git_return.state),
        message=printable(session.git_return.message),
        updated_at=session.git_return.updated_at,
        needs_sync=session.needs_sync,
        base=position.base,
        ahead=position.ahead,
        worktree=session.worktree,
        title=session.title,
        created=session.created,
        last_accessed=session.last_accessed,
        api_url=printable(session.api_url),
        organization_id=printable(session.organization_id),
        elsewhere=away is not None,
        notes=(away,) if away else (*look.dangers.get(session.sandbox_id, ()), *_set_up(session)),
        deleting=session.deleting,
        merged=position.merged,
        working=working,
        ordered=look.ordered.get(session.sandbox_id, {}),
    )


def _set_up(session: Session) -> list[str]:
    """Say where a set-up stands that needs its user, or has not ended."""
    told = {
        "waiting": "its set-up waits for you: git daytona allow",
        "running": f"its set-up runs, or was cut off: git daytona logs --setup {session.name}",
        "failed": f"its set-up: {printable(session.setup.message)[:200]}",
    }
    return [told[session.setup.state]] if session.setup.state in told else []


def _look_again(coordinator: Coordinator, sessions: Sequence[Session], look: _Look) -> None:
    """Ask the API for the sandboxes of the sessions that live there: one list, and single questions
    for those that are not in it; what it cannot tell of within three seconds stays as it was seen.
    Raises what the list raises."""
    cloud = coordinator.cloud
    cloud.load()  # what that takes is not the network's time
    # Longer than we wait: the thread then ends soon, and does not race with the wait.
    cloud.request_seconds = min(cloud.request_seconds, LOOK_SECONDS + 1)
    until = time.monotonic() + LOOK_SECONDS
    try:
        label = {ownership.PROJECT: coordinator.state.project_id}
        listed = within(LOOK_SECONDS, lambda: cloud.find(label))
    except Late:
        raise errors.ApiUnreachable(
            f"Daytona at {coordinator.settings.api_url} did not answer within {LOOK_SECONDS:.0f}"
            " seconds",
            hint="check the network, then try again",
        ) from None
    infos: dict[str, SandboxInfo | None] = {info.id: info for info in listed}
    ids = {each.sandbox_id for each in sessions}

    def ask_for_rest() -> None:
        # What is gone is gone for good, and needs no second question.
        known = {*infos, *(id_ for id_, (state, _) in look.seen.items() if state == GONE)}
        rest = [s for s in sessions if s.sandbox_id not in known and s.id not in look.away]
        for each in rest[:UNLISTED]:
            try:
                infos[each.sandbox_id] = cloud.get(each.sandbox_id)
            except errors.SandboxGone:
                organization = cloud.organization_id() if each.organization_id else ""
                if not look.compare(each, coordinator.settings.api_url, organization):
                    infos[each.sandbox_id] = None

    with suppress(Late, GitDaytonaError):
        within(until - time.monotonic(), ask_for_rest)
    now, found = state.now(), infos.copy()  # the thread may go on
    look.seen |= {id_: (info.state if info else GONE, now) for id_, info in found.items()}
    look.seen = {id_: each for id_, each in look.seen.items() if id_ in ids}
    look.dangers = {id_: lifecycle.dangers(info) for id_, info in found.items() if info}
    look.ordered = {id_: info.ordered for id_, info in found.items() if info}


def verdict(session: Session) -> GitDaytonaError | None:
    """Return None for a session whose work is here (or that syncs nothing); else why it is not."""
    if session.git_return.state in (state.FAILED, state.SETUP_FAILED):
        return errors.TransferFailed(
            f"session {session.name}: {session.git_return.message}",
            hint=f"try again: git daytona sync {session.name}",
        )
    return None


def wait(coordinator: Coordinator, name: str, until: float) -> str:
    """Wait, up to a moment of the monotonic clock, until nobody is at work on a session, and sync
    it if it was used since its last sync; return that one's message. Raises its verdict, TimedOut.
    """
    while True:
        session = coordinator.find(name)
        if not coordinator.busy(session.id):
            session = coordinator.find(name)  # it may have ended just now
            if verdict(session) or not session.needs_sync:
                break
            if time.monotonic() < until:
                return printable(coordinator.sync(session.id).message)
        if time.monotonic() >= until:
            raise errors.TimedOut(
                f"session {session.name} was not synced in time",
                hint=f"wait longer, or sync it now: git daytona sync {session.name}",
            )
        time.sleep(0.2)
    if failed := verdict(session):
        raise failed
    return printable(session.git_return.message)
