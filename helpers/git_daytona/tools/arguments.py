"""Arguments of tools, declared once: their JSON Schema, and the check of what a model wrote. Pure.

OpenCode does not validate the arguments of a plugin's tools: each comes as whatever JSON it is.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


class Invalid(ValueError):
    """A value that its argument does not take; the message names the argument."""


@dataclass(frozen=True)
class Argument:
    """An argument of a tool, which may be left out if it has a default."""

    schema: Mapping[str, Any]
    check: Callable[[str, Any], Any]
    """Takes name and value, returns the value; raises Invalid."""
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
    """Return the values in the order of their declaration; ``place`` goes before their names in
    messages (``edits[2].``). Raises Invalid."""
    found = []
    for name, argument in declared.items():
        value = values.get(name)
        if value is None:  # models write null for "not given"
            value = argument.default
        if value is None:
            raise Invalid(f"'{place}{name}' is missing")
        found.append(argument.check(place + name, value))
    return found


def text(description: str, default: str | None = None, *, empty: bool = True) -> Argument:
    """Declare a string."""

    def check(name: str, value: Any) -> str:
        _need(isinstance(value, str), name, "a string", value)
        if re.search("[\ud800-\udfff]", value):
            raise Invalid(f"'{name}' holds half of a surrogate pair, which is no text")
        if not value and not empty:
            raise Invalid(f"'{name}' must not be empty")
        return str(value)

    return Argument({"type": "string", "description": description}, check, default)


def whole(
    description: str, least: int, most: int, default: int | None = None, *, unit: str = ""
) -> Argument:
    """Declare a whole number between ``least`` and ``most``, both included."""
    expected = f"a whole number{unit and f' of {unit}'} from {least} to {most}"

    def check(name: str, value: Any) -> int:
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        fits = is_whole and not isinstance(value, bool) and least <= value <= most
        _need(fits, name, expected, value)
        return int(value)

    declared = {"type": "integer", "description": description, "minimum": least, "maximum": most}
    return Argument(declared, check, default)


def flag(description: str) -> Argument:
    """Declare a boolean, false by default."""

    def check(name: str, value: Any) -> bool:
        _need(isinstance(value, bool), name, "true or false", value)
        return bool(value)

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
        is_list = isinstance(value, list) and len(value) > 0
        _need(is_list, name, "a list with at least one object", value)
        for index, each in enumerate(value):
            _need(isinstance(each, dict), f"{name}[{index}]", "an object", each)
        return [read(members, each, f"{name}[{index}].") for index, each in enumerate(value)]

    declared = {"type": "array", "description": description, "minItems": 1}
    return Argument({**declared, "items": schema(members)}, check)


def _need(fits: bool, name: str, expected: str, value: object) -> None:
    if not fits:
        shown = repr(value)
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        raise Invalid(f"'{name}' must be {expected}, not {shown}")
