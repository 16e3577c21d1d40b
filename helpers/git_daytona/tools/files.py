"""Files of the sandbox: where a path that the model writes lies, and reading and changing with one
API call each, however many they are.

OpenCode tells the model the working directory of the user's machine, so models write its paths; the
tools' own output shows sandbox paths. Both lead to the same place.

A change names the content that it was made from, so what a command or another tool wrote in between
is never lost: then nothing is changed, and the model is told to read again.
"""

import base64
import posixpath
import re
import secrets
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import PurePosixPath

from git_daytona.git.refs import PROJECT
from git_daytona.sandbox.scripts import script
from git_daytona.tools.answers import Answer, name, unexpected
from git_daytona.tools.context import Context, ToolError

FILES_SECONDS = 120.0
LARGEST = 8 * 1024 * 1024
"""Bytes of a file that can be changed, or shown as an attachment: what comes as the output of one
command. (The SDK's download, for more, fails for empty files and for names that are not plain
ASCII.)"""
ARGUMENT_LENGTH = 96 * 1024  # of one argument of a command; Linux takes 128 KiB (MAX_ARG_STRLEN)
ARGUMENTS_LENGTH = 512 * 1024  # of all of them; what is more is uploaded before
PATH_LENGTH = 4000  # characters; Linux takes 4095 bytes


def resolve(path: str, worktree: str) -> str:
    """Return the sandbox path that is meant: absolute and without ``.``, ``..`` and double slashes,
    or ``~`` or ``~/…`` for the sandbox's home (only the sandbox knows where that is).

    Relative paths are relative to the project, absolute ones under the user's worktree mean the
    same place in the project, every other absolute path is the sandbox's own. Raises ToolError.
    """
    if not re.fullmatch(rf"[^\0]{{1,{PATH_LENGTH}}}", path):
        raise ToolError("a path must not be empty, hold NUL or be longer than 4000 characters")
    if path == "~" or path.startswith("~/"):
        return "~" + _normal(path[1:]).rstrip("/")
    full = _normal(posixpath.join(PROJECT, path))
    below = PurePosixPath(full).is_relative_to
    # "/" is OpenCode's worktree where there is no repository: everything would be below it.
    root = _normal(worktree if worktree.startswith("/") else "/")
    if root == "/" or not path.startswith("/") or not below(root):
        return full
    # What the tools print is in PROJECT already, unless the worktree itself is there (OpenCode
    # running in a sandbox).
    if below(PROJECT) and not PurePosixPath(root).is_relative_to(PROJECT):
        return full
    return _normal(PROJECT + full[len(root) :])


def relative(path: str) -> str:
    """Return a path as titles show and rules match it: relative to the project (``""``)."""
    found = path if path.startswith("~") else posixpath.relpath(path, PROJECT)
    return "" if found == "." else found


def _normal(path: str) -> str:
    return "/" + posixpath.normpath("/" + path).lstrip("/")


@dataclass(frozen=True)
class Found:
    """What is at a path; ``kind`` is file, directory, other, unreadable or missing."""

    path: str  # the sandbox's, absolute
    kind: str
    text: str | None = None  # what a file holds
    state: str = "-"  # what a change has to name: ``SIZE DIGEST`` of a file, ``-`` for nothing

    def need_text(self) -> str:
        """Return what the file holds. Raises ToolError for what is not a file."""
        shown = name(self.path)
        if self.kind == "missing":
            raise ToolError(f"File {shown} not found")
        if self.kind == "directory":
            raise ToolError(f"Path is a directory, not a file: {shown}")
        if self.kind == "unreadable":
            raise ToolError(f"Permission denied: {shown}")
        if self.kind != "file":
            raise ToolError(f"Not a regular file: {shown}")
        return self.text or ""


@dataclass
class Change:
    """A file to be written, or with text None deleted."""

    found: Found
    text: str | None
    like: str = "-"  # the file whose mode a new one takes


class Changed(ToolError):
    """A file is not what the change was made from; ``found`` is what it is."""

    def __init__(self, found: Found) -> None:
        super().__init__(
            f"File {name(found.path)} has been modified since it was last read. Nothing was "
            "changed. Read it again, then retry."
        )
        self.found = found


def locked(context: Context, paths: Iterable[str]) -> ExitStack:
    """Hold the locks of these files, in one order so that no two callers wait for each other."""
    with ExitStack() as stack:
        for path in sorted(set(paths)):
            stack.enter_context(context.exclusive(path))
        return stack.pop_all()


def fetch(context: Context, paths: Sequence[str]) -> list[Found]:
    """Return what is at these places. Raises ToolError for a file above LARGEST."""
    result = context.execute(script("fetch"), str(LARGEST), *paths, timeout=FILES_SECONDS)
    answer = Answer("the tool", result)
    return [_read(answer) for _ in paths]


def _read(answer: Answer) -> Found:
    kind, *state = answer.line().split(" ")
    path, text = answer.text(), answer.text()
    if kind != "file":
        return Found(path, kind)
    size = answer.number(state[0] if state else "")
    if size > LARGEST:
        raise ToolError(
            f"{name(path)} has {size} bytes; at most {LARGEST} can be changed here. "
            "Use bash for it."
        )
    return Found(path, kind, text, " ".join(state))


def store(context: Context, changes: Sequence[Change]) -> None:
    """Make all changes or none. Raises Changed, and ToolError for what cannot be written."""
    arguments: list[str] = []
    room = ARGUMENTS_LENGTH
    for change in changes:
        action = "delete" if change.text is None else "write"
        arguments += (action, change.found.path, change.found.state, change.like)
        content = (change.text or "").encode("utf-8", "surrogateescape")
        encoded = base64.b64encode(content).decode()
        if len(encoded) > room:
            staged = f"/tmp/git-daytona-{secrets.token_hex(12)}"  # noqa: S108 — in the sandbox, and unguessable
            context.upload(staged, content)
            arguments += ("staged", staged)
        else:
            room -= len(encoded)
            chunks = re.findall(f".{{1,{ARGUMENT_LENGTH}}}", encoded)
            arguments += ("chunks", str(len(chunks)), *chunks)
    result = context.execute(script("store"), str(LARGEST), *arguments, timeout=FILES_SECONDS)
    answer = Answer("the tool", result)
    word, which, *words = [*answer.line().split(" "), ""]
    if word == "done":
        return
    if word == "conflict":
        raise Changed(_read(answer))
    number = answer.number(which)
    if word != "failed" or number >= len(changes):
        raise unexpected("the tool", result)
    path = name(changes[number].found.path)
    complaint = name(" ".join(words).strip()) or "unknown error"
    raise ToolError(f"Cannot write {path}: {complaint}. Nothing was changed.")
