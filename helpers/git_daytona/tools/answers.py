"""What the sandbox prints: read, cleaned and cut. It is untrusted. Pure.

OpenCode cuts what a plugin's tool returns at 2000 lines and 51,200 bytes, and then names a file on
the user's machine that holds all of it, which no tool could reach. So every result stays below
both, notes and markup included.
"""

import base64
import re

from git_daytona.api.cloud import Execution
from git_daytona.base.errors import SandboxCommandFailed

MOST_LINES = 1990
MOST_BYTES = 50_000  # what a result may hold besides its notes
LINE_LENGTH = 2000  # characters of a line that are shown
PATH_LENGTH = 4096  # the longest path that Linux takes (PATH_MAX)

# ECMA-48: control strings (OSC, DCS, SOS, PM, APC) up to their terminator, control sequences (CSI),
# other escapes. No piece reaches over the beginning of another one, so that the time grows with the
# text alone.
_ESCAPES = re.compile(
    r"\x1b[\]PX^_][^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)"
    r"|[\x90\x98\x9d-\x9f][^\x07\x1b\x90\x98\x9c-\x9f]{0,4096}(?:\x07|\x1b\\|\x9c)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Answer:
    """The lines of a script's output up to its last one, ``end``, taken one after the other."""

    def __init__(self, tool: str, result: Execution) -> None:
        self._tool, self._result = tool, result
        *self._lines, end = result.output.rstrip("\n").split("\n")
        if end != "end":
            raise unexpected(self._tool, self._result)

    def line(self) -> str:
        """Take a line as it is."""
        if not self._lines:
            raise unexpected(self._tool, self._result)
        return self._lines.pop(0)

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
            raise unexpected(self._tool, self._result)
        return int(text)


def unexpected(tool: str, result: Execution) -> SandboxCommandFailed:
    """Make the error for an answer that is not of our scripts, with what came instead."""
    said = output(result.output).strip()[-300:] or "nothing"
    return SandboxCommandFailed(
        f"{tool} could not look into the sandbox (exit status {result.status}); it said: {said}"
    )


def output(text: str) -> str:
    """Return a command's output as a terminal would leave it: of each line what was drawn last."""
    kept: list[str] = []
    for character in _ESCAPES.sub("", text):
        if character != "\b":
            kept.append(character)
        elif kept and kept[-1] != "\n":
            kept.pop()
    rows = "".join(kept).split("\n")
    drawn = (next(filter(None, reversed(row.split("\r"))), "") for row in rows)
    return _CONTROLS.sub("", "\n".join(drawn))


def line(text: str, cut: str = "...") -> str:
    """Return a line of a file without what could move a cursor, cut at LINE_LENGTH."""
    text = _CONTROLS.sub("", _ESCAPES.sub("", text.removesuffix("\r")))
    return text if len(text) <= LINE_LENGTH else text[:LINE_LENGTH] + cut


def name(text: str) -> str:
    """Return a file name on one line: control characters as escapes, at most PATH_LENGTH long."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode()
        for c in text[:PATH_LENGTH]
    )[:PATH_LENGTH]


def size(text: str) -> int:
    """Return the bytes of a text as OpenCode counts them."""
    return len(text.encode("utf-8", "replace"))


def head(rows: list[str], lines: int = MOST_LINES, most: int = MOST_BYTES) -> list[str]:
    """Return the first rows that fit."""
    used = 0
    for index, row in enumerate(rows):
        used += size(row) + 1
        if index >= lines or used > most:
            return rows[:index]
    return rows


def tail(text: str, lines: int = MOST_LINES, most: int = MOST_BYTES) -> str:
    """Return the last lines that fit; of a line that is too long by itself, its end."""
    rows = text.split("\n")[::-1]
    if size(rows[0]) > most:
        return rows[0].encode("utf-8", "replace")[-most:].decode("utf-8", "ignore")
    return "\n".join(head(rows, lines, most + 1)[::-1])  # no line break before the first
