"""The text of a state file, and what it says. Pure.

With thousands of sessions in it, parsing the file and forming its text anew would be most of what a
tool call costs here. So what was read or written last is kept beside its text, and a change forms
the text of one record only.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Content:
    """What a state file says. Several threads look at it: nothing of it is ever changed, a change
    makes another one."""

    raw: bytes
    """The file's text; empty for a file that is not there yet."""
    document: dict[str, Any]
    lines: dict[str, bytes]
    """The records whose text is known already: session id → their line in the file."""

    @property
    def records(self) -> dict[str, Any]:
        """Session id → record, which may be anything that JSON knows."""
        found: dict[str, Any] = self.document["sessions"]
        return found


def empty(project_id: str, worktree: str) -> Content:
    """What a file that is not there yet says."""
    return Content(b"", {"projectId": project_id, "worktree": worktree, "sessions": {}}, {})


def parse(raw: bytes) -> Content | None:
    """What a file's text says; None if it makes no sense."""
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or not isinstance(document.setdefault("sessions", {}), dict):
        return None
    return Content(raw, document, {})


def change(
    content: Content, session_id: str | None, apply: Callable[[dict[str, Any]], T]
) -> tuple[Content, T]:
    """The content with a change applied, and what that returned. It may change the record of that
    session and exchange what stands beside the records, and no other record."""
    records, lines = dict(content.records), dict(content.lines)
    if session_id is not None:
        lines.pop(session_id, None)
        if isinstance(records.get(session_id), dict):
            records[session_id] = dict(records[session_id])
    document = {**content.document, "sessions": records}
    result = apply(document)
    if spliced := _spliced(content, session_id, document, lines):
        return spliced, result
    # In the records' order, which is the file's.
    lines = {name: lines.get(name) or _line(name, record) for name, record in records.items()}
    return Content(_join(document, lines), document, lines), result


def _spliced(
    content: Content, session_id: str | None, document: dict[str, Any], lines: dict[str, bytes]
) -> Content | None:
    """The content with the line of one session exchanged in its text; None where more has changed,
    or that line is not known."""
    before, records = content.lines.get(session_id or ""), document["sessions"]
    if (
        session_id is None
        or before is None
        or session_id not in records
        or len(records) != len(content.lines)
    ):
        return None
    beside = [(name, id(value)) for name, value in content.document.items() if name != "sessions"]
    if beside != [(name, id(value)) for name, value in document.items() if name != "sessions"]:
        return None
    # It stands there once: no other begins with its name, and no text in JSON holds an end of line.
    start = content.raw.find(b"\n" + before) + 1
    if not start:
        return None
    after = lines[session_id] = _line(session_id, records[session_id])
    text = memoryview(content.raw)  # of a large file each copy counts
    return Content(b"".join((text[:start], after, text[start + len(before) :])), document, lines)


def _join(document: dict[str, Any], lines: dict[str, bytes]) -> bytes:
    """JSON with a line for each session."""
    sessions = b"{\n%b\n  }" % b",\n".join(lines.values()) if lines else b"{}"
    fields = [
        b"  %b: %b" % (_text(name), sessions if name == "sessions" else _text(value))
        for name, value in document.items()
    ]
    return b"{\n%b\n}" % b",\n".join(fields)


def _line(name: str, record: object) -> bytes:
    return b"%b:%b" % (_text(name), _text(record))


def _text(value: object) -> bytes:
    # surrogatepass: half of a character that was cut in two, as JavaScript writes it, comes back as
    # it was.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )
