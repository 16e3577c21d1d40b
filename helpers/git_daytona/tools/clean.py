"""Foreign output made fit to be shown: no terminal escapes, no control characters but newline and
tab (case 51). Pure."""

import re

# ECMA-48: control strings (OSC, DCS, SOS, PM, APC) up to their terminator, control sequences (CSI),
# other escapes. No piece reaches over the beginning of another one, so that the time grows with the
# text alone.
_ESCAPES = re.compile(
    r"\x1b[\]PX^_][^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)"
    r"|[\x90\x98\x9d-\x9f][^\x07\x1b\x90\x98\x9c-\x9f]{0,4096}(?:\x07|\x1b\\|\x9c)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]"
)
PATH = 4096
"""The longest path that Linux takes (PATH_MAX), bytes."""
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def output(text: str) -> str:
    """A command's output as a terminal would leave it: of a line that was drawn again and again
    (progress bars end it with a carriage return) only what was drawn last."""
    if _CONTROLS.search(text) is None:
        return text
    text = _ESCAPES.sub("", text)
    if "\b" in text:
        text = _backspaced(text)
    if "\r" in text:
        text = "\n".join(map(_last_drawn, text.split("\n")))
    return _CONTROLS.sub("", text)


def line(text: str) -> str:
    """One line of a file without what could move a cursor; everything that is visible stays."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def name(text: str) -> str:
    """A file name on one line: control characters in it are shown as escapes; of what is longer
    than a path can be, its beginning."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode()
        for c in text[:PATH]
    )[:PATH]


def _backspaced(text: str) -> str:
    kept: list[str] = []
    for character in text:
        if character != "\b":
            kept.append(character)
        elif kept and kept[-1] != "\n":
            kept.pop()
    return "".join(kept)


def _last_drawn(line: str) -> str:
    pieces = [piece for piece in line.split("\r") if piece]
    return pieces[-1] if pieces else ""
