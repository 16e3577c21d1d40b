"""Sessions as lines of text: the table for people, which never wraps and says what it leaves out,
and the lines for scripts. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import wcwidth

from git_daytona.sessions import state
from git_daytona.sessions.status import GONE, UNKNOWN, Row

CUT = "…"
GAP = "  "
TITLE_COLUMNS = 12
WORKTREE_COLUMNS = 16
"""How narrow a title and a path may become before the column goes altogether."""
FRESH_SECONDS = 60
"""A state that was seen longer ago is shown with its age."""
_SPANS = ((365 * 86400, "y"), (86400, "d"), (3600, "h"), (60, "m"))
_COLOURS = {
    state.SYNCED: "green",
    state.PENDING: "yellow",
    state.FAILED: "red",
    state.SETUP_FAILED: "red",
    GONE: "red",
}


def columns(text: str) -> int:
    """How many columns of a terminal a text takes: East Asian characters take two, combining ones
    none."""
    return len(text) if text.isascii() else sum(max(0, wcwidth.wcwidth(c)) for c in text)


def cut(text: str, width: int, *, left: bool = False) -> str:
    """The text in at most ``width`` columns; what is taken away, at the end or on the left, is
    shown as an ellipsis."""
    if columns(text) <= width:
        return text
    kept, room = "", width - 1
    for c in reversed(text) if left else text:
        room -= max(0, wcwidth.wcwidth(c))
        if room < 0:
            break
        kept = c + kept if left else kept + c
    return (CUT + kept if left else kept + CUT) if width > 0 else ""


def age(milliseconds: int, now: int) -> str:
    """How long ago a moment was, in its largest unit: ``5m``, ``3h``, ``12d``."""
    seconds = max(0, now - milliseconds) // 1000
    for size, unit in _SPANS:
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


@dataclass(frozen=True)
class _Column:
    """A heading and what stands below it; ``least`` is how narrow it may be cut (None: it may not),
    ``rank`` in which order columns go when there is no room (0: never)."""

    heading: str
    text: Callable[[Row], str]
    rank: int = 0
    least: int | None = None
    left: bool = False


def sandbox(row: Row, now: int) -> str:
    """The state of the sandbox, with its age where it was not seen just now."""
    if row.sandbox_state == UNKNOWN or not row.sandbox_seen:
        return row.sandbox_state
    old = now - row.sandbox_seen >= FRESH_SECONDS * 1000 and row.sandbox_state != GONE
    return f"{row.sandbox_state} {age(row.sandbox_seen, now)} ago" if old else row.sandbox_state


def work(row: Row, now: int) -> str:
    """How the work came back last, and when that was."""
    if row.git_return == state.DISABLED:
        return "not synced"
    return f"{row.git_return} {age(row.updated_at, now)} ago" if row.updated_at else row.git_return


def worktree(row: Row, home: str) -> str:
    """The worktree's path, as a shell's prompt would show it."""
    path = "".join(c if c.isprintable() else "?" for c in row.worktree)
    return "~" + path[len(home) :] if home != "/" and (path + "/").startswith(home + "/") else path


def lines(
    rows: Sequence[Row], *, width: int | None, now: int, home: str = "", colour: bool = False
) -> list[str]:
    """The table: a heading and a line per session, each at most ``width`` columns (None: as long as
    they are)."""
    chosen = [
        _Column("N", lambda row: str(row.number or "-")),
        _Column("BRANCH", lambda row: row.branch or "-", rank=2),
        _Column("SANDBOX", lambda row: sandbox(row, now)),
        _Column("WORK", lambda row: work(row, now)),
        _Column(
            "AHEAD",
            lambda row: (
                "-" if row.branch is None else "?" if row.ahead is None else f"+{row.ahead}"
            ),
            rank=4,
        ),
        _Column(
            "WORKTREE", lambda row: worktree(row, home), rank=1, least=WORKTREE_COLUMNS, left=True
        ),
        _Column("TITLE", lambda row: row.title, rank=3, least=TITLE_COLUMNS),
    ]
    if not any(row.title for row in rows):
        chosen.pop()
    cells = {
        column.heading: [column.heading, *(column.text(row) for row in rows)] for column in chosen
    }
    natural = {heading: max(map(columns, texts)) for heading, texts in cells.items()}
    widths = _fit(chosen, natural, width)
    shown = [column for column in chosen if column.heading in widths]
    made = []
    for number in range(len(rows) + 1):
        parts = []
        for column in shown:
            text = cut(cells[column.heading][number], widths[column.heading], left=column.left)
            padding = " " * (widths[column.heading] - columns(text))
            paint = _paint(column, rows[number - 1] if number else None) if colour else str
            parts.append(paint(text) + (padding if column is not shown[-1] else ""))
        made.append(GAP.join(parts).rstrip())
    return made if width is None or colour else [cut(line, width) for line in made]


def _fit(chosen: Sequence[_Column], natural: dict[str, int], width: int | None) -> dict[str, int]:
    """How wide each column becomes; those without room are left out, in the order of their
    ranks."""
    going = sorted((column for column in chosen if column.rank), key=lambda column: column.rank)
    widths = dict(natural)
    while width is not None and sum(widths.values()) + len(GAP) * (len(widths) - 1) > width:
        over = sum(widths.values()) + len(GAP) * (len(widths) - 1) - width
        elastic = [each for each in chosen if each.heading in widths and each.least is not None]
        spare = {each.heading: max(0, widths[each.heading] - (each.least or 0)) for each in elastic}
        if sum(spare.values()) >= over:
            # The path gives way before the title does: a title is all that tells two sessions
            # apart.
            for heading in sorted(spare, key=lambda heading: heading == "TITLE"):
                less = min(over, spare[heading])
                widths[heading] -= less
                over -= less
            break
        if not going:
            break
        widths.pop(going.pop(0).heading, None)
    return widths


def _paint(column: _Column, row: Row | None) -> Callable[[str], str]:
    import click

    if row is None:
        return partial(click.style, dim=True)
    word = {"WORK": row.git_return, "SANDBOX": row.sandbox_state}.get(column.heading, "")
    return partial(click.style, fg=_COLOURS[word]) if word in _COLOURS else str


# -- for scripts -----------------------------------------------------------------------------------


def porcelain(row: Row) -> str:
    """One session as ``--porcelain=v1`` has it: 13 fields, tabs between them. Described in
    git-daytona(1); it does not change."""
    fields = (
        row.number,
        row.branch,
        row.sandbox_state,
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
    return "\t".join(
        "-" if field is None or field == "" else escaped(str(field)) for field in fields
    )


def escaped(text: str) -> str:
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


def home() -> str:
    """HOME."""
    return str(Path("~").expanduser())
