"""The manual known_hosts file (DAYTONA_SSH_KNOWN_HOSTS): read, checked before anything is minted,
never written."""

from collections.abc import Sequence
from pathlib import Path

from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import BadSetting, HostKeyRefused
from git_daytona.trust import known_hosts
from git_daytona.trust.known_hosts import Line, Marker
from git_daytona.trust.pin_file import read_bounded

_NAME = "DAYTONA_SSH_KNOWN_HOSTS"


def path_of(setting: str) -> Path:
    """The file that the setting names, ``~/`` expanded once. Raises BadSetting.

    A relative path would let the repository that one stands in choose what is trusted.
    """
    check_path(setting, _NAME)
    path = Path.home() / setting[2:] if setting.startswith("~/") else Path(setting)
    if not path.is_absolute():
        raise BadSetting(
            f"{_NAME} is not an absolute path: '{setting}'", hint="begin it with '/' or '~/'"
        )
    return path


def check_path(text: str, name: str) -> None:
    """Raise BadSetting, naming the setting, for a path that cannot be written in ssh_config, which
    knows no escape for these."""
    if '"' in text or "${" in text or not text.isprintable():
        raise BadSetting(
            f"{name} holds a double quote, '${{' or a control character, which ssh cannot take in a path",
            hint="rename it",
        )


def load(path: Path) -> tuple[Line, ...]:
    """Its lines; raises BadSetting when it is missing, cannot be read, or has no usable line."""
    try:
        lines = known_hosts.parse(read_bounded(path))
    except OSError as problem:
        raise BadSetting(
            f"{_NAME} names '{path}', which cannot be read: {(problem.strerror or str(problem)).lower()}",
            hint=f"correct the path, or unset {_NAME} to use the keys that Daytona publishes",
        ) from problem
    if not any(line.key for line in lines):
        bad = next((line for line in lines), None)
        why = f"line {bad.number}: {bad.problem}" if bad else "it is empty"
        raise BadSetting(
            f"{_NAME} names '{path}', which holds no host key: {why}",
            hint=f"put the gateway's key into it, or unset {_NAME} to use the keys that Daytona publishes",
        )
    return lines


def check(path: Path, lines: Sequence[Line], endpoint: Endpoint) -> tuple[Line, ...]:
    """The lines for an endpoint; raises HostKeyRefused when there is none, so that ssh could only
    refuse."""
    name = endpoint.known_hosts_name
    mine = known_hosts.serving(lines, name)
    if any(line.marker is not Marker.REVOKED for line in mine):
        return mine
    why = bare_host(lines, endpoint)
    bad = [line for line in lines if line.problem and known_hosts.names_match(line.hosts, name)]
    if bad:
        why = f"; line {bad[0].number} is for it, but ssh skips it: {bad[0].problem}"
    raise HostKeyRefused(
        f"'{path}' has no host key for '{name}'{why}",
        hint=f"add a line '{name} <type> <base64>', for the key that you trust",
    )


def bare_host(lines: Sequence[Line], endpoint: Endpoint) -> str:
    """A clause that says so where lines name the host without the port: ssh would take them, this
    suite does not."""
    if endpoint.port == 22:
        return ""
    numbers = [line.number for line in known_hosts.serving(lines, endpoint.host)]
    if not numbers:
        return ""
    return f"; line {numbers[0]} is for '{endpoint.host}' on port 22 and does not serve port {endpoint.port}"
