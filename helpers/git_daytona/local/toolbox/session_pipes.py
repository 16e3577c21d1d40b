"""The folder of one command of a session: its script, its log and exit code, and the named pipes to
the server while it runs.

The server holds an own writing end of each output until the command has ended: a pipe that has had
no writer yet would read as ended, on some systems. All are opened by name relative to the command's
directory, never through a link, and never blocking.
"""

import os
import stat
from contextlib import ExitStack
from dataclasses import dataclass

NOFOLLOW = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW


@dataclass
class Streams:
    """Descriptors of the server's ends."""

    stdout: int
    stderr: int
    status: int
    """Gets the exit status as a line of text."""
    input: int | None
    """To the standard input of an interactive command."""
    log: int
    """The log that the sandbox can read."""
    _folder: int
    _outputs: ExitStack
    """The writing ends of the outputs."""
    _all: ExitStack

    @classmethod
    def open(cls, session: int, name: str, script: bytes, *, interactive: bool) -> "Streams":
        """Make the folder ``name`` in the session's (of this descriptor), with the script and the
        pipes; OSError."""
        with ExitStack() as stack:
            os.mkdir(name, 0o755, dir_fd=session)
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | NOFOLLOW, dir_fd=session)
            stack.callback(os.close, folder)
            outputs = stack.enter_context(ExitStack())

            def make(kind: str) -> str:
                os.mkfifo(f"{kind}.pipe", 0o600, dir_fd=folder)
                stack.callback(_unlink, f"{kind}.pipe", folder)
                return f"{kind}.pipe"

            def end(file: str, flags: int, owner: ExitStack) -> int:
                fd = os.open(file, flags | NOFOLLOW, dir_fd=folder)
                owner.callback(os.close, fd)
                if not stat.S_ISFIFO(os.fstat(fd).st_mode):
                    raise FileExistsError(f"{file} was replaced")
                return fd

            def output(kind: str) -> int:
                file = make(kind)
                reading = end(file, os.O_RDONLY, stack)
                end(file, os.O_WRONLY, outputs)
                return reading

            fd = os.open("cmd.sh", NEW, 0o600, dir_fd=folder)
            with os.fdopen(fd, "wb") as file:
                file.write(script + b"\n")
            log = os.open("output.log", NEW | os.O_APPEND, 0o644, dir_fd=folder)
            stack.callback(os.close, log)
            stdout, stderr = output("stdout"), output("stderr")
            status = end(make("status"), os.O_RDWR, stack)
            # Both ends: the command finds its input open, and not ended, as long as it runs.
            writing = end(make("input"), os.O_RDWR, stack) if interactive else None
            return cls(stdout, stderr, status, writing, log, folder, outputs, stack.pop_all())

    def release(self) -> None:
        """Let the outputs end as soon as no process of the sandbox holds them."""
        self._outputs.close()

    def tell(self, code: int) -> None:
        """Write the exit code beside the log."""
        try:
            with os.fdopen(os.open("exit_code", NEW, 0o644, dir_fd=self._folder), "w") as file:
                file.write(f"{code}\n")
        except OSError:
            pass  # the sandbox has put something of its own there, or removed the folder

    def close(self) -> None:
        """Close what is open and remove the pipes."""
        self._all.close()


def _unlink(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass  # the sandbox may tidy up what it likes
