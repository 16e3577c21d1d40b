"""Finding and replacing the text that an edit names: exact and unique, or an error that says what
is wrong. Pure."""

from bisect import bisect_right

from git_daytona.tools.context import ToolError
from git_daytona.tools.texts import Text, unified

SHOWN = 10
"""How many places a message lists."""

IDENTICAL = "No changes to apply: oldString and newString are identical."
EMPTY = (
    "oldString cannot be empty when editing an existing file. "
    "Provide the exact text to replace, or use write for an intentional full-file replacement."
)


def replace(text: Text, old: str, new: str, *, every: bool = False) -> Text:
    """The text with ``old`` replaced, at its only place or, with ``every``, at all. Raises
    ToolError.

    A line break in ``old`` matches ``\\n`` and ``\\r\\n``; those in ``new`` become the file's own.
    All else is taken literally, and the rest of the file stays as it is, byte for byte.
    """
    old, new = unified(old), unified(new)
    if old == new:
        raise ToolError(IDENTICAL)
    if not old:
        raise ToolError(EMPTY)
    flat = unified(text.raw)
    places = _places(flat, old)
    if not places:
        raise ToolError(_missing(flat, old))
    if len(places) > 1 and not every:
        rows = [str(flat.count("\n", 0, place) + 1) for place in places[:SHOWN]]
        more = ", …" if len(places) > SHOWN else ""
        raise ToolError(
            f"Found multiple matches for oldString: {len(places)}, at lines "
            f"{', '.join(rows)}{more}. "
            "Provide more surrounding context to make the match unique, or set replaceAll."
        )
    fresh = new.replace("\n", text.ending)
    original = _Original(text.raw)
    parts: list[str] = []
    done = 0
    for place in places:
        parts += (text.raw[done : original(place)], fresh)
        done = original(place + len(old))
    return text.with_raw("".join(parts) + text.raw[done:])


def _places(flat: str, old: str) -> list[int]:
    found = []
    at = flat.find(old)
    while at >= 0:
        found.append(at)
        at = flat.find(old, at + len(old))
    return found


class _Original:
    """Index in the text with its own line endings, of an index in the text with ``\\n`` only."""

    def __init__(self, raw: str) -> None:
        self.breaks: list[int] = []
        at = raw.find("\r\n")
        while at >= 0:
            # Where the \n of this pair stands in the flat text: all pairs before it are one shorter
            # there.
            self.breaks.append(at - len(self.breaks))
            at = raw.find("\r\n", at + 2)

    def __call__(self, flat: int) -> int:
        return flat + bisect_right(self.breaks, flat - 1)


def _missing(flat: str, old: str) -> str:
    """Why nothing matched, as far as it can be told."""
    message = (
        "Could not find oldString in the file. It must match exactly, including whitespace, "
        "indentation, and line endings."
    )
    wanted = [line.split() for line in old.strip("\n").split("\n")]
    rows = [line.split() for line in flat.split("\n")]
    if not any(wanted):
        return message
    for start in range(len(rows) - len(wanted) + 1):
        if rows[start : start + len(wanted)] == wanted:
            first, last = start + 1, start + len(wanted)
            where = f"Line {first} differs" if first == last else f"Lines {first}-{last} differ"
            return f"{message} {where} from it in whitespace only: read them again."
    return message
