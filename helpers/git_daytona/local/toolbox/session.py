"""One process session: a shell that lives from call to call, so that directory and variables last
from command to command.

The shell reads its orders from its standard input. Each command is a file that it sources with the
standard streams redirected to named pipes, which the server reads: so outputs stay apart, input can
be sent, and a background process of one command does not write into the log of the next. A
command's files lie in ``~/.daytona/sessions/SESSION/COMMAND`` of the sandbox, the pipes as long as
it runs, script, log and exit code until the session is deleted.
"""

import asyncio
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field

from git_daytona.local.core import pipes
from git_daytona.local.core.model import ApiError, Isolation, Program, Sandbox
from git_daytona.local.toolbox.command_log import STDERR, STDOUT, CommandLog
from git_daytona.local.toolbox.places import changeable
from git_daytona.local.toolbox.session_pipes import Streams

FOLDER = ".daytona/sessions"
GRACE = 5.0
"""Seconds that a deleted session's processes get between SIGTERM and SIGKILL."""
BIRTH = 1.0
"""Seconds that a shell may take to be there."""
LOOK = 0.5
"""Seconds after which a call that waits in vain looks whether its sandbox still runs."""
INPUT_PATIENCE = 10.0
"""Seconds that sent input may wait for a command that does not read."""


@dataclass
class Command:
    """One command of a session. ``exit_code`` is None while it runs."""

    text: str
    script: bytes
    """The text as the shell gets it."""
    interactive: bool
    """Whether it waits for input that is sent; others find their input empty."""
    echo: bool
    """Whether sent input is shown in the log."""
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    log: CommandLog = field(default_factory=CommandLog)
    exit_code: int | None = None
    cancelled: bool = False
    """Its session was ended before it had ended by itself."""
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the shell was told to run it."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    input: int | None = None
    """Descriptor of the pipe to its standard input, while it runs and is interactive."""
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)


