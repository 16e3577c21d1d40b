"""Entries of ours in an agent's configuration, put in and taken out again: text in, text out. Pure.

Taking out is the inverse of putting in, byte for byte, and every change is checked for that before
it is made. What each format does is in in_json.py, in_toml.py and in_yaml.py.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from git_daytona.agents import table

EXTENSION = "/git_daytona/agents/pi/index.js"
BEGIN, END = "# git-daytona: begin", "# git-daytona: end"
_BLOCK = re.compile(rf"^[ \t]*{BEGIN}\r?\n.*?^[ \t]*{END}(\r?\n|\Z)", re.MULTILINE | re.DOTALL)
_SERVICE = re.compile(r"\"\$0\" hook \S+ --agent .*git-daytona'?$")


class Unfit(ValueError):
    """The text cannot take an entry; the message says why, to follow the file's name."""


@dataclass(frozen=True)
class Entry:
    """A value below some keys; with ``listed`` an element of the array there."""

    keys: tuple[str, ...]
    value: Any
    listed: bool = False


class Kind(Protocol):
    """A format. Each function raises Unfit for a text that is not of it."""

    FRESH: ClassVar[str] = ""
    """The file where there is none."""

    @staticmethod
    def parse(text: str) -> Any:
        """Return its values as Python has them."""

    @staticmethod
    def add(text: str, entries: Sequence[Entry]) -> str:
        """Put in; raises Unfit where something else is in the way."""

    @staticmethod
    def remove(text: str, entries: Sequence[Entry]) -> str:
        """Take out what add() has put in, of whatever installation."""

    @staticmethod
    def found(text: str, entries: Sequence[Entry]) -> bool:
        """Whether anything of ours is there."""

    @classmethod
    def has(cls, text: str, entries: Sequence[Entry]) -> bool:
        """Whether all of them are there as they would be put in."""
        values = cls.parse(text)
        found = [(below(values, entry.keys), entry) for entry in entries]
        return all(
            isinstance(there, list) and it.value in there if it.listed else there == it.value
            for there, it in found
        )

    @classmethod
    def others(cls, text: str, entries: Sequence[Entry]) -> Any:
        """What the text says besides them, without what is empty then."""
        values = cls.parse(text)
        for entry in entries:
            *outer, key = entry.keys
            inner = below(values, outer)
            if isinstance(inner, dict) and entry.listed:
                inner[key] = [each for each in inner.get(key) or [] if each != entry.value]
            elif isinstance(inner, dict):
                inner.pop(key, None)
        return _pruned(values or {})

    @classmethod
    def value(cls, text: str, keys: Sequence[str]) -> Any:
        """Return what is below some keys; None where nothing is."""
        return below(cls.parse(text), keys)


def is_ours(value: Any) -> bool:
    """Whether a value is a hook or a server of an installation of this suite."""
    if isinstance(value, str):
        return value.endswith(EXTENSION)
    if not isinstance(value, Mapping):
        return False
    if table.is_server(value):
        return True
    inner = value.get("hooks", [value])
    lines = (each.get("command") for each in inner if isinstance(each, Mapping))
    return any(isinstance(line, str) and _SERVICE.search(line) is not None for line in lines)


def checked(text: str, entries: Sequence[Entry], kind: type[Kind]) -> str:
    """Return the text with exactly these entries of ours. Raises Unfit."""
    without = kind.remove(text, entries)
    after = kind.add(without, entries)
    undone = kind.remove(after, entries) == without and kind.has(after, entries)
    if not undone or kind.others(after, entries) != kind.others(without, entries):
        raise Unfit("cannot be edited safely")
    return after


def _pruned(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    found = {key: _pruned(value) for key, value in values.items()}
    return {key: value for key, value in found.items() if value not in ({}, [], None)}


def below(values: Any, keys: Sequence[str]) -> Any:
    """Return what is below some keys; None where nothing is."""
    for key in keys:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def at_end(text: str, block: str) -> str:
    """Put lines behind all others; their last one ends as the text did."""
    if not text or text.endswith("\n"):
        return f"{text}{BEGIN}\n{block}{END}\n"
    return f"{text}\n{BEGIN}\n{block}{END}"


def unmarked(text: str) -> str:
    """Cut the block of ours out."""
    found = _BLOCK.search(text)
    if found is None:
        return text
    before = text[: found.start()]
    if not found.group(1):
        before = before.removesuffix("\n")
    return before + text[found.end() :]
