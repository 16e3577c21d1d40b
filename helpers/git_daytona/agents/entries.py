"""Entries of ours in an agent's configuration, put in and taken out again: text in, text out. Pure.

Taking out is the inverse of putting in, byte for byte, and every change is checked for that before
it is made. JSON is edited in place (opencode/jsonc.py); in TOML and YAML ours is a block between
two comments, in YAML found by its key where the agent has written the file anew without them.
"""

import json
import re
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from git_daytona.agents import table
from git_daytona.opencode import jsonc
from git_daytona.opencode.jsonc import Document, Item, Node

BEGIN, END = "# git-daytona: begin", "# git-daytona: end"
_BLOCK = re.compile(rf"^[ \t]*{BEGIN}\n.*?^[ \t]*{END}(\n|\Z)", re.MULTILINE | re.DOTALL)
_SERVICE = re.compile(r"\"\$0\" hook \S+ --agent .*git-daytona'?$")


class Unfit(ValueError):
    """The text cannot take an entry; the message says why, to follow the file's name."""


@dataclass(frozen=True)
class Entry:
    """A value below some keys; with ``listed`` an element of the array there."""

    keys: tuple[str, ...]
    value: Any
    listed: bool = False


def is_ours(value: Any) -> bool:
    """Whether a value is a hook or a server of an installation of this suite."""
    if not isinstance(value, Mapping):
        return False
    if table.is_server(value):
        return True
    inner = value.get("hooks", [value])
    lines = (each.get("command") for each in inner if isinstance(each, Mapping))
    return any(isinstance(line, str) and _SERVICE.search(line) is not None for line in lines)


def checked(text: str, entries: Sequence[Entry], kind: "Kind") -> str:
    """Return the text with exactly these entries of ours. Raises Unfit."""
    without = kind.remove(text, entries)
    after = kind.add(without, entries)
    undone = kind.remove(after, entries) == without and kind.has(after, entries)
    if not undone or kind.others(after, entries) != kind.others(without, entries):
        raise Unfit("cannot be edited safely")
    return after


def _others(values: Any, entries: Sequence[Entry]) -> Any:
    """Values that were read, without ours, and without what is empty then."""
    for entry in entries:
        *outer, key = entry.keys
        inner = below(values, outer)
        if isinstance(inner, dict) and entry.listed:
            inner[key] = [each for each in inner.get(key) or [] if each != entry.value]
        elif isinstance(inner, dict):
            inner.pop(key, None)
    return _pruned(values or {})


