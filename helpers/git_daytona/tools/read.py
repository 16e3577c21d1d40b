"""read: the lines of a file, the entries of a directory, or an image or PDF as an attachment. One
API call."""

import posixpath
from collections.abc import Sequence

from git_daytona.sandbox.scripts import script
from git_daytona.tools import answers, bounds, clean, files, places
from git_daytona.tools.arguments import (
    Arguments,
    Definition,
    schema,
    stop_if_cancelled,
    text,
    whole,
)
from git_daytona.tools.context import Context, Result, ToolError

LINES = 2000
LINE = 2000
"""Characters of a line that are shown."""
CUT = f"... (line truncated to {LINE} chars)"
SENT = 220_000
"""Bytes of lines that the sandbox sends: enough for BYTES shown, whose long lines are cut to a
quarter at worst."""
SECONDS = 60.0
MOST = 2**53 - 1

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)
_BINARY = frozenset(
    str.split(
        ".zip .tar .gz .exe .dll .so .class .jar .war .7z .doc .docx .xls .xlsx .ppt .pptx "
        ".odt .ods .odp .bin .dat .obj .o .a .lib"
        " .wasm .pyc .pyo"
    )
)


def run(context: Context, arguments: Arguments) -> Result:
    path = places.resolve(arguments.text("filePath", empty=False), context.worktree)
    offset = arguments.number("offset", 1, least=0, most=MOST) or 1
    limit = arguments.number("limit", LINES, least=1, most=MOST)
    title = clean.name(places.relative(path))
    context.ask("read", [places.relative(path)], ["*"], {})
    stop_if_cancelled(context)
    count = min(limit, bounds.LINES)
    words = (path, str(offset), str(count), str(SENT), str(files.LARGEST))
    result = context.execute(script("read"), *words, timeout=SECONDS)
    lines = answers.lines(result, "read")
    if len(lines) < 2:
        raise answers.unexpected(result, "read")
    kind, full, rest = lines[0], answers.path(lines[1]), lines[2:]
    if kind == "missing":
        raise ToolError(missing(full, answers.names(rest[0]) if rest else []))
    if kind == "directory" and rest:
        return directory(full, title, answers.names(rest[0]), offset, count)
    if kind != "file" or len(rest) != 4:
        files.need_file(files.Found(full, kind))
        raise answers.unexpected(result, "read")
    size, total = (answers.number(each) for each in rest[0].partition(" ")[::2])
    if size is None or total is None:
        raise answers.unexpected(result, "read")
    if rest[2] == "attachment":
        return _attachment(full, title, size, rest[1], rest[3])
    if is_binary(full, answers.decoded(rest[1])):
        raise ToolError(f"Cannot read binary file: {clean.name(full)}")
    return page(full, title, answers.decoded(rest[3]), offset, total)


def page(path: str, title: str, content: bytes, offset: int, total: int) -> Result:
    """The result for a text file: ``content`` holds its lines from ``offset`` (the first is 1) on,
    as many as may be shown at most; ``total`` is how many it has."""
    if total < offset and not (total == 0 and offset == 1):
        raise ToolError(f"Offset {offset} is out of range for this file ({total} lines)")
    rows = (
        content.decode("utf-8", "replace")
        .removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}" if offset == 1 else "")
        .split("\n")
    )
    if not rows[-1]:
        rows.pop()
    shown = [_line(row) for row in rows]
    numbered = [f"{number}: {row}" for number, row in enumerate(shown, offset)]
    kept, capped = bounds.head(numbered)
    capped = capped or (len(content) >= SENT and offset + len(kept) - 1 < total)
    last = offset + len(kept) - 1
    more = last < total
    if capped:
        note = (
            f"(Output capped at 50 KB. Showing lines {offset}-{last}. Use offset={last + 1} to "
            "continue.)"
        )
    elif more:
        note = f"(Showing lines {offset}-{last} of {total}. Use offset={last + 1} to continue.)"
    else:
        note = f"(End of file - total {total} lines)"
    shown = shown[: len(kept)]
    where = clean.name(path)
    output = "\n".join(
        [f"<path>{where}</path>", "<type>file</type>", "<content>", *kept, "", note, "</content>"]
    )
    display = {
        "type": "file",
        "path": path,
        "text": "\n".join(shown),
        "lineStart": offset,
        "lineEnd": last,
        "totalLines": total,
    }
    metadata = {
        "preview": "\n".join(shown[:20]),
        "truncated": more,
        "loaded": [],
        "display": display | {"truncated": more},
    }
    return Result(title, output, metadata)


