"""What ``daytona-ssh`` reports of a connection, over a pipe that nothing else can write to.

git's stderr has it, too, for people; but there the sandbox has its say as well (a refusal of git's
server may be of many lines), and what is done next must not hang on whose words look like whose.
"""

import contextlib
import os
from dataclasses import dataclass

from git_daytona.base.secret import redact

MOST = 65536
"""Bytes of all records: what a pipe holds anyway."""


@dataclass(frozen=True)
class ConnectionEnd:
    """The end of the last connection, as ssh.py's _Report writes it; all empty without a report.

    ``entry`` is that of the error (base/errors.py), empty where the remote command came to its end,
    whatever its status; ``stderr`` the ssh client's own, redacted.
    """

    entry: str = ""
    message: str = ""
    hint: str = ""
    stderr: str = ""


def read(records: bytes) -> ConnectionEnd:
    """Read the last end among the records."""
    fields = records.decode("utf-8", "replace").split("\0")
    ends = [at for at, field in enumerate(fields[:-5]) if field == "ended"]
    if not ends:
        return ConnectionEnd()
    entry, message, hint, stderr = fields[ends[-1] + 1 : ends[-1] + 5]
    return ConnectionEnd(entry, message, hint, redact(stderr.replace("\r\n", "\n")))


class ReportPipe:
    """The pipe. ``writing`` is for the child; ``close_writing`` once it has ended."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()

    def close(self) -> None:
        self.close_writing()
        os.close(self._reading)

    def close_writing(self) -> None:
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def end(self) -> ConnectionEnd:
        """Read what has been reported so far."""
        # a process that nobody knows of may still hold the other end
        os.set_blocking(self._reading, False)
        records = b""
        with contextlib.suppress(BlockingIOError):
            while len(records) < MOST and (data := os.read(self._reading, MOST)):
                records += data
        return read(records)

    def wait_for_begin(self) -> bool:
        """Wait until the remote command runs; False if all have closed the other end before."""
        return os.read(self._reading, MOST).startswith(b"begun\0")
