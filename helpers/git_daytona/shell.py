"""A person's own shell in a sandbox: on a terminal by the toolbox (terminal.py), else over ssh under a lease that ends as soon as the
connection stands.

A gateway looks at the token once, after the handshake (measured): what is connected goes on after the revocation. So the shell lasts as
long as it likes, its token lives for seconds, and the syncs of its sandbox, which need a lease of their own, do not wait for it.
"""

import os
import secrets
import shlex
import threading
from contextlib import ExitStack

from git_daytona import log, run, sandbox, terminal
from git_daytona.errors import ConnectionClosed, GitDaytonaError, SandboxGone
from git_daytona.refs import PROJECT
from git_daytona.sessions import Coordinator
from git_daytona.transfer import inheritable, lifeline, ssh_environment

CONNECT_SECONDS = 60
"""How long a connection may take to stand; a lease that this does not happen under ends with the shell."""
TRIES = 3
FAILED = 255
"""The wrapper's exit status for a connection that did not come about or broke."""

# What runs there: it says that it does, by a file, and becomes a login shell in the project, which reads our input. The gateway sets
# no SHELL.
_SHELL = ': >"$0"; cd "$1" 2>/dev/null || cd; for s in "$SHELL" /bin/bash /usr/bin/bash; do [ ! -x "$s" ] || exec "$s" -l; done; exec sh -l'
# Waits for that file and takes it away; one call, whatever it costs the sandbox.
_WAIT = 'n=0; while [ ! -e "$1" ] && [ $n -lt "$2" ]; do sleep 0.1 || exit 1; n=$((n+1)); done; [ -e "$1" ] || exit 1; rm -f "$1"; exit 0'


def shell(coordinator: Coordinator, name: str) -> int:
    """Open a shell in a session's sandbox on our own standard streams (a terminal, if stdin is one), and return its exit status.

    A sandbox that does not run is started first, one that is gone is replaced. Raises what that and minting raise, HostKeyRefused, and
    ConnectionClosed where the gateway closed the connection again and again.
    """
    session = coordinator.find(name)
    coordinator.state.touch(session.id)
    try:
        coordinator.sandboxes.awake(coordinator.cloud.get(session.sandbox_id))
    except SandboxGone:
        session = coordinator.start(session.id, synced=session.number is not None).session
    if terminal.is_there():
        with log.event("shell", session=session.id, sandbox=session.sandbox_id) as event:
            status = terminal.join(coordinator.cloud, session.sandbox_id, PROJECT)
            event.update(status=status)
            coordinator.state.touch(session.id)
            return status
    with log.event("shell", session=session.id, sandbox=session.sandbox_id) as event:
        for attempt in range(1, TRIES + 1):
            status, begun = _once(coordinator, session.sandbox_id)
            event.update(status=status, attempt=attempt)
            if begun or status != FAILED:
                coordinator.state.touch(session.id)  # what was done there is not here yet
                return status
    raise ConnectionClosed(
        "the gateway did not take the connection, or closed it", hint="ssh has said why; 'git daytona status' shows the sandbox"
    )


def _once(coordinator: Coordinator, sandbox_id: str) -> tuple[int, bool]:
    """The exit status, and whether the shell has begun: then it may have read of our input, and is not started again."""
    mark = f"/tmp/.git-daytona-{secrets.token_hex(8)}"  # noqa: S108 — in the sandbox
    stood, ending = threading.Event(), threading.Lock()
    with ExitStack() as held, ExitStack() as lease:
        access, trust = lease.enter_context(coordinator.transfers.lease(sandbox_id))
        descriptor = held.enter_context(inheritable(access.token))
        pipe = held.enter_context(lifeline())
        env = {key: value for key, value in os.environ.items() if not key.startswith("DAYTONA_")}
        env |= ssh_environment(coordinator.settings, trust, ())
        env |= {"DAYTONA_SSH_TOKEN_FD": str(descriptor), "DAYTONA_SSH_LIFELINE_FD": str(pipe)}
        wrapper = shlex.split(env.pop("GIT_SSH_COMMAND"))
        command = shlex.join(("sh", "-c", _SHELL, mark, PROJECT))
        argv = (*wrapper, "-p", str(trust.endpoint.port), trust.endpoint.host, "--", command)

        def end_lease() -> None:
            with ending:  # whoever comes second finds it ended
                lease.close()

        def watch() -> None:
            tenths, seconds = str(CONNECT_SECONDS * 10), CONNECT_SECONDS + 10
            try:
                seen = sandbox.run_once(coordinator.cloud, sandbox_id, _WAIT, mark, tenths, timeout=seconds).status == 0
            except GitDaytonaError as problem:
                log.logger.info("shell: no look at its connection: %s", problem.message)
                return
            if seen:  # otherwise the lease ends with the shell
                stood.set()
                end_lease()

        threading.Thread(target=watch, name="lease", daemon=True).start()
        try:
            status = run.foreground(argv, env, pass_fds=(descriptor, pipe))
        finally:
            end_lease()
        return status, stood.is_set() or (status == FAILED and _begun(coordinator, sandbox_id, mark))


def _begun(coordinator: Coordinator, sandbox_id: str, mark: str) -> bool:
    """Whether the file that says so is there. True where that cannot be seen: nothing may run twice."""
    try:
        return sandbox.run_once(coordinator.cloud, sandbox_id, '[ ! -e "$1" ] || exit 3', mark, timeout=CONNECT_SECONDS).status != 0
    except GitDaytonaError:
        return True