def _pruned(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    found = {key: _pruned(value) for key, value in values.items()}
    return {key: value for key, value in found.items() if value not in ({}, [], None)}


# -- JSON ------------------------------------------------------------------------------------------


class Json:
    """JSON with comments."""

    FRESH = "{\n}\n"

    @staticmethod
    def add(text: str, entries: Sequence[Entry]) -> str:
        for entry in entries:
            text = _added(_document(text), entry)
        return text

    @staticmethod
    def remove(text: str, entries: Sequence[Entry]) -> str:
        """Take out what add() has put in. A plain word that the user may have, too, is ours only
        where something is that cannot be taken for theirs."""
        if not Json.found(text, entries):
            return text
        for entry in reversed(entries):
            while (shorter := _removed(_document(text), entry)) is not None:
                text = shorter
                if not isinstance(entry.value, Mapping):
                    break
        return text

    @staticmethod
    def found(text: str, entries: Sequence[Entry]) -> bool:
        document = _document(text)
        return any(_ours(document, entry) for entry in entries if isinstance(entry.value, Mapping))

    @staticmethod
    def has(text: str, entries: Sequence[Entry]) -> bool:
        """Whether all of them are there as they would be put in."""
        document = _document(text)
        for entry in entries:
            items = _way(document, entry)
            if items is None or not any(
                _value(document, each.value) == entry.value for each in items[-1]
            ):
                return False
        return True

    @staticmethod
    def others(_text: str, _entries: Sequence[Entry]) -> None:
        """An edit in place touches nothing else."""

    @staticmethod
    def value(text: str, keys: Sequence[str]) -> Any:
        """Return what is below some keys; None where nothing is."""
        document = _document(text)
        node: Node | None = document.root
        for key in keys:
            item = _item(node, key) if node is not None else None
            node = item.value if item else None
        return _value(document, node) if node is not None else None


def _document(text: str) -> Document:
    try:
        document = jsonc.parse(text)
    except jsonc.Malformed as problem:
        raise Unfit(f"is not JSON with comments: {problem}") from problem
    if document.root.kind != "object":
        raise Unfit("holds no JSON object")
    return document


def _value(document: Document, node: Node) -> Any:
    """A value without comments; None for what Python's json does not take (a trailing comma)."""
    try:
        return json.loads(document.text[node.start : node.end])
    except ValueError:
        return None


def _item(node: Node, key: str) -> Item | None:
    return next((item for item in reversed(node.items) if item.key == key), None)


def _way(document: Document, entry: Entry) -> list[list[Item]] | None:
    """The properties that lead to an entry, each alone in a list, and last the candidates for it.
    None where there is no such place."""
    node, found = document.root, []
    for key in entry.keys:
        item = _item(node, key)
        if item is None:
            return None
        found.append([item])
        node = item.value
    if entry.listed:
        found.append(list(node.items) if node.kind == "array" else [])
    return found


def _ours(document: Document, entry: Entry) -> list[Item]:
    items = _way(document, entry)
    if items is None:
        return []
    if not isinstance(entry.value, Mapping):
        return [it for it in items[-1] if _value(document, it.value) == entry.value]
    return [it for it in items[-1] if is_ours(_value(document, it.value))]


def _added(document: Document, entry: Entry) -> str:
    node = document.root
    for depth, key in enumerate(entry.keys):
        item = _item(node, key)
        if item is None:
            value = json.dumps(entry.value, ensure_ascii=False)
            nested = _nested(entry.keys[depth + 1 :], value, entry.listed)
            return _append(document, node, f"{json.dumps(key)}: {nested}")
        last = depth == len(entry.keys) - 1
        if last and not entry.listed:
            raise Unfit(f"has another '{'.'.join(entry.keys)}'")
        node = item.value
        if node.kind != ("array" if last else "object"):
            raise Unfit(f"has another kind of value for '{'.'.join(entry.keys[: depth + 1])}'")
    return _append(document, node, json.dumps(entry.value, ensure_ascii=False))


def _nested(keys: tuple[str, ...], value: str, listed: bool) -> str:
    inner = f"[{value}]" if listed else value
    for key in reversed(keys):
        inner = f"{{{json.dumps(key)}: {inner}}}"
    return inner


def _append(document: Document, node: Node, item: str) -> str:
    if node.kind == "object" and node.end - node.start == 2:
        item = f" {item} "  # told from an object that was added with the item in it
    return jsonc.append(document, node, item)


def _removed(document: Document, entry: Entry) -> str | None:
    """The text without the last of what is ours in an entry's place; None if nothing is."""
    ours, items = _ours(document, entry), _way(document, entry)
    if not ours or items is None:
        return None
    found, container = ours[-1], document.root
    value = document.text[found.value.start : found.value.end]
    for depth, (item, *_) in enumerate(items[: len(entry.keys)]):
        nested = _nested(entry.keys[depth + 1 :], value, entry.listed)
        if document.text[item.value.start : item.value.end] == nested:
            return jsonc.remove(document, container, container.items.index(item))
        if depth < len(entry.keys) - 1 or entry.listed:
            container = item.value
    return jsonc.remove(document, container, container.items.index(found))


# -- a block between comments ----------------------------------------------------------------------


def _at_end(text: str, block: str) -> str:
    """Put lines behind all others; their last one ends as the text did."""
    if not text or text.endswith("\n"):
        return f"{text}{BEGIN}\n{block}{END}\n"
    return f"{text}\n{BEGIN}\n{block}{END}"


def _unmarked(text: str) -> str:
    found = _BLOCK.search(text)
    if found is None:
        return text
    before = text[: found.start()]
    if not found.group(1):
        before = before.removesuffix("\n")
    return before + text[found.end() :]


# -- TOML ------------------------------------------------------------------------------------------


class Toml:
    FRESH = ""

    @staticmethod
    def add(text: str, entries: Sequence[Entry]) -> str:
        before = _toml(text)
        for entry in entries:
            if not entry.listed and below(before, entry.keys) is not None:
                raise Unfit(f"has another '{'.'.join(entry.keys)}'")
        return _at_end(text, "\n".join(_table(entry) for entry in entries))

    @staticmethod
    def remove(text: str, entries: Sequence[Entry]) -> str:
        return _unmarked(text)

    @staticmethod
    def found(text: str, entries: Sequence[Entry]) -> bool:
        return _BLOCK.search(text) is not None

    @staticmethod
    def has(text: str, entries: Sequence[Entry]) -> bool:
        values = _toml(text)
        return all(
            entry.value in (below(values, entry.keys) or ())
            if entry.listed
            else below(values, entry.keys) == entry.value
            for entry in entries
        )

    @staticmethod
    def others(text: str, entries: Sequence[Entry]) -> Any:
        return _others(_toml(text), entries)

    @staticmethod
    def value(text: str, keys: Sequence[str]) -> Any:
        return below(_toml(text), keys)


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise Unfit(f"is not TOML, or cannot take another table: {problem}") from problem


def below(values: Any, keys: Sequence[str]) -> Any:
    """Return what is below some keys; None where nothing is."""
    for key in keys:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


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


# -- YAML ------------------------------------------------------------------------------------------


class Yaml:
    """A mapping in block style; an entry is one line of flow style, which is JSON."""

    FRESH = ""

    @staticmethod
    def add(text: str, entries: Sequence[Entry]) -> str:
        for entry in entries:
            outer, name = entry.keys
            line = f"{name}: {json.dumps(entry.value, ensure_ascii=False)}\n"
            root = _yaml(text)
            found = _child(root, outer)
            if found is None:
                text = _at_end(text, f"{outer}:\n  {line}")
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
        text = _unmarked(text)
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
        return _others(plain(text), entries)

    @staticmethod
    def value(text: str, keys: Sequence[str]) -> Any:
        return below(plain(text), keys)


Kind = type[Json] | type[Toml] | type[Yaml]
"""A format: put entries in, take them out, look for them."""


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
