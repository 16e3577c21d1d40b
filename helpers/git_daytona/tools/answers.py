"""What the tools' scripts print, read. The sandbox is untrusted: whatever does not fit raises
SandboxCommandFailed. Pure."""

import base64
import re

from git_daytona.api.cloud import Execution
from git_daytona.base.errors import SandboxCommandFailed
from git_daytona.tools import display


class Answer:
    """The lines of a script's output up to its last one, ``end``, taken one after the other."""

    def __init__(self, tool: str, result: Execution) -> None:
        self._tool, self._result = tool, result
        *lines, end = result.output.rstrip("\n").split("\n")
        self._lines = iter(lines)
        if end != "end":
            raise self.unexpected()

    def line(self) -> str:
        """Take a line as it is."""
        line = next(self._lines, None)
        if line is None:
            raise self.unexpected()
        return line

    def content(self) -> bytes:
        """Take a line of base64."""
        try:
            return base64.b64decode(self.line(), validate=True)
        except ValueError:
            raise SandboxCommandFailed(
                "the sandbox's answer cannot be read", hint="is base64 broken in its image?"
            ) from None

    def text(self) -> str:
        """Take a file's name or text; bytes that are not UTF-8 are kept as lone surrogates."""
        return self.content().decode("utf-8", "surrogateescape")

    def names(self) -> list[str]:
        """Take NUL-separated names."""
        return [name for name in self.text().split("\0") if name]

    def number(self, text: str) -> int:
        """Convert a number of a line. (int() takes other alphabets' digits, too.)"""
        if not re.fullmatch(r"[0-9]{1,15}", text):
            raise self.unexpected()
        return int(text)

    def unexpected(self) -> SandboxCommandFailed:
        return unexpected(self._tool, self._result)


def unexpected(tool: str, result: Execution) -> SandboxCommandFailed:
    """Make the error for an answer that is not of our scripts, with what came instead."""
    said = display.output(result.output).strip()[-300:] or "nothing"
    return SandboxCommandFailed(
        f"{tool} could not look into the sandbox (exit status {result.status}); it said: {said}"
    )
