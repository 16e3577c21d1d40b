"""Sessions as lines of text: a table for people that never wraps, and lines for scripts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import click

from git_daytona.base import paths
from git_daytona.sessions import state
from git_daytona.sessions.status import GONE, UNKNOWN, Row

CUT = "…"
GAP = "  "
ELSEWHERE = "elsewhere"
"""The sandbox of a session that lives on another Daytona, or in another organisation."""
FRESH_SECONDS = 60
"""A state that was seen longer ago is shown with its age."""
_SPANS = ((365 * 86400, "y"), (86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_COLOURS = {
    state.SYNCED: "green",
    state.PENDING: "yellow",
    state.FAILED: "red",
    state.SETUP_FAILED: "red",
    GONE: "red",
}


def _width(text: str) -> int:
    """How many columns a text takes."""
    if text.isascii() and text.isprintable():
        return len(text)
    import wcwidth  # not at the top: its tables take long to load

    return wcwidth.width(text)


def cut(text: str, width: int, *, left: bool = False) -> str:
    """Cut a text to so many columns; an ellipsis is for what is missing, on one side."""
    whole = _width(text)
    if whole <= width:
        return text
    if width < 1:
        return ""
    import wcwidth

    if left:
        return CUT + wcwidth.clip(text, whole - width + 1, whole)
    return wcwidth.clip(text, 0, width - 1) + CUT


def age(milliseconds: int, now: int) -> str:
    """How long ago a moment was, in its largest unit: ``5m``, ``3h``, ``12d``."""
    seconds = max(0, now - milliseconds) // 1000
    size, unit = next((span for span in _SPANS if seconds >= span[0]), _SPANS[-1])
    return f"{seconds // size}{unit}"


def _sandbox(row: Row, now: int) -> str:
    """The state of the sandbox, with its age where it was not seen just now."""
    if row.elsewhere:
        return ELSEWHERE
    fresh = abs(now - row.sandbox_seen) < FRESH_SECONDS * 1000
    if fresh or not row.sandbox_seen or row.sandbox_state in (UNKNOWN, GONE):
        return row.sandbox_state
    return f"{row.sandbox_state} {age(row.sandbox_seen, now)} ago"


def _work(row: Row, now: int) -> str:
    """How the work came back last, and when that was; or since when it is to be deleted."""
    if row.deleting:
        return f"deletion begun {age(row.deleting, now)} ago"
    begin = "working, " if row.working else ""
    if row.git_return == state.DISABLED:
        return f"{begin}not synced"
    since = f" {age(row.updated_at, now)} ago" if row.updated_at else ""
    return f"{begin}{row.git_return}{since}"


def _ahead(row: Row, _now: int) -> str:
    if row.branch is None or row.ahead is None:
        return "-" if row.branch is None else "?"
    return f"+{row.ahead}{' merged' if row.merged else ''}"


def _worktree(row: Row, _now: int) -> str:
    """The worktree's path, as a shell's prompt would show it."""
    path, home = "".join(c if c.isprintable() else "?" for c in row.worktree), str(paths.home())
    return "~" + path.removeprefix(home) if f"{path}/".startswith(f"{home}/") else path


@dataclass(frozen=True)
class _Column:
    """A heading and the text below it, of a row at a time (milliseconds since the epoch)."""

    heading: str
    text: Callable[[Row, int], str]
    rank: int = 0
    """The order in which columns go when there is no room; 0: never."""
    least: int | None = None
    """How narrow it may be cut before it goes; None: it may not be cut."""
    left: bool = False


_COLUMNS: tuple[_Column, ...] = (
    _Column("N", lambda row, _: str(row.number or "-")),
    _Column("AGE", lambda row, now: age(row.created, now) if row.created else "-", rank=1),
    _Column("BRANCH", lambda row, _: row.branch or "-", rank=3),
    _Column("SANDBOX", _sandbox),
    _Column("WORK", _work),
    _Column("AHEAD", _ahead, rank=5),
    # Before the title, so that it gives way first: a title is all that tells two sessions apart.
    _Column("WORKTREE", _worktree, rank=2, least=16, left=True),
    _Column("TITLE", lambda row, _: row.title, rank=4, least=12),
)


def lines(
    rows: Sequence[Row],
    *,
    width: int | None,
    now: int,
    colour: bool = False,
    everywhere: bool = False,
) -> list[str]:
    """A heading and a line per session, each of at most ``width`` columns (None: any). Where they
    are of several repositories (``everywhere``), the worktree goes last."""
    columns = _COLUMNS if any(row.title for row in rows) else _COLUMNS[:-1]
    if everywhere:
        columns = tuple(replace(each, rank=9) if each.left else each for each in columns)
    cells = {it: [it.heading, *(it.text(row, now) for row in rows)] for it in columns}
    natural = {column: max(map(_width, texts)) for column, texts in cells.items()}
    widths = natural if width is None else _fit(natural, width)
    made = []
    for number, row in enumerate((None, *rows)):
        parts = []
        for column, room in widths.items():
            text = cut(cells[column][number], room, left=column.left)
            painted = _paint(text, column, row) if colour else text
            parts.append(painted + " " * (room - _width(text)))
        made.append(GAP.join(parts).rstrip())
    return made if width is None else [cut(line, width) for line in made]


def _fit(natural: Mapping[_Column, int], width: int) -> dict[_Column, int]:
    """Choose the columns' widths; those without room go, in the order of their ranks."""
    widths = dict(natural)
    going = sorted((column for column in widths if column.rank), key=lambda column: column.rank)
    while True:
        over = sum(widths.values()) + len(GAP) * (len(widths) - 1) - width
        spare = {each: max(0, room - each.least) for each, room in widths.items() if each.least}
        if over <= sum(spare.values()) or not going:
            break
        del widths[going.pop(0)]
    for column, room in spare.items():
        less = min(max(over, 0), room)
        widths[column] -= less
        over -= less
    return widths


def _paint(text: str, column: _Column, row: Row | None) -> str:
    if row is None:
        return click.style(text, dim=True)
    word = {"WORK": row.git_return, "SANDBOX": row.sandbox_state}.get(column.heading, "")
    return click.style(text, fg=_COLOURS[word]) if word in _COLOURS else text


def porcelain(row: Row) -> str:
    """A session as ``--porcelain=v1`` prints it, for ever: 13 fields (git-daytona(1))."""
    fields = (
        row.number,
        row.branch,
        ELSEWHERE if row.elsewhere else row.sandbox_state,
        row.sandbox_seen // 1000 or None,
        row.git_return,
        row.updated_at // 1000 or None,
        row.ahead,
        "yes" if row.needs_sync else "no",
        row.sandbox_id,
        row.session_id,
        row.worktree,
        row.title,
        row.message,
    )
    return "\t".join("-" if field in (None, "") else _escaped(str(field)) for field in fields)


def _escaped(text: str) -> str:
    """A field of a porcelain line: what could end it, or is not printable, as backslash sequences
    (``\\\\``, ``\\t``, ``\\n``; ``\\xHH`` for a byte that is no UTF-8, ``\\uHHHH`` or
    ``\\UHHHHHHHH`` for another character). A field that is a hyphen alone is ``\\x2d``."""
    return "\\x2d" if text == "-" else "".join(map(_escape, text))


def _escape(c: str) -> str:
    if named := {"\\": "\\\\", "\t": "\\t", "\n": "\\n"}.get(c):
        return named
    if c.isprintable():
        return c
    code = ord(c)
    if 0xDC80 <= code <= 0xDCFF:  # how os.fsdecode keeps such a byte
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
