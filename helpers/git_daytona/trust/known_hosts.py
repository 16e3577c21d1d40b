"""A reader of known_hosts files whose verdicts are OpenSSH's. Pure: bytes and names in, values out.

It follows OpenSSH 9.2 step by step: ``hostfile.c`` (hostkeys_foreach_file, check_markers,
match_maybe_hashed, check_hostkeys_by_key_or_type), ``match.c`` (match_pattern_list) and
``sshconnect2.c`` (order_hostkeyalgs). paramiko's reader and asyncssh's differ in each of them.
tests/unit/test_hostkeys.py compares it with the real ssh on hundreds of files.
"""

import base64
import enum
import fnmatch
import hashlib
import hmac
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from git_daytona.base.endpoint import Endpoint, endpoint
from git_daytona.base.errors import BadAnswer
from git_daytona.trust.host_keys import CURVES, SPACES, HostKey, decode_base64, parse_line

PREFERRED = ("ssh-ed25519", *(f"ecdsa-sha2-{curve}" for curve in CURVES), "ssh-rsa")
"""The types of OpenSSH's default HostKeyAlgorithms, in its order, without those of certificates and
of security keys, which no server presents."""
_SUBPATTERN_BYTES = 1023  # match_pattern_list gives up, without a match, on one of this length


class Marker(enum.Enum):
    NONE = ""
    AUTHORITY = "@cert-authority"
    REVOKED = "@revoked"


_SALT_BYTES = 20  # SHA-1's
_MARKERS = {each.value.encode(): each for each in Marker if each is not Marker.NONE}


@dataclass(frozen=True)
class Line:
    """A line, no blank or comment. Without a key, ``problem`` says why ssh skips it."""

    number: int
    marker: Marker
    hosts: bytes
    key: HostKey | None
    problem: str | None = None

    def serves(self, name: str) -> bool:
        """Whether ssh takes this line for the name (``host`` or ``[host]:port``, lower case)."""
        return self.key is not None and names_match(self.hosts, name)


class Verdict(enum.Enum):
    """What ssh thinks of a plain key (HostStatus of hostfile.h)."""

    OK = "ok"
    NEW = "new"
    CHANGED = "changed"
    REVOKED = "revoked"


def parse(data: bytes) -> tuple[Line, ...]:
    """Read a whole file. Never raises: what cannot be read is a Line with a problem."""
    # ssh reads each line with getline() into one buffer, as a C string: a NUL byte ends it. After
    # the host names it steps over one byte, whatever it is. So a line may go on behind a NUL, and a
    # last line "host" without a newline goes on in what an earlier, longer line has left there.
    buffer = bytearray()
    found = []
    for number, raw in enumerate(io.BytesIO(data), 1):
        buffer[: len(raw) + 1] = raw + b"\0"
        buffer[len(raw.split(b"\n", 1)[0].split(b"\0", 1)[0])] = 0
        found.append(_line(number, buffer))
    return tuple(line for line in found if line is not None)


def serving(lines: Iterable[Line], name: str) -> tuple[Line, ...]:
    return tuple(line for line in lines if line.serves(name))


def keys_of(lines: Iterable[Line]) -> tuple[HostKey, ...]:
    """The keys that lines vouch for, each once: no revoked ones, no authorities."""
    return tuple({line.key: None for line in lines if line.marker is Marker.NONE and line.key})


def named_endpoints(lines: Iterable[Line]) -> set[Endpoint]:
    """The endpoints that lines with a key name in full: not hashed, not by pattern."""
    names = (name for line in lines if line.key for name in line.hosts.split(b","))
    return {found for name in names if (found := endpoint_of(name.decode("ascii", "replace")))}


def endpoint_of(name: str) -> Endpoint | None:
    """The endpoint that a known_hosts name means; None for a pattern, a hash or nonsense."""
    host, port = name, "22"
    if name.startswith("["):
        host, _, port = name[1:].partition("]:")
    if "[" in host or "]" in host or not (port.isascii() and port.isdigit() and len(port) < 6):
        return None
    try:
        return endpoint(host, int(port))
    except BadAnswer:
        return None


