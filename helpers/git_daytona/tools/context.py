"""What a tool is, what it is given, and what it gives back. The service implements Context for
OpenCode, and the tests do for themselves."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from git_daytona.api.cloud import Execution
from git_daytona.base.errors import GitDaytonaError
from git_daytona.tools.arguments import Argument, Invalid, read, schema


class ToolError(GitDaytonaError):
    """The tool cannot do what its arguments ask; the message is for the model, in the words of
    OpenCode's built-in tool."""


class Cancelled(GitDaytonaError):
    """The user aborted the call."""


class Denied(GitDaytonaError):
    """The user, or a permission setting, said no."""


@dataclass(frozen=True)
class Result:
    """What OpenCode gets; attachments are ``{type: "file", mime, url: "data:…"}``."""

    title: str
    output: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    attachments: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Question:
    """What the user is asked as OpenCode's built-ins do; its ask/allow/deny settings decide."""

    permission: str
    patterns: Sequence[str]
    metadata: Mapping[str, Any]
    always: Sequence[str] = ("*",)
    """The patterns that the answer "always" allows from then on."""


class Context(Protocol):
    """One tool call. Every method may block, needs no lock and raises GitDaytonaError only."""

    worktree: str
    """The project's path on the user's machine, as the model knows it: absolute paths under it
    mean the same place in the sandbox's project."""
    cancelled: threading.Event
    """Set when the user aborts."""

    def execute(self, script: str, *arguments: str, timeout: float) -> Execution:
        """Run a ``sh`` script in the project, at most once, with standard input closed. The sandbox
        is made, started or replaced as needed. Output is stdout and stderr in one text."""

    def upload(self, path: str, content: bytes) -> None:
        """Write a sandbox file, making its folders; an existing file keeps its mode."""

    def exclusive(self, path: str) -> threading.Lock:
        """Return the lock of a sandbox file, held by whoever reads, changes and writes it."""

    def preview(self, port: int) -> str:
        """Return a link to a port of the sandbox that works in a browser."""

    def sync(self) -> str:
        """Bring the work back now, and return the message."""

    def ask(self, question: Question) -> None:
        """Ask the user. Raises Denied."""

    def progress(self, title: str, metadata: Mapping[str, Any]) -> None:
        """Update the display while the tool runs."""


@dataclass(frozen=True)
class Tool:
    """A tool: what the model is told of it, and what it does."""

    name: str
    description: str
    action: Callable[..., Result]
    """Takes the context, then the arguments in the order of their declaration."""
    arguments: Mapping[str, Argument]

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        return schema(self.arguments)

    def run(self, context: Context, arguments: Mapping[str, Any]) -> Result:
        """Check the arguments, which come from a model, and do it. Raises ToolError, Cancelled,
        Denied and what the context raises."""
        stop_if_cancelled(context)
        try:
            values = read(self.arguments, arguments)
        except Invalid as problem:
            raise ToolError(
                f"The {self.name} tool was called with invalid arguments: {problem}.\n"
                "Please rewrite the input so it satisfies the expected schema."
            ) from None
        return self.action(context, *values)


def stop_if_cancelled(context: Context) -> None:
    """Raise Cancelled if the user has aborted the call."""
    if context.cancelled.is_set():
        raise Cancelled("the call was cancelled before anything was done")


def ask(context: Context, question: Question) -> None:
    """Ask the user; what was aborted meanwhile is not begun. Raises Denied, Cancelled."""
    context.ask(question)
    stop_if_cancelled(context)
