"""What ``daytona-ssh`` tells of a connection, over a pipe that nothing else can write to.

git's stderr has it, too, for people; but there the sandbox has its say as well (a refusal of git's
server may be of many lines), and what is done next must not hang on whose words look like whose.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

from git_daytona.base.secret import redact

MOST = 65536
"""Bytes of all records: what a pipe holds anyway."""


@dataclass(frozen=True)
class Report:
    """The last connection's end, as ssh.py's _Report has it; everything empty if nothing was
    told."""

    entry: str = ""
    """Of the error (errors.py); empty where the remote command came to its end, whatever its
    status."""
    message: str = ""
    hint: str = ""
    said: str = ""
    """What the ssh client itself said, redacted."""


def read(records: bytes) -> Report:
    """The last end among the records."""
    fields = records.decode("utf-8", "replace").split("\0")
    found = Report()
    for at, field in enumerate(fields):
        if field == "ended" and len(fields) > at + 4:
            entry, message, hint, said = fields[at + 1 : at + 5]
            found = Report(entry, message, hint, redact(said.replace("\r\n", "\n")))
    return found


class Pipe:
    """The pipe. ``writing`` is for the child; ``close_writing`` once it has it."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()

    def __enter__(self) -> "Pipe":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close_writing()
        os.close(self._reading)

    def close_writing(self) -> None:
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def report(self) -> Report:
        """What was told so far."""
        # a process that nobody knows of may still hold the other end
        os.set_blocking(self._reading, False)
        records = b""
        with suppress(BlockingIOError):
            while len(records) < MOST and (data := os.read(self._reading, MOST)):
                records += data
        return read(records)

    def wait_for_begin(self) -> bool:
        """Wait until the remote command runs; False if all have closed the other end before."""
        return os.read(self._reading, MOST).startswith(b"begun\0")
