"""The known_hosts files that are trusted: the pin file, which this suite writes, and the manual one
(DAYTONA_SSH_KNOWN_HOSTS), which it only reads.

People may edit the pin file, too; their lines stay. Each pin is a comment saying where the keys
came from and when, then the keys:

    # daytona-pin: [ssh.example.org]:2222 from https://example.org/api on 2026-01-31T09:00:00Z
    [ssh.example.org]:2222 ssh-ed25519 AAAA…

Unlike ssh, which skips what it cannot read, this refuses a pin file with such a line: it was
damaged.
"""

import contextlib
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from git_daytona.base import files, paths
from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import BadSetting, HostKeyRefused
from git_daytona.settings.settings import Settings
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
    """The content of a usable file, or of none (``data`` empty); only pin files have records."""

    data: bytes = b""
    lines: tuple[Line, ...] = ()
    records: tuple[Record, ...] = ()

    def serving(self, endpoint: Endpoint) -> tuple[Line, ...]:
        return known_hosts.serving(self.lines, endpoint.known_hosts_name)

    def pinned_on(self, endpoint: Endpoint) -> str | None:
        """The day of an endpoint's newest pin, in ISO 8601."""
        days = [record.when[:10] for record in self.records if record.endpoint == endpoint]
        return days[-1] if days else None

    def default_endpoint(self, api_url: str, lines: Sequence[Line] = ()) -> Endpoint | None:
        """Where an API's gateway is without the API's word: what was last pinned from it, if that
        is still there; else the only endpoint that the lines (default: its own) name, unless it was
        pinned from another API. None when that leaves none or several."""
        for record in reversed(self.records):
            if record.source == api_url and self.serving(record.endpoint):
                return record.endpoint
        foreign = {record.endpoint for record in self.records if record.source.startswith("http")}
        named = known_hosts.named_endpoints(lines or self.lines)
        return named.pop() if len(named) == 1 and not named & foreign else None


def trusted(settings: Settings) -> tuple[Path | None, Pins]:
    """Read the file whose keys count; None where that is left to the user's ssh. Raises
    HostKeyRefused or BadSetting for one that cannot be used."""
    if settings.ssh_known_hosts:
        path = manual_path(settings.ssh_known_hosts)
        return path, Pins(lines=load_manual(path))
    if settings.auto_pin:
        return paths.pin_file(), load(paths.pin_file())
    return None, Pins()


def read_bounded(path: Path) -> bytes:
    """Read a regular file of at most FILE_BYTES; raises OSError."""
    return files.read_bounded(path, FILE_BYTES)[0]


def check_path(text: str, name: str) -> None:
    """Raise BadSetting for a path that ssh_config, which knows no escape for these, cannot hold."""
    if '"' in text or "${" in text or not text.isprintable():
        raise BadSetting(
            f"{name} holds a double quote, '${{' or a control character, which ssh cannot take in a"
            " path",
            hint="rename it",
        )


# -- the pin file ----------------------------------------------------------------------------------


def load(path: Path) -> Pins:
    """Read the pin file; no file gives no pins. Raises HostKeyRefused for one that is unusable."""
    try:
        data = read_bounded(path)
        lines = _complete(data)
    except (FileNotFoundError, NotADirectoryError):  # the second: writing will say it better
        if not path.is_symlink():
            return Pins()
        why = "it is a link to nothing"
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
    except ValueError as problem:
        why = str(problem)
    else:
        records = map(Record.parse, data.split(b"\n"))
        return Pins(data, lines, tuple(record for record in records if record))
    raise HostKeyRefused(
        f"the pin file '{path}' cannot be used: {why}",
        hint="repair it; or, if you know why it is like that, remove it: the next start then pins"
        " the published keys anew",
    )


