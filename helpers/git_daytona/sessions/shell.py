"""A person's own shell in a sandbox: on a terminal by the toolbox (terminal.py), else over ssh."""

import shlex

from git_daytona.base import log
from git_daytona.git.refs import PROJECT
from git_daytona.sandbox import scripts, terminal
from git_daytona.sessions.connect import Wish, connect
from git_daytona.sessions.coordinator import Coordinator


def shell(coordinator: Coordinator, name: str) -> int:
    """Open a shell in a session's sandbox on our own standard streams; return its exit status.

    A sandbox that does not run is started first, one that is gone is replaced. Raises what that and
    minting raise, HostKeyRefused, and ConnectionClosed.
    """
    session = coordinator.find(name)
    if not coordinator.is_there(session):
        session = coordinator.start(session.id, again=session).session
    coordinator.state.touch(session.id)
    with log.event("shell", session=session.id, sandbox=session.sandbox_id) as event:
        if terminal.is_there():
            status = terminal.join(coordinator.cloud, session.sandbox_id, PROJECT)
        else:
            command = shlex.join(("sh", "-c", scripts.read("login"), PROJECT))
            status = connect(coordinator, session.sandbox_id, Wish(command))
        event.update(status=status)
        coordinator.state.touch(session.id)  # what was done there is not here yet
        return status
