"""What a tool is, what it is given, and what it gives back. The service implements Context for
OpenCode, and the tests do for themselves."""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from git_daytona.api.cloud import Execution
from git_daytona.base.errors import GitDaytonaError


class ToolError(GitDaytonaError):
    """The tool cannot do what its arguments ask; its message is in the words of OpenCode's own."""


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
    always: Sequence[str]  # what the answer "always" allows from then on
    metadata: Mapping[str, Any]


class Context(Protocol):
    """One tool call. Every method may block, needs no lock and raises GitDaytonaError only."""

    worktree: str  # the project's path on the user's machine, which the model knows
    cancelled: threading.Event  # set when the user aborts

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

    def review(self, command: str, paths: Sequence[str]) -> str:
        """Return what git says of the work that came back: ``diff`` its patch, ``log`` its commits;
        of these paths only, if any. Empty where nothing is synced."""

    def ask(self, question: Question) -> None:
        """Ask the user. Raises Denied."""

    def progress(self, title: str, metadata: Mapping[str, Any]) -> None:
        """Update the display while the tool runs."""


class Invalid(ValueError):
    """A value that its argument does not take; the message names the argument."""


@dataclass(frozen=True)
class Argument:
    """An argument of a tool, which may be left out if it has a default."""

    schema: Mapping[str, Any]
    check: Callable[[str, Any], Any]  # takes name and value, returns the value; raises Invalid
    default: Any = None


def schema(arguments: Mapping[str, Argument]) -> dict[str, Any]:
    """Return the JSON Schema of an object with these members."""
    return {
        "type": "object",
        "properties": {name: argument.schema for name, argument in arguments.items()},
        "required": [name for name, argument in arguments.items() if argument.default is None],
        "additionalProperties": False,
    }


def read(declared: Mapping[str, Argument], values: Mapping[str, Any], place: str = "") -> list[Any]:
    """Return the values as declared; ``place`` is put before names in messages. Raises Invalid."""
    found = []
    for name, argument in declared.items():
        given = values.get(name)  # models write null for "not given"
        value = argument.default if given is None else given
        if value is None:
            raise Invalid(f"'{place}{name}' is missing")
        found.append(argument.check(place + name, value))
    return found


def text(description: str, default: str | None = None, *, empty: bool = True) -> Argument:
    """Declare a string."""

    def check(name: str, value: Any) -> Any:
        _need(isinstance(value, str), name, "a string", value)
        if re.search("[\ud800-\udfff]", value):
            raise Invalid(f"'{name}' holds half of a surrogate pair, which is no text")
        if not value and not empty:
            raise Invalid(f"'{name}' must not be empty")
        return value

    return Argument({"type": "string", "description": description}, check, default)


def whole(
    description: str, least: int, most: int, default: int | None = None, unit: str = ""
) -> Argument:
    """Declare a whole number between ``least`` and ``most``, both included."""
    expected = f"a whole number{unit and f' of {unit}'} from {least} to {most}"

    def check(name: str, value: Any) -> int:
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        fits = is_whole and not isinstance(value, bool) and least <= value <= most
        return int(_need(fits, name, expected, value))

    declared = {"type": "integer", "description": description, "minimum": least, "maximum": most}
    return Argument(declared, check, default)


def flag(description: str) -> Argument:
    """Declare a boolean, false by default."""

    def check(name: str, value: Any) -> Any:
        return _need(isinstance(value, bool), name, "true or false", value)

    return Argument({"type": "boolean", "description": description}, check, False)


def texts(description: str) -> Argument:
    """Declare a list of strings, empty by default."""
    item = text("")

    def check(name: str, value: Any) -> list[str]:
        _need(isinstance(value, list), name, "a list of strings", value)
        return [item.check(f"{name}[{index}]", each) for index, each in enumerate(value)]

    declared = {"type": "array", "items": {"type": "string"}, "description": description}
    return Argument(declared, check, [])


def objects(description: str, members: Mapping[str, Argument]) -> Argument:
    """Declare a list of at least one object; its value is a list of lists, as of ``read``."""

    def check(name: str, value: Any) -> list[list[Any]]:
        fits = isinstance(value, list) and len(value) > 0
        _need(fits, name, "a list with at least one object", value)
        for index, each in enumerate(value):
            _need(isinstance(each, dict), f"{name}[{index}]", "an object", each)
        return [read(members, each, f"{name}[{index}].") for index, each in enumerate(value)]

    declared = {"type": "array", "description": description, "minItems": 1}
    return Argument({**declared, "items": schema(members)}, check)


def _need(fits: bool, name: str, expected: str, value: Any) -> Any:
    """Return the value if it fits. Raises Invalid."""
    if fits:
        return value
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    raise Invalid(f"'{name}' must be {expected}, not {shown}")


@dataclass(frozen=True)
class Tool:
    """A tool: what the model is told of it, and what it does."""

    name: str
    description: str
    action: Callable[..., Result]
    arguments: Mapping[str, Argument]

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        return schema(self.arguments)

    def run(self, context: Context, arguments: Mapping[str, Any]) -> Result:
        """Check the arguments, which come from a model, and do it. Raises GitDaytonaError."""
        stop_if_cancelled(context)
        try:
            values = read(self.arguments, arguments)
        except Invalid as problem:
            raise ToolError(
                f"The {self.name} tool was called with invalid arguments: {problem}.\n"
                "Please rewrite the input so it satisfies the expected schema."
            ) from None
        return self.action(context, *values)


def tool(
    name: str, description: str, /, **arguments: Argument
) -> Callable[[Callable[..., Result]], Tool]:
    """Make a tool of a function, which takes the context and the arguments in their order."""
    return lambda action: Tool(name, description, action, arguments)


def stop_if_cancelled(context: Context) -> None:
    """Raise Cancelled if the user has aborted the call."""
    if context.cancelled.is_set():
        raise Cancelled("the call was cancelled before anything was done")


def ask(
    context: Context,
    permission: str,
    patterns: Sequence[str],
    metadata: Mapping[str, Any],
    always: Sequence[str] = ("*",),
) -> None:
    """Ask the user; what was aborted meanwhile is not begun. Raises Denied, Cancelled."""
    context.ask(Question(permission, patterns, always, metadata))
    stop_if_cancelled(context)
