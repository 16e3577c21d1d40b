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

from git_daytona.tools.context import ToolError
from git_daytona.tools.texts import Text, unified

BEGIN, END, EOF, MOVE = "*** Begin Patch", "*** End Patch", "*** End of File", "*** Move to:"
ACTIONS = {"*** Add File:": "add", "*** Delete File:": "delete", "*** Update File:": "update"}

_ASCII = str.maketrans(
    "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u00a0",
    "''''\"\"\"\"------- ",
) | {ord("\u2026"): "..."}


@dataclass
class Chunk:
    """One place of an update: lines with their signs, after the line ``context`` if any."""

    context: str = ""
    lines: list[tuple[str, str]] = field(default_factory=list)
    at_end: bool = False


@dataclass
class Section:
    """What happens to one file: ``action`` is add, delete or update."""

    action: str
    path: str
    move: str | None = None
    chunks: list[Chunk] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    """The lines of a new file, each with its ending."""

    @property
    def content(self) -> str:
        return "".join(self.added)

    @property
    def may_move(self) -> bool:
        return self.action == "update" and not self.chunks

    @property
    def is_empty(self) -> bool:
        return self.action == "update" and not any(chunk.lines for chunk in self.chunks)


class Rejected(ToolError):
    """The patch cannot be read or does not fit; nothing was changed."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"apply_patch verification failed: {reason}")


def parse(text: str) -> list[Section]:
    """Return the sections of a patch. Raises Rejected, and ToolError for an empty one."""
    rows = _unwrapped(unified(text).strip()).split("\n")
    markers = [row.strip() for row in rows]
    if BEGIN not in markers or END not in markers or markers.index(BEGIN) > markers.index(END):
        raise Rejected("Invalid patch format: missing Begin/End markers")
    begin, end = markers.index(BEGIN), markers.index(END)
    sections: list[Section] = []
    for number, row in enumerate(rows[begin + 1 : end], begin + 2):
        prefix = next((each for each in ACTIONS if row.startswith(each)), None)
        if prefix:
            path = row.removeprefix(prefix).strip()
            if not path:
                raise Rejected(f"'{prefix}' without a path")
            sections.append(Section(ACTIONS[prefix], path))
        elif row.startswith(MOVE) and sections and sections[-1].may_move:
            sections[-1].move = row.removeprefix(MOVE).strip()
        elif row.startswith("***") and row.strip() != EOF:
            raise Rejected(f"line {number} is no header of a patch: {row[:200]}")
        elif sections:
            _add(sections[-1], row, number)
        elif row.strip():
            raise Rejected(f"line {number} stands before the first header: {row[:200]}")
    if not sections:
        raise ToolError("patch rejected: empty patch")
    for section in sections:
        if section.is_empty and not section.move:
            raise Rejected(f"no hunks found for {section.path}")
    return sections


def _unwrapped(text: str) -> str:
    """Remove the here-document that some models put around a patch."""
    first, _, rest = text.partition("\n")
    found = re.fullmatch(r"(?:cat\s+)?<<['\"]?(\w+)['\"]?\s*", first)
    body, newline, last = rest.rstrip().rpartition("\n")
    return body if found and newline and last == found[1] else text


def _add(section: Section, row: str, number: int) -> None:
    """Add a line below a section's header. Raises Rejected."""
    if section.action == "update":
        _add_to_chunks(section.chunks, row, number)
    elif section.action == "add" and row.startswith("+"):
        section.added.append(row[1:] + "\n")
    elif section.action == "add" and row.strip():
        raise Rejected(f"line {number} of a new file must begin with '+': {row[:200]}")
    elif row.strip():
        raise Rejected(f"line {number}: nothing may follow '*** Delete File:': {row[:200]}")


def _add_to_chunks(chunks: list[Chunk], row: str, number: int) -> None:
    if row.startswith("@@"):
        chunks.append(Chunk(context=row[2:].strip()))
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


def update(path: str, text: Text, chunks: Sequence[Chunk]) -> Text:
    """Return the text with all chunks applied, in order. Lines that stay keep their bytes, new ones
    get the file's ending. Raises Rejected."""
    rows = re.findall(r"[^\n]*\n|[^\n]+", text.raw)
    plain = [row.rstrip("\n").removesuffix("\r") for row in rows]
    done: list[str] = []
    at = 0
    for chunk in chunks:
        place, lines = _place(path, plain, chunk, at)
        done += rows[at:place]
        at = place
        for sign, line in lines:
            if sign == "+":
                done.append(line + text.ending)
            else:
                done += rows[at : at + 1] if sign == " " else []
                at += 1
    done += rows[at:]
    # A last line without an ending gets one when it is not the last any more.
    ended = [row if row.endswith("\n") else row + text.ending for row in done[:-1]]
    return text.with_raw("".join(ended + done[-1:]))


def _place(
    path: str, rows: Sequence[str], chunk: Chunk, start: int
) -> tuple[int, list[tuple[str, str]]]:
    """Return where a chunk applies, and its lines as they apply there. Raises Rejected."""
    if chunk.context:
        found = seek(rows, [chunk.context], start)
        if found is None:
            raise Rejected(f"Failed to find context '{chunk.context}' in {path}")
        start = found + 1
    old = [line for sign, line in chunk.lines if sign != "+"]
    if not old:
        return start if chunk.context or not chunk.lines else len(rows), chunk.lines
    place = seek(rows, old, start, at_end=chunk.at_end)
    if place is not None:
        return place, chunk.lines
    # The empty line before the next header is often no part of the chunk.
    if chunk.lines[-1] == (" ", ""):
        place = seek(rows, old[:-1], start, at_end=chunk.at_end)
    if place is None:
        raise Rejected(f"Failed to find expected lines in {path}:\n" + "\n".join(old))
    return place, chunk.lines[:-1]


def seek(
    rows: Sequence[str], wanted: Sequence[str], start: int, *, at_end: bool = False
) -> int | None:
    """Return where these lines are, from ``start`` on: exactly; else but for blanks at their ends;
    else at both; else but for quotation marks and dashes. With ``at_end`` the last place is tried
    first."""
    forms: tuple[Callable[[str], str], ...] = (
        str,
        str.rstrip,
        str.strip,
        lambda row: row.strip().translate(_ASCII),
    )
    last = len(rows) - len(wanted)
    if not wanted or last < start:
        return None
    for form in forms:
        have, want = [form(row) for row in rows], [form(row) for row in wanted]
        for place in ([last] if at_end else []) + list(range(start, last + 1)):
            if have[place : place + len(want)] == want:
                return place
    return None
