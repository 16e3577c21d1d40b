"""OpenCode 2's permission rules, which it does not apply to the tools of a plugin.

A rule is ``{action, resource, effect}``; of those that match, the last one counts. ``*`` stands for
any characters, ``?`` for one (https://opencode.ai/docs/permissions).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any


class Effect(StrEnum):
    """What a rule does; the stricter one is the greater one."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True)
class Rule:
    """One rule: what it is about, and what follows."""

    action: str
    resource: str
    effect: Effect

    def matches(self, action: str, resource: str) -> bool:
        return _matches(self.action, action) and _matches(self.resource, resource)


def read(rules: Iterable[Any]) -> tuple[Rule, ...]:
    """Read the rules of a request. One that cannot be read makes the tool ask for everything."""
    found = []
    for rule in rules:
        try:
            found.append(Rule(str(rule["action"]), str(rule["resource"]), Effect(rule["effect"])))
        except (KeyError, TypeError, ValueError):
            found.append(_OTHERWISE)
    return tuple(found)


def decide(rules: Iterable[Rule], action: str, resources: Iterable[str]) -> Rule:
    """Return the rule that counts: the strictest of each resource's, or one that asks."""
    backwards = tuple(rules)[::-1]

    def last(resource: str) -> Rule:
        return next((r for r in backwards if r.matches(action, resource)), _OTHERWISE)

    strictness = list(Effect).index
    found = (last(each) for each in resources)
    return max(found, key=lambda rule: strictness(rule.effect), default=_OTHERWISE)


_OTHERWISE = Rule("*", "*", Effect.ASK)


def question(action: str, resources: Iterable[str], always: Iterable[str]) -> dict[str, Any]:
    """The question to the user, for OpenCode's question tool: ``{text, options}``."""
    named = ", ".join(f"'{each}'" for each in resources)
    kept = ", ".join(f"'{each}'" for each in always)
    options = [
        {"label": ONCE, "description": "This time"},
        {"label": ALWAYS, "description": f"Until OpenCode ends, for {kept}"},
        {"label": REJECT, "description": "Do not run it"},
    ]
    return {
        "text": f"May the agent use {action} in its sandbox: {named}?",
        "options": options if kept else [options[0], options[2]],
    }


ONCE, ALWAYS, REJECT = "Allow once", "Allow always", "Reject"


def _matches(pattern: str, text: str) -> bool:
    """Whether a pattern is the whole text; as in OpenCode, `ls *` also is a bare `ls`."""
    pattern = pattern.replace("[", "[[]")  # which has no other meaning there
    short = pattern.removesuffix(" *")
    return fnmatchcase(text, pattern) or (short != pattern and fnmatchcase(text, short))
