"""What a tool is given and what it gives back. The service implements Context for OpenCode; tests
do for themselves."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from git_daytona.api.cloud import Execution
from git_daytona.base.errors import GitDaytonaError


class ToolError(GitDaytonaError):
    """The tool cannot do what its arguments ask; the message is for the model, in the words of
    OpenCode's built-in tool."""


class Cancelled(GitDaytonaError):
    """The user aborted the call."""


class Denied(GitDaytonaError):
    """The user, or a permission setting, said no."""


@dataclass(frozen=True)
class Result:
    """What OpenCode gets: ``{title, output, metadata, attachments}``; attachments are ``{type:
    "file", mime, url: "data:…"}``."""

    title: str
    output: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    attachments: Sequence[Mapping[str, Any]] = ()


class Context(Protocol):
    """One tool call. Every method raises GitDaytonaError and its kinds only; all of them may block,
    none needs a lock."""

    session_id: str
    """The root session, whose sandbox is used; a sub-agent's call carries its root's."""
    worktree: str
    """Host path of the project as the model knows it: absolute paths under it mean the same place
    in the sandbox's project."""
    cancelled: threading.Event
    """Set when the user aborts."""

    def execute(
        self, script: str, *arguments: str, timeout: float, directory: str | None = None
    ) -> Execution:
        """Run a ``sh`` script (with ``$1``… as its arguments) in the sandbox, at most once,
        standard input closed; the sandbox is made, started or replaced as needed. ``directory`` is
        a sandbox path, default the project. Output is stdout and stderr in one text."""

    def upload(self, path: str, content: bytes) -> None:
        """Write a sandbox file, making its folders; an existing file keeps its mode."""

    def exclusive(self, path: str) -> "threading.Lock":
        """The lock of one sandbox file: whoever reads, changes and writes it holds this
        meanwhile."""

    def preview(self, port: int) -> str:
        """A link to a port of the sandbox that works in a browser (signed where the sandbox is
        private)."""

    def sync(self) -> str:
        """Bring the work back now; the message."""

    def ask(
        self,
        permission: str,
        patterns: Sequence[str],
        always: Sequence[str],
        metadata: Mapping[str, Any],
    ) -> None:
        """Ask the user as OpenCode's built-ins do (its ask/allow/deny settings decide); raises
        Denied."""

    def progress(
        self, *, title: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Update the display while the tool runs."""


class Tool(Protocol):
    """One tool. ``parameters`` is its JSON Schema as the model gets it: optional arguments are not
    in ``required``."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    def run(self, context: Context, arguments: Mapping[str, Any]) -> Result:
        """Do it. ``arguments`` come from a model and are checked here. Raises ToolError, Cancelled,
        Denied, GitDaytonaError."""
