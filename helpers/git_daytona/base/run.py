"""The one place where a child process starts: a tuple of strings, no shell, always with an end."""

import contextlib
import math
import os
import resource
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from git_daytona.base import inherited, messages, progress, signals
from git_daytona.base.errors import MissingProgram, TimedOut
from git_daytona.base.secret import redact

if TYPE_CHECKING:
    import asyncio

LOOK_SECONDS = 0.05
"""Between two looks at a process that says nothing."""
GRACE_SECONDS = 3.0
"""Between asking a process group to end and making it."""
STDOUT_BYTES = 256 * 1024 * 1024
STDERR_BYTES = 64 * 1024
"""How much of a child's stderr is kept: the end of it. An endless message must not fill memory."""

Process = subprocess.Popen[bytes]


@dataclass(frozen=True)
class Limits:
    """What a command that listens to a stranger may use, in bytes: all it says on stderr, any file
    it writes, the data of each of its processes (mapped files not counted). The last two where the
    system can set them for a child (Linux)."""

    talk: int
    file: int
    memory: int


@dataclass(frozen=True)
class Result:
    """What came of a command: exit status (negative: the signal, as subprocess has it), streams."""

    status: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """stdout without the last newline; bytes that are not UTF-8 survive as surrogates."""
        return self.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")

    @property
    def complaint(self) -> str:
        """stderr, redacted, without progress that was overwritten (lines ending in CR)."""
        text = redact(self.stderr.decode("utf-8", "replace"))
        # ssh ends its lines in CR LF, so a CR at the end overwrites nothing.
        lines = (line.rstrip().rsplit("\r", 1)[-1].strip() for line in text.split("\n"))
        return "\n".join(line for line in lines if line)


# -- the end of a process --------------------------------------------------------------------------


_alive: set[Process] = set()
"""The children of all threads, so that a process that has to end takes them along."""
_ending = threading.Event()


def end_all() -> None:
    """End every child of run() in any thread, and each new one: this process is about to end."""
    _ending.set()
    for process in list(_alive):
        end_group(process)


