"""Arguments of a model, checked by hand, and the frame that every tool stands in.

OpenCode does not validate the arguments of a plugin's tools, so each comes as whatever JSON the
model wrote.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from git_daytona.tools.context import Cancelled, Context, Result, ToolError

_MISSING = object()


@dataclass(frozen=True)
class Arguments:
    """The arguments of one call. Every reader raises ToolError that names the argument and what is
    expected of it."""

    tool: str
    values: Mapping[str, Any]
    where: str = ""
    """Prefix of names in messages: ``edits[2].``"""

    def text(self, name: str, default: str | None = None, *, empty: bool = True) -> str:
        """A string; with a default, it may be missing or null."""
        value = self._get(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, "a string", value)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self._refuse(
                f"'{self.where}{name}' holds half of a surrogate pair, which is no text"
            ) from None
        if not value and not empty:
            raise self._refuse(f"'{self.where}{name}' must not be empty")
        return value

    def number(
        self, name: str, default: int | None = None, *, least: int, most: int, unit: str = ""
    ) -> int:
        """A whole number between ``least`` and ``most``, both included."""
        value = self._get(name, default)
        expected = f"a whole number{f' of {unit}' if unit else ''} from {least} to {most}"
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._wrong(name, expected, value)
        return value

    def flag(self, name: str) -> bool:
        """true or false; false when it is missing."""
        value = self._get(name, False)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value

    def texts(self, name: str) -> list[str]:
        """A list of strings; empty when it is missing."""
        value = self._get(name, [])
        if not isinstance(value, list):
            raise self._wrong(name, "a list of strings", value)
        items = Arguments(
            self.tool, {f"{name}[{index}]": item for index, item in enumerate(value)}, self.where
        )
        return [items.text(key) for key in items.values]

    def objects(self, name: str) -> "list[Arguments]":
        """A list, not empty, of objects."""
        value = self._get(name)
        if not isinstance(value, list) or not value:
            raise self._wrong(name, "a list with at least one object", value)
        for index, item in enumerate(value):
            if not isinstance(item, dict):
                raise self._wrong(f"{name}[{index}]", "an object", item)
        return [
            Arguments(self.tool, item, f"{self.where}{name}[{index}].")
            for index, item in enumerate(value)
        ]

    def _get(self, name: str, default: Any = None) -> Any:
        value = self.values.get(name, _MISSING)
        # Models that are shown an optional argument write null for "not given".
        if value is None or value is _MISSING:
            if default is None:
                raise self._refuse(f"'{self.where}{name}' is missing")
            return default
        return value

    def _wrong(self, name: str, expected: str, value: object) -> ToolError:
        shown = repr(value)
        return self._refuse(
            f"'{self.where}{name}' must be {expected}, not "
            f"{shown if len(shown) <= 80 else shown[:77] + '...'}"
        )

    def _refuse(self, detail: str) -> ToolError:
        return ToolError(
            f"The {self.tool} tool was called with invalid arguments: {detail}.\n"
            "Please rewrite the input so it satisfies the expected schema."
        )


@dataclass
class Definition:
    """A tool: what the model is told of it, and what it does."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    action: Callable[[Context, Arguments], Result]

    def run(self, context: Context, arguments: Mapping[str, Any]) -> Result:
        """Do it; see context.Tool."""
        stop_if_cancelled(context)
        return self.action(context, Arguments(self.name, arguments))


def stop_if_cancelled(context: Context) -> None:
    """Raise Cancelled when the user has aborted the call: before anything is begun, and after each
    question to the user."""
    if context.cancelled.is_set():
        raise Cancelled("the call was cancelled before anything was done")


def schema(required: str, /, **properties: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments; ``required`` names, blank-separated, those that cannot
    be left out."""
    return {
        "type": "object",
        "properties": {name: dict(value) for name, value in properties.items()},
        "required": required.split(),
        "additionalProperties": False,
    }


def text(description: str) -> dict[str, Any]:
    """Schema of a string."""
    return {"type": "string", "description": description}


def whole(description: str, least: int, most: int) -> dict[str, Any]:
    """Schema of a whole number in a range."""
    return {"type": "integer", "description": description, "minimum": least, "maximum": most}


def yes_or_no(description: str) -> dict[str, Any]:
    """Schema of a boolean."""
    return {"type": "boolean", "description": description}
