"""What ``git daytona status`` and ``wait`` say of sessions."""

import tenacity

from git_daytona import lifecycle, state
from git_daytona.errors import GitDaytonaError, TimedOut, TransferFailed
from git_daytona.refs import Names
from git_daytona.secret import printable
from git_daytona.sessions import Coordinator
from git_daytona.state import Session


def rows(coordinator: Coordinator, *, offline: bool) -> list[dict[str, object]]:
    """One dictionary per session, as ``git daytona status --json`` prints it. Asks the API once unless ``offline``."""
    sessions = coordinator.sessions()
    states: dict[str, str] = {}
    if sessions and not offline:
        label = {f"{lifecycle.LABEL}/project": coordinator.state.project_id}
        states = {info.id: info.state for info in coordinator.cloud.find(label)}
    return [
        {
            "number": session.number,
            "branch": Names(session.number).branch if session.number else None,
            "sessionId": session.id,
            "sandboxId": session.sandbox_id,
            "sandboxState": "unknown" if offline else states.get(session.sandbox_id, "gone"),
            "gitReturn": session.git_return.state,
            "message": printable(session.git_return.message),
            "updatedAt": session.git_return.updated_at,
            "needsSync": session.needs_sync,
            "worktree": session.worktree,
        }
        for session in sessions
    ]


def verdict(session: Session) -> GitDaytonaError | None:
    """None for a session whose work is here (or that syncs nothing); else why it is not, as an error with its exit status."""
    if session.git_return.state in (state.FAILED, state.SETUP_FAILED):
        return TransferFailed(
            f"session {session.number}: {session.git_return.message}", hint=f"try again: git daytona sync {session.number}"
        )
    return None


def wait(coordinator: Coordinator, name: str, timeout: float) -> str:
    """Wait, at most ``timeout`` seconds, until a session's last sync has ended; its message. Raises what verdict() says, or TimedOut.

    A session that is ``pending`` waits for its first sync, which somebody else (OpenCode, another terminal) has to make.
    """
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda session: session.git_return.state == state.PENDING or coordinator.busy(session.id)),
        stop=tenacity.stop_after_delay(timeout),
        wait=tenacity.wait_fixed(0.2),
    )
    try:
        session: Session = retrying(lambda: coordinator.find(name))
    except tenacity.RetryError as problem:
        raise TimedOut(
            f"session '{name}' was not synced within {timeout:.0f} seconds", hint=f"sync it now: git daytona sync {name}"
        ) from problem
    if failed := verdict(session):
        raise failed
    return printable(session.git_return.message)
