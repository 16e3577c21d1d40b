"""The one place where a child process starts: a tuple of strings, never a shell, always with an
end."""

import contextlib
import math
import os
import resource
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

from git_daytona.base import messages, progress
from git_daytona.base.errors import MissingProgram, TimedOut
from git_daytona.base.secret import redact

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

    argv: tuple[str, ...]
    status: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """stdout without the last newline; bytes that are not UTF-8 survive as surrogates."""
        return self.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")

    @property
    def complaint(self) -> str:
        """stderr as redacted text for messages and the log, without progress that was overwritten
        (lines ending in CR)."""
        text = redact(self.stderr.decode("utf-8", "replace"))
        # ssh ends its lines in CR LF, so a CR at the end overwrites nothing.
        lines = (line.rstrip().rsplit("\r", 1)[-1].strip() for line in text.split("\n"))
        return "\n".join(line for line in lines if line)


# -- the end of a process --------------------------------------------------------------------------


def end_group(process: Process) -> None:
    """End a process that was started here and all of its group: TERM first, KILL after a moment."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        # all gone; macOS says EPERM for a group of zombies
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        # in the kernel, on a dead network file system, not even KILL ends it
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)


class _Children:
    """The children of all threads, so that a process that has to end takes them along."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._alive: set[Process] = set()
        self._ending = False

    @contextlib.contextmanager
    def holding(self, process: Process) -> Iterator[None]:
        with self._lock:
            self._alive.add(process)
            ending = self._ending
        try:
            if ending:
                end_group(process)
            yield
        finally:
            with self._lock:
                self._alive.discard(process)

    def end(self) -> None:
        with self._lock:
            self._ending = True
            alive = list(self._alive)
        for process in alive:
            end_group(process)


_children = _Children()


def end_all() -> None:
    """End every child that run() has started in any thread, and from now on each new one at once:
    this process is about to end."""
    _children.end()


class _Signals:
    """While a child runs in a session of its own, signals must reach it through us: SIGTERM, SIGHUP
    and Ctrl-C unwind the stack.

    Only while armed, however: an exception that interrupted Popen itself, or the ending of the
    group, would leave a child that nobody knows. What comes before is raised by ``arm``.
    """

    def __init__(self) -> None:
        self._armed, self._came = False, 0

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._came = number
        if self._armed:
            self.arm()

    def arm(self) -> None:
        self._armed = not self._came
        if self._came:
            raise KeyboardInterrupt if self._came == signal.SIGINT else SystemExit(128 + self._came)

    def disarm(self) -> None:
        self._armed = False

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        # in other threads than the main one nothing can be: the service has its own handling
        main = threading.current_thread() is threading.main_thread()
        ours = (signal.SIG_DFL, signal.default_int_handler)
        numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
        with _handling([n for n in numbers if main and signal.getsignal(n) in ours], self._handle):
            yield


@contextlib.contextmanager
def _handling(
    numbers: Sequence[signal.Signals], handle: Callable[[int, FrameType | None], Any]
) -> Iterator[None]:
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -- commands of ours ------------------------------------------------------------------------------


def _start(argv: Sequence[str], env: Mapping[str, str], cwd: Path | None, **how: Any) -> Process:
    try:
        return subprocess.Popen(tuple(argv), env=dict(env), cwd=cwd, **how)
    except OSError as problem:
        if cwd is not None and not cwd.is_dir():
            raise MissingProgram(
                f"the directory '{cwd}' is gone", hint="run this in a directory that exists"
            ) from problem
        raise MissingProgram(
            f"cannot run '{argv[0]}': {problem.strerror}",
            hint=f"install '{argv[0]}' and see that PATH has it",
        ) from problem


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    timeout: float,
    idle: float | None = None,
    stdin: bytes | None = None,
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
    signals = _Signals()
    with signals.installed(), contextlib.ExitStack() as pipes:
        process = _start(
            argv,
            env,
            cwd,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=tuple(pass_fds),
        )
        exchange = _Exchange(argv, process, limits.talk if limits else math.inf, show)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipes.enter_context(pipe)
        try:
            with _children.holding(process):
                signals.arm()
                if limits is not None:
                    _limit(process, limits)
                exchange.attend(stdin or b"", timeout, idle)
                signals.disarm()
        except BaseException:  # Ctrl-C, a limit: nothing that was started here survives
            signals.disarm()
            end_group(process)
            raise
    out, err = bytes(exchange.out.kept), bytes(exchange.err.kept)
    return Result(tuple(argv), process.returncode, out, err)


def _limit(process: Process, limits: Limits) -> None:
    """Set the limits of a child that has just started; its own children inherit them."""
    sizes = {"RLIMIT_FSIZE": limits.file, "RLIMIT_DATA": limits.memory, "RLIMIT_CORE": 0}
    if prlimit := getattr(resource, "prlimit", None):
        for which, size in sizes.items():
            # it has ended, or has a lower limit that we may not raise
            with contextlib.suppress(OSError, ValueError):
                prlimit(process.pid, getattr(resource, which), (size, size))


