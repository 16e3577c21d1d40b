"""The pin file: a known_hosts file that this suite writes and people may edit; their lines stay.

Each pin is a comment saying where the keys came from and when, then the keys:

    # daytona-pin: [ssh.example.org]:2222 from https://example.org/api on 2026-01-31T09:00:00Z
    [ssh.example.org]:2222 ssh-ed25519 AAAA…

Unlike ssh, which skips what it cannot read, this refuses a file with such a line: it was damaged.
"""

import contextlib
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from git_daytona.base import files, paths
from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import BadSetting, HostKeyRefused
from git_daytona.trust import known_hosts
from git_daytona.trust.host_keys import HostKey
from git_daytona.trust.known_hosts import Line, Marker, endpoint_of

FILE_BYTES = 16 * 1024 * 1024
"""Limit of a known_hosts file; the largest in practice have some hundred kilobytes."""
_HEADER = (
    b"# Host keys of Daytona's SSH gateways. 'daytona-pin' shows and changes them;"
    b" your own lines and comments stay.\n"
)
_FORGOTTEN = b"# daytona-pin: nothing is pinned"
_RECORD = re.compile(r"# daytona-pin: (?P<name>\S+) from (?P<source>\S.*) on (?P<when>\S+)")


@dataclass(frozen=True)
class Record:
    """A comment of ours: ``source`` is an API's URL, or a file; ``when`` in ISO 8601, UTC."""

    endpoint: Endpoint
    source: str
    when: str

    @classmethod
    def parse(cls, raw: bytes) -> "Record | None":
        match = _RECORD.fullmatch(raw.decode("utf-8", "replace").rstrip())
        endpoint = endpoint_of(match["name"]) if match else None
        return cls(endpoint, match["source"], match["when"]) if match and endpoint else None


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
    """Read the pin file; no file gives no pins. Raises HostKeyRefused for one that is unusable."""
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
    # memory (known_hosts.parse).
    lines = known_hosts.parse(data if data.endswith(b"\n") else data + b"\n")
    for line in lines:
        if line.problem:
            raise unusable(path, f"line {line.number}: {line.problem}")
    comments = [raw.rstrip() for raw in data.split(b"\n") if raw.startswith(b"#")]
    if not any(line.marker is Marker.NONE for line in lines) and _FORGOTTEN not in comments:
        raise unusable(path, "it holds no key")
    records = (Record.parse(comment) for comment in comments)
    return Pins(data, lines, tuple(record for record in records if record))


def unusable(path: Path, why: str) -> HostKeyRefused:
    return HostKeyRefused(
        f"the pin file '{path}' cannot be used: {why}",
        hint="repair it; or, if you know why it is like that, remove it: the next start then pins"
        " the published keys anew",
    )


def changing(path: Path) -> contextlib.AbstractContextManager[None]:
    """Hold the pin file's lock: a decision is written before another process decides."""
    return files.lock(paths.locks() / "gateway_known_hosts", holds=f"the pin file '{path}'")


def add(path: Path, pins: Pins, endpoint: Endpoint, keys: Iterable[HostKey], source: str) -> None:
    """Append keys for an endpoint, under ``changing``; ``pins`` is what was read under the same
    lock. Raises BadSetting."""
    name, now = endpoint.known_hosts_name, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = f"# daytona-pin: {name} from {source} on {now}\n"
    text += "".join(f"{name} {key.line}\n" for key in keys)
    before = b"".join(raw for raw in io.BytesIO(pins.data) if raw.rstrip() != _FORGOTTEN)
    if before and not before.endswith(b"\n"):
        before += b"\n"
    _write(path, (before or _HEADER) + text.encode(), first=not pins.data)


def forget(path: Path, pins: Pins, endpoint: Endpoint) -> Pins:
    """Drop an endpoint's lines and our comments about it; ``@revoked`` ones stay, as with
    ``ssh-keygen -R``.

    Under ``changing``. A file with nothing left but our own header is removed. Raises as load,
    BadSetting.
    """
    gone = {line.number for line in pins.serving(endpoint) if line.marker is not Marker.REVOKED}
    kept = b"".join(
        raw
        for number, raw in enumerate(io.BytesIO(pins.data), 1)
        if number not in gone and not ((its := Record.parse(raw)) and its.endpoint == endpoint)
    )
    if not any(line.marker is Marker.NONE for line in known_hosts.parse(kept)):
        if not kept.replace(_HEADER, b"").strip():
            path.resolve().unlink(missing_ok=True)
            return Pins()
        kept += (b"" if kept.endswith(b"\n") else b"\n") + _FORGOTTEN + b"\n"
    _write(path, kept, first=False)
    return load(path)


def _write(path: Path, content: bytes, *, first: bool) -> None:
    """Write through a link, so that a pin file kept elsewhere stays there. A first pin never
    replaces a file."""
    if not files.write_whole(path.resolve(), content, replace=not first):
        raise BadSetting(
            f"'{path}' was made by somebody else just now", hint="look at it, then try again"
        )
