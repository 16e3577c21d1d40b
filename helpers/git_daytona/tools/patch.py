"""The patch format that GPT-family models send: parsing it, and applying its chunks to a text.
Pure.

*** Begin Patch
*** Add File: new.txt            every line after it begins with "+"
*** Delete File: old.txt
*** Update File: a.py            then chunks: "@@ a line before it", and lines that begin with " ",
"-" or "+"
*** Move to: b.py                optional, right after Update File
*** End Patch
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from git_daytona.tools import texts
from git_daytona.tools.context import ToolError
from git_daytona.tools.texts import BOM, unified

BEGIN, END, EOF = "*** Begin Patch", "*** End Patch", "*** End of File"

_HEADER = re.compile(r"\*\*\* (Add File|Delete File|Update File|Move to):(.*)")
_ASCII = str.maketrans(
    "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u00a0",
    "''''\"\"\"\"------- ",
) | {ord("\u2026"): "..."}

Line = tuple[str, str]
"""A line's sign (" ", "-" or "+") and the line without."""


@dataclass
class Chunk:
    """One place of an update, after the line ``context`` if there is one."""

    context: str = ""
    lines: list[Line] = field(default_factory=list)
    at_end: bool = False


@dataclass
class Section:
    """What happens to one file: ``action`` is add, delete or update."""

    action: str
    path: str
    target: str
    """Where it moves to; else the same as ``path``."""
    chunks: list[Chunk] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    """The lines of a new file."""


class Rejected(ToolError):
    """The patch cannot be read or does not fit; nothing was changed."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"apply_patch verification failed: {reason}")


def parse(text: str) -> list[Section]:
    """Return the sections of a patch. Raises Rejected, and ToolError for an empty one."""
    rows = unified(text).strip().split("\n")
    markers = {row.strip(): at for at, row in reversed(list(enumerate(rows)))}
    begin, end = markers.get(BEGIN, len(rows)), markers.get(END, -1)
    if begin > end:
        raise Rejected("Invalid patch format: missing Begin/End markers")
    sections = [Section("", "", "")]  # for what is before the first header
    for number, row in enumerate(rows[begin + 1 : end], begin + 2):
        header = _HEADER.match(row)
        if header and header[1] != "Move to":
            action, path = header[1].split()[0].lower(), header[2].strip()
            if not path:
                raise Rejected(f"'*** {header[1]}:' without a path")
            sections.append(Section(action, path, path))
        else:
            _add(sections[-1], row, number)
    del sections[0]
    if not sections:
        raise ToolError("patch rejected: empty patch")
    for section in sections:
        has_hunks = any(chunk.lines for chunk in section.chunks)
        if section.action == "update" and section.target == section.path and not has_hunks:
            raise Rejected(f"no hunks found for {section.path}")
    return sections


def _add(section: Section, row: str, number: int) -> None:
    """Add a line below a section's header. Raises Rejected."""
    moved = _HEADER.match(row)
    if moved and section.action == "update" and not section.chunks:
        section.target = moved[2].strip() or section.path
    elif row.startswith("***") and row.strip() != EOF:
        raise Rejected(f"line {number} is no header of a patch: {row[:200]}")
    elif section.action == "update":
        _add_to_chunks(section.chunks, row, number)
    elif section.action == "add" and row.startswith("+"):
        section.added.append(row[1:] + "\n")
    elif row.strip() and section.action == "add":
        raise Rejected(f"line {number} of a new file must begin with '+': {row[:200]}")
    elif row.strip() and section.action == "delete":
        raise Rejected(f"line {number}: nothing may follow '*** Delete File:': {row[:200]}")
    elif row.strip():
        raise Rejected(f"line {number} stands before the first header: {row[:200]}")


def _add_to_chunks(chunks: list[Chunk], row: str, number: int) -> None:
    if row.startswith("@@"):
        chunks.append(Chunk(row[2:].strip()))
    elif row.strip() == EOF:
        if chunks:
            chunks[-1].at_end = True
    elif row[:1] in (" ", "-", "+", ""):
        if not chunks:
            chunks.append(Chunk())
        # An empty line is a context line whose blank got lost.
        chunks[-1].lines.append((row[:1] or " ", row[1:]))
    else:
        raise Rejected(f"line {number} must begin with ' ', '-' or '+': {row[:200]}")


def update(path: str, text: str, chunks: Sequence[Chunk]) -> str:
    """Return the text with all chunks applied, in order. Lines that stay keep their bytes, new ones
    get the file's ending. Raises Rejected."""
    mark = BOM if text.startswith(BOM) else ""
    rows = texts.rows(text.removeprefix(mark))
    plain = [row.rstrip("\n").removesuffix("\r") for row in rows]
    ending = texts.ending(text)
    done: list[str] = []
    at = 0
    for chunk in chunks:
        place, lines = _place(path, plain, chunk, at)
        done += rows[at:place]
        at = place
        for sign, line in lines:
            if sign != "-":
                done.append(rows[at] if sign == " " else line + ending)
            at += sign != "+"
    done += rows[at:]
    # A last line without an ending gets one when it is not the last any more.
    ended = [row if row.endswith("\n") else row + ending for row in done[:-1]]
    return mark + "".join(ended + done[-1:])


def _place(path: str, rows: list[str], chunk: Chunk, start: int) -> tuple[int, list[Line]]:
    """Return where a chunk applies, and its lines as they apply there. Raises Rejected."""
    if chunk.context:
        context = seek(rows, [chunk.context], start)
        if context is None:
            raise Rejected(f"Failed to find context '{chunk.context}' in {path}")
        start = context + 1
    lines, old = chunk.lines, [line for sign, line in chunk.lines if sign != "+"]
    if not old:
        return start if chunk.context or not lines else len(rows), lines
    place = seek(rows, old, start, at_end=chunk.at_end)
    if place is None and lines[-1] == (" ", ""):
        # The empty line before the next header is often no part of the chunk.
        place, lines = seek(rows, old[:-1], start, at_end=chunk.at_end), lines[:-1]
    if place is None:
        raise Rejected(f"Failed to find expected lines in {path}:\n" + "\n".join(old))
    return place, lines


def seek(rows: list[str], wanted: list[str], start: int, *, at_end: bool = False) -> int | None:
    """Return where these lines are, from ``start`` on: exactly; else but for blanks at their ends;
    else at both; else but for quotation marks and dashes. With ``at_end`` the last place is tried
    first."""
    last = len(rows) - len(wanted)
    if not wanted or last < start:
        return None
    places = [last] * at_end + list(range(start, last + 1))
    loosen: tuple[Callable[[str], str], ...]
    loosen = (str, str.rstrip, str.strip, lambda row: row.translate(_ASCII))
    for form in loosen:
        rows, wanted = list(map(form, rows)), list(map(form, wanted))
        for place in places:
            if rows[place : place + len(wanted)] == wanted:
                return place
    return None
