"""Rows of a table: what Daytona's server does on one point, as a probe and what it should see."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Like:
    """Anything for which `holds` is true; `text` says what that is."""

    text: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class By:
    """What is expected by profile, where the two differ."""

    cloud: Any
    v0_190: Any


TEXT = Like("a text", lambda seen: isinstance(seen, str) and seen != "")
NUMBER = Like("a number", lambda seen: isinstance(seen, int | float) and not isinstance(seen, bool))


MOST_SHOWN = 400


def containing(text: str) -> Like:
    return Like(f"a text with '{text}'", lambda seen: isinstance(seen, str) and text in seen)


def beginning(text: str) -> Like:
    return Like(
        f"a text that begins with '{text}'",
        lambda seen: isinstance(seen, str) and seen.startswith(text),
    )


def one_of(*values: Any) -> Like:
    return Like(" or ".join(map(shown, values)), lambda seen: seen in values)


def having(*names: str) -> Like:
    return Like(
        f"an object or list with {', '.join(names)}",
        lambda seen: isinstance(seen, dict | list) and {*names} <= {*seen},
    )


@dataclass(frozen=True)
class Row:
    """`probe` is given the server and returns something small that JSON can hold; `twin` says why
    the twin cannot be like that."""

    name: str
    probe: Callable[[Any], Any]
    expected: Any
    twin: str | None


class Table(list[Row]):
    """The rows of one module, which calls it TABLE; each is added by a decorator of its probe."""

    def __init__(self, name: str):
        super().__init__()
        self.name = name

    def row(
        self, name: str, expected: Any, *, twin: str | None = None
    ) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
        assert name not in {row.name for row in self}, name

        def add(probe: Callable[[Any], Any]) -> Callable[[Any], Any]:
            self.append(Row(name, probe, expected, twin))
            return probe

        return add


def plain(value: Any) -> Any:
    """The value as JSON gives it back: what the report can hold."""
    return json.loads(json.dumps(value))


def by_profile(expected: Any, like: str) -> Any:
    """What is expected of one profile."""
    if isinstance(expected, By):
        return by_profile(expected.cloud if like == "cloud" else expected.v0_190, like)
    if isinstance(expected, dict):
        return {name: by_profile(value, like) for name, value in expected.items()}
    return expected


def shown(expected: Any) -> str:
    """What a person reads of it: no more than a few lines."""
    text = _shown(expected)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}… ({len(text)} characters)"


def _shown(expected: Any) -> str:
    if isinstance(expected, Like):
        return expected.text
    if isinstance(expected, dict):
        return "{" + ", ".join(f"{name}: {_shown(value)}" for name, value in expected.items()) + "}"
    return json.dumps(expected, ensure_ascii=False)


def differences(expected: Any, seen: Any, place: str = "") -> Iterator[str]:
    """One line for each place where they differ; none when they agree."""
    if isinstance(expected, dict) and isinstance(seen, dict):
        for name in [*expected, *(name for name in seen if name not in expected)]:
            inside = f"{place}.{name}" if place else name
            if name not in expected or name not in seen:
                yield f"{inside}: {'missing' if name in expected else 'not expected'}"
            else:
                yield from differences(expected[name], seen[name], inside)
        return
    if not (expected.holds(seen) if isinstance(expected, Like) else expected == seen):
        yield f"{place + ': ' if place else ''}expected {shown(expected)}, seen {shown(seen)}"