class Session:
    """A running shell and its commands. Made by `Session.start`; `close` ends it."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", folder: int, tidying: ExitStack, place: "Place"
    ):
        self.commands: dict[str, Command] = {}
        self._place = place
        self._cancelled = asyncio.Event()
        self._process = process
        self._folder = folder
        self._tidying = tidying
        self._ordering = asyncio.Lock()
        self._running: set[asyncio.Task[None]] = set()
        self._shell = asyncio.create_task(pipes.exit_status(process))
        self.life = asyncio.create_task(self._live())
        """Ends when the shell and its commands have ended and everything of theirs is closed."""

    @classmethod
    async def start(
        cls, isolation: Isolation, sandbox: Sandbox, shell: str, wanted: str, *, refuses: bool
    ) -> "Session":
        """Start a shell in the sandbox's home directory. Raises ApiError or OSError.

        ``wanted`` names its folder, if it can; ``refuses``: whether it refuses commands when the
        shell has ended.
        """
        name = (
            wanted
            if re.fullmatch(r"[^/\0]{1,200}", wanted) and wanted not in (".", "..")
            else secrets.token_hex(8)
        )
        place = Place(isolation, sandbox, f"{FOLDER}/{name}", refuses)

        def begin() -> tuple["subprocess.Popen[bytes]", int, ExitStack]:
            with ExitStack() as stack:
                with changeable(isolation, sandbox, f"{place.folder}/any", parents=True) as entry:
                    folder = os.dup(entry.parent)
                stack.callback(os.close, folder)
                nothing = subprocess.DEVNULL
                command = Program([shell], stdin=subprocess.PIPE, stdout=nothing, stderr=nothing)
                process = isolation.popen(sandbox, command)
                assert process.stdin is not None
                os.set_blocking(process.stdin.fileno(), False)
                stack.callback(process.stdin.close)
                return process, folder, stack.pop_all()

        session = cls(*await asyncio.to_thread(begin), place)
        await session._order(
            f'__daytona_session="$HOME"/{shlex.quote(place.folder)}; readonly __daytona_session'
        )
        return session

    @property
    def ended(self) -> bool:
        """Whether the shell has gone: by a command that said ``exit``, or with the sandbox."""
        return self._shell.done()

    async def execute(self, command: Command) -> None:
        """Have the shell run a command after those it was given before; returns once it was
        told."""
        if self.ended and self._place.refuses:
            raise ApiError(410, "session process has exited", code="SESSION_ENDED")
        self.commands[command.id] = command
        if self.ended:
            command.begun.set()  # written to nobody, who will never say how it ended
            return
        # From here on the session's end waits for this task, so its directory stays open.
        task = asyncio.create_task(self._run(command))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        begun = asyncio.create_task(command.begun.wait())
        await asyncio.wait([begun, task], return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        if task.done():
            task.result()  # a failure to begin is the caller's

    async def result(self, command: Command) -> int:
        """Wait for the exit code; ApiError(500) when the session is deleted before there is one."""
        ended, cancelled = (
            asyncio.create_task(command.ended.wait()),
            asyncio.create_task(self._cancelled.wait()),
        )
        try:
            while not ended.done() and not cancelled.done():
                await asyncio.wait(
                    [ended, cancelled], timeout=LOOK, return_when=asyncio.FIRST_COMPLETED
                )
                # nobody tells a session that has lost its shell before
                if self._place.sandbox.state != "started":
                    self._cancelled.set()
        finally:
            ended.cancel()
            cancelled.cancel()
        if self._place.sandbox.state != "started":
            raise ApiError(502, "the sandbox was stopped while the command ran")
        if command.exit_code is None or command.cancelled:
            raise ApiError(500, "failed to execute command: bad request: session cancelled")
        return command.exit_code

    async def send(self, command: Command, data: str) -> None:
        """Send a line to the standard input of a running command."""
        if command.exit_code is not None:
            message = f"command has already completed with exit code {command.exit_code}"
            raise ApiError(410, message, code="COMMAND_ALREADY_COMPLETED")
        if command.input is None:
            raise ApiError(
                400,
                "the command was not started asynchronously: it takes no input",
                code="BAD_REQUEST",
            )
        line = (data if data.endswith("\n") else data + "\n").encode("utf-8", "replace")
        async with command.sending:
            if command.echo:
                command.log.echo(line)
            try:
                async with asyncio.timeout(INPUT_PATIENCE):
                    await pipes.write(command.input, line)
            except TimeoutError:
                raise ApiError(
                    408, "the command does not read its input", code="REQUEST_TIMEOUT"
                ) from None

    async def close(self) -> None:
        """End the shell and its commands and remove what lies in the sandbox."""
        self._cancelled.set()
        if not self.ended:
            await asyncio.to_thread(self._await_shell)
            await asyncio.to_thread(self._signal, signal.SIGTERM)
            await asyncio.wait([self._shell, *self._running], timeout=GRACE)
            if not self.ended:  # else its number may be another process's by now
                await asyncio.to_thread(self._signal, signal.SIGKILL)
            pipes.kill_group(self._process)
        for task in self._running:
            task.cancel()  # a process that left the group may hold their pipes open for ever
        await asyncio.wait([self.life])
        await asyncio.to_thread(_remove, self._place)

    def _await_shell(self) -> None:
        """Wait until a session that was just made has its shell: what is not there cannot be asked
        to end."""
        deadline = time.monotonic() + BIRTH
        while not self._family() and self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)

    def _family(self) -> list[int]:
        # What stands between the server and an isolated sandbox is not asked to end: it would take
        # the shell along at once.
        spared = self._process.pid if self._place.isolation.isolates else None
        return [pid for pid in pipes.family(self._process.pid) if pid != spared]

    def _signal(self, number: signal.Signals) -> None:
        """Signal the shell, its process group and its descendants. One that has a session of its
        own and no parent is spared."""
        for pid in self._family():
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                pass  # it has just ended, or became another user's

    async def _live(self) -> None:
        try:
            await asyncio.wait([self._shell])
            while self._running:
                await asyncio.wait(self._running)
        finally:
            if self._process.poll() is None:
                pipes.kill_group(self._process)
                self._process.wait()  # at once, after SIGKILL
            tasks = [self._shell, *self._running]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await asyncio.to_thread(self._tidying.close)

    async def _order(self, line: str) -> None:
        assert self._process.stdin is not None
        async with self._ordering:
            await pipes.write(self._process.stdin.fileno(), line.encode() + b"\n")

    async def _run(self, command: Command) -> None:
        """Run one command and keep its log and exit code until its end."""
        code: int | None = 1  # as Daytona says of a command whose session was cancelled
        command.cancelled = True
        try:
            streams = await asyncio.to_thread(
                Streams.open,
                self._folder,
                command.id,
                command.script,
                interactive=command.interactive,
            )
            try:
                command.input, command.log.file = streams.input, streams.log
                base = f"$__daytona_session/{command.id}"
                source = f'"{base}/input.pipe"' if command.interactive else "/dev/null"
                await self._order(
                    f'{{ . "{base}/cmd.sh"; }} <{source} >"{base}/stdout.pipe" '
                    f'2>"{base}/stderr.pipe"; echo "$?" >"{base}/status.pipe"'
                )
                command.begun.set()
                code = await self._follow(command, streams)
                command.cancelled = False
                command.log.end()
                if code is not None:
                    streams.tell(code)
            finally:
                command.input = command.log.file = None
                streams.close()
        finally:
            command.exit_code = code
            command.log.end()
            if code is not None:
                command.ended.set()

    async def _follow(self, command: Command, streams: Streams) -> int | None:
        """Read the command's output to its end. None: the command ended the shell, and nobody says
        so."""
        status = asyncio.create_task(pipes.read(streams.status))
        readers = [
            asyncio.create_task(_drain(streams.stdout, command.log, STDOUT)),
            asyncio.create_task(_drain(streams.stderr, command.log, STDERR)),
        ]
        try:
            await asyncio.wait([status, self._shell], return_when=asyncio.FIRST_COMPLETED)
            code = int(await status) if status.done() else self._last_words()
            streams.release()
            await asyncio.wait(readers)
            return code
        finally:
            for task in (status, *readers):
                task.cancel()
            await asyncio.wait([status, *readers])

    def _last_words(self) -> int | None:
        """The status of a command that ended the shell: the shell's, where it can be had."""
        return max(self._shell.result(), -1) if self._place.refuses else None


@dataclass(frozen=True)
class Place:
    """Where a session lives."""

    isolation: Isolation
    sandbox: Sandbox
    folder: str
    """Of its commands, below the home directory."""
    refuses: bool
    """Whether it refuses commands once its shell has ended; else they wait until it is deleted."""


async def _drain(fd: int, log: CommandLog, stream: bytes) -> None:
    while data := await pipes.read(fd):
        log.add(stream, data)


def _remove(place: Place) -> None:
    try:
        with changeable(place.isolation, place.sandbox, place.folder) as entry:
            shutil.rmtree(entry.name, dir_fd=entry.parent)
    except (OSError, ApiError):
        pass  # the sandbox has removed it, or is itself gone
