"""The one place where a child process starts: a tuple of strings, never a shell, always with an end."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from git_daytona.errors import MissingProgram, TimedOut
from git_daytona.secret import redact

GRACE_SECONDS = 3.0
"""Between asking a process group to end and making it."""


@dataclass(frozen=True)
class Result:
    """What came of a command: exit status (negative: the signal, as subprocess has it) and both streams."""

    argv: tuple[str, ...]
    status: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """stdout as text, without the last newline; bytes that are no UTF-8 survive as surrogates (file names)."""
        return self.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")

    @property
    def complaint(self) -> str:
        """stderr as redacted text for messages and the log."""
        return redact(self.stderr.decode("utf-8", "replace")).strip()


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a process started by this module and everything in its group: TERM first, KILL after a moment."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        except PermissionError:  # macOS says so for a group of zombies
            pass
        if number == signal.SIGTERM:
            try:
                process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                continue
    process.wait()


@contextlib.contextmanager
def _term_is_interrupt() -> Iterator[None]:
    """While a child runs in a session of its own, SIGTERM and SIGHUP must reach it through us: turn them into an unwinding."""

    def unwind(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    saved: list[int] = []
    try:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, unwind)
                saved.append(number)
    except ValueError:  # not the main thread: the service has its own handling
        pass
    try:
        yield
    finally:
        for number in saved:
            signal.signal(number, signal.SIG_DFL)


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float,
    stdin: bytes | None = None,
    talk: bool = False,
    pass_fds: Sequence[int] = (),
) -> Result:
    """Run a command and wait for it.

    ``timeout`` in seconds ends the whole process group. ``talk`` leaves stderr to the terminal (git's progress). The command runs in a
    session of its own: no terminal to prompt on, and one group to end. Raises MissingProgram and TimedOut, never for a status.
    """
    with _term_is_interrupt():
        try:
            process = subprocess.Popen(
                tuple(argv),
                env=None if env is None else dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if talk else subprocess.PIPE,
                start_new_session=True,
                pass_fds=tuple(pass_fds),
            )
        except (FileNotFoundError, PermissionError, NotADirectoryError) as problem:
            if cwd is not None and not cwd.is_dir():
                raise MissingProgram(f"the directory '{cwd}' is gone", hint="run this in a directory that exists") from problem
            raise MissingProgram(
                f"cannot run '{argv[0]}': {problem.strerror}", hint=f"install it, or put it on PATH: {argv[0]}"
            ) from problem
        try:
            out, err = process.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired as problem:
            end_group(process)
            raise TimedOut(
                f"'{argv[0]}' did not finish within {timeout:.0f} seconds and was ended",
                hint="check the network, then try again",
                details=redact(" ".join(argv)),
            ) from problem
        except BaseException:  # Ctrl-C, SIGTERM: nothing we started survives us
            end_group(process)
            raise
        finally:
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
    return Result(tuple(argv), process.returncode, out or b"", err or b"")
