"""A person's command in a sandbox that destroys itself: what it holds is brought back before."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from git_daytona.base import messages
from git_daytona.base.errors import GitDaytonaError
from git_daytona.base.threads import concurrently
from git_daytona.sandbox.lifecycle import BEFORE_SECONDS, dangers
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.sessions.state import Session

LOOK_SECONDS = 15.0
"""Between two looks at the clock, which a laptop's sleep does not stop as it stops a wait."""


@contextmanager
def brought_before(coordinator: Coordinator, session: Session) -> Iterator[None]:
    """Bring all of a session back before its sandbox destroys itself, if that is while the block
    runs, and say so; whoever works there does not notice."""
    info, over = coordinator.cloud.known(session.sandbox_id), threading.Event()

    def wait() -> None:
        while info and info.seconds_left(time.time()) > BEFORE_SECONDS:
            if over.wait(LOOK_SECONDS):
                return
        try:
            came = coordinator.sync_aside(session.id, everything=True).message
        except GitDaytonaError as problem:
            came = f"its work did not come back: {problem.message}"
        messages.note(f"session {session.name}: {end}; {came}")

    end = dangers(info)[0] if info and info.destroyed_at else ""
    watched = end and session.number is not None
    with concurrently(wait) if watched else nullcontext():
        try:
            yield
        finally:
            over.set()
