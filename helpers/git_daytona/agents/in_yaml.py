"""An entry of ours in YAML: a line between two comments, in a mapping in block style. Where the
agent has written the file anew, without comments, it is found by its key."""

import json
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

from git_daytona.agents import entries as ours
from git_daytona.agents.entries import BEGIN, END, Entry, Unfit, at_end, below, is_ours, unmarked


class Yaml:
    """A mapping in block style; an entry is one line of flow style, which is JSON."""

    FRESH: ClassVar[str] = ""

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

    @staticmethod
    def has(text: str, entries: Sequence[Entry]) -> bool:
        values = plain(text)
        return all(below(values, entry.keys) == entry.value for entry in entries)

    @staticmethod
    def others(text: str, entries: Sequence[Entry]) -> Any:
        """A last line without its end may be part of a text, which it is no more with one."""
        return ours.others(plain(text), entries)

    @staticmethod
    def value(text: str, keys: Sequence[str]) -> Any:
        return below(plain(text), keys)


def _owned(text: str, entry: Entry) -> bool:
    return is_ours(below(plain(text), entry.keys))


def _yaml(text: str) -> Any:
    """The tree of nodes, each with where it is; None for an empty document."""
    from ruamel.yaml import YAML  # takes a while to load, and hardly anybody needs it
    from ruamel.yaml.error import YAMLError

    try:
        with warnings.catch_warnings(action="ignore"):  # an anchor may be given again
            root = YAML(typ="rt", pure=True).compose(text)
    except (YAMLError, ValueError) as problem:
        raise Unfit(f"is not YAML: {' '.join(str(problem).split())[:200]}") from problem
    if root is not None and root.id != "mapping":
        raise Unfit("holds no mapping")
    return root


def plain(text: str) -> Any:
    """Return the values of a text of YAML. Raises Unfit."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    _yaml(text)
    try:
        with warnings.catch_warnings(action="ignore"):
            return YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError) as problem:
        raise Unfit(f"is not YAML: {' '.join(str(problem).split())[:200]}") from problem


def _child(node: Any, key: str) -> tuple[Any, Any] | None:
    if node is None or node.id != "mapping":
        return None
    return next(((name, value) for name, value in node.value if name.value == key), None)


def _cut(text: str, entry: Entry) -> str:
    """The text without an entry that the agent has written in its own way, and without the mapping
    around it if that has nothing else."""
    outer, name = entry.keys
    found = _child(_yaml(text), outer)
    inner = _child(found[1], name) if found else None
    if found is None or inner is None:
        return text
    key, value = found if len(found[1].value) == 1 else inner
    if found[1].flow_style:
        raise Unfit(f"has '{outer}' in braces; take '{name}' out by hand")
    begin = text.rfind("\n", 0, key.start_mark.index) + 1
    last = value
    while last.id != "scalar" and last.value and not last.flow_style:
        last = last.value[-1][1] if last.id == "mapping" else last.value[-1]
    end = text.find("\n", last.end_mark.index)
    if last.id == "scalar" and text[last.end_mark.index - 1 : last.end_mark.index] == "\n":
        end = last.end_mark.index - 1
    return text[:begin] + (text[end + 1 :] if end >= 0 else "")
