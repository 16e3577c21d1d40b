"""The decision about one gateway. Pure: pinned lines and published keys in, an outcome out."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from git_daytona.trust.host_keys import HostKey
from git_daytona.trust.known_hosts import Line, is_revoked, keys_of
from git_daytona.trust.published import Published


class Outcome(enum.Enum):
    PIN = "pin"
    """Nothing was pinned: pin what is published."""
    KEEP = "keep"
    """The pin holds; keys to add, if any, are published together with a pinned one (a rotation)."""
    REFUSE = "refuse"
    """Published and pinned keys have none in common."""
    UNREADABLE = "unreadable"
    """Something was published, but no key in it can be used, and nothing is pinned."""
    INHERIT = "inherit"
    """Nothing is published or pinned."""


@dataclass(frozen=True)
class Decision:
    outcome: Outcome
    add: tuple[HostKey, ...] = ()


def decide(pinned: Sequence[Line], published: Published | None) -> Decision:
    """Decide for one gateway, given the lines that the pin file has for it and what the API
    publishes about it (None: nothing, or the API could not be asked)."""
    keys = published.keys if published else ()
    offered = tuple(key for key in keys if not is_revoked(pinned, key))
    if not pinned:
        if offered:
            return Decision(Outcome.PIN, offered)
        # Whatever is published must never end in silent trust.
        unreadable = published is not None and published.unreadable
        return Decision(Outcome.UNREADABLE if unreadable else Outcome.INHERIT)
    if not keys:
        return Decision(Outcome.KEEP)
    held = {key for key in keys_of(pinned) if not is_revoked(pinned, key)}
    if held.isdisjoint(offered):
        return Decision(Outcome.REFUSE)
    return Decision(Outcome.KEEP, tuple(key for key in offered if key not in held))
