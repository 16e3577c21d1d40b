"""A person's command in a session's sandbox, on our own standard streams: ``git daytona exec``."""

import contextlib
import os
import posixpath
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from git_daytona.base import log, messages, progress
from git_daytona.base.errors import ApiUnreachable, CutShort, GitDaytonaError, SandboxGone, TimedOut
from git_daytona.git import repository
from git_daytona.git.refs import PROJECT
from git_daytona.sandbox import remote_command
from git_daytona.sandbox.remote_command import Cut, News, RemoteCommand, Wanted
from git_daytona.sessions import home
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.sessions.ending import brought_before
from git_daytona.sessions.state import Session

FIRST_SECONDS = 0.1
"""How long input may take to be there, to be sent with the command."""
TWICE_SECONDS = 0.5
"""Within this, Ctrl-C is the same one: git, as whose subcommand we run, passes it on, too."""
REMIND_SECONDS = 2.0
"""When it is said that a command goes on after Ctrl-C."""
AGAIN_SECONDS = 1.0
"""Between two tries to reach it."""
RECONNECT_SECONDS = 120.0
"""How long a command that runs may be out of reach."""
SETTLE, SETTLED, SLOWER = 20, 100, 60
"""How long output is gathered before it is asked for, in hundredths of a second: at first, and when
the command has taken so many seconds."""

Show = Callable[[bytes, bytes], None]
"""What output and errors are given to, as they come."""


@dataclass
class Input:
    """Our standard input; None where there is nothing to read."""

    descriptor: int | None

    def read(self, seconds: float, most: int) -> tuple[bytes, bool]:
        """Read what is there, or comes within so long; tell also whether that was all."""
        data, until = b"", time.monotonic() + seconds
        while self.descriptor is not None and len(data) < most:
            left = max(0.0, until - time.monotonic())
            try:
                if not select.select([self.descriptor], [], [], left)[0]:
                    return data, False
                piece = os.read(self.descriptor, most - len(data))
            except OSError:  # a directory, or for writing alone: there is nothing to read
                piece = b""
            if not piece:
                self.descriptor = None
            data += piece
        return data, self.descriptor is None

    def wait(self) -> None:
        """Wait until there is something to read, or its end."""
        if self.descriptor is not None:
            with contextlib.suppress(OSError):
                select.select([self.descriptor], [], [])


class _Feeding(threading.Thread):
    """The rest of our input on its way, a few pieces ahead of what the command has taken."""

    def __init__(self, command: RemoteCommand, source: Input) -> None:
        super().__init__(name="feed a command", daemon=True)
        self._command, self._source = command, source
        self.problem: GitDaytonaError | None = None
        self.over = False

    def run(self) -> None:
        number, last, command = 0, False, self._command
        while not last and not self.over:
            self._source.wait()
            data, last = self._source.read(FIRST_SECONDS, remote_command.INPUT_BYTES)
            number += 1
            with command.taken:
                command.taken.wait_for(partial(self._has_room, number))
            try:
                command.feed(number, data, last=last)
            except GitDaytonaError as problem:
                self.problem = problem
                return

    def _has_room(self, number: int) -> bool:
        return self.over or number - self._command.fed <= remote_command.AHEAD

    def stop(self) -> None:
        self.over = True
        with self._command.taken:
            self._command.taken.notify_all()


