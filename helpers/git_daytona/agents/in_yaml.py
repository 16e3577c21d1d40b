"""An entry of ours in YAML: a line between two comments, in a mapping in block style. Where the
agent has written the file anew, without comments, it is found by its key."""

import json
import warnings
from collections.abc import Sequence
from typing import Any

from git_daytona.agents.entries import BEGIN, END, Entry, Kind, Unfit, at_end, is_ours, unmarked


class Yaml(Kind):
    """A mapping in block style; an entry is one line of flow style, which is JSON. A last line
    without its end may be part of a text, which it is no more with one."""

    @staticmethod
    def parse(text: str) -> Any:
        _yaml(text)
        return _read(text, "safe", "load")

    @staticmethod
    def add(text: str, entries: Sequence[Entry]) -> str:
        for entry in entries:
            outer, name = entry.keys
            line = f"{name}: {json.dumps(entry.value, ensure_ascii=False)}\n"
            root = _yaml(text)
            found = _child(root, outer)
            if found is None:
                text = at_end(text, f"{outer}:\n  {line}")
                continue
            key, value = found
            if _child(value, name) is not None:
                raise Unfit(f"has another '{outer}.{name}'")
            if getattr(value, "flow_style", False) or value.id == "sequence":
                raise Unfit(f"has '{outer}' in braces; write an entry a line")
            children = value.value if value.id == "mapping" else []
            column = children[0][0].start_mark.column if children else 2
            at = text.find("\n", key.end_mark.index) + 1
            if children:
                at = text.rfind("\n", 0, children[0][0].start_mark.index) + 1
            blanks = " " * column
            block = f"{blanks}{BEGIN}\n{blanks}{line}{blanks}{END}\n"
            text = text[:at] + block + text[at:] if at else f"{text}\n{block}".rstrip("\n")
        return text

    @staticmethod
    def remove(text: str, entries: Sequence[Entry]) -> str:
        text = unmarked(text)
        for entry in entries:
            if _owned(text, entry):
                text = _cut(text, entry)
        return text

    @staticmethod
    def found(text: str, entries: Sequence[Entry]) -> bool:
        return any(_owned(text, entry) for entry in entries)


def _owned(text: str, entry: Entry) -> bool:
    return is_ours(Yaml.value(text, entry.keys))


def _yaml(text: str) -> Any:
    """The tree of nodes, each with where it is; None for an empty document."""
    root = _read(text, "rt", "compose")
    if root is not None and root.id != "mapping":
        raise Unfit("holds no mapping")
    return root


def _read(text: str, kind: str, method: str) -> Any:
    from ruamel.yaml import YAML  # takes a while to load, and hardly anybody needs it
    from ruamel.yaml.error import YAMLError

    try:
        with warnings.catch_warnings(action="ignore"):  # an anchor may be given again
            return getattr(YAML(typ=kind, pure=True), method)(text)
    except (YAMLError, ValueError) as problem:
        raise Unfit(f"is not YAML: {' '.join(str(problem).split())[:200]}") from problem


def _child(node: Any, key: str) -> tuple[Any, Any] | None:
    if node is None or node.id != "mapping":
        return None
    return next(((name, value) for name, value in node.value if name.value == key), None)


def _cut(text: str, entry: Entry) -> str:
    """Take out an entry that the agent has written in its way, and the mapping if that is all."""
    outer, name = entry.keys
    found = _child(_yaml(text), outer)
    inner = _child(found[1], name) if found else None
    if found is None or inner is None:
        return text
    key, value = found if len(found[1].value) == 1 else inner
    if found[1].flow_style:
        raise Unfit(f"has '{outer}' in braces; take '{name}' out by hand")
    begin = text.rfind("\n", 0, key.start_mark.index) + 1
    end = _line_end(text, value)
    return text[:begin] + (text[end + 1 :] if end >= 0 else "")


def _line_end(text: str, last: Any) -> int:
    """Where the last line of a value ends; -1 without a newline."""
    while last.id != "scalar" and last.value and not last.flow_style:
        last = last.value[-1][1] if last.id == "mapping" else last.value[-1]
    end: int = last.end_mark.index
    if last.id == "scalar" and text[end - 1 : end] == "\n":
        return end - 1
    return text.find("\n", end)
