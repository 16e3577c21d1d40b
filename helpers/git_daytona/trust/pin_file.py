"""The pin file: an ordinary known_hosts file that this suite writes and people may edit. Their
lines and comments stay.

Each pin is a comment saying where the keys came from and when, then the keys:

    # daytona-pin: [ssh.example.org]:2222 from https://example.org/api on 2026-01-31T09:00:00Z
    [ssh.example.org]:2222 ssh-ed25519 AAAA…

Stricter than ssh, which skips what it cannot read: a file of ours with such a line was damaged, and
is refused (fail closed).
"""

import contextlib
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from git_daytona.base import files, paths
from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import BadSetting, HostKeyRefused
from git_daytona.trust import known_hosts
from git_daytona.trust.decision import endpoint_of
from git_daytona.trust.host_keys import HostKey
from git_daytona.trust.known_hosts import Line, Marker

FILE_BYTES = 16 * 1024 * 1024
"""Limit of a known_hosts file; the largest in practice have some hundred kilobytes."""
_HEADER = "# Host keys of Daytona's SSH gateways. 'daytona-pin' shows and changes them; your own lines and comments stay.\n"
_FORGOTTEN = "# daytona-pin: nothing is pinned"
_RECORD = re.compile(r"# daytona-pin: (?P<name>\S+) from (?P<source>\S.*) on (?P<when>\S+)")


@dataclass(frozen=True)
class Record:
    """A comment of ours: which endpoint was pinned, from which source (an API's URL, or a file),
    and when (ISO 8601, UTC)."""

    endpoint: Endpoint
    source: str
    when: str


@dataclass(frozen=True)
class Pins:
    """The content of a usable pin file, or of none (``data`` empty)."""

    data: bytes = b""
    lines: tuple[Line, ...] = ()
    records: tuple[Record, ...] = ()

    def serving(self, endpoint: Endpoint) -> tuple[Line, ...]:
        return known_hosts.serving(self.lines, endpoint.known_hosts_name)

    def last_endpoint(self, api_url: str) -> Endpoint | None:
        """The endpoint that was last pinned from this API, if its pin is still there."""
        for record in reversed(self.records):
            if record.source == api_url and self.serving(record.endpoint):
                return record.endpoint
        return None


def read_bounded(path: Path) -> bytes:
    """Read a regular file of at most FILE_BYTES; raises OSError."""
    return files.read_bounded(path, FILE_BYTES)[0]


def load(path: Path) -> Pins:
    """Read the pin file; no file gives no pins. Raises HostKeyRefused when there is one that cannot
    be used."""
    try:
        data = read_bounded(path)
    except (FileNotFoundError, NotADirectoryError):  # the second: writing will say it better
        if path.is_symlink():
            raise unusable(path, "it is a link to nothing") from None
        return Pins()
    except OSError as problem:
        raise unusable(path, (problem.strerror or str(problem)).lower()) from problem
    if b"\0" in data:
        raise unusable(path, "it holds NUL bytes")
    # With a newline at its end: half a line must not become a whole one by ssh's reading on in
    # memory (knownhosts.parse).
    lines = known_hosts.parse(data if data.endswith(b"\n") else data + b"\n")
    for line in lines:
        if line.problem:
            raise unusable(path, f"line {line.number}: {line.problem}")
    comments = [
        raw.decode("utf-8", "replace").rstrip() for raw in data.split(b"\n") if raw.startswith(b"#")
    ]
    if not any(line.marker is Marker.NONE for line in lines) and _FORGOTTEN not in comments:
        raise unusable(path, "it holds no key")
    records = []
    for comment in comments:
        match = _RECORD.fullmatch(comment)
        endpoint = endpoint_of(match["name"]) if match else None
        if match and endpoint:
            records.append(Record(endpoint, match["source"], match["when"]))
    return Pins(data, lines, tuple(records))


def unusable(path: Path, why: str) -> HostKeyRefused:
    return HostKeyRefused(
        f"the pin file '{path}' cannot be used: {why}",
        hint="repair it; or, if you know why it is like that, remove it: the next start then pins the published keys anew",
    )


@contextlib.contextmanager
def changing(path: Path) -> Iterator[None]:
    """Hold the pin file's lock: what is decided about it is written before another process
    decides."""
    with files.lock(paths.locks() / "gateway_known_hosts", holds=f"the pin file '{path}'"):
        yield


def add(path: Path, pins: Pins, endpoint: Endpoint, keys: Iterable[HostKey], source: str) -> Pins:
    """Append keys for an endpoint, under ``changing``; ``pins`` is what was read under the same
    lock. Raises as load, BadSetting."""
    text = f"# daytona-pin: {endpoint.known_hosts_name} from {source} on {_now()}\n"
    text += "".join(f"{endpoint.known_hosts_name} {key.line}\n" for key in keys)
    before = b"".join(raw for raw in io.BytesIO(pins.data) if raw.rstrip() != _FORGOTTEN.encode())
    if before and not before.endswith(b"\n"):
        before += b"\n"
    _write(path, (before or _HEADER.encode()) + text.encode(), first=not pins.data)
    return load(path)


def forget(path: Path, pins: Pins, endpoint: Endpoint) -> Pins:
    """Drop the lines that serve an endpoint, and our comments about it; ``@revoked`` lines stay, as
    with ``ssh-keygen -R``.

    Under ``changing``. A file with nothing left but our own header is removed. Raises as load,
    BadSetting.
    """
    gone = {line.number for line in pins.serving(endpoint) if line.marker is not Marker.REVOKED}
    kept = b"".join(
        raw
        for number, raw in enumerate(io.BytesIO(pins.data), 1)
        if number not in gone and not _is_record(raw, endpoint)
    )
    if not any(line.marker is Marker.NONE for line in known_hosts.parse(kept)):
        if not kept.replace(_HEADER.encode(), b"").strip():
            path.resolve().unlink(missing_ok=True)
            return Pins()
        kept += b"" if kept.endswith(b"\n") else b"\n"
        kept += f"{_FORGOTTEN}\n".encode()
    _write(path, kept, first=False)
    return load(path)


def _is_record(raw: bytes, endpoint: Endpoint) -> bool:
    match = _RECORD.fullmatch(raw.decode("utf-8", "replace").rstrip())
    return match is not None and endpoint_of(match["name"]) == endpoint


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _write(path: Path, content: bytes, *, first: bool) -> None:
    """Write through a link, so that a pin file kept elsewhere stays there. A first pin never
    replaces a file."""
    if not files.write_whole(path.resolve(), content, replace=not first):
        raise BadSetting(
            f"'{path}' was made by somebody else just now", hint="look at it, then try again"
        )
