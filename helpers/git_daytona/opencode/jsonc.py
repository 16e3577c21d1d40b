"""Edits of JSON with comments that leave everything else as it is: text in, text out. Pure.

Removing what was appended gives back the text from before, byte for byte. No library does that:
jsonc-edit runs Node.js, json-five reformats what it changes, jsonc-document needs a newer Python.

The grammar is that of Microsoft's jsonc-parser as OpenCode uses it: comments and trailing commas
are fine. OpenCode replaces ``{env:NAME}`` and ``{file:PATH}`` before it parses, so these may stand
for a value.
"""

import json
import re
from dataclasses import dataclass

_BLANK = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_SCALAR = re.compile(
    r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|\{(?:env|file):[^}]+\}"
)
_CLOSING = {"{": "}", "[": "]"}
_DEEPEST = 100
_LINE = re.compile(r"\r\n|\n|\r")
_COMMENTS_BEHIND = re.compile(r"(?:[ \t]*(?://[^\r\n]*|/\*(?:(?!\*/)[^\r\n])*\*/))*")
"""Comments that follow in the same line, and end in it."""


class Malformed(ValueError):
    """The text is not JSON with comments; the message says what is wrong and in which line."""


@dataclass(frozen=True)
class Node:
    """A value, ``text[start:end]``; ``kind`` is ``object``, ``array``, ``string`` or ``scalar``."""

    kind: str
    start: int
    end: int
    items: tuple["Item", ...] = ()

    def item(self, key: str) -> "Item | None":
        """A property of an object; of several with one name the last, which counts."""
        return next((item for item in reversed(self.items) if item.key == key), None)


@dataclass(frozen=True)
class Item:
    """An element of an array (``key`` None) or a property of an object; ``blanks`` is where the
    blanks before it begin, ``comma`` where the comma behind it is."""

    key: str | None
    blanks: int
    start: int
    value: Node
    comma: int | None


@dataclass(frozen=True)
class Document:
    """A parsed text, with its byte order mark if any, and where its ``//`` comments end."""

    text: str
    root: Node
    line_comments: frozenset[int]

    @property
    def newline(self) -> str:
        """The line ending in use."""
        found = _LINE.search(self.text)
        return found.group() if found else "\n"

    def source(self, node: Node) -> str:
        """The text of a value."""
        return self.text[node.start : node.end]

    def string(self, node: Node) -> str | None:
        """The value of a string; None for anything else."""
        return str(json.loads(self.source(node))) if node.kind == "string" else None


def parse(text: str) -> Document:
    """Parse a text; raises Malformed."""
    parser = _Parser(text)
    root = parser.value(0)
    parser.blank()
    if parser.at < len(text):
        raise parser.malformed("something follows the end")
    return Document(text, root, frozenset(parser.line_comments))


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 1 if text.startswith("\ufeff") else 0
        self.line_comments: list[int] = []

    def malformed(self, what: str) -> Malformed:
        return Malformed(f"line {len(_LINE.findall(self.text, 0, self.at)) + 1}: {what}")

    def blank(self) -> int:
        """Go past blanks and comments; returns where the last of these blanks begin."""
        while True:
            begin = self.at
            found = _BLANK.match(self.text, self.at)
            self.at = found.end() if found else self.at
            comment = _COMMENT.match(self.text, self.at)
            if comment is None:
                return begin
            self.at = comment.end()
            if comment.group().startswith("//"):
                self.line_comments.append(self.at)

    def value(self, depth: int) -> Node:
        self.blank()
        start = self.at
        for kind, pattern in (("string", _STRING), ("scalar", _SCALAR)):
            if found := pattern.match(self.text, start):
                self.at = found.end()
                return Node(kind, start, self.at)
        opening = self.text[start : start + 1]
        if opening not in _CLOSING or not opening:
            missing = opening in ("", ",", "]", "}")
            raise self.malformed("a value is missing" if missing else "this is not a JSON value")
        if depth >= _DEEPEST:
            raise self.malformed("it is nested too deeply")
        self.at += 1
        items = self.items(opening, depth)
        return Node("object" if opening == "{" else "array", start, self.at, tuple(items))

    def items(self, opening: str, depth: int) -> list[Item]:
        """Read up to the closing bracket, and go past that."""
        items: list[Item] = []
        while True:
            blanks = self.blank()
            if self.text[self.at : self.at + 1] == _CLOSING[opening]:
                self.at += 1
                return items
            if items and items[-1].comma is None:
                raise self.malformed(f"a ',' or '{_CLOSING[opening]}' is missing")
            start = self.at
            key = self.key() if opening == "{" else None
            value = self.value(depth + 1)
            self.blank()
            comma = self.at if self.text[self.at : self.at + 1] == "," else None
            self.at += comma is not None
            items.append(Item(key, blanks, start, value, comma))

    def key(self) -> str:
        found = _STRING.match(self.text, self.at)
        if found is None:
            raise self.malformed("a property name in double quotes is missing")
        self.at = found.end()
        self.blank()
        if self.text[self.at : self.at + 1] != ":":
            raise self.malformed("a ':' is missing")
        self.at += 1
        return str(json.loads(found.group()))


