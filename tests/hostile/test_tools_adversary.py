"""A sandbox that lies to the tools: whatever their scripts seem to print there, a tool gives a
result that fits, or one of our errors."""

import base64
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from git_daytona.api.cloud import Execution
from git_daytona.base.errors import GitDaytonaError
from support.tool_context import RealContext, Toolbox

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5"
    "ErkJggg=="
)
PATCH = (
    "*** Begin Patch\n*** Update File: README\n@@\n-hello\n+bye\n*** Add File: added\n+x\n*** "
    "End Patch"
)
CALLS = [
    ("bash", {"command": "echo out"}),
    ("bash", {"command": "echo out; sleep 100", "background": True}),
    ("read", {"filePath": "README"}),
    ("read", {"filePath": "."}),
    ("read", {"filePath": "dot.png"}),
    ("read", {"filePath": "missing"}),
    ("write", {"filePath": "new", "content": "x"}),
    ("edit", {"filePath": "README", "oldString": "hello", "newString": "bye"}),
    ("multiedit", {"filePath": "README", "edits": [{"oldString": "hello", "newString": "bye"}]}),
    ("apply_patch", {"patchText": PATCH}),
    ("glob", {"pattern": "*"}),
    ("grep", {"pattern": "hello"}),
    ("list", {"path": "."}),
    ("ls", {"path": "."}),
]
MOST = 64 * 1024
"""Bytes of a result: what OpenCode shows whole, and a path or two of the greatest length."""
NUMBERS = ("²", "٣", "9" * 5000, "-1", "1e9", "0x10", "", "00", "\x1b[2J")
GARBAGE = (
    "",
    "\x1b[2J\x1b]0;evil\x07",
    "end",
    "²",
    "A" * 100_000,
    "\udc80\udcff",
    "=",
    "\0",
    "../../etc/passwd",
    "file",
    "ended 0 exit 1 1 no /x",
)


@dataclass
class Lying(RealContext):
    """Records what the sandbox says, or gives other answers in its place."""

    said: list[Execution] = field(default_factory=list)
    lies: list[Execution] | None = None

    def execute(self, script, *arguments, timeout):
        if self.lies is None:
            self.said.append(super().execute(script, *arguments, timeout=timeout))
            return self.said[-1]
        return self.lies.pop(0) if self.lies else Execution(0, "end\n")

    def upload(self, path, content):
        pass


def lies_about(text: str) -> Iterator[str]:
    """The answer with one thing changed at a time."""
    lines = text.split("\n")
    for index in range(len(lines)):
        for other in GARBAGE:
            yield "\n".join([*lines[:index], other, *lines[index + 1 :]])
        yield "\n".join(lines[:index])
        yield "\n".join([*lines[:index], *lines[index + 1 :]])
        yield "\n".join([*lines[:index], lines[index], lines[index], *lines[index + 1 :]])
    for found in list(re.finditer(r"\d+", text))[:8]:
        for number in NUMBERS:
            yield text[: found.start()] + number + text[found.end() :]
    for coded in re.finditer(r"^[A-Za-z0-9+/]{4,}={0,2}$", text, re.MULTILINE):
        for content in (
            b"\x1b[2J",
            b"\xff\xfe\0",
            b"/" * 5000,
            b"x\n" * 50_000,
            b"\0" * 5000,
            b"../../../etc/passwd",
            b"",
        ):
            yield text[: coded.start()] + base64.b64encode(content).decode() + text[coded.end() :]
    yield "\0".join(["x" * 1000] * 5000) + "\nend\n"
    yield "\x1b[2J" * 100_000


def test_tools_that_are_lied_to(local, repo, begin):
    session = begin(repo, "ses_lies")
    context = Lying(session.coordinator, "ses_lies", str(repo.path))
    tools = Toolbox(context)
    tried = 0
    for tool, arguments in CALLS:
        # As it is found in a fresh project.
        RealContext.execute(
            context,
            'printf "hello\\n" >README; rm -f new added; printf %s "$1" | base64 -d >dot.png',
            base64.b64encode(PNG).decode(),
            timeout=60,
        )
        context.said, context.lies = [], None
        try:
            tools(tool, **arguments)
        except GitDaytonaError:
            assert arguments.get("filePath") == "missing", tool
        honest = context.said
        assert honest or tool == "preview", tool
        for turn, answer in enumerate(honest):
            lies = list(lies_about(answer.output))
            random.Random(tool).shuffle(lies)
            for lie in lies[:150]:
                status = 0 if tried % 3 else 137
                context.lies = [*honest[:turn], Execution(status, lie), *honest[turn + 1 :]]
                tried += 1
                try:
                    result = tools(tool, **arguments)
                    shown = result.output
                except GitDaytonaError as problem:
                    shown = problem.message
                except Exception as problem:
                    raise AssertionError(f"{tool}: {lie[:300]!r} raised {problem!r}") from problem
                assert len(shown.encode("utf-8", "replace")) <= MOST, (tool, lie[:300])
                assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown), (
                    tool,
                    lie[:300],
                    shown[:300],
                )
    assert tried > 1000
