"""The names that git sees: branches, remotes, and the refs of our own. Pure."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

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
BASES = "refs/daytona/base/"
DIRTY = "refs/daytona/dirty/"
UPDATES = "refs/daytona/update/"
"""In a sandbox: commits of the user's that are about to be merged there."""
INVENTORY = "refs/daytona/inventory/"
"""In a sandbox that is about to be deleted: what no branch of it holds."""
PENDING = "refs/daytona/pending"
"""In a sandbox: its files as they were at a sync that could not, or should not, commit them."""
INCOMING = "refs/daytona/incoming/"
"""Where a fetch lands before its tips are moved to where they belong."""
NUMBER = "[1-9][0-9]{0,14}"
LAST_NUMBER = 10**15 - 1
"""Numbers of sessions are such as JavaScript can hold, too."""
PREFIX_LENGTH = 100
MOST = 2000
"""How many refs of a sandbox are taken."""
NAME_BYTES, COMPONENT_BYTES = 1000, 240
"""The longest name of a ref that is taken, and the longest piece between its slashes: file systems
take 255 bytes, with git's ``.lock``."""
TAKEN_LENGTH = 4096
RENAMED = "renamed"
"""What a sandbox's branch is called here, with a digest, if it cannot have its own name."""

# git-check-ref-format(1), for names of the refs that are taken.
_NAME = re.compile(r"refs/(?:heads|daytona)/[^\x00-\x20\x7f~^:?*\[\\]+")
_FORBIDDEN = re.compile(r"\.\.|@\{|//|/$|\.$|/\.|\.lock(?:/|$)")
# What acts on a terminal: control characters and what turns the direction of text.
_ACTING = re.compile("[\x80-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069]")


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
    incoming = _Name(INCOMING + "{number}/")
    kept = _Name(KEPT + "opencode-{number}/")
    resetting = _Name("refs/daytona/resetting/{number}")
    """The branch's old tip, while worktrees that have it checked out still have to follow."""
    base = _Name(BASES + "{number}")
    """The commit that the session started from."""
    dirty = _Name(DIRTY + "{number}")
    """The same, where that is one of the user's uncommitted work, made for the session."""
    turn = _Name("refs/daytona/turn/{number}")
    """What the sandbox's files were when they were brought in the middle of a turn: a commit on top
    of its HEAD, until the next sync."""


def url(endpoint: Endpoint, place: str = PROJECT) -> str:
    """Make the URL of a repository in a sandbox: no user, the token is nowhere in it."""
    return f"ssh://{endpoint.url_authority}{quote(place)}"


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


def is_ref(name: str) -> bool:
    """Whether git takes a text for the name of a branch or of a ref of ours."""
    return _NAME.fullmatch(name) is not None and _FORBIDDEN.search(name) is None


def _fits(name: str, *, folding: bool) -> bool:
    """Whether files can have that name, and it is fit to be shown."""
    data = name.encode("utf-8", "surrogateescape")
    return (
        len(data) <= NAME_BYTES
        and all(len(piece) <= COMPONENT_BYTES for piece in data.split(b"/"))
        and not _ACTING.search(name)
        and not (folding and re.search("[\udc80-\udcff]", name))
    )


def places(names: Iterable[str], *, folding: bool) -> dict[str, str]:
    """Of the names that a sandbox gives to its refs those that are taken, at most MOST, and the
    name that each gets here: the same or, for a branch for which that cannot be (too long, not fit
    to be shown, or in the way of another one), a name of ours. ``folding``: the file system tells
    neither case nor Unicode forms apart, and takes UTF-8 only."""
    found: dict[str, str] = {}
    keys: set[str] = set()
    folders: set[str] = set()

    def take(name: str, place: str) -> bool:
        key = unicodedata.normalize("NFC", place).casefold() if folding else place
        pieces = key.split("/")
        parents = {"/".join(pieces[:count]) for count in range(3, len(pieces))}
        if {key, *parents} & keys or key in folders or not _fits(place, folding=folding):
            return False
        found[name] = place
        keys.add(key)
        folders.update(parents)
        return True

    for name in names:
        if len(found) == MOST or len(name) > TAKEN_LENGTH or not is_ref(name):
            continue
        if not take(name, name) and name.startswith("refs/heads/"):
            digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
            take(name, f"refs/heads/{RENAMED}-{digest[:12]}")
    return found