def end_group(process: Process) -> None:
    """End a process that was started here and all of its group: TERM first, KILL after a moment."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        # all gone; macOS says EPERM for a group of zombies
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        # in the kernel, on a dead network file system, not even KILL ends it
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)


@contextlib.contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """Note SIGTERM, SIGHUP and Ctrl-C while a child runs in a session of its own, and raise the
    first when the block has ended: an exception within Popen, or within the ending of the group,
    would leave a child that nobody knows."""
    came: list[int] = []
    # in other threads than the main one nothing can be: the service has its own handling
    main = threading.current_thread() is threading.main_thread()
    ours = (signal.SIG_DFL, signal.default_int_handler)
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    handled = [each for each in numbers if main and signal.getsignal(each) in ours]
    with signals.handling(handled, came.append):
        yield came
    if came:
        raise KeyboardInterrupt if came[0] == signal.SIGINT else SystemExit(128 + came[0])


# -- commands of ours ------------------------------------------------------------------------------


def _start(argv: Sequence[str], env: Mapping[str, str], cwd: Path | None, **how: Any) -> Process:
    try:
        return subprocess.Popen(tuple(argv), env=dict(env), cwd=cwd, **how)
    except OSError as problem:
        if cwd is not None and not cwd.is_dir():
            raise MissingProgram(
                f"the directory '{cwd}' is gone", hint="run this in a directory that exists"
            ) from problem
        hint = f"install '{argv[0]}' and see that PATH has it"
        raise MissingProgram(f"cannot run '{argv[0]}': {problem.strerror}", hint=hint) from problem


def leave_running(argv: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> None:
    """Start a command that goes on when we have ended, in a session of its own, silently."""
    nothing = subprocess.DEVNULL
    _start(argv, env, cwd, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    timeout: float,
    idle: float = math.inf,
    stdin: bytes | IO[bytes] | None = None,
    show: bool = False,
    pass_fds: Sequence[int] = (),
    limits: Limits | None = None,
) -> Result:
    """Run a command and wait for it. ``env`` has no default: ours holds the API key.

    The whole process group is ended after ``timeout`` seconds, or after ``idle`` seconds without a
    byte on stdout or stderr. ``show`` copies stderr to ours as it comes (git's progress). The
    command runs in a session of its own: no terminal to prompt on, and one group to end. Raises
    MissingProgram and TimedOut, never for a status.
    """
    with _noted_signals() as came, contextlib.ExitStack() as pipes:
        process = _start(
            argv,
            env,
            cwd,
            stdin=subprocess.PIPE if isinstance(stdin, bytes) else stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=tuple(pass_fds),
        )
        for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
            pipes.enter_context(pipe)
        talk = limits.talk if limits else math.inf
        out = _Output(argv[0], process.stdout, STDOUT_BYTES, STDOUT_BYTES)
        err = _Output(argv[0], process.stderr, STDERR_BYTES, talk, show)
        _alive.add(process)  # before the look at _ending, which end_all() sets before its own
        begun = time.monotonic()
        try:
            _limit(process, limits)
            for _ in _exchange(process, stdin if isinstance(stdin, bytes) else b"", out, err):
                if came or _ending.is_set():
                    end_group(process)
                    break
                _check_time(process, argv[0], begun, timeout, max(out.last, err.last), idle)
        except BaseException as problem:  # a limit, say: nothing that was started here survives
            end_group(process)
            if not isinstance(problem, TimedOut):
                raise
            said = err.kept.decode(errors="replace")
            raise problem.but(details=redact(f"{' '.join(argv)}\n{said}")) from None
        finally:
            _alive.discard(process)
    return Result(process.returncode, bytes(out.kept), bytes(err.kept))


def _limit(process: Process, limits: Limits | None) -> None:
    """Set the limits of a child that has just started; its own children inherit them."""
    prlimit = getattr(resource, "prlimit", None)
    if prlimit and limits:
        sizes = {"RLIMIT_FSIZE": limits.file, "RLIMIT_DATA": limits.memory, "RLIMIT_CORE": 0}
        for which, size in sizes.items():
            # it has ended, or has a lower limit that we may not raise
            with contextlib.suppress(OSError, ValueError):
                prlimit(process.pid, getattr(resource, which), (size, size))


class _Output:
    """What a child prints on one stream, at most ``most`` bytes: the last ``limit`` of them."""

    def __init__(
        self, program: str, pipe: IO[bytes] | None, limit: int, most: float, show: bool = False
    ) -> None:
        assert pipe is not None
        self.program, self.pipe, self.limit, self.most, self.show = program, pipe, limit, most, show
        self.came, self.kept, self.last = 0, bytearray(), time.monotonic()

    def read(self) -> bool:
        """Take what has come; False at the end of the stream. Raises TimedOut for too much."""
        chunk = os.read(self.pipe.fileno(), 65536)
        self.came, self.last = self.came + len(chunk), time.monotonic()
        self.kept += chunk
        del self.kept[: -self.limit]
        if self.show and chunk:
            progress.give_way()
            messages.git_progress(chunk)
        if self.came > self.most:
            raise TimedOut(
                f"'{self.program}' printed more than {int(self.most) >> 20} MiB and was ended",
                hint="see what the sandbox does: 'git daytona exec N -- ps aux'",
            )
        return bool(chunk)


def _exchange(process: Process, stdin: bytes, *outputs: _Output) -> Iterator[None]:
    """Feed and read the child until it ends, whoever keeps its streams; yield at each look."""
    rest = memoryview(stdin)

    def feed() -> bool:
        """Write what the pipe takes; False when there is nothing more to write."""
        nonlocal rest
        assert process.stdin is not None
        try:
            rest = rest[os.write(process.stdin.fileno(), rest) :]
        except BrokenPipeError:  # a child that does not read is no error
            return False
        return bool(rest)

    with selectors.DefaultSelector() as selector:
        for output in outputs:
            selector.register(output.pipe, selectors.EVENT_READ, output.read)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdin, selectors.EVENT_WRITE, feed)
        patience = math.inf
        while selector.get_map() and time.monotonic() < patience:
            for key, _ in selector.select(LOOK_SECONDS):
                if not key.data():
                    selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
            if process.poll() is not None:
                patience = min(patience, time.monotonic() + GRACE_SECONDS)
            yield
    while process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_SECONDS)
        yield


def _check_time(
    process: Process, program: str, begun: float, timeout: float, last: float, idle: float
) -> None:
    now, hint = time.monotonic(), "check the network, then try again"
    if process.returncode is not None:
        return
    if now >= begun + timeout:
        raise TimedOut(
            f"'{program}' did not finish within {timeout:.0f} seconds and was ended", hint=hint
        )
    if now >= last + idle:
        raise TimedOut(
            f"'{program}' made no progress for {idle:.0f} seconds and was ended", hint=hint
        )


async def beside(
    argv: Sequence[str], env: Mapping[str, str], **streams: Any
) -> "asyncio.subprocess.Process":
    """Start a command whose streams an event loop serves; the caller ends it. No Ctrl-C of a
    terminal reaches it. Raises OSError."""
    import asyncio  # not at the top: it takes long to load

    return await asyncio.create_subprocess_exec(
        *argv, env=dict(env), start_new_session=True, **streams
    )


# -- a person's own commands -----------------------------------------------------------------------

FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH)
PASSED_ON = (*FROM_TERMINAL, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def foreground(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    stdin: int | None = None,
    pass_fds: Sequence[int] = (),
) -> int:
    """Run a person's own command in the foreground, on the terminal if there is one, and return its
    status (128 + signal). ``stdin`` is a descriptor that it reads from instead of ours.

    Signals that reach us are passed on, and we go on waiting: what the caller cleans up afterwards
    is cleaned up. No time limit, it is the person's. Raises MissingProgram.
    """
    early: list[int] = []
    process: Process | None = None

    def pass_on(number: int) -> None:
        # Ctrl-C reaches the command by itself, through the terminal's process group; a signal to us
        # alone has to be handed on.
        if number in FROM_TERMINAL and _has_terminal():
            return
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)

    with signals.handling(PASSED_ON, pass_on):
        progress.give_way()
        with inherited.passed_on():
            process = _start(argv, env, None, stdin=stdin, pass_fds=tuple(pass_fds))
        for number in early:
            process.send_signal(number)
        status = process.wait()
    return 128 - status if status < 0 else status


def _has_terminal() -> bool:
    """Whether the terminal sends its signals to our process group, and so to our commands."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
