"""The one place where a child process starts: a tuple of strings, never a shell, always with an
end."""

import contextlib
import math
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

from git_daytona.base.errors import MissingProgram, TimedOut
from git_daytona.base.secret import redact

LOOK_SECONDS = 0.05
"""Between two looks at a process whose streams do not tell that it has ended."""
GRACE_SECONDS = 3.0
"""Between asking a process group to end and making it."""
STDOUT_BYTES = 256 * 1024 * 1024
STDERR_BYTES = 64 * 1024
"""How much of a child's stderr is kept: the end of it. A server's endless message must not fill our
memory."""


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
    """What came of a command: exit status (negative: the signal, as subprocess has it) and both
    streams."""

    argv: tuple[str, ...]
    status: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """stdout as text, without the last newline; bytes that are no UTF-8 survive as surrogates
        (file names)."""
        return self.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")

    @property
    def complaint(self) -> str:
        """stderr as redacted text for messages and the log, without progress that was overwritten
        (lines ending in CR)."""
        text = redact(self.stderr.decode("utf-8", "replace"))
        # ssh ends its lines in CR LF, so a CR at the end overwrites nothing.
        lines = (line.rstrip().rsplit("\r", 1)[-1].strip() for line in text.split("\n"))
        return "\n".join(line for line in lines if line)


