"""One process session: a shell that lives from call to call, so that directory and variables last from command to command.

The shell reads its orders from its standard input. Each command is a file that it sources with the standard streams redirected
to named pipes, which the server reads: so outputs stay apart, input can be sent, and a background process of one command does
not write into the log of the next. The pipes lie in ``~/.daytona/sessions`` of the sandbox and are removed with their command.
"""

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field

from git_daytona.local import pipes
from git_daytona.local.commandlog import STDERR, STDOUT, CommandLog
from git_daytona.local.model import ApiError, Isolation, Sandbox
from git_daytona.local.places import changeable
from git_daytona.local.sessionpipes import Streams

FOLDER = ".daytona/sessions"
GRACE = 2.0
"""Seconds that a deleted session's processes get between SIGTERM and SIGKILL."""
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
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the shell was told to run it."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    input: int | None = None
    """Descriptor of the pipe to its standard input, while it runs and is interactive."""
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)


class Session:
    """A running shell and its commands. Made by `Session.start`; `close` ends it."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: int, tidying: ExitStack):
        self.commands: dict[str, Command] = {}
        self._process = process
        self._folder = folder
        self._tidying = tidying
        self._ordering = asyncio.Lock()
        self._running: set[asyncio.Task[None]] = set()
        self._shell = asyncio.create_task(pipes.exit_status(process))
        self.life = asyncio.create_task(self._live())
        """Ends when the shell and its commands have ended and everything of theirs is closed."""

    @classmethod
    async def start(cls, isolation: Isolation, sandbox: Sandbox, shell: str) -> "Session":
        """Start a shell in the sandbox's home directory. Raises ApiError or OSError."""
        name = secrets.token_hex(8)

        def begin() -> tuple["subprocess.Popen[bytes]", int, ExitStack]:
            with ExitStack() as stack:
                with changeable(isolation, sandbox, f"{FOLDER}/{name}/any", parents=True) as place:
                    folder = os.dup(place.parent)
                stack.callback(_remove, isolation, sandbox, f"{FOLDER}/{name}")
                stack.callback(os.close, folder)
                process = isolation.popen(
                    sandbox, [shell], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                assert process.stdin is not None
                os.set_blocking(process.stdin.fileno(), False)
                stack.callback(process.stdin.close)
                return process, folder, stack.pop_all()

        session = cls(*await asyncio.to_thread(begin))
        await session._order(f'__daytona_session="$HOME/{FOLDER}/{name}"; readonly __daytona_session')
        return session

    @property
    def ended(self) -> bool:
        """Whether the shell has gone: by a command that said ``exit``, or with the sandbox."""
        return self._shell.done()

    async def execute(self, command: Command) -> None:
        """Have the shell run a command after those it was given before; returns once it was told."""
        if self.ended:
            raise ApiError(410, "session process has exited", code="SESSION_ENDED")
        number = str(len(self.commands))
        self.commands[command.id] = command
        # From here on the session's end waits for this task, so its directory stays open.
        task = asyncio.create_task(self._run(command, number))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        begun = asyncio.create_task(command.begun.wait())
        await asyncio.wait([begun, task], return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        if task.done():
            task.result()  # a failure to begin is the caller's

    async def send(self, command: Command, data: str) -> None:
        """Send a line to the standard input of a running command."""
        if command.exit_code is not None:
            message = f"command has already completed with exit code {command.exit_code}"
            raise ApiError(410, message, code="COMMAND_ALREADY_COMPLETED")
        if command.input is None:
            raise ApiError(400, "the command was not started asynchronously: it takes no input", code="BAD_REQUEST")
        line = (data if data.endswith("\n") else data + "\n").encode("utf-8", "replace")
        async with command.sending:
            if command.echo:
                command.log.add(STDOUT, line)
            try:
                async with asyncio.timeout(INPUT_PATIENCE):
                    await pipes.write(command.input, line)
            except TimeoutError:
                raise ApiError(408, "the command does not read its input", code="REQUEST_TIMEOUT") from None

    async def close(self) -> None:
        """End the shell and its commands and remove what lies in the sandbox."""
        if not self.ended:
            pipes.kill_group(self._process, signal.SIGTERM)
            await asyncio.wait([self._shell, *self._running], timeout=GRACE)
            pipes.kill_group(self._process)
        for task in self._running:
            task.cancel()  # a process that left the group may hold their pipes open for ever
        await asyncio.wait([self.life])

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

    async def _run(self, command: Command, number: str) -> None:
        """Run one command and keep its log and exit code until its end."""
        code = 1  # as Daytona says of a command whose session was cancelled
        try:
            streams = await asyncio.to_thread(Streams.open, self._folder, number, command.script, interactive=command.interactive)
            try:
                command.input = streams.input
                base = f"$__daytona_session/{number}"
                source = f'"{base}.in"' if command.interactive else "/dev/null"
                await self._order(f'{{ . "{base}.sh"; }} <{source} >"{base}.out" 2>"{base}.err"; echo "$?" >"{base}.status"')
                command.begun.set()
                code = await self._follow(command, streams)
            finally:
                command.input = None
                streams.close()
        finally:
            command.exit_code = code
            command.log.end()
            command.ended.set()

    async def _follow(self, command: Command, streams: Streams) -> int:
        status = asyncio.create_task(pipes.read(streams.status))
        readers = [
            asyncio.create_task(_drain(streams.stdout, command.log, STDOUT)),
            asyncio.create_task(_drain(streams.stderr, command.log, STDERR)),
        ]
        try:
            await asyncio.wait([status, self._shell], return_when=asyncio.FIRST_COMPLETED)
            # A command that ends the shell has the shell's status.
            code = int(await status) if status.done() else max(self._shell.result(), -1)
            streams.release()
            await asyncio.wait(readers)
            return code
        finally:
            for task in (status, *readers):
                task.cancel()
            await asyncio.wait([status, *readers])


async def _drain(fd: int, log: CommandLog, stream: bytes) -> None:
    while data := await pipes.read(fd):
        log.add(stream, data)


def _remove(isolation: Isolation, sandbox: Sandbox, path: str) -> None:
    try:
        with changeable(isolation, sandbox, path) as place:
            shutil.rmtree(place.name, dir_fd=place.parent)
    except (OSError, ApiError):
        pass  # the sandbox has removed it, or is itself gone