def append(document: Document, container: Node, item: str) -> str:
    """Add an item at the end, formed as the last one: line, comma, and behind its comments."""
    text = document.text
    if not container.items:
        return _append_first(document, container, item)
    last = container.items[-1]
    indentation = _own_line(text, last)
    if indentation is None and _LINE.search(text, last.value.end, container.end - 1):
        indentation = _inner(document, container)
    gap = " " if indentation is None else document.newline + indentation
    behind = last.value.end if last.comma is None else last.comma + 1
    comments = _COMMENTS_BEHIND.match(text, behind)
    tail = comments.end() if comments else behind
    if last.comma is not None:
        return f"{text[:tail]}{gap}{item},{text[tail:]}"
    comma = tail if indentation is None else behind
    return f"{text[:comma]},{text[comma:tail]}{gap}{item}{text[tail:]}"


def _append_first(document: Document, container: Node, item: str) -> str:
    text = document.text
    inner = text[container.start + 1 : container.end - 1]
    if _LINE.search(inner):
        item = document.newline + _inner(document, container) + item
    elif container.kind == "array" and not inner:
        # padded, so that remove() can tell it from an array that was added with the item in it
        item = f" {item} "
    return text[: container.start + 1] + item + text[container.start + 1 :]


def replace(document: Document, node: Node, value: str) -> str:
    """Put a value in the place of another."""
    return document.text[: node.start] + value + document.text[node.end :]


def remove(document: Document, container: Node, number: int) -> str:
    """Cut out an item, with the comma and the blanks that came with it; comments stay."""
    text, items = document.text, container.items
    item = items[number]
    inside = text[container.start + 1 : container.end - 1]
    if len(items) == 1 and inside == f" {text[item.start : item.value.end]} ":
        return text[: container.start + 1] + text[container.end - 1 :]
    begin, end = item.blanks, item.value.end
    comma = item.comma if item.comma is not None or not number else items[number - 1].comma
    if number == 0 and _own_line(text, item) is None:
        # The first of several in one line: what keeps it apart from the second goes, not what
        # stands before it.
        begin = item.start
        if len(items) > 1 and comma == end:
            end += 1
            while text[end] in " \t":
                end += 1
            comma = None
    rest = text[end:]
    if comma is not None and comma >= end:
        rest = text[end:comma] + text[comma + 1 :]
    if item.blanks in document.line_comments and not _LINE.match(rest.lstrip(" \t")):
        begin = item.start  # the line break ends a comment
    before = text[:begin]
    if comma is not None and comma < begin:
        before = text[:comma] + text[comma + 1 : begin]
    return before + rest


def _own_line(text: str, item: Item) -> str | None:
    """The indentation of an item that begins a line; None if something else stands before it."""
    blanks = text[item.blanks : item.start]
    return re.split(r"[\r\n]", blanks)[-1] if _LINE.search(blanks) else None


def _inner(document: Document, container: Node) -> str:
    """The indentation within a container: further than that of the line in which it begins by as
    much as the outermost properties have, else by two blanks."""
    line = re.split(r"[\r\n]", document.text[: container.start])[-1].removeprefix("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))] + (indentation(document) or "  ")


def indentation(document: Document) -> str | None:
    """The indentation of the outermost properties; None where none has a line of its own."""
    own = (_own_line(document.text, item) for item in document.root.items)
    return next(filter(None, own), None)