class _Children:
    """The children of all threads that run() waits for, so that a process that has to end takes
    them along."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._alive: set[subprocess.Popen[bytes]] = set()
        self._ending = False

    def add(self, process: "subprocess.Popen[bytes]") -> None:
        with self._lock:
            self._alive.add(process)
            ending = self._ending
        if ending:
            end_group(process)

    def remove(self, process: "subprocess.Popen[bytes]") -> None:
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


class _Pump(threading.Thread):
    """Reads a stream to its end, keeps at most ``limit`` bytes (the last or the first ones), and
    notes when something came. ``enough`` is called once more than ``most`` bytes have come in
    all."""

    def __init__(
        self, stream: IO[bytes], limit: int, *, keep_end: bool, show: bool = False
    ) -> None:
        super().__init__(daemon=True)
        self.stream, self.limit, self.keep_end, self.show = stream, limit, keep_end, show
        self.most, self.came = math.inf, 0
        self.enough: Callable[[], None] = lambda: None
        self.kept = bytearray()
        self.overflow = False
        self.last = time.monotonic()

    def run(self) -> None:
        with self.stream:
            self._pump()

    def _pump(self) -> None:
        while chunk := os.read(self.stream.fileno(), 65536):
            self.last = time.monotonic()
            if self.came <= self.most < self.came + len(chunk):
                self.enough()
            self.came += len(chunk)
            if self.came > self.most:
                continue
            self.kept += chunk
            if len(self.kept) > self.limit:
                self.overflow = True
                if self.keep_end:
                    del self.kept[: -self.limit]
                else:
                    del self.kept[self.limit :]
            if self.show:
                with contextlib.suppress(OSError, ValueError):
                    sys.stderr.write(_for_terminal(chunk))
                    sys.stderr.flush()


def _for_terminal(chunk: bytes) -> str:
    """git's progress for a terminal. What the sandbox's side says passes through here, so no
    control character but CR and LF does."""
    return "".join(
        c if c in "\r\n" or c.isprintable() else "?"
        for c in redact(chunk.decode("utf-8", "replace"))
    )


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a process started by this module and everything in its group: TERM first, KILL after a
    moment."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        # all gone; macOS says EPERM for a group of zombies
        except (ProcessLookupError, PermissionError):
            pass
        if number == signal.SIGTERM:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_SECONDS)
    # in the kernel, on a dead network file system, not even KILL ends it
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)


class _Unwinding:
    """While a child runs in a session of its own, signals must reach it through us: SIGTERM, SIGHUP
    and Ctrl-C unwind the stack.

    Only between ``arm`` and ``disarm``, however: an exception that interrupted Popen itself, or the
    ending of the group, would leave a child that nobody knows. What comes before is raised by
    ``arm``.
    """

    def __init__(self) -> None:
        self._armed = False
        self._came = 0

    def handle(self, number: int, _frame: FrameType | None) -> None:
        self._came = number
        if self._armed:
            self._unwind()

    def arm(self) -> None:
        self._armed = True
        if self._came:
            self._unwind()

    def disarm(self) -> None:
        self._armed = False

    def _unwind(self) -> None:
        self._armed = False
        raise KeyboardInterrupt if self._came == signal.SIGINT else SystemExit(128 + self._came)


@contextlib.contextmanager
def _signals() -> Iterator[_Unwinding]:
    unwinding = _Unwinding()
    saved: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}
    try:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            handler = signal.getsignal(number)
            if handler in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, unwinding.handle)
                saved[number] = handler
    except ValueError:  # not the main thread: the service has its own handling
        pass
    try:
        yield unwinding
    finally:
        for each, handler in saved.items():
            signal.signal(each, handler)


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
    """Run a command and wait for it. ``env`` is always said: what is inherited by default holds the
    API key.

    The whole process group is ended after ``timeout`` seconds, or after ``idle`` seconds without a
    byte on stdout or stderr. ``show`` copies stderr to ours as it comes (git's progress). The
    command runs in a session of its own: no terminal to prompt on, and one group to end. Raises
    MissingProgram and TimedOut, never for a status.
    """
    with _signals() as unwinding:
        try:
            process = subprocess.Popen(
                tuple(argv),
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=tuple(pass_fds),
            )
        except OSError as problem:
            if cwd is not None and not cwd.is_dir():
                raise MissingProgram(
                    f"the directory '{cwd}' is gone", hint="run this in a directory that exists"
                ) from problem
            raise MissingProgram(
                f"cannot run '{argv[0]}': {problem.strerror}",
                hint=f"install '{argv[0]}' and see that PATH has it",
            ) from problem
        assert process.stdout is not None and process.stderr is not None
        out = _Pump(process.stdout, STDOUT_BYTES, keep_end=False)
        err = _Pump(process.stderr, STDERR_BYTES, keep_end=True, show=show)
        if limits is not None:
            _limit(process, limits)
            err.most, err.enough = limits.talk, lambda: _kill_group(process)
        try:
            unwinding.arm()
            _children.add(process)
            out.start()
            err.start()
            if process.stdin is not None:
                _feed(process.stdin, stdin or b"")
            late = _wait(process, (out, err), timeout, idle)
            unwinding.disarm()
        except BaseException:  # Ctrl-C, SIGTERM: nothing we started survives us
            unwinding.disarm()
            end_group(process)
            raise
        finally:
            _children.remove(process)
            # A grandchild that kept a stream open must not keep us: what was read so far counts.
            # (The pump closes it when it ends.)
            patience = time.monotonic() + GRACE_SECONDS
            for pump in (out, err):
                if pump.ident is not None:
                    pump.join(max(0.0, patience - time.monotonic()))
        if late:
            raise TimedOut(
                f"'{argv[0]}' {late} and was ended",
                hint="check the network, then try again",
                details=redact(" ".join(argv))
                + "\n"
                + redact(bytes(err.kept).decode("utf-8", "replace")),
            )
    if err.came > err.most:
        raise TimedOut(
            f"'{argv[0]}' printed more than {int(err.most) >> 20} MiB of messages and was ended",
            hint="see what the sandbox does: 'git daytona exec N -- ps aux'",
            details=redact(bytes(err.kept).decode("utf-8", "replace")),
        )
    if out.overflow:
        raise TimedOut(
            f"'{argv[0]}' printed more than {STDOUT_BYTES >> 20} MiB",
            hint="this is not expected: please report it",
        )
    return Result(tuple(argv), process.returncode, bytes(out.kept), bytes(err.kept))


def _limit(process: "subprocess.Popen[bytes]", limits: Limits) -> None:
    """Set the limits of a child that has just started; its own children inherit them."""
    prlimit = getattr(resource, "prlimit", None)
    if prlimit is None:
        return
    sizes = (
        (resource.RLIMIT_FSIZE, limits.file),
        (resource.RLIMIT_DATA, limits.memory),
        (resource.RLIMIT_CORE, 0),
    )
    for which, size in sizes:
        # it has ended, or has a lower limit that we may not raise
        with contextlib.suppress(OSError, ValueError):
            prlimit(process.pid, which, (size, size))


def _feed(stream: IO[bytes], data: bytes) -> None:
    def write() -> None:
        with contextlib.suppress(BrokenPipeError), stream:
            stream.write(data)

    if len(data) <= 65536:  # fits into the pipe
        write()
    else:
        threading.Thread(target=write, daemon=True).start()


def _wait(
    process: "subprocess.Popen[bytes]", pumps: Sequence[_Pump], timeout: float, idle: float | None
) -> str | None:
    """Wait for the process; what went wrong if it had to be ended."""
    end = time.monotonic() + timeout
    while not _ended(process, pumps):
        now = time.monotonic()
        if now >= end:
            end_group(process)
            return f"did not finish within {timeout:.0f} seconds"
        if idle is not None and now >= max(pump.last for pump in pumps) + idle:
            end_group(process)
            return f"made no progress for {idle:.0f} seconds"
    return None


def _ended(process: "subprocess.Popen[bytes]", pumps: Sequence[_Pump]) -> bool:
    """Whether the process has ended, after at most a moment.

    The end of its streams tells at once; Popen.wait alone looks now and then, and would oversleep
    as long as most of git's calls take. Streams that are closed early, or that a grandchild keeps
    open, tell nothing.
    """
    for pump in pumps:
        pump.join(LOOK_SECONDS)
        if pump.is_alive():
            return process.poll() is not None
    try:
        process.wait(LOOK_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def foreground(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    stdin: int | None = None,
    pass_fds: Sequence[int] = (),
) -> int:
    """Run a person's own command in the foreground, on the terminal if there is one, and return its
    status (128 + signal).

    ``stdin`` is a descriptor that it reads from instead of ours.

    Signals that reach us are passed on, and we go on waiting: what the caller cleans up afterwards
    is cleaned up. No time limit, it is the person's. Raises MissingProgram.
    """
    early: list[int] = []
    process: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _frame: object) -> None:
        # Ctrl-C reaches the command by itself, through the terminal's process group; a signal to us
        # alone has to be handed on.
        if process is None:
            early.append(number)
        elif number in (signal.SIGTERM, signal.SIGHUP) or not os.isatty(0):
            process.send_signal(number)

    before = {
        number: signal.signal(number, pass_on)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    }
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()  # what we said comes before what the command says
    try:
        try:
            process = subprocess.Popen(
                tuple(argv), env=dict(env), stdin=stdin, pass_fds=tuple(pass_fds)
            )
        except OSError as problem:
            raise MissingProgram(
                f"cannot run '{argv[0]}': {problem.strerror}",
                hint=f"see whether '{argv[0]}' is installed and on PATH",
            ) from problem
        for number in early:
            process.send_signal(number)
        status = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - status if status < 0 else status
