"""Entries of ours in TOML: tables in a block between two comments, behind everything else."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from git_daytona.agents.entries import Entry, Kind, Unfit, at_end, below, unmarked


class Toml(Kind):
    """Behind everything else: a table may be begun anywhere."""

    @staticmethod
    def parse(text: str) -> Any:
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as problem:
            raise Unfit(f"is not TOML, or cannot take another table: {problem}") from problem

    @staticmethod
    def add(text: str, entries: Sequence[Entry]) -> str:
        before = Toml.parse(text)
        for entry in entries:
            if not entry.listed and below(before, entry.keys) is not None:
                raise Unfit(f"has another '{'.'.join(entry.keys)}'")
        return at_end(text, "\n".join(_table(entry) for entry in entries))

    @staticmethod
    def remove(text: str, entries: Sequence[Entry]) -> str:
        return unmarked(text)

    @staticmethod
    def found(text: str, entries: Sequence[Entry]) -> bool:
        return unmarked(text) != text


def _table(entry: Entry) -> str:
    """A table, and below it those that are in an array of it. JSON's strings are TOML's, too."""
    name = ".".join(entry.keys)
    lines = [f"[[{name}]]" if entry.listed else f"[{name}]"]
    for key, value in entry.value.items():
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            lines += [_table(Entry((*entry.keys, key), each, True)).rstrip("\n") for each in value]
        else:
            lines.append(f"{key} = {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"