def _line(row: str) -> str:
    row = clean.line(row.removesuffix("\r"))
    return row[:LINE] + CUT if len(row) > LINE else row


def directory(path: str, title: str, names: Sequence[str], offset: int, count: int) -> Result:
    """The result for a directory: its entries from the ``offset``-th on, directories with a slash
    at their end."""
    entries = [clean.name(name) for name in sorted(names, key=lambda name: (name.casefold(), name))]
    shown, _ = bounds.head(entries[offset - 1 : offset - 1 + count])
    more = offset - 1 + len(shown) < len(entries)
    note = f"({len(entries)} entries)"
    if more:
        note = (
            f"(Showing {len(shown)} of {len(entries)} entries. Use 'offset' parameter to read "
            f"beyond entry {offset + len(shown)})"
        )
    where = clean.name(path)
    output = "\n".join(
        [
            f"<path>{where}</path>",
            "<type>directory</type>",
            "<entries>",
            "\n".join(shown),
            f"\n{note}",
            "</entries>",
        ]
    )
    display = {
        "type": "directory",
        "path": path,
        "entries": shown,
        "offset": offset,
        "totalEntries": len(entries),
    }
    metadata = {
        "preview": "\n".join(shown[:20]),
        "truncated": more,
        "loaded": [],
        "display": display | {"truncated": more},
    }
    return Result(title, output, metadata)


def missing(path: str, beside: Sequence[str]) -> str:
    """The message for a path where nothing is, with up to three names beside it that may be
    meant."""
    folder, base = posixpath.split(path)
    wanted = base.casefold()
    near = [name.rstrip("/") for name in sorted(beside)]
    near = [
        name
        for name in near
        if wanted in name.casefold() or (len(name) > 1 and name.casefold() in wanted)
    ]
    message = f"File not found: {clean.name(path)}"
    if near:
        message += "\n\nDid you mean one of these?\n" + "\n".join(
            clean.name(posixpath.join(folder, name)) for name in near[:3]
        )
    return message


def mime(head: bytes) -> str | None:
    """The type of an image or PDF by its first bytes."""
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MAGIC if head.startswith(magic)), None)


def is_binary(path: str, head: bytes) -> bool:
    """Whether a file is no text, by its name or its first bytes, as OpenCode decides it."""
    if posixpath.splitext(path)[1].lower() in _BINARY or b"\0" in head:
        return True
    odd = sum(byte < 9 or 13 < byte < 32 for byte in head)
    return odd > 0.3 * len(head)


def _attachment(path: str, title: str, size: int, head: str, content: str) -> Result:
    kind = mime(answers.decoded(head)) or "application/octet-stream"
    said = "PDF read successfully" if kind == "application/pdf" else "Image read successfully"
    if size > files.LARGEST:
        raise ToolError(
            f"Cannot read {clean.name(path)}: it has {size} bytes, images and PDFs of up to "
            f"{files.LARGEST} can be shown"
        )
    answers.decoded(content)
    attachment = {"type": "file", "mime": kind, "url": f"data:{kind};base64,{content}"}
    return Result(title, said, {"preview": said, "truncated": False, "loaded": []}, [attachment])


TOOL = Definition(
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
    schema(
        "filePath",
        filePath=text("The path of the file or directory to read"),
        offset=whole("The line number to start reading from (1-indexed)", 0, MOST),
        limit=whole("The maximum number of lines to read (defaults to 2000)", 1, MOST),
    ),
    run,
)
