"""A Context for the tools' tests, over a real coordinator and sandbox: what the service has,
without OpenCode."""

import base64
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from git_daytona.api.cloud import Execution
from git_daytona.sandbox import report
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.tools.context import Denied, Question, Result
from git_daytona.tools.registry import TOOLS


@dataclass
class RealContext:
    """Acts in the sandbox of one session; keeps what was asked and shown."""

    coordinator: Coordinator
    session_id: str
    worktree: str
    cancelled: threading.Event = field(default_factory=threading.Event)
    asked: list[Question] = field(default_factory=list)
    shown: list[dict[str, Any]] = field(default_factory=list)
    deny: set[str] = field(default_factory=set)
    when_asked: Callable[[Question], None] = lambda _asked: None
    when_shown: Callable[[dict[str, Any]], None] = lambda _shown: None
    locks: dict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))

    def execute(self, script: str, *arguments: str, timeout: float) -> Execution:
        once = report.in_directory(script, *arguments, timeout=timeout)
        return self._within(lambda place: once.run(self.coordinator.cloud, place))

    def upload(self, path: str, content: bytes) -> None:
        self._within(lambda place: self.coordinator.cloud.upload(place, path, content))

    def exclusive(self, path: str) -> threading.Lock:
        return self.locks[path]

    def preview(self, port: int) -> str:
        return self._within(lambda place: self.coordinator.cloud.preview(place, port, seconds=60))

    def sync(self) -> str:
        return self.coordinator.sync(self.session_id).message

    def ask(self, question: Question) -> None:
        self.asked.append(question)
        if question.permission in self.deny:
            raise Denied("the user said no")
        self.when_asked(question)

    def progress(self, title: str, metadata: Mapping[str, Any]) -> None:
        self.shown.append(dict(metadata))
        self.when_shown(self.shown[-1])

    def _within(self, work: Callable[[str], Any]) -> Any:
        return self.coordinator.within(self.session_id, work)[0]


@dataclass
class Toolbox:
    """The tools as a model calls them."""

    context: RealContext

    def __call__(self, tool: str, /, **arguments: Any) -> Result:
        return next(each for each in TOOLS if each.name == tool).run(self.context, arguments)

    def sh(self, script: str) -> str:
        """Look into the sandbox, or change it, behind the tools' back; it must succeed."""
        result = self.context.execute(script, timeout=60)
        assert result.status == 0, result.output
        return result.output

    def bytes_of(self, path: str) -> bytes:
        result = self.context.execute('base64 <"$1"', path, timeout=60)
        assert result.status == 0, result.output
        return base64.b64decode(result.output)
