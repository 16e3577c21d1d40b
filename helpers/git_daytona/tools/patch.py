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

BEGIN, END, EOF = "*** Begin Patch", "*** End Patch", "*** End of File"
ADD, DELETE, UPDATE, MOVE = "*** Add File:", "*** Delete File:", "*** Update File:", "*** Move to:"


@dataclass
class Chunk:
    """One place of an update: lines with their signs, to be found after the line ``context`` if
    there is one."""

    context: str = ""
    lines: list[tuple[str, str]] = field(default_factory=list)
    at_end: bool = False

    @property
    def old(self) -> list[str]:
        return [line for sign, line in self.lines if sign != "+"]


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


class Rejected(ToolError):
    """The patch cannot be read or does not fit; nothing was changed."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"apply_patch verification failed: {reason}")


def parse(text: str) -> list[Section]:
    """The sections of a patch. Raises Rejected with what is wrong."""
    rows = _unwrapped(unified(text).strip()).split("\n")
    begin = next((at for at, row in enumerate(rows) if row.strip() == BEGIN), None)
    end = next((at for at, row in enumerate(rows) if row.strip() == END), None)
    if begin is None or end is None or begin > end:
        raise Rejected("Invalid patch format: missing Begin/End markers")
    body = rows[begin + 1 : end]
    sections: list[Section] = []
    for number, row in enumerate(body, begin + 2):
        section = _header(row)
        if section:
            sections.append(section)
        elif (
            row.startswith(MOVE)
            and sections
            and sections[-1].action == "update"
            and not sections[-1].chunks
        ):
            sections[-1].move = row[len(MOVE) :].strip()
        elif row.startswith("***") and row.strip() != EOF:
            raise Rejected(f"line {number} is no header of a patch: {row[:200]}")
        elif sections:
            _add(sections[-1], row, number)
        elif row.strip():
            raise Rejected(f"line {number} stands before the first header: {row[:200]}")
    if not sections:
        raise ToolError("patch rejected: empty patch")
    for section in sections:
        if (
            section.action == "update"
            and not section.move
            and not any(chunk.lines for chunk in section.chunks)
        ):
            raise Rejected(f"no hunks found for {section.path}")
    return sections


def _unwrapped(text: str) -> str:
    """Without the here-document that some models put around it."""
    first, _, rest = text.partition("\n")
    found = re.fullmatch(r"(?:cat\s+)?<<['\"]?(\w+)['\"]?\s*", first)
    body, newline, last = rest.rstrip().rpartition("\n")
    return body if found and newline and last == found[1] else text


def _header(row: str) -> Section | None:
    for prefix, action in ((ADD, "add"), (DELETE, "delete"), (UPDATE, "update")):
        if row.startswith(prefix):
            path = row[len(prefix) :].strip()
            if not path:
                raise Rejected(f"'{prefix}' without a path")
            return Section(action, path)
    return None


def _add(section: Section, row: str, number: int) -> None:
    if section.action == "add":
        if row.startswith("+"):
            section.added.append(row[1:] + "\n")
        elif row.strip():
            raise Rejected(f"line {number} of a new file must begin with '+': {row[:200]}")
    elif section.action == "delete":
        if row.strip():
            raise Rejected(f"line {number}: nothing may follow '{DELETE}': {row[:200]}")
    elif row.startswith("@@"):
        section.chunks.append(Chunk(context=row[2:].strip()))
    elif row.strip() == EOF:
        if section.chunks:
            section.chunks[-1].at_end = True
    elif row[:1] in (" ", "-", "+", ""):
        if not section.chunks:
            section.chunks.append(Chunk())
        # An empty line is a context line whose blank got lost.
        section.chunks[-1].lines.append((row[:1] or " ", row[1:]))
    else:
        raise Rejected(f"line {number} must begin with ' ', '-' or '+': {row[:200]}")


def update(path: str, text: Text, chunks: Sequence[Chunk]) -> Text:
    """The text with all chunks applied, in order. Lines that stay keep their bytes, new ones get
    the file's ending. Raises Rejected."""
    rows = re.findall(r"[^\n]*\n|[^\n]+", text.raw)
    plain = [row.rstrip("\n").removesuffix("\r") for row in rows]
    done: list[str] = []
    at = 0
    for chunk in chunks:
        start = at
        if chunk.context:
            found = seek(plain, [chunk.context], at)
            if found is None:
                raise Rejected(f"Failed to find context '{chunk.context}' in {path}")
            start = found + 1
        lines = chunk.lines
        if not lines:
            done += rows[at:start]
            at = start
            continue
        if not chunk.old:
            place: int | None = start if chunk.context else len(rows)
        else:
            place = seek(plain, chunk.old, start, at_end=chunk.at_end)
            if place is None and lines[-1] == (" ", ""):
                # The empty line before the next header is often no part of the chunk.
                lines = lines[:-1]
                place = seek(
                    plain, [line for sign, line in lines if sign != "+"], start, at_end=chunk.at_end
                )
        if place is None:
            raise Rejected(f"Failed to find expected lines in {path}:\n" + "\n".join(chunk.old))
        done += rows[at:place]
        at = place
        for sign, line in lines:
            if sign == "+":
                _append(done, line, text.ending)
            else:
                if sign == " ":
                    _append_row(done, rows[at], text.ending)
                at += 1
    for row in rows[at:]:
        _append_row(done, row, text.ending)
    return text.with_raw("".join(done))


def _append(done: list[str], line: str, ending: str) -> None:
    _append_row(done, line + ending, ending)


def _append_row(done: list[str], row: str, ending: str) -> None:
    """A last line without an ending gets one when it is not the last any more."""
    if done and not done[-1].endswith("\n"):
        done[-1] += ending
    done.append(row)


_SAME = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
    }
    | {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        "\u2026": "...",
        "\u00a0": " ",
    }
)


def seek(
    rows: Sequence[str], wanted: Sequence[str], start: int, *, at_end: bool = False
) -> int | None:
    """Where these lines stand, from ``start`` on: exactly; else but for blanks at their ends; else
    at both; else but for quotation marks and dashes. With ``at_end`` the last place is tried
    first."""
    looser: tuple[Callable[[str], str], ...] = (
        str,
        str.rstrip,
        str.strip,
        lambda row: row.strip().translate(_SAME),
    )
    last = len(rows) - len(wanted)
    if not wanted or last < start:
        return None
    for form in looser:
        have, want = [form(row) for row in rows], [form(row) for row in wanted]
        for place in ([last] if at_end else []) + list(range(start, last + 1)):
            if have[place : place + len(want)] == want:
                return place
    return None
