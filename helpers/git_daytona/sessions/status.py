"""What ``git daytona status`` and ``wait`` say of sessions."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import tenacity

from git_daytona.base.errors import (
    ApiUnreachable,
    GitDaytonaError,
    SandboxGone,
    TimedOut,
    TransferFailed,
)
from git_daytona.base.secret import printable
from git_daytona.git.commit_counts import BranchPosition, branch_positions
from git_daytona.sandbox import known_states, lifecycle
from git_daytona.sandbox.known_states import Seen
from git_daytona.sessions import state
from git_daytona.sessions.coordinator import Coordinator, names_of
from git_daytona.sessions.state import Session

LOOK_SECONDS = 3.0
"""How long the API is asked for the states of all sandboxes together."""
UNLISTED = 20
"""How many sandboxes that the project's label does not find (those of the existing plugin have
none) are looked up one by one."""
GONE = "gone"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Row:
    """One session as it is shown. Times in milliseconds since the epoch, 0 for never; texts are
    cleaned of control characters."""

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

    def document(self) -> dict[str, object]:
        """As ``git daytona status --json`` prints it."""
        return {
            "number": self.number,
            "branch": self.branch,
            "sessionId": self.session_id,
            "sandboxId": self.sandbox_id,
            "sandboxState": self.sandbox_state,
            "sandboxSeenAt": self.sandbox_seen or None,
            "gitReturn": self.git_return,
            "message": self.message,
            "updatedAt": self.updated_at,
            "needsSync": self.needs_sync,
            "base": self.base,
            "ahead": self.ahead,
            "worktree": self.worktree,
            "title": self.title,
            "created": self.created,
            "lastAccessed": self.last_accessed,
        }


@dataclass(frozen=True)
class Overview:
    """All sessions, and why their sandboxes' states are not of now (None: they are)."""

    rows: tuple[Row, ...]
    problem: GitDaytonaError | None = None


def overview(coordinator: Coordinator, *, offline: bool) -> Overview:
    """The sessions of a repository. Unless ``offline``, the API is asked for the states, for three
    seconds; what was seen is remembered."""
    sessions = coordinator.sessions()
    seen = known_states.read(coordinator.state.path)
    problem = None
    if sessions and not offline:
        try:
            seen = _renewed(coordinator, sessions, seen)
        except GitDaytonaError as failed:
            problem = failed
    progress: dict[int, BranchPosition] = {}
    synced = [names_of(each) for each in sessions if each.number is not None]
    if synced and coordinator.has_repository:
        # a repository that git cannot read: the sessions are shown all the same
        with suppress(GitDaytonaError):
            progress = branch_positions(coordinator.repository, synced)
    return Overview(tuple(_row(each, seen, progress) for each in sessions), problem)


def _renewed(
    coordinator: Coordinator, sessions: Sequence[Session], seen: dict[str, Seen]
) -> dict[str, Seen]:
    """Ask for the states of the sessions' sandboxes, and remember them. Raises what look() does."""
    found = look(coordinator, sessions, seen)
    every = seen | {id_: Seen(each, state.now()) for id_, each in found.items()}
    kept = {
        each.sandbox_id: every[each.sandbox_id] for each in sessions if each.sandbox_id in every
    }
    known_states.write(coordinator.state.path, kept)
    return kept


def _row(session: Session, seen: dict[str, Seen], progress: dict[int, BranchPosition]) -> Row:
    found = seen.get(session.sandbox_id, Seen(UNKNOWN, 0))
    done = progress.get(session.number or 0, BranchPosition())
    return Row(
        number=session.number,
        branch=names_of(session).branch if session.number is not None else None,
        session_id=printable(session.id),
        sandbox_id=printable(session.sandbox_id),
        sandbox_state=printable(found.state),
        sandbox_seen=found.at,
        git_return=printable(session.git_return.state),
        message=printable(session.git_return.message),
        updated_at=session.git_return.updated_at,
        needs_sync=session.needs_sync,
        base=done.base,
        ahead=done.ahead,
        worktree=session.worktree,
        title=session.title,
        created=session.created,
        last_accessed=session.last_accessed,
    )


def look(
    coordinator: Coordinator, sessions: Sequence[Session], seen: dict[str, Seen]
) -> dict[str, str]:
    """Ask the API for the states of the sessions' sandboxes: one list, and single questions for
    those that are not in it.

    Returns sandbox id → state for those that it could tell of within three seconds; raises what the
    list raises.
    """
    cloud = coordinator.cloud
    cloud.load()  # the SDK's own time does not count: it is not the network's
    # Longer than we wait: the thread then ends soon, and does not race with the wait.
    cloud.request_seconds = min(cloud.request_seconds, LOOK_SECONDS + 1)
    states: dict[str, str] = {}
    problems: list[Exception] = []
    listed = threading.Event()

    def ask() -> None:
        try:
            found = cloud.find({f"{lifecycle.LABEL}/project": coordinator.state.project_id})
            states.update((info.id, info.state) for info in found)
            listed.set()
            # What is gone is gone for good, and needs no second question.
            rest = [
                each.sandbox_id
                for each in sessions
                if each.sandbox_id not in states
                and seen.get(each.sandbox_id, Seen("", 0)).state != GONE
            ]
            for sandbox_id in rest[:UNLISTED]:
                try:
                    states[sandbox_id] = cloud.get(sandbox_id).state
                except SandboxGone:
                    states[sandbox_id] = GONE
        except Exception as problem:  # noqa: BLE001 — it is raised again by whoever waits
            problems.append(problem)

    asking = threading.Thread(target=ask, name="states", daemon=True)
    asking.start()
    asking.join(LOOK_SECONDS)
    if listed.is_set():
        return dict(states)
    if problems:
        raise problems[0]
    raise ApiUnreachable(
        f"{coordinator.settings.api_url} did not answer within {LOOK_SECONDS:.0f} seconds",
        hint="check the network, then try again",
    )


def verdict(session: Session) -> GitDaytonaError | None:
    """None for a session whose work is here (or that syncs nothing); else why it is not, as an
    error with its exit status."""
    if session.git_return.state in (state.FAILED, state.SETUP_FAILED):
        return TransferFailed(
            f"session {session.number}: {session.git_return.message}",
            hint=f"try again: git daytona sync {session.number}",
        )
    return None


def wait(coordinator: Coordinator, name: str, timeout: float) -> str:
    """Wait, at most ``timeout`` seconds, until a session's last sync has ended; its message. Raises
    what verdict() says, or TimedOut.

    A session that is ``pending`` waits for its first sync, which somebody else (OpenCode, another
    terminal) has to make.
    """
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_result(
            lambda session: (
                session.git_return.state == state.PENDING or coordinator.busy(session.id)
            )
        ),
        stop=tenacity.stop_after_delay(timeout),
        wait=tenacity.wait_fixed(0.2),
    )
    try:
        session: Session = retrying(lambda: coordinator.find(name))
    except tenacity.RetryError as problem:
        raise TimedOut(
            f"session '{name}' was not synced within {timeout:.0f} seconds",
            hint=f"sync it now: git daytona sync {name}",
        ) from problem
    if failed := verdict(session):
        raise failed
    return printable(session.git_return.message)
