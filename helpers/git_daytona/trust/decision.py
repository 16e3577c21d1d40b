"""The table of DESIGN.md §5 as a function. Pure: pinned lines and published keys in, a decision
out."""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from git_daytona.base.endpoint import Endpoint, endpoint
from git_daytona.base.errors import BadAnswer
from git_daytona.trust.host_keys import HostKey
from git_daytona.trust.known_hosts import Line, Marker


class Outcome(enum.Enum):
    PIN = "pin"
    """Nothing was pinned: pin what is published."""
    KEEP = "keep"
    """The pin holds; the keys to add, if any, are published beside a pinned one (a rotation)."""
    REFUSE = "refuse"
    """Published and pinned keys have none in common."""
    UNREADABLE = "unreadable"
    """Something was published, but no key in it can be read, and nothing is pinned."""
    INHERIT = "inherit"
    """Nothing is published or pinned."""


@dataclass(frozen=True)
class Decision:
    outcome: Outcome
    add: tuple[HostKey, ...] = ()


def decide(pinned: Sequence[Line], published: Sequence[HostKey], *, something: bool) -> Decision:
    """Decide for one gateway. ``pinned`` are the lines of the pin file that serve its name;
    ``something`` is whether the API published anything at all, readable or not (False also when it
    could not be asked)."""
    revoked = {
        key
        for line in pinned
        if line.marker is Marker.REVOKED and line.key
        for key in (line.key, line.key.plain)
    }
    held = [line.key for line in pinned if line.marker is Marker.NONE and line.key not in revoked]
    offered = [key for key in published if key not in revoked]
    if not pinned:
        if offered:
            return Decision(Outcome.PIN, tuple(offered))
        return Decision(Outcome.UNREADABLE if something else Outcome.INHERIT)
    if not published:
        return Decision(Outcome.KEEP)
    if not set(held) & set(offered):
        return Decision(Outcome.REFUSE)
    return Decision(Outcome.KEEP, tuple(key for key in offered if key not in held))


def keys_of(lines: Iterable[Line]) -> tuple[HostKey, ...]:
    """The keys that lines vouch for, each once: no revoked ones, no authorities."""
    return tuple({line.key: None for line in lines if line.marker is Marker.NONE and line.key})


def named_endpoints(lines: Iterable[Line]) -> set[Endpoint]:
    """The endpoints that lines name in full: not hashed, not by pattern."""
    return {
        found
        for line in lines
        for name in line.hosts.split(b",")
        if line.key and (found := endpoint_of(name)) is not None
    }


def endpoint_of(name: bytes | str) -> Endpoint | None:
    """The endpoint that a known_hosts name means; None for a pattern, a hash or nonsense."""
    text = name.decode("ascii", "replace") if isinstance(name, bytes) else name
    host, _, port = (
        text.removeprefix("[").partition("]:") if text.startswith("[") else (text, "", "22")
    )
    if "[" in host or "]" in host or not (port.isascii() and port.isdigit() and len(port) < 6):
        return None
    try:
        return endpoint(host, int(port))
    except BadAnswer:
        return None
