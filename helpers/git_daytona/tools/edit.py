"""edit and multiedit: replace texts in a file. Two API calls: one to read it, one to write it."""

import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from git_daytona.tools import files
from git_daytona.tools.answers import name
from git_daytona.tools.context import Context, Result, ToolError, ask, flag, objects, text, tool
from git_daytona.tools.files import Change, Found
from git_daytona.tools.texts import BOM, compare, ending, unified

LISTED_PLACES = 10  # how many places of several a message lists
IDENTICAL = "No changes to apply: oldString and newString are identical."
EMPTY = (
    "oldString cannot be empty when editing an existing file. "
    "Provide the exact text to replace, or use write for an intentional full-file replacement."
)
MISSING = (
    "Could not find oldString in the file. It must match exactly, including whitespace, "
    "indentation, and line endings."
)

Step = tuple[str, str, bool]  # old, new, and whether all places are replaced

_PATH = text("The path of the file to modify, absolute or relative to the project", empty=False)
_STEP = {
    "oldString": text("The text to replace"),
    "newString": text("The text to replace it with (must be different from oldString)"),
    "replaceAll": flag("Replace all occurrences of oldString (default false)"),
}


@tool(
    "edit",
    """Replaces a text in a file by another.

- `oldString` must stand in the file exactly as given, indentation included, and only once: else \
the edit fails. Add lines around it to make it unique, or set `replaceAll` to change all of them \
(renaming, say).
- Read the file first. Take what follows the line number and its colon and blank; never put these \
into oldString or newString.
- Both strings are taken literally. `\\n` also matches the line ends of files that use `\\r\\n`, \
and the file keeps them, its mode and its byte-order mark.
- Prefer editing a file that exists to writing a new one.""",
    filePath=_PATH,
    **_STEP,
)
def edit(context: Context, path: str, old: str, new: str, every: bool) -> Result:
    if unified(old) == unified(new):
        raise ToolError(IDENTICAL)
    return _edit(context, path, [(old, new, every)])


@tool(
    "multiedit",
    """Makes several replacements in one file, all or none.

- Each edit works as the edit tool does, on what those before it have left. If one cannot be \
made, the file stays as it is.
- Prefer this to several edit calls on the same file. Mind that an early edit may change the text \
that a later one looks for.""",
    filePath=_PATH,
    edits=objects("The edits, in the order in which they are made", _STEP),
)
def multiedit(context: Context, path: str, edits: Sequence[Step]) -> Result:
    result = _edit(context, path, edits, several=True)
    return replace(result, metadata={**result.metadata, "results": [{} for _ in edits]})


def _edit(context: Context, path: str, edits: Sequence[Step], *, several: bool = False) -> Result:
    path = files.resolve(path, context.worktree)
    with files.locked(context, [path]):
        (found,) = files.fetch(context, [path])
        is_new = found.kind == "missing" and not edits[0][0]
        after = "" if is_new else found.need_text()
        if "\0" in after:
            raise ToolError(f"Cannot edit binary file: {name(found.path)}")
        for number, (old, new, every) in enumerate(edits, 1):
            try:
                creates = is_new and number == 1
                after = new if creates else replaced(after, old, new, every=every)
            except ToolError as problem:
                if not several:
                    raise
                raise ToolError(
                    f"Edit {number} of {len(edits)} failed, so none was made: {problem.message}"
                ) from None
        metadata = change(context, path, found, found.text or "", after)
    return Result(name(files.relative(path)), "Edit applied successfully.", metadata)


def change(context: Context, path: str, found: Found, before: str, after: str) -> dict[str, Any]:
    """Ask, write the file, whose lock is held, and return the difference as OpenCode's metadata."""
    difference = compare(name(found.path), before, after)
    shown = {"filepath": found.path, "diff": difference.patch}
    ask(context, "edit", [files.relative(path)], shown)
    files.store(context, [Change(found, after)])
    return {"diagnostics": {}, "diff": difference.patch, "filediff": asdict(difference)}


def replaced(text: str, old: str, new: str, *, every: bool = False) -> str:
    """Return the text with ``old`` replaced at its only place or, with ``every``, at all of them.
    A line break in ``old`` matches ``\\n`` and ``\\r\\n``; those in ``new`` become the file's own.
    All else is taken literally, and the rest of the file stays byte for byte. Raises ToolError."""
    old, new = unified(old), unified(new)
    if old == new:
        raise ToolError(IDENTICAL)
    if not old:
        raise ToolError(EMPTY)
    # A match neither begins nor ends within a \r\n.
    rows = r"(?:\r\n|(?<!\r)\n)".join(map(re.escape, old.split("\n")))
    pattern = re.compile(rows + r"(?!(?<=\r)\n)")
    starts = [found.start() for found in pattern.finditer(text)]
    if not starts:
        raise ToolError(MISSING + _nearly(text, old))
    if len(starts) > 1 and not every:
        lines = [str(text.count("\n", 0, start) + 1) for start in starts[:LISTED_PLACES]]
        more = ", …" if len(starts) > LISTED_PLACES else ""
        raise ToolError(
            f"Found multiple matches for oldString: {len(starts)}, at lines "
            f"{', '.join(lines)}{more}. "
            "Provide more surrounding context to make the match unique, or set replaceAll."
        )
    fresh = new.replace("\n", ending(text))
    return pattern.sub(lambda _found: fresh, text)


def _nearly(text: str, old: str) -> str:
    """Return which lines would match but for their whitespace, as far as that can be told."""
    wanted = [line.split() for line in old.strip("\n").split("\n")]
    rows = [line.split() for line in text.removeprefix(BOM).split("\n")]
    for start in range(len(rows) - len(wanted) + 1):
        if any(wanted) and rows[start : start + len(wanted)] == wanted:
            first, last = start + 1, start + len(wanted)
            where = f"Line {first} differs" if first == last else f"Lines {first}-{last} differ"
            return f" {where} from it in whitespace only: read them again."
    return ""
