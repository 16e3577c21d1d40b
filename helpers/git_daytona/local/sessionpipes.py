"""The named pipes between the server and one command of a session.

The server holds an own writing end of each output until the command has ended: a pipe that has had no writer yet would read as
ended, on some systems. All are opened by name relative to the session's directory, never through a link, and never blocking.
"""

import os
import stat
from contextlib import ExitStack
from dataclasses import dataclass

NOFOLLOW = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class Streams:
    """Descriptors of the server's ends."""

    stdout: int
    stderr: int
    status: int
    """Gets the exit status as a line of text."""
    input: int | None
    """To the standard input of an interactive command."""
    _outputs: ExitStack
    """The writing ends of the outputs."""
    _all: ExitStack

    @classmethod
    def open(cls, folder: int, name: str, script: bytes, *, interactive: bool) -> "Streams":
        """Write the script and make the pipes ``name.*`` in the directory with this descriptor; OSError."""
        with ExitStack() as stack:
            outputs = stack.enter_context(ExitStack())

            def make(kind: str) -> str:
                os.mkfifo(f"{name}.{kind}", 0o600, dir_fd=folder)
                stack.callback(_unlink, f"{name}.{kind}", folder)
                return f"{name}.{kind}"

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

            fd = os.open(f"{name}.sh", os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW, 0o600, dir_fd=folder)
            stack.callback(_unlink, f"{name}.sh", folder)
            with os.fdopen(fd, "wb") as file:
                file.write(script + b"\n")
            stdout, stderr = output("out"), output("err")
            status = end(make("status"), os.O_RDWR, stack)
            # Both ends: the command finds its input open, and not ended, as long as it runs.
            writing = end(make("in"), os.O_RDWR, stack) if interactive else None
            return cls(stdout, stderr, status, writing, outputs, stack.pop_all())

    def release(self) -> None:
        """Let the outputs end as soon as no process of the sandbox holds them."""
        self._outputs.close()

    def close(self) -> None:
        """Close what is open and remove the files."""
        self._all.close()


def _unlink(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass  # the sandbox may tidy up what it likes
