"""read: a file's lines, a directory's entries, or an image or PDF to look at. One API call."""

import base64
import posixpath
from typing import Any

from git_daytona.sandbox.scripts import script
from git_daytona.tools import answers, files, texts
from git_daytona.tools.answers import Answer, name
from git_daytona.tools.context import Context, Result, ToolError, ask, text, tool, whole

READ_SECONDS = 60.0
CUT = f"... (line truncated to {answers.LINE_LENGTH} chars)"
SENT = 220_000  # bytes that the sandbox sends: 50 KB are shown, of lines cut to a quarter at worst
MOST = 2**53 - 1

_ATTACHMENTS = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")
_BINARY = frozenset(
    str.split(
        ".zip .tar .gz .exe .dll .so .class .jar .war .7z .doc .docx .xls .xlsx .ppt .pptx .odt "
        ".ods .odp .bin .dat .obj .o .a .lib .wasm .pyc .pyo"
    )
)


@tool(
    "read",
    """Reads a file or directory of the project (or any other place in the sandbox).

- `filePath` may be absolute or relative to the project; a path under the user's working \
directory means the same file in the sandbox.
- Up to 2000 lines (50 KB) come at once, from `offset` (the first line is 1); call again with a \
larger `offset` for more. Lines of more than 2000 characters are cut.
- Each line comes after its number: `1: first line`. The number, the colon and one blank are not \
part of the file.
- A directory gives its entries, one a line, subdirectories with a trailing `/`. Images and PDFs \
come as attachments; other binary files are refused.
- Read several files in one message when you know that you need them, and large pieces rather \
than small ones. glob finds files by name, grep finds the place in a large one.""",
    filePath=text("The path of the file or directory to read", empty=False),
    offset=whole("The line number to start reading from (1-indexed)", 0, MOST, 1),
    limit=whole("The maximum number of lines to read (defaults to 2000)", 1, MOST, 2000),
)
def read(context: Context, path: str, offset: int, limit: int) -> Result:
    path = files.resolve(path, context.worktree)
    relative = files.relative(path)
    offset, count = offset or 1, min(limit, answers.MOST_LINES)
    ask(context, "read", [relative], {})
    words = (path, *map(str, (offset, count, SENT, files.LARGEST)))
    answer = Answer("read", context.execute(script("read"), *words, timeout=READ_SECONDS))
    kind, full = answer.line(), answer.text()
    if kind == "missing":
        raise ToolError(missing(full, answer.names()))
    if kind == "directory":
        return directory(full, name(relative), answer.names(), offset, count)
    files.Found(full, kind).need_text()
    size, _, total = answer.line().partition(" ")
    head, mime, content = answer.content(), answer.line(), answer.content()
    if mime in _ATTACHMENTS:
        return _attachment(full, name(relative), answer.number(size), mime, content)
    if is_binary(full, head):
        raise ToolError(f"Cannot read binary file: {name(full)}")
    return page(full, name(relative), content, offset, answer.number(total))


def page(path: str, title: str, content: bytes, offset: int, total: int) -> Result:
    """Return the result for a text file of ``total`` lines: ``content`` holds those from ``offset``
    (the first is 1) on, as many as may be shown at most. Raises ToolError."""
    if total < offset and (total, offset) != (0, 1):
        raise ToolError(f"Offset {offset} is out of range for this file ({total} lines)")
    lines = texts.rows(content.decode("utf-8", "replace").removeprefix(texts.BOM))
    rows = [answers.line(line.removesuffix("\n"), CUT) for line in lines]
    kept = answers.head([f"{number}: {row}" for number, row in enumerate(rows, offset)])
    last = offset + len(kept) - 1
    if len(kept) < len(rows) or (len(content) >= SENT and last < total):
        note = (
            f"(Output capped at 50 KB. Showing lines {offset}-{last}. Use offset={last + 1} to "
            "continue.)"
        )
    elif last < total:
        note = f"(Showing lines {offset}-{last} of {total}. Use offset={last + 1} to continue.)"
    else:
        note = f"(End of file - total {total} lines)"
    shown = rows[: len(kept)]
    details = {"type": "file", "path": path, "text": "\n".join(shown), "lineStart": offset}
    details |= {"lineEnd": last, "totalLines": total, "truncated": last < total}
    return _result(title, ["<content>", *kept, "", note, "</content>"], shown, details)


def directory(path: str, title: str, names: list[str], offset: int, count: int) -> Result:
    """Return the result for a directory: its entries from the ``offset``-th on."""
    entries = [name(each) for each in sorted(names, key=lambda each: (each.casefold(), each))]
    shown = answers.head(entries[offset - 1 : offset - 1 + count])
    total, following = len(entries), offset + len(shown)
    note = f"({total} entries)"
    if following <= total:
        note = (
            f"(Showing {len(shown)} of {total} entries. Use 'offset' parameter to read beyond "
            f"entry {following})"
        )
    details = {"type": "directory", "path": path, "entries": shown, "offset": offset}
    details |= {"totalEntries": total, "truncated": following <= total}
    output = ["<entries>", "\n".join(shown), "", note, "</entries>"]
    return _result(title, output, shown, details)


def _result(title: str, output: list[str], shown: list[str], details: dict[str, Any]) -> Result:
    metadata = {"preview": "\n".join(shown[:20]), "truncated": details["truncated"], "loaded": []}
    rows = [f"<path>{name(details['path'])}</path>", f"<type>{details['type']}</type>", *output]
    return Result(title, "\n".join(rows), {**metadata, "display": details})


def missing(path: str, names: list[str]) -> str:
    """Return the message for a path where nothing is, with up to three names that may be meant."""
    folder, base = posixpath.split(path)
    wanted = base.casefold()
    near = [
        posixpath.join(folder, each)
        for each in (each.rstrip("/") for each in sorted(names))
        if wanted in each.casefold() or (len(each) > 1 and each.casefold() in wanted)
    ]
    message = f"File not found: {name(path)}"
    if near:
        message += "\n".join(["\n\nDid you mean one of these?", *map(name, near[:3])])
    return message


def is_binary(path: str, head: bytes) -> bool:
    """Return whether a file is no text, by its name or its first bytes, as OpenCode decides it."""
    if posixpath.splitext(path)[1].lower() in _BINARY or b"\0" in head:
        return True
    return sum(byte < 9 or 13 < byte < 32 for byte in head) > 0.3 * len(head)


def _attachment(path: str, title: str, size: int, mime: str, content: bytes) -> Result:
    if size > files.LARGEST:
        raise ToolError(
            f"Cannot read {name(path)}: it has {size} bytes, images and PDFs of up to "
            f"{files.LARGEST} can be shown"
        )
    output = "PDF read successfully" if mime == "application/pdf" else "Image read successfully"
    url = f"data:{mime};base64,{base64.b64encode(content).decode()}"
    metadata = {"preview": output, "truncated": False, "loaded": []}
    return Result(title, output, metadata, [{"type": "file", "mime": mime, "url": url}])
