"""Rules in OpenCode's configuration that forbid the tools which act on the user's machine, so that
these are closed where the plugin is not loaded, fails, or was removed. Pure: text in, text out.

OpenCode 1 and 2 take the last rule that matches, so ours are the last of each tool. In OpenCode 1
the plugin lifts them once its service has answered; in OpenCode 2 they bind the built-in tools
only, and the plugin's are in their place. ``**`` matches what ``*`` does, and tells our rules from
the user's. Code Mode's ``execute`` knows no patterns: a rule for all of it takes it away.
"""

import json

from git_daytona.opencode import jsonc
from git_daytona.opencode.jsonc import Document, Item, Node

RULES = {
    **dict.fromkeys(("bash", "edit", "read", "glob", "grep", "list", "lsp"), "**"),
    "execute": "*",
}
"""Tool, in OpenCode 1's name, which OpenCode 2 translates: the resource that is denied."""


def add(text: str) -> str:
    """Return the text with all rules; those that are there stay."""
    document = jsonc.parse(text)
    found = document.root.item("permission")
    if found is None:
        return jsonc.append(document, document.root, f'"permission": {_all(document)}')
    if found.value.kind != "object":  # one rule for all tools
        return jsonc.replace(document, found.value, _extended(document, found.value, _ON_ONE_LINE))
    for tool in RULES:
        document = jsonc.parse(text)
        found = document.root.item("permission")
        assert found is not None
        item = found.value.item(tool)
        if item is None:
            text = jsonc.append(document, found.value, f'"{tool}": {_rule(tool)}')
        elif tool == "execute":
            continue  # there is nothing to add to a rule for all of it
        elif item.value.kind != "object":
            text = jsonc.replace(document, item.value, _extended(document, item.value, _rule(tool)))
        elif document.source(item.value) == "{}":
            text = jsonc.replace(document, item.value, _in_empty(tool))
        elif not _denies(document, item.value, RULES[tool]):
            text = jsonc.append(document, item.value, f'"{RULES[tool]}": "deny"')
    return text


def remove(text: str) -> str:
    """Return the text without the rules: what add() was given, where nothing was changed since."""
    for tool in reversed(RULES):
        document = jsonc.parse(text)
        found = document.root.item("permission")
        if found is None or found.value.kind != "object":
            return text
        if document.source(found.value) in (_ON_ONE_LINE, _all(document)):
            place = document.root.items.index(found)
            return jsonc.remove(document, document.root, place)
        if (before := _unextended(document, found.value, _ON_ONE_LINE)) is not None:
            return jsonc.replace(document, found.value, before)
        item = found.value.item(tool)
        if item is not None and item.value.kind == "object":
            text = _without(document, found.value, item, tool)
    return text


def _without(document: Document, permission: Node, item: Item, tool: str) -> str:
    rules, pattern = item.value, RULES[tool]
    if document.source(rules) == _rule(tool):
        return jsonc.remove(document, permission, permission.items.index(item))
    if tool == "execute":
        return document.text
    if document.source(rules) == _in_empty(tool):
        return jsonc.replace(document, rules, "{}")
    if (before := _unextended(document, rules, _rule(tool))) is not None:
        return jsonc.replace(document, rules, before)
    if _denies(document, rules, pattern):
        return jsonc.remove(document, rules, rules.items.index(rules.item(pattern)))
    return document.text


def missing(document: Document) -> list[str]:
    """The tools that the rules of a configuration do not forbid at the end."""
    found = document.root.item("permission")
    if found is None or found.value.kind != "object":
        return list(RULES)
    return [
        tool
        for tool, pattern in RULES.items()
        if (item := found.value.item(tool)) is None
        or not (_denies(document, item.value, pattern) or document.string(item.value) == "deny")
    ]


def opened(document: Document) -> list[str]:
    """The tools that a configuration of a higher rank lets do something."""
    found = document.root.item("permission")
    if found is None:
        return []
    if found.value.kind != "object":
        return [] if document.string(found.value) == "deny" else list(RULES)
    closed = missing(document)
    return [tool for tool in closed if found.value.item(tool) is not None]


def _in_empty(tool: str) -> str:
    """The rule in an object of the user's that was empty: told from one of ours by its blanks."""
    return f'{{ "{RULES[tool]}": "deny" }}'


def _rule(tool: str) -> str:
    return json.dumps({RULES[tool]: "deny"})


# In the other order than they are added to the user's own: that tells the two apart.
_ON_ONE_LINE = "{" + ", ".join(f'"{tool}": {_rule(tool)}' for tool in reversed(RULES)) + "}"


def _all(document: Document) -> str:
    """All rules, a line for each where the document has a line for each property."""
    indentation = jsonc.indentation(document)
    if indentation is None:
        return _ON_ONE_LINE
    begin = document.newline + 2 * indentation
    rules = [f'{begin}"{tool}": {_rule(tool)}' for tool in reversed(RULES)]
    return "{" + ",".join(rules) + document.newline + indentation + "}"


def _extended(document: Document, value: Node, rules: str) -> str:
    """A single rule for everything, and ours. No blanks: that tells it from the user's own."""
    return f'{{"*":{document.source(value)},{rules[1:]}'


def _unextended(document: Document, value: Node, rules: str) -> str | None:
    """The single rule that _extended() was given; None for another object."""
    text = document.source(value)
    if value.kind == "object" and value.items and text.startswith('{"*":'):
        first = document.source(value.items[0].value)
        if text == f'{{"*":{first},{rules[1:]}':
            return first
    return None


def _denies(document: Document, value: Node, pattern: str) -> bool:
    item = value.item(pattern)
    return item is not None and document.string(item.value) == "deny"