class _Stream:
    """What a child says on a stream: its last ``limit`` bytes, of at most ``most`` in all."""

    def __init__(self, pipe: IO[bytes] | None, limit: int, most: float, show: bool) -> None:
        assert pipe is not None
        self.pipe, self.limit, self.most, self.show = pipe, limit, most, show
        self.came, self.kept, self.last = 0, bytearray(), time.monotonic()

    def read(self) -> bool:
        """Take what has come; False at the end of the stream."""
        chunk = os.read(self.pipe.fileno(), 65536)
        self.came, self.last = self.came + len(chunk), time.monotonic()
        self.kept += chunk
        del self.kept[: -self.limit]
        if self.show and chunk:
            progress.give_way()
            messages.git_progress(chunk)
        return bool(chunk)


class _Exchange:
    """A child and what goes in and comes out of it, at most ``talk`` bytes on stderr."""

    def __init__(self, argv: Sequence[str], process: Process, talk: float, show: bool) -> None:
        self.argv, self.process = argv, process
        self.out = _Stream(process.stdout, STDOUT_BYTES, STDOUT_BYTES, show=False)
        self.err = _Stream(process.stderr, STDERR_BYTES, talk, show)

    def attend(self, stdin: bytes, timeout: float, idle: float | None) -> None:
        """Feed and read the child until it has ended. Raises TimedOut if it takes too long or says
        too much. A grandchild that keeps a stream open does not keep us: what was read counts."""
        end = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            for stream in (self.out, self.err):
                selector.register(stream.pipe, selectors.EVENT_READ, stream.read)
            if self.process.stdin is not None:
                os.set_blocking(self.process.stdin.fileno(), False)
                feed = _feeder(self.process.stdin.fileno(), stdin)
                selector.register(self.process.stdin, selectors.EVENT_WRITE, feed)
            pipes = selector.get_map()  # those that are open
            patience = math.inf
            while self.process.poll() is None or (pipes and time.monotonic() < patience):
                if self.process.returncode is not None:
                    patience = min(patience, time.monotonic() + GRACE_SECONDS)
                if not pipes:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self.process.wait(LOOK_SECONDS)
                for key, _ in selector.select(LOOK_SECONDS) if pipes else ():
                    if not key.data():
                        selector.unregister(key.fileobj)
                        key.fileobj.close()  # type: ignore[union-attr]
                self._check(end, timeout, idle)

    def _check(self, end: float, timeout: float, idle: float | None) -> None:
        program, hint, now = self.argv[0], "check the network, then try again", time.monotonic()
        if self.err.came > self.err.most:
            raise TimedOut(
                f"'{program}' printed more than {int(self.err.most) >> 20} MiB of messages"
                " and was ended",
                hint="see what the sandbox does: 'git daytona exec N -- ps aux'",
                details=self._details(),
            )
        if self.out.came > self.out.most:
            raise TimedOut(
                f"'{program}' printed more than {STDOUT_BYTES >> 20} MiB and was ended",
                hint="this is not expected: please report it",
            )
        if self.process.returncode is not None:
            return
        if now >= end:
            raise TimedOut(
                f"'{program}' did not finish within {timeout:.0f} seconds and was ended",
                hint=hint,
                details=self._details(),
            )
        if idle is not None and now >= max(self.out.last, self.err.last) + idle:
            raise TimedOut(
                f"'{program}' made no progress for {idle:.0f} seconds and was ended",
                hint=hint,
                details=self._details(),
            )

    def _details(self) -> str:
        return redact(" ".join(self.argv) + "\n" + self.err.kept.decode("utf-8", "replace"))


def _feeder(descriptor: int, data: bytes) -> Callable[[], bool]:
    rest = memoryview(data)

    def feed() -> bool:
        """Write what the pipe takes; False when there is nothing more to write."""
        nonlocal rest
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BrokenPipeError:  # a child that does not read is no error
            return False
        return bool(rest)

    return feed


# -- a person's own commands -----------------------------------------------------------------------


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

    def pass_on(number: int, _frame: object) -> None:
        # Ctrl-C reaches the command by itself, through the terminal's process group; a signal to us
        # alone has to be handed on.
        if process is None:
            early.append(number)
        elif number in (signal.SIGTERM, signal.SIGHUP) or not os.isatty(0):
            process.send_signal(number)

    handled = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    with _handling(handled, pass_on):
        progress.give_way()
        process = _start(argv, env, None, stdin=stdin, pass_fds=tuple(pass_fds))
        for number in early:
            process.send_signal(number)
        status = process.wait()
    return 128 - status if status < 0 else status
