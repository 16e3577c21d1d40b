"""A person's shell or terminal in a sandbox: by the toolbox (terminal.py), else over ssh."""

import shlex
from collections.abc import Callable

from git_daytona.base import log
from git_daytona.git.refs import PROJECT
from git_daytona.sandbox import scripts
from git_daytona.sessions.connect import Wish, connect
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.sessions.ending import brought_before
from git_daytona.sessions.state import Session


def shell(coordinator: Coordinator, name: str) -> int:
    """Open a shell in a session's sandbox on our own standard streams; return its exit status.

    A sandbox that does not run is started first, one that is gone is replaced. Raises what that and
    minting raise, HostKeyRefused, and ConnectionClosed.
    """

    def work(session: Session) -> int:
        from git_daytona.sandbox import terminal  # here: asyncio takes long to load

        if terminal.is_there():
            return terminal.join(coordinator.cloud, session.sandbox_id, PROJECT)
        command = shlex.join(("sh", "-c", scripts.read("login"), PROJECT))
        return connect(coordinator, session.sandbox_id, Wish(command))

    return _in_use(coordinator, name, work)


def run_on_terminal(coordinator: Coordinator, name: str, command: str, directory: str) -> int:
    """Run a command on our terminal, as ``shell`` opens a shell."""

    def work(session: Session) -> int:
        from git_daytona.sandbox import terminal

        return terminal.join(coordinator.cloud, session.sandbox_id, directory, command)

    return _in_use(coordinator, name, work)


def _in_use(coordinator: Coordinator, name: str, work: Callable[[Session], int]) -> int:
    session = coordinator.find(name)
    if not coordinator.is_there(session):
        session = coordinator.start(session.id, again=session).session
    coordinator.state.touch(session.id)
    with log.event("shell", session=session.id, sandbox=session.sandbox_id) as event:
        with brought_before(coordinator, session):
            status = work(session)
        event.update(status=status)
        coordinator.state.touch(session.id)  # what was done there is not here yet
        return status
