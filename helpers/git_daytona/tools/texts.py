"""A file's bytes as the text that the model sees, and back with nothing lost; and differences of
two texts as OpenCode's display reads them. Pure.

The model's text has no byte-order mark and ends lines with ``\\n``; the file keeps what it has.
"""

import difflib
from dataclasses import dataclass, replace
from itertools import takewhile

BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"
CONTEXT_LINES = 4
DIFF_LENGTH = 200_000
"""Characters of a difference; a longer one is replaced by a remark."""
SEARCHED_LINES = 3000
"""Up to so many lines the shortest difference is searched for, in time by their square."""


@dataclass(frozen=True)
class Text:
    """A file's text without its mark; bytes that are not UTF-8 are lone surrogates in ``raw``."""

    raw: str
    bom: bool = False

    @property
    def ending(self) -> str:
        """The line ending that most lines have."""
        return "\r\n" if self.raw.count("\r\n") * 2 > self.raw.count("\n") else "\n"

    @property
    def shown(self) -> str:
        """The text for a difference: ``\\n`` only, and nothing that JSON could not carry."""
        return unified(self.raw).encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    def with_raw(self, raw: str) -> "Text":
        return replace(self, raw=raw)

    def encode(self) -> bytes:
        return ((BOM if self.bom else "") + self.raw).encode("utf-8", "surrogateescape")


def decode(content: bytes) -> Text:
    """Return the text of a file's bytes."""
    text = content.decode("utf-8", "surrogateescape")
    return Text(text.removeprefix(BOM), text.startswith(BOM))


def unified(text: str) -> str:
    """Return the text with ``\\n`` at the end of each line."""
    return text.replace("\r\n", "\n")


def is_binary(content: bytes) -> bool:
    """Return whether the bytes are not a text that could be edited."""
    return b"\0" in content


@dataclass(frozen=True)
class Diff:
    """How one file changes, as OpenCode's ``metadata.filediff``."""

    file: str
    patch: str
    additions: int
    deletions: int


def compare(path: str, old: str, new: str) -> Diff:
    """Return the difference of two texts with ``\\n`` at the end of their lines."""
    rows = _hunks(_lines(old), _lines(new))
    additions = sum(row.startswith("+") for row in rows)
    deletions = sum(row.startswith("-") for row in rows)
    body = "".join(
        row if row.endswith("\n") else row + "\n\\ No newline at end of file\n"
        for row in _dedented(rows)
    )
    if len(body) > DIFF_LENGTH:
        body = (
            f"@@ -0,0 +1,1 @@\n+[the difference is too long to be shown: {additions} lines "
            f"added, {deletions} removed]\n"
        )
    head = f"Index: {path}\n{'=' * 67}\n--- {path}\n+++ {path}\n"
    return Diff(path, head + body, additions, deletions)


def _lines(text: str) -> list[str]:
    """Split at ``\\n`` alone; splitlines() breaks at form feeds and the like, too."""
    *rows, last = text.split("\n")
    return [row + "\n" for row in rows] + ([last] if last else [])


def _common(before: list[str], after: list[str]) -> int:
    """Return how many lines both begin with."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))))


def _hunks(before: list[str], after: list[str]) -> list[str]:
    """Return headers and lines, each with its sign."""
    start = _common(before, after)
    end = _common(before[start:][::-1], after[start:][::-1])
    if start == len(before) == len(after):
        return []
    first = max(0, start - CONTEXT_LINES)
    old = before[first : len(before) - max(0, end - CONTEXT_LINES)]
    new = after[first : len(after) - max(0, end - CONTEXT_LINES)]
    if len(old) + len(new) <= SEARCHED_LINES:
        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        groups = list(matcher.get_grouped_opcodes(CONTEXT_LINES))
    else:
        lead, trail = start - first, min(end, CONTEXT_LINES)
        old_end, new_end = len(old) - trail, len(new) - trail
        whole = ("replace", lead, old_end, lead, new_end)
        after_it = ("equal", old_end, len(old), new_end, len(new))
        groups = [[("equal", 0, lead, 0, lead), whole, after_it]]
    rows: list[str] = []
    for group in groups:
        old_range = _range(first + group[0][1], first + group[-1][2])
        new_range = _range(first + group[0][3], first + group[-1][4])
        rows.append(f"@@ -{old_range} +{new_range} @@\n")
        for kind, old_start, old_end, new_start, new_end in group:
            if kind == "equal":
                rows += (" " + row for row in old[old_start:old_end])
            else:
                rows += ("-" + row for row in old[old_start:old_end])
                rows += ("+" + row for row in new[new_start:new_end])
    return rows


def _range(start: int, end: int) -> str:
    """Return lines for a hunk's header; an empty side is named by the line before it."""
    return f"{start + (end > start)},{end - start}"


def _dedented(rows: list[str]) -> list[str]:
    """Remove the indentation that all lines share, as OpenCode does where it shows differences."""
    lines = [row for row in rows if row[0] in "+- " and row[1:].strip()]
    common = min((len(row[1:]) - len(row[1:].lstrip()) for row in lines), default=0)
    return [
        row[0] + row[1 + common :] if row[0] in "+- " and row[1:].strip() else row for row in rows
    ]