@dataclass
class Execution:
    """One run of a command. ``interrupt`` may be called at any time, ``run`` once."""

    coordinator: Coordinator
    session: Session
    command: RemoteCommand
    show: Show
    interrupts: int = 0
    deaf_until: float = 0.0
    reminded: float = 0.0
    """When the person is told that the command goes on after the first of them; 0: not."""

    def run(self, source: Input, *, whole: bool) -> tuple[int, str]:
        """Run it to its end; return its status, and what the person has to be told besides.

        Raises CutShort where it was ended from outside, TimedOut, and what the calls raise; all its
        output has been shown by then. However this ends, the command does not go on.
        """
        feeding = _Feeding(self.command, source)
        with (
            log.event("sandbox.exec", session=self.session.id) as event,
            contextlib.ExitStack() as watch,
        ):
            try:
                news, notice = self._begin()
                watch.enter_context(brought_before(self.coordinator, self.session))
                if not whole and not news.ended:
                    feeding.start()
                begun = time.monotonic()
                while not news.ended:
                    if feeding.problem is not None:
                        raise feeding.problem
                    self._remind()
                    if not news.output and not news.errors:
                        time.sleep(FIRST_SECONDS)  # whatever the sandbox says so quickly
                    least = SETTLE if time.monotonic() - begun < SLOWER else SETTLED
                    news = self._next(least)
            except CutShort:
                raise
            except BaseException:
                self._end()
                raise
            finally:
                feeding.stop()
                if self.command.joined:  # what it did is not here yet
                    self.coordinator.state.touch(self.session.id)
            event.update(sandbox=self.command.sandbox_id, status=news.status)
            if self.command.is_large:
                self._end()
        if news.late:
            raise TimedOut(
                "the command was ended: its time was over", hint="allow it more: --timeout"
            )
        return news.status, notice

    def _remind(self) -> None:
        """Say what to do with a command that goes on after Ctrl-C."""
        if self.interrupts == 1 and 0 < self.reminded < time.monotonic():
            self.reminded = 0
            messages.note("the command goes on; Ctrl-C again ends it for good")

    def _begin(self) -> tuple[News, str]:
        try:
            news, self.session, notice = self.coordinator.work_in(self.session, self.command.begin)
        except Cut as cut:
            self._shown(cut.news)
            raise
        progress.give_way()  # from here on the command has the streams
        self._shown(news)
        return news, notice

    def _next(self, least: int) -> News:
        """Get the next news. No sandbox is started for it: who stopped that ended the command."""
        until = time.monotonic() + RECONNECT_SECONDS
        while True:
            try:
                news = self.command.follow(least)
                break
            except Cut as cut:
                self._shown(cut.news)
                raise
            except SandboxGone:
                raise self._gone() from None
            except (ApiUnreachable, TimedOut) as problem:
                if time.monotonic() > until:
                    hint = "the command may go on; 'git daytona status' shows the sandbox"
                    raise problem.but(hint=hint) from None
            except GitDaytonaError as problem:
                self._explain(problem)
                if not problem.transient or time.monotonic() > until:
                    raise
            time.sleep(AGAIN_SECONDS)
        self._shown(news)
        return news

    def _explain(self, problem: GitDaytonaError) -> None:
        """Raise what is behind a refusal, if the sandbox does not run any more."""
        try:
            info = self.coordinator.cloud.get(self.command.sandbox_id)
        except SandboxGone:
            raise self._gone() from None
        except GitDaytonaError:
            return
        if info.state != "started":
            raise CutShort("the sandbox stopped while this ran") from problem

    def _gone(self) -> CutShort:
        session = self.session
        if self.coordinator.state.get(session.id) is None:
            return home.deleted(session)
        return CutShort(f"the sandbox of session {session.name} was deleted while this ran")

    def _shown(self, news: News) -> None:
        self.show(news.output, news.errors)

    def interrupt(self) -> None:
        """Send Ctrl-C, or kill the second time. Raises KeyboardInterrupt where it cannot."""
        if time.monotonic() < self.deaf_until:
            return
        self.deaf_until = time.monotonic() + TWICE_SECONDS
        self.interrupts += 1
        if not self.command.sandbox_id or self.interrupts > (2 if self.command.joined else 1):
            raise KeyboardInterrupt
        self.reminded = time.monotonic() + REMIND_SECONDS
        name = "INT" if self.interrupts == 1 else "KILL"
        threading.Thread(target=self._signal, args=(name,), daemon=True).start()

    def _signal(self, name: str) -> None:
        with contextlib.suppress(GitDaytonaError):
            self.command.signal(name)

    def _end(self) -> None:
        if self.command.sandbox_id:
            with contextlib.suppress(GitDaytonaError):
                self.command.signal("TERM", end=True)


def place(coordinator: Coordinator, agents: Path | None = None) -> str:
    """Return the sandbox's directory that is as that here where one stands, or an agent works."""
    root = coordinator.worktree
    if root is None:
        return PROJECT
    here = repository.here()
    if agents and not here.is_relative_to(root):
        here = agents.resolve()
    if not here.is_relative_to(root):
        return PROJECT
    path = posixpath.join(PROJECT, here.relative_to(root).as_posix())
    try:
        path.encode()
    except UnicodeEncodeError:  # the API takes no such name
        return PROJECT
    return path


def prepare(
    coordinator: Coordinator,
    name: str,
    command: str,
    place: str,
    *,
    seconds: int,
    merged: bool,
    source: Input,
    show: Show,
) -> tuple[Execution, bool]:
    """Get a command ready, with what of its input is there; tell also whether that is all."""
    session = coordinator.find(name)
    begin, whole = source.read(FIRST_SECONDS, remote_command.BEGIN_BYTES)
    wanted = Wanted(command, place, seconds, merged, begin, whole)
    return Execution(coordinator, session, RemoteCommand(coordinator.cloud, wanted), show), whole