def _line(number: int, buffer: bytearray) -> Line | None:
    marker = Marker.NONE
    start, text = _text(buffer, 0)
    if not text.strip(SPACES) or text.startswith(b"#"):
        return None
    # check_markers: the marker ends at the first space; only without one at the first tab.
    word = text.split(b" " if b" " in text else b"\t", 1)[0]
    if word in _MARKERS and word != text:
        marker = _MARKERS[word]
        start, text = _text(buffer, start + len(word))
    if text.startswith(b"@"):
        return Line(number, marker, b"", None, "the marker is unknown, or there are two")
    hosts = text.replace(b"\t", b" ").partition(b" ")[0]
    after = start + len(hosts)
    buffer[after : after + 1] = b"\0"  # as ssh does, which a later line may meet
    _, rest = _text(buffer, after + 1)
    try:
        if hosts.startswith(b"|") and _salt(hosts) is None:
            raise ValueError("the hashed host name cannot be read")
        if not rest or rest.startswith(b"#"):
            raise ValueError("there is no key after the host name")
        return Line(number, marker, hosts, parse_line(rest))
    except ValueError as problem:
        return Line(number, marker, hosts, None, str(problem))


def _text(buffer: bytearray, start: int) -> tuple[int, bytes]:
    """Step over blanks; return where the C string behind them begins, and that string."""
    end = buffer.find(b"\0", start)
    text = bytes(buffer[start : len(buffer) if end < 0 else end])
    rest = text.lstrip(b" \t")
    return start + len(text) - len(rest), rest


def names_match(hosts: bytes, name: str) -> bool:
    """Whether a line's host field, patterns or a hashed name, means the name (match_hostname)."""
    wanted = name.lower().encode("utf-8", "surrogateescape")
    if hosts.startswith(b"|"):
        salt = _salt(hosts)
        if salt is None:
            return False
        digest = hmac.new(salt, wanted, hashlib.sha1).digest()
        return hosts == b"|1|" + base64.b64encode(salt) + b"|" + base64.b64encode(digest)
    positive = False
    for each in hosts.split(b","):
        pattern = each.removeprefix(b"!").lower()
        if len(pattern) >= _SUBPATTERN_BYTES:
            return False
        fits = pattern == wanted
        if b"*" in pattern or b"?" in pattern:  # brackets are no character class here
            fits = fnmatch.fnmatchcase(wanted, pattern.replace(b"[", b"[[]"))
        if fits and each.startswith(b"!"):
            return False
        positive = positive or fits
    return positive


def _salt(hosts: bytes) -> bytes | None:
    """The salt of ``|1|salt|hash``; None for anything else (extract_salt)."""
    encoded, bar, _ = hosts.removeprefix(b"|1|").partition(b"|")
    try:
        salt = decode_base64(encoded) if bar and hosts.startswith(b"|1|") else b""
    except ValueError:
        return None
    return salt if len(salt) == _SALT_BYTES else None


def verdict(lines: Sequence[Line], key: HostKey) -> Verdict:
    """What ssh thinks of a presented plain key, given the lines for it (check_hostkeys_by_key)."""
    if is_revoked(lines, key):
        return Verdict.REVOKED
    plain = [line.key for line in lines if line.marker is Marker.NONE]
    if key in plain:
        return Verdict.OK
    return Verdict.CHANGED if plain else Verdict.NEW


def is_revoked(lines: Iterable[Line], key: HostKey) -> bool:
    return any(
        line.marker is Marker.REVOKED and line.key and key in (line.key, line.key.plain)
        for line in lines
    )


def preference(lines: Sequence[Line]) -> tuple[str, ...]:
    """The order in which ssh asks for types of key, given the lines that serve the name
    (order_hostkeyalgs): known ones come first, unless the best one is known. A server presents the
    first of these that it has."""
    first: dict[str, HostKey] = {}  # ssh looks at the first key of a type only
    for key in keys_of(lines):
        first.setdefault(key.type, key)
    known = {kind for kind, key in first.items() if not is_revoked(lines, key)}
    if PREFERRED[0] in known:
        return PREFERRED
    return tuple(sorted(PREFERRED, key=lambda kind: kind not in known))


def first_known(lines: Sequence[Line]) -> str | None:
    """The type for which ssh asks first of those that the lines have."""
    known = {key.type for key in keys_of(lines)}
    return next((kind for kind in preference(lines) if kind in known), None)


def negotiated(lines: Sequence[Line], presented: Iterable[HostKey]) -> HostKey | None:
    """Which of a server's keys ssh would be shown; None without one of a type that it accepts."""
    keys = {key.type: key for key in presented}
    return next((keys[kind] for kind in preference(lines) if kind in keys), None)
