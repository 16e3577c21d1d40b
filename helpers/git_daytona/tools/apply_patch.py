"""apply_patch: changes to several files, all or none, in the format that GPT-family models send.
Two API calls: one reads the files, one writes them if they are still the same."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from git_daytona.tools import files, texts
from git_daytona.tools.answers import name
from git_daytona.tools.context import Context, Result, ToolError, ask, text, tool
from git_daytona.tools.texts import BOM, compare, unified

_HEADER = re.compile(r"\*\*\* (Add File|Delete File|Update File|Move to):(.*)")
_ASCII = str.maketrans(
    "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u00a0",
    "''''\"\"\"\"------- ",
) | {ord("\u2026"): "..."}

Line = tuple[str, str]  # its sign (" ", "-" or "+"), and the line without


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
    target: str  # where it moves to; else the same as ``path``
    chunks: list[Chunk] = field(default_factory=list)
    added: list[str] = field(default_factory=list)  # the lines of a new file


class Rejected(ToolError):
    """The patch cannot be read or does not fit; nothing was changed."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"apply_patch verification failed: {reason}")


def parse(text: str) -> list[Section]:
    """Return the sections of a patch. Raises Rejected, and ToolError for an empty one."""
    rows = unified(text).strip().split("\n")
    markers = {row.strip(): at for at, row in reversed(list(enumerate(rows)))}
    begin, end = markers.get("*** Begin Patch", len(rows)), markers.get("*** End Patch", -1)
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
        changes = section.target != section.path or any(it.lines for it in section.chunks)
        if section.action == "update" and not changes:
            raise Rejected(f"no hunks found for {section.path}")
    return sections


def _add(section: Section, row: str, number: int) -> None:
    """Add a line below a section's header. Raises Rejected."""
    moved = _HEADER.match(row)
    if moved and section.action == "update" and not section.chunks:
        section.target = moved[2].strip() or section.path
    elif row.startswith("***") and row.strip() != "*** End of File":
        raise Rejected(f"line {number} is not a header of a patch: {row[:200]}")
    elif section.action == "update":
        _add_to_chunks(section.chunks, row, number)
    elif section.action == "add" and row.startswith("+"):
        section.added.append(row[1:] + "\n")
    elif row.strip():
        raise _misplaced(section.action, row, number)


def _misplaced(action: str, row: str, number: int) -> Rejected:
    if action == "add":
        return Rejected(f"line {number} of a new file must begin with '+': {row[:200]}")
    if action == "delete":
        return Rejected(f"line {number}: nothing may follow '*** Delete File:': {row[:200]}")
    return Rejected(f"line {number} stands before the first header: {row[:200]}")


def _add_to_chunks(chunks: list[Chunk], row: str, number: int) -> None:
    if row.startswith("@@"):
        chunks.append(Chunk(row[2:].strip()))
    elif row.strip() == "*** End of File":
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
    """Apply all chunks in order. Lines that stay keep their bytes. Raises Rejected."""
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
    """Return where these lines are, from ``start`` on (with ``at_end``, preferably last): exactly;
    else but for blanks at their ends; else at both; else but for quotation marks and dashes."""
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


@tool(
    "apply_patch",
    """Changes files by a patch: all of it is applied, or none.

The patch is an envelope with one section per file:

*** Begin Patch
*** Add File: docs/hello.txt
+Every line of a new file begins with a plus sign
*** Update File: src/app.py
*** Move to: src/main.py
@@ def greet():
-    print("Hi")
+    print("Hello")
*** Delete File: obsolete.txt
*** End Patch

- Each section begins with Add File, Delete File or Update File; Move to, right after Update \
File, renames it.
- In an update, lines begin with a blank (stays), `-` (goes) or `+` (comes). `@@` begins a place; \
after it may stand a line above that place, which tells it from others like it. Give about three \
unchanged lines around each change.
- Paths are relative to the project, or absolute.""",
    patchText=text("The full patch text that describes all changes to be made", empty=False),
)
def apply_patch(context: Context, patch_text: str) -> Result:
    sections = parse(patch_text)
    paths: dict[str, None] = {}  # in their order, each once
    for section in sections:
        section.path = files.resolve(section.path, context.worktree)
        section.target = files.resolve(section.target, context.worktree)
        paths |= {section.path: None, section.target: None}
    with files.locked(context, paths):
        changes = _fetch(context, list(paths))
        entries = [_apply(section, changes) for section in sections]
        names = [files.relative(section.path) for section in sections]
        difference = "".join(entry["patch"] + "\n" for entry in entries)
        metadata = {"diff": difference, "files": entries}
        ask(context, "edit", names, {"filepath": ", ".join(names), **metadata})
        changed = [each for each in changes.values() if each.text != each.found.text]
        if changed:
            # Deletions come last: a moved file's mode is taken from the old one.
            files.store(context, sorted(changed, key=lambda change: change.text is None))
    letters = {"add": "A", "delete": "D", "update": "M", "move": "M"}
    rows = [f"{letters[entry['type']]} {name(entry['relativePath'])}" for entry in entries]
    output = "\n".join(["Success. Updated the following files:", *rows])
    return Result(output, output, {**metadata, "diagnostics": {}})


def _fetch(context: Context, paths: list[str]) -> dict[str, files.Change]:
    """Read the files. Raises ToolError for what is no text file, or named in two ways."""
    changes: dict[str, files.Change] = {}
    for path, found in zip(paths, files.fetch(context, paths), strict=True):
        if found.kind != "missing" and "\0" in found.need_text():
            raise Rejected(f"{name(found.path)} is a binary file")
        if found.path in [change.found.path for change in changes.values()]:
            raise Rejected("one file is named in two ways")
        changes[path] = files.Change(found, found.text)
    return changes


def _apply(section: Section, changes: dict[str, files.Change]) -> dict[str, Any]:
    """Apply a section; returns its entry of OpenCode's ``metadata.files``. Raises Rejected."""
    change, target, shown = changes[section.path], changes[section.target], name(section.path)
    before, after, kind = change.text, None, section.action
    if kind == "add":
        after = "".join(section.added)
    elif before is None:
        raise Rejected(f"Failed to read file to {section.action}: {shown}")
    elif kind == "update":
        after = update(shown, before, section.chunks)
    if target is not change:
        kind, change.text = "move", None
        target.like = "-" if change.found.text is None else change.found.path
    target.text = after
    difference = compare(shown, before or "", after or "")
    entry = {"filePath": section.path, "relativePath": files.relative(section.target), "type": kind}
    entry |= {"movePath": section.target} if kind == "move" else {}
    counts = {"additions": difference.additions, "deletions": difference.deletions}
    return {**entry, "patch": difference.patch, **counts}
