"""Entries of ours in JSON with comments, which is edited in place (opencode/jsonc.py)."""

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from git_daytona.agents.entries import Entry, Kind, Unfit, is_ours
from git_daytona.opencode import jsonc
from git_daytona.opencode.jsonc import Document, Item, Node


class Json(Kind):
    """JSON with comments."""

    FRESH: ClassVar[str] = "{\n}\n"

    @staticmethod
    def parse(text: str) -> Any:
        document = _document(text)
        return _value(document, document.root)

    @staticmethod
    def add(text: str, entries: Sequence[Entry]) -> str:
        for entry in entries:
            text = _added(_document(text), entry)
        return text

    @staticmethod
    def remove(text: str, entries: Sequence[Entry]) -> str:
        """Take out what add() has put in; a word that may be the user's only beside others."""
        if not Json.found(text, entries):
            return text
        for entry in reversed(entries):
            while (shorter := _removed(_document(text), entry)) is not None:
                text = shorter
                if not is_ours(entry.value):
                    break
        return text

    @staticmethod
    def found(text: str, entries: Sequence[Entry]) -> bool:
        document = _document(text)
        return any(_ours(document, entry) for entry in entries if is_ours(entry.value))


def _document(text: str) -> Document:
    try:
        document = jsonc.parse(text)
    except jsonc.Malformed as problem:
        raise Unfit(f"is not JSON with comments: {problem}") from problem
    if document.root.kind != "object":
        raise Unfit("holds no JSON object")
    return document


def _value(document: Document, node: Node) -> Any:
    """A value without comments; the text of what stands for one, or is too long a number."""
    if node.kind == "object":
        return {item.key: _value(document, item.value) for item in node.items}
    if node.kind == "array":
        return [_value(document, item.value) for item in node.items]
    try:
        return json.loads(document.source(node))
    except ValueError:
        return document.source(node)


def _way(document: Document, entry: Entry) -> list[list[Item]] | None:
    """List the properties on the way to an entry, each alone, and last the candidates for it."""
    node, found = document.root, []
    for key in entry.keys:
        item = node.item(key)
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
    if not is_ours(entry.value):
        return [it for it in items[-1] if _value(document, it.value) == entry.value]
    return [it for it in items[-1] if is_ours(_value(document, it.value))]


def _added(document: Document, entry: Entry) -> str:
    node = document.root
    for depth, key in enumerate(entry.keys):
        item = node.item(key)
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
    value = document.source(found.value)
    for depth, (item, *_) in enumerate(items[: len(entry.keys)]):
        nested = _nested(entry.keys[depth + 1 :], value, entry.listed)
        if document.source(item.value) == nested:
            return jsonc.remove(document, container, container.items.index(item))
        if depth < len(entry.keys) - 1 or entry.listed:
            container = item.value
    return jsonc.remove(document, container, container.items.index(found))
