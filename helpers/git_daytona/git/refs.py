"""The names that git sees: branches, remotes, and the refs of our own. Pure."""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from git_daytona.base.endpoint import Endpoint

PROJECT = "/home/daytona/project"
"""Where the repository lies in every sandbox."""
SANDBOX_BRANCH = "opencode"
"""The branch that local HEAD is pushed to in the sandbox; and what stands before ``/N`` here, if
nobody prefers something else."""
COUNTER = "refs/daytona/counter"
"""A blob with the last number that was given: none is given again, even after a deletion."""
KEPT = "refs/daytona/kept/"
"""What a sync or a deletion would have overwritten."""
NUMBER = "[1-9][0-9]{0,14}"
LAST_NUMBER = 10**15 - 1
"""Numbers of sessions are such as JavaScript can hold, too."""
PREFIX_LENGTH = 100
MOST = 2000
"""How many refs of a sandbox are taken."""
NAME_BYTES, COMPONENT_BYTES = 1000, 240
"""The longest name of a ref that is taken, and the longest piece between its slashes: file systems
take 255 bytes, with git's ``.lock``."""

# What check-ref-format allows, without what it forbids in a piece: names become refs here, and
# reach terminals.
_NAME = re.compile(r"refs/(?:heads|daytona)/[^\s~^:?*\[\\\x00-\x20\x7f]+")
_FORBIDDEN = re.compile(r"\.\.|@\{|//|/$|\.$|/\.|\.lock(?:/|$)")


class _Name:
    """A name that a session's number and prefix are filled into."""

    def __init__(self, template: str) -> None:
        self.template = template

    def __get__(self, names: "Names", _owner: object = None) -> str:
        return self.template.format(number=names.number, prefix=names.prefix)


@dataclass(frozen=True)
class Names:
    """All names of session N. ``prefix`` is what daytona.branchPrefix was when it started."""

    number: int
    prefix: str = SANDBOX_BRANCH

    branch = _Name("{prefix}/{number}")
    ref = _Name("refs/heads/{prefix}/{number}")
    remote = _Name("sandbox-{number}")
    tracking = _Name("refs/remotes/sandbox-{number}/")
    """Prefix of the sandbox's branches here."""
    incoming = _Name("refs/daytona/incoming/{number}/")
    """Prefix under which a fetch lands before its tips are moved to where they belong."""
    kept = _Name(KEPT + "opencode-{number}/")
    resetting = _Name("refs/daytona/resetting/{number}")
    """The branch's old tip, while worktrees that have it checked out still have to follow."""
    base = _Name("refs/daytona/base/{number}")
    """The commit that the session started from."""


def url(endpoint: Endpoint) -> str:
    """Make the remote's URL: no user, the token is nowhere in it."""
    return f"ssh://{endpoint.url_authority}{PROJECT}"


def number_of_remote(name: str) -> int | None:
    found = re.fullmatch(f"sandbox-({NUMBER})", name)
    return int(found[1]) if found else None


def number_in(text: str) -> int | None:
    """Read the number in ``3``, ``sandbox-3`` or ``opencode/3``; None for else (a session's id)."""
    found = re.fullmatch(rf"(?:sandbox-|(?:refs/heads/)?opencode/)?({NUMBER})", text)
    return int(found[1]) if found else None


def is_prefix(text: str) -> bool:
    """Whether a text may come before ``/N`` in the name of a branch, as far as that can be told
    without git: it is never an option, and holds no syntax of refs, their patterns or terminals."""
    return (
        0 < len(text) <= PREFIX_LENGTH
        and text.isprintable()
        and text[0] not in "-/."
        and not re.search(r"[\s~^:?*\[\\]", text)
        and not _FORBIDDEN.search(text)
    )


def _is_well_formed(name: str) -> bool:
    return (
        name.isprintable()  # half a character is not, nor can it be encoded
        and _NAME.fullmatch(name) is not None
        and _FORBIDDEN.search(name) is None
        and len(name.encode()) <= NAME_BYTES
        and all(len(piece.encode()) <= COMPONENT_BYTES for piece in name.split("/"))
    )


def takeable(names: Iterable[str], *, folding: bool) -> tuple[list[str], list[str]]:
    """Of the names that a sandbox gives to its refs those that can be refs here, at most MOST, and
    those that cannot: not well-formed, not printable, too long, or in the way of another one.
    ``folding``: the file system tells neither case nor Unicode forms apart."""
    taken: dict[str, str] = {}
    folders: set[str] = set()
    refused: list[str] = []
    for name in names:
        key = unicodedata.normalize("NFC", name).casefold() if folding else name
        pieces = key.split("/")
        parents = {"/".join(pieces[:count]) for count in range(3, len(pieces))}
        in_the_way = {key, *parents} & taken.keys() or key in folders
        if len(taken) < MOST and _is_well_formed(name) and not in_the_way:
            taken[key] = name
            folders |= parents
        else:
            refused.append(name)
    return list(taken.values()), refused
