"""Unified diffs in the form that OpenCode's display reads. Pure, and bounded in time and size."""

import difflib
from dataclasses import dataclass

CONTEXT = 4
LONGEST = 200_000
"""Characters of a diff; a longer one is replaced by a remark."""
PATIENCE = 3000
"""Lines that differ, up to which the shortest difference is looked for."""


@dataclass(frozen=True)
class Diff:
    """How one file changes."""

    path: str
    patch: str
    additions: int
    deletions: int

    def as_file(self) -> dict[str, object]:
        """As OpenCode's ``metadata.filediff``."""
        return {
            "file": self.path,
            "patch": self.patch,
            "additions": self.additions,
            "deletions": self.deletions,
        }


def compare(path: str, old: str, new: str) -> Diff:
    """The difference of two texts with ``\\n`` at the end of their lines."""
    before, after = _lines(old), _lines(new)
    rows = _rows(before, after)
    additions = sum(row.startswith("+") for row in rows)
    deletions = sum(row.startswith("-") for row in rows)
    head = f"Index: {path}\n{'=' * 67}\n--- {path}\n+++ {path}\n"
    body = "".join(_ended(row) for row in _trimmed(rows))
    if len(body) > LONGEST:
        body = (
            f"@@ -0,0 +1,1 @@\n+[the difference is too long to be shown: {additions} lines "
            f"added, {deletions} removed]\n"
        )
    return Diff(path, head + body, additions, deletions)


def _lines(text: str) -> list[str]:
    """splitlines() breaks at form feeds and the like, too; a diff must not."""
    rows = [row + "\n" for row in text.split("\n")]
    rows[-1] = rows[-1][:-1]
    return rows if rows[-1] else rows[:-1]


def _rows(before: list[str], after: list[str]) -> list[str]:
    """Hunks: headers and lines, each with its sign."""
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    if start == len(before) == len(after):
        return []
    # What both begin and end with is left out but for the context: the search takes time by the
    # square of what it is given.
    first = max(0, start - CONTEXT)
    old, new = (
        before[first : len(before) - max(0, end - CONTEXT)],
        after[first : len(after) - max(0, end - CONTEXT)],
    )
    if len(old) + len(new) > PATIENCE:
        old_end, new_end = len(before) - end - first, len(after) - end - first
        lead, trail = old[: start - first], old[old_end:]
        signed = [
            (" ", lead),
            ("-", old[start - first : old_end]),
            ("+", new[start - first : new_end]),
            (" ", trail),
        ]
        return [
            _header(first, len(old), first, len(new)),
            *(sign + row for sign, lines in signed for row in lines),
        ]
    rows: list[str] = []
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(
        CONTEXT
    ):
        (_, a, _, c, _), (_, _, b, _, d) = group[0], group[-1]
        rows.append(_header(first + a, b - a, first + c, d - c))
        for kind, i, j, k, m in group:
            if kind == "equal":
                rows += (" " + row for row in old[i:j])
                continue
            rows += ("-" + row for row in old[i:j])
            rows += ("+" + row for row in new[k:m])
    return rows


def _header(old: int, old_count: int, new: int, new_count: int) -> str:
    """Of a hunk; an empty side is named by the line before it."""
    return (
        f"@@ -{old + (1 if old_count else 0)},{old_count} "
        f"+{new + (1 if new_count else 0)},{new_count} @@\n"
    )


def _trimmed(rows: list[str]) -> list[str]:
    """Without the indentation that all lines share, as OpenCode shows diffs."""
    bodies = [row[1:] for row in rows if row[0] in "+- " and row[1:].strip()]
    common = min((len(body) - len(body.lstrip()) for body in bodies), default=0)
    if not common:
        return rows
    return [
        row[0] + row[1 + common :] if row[0] in "+- " and row[1:].strip() else row for row in rows
    ]


def _ended(row: str) -> str:
    return row if row.endswith("\n") else row + "\n\\ No newline at end of file\n"
