"""git's configuration, all of it, as git finds it from some place: read once in an operation."""

import contextlib
import contextvars
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from git_daytona.base.errors import TransferFailed
from git_daytona.base.run import run
from git_daytona.git import environment


class Entry(NamedTuple):
    """A value, its scope (local, …) and place (``file:.git/config``). git has the section and the
    last part of a key in lower case; a key without a value, which is true, has None."""

    scope: str
    origin: str
    key: str
    value: str | None


_held: contextvars.ContextVar[dict[tuple[str, ...], tuple[Entry, ...]]]
_held = contextvars.ContextVar("held")


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Read that of a place once in the block: what an operation finds at its beginning counts until
    its end."""
    before = _held.set(_held.get({}))
    try:
        yield
    finally:
        _held.reset(before)


def section(entries: Iterable[Entry], name: str) -> dict[str, str]:
    """The values of a section, by key in lower case; of several with one key the last."""
    parted = ((*each.key.rpartition("."), each.value or "") for each in entries)
    return {key: value for section, _, key, value in parted if section == name}


def read(*place: str, now: bool = False) -> tuple[Entry, ...]:
    """All entries, that which counts last; ``place`` are git's options that say where it looks
    from. ``now``: as they are at this moment. Raises TransferFailed where git cannot read them."""
    known = {} if now else _held.get({})
    if place not in known:
        argv = ("git", *place, "config", "-z", "--show-scope", "--show-origin", "--list")
        listed = run(argv, env=environment.base(), timeout=60)
        if listed.status != 0:
            raise TransferFailed(
                "git cannot read its configuration",
                hint="see what is wrong with it: git config --list",
                details=listed.complaint,
            )
        words = iter(listed.text.split("\0"))
        found = []
        for scope, origin, entry in zip(words, words, words, strict=False):
            key, separator, value = entry.partition("\n")
            found.append(Entry(scope, origin, key, value if separator else None))
        known[place] = tuple(found)
    return known[place]
