"""Files of the sandbox, read and changed with one API call each however many they are.

A change names the content that it was made from, so what somebody else (a command of the agent's,
another session's tool) wrote in between is never lost: then nothing is changed, and the model is
told to read again.
"""

import base64
import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from git_daytona.sandbox.scripts import script
from git_daytona.tools import answers, clean
from git_daytona.tools.context import Context, ToolError

SECONDS = 120.0
LARGEST = 8 * 1024 * 1024
"""Bytes of a file that can be changed, or shown as an attachment: what comes as the output of one
command. (The SDK's download, for more, fails for empty files and for names that are not plain
ASCII.)"""
ARGUMENT = 96 * 1024
"""Characters of one argument of a command; Linux takes 128 KiB (MAX_ARG_STRLEN)."""
ARGUMENTS = 512 * 1024
"""Characters of all of them; what is more is uploaded before."""


@dataclass(frozen=True)
class Found:
    """What lies at a path."""

    path: str
    """The sandbox path, absolute."""
    kind: str
    """file, directory, other, unreadable or missing."""
    content: bytes = b""
    state: str = "-"
    """What a change has to name: ``SIZE DIGEST`` of a file, ``-`` for nothing."""


@dataclass(frozen=True)
class Change:
    """A file to be written, or with content None deleted."""

    found: Found
    content: bytes | None
    like: str | None = None
    """The file whose mode a new one takes."""


def fetch(context: Context, paths: Sequence[str]) -> list[Found]:
    """What lies at these places, with contents. Raises ToolError for a file above LARGEST."""
    result = context.execute(script("fetch"), str(LARGEST), *paths, timeout=SECONDS)
    lines = answers.lines(result, "the tool")
    if len(lines) != 3 * len(paths):
        raise answers.unexpected(result, "the tool")
    return [_read(lines[at : at + 3]) for at in range(0, len(lines), 3)]


def _read(lines: Sequence[str]) -> Found:
    kind, _, state = lines[0].partition(" ")
    path = answers.path(lines[1])
    if kind != "file":
        return Found(path, kind)
    size = answers.number(state.partition(" ")[0]) or 0
    if size > LARGEST:
        raise ToolError(
            f"{clean.name(path)} has {size} bytes; at most {LARGEST} can be changed here. "
            "Use bash for it."
        )
    return Found(path, kind, answers.decoded(lines[2]), state)


def store(context: Context, changes: Sequence[Change]) -> None:
    """Make all changes or none. Raises ToolError when a file is not (any more) what was found, or
    cannot be written."""
    arguments: list[str] = []
    room = ARGUMENTS
    for change in changes:
        arguments += (
            "delete" if change.content is None else "write",
            change.found.path,
            change.found.state,
            change.like or "-",
        )
        encoded = base64.b64encode(change.content or b"").decode()
        if len(encoded) > room:
            staged = f"/tmp/git-daytona-{secrets.token_hex(12)}"  # noqa: S108 — in the sandbox, and unguessable
            context.upload(staged, change.content or b"")
            arguments += ("staged", staged)
            continue
        room -= len(encoded)
        chunks = [encoded[at : at + ARGUMENT] for at in range(0, len(encoded), ARGUMENT)]
        arguments += ("chunks", str(len(chunks)), *chunks)
    result = context.execute(script("store"), str(LARGEST), *arguments, timeout=SECONDS)
    lines = answers.lines(result, "the tool")
    word, _, rest = (lines or [""])[0].partition(" ")
    which, _, complaint = rest.partition(" ")
    if word == "done":
        return
    number = answers.number(which)
    if word not in ("conflict", "failed") or number is None or number >= len(changes):
        raise answers.unexpected(result, "the tool")
    path = clean.name(changes[number].found.path)
    if word == "conflict" and len(lines) == 4:
        raise Changed(path, _read(lines[1:]))
    raise ToolError(
        f"Cannot write {path}: {clean.name(complaint.strip()) or 'unknown error'}. Nothing "
        "was changed."
    )


class Changed(ToolError):
    """A file is not what the change was made from; ``found`` is what it is."""

    def __init__(self, path: str, found: Found) -> None:
        super().__init__(
            f"File {path} has been modified since it was last read. Nothing was changed. "
            "Read it again, then retry."
        )
        self.found = found


def locked(context: Context, paths: Sequence[str]) -> ExitStack:
    """Hold the locks of these files, in one order so that no two callers wait for each other."""
    with ExitStack() as stack:
        for path in sorted(set(paths)):
            stack.enter_context(context.exclusive(path))
        return stack.pop_all()


def need_file(found: Found) -> Found:
    """The file; raises ToolError for what is none."""
    shown = clean.name(found.path)
    if found.kind == "missing":
        raise ToolError(f"File {shown} not found")
    if found.kind == "directory":
        raise ToolError(f"Path is a directory, not a file: {shown}")
    if found.kind == "unreadable":
        raise ToolError(f"Permission denied: {shown}")
    if found.kind != "file":
        raise ToolError(f"Not a regular file: {shown}")
    return found
