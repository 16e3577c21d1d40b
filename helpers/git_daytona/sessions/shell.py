"""A person's own shell in a sandbox: on a terminal by the toolbox (terminal.py), else over ssh
under a lease that ends as soon as the connection stands.

A gateway looks at the token once, after the handshake (measured): what is connected goes on after
the revocation. So the shell lasts as long as it likes, its token lives for seconds, and the syncs
of its sandbox, which need a lease of their own, do not wait for it.
"""

import os
import shlex
import threading
from contextlib import ExitStack, suppress

from git_daytona.base import log, run
from git_daytona.base.errors import ConnectionClosed, GitDaytonaError
from git_daytona.git.refs import PROJECT
from git_daytona.sandbox import scripts, terminal
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.transfer.environment import connection

TRIES = 3
FAILED = 255
"""The wrapper's exit status for a connection that did not come about or broke."""


def shell(coordinator: Coordinator, name: str) -> int:
    """Open a shell in a session's sandbox on our own standard streams; return its exit status.

    A sandbox that does not run is started first, one that is gone is replaced. Raises what that and
    minting raise, HostKeyRefused, and ConnectionClosed.
    """
    session = coordinator.find(name)
    coordinator.state.touch(session.id)
    if not coordinator.is_there(session):
        session = coordinator.start(session.id, again=session).session
    with log.event("shell", session=session.id, sandbox=session.sandbox_id) as event:
        for attempt in range(1, TRIES + 1):
            status, begun = _once(coordinator, session.sandbox_id)
            event.update(status=status, attempt=attempt)
            if begun or status != FAILED:
                coordinator.state.touch(session.id)  # what was done there is not here yet
                return status
    raise ConnectionClosed(
        "the gateway did not take the connection, or closed it",
        hint="ssh has said why; 'git daytona status' shows the sandbox",
    )


def _once(coordinator: Coordinator, sandbox_id: str) -> tuple[int, bool]:
    """Return the exit status, and whether the shell has begun, and so may have read our input."""
    if terminal.is_there():
        return terminal.join(coordinator.cloud, sandbox_id, PROJECT), True
    begun, decided, ending = threading.Event(), threading.Event(), threading.Lock()
    unread: list[OSError] = []
    with ExitStack() as held, ExitStack() as lease:
        access, trust = lease.enter_context(coordinator.transfers.lease(sandbox_id))
        connected = held.enter_context(connection(coordinator.settings, access.token, trust))
        env = {key: value for key, value in os.environ.items() if not key.startswith("DAYTONA_")}
        env |= connected.env
        wrapper = shlex.split(env.pop("GIT_SSH_COMMAND"))
        command = shlex.join(("sh", "-c", scripts.read("login"), PROJECT))
        # Our input goes to no connection on which no shell reads it: the next one gets all of it.
        reading, writing = os.pipe()
        argv = (*wrapper, "-p", str(trust.endpoint.port), trust.endpoint.host, "--", command)

        def end_lease() -> None:
            with ending:  # whoever comes second finds it ended
                lease.close()

        def watch() -> None:
            if connected.report.wait_for_begin():
                begun.set()
            decided.set()
            if begun.is_set():
                end_lease()
                if problem := _feed(writing):
                    unread.append(problem)
            os.close(writing)

        threading.Thread(target=watch, name="lease", daemon=True).start()
        try:
            status = run.foreground(argv, env, stdin=reading, pass_fds=connected.pass_fds)
        finally:
            connected.report.close_writing()  # ends the watch, if that does not wait for input
            decided.wait(5)
            os.close(reading)
            end_lease()
        if unread:
            raise GitDaytonaError(
                f"standard input could not be read: {unread[0].strerror}",
                hint="what was read of it has run; run the rest",
            )
        return status, begun.is_set()


def _feed(writing: int) -> OSError | None:
    """Hand our standard input on to the shell until one of them ends; return why it could not be
    read to its end."""
    while True:
        try:
            data = os.read(0, 65536)
        except OSError as problem:
            return problem
        if not data:
            return None
        with suppress(OSError):
            while data:
                data = data[os.write(writing, data) :]
        if data:  # the shell has ended
            return None
