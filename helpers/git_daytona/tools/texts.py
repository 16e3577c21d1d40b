"""Texts of files, as they are: with a byte-order mark if there is one, with their line endings, and
with bytes that are not UTF-8 as lone surrogates. And their differences as OpenCode's display reads
them, which like the model's texts have no mark and end lines with ``\\n``. Pure."""

import difflib
import re
from dataclasses import dataclass
from itertools import takewhile

BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"
CONTEXT_LINES = 4
DIFF_LENGTH = 200_000  # characters of a difference; a longer one is replaced by a remark
SEARCHED_LINES = 3000  # up to so many the shortest difference is found, in time by their square


def unified(text: str) -> str:
    """Return the text with ``\\n`` at the end of each line."""
    return text.replace("\r\n", "\n")


def ending(text: str) -> str:
    """Return the line ending that most lines have."""
    return "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"


def rows(text: str) -> list[str]:
    """Split at ``\\n`` alone, which stays; splitlines() breaks at form feeds and the like, too."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


@dataclass(frozen=True)
class Diff:
    """How one file changes, as OpenCode's ``metadata.filediff``."""

    file: str
    patch: str
    additions: int
    deletions: int


def compare(path: str, old: str, new: str) -> Diff:
    """Return the difference of two texts."""
    hunks = _hunks(_shown(old), _shown(new))
    additions = sum(row.startswith("+") for row in hunks)
    deletions = sum(row.startswith("-") for row in hunks)
    body = "".join(_dedented(hunks))
    if len(body) > DIFF_LENGTH:
        counts = f"{additions} lines added, {deletions} removed"
        body = f"@@ -0,0 +1,1 @@\n+[the difference is too long to be shown: {counts}]\n"
    head = f"Index: {path}\n{'=' * 67}\n--- {path}\n+++ {path}\n"
    return Diff(path, head + body, additions, deletions)


def _shown(text: str) -> list[str]:
    """Return a text's lines, with replacements for what JSON could not carry."""
    shown = unified(text.removeprefix(BOM)).encode("utf-8", "surrogateescape")
    return rows(shown.decode("utf-8", "replace"))


def _hunks(before: list[str], after: list[str]) -> list[str]:
    """Return headers and lines, each with its sign."""
    start = _common(before, after)
    end = _common(before[start:][::-1], after[start:][::-1])
    if start == len(before) == len(after):
        return []
    first, trail = max(0, start - CONTEXT_LINES), max(0, end - CONTEXT_LINES)
    old, new = before[first : len(before) - trail], after[first : len(after) - trail]
    if len(old) + len(new) <= SEARCHED_LINES:
        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        groups = list(matcher.get_grouped_opcodes(CONTEXT_LINES))
    else:
        lead, old_end, new_end = start - first, len(before) - end - first, len(after) - end - first
        whole = ("replace", lead, old_end, lead, new_end)
        rest = ("equal", old_end, len(old), new_end, len(new))
        groups = [[("equal", 0, lead, 0, lead), whole, rest]]
    hunks: list[str] = []
    for group in groups:
        old_range = _range(first + group[0][1], first + group[-1][2])
        new_range = _range(first + group[0][3], first + group[-1][4])
        hunks.append(f"@@ -{old_range} +{new_range} @@\n")
        for kind, old_start, old_end, new_start, new_end in group:
            if kind == "equal":
                hunks += (" " + row for row in old[old_start:old_end])
            else:
                hunks += ("-" + row for row in old[old_start:old_end])
                hunks += ("+" + row for row in new[new_start:new_end])
    return hunks


def _common(before: list[str], after: list[str]) -> int:
    """Return how many lines both begin with."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))))


def _range(start: int, end: int) -> str:
    """Return lines for a hunk's header; an empty side is named by the line before it."""
    return f"{start + (end > start)},{end - start}"


def _dedented(hunks: list[str]) -> list[str]:
    """Remove the indentation that all lines share, as OpenCode does; mark a missing ``\\n``."""
    indents = [re.match(r"[-+ ](\s*)\S", row) for row in hunks]
    common = min((len(indent[1]) for indent in indents if indent), default=0)
    return [
        (row[0] + row[1 + common :] if indent else row)
        + ("" if row.endswith("\n") else "\n\\ No newline at end of file\n")
        for row, indent in zip(hunks, indents, strict=True)
    ]