def _complete(data: bytes) -> tuple[Line, ...]:
    """Read the lines of a pin file; raises ValueError if a part of it is missing or damaged."""
    if b"\0" in data:
        raise ValueError("it holds NUL bytes")
    # With a newline at its end: half a line must not become a whole one by ssh's reading on in
    # memory (known_hosts.parse).
    lines = known_hosts.parse(data + b"\n")
    for line in lines:
        if line.problem:
            raise ValueError(f"line {line.number}: {line.problem}")
    forgotten = _FORGOTTEN in (raw.rstrip() for raw in data.split(b"\n"))
    if not forgotten and not any(line.marker is Marker.NONE for line in lines):
        raise ValueError("it holds no key")
    return lines


def changing(path: Path) -> contextlib.AbstractContextManager[None]:
    """Hold the pin file's lock: a decision is written before another process decides."""
    return files.lock(paths.locks() / "gateway_known_hosts", holds=f"the pin file '{path}'")


def add(path: Path, pins: Pins, endpoint: Endpoint, keys: Iterable[HostKey], source: str) -> None:
    """Append keys for an endpoint to what was read under this ``changing``. Raises BadSetting."""
    name, now = endpoint.known_hosts_name, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = f"# daytona-pin: {name} from {source} on {now}\n"
    text += "".join(f"{name} {key.line}\n" for key in keys)
    before = b"".join(raw for raw in io.BytesIO(pins.data) if raw.rstrip() != _FORGOTTEN)
    if before and not before.endswith(b"\n"):
        before += b"\n"
    content = (before or _HEADER) + text.encode()
    # through a link, so that a pin file kept elsewhere stays there; a first pin replaces no file
    if not files.write_whole(path.resolve(), content, replace=bool(pins.data)):
        raise BadSetting(
            f"'{path}' was made by somebody else just now", hint="look at it, then try again"
        )


def forget(path: Path, pins: Pins, endpoint: Endpoint) -> Pins:
    """Drop an endpoint's lines and our comments about it, under ``changing``; ``@revoked`` ones
    stay, as with ``ssh-keygen -R``. A file with nothing left but our own header is removed. Raises
    as load, BadSetting."""
    gone = {line.number for line in pins.serving(endpoint) if line.marker is not Marker.REVOKED}
    ours = f"# daytona-pin: {endpoint.known_hosts_name} from ".encode()
    numbered = enumerate(io.BytesIO(pins.data), 1)
    rest = (raw for number, raw in numbered if number not in gone)
    kept = b"".join(raw for raw in rest if not raw.startswith(ours))
    if not kept.replace(_HEADER, b"").strip():
        path.resolve().unlink(missing_ok=True)
        return Pins()
    if not any(line.marker is Marker.NONE for line in known_hosts.parse(kept)):
        kept = kept.removesuffix(b"\n") + b"\n" + _FORGOTTEN + b"\n"
    files.write_whole(path.resolve(), kept)
    return load(path)


# -- the manual file -------------------------------------------------------------------------------


def manual_path(setting: str) -> Path:
    """The file that the setting names, ``~/`` expanded once. Raises BadSetting, also for a relative
    path: that would let the current repository choose what is trusted."""
    check_path(setting, "DAYTONA_SSH_KNOWN_HOSTS")
    path = paths.home() / setting[2:] if setting.startswith("~/") else Path(setting)
    if not path.is_absolute():
        hint = "begin it with '/' or '~/'"
        raise BadSetting(f"DAYTONA_SSH_KNOWN_HOSTS is not an absolute path: '{setting}'", hint=hint)
    return path


def load_manual(path: Path) -> tuple[Line, ...]:
    """Read its lines; raises BadSetting if it cannot be read, or has no usable line."""
    instead = "unset DAYTONA_SSH_KNOWN_HOSTS to use the keys that Daytona publishes"
    try:
        lines = known_hosts.parse(read_bounded(path))
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
        raise BadSetting(
            f"DAYTONA_SSH_KNOWN_HOSTS names '{path}', which cannot be read: {why}",
            hint=f"correct the path, or {instead}",
        ) from problem
    if not any(line.key for line in lines):
        why = f"line {lines[0].number}: {lines[0].problem}" if lines else "it is empty"
        raise BadSetting(
            f"DAYTONA_SSH_KNOWN_HOSTS names '{path}', which holds no host key: {why}",
            hint=f"put the gateway's key into it, or {instead}",
        )
    return lines
