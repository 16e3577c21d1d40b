"""A command in a sandbox over ssh, on our own standard streams, under a lease that ends as soon as
the connection stands.

A gateway looks at the token once, after the handshake (measured): what is connected goes on after
the revocation. So the command lasts as long as it likes, its token lives for seconds, and the syncs
of its sandbox, which need a lease of their own, do not wait for it.
"""

import os
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from git_daytona import ssh
from git_daytona.base import log, run
from git_daytona.base.errors import ConnectionClosed, GitDaytonaError
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.transfer.environment import connection

TRIES = 3
Feed = Callable[[int], OSError | None]
"""Writes a command's input to a descriptor; returns why that could not be read to its end."""
FAILED = 255
"""The wrapper's exit status for a connection that did not come about or broke."""


@dataclass(frozen=True)
class Wish:
    """What is wanted of ssh: by default the output of a shell command.

    ``session`` are ssh's options for what is no command: ``-s`` (the command is the subsystem's
    name), ``-W PLACE``; or ``-N``. ``options`` are the wrapper's, such as ``-t``, which with no
    command is the gateway's own shell; ``more`` those of ssh that have been checked.
    """

    command: str = ""
    session: Sequence[str] = ()
    options: Sequence[str] = ()
    more: Sequence[str] = ()

    @property
    def alone(self) -> bool:
        """Whether it is forwardings alone: a command then waits for the connection's end."""
        return "-N" in self.session

    @property
    def reads_itself(self) -> bool:
        """Whether the wrapper has our own input, and hands it on once the connection stands."""
        terminal = not self.command and "-t" in self.options
        return not self.alone and (terminal or bool(self.session))

    @property
    def variables(self) -> dict[str, str]:
        session = shlex.join(() if self.alone else self.session)
        return {"DAYTONA_SSH_SESSION": session, "DAYTONA_SSH_MORE": shlex.join(self.more)}


def connect(
    coordinator: Coordinator,
    sandbox_id: str,
    wish: Wish,
    *,
    options: Mapping[str, str] | None = None,
    begin: Callable[[], None] = lambda: None,
    stands: Callable[[], None] = lambda: None,
    feed: Feed | None = None,
) -> int:
    """Connect our streams with a sandbox that is awake; return the exit status of what runs there.

    ``options`` are variables for the wrapper; ``begin`` is called once, when there is a token and
    before anything is written to our output, ``stands`` (in a thread) once the command runs or the
    connection stands; ``feed`` then writes the command's input, which is ours otherwise. Until
    then a connection is made again. Raises ConnectionClosed, and what ``Transfers.lease`` raises.
    """
    with log.event("connect", sandbox=sandbox_id) as event:
        for attempt in range(1, TRIES + 1):
            first = begin if attempt == 1 else lambda: None
            connected = _Try(first, stands, feed or _feed)
            status = connected.run(coordinator, sandbox_id, wish, options or {})
            event.update(status=status, attempt=attempt)
            if connected.unread:
                raise GitDaytonaError(
                    f"standard input could not be read: {connected.unread.strerror}",
                    hint="what was read of it has run; run the rest",
                )
            if connected.begun.is_set() or status != FAILED:
                return status
    raise ConnectionClosed(
        "the gateway did not take the connection, or closed it",
        hint="ssh has said why; 'git daytona status' shows the sandbox",
    )


@dataclass
class _Try:
    """One try. Input goes only where a command reads it: else the next try gets all of it."""

    begin: Callable[[], None]
    stands: Callable[[], None]
    feed: Feed
    unread: OSError | None = None
    begun: threading.Event = field(default_factory=threading.Event)
    decided: threading.Event = field(default_factory=threading.Event)
    ending: threading.Lock = field(default_factory=threading.Lock)
    lease: ExitStack = field(default_factory=ExitStack)

    def run(
        self, coordinator: Coordinator, sandbox_id: str, wish: Wish, options: Mapping[str, str]
    ) -> int:
        with ExitStack() as held:
            held.callback(self._end_lease)
            access, trust = self.lease.enter_context(coordinator.transfers.lease(sandbox_id))
            connected = held.enter_context(connection(coordinator.settings, access.token, trust))
            self.begin()
            env = ssh.scrubbed(dict(os.environ))
            env |= {**connected.env, **wish.variables, **options}
            wrapper = shlex.split(env.pop("GIT_SSH_COMMAND"))
            place = ("-p", str(trust.endpoint.port), trust.endpoint.host)
            argv = (*wrapper, *wish.options, "-o", "SendEnv=GIT_PROTOCOL", *place)
            if command := ssh.WAITING if wish.alone else wish.command:
                argv += ("--", command)
            reading, writing = os.pipe()
            stdin = None if wish.reads_itself else reading
            args = (connected.report.wait_for_begin, writing, wish)
            threading.Thread(target=self._watch, args=args, daemon=True).start()
            try:
                return run.foreground(argv, env, stdin=stdin, pass_fds=connected.pass_fds)
            finally:
                connected.report.close_writing()  # ends the watch, if that does not wait for input
                if wish.alone:  # until now: its end would be that of the command
                    os.close(writing)
                self.decided.wait(5)
                os.close(reading)

    def _end_lease(self) -> None:
        with self.ending:  # whoever comes second finds it ended
            self.lease.close()

    def _watch(self, wait_for_begin: Callable[[], bool], writing: int, wish: Wish) -> None:
        if wait_for_begin():
            self.begun.set()
        self.decided.set()
        if self.begun.is_set():
            self._end_lease()
            self.stands()
            if not wish.alone and not wish.reads_itself:
                self.unread = self.feed(writing)
        if not wish.alone:
            os.close(writing)


def _feed(writing: int) -> OSError | None:
    """Hand our input on to the command until one of them ends; return why it could not be read."""
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
        if data:  # the command has ended
            return None
