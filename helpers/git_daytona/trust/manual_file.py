"""The manual known_hosts file (DAYTONA_SSH_KNOWN_HOSTS): checked before anything is minted, never
written."""

from collections.abc import Sequence
from pathlib import Path

from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import BadSetting, HostKeyRefused
from git_daytona.trust import known_hosts
from git_daytona.trust.known_hosts import Line, Marker
from git_daytona.trust.pin_file import read_bounded

_NAME = "DAYTONA_SSH_KNOWN_HOSTS"


def path_of(setting: str) -> Path:
    """The file that the setting names, ``~/`` expanded once. Raises BadSetting, also for a relative
    path: that would let the current repository choose what is trusted."""
    check_path(setting, _NAME)
    path = Path.home() / setting[2:] if setting.startswith("~/") else Path(setting)
    if not path.is_absolute():
        raise BadSetting(
            f"{_NAME} is not an absolute path: '{setting}'", hint="begin it with '/' or '~/'"
        )
    return path


def check_path(text: str, name: str) -> None:
    """Raise BadSetting for a path that ssh_config, which knows no escape for these, cannot hold."""
    if '"' in text or "${" in text or not text.isprintable():
        raise BadSetting(
            f"{name} holds a double quote, '${{' or a control character, which ssh cannot take in a"
            " path",
            hint="rename it",
        )


def load(path: Path) -> tuple[Line, ...]:
    """Read its lines; raises BadSetting if it cannot be read, or has no usable line."""
    instead = f"unset {_NAME} to use the keys that Daytona publishes"
    try:
        lines = known_hosts.parse(read_bounded(path))
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
        raise BadSetting(
            f"{_NAME} names '{path}', which cannot be read: {why}",
            hint=f"correct the path, or {instead}",
        ) from problem
    if not any(line.key for line in lines):
        why = f"line {lines[0].number}: {lines[0].problem}" if lines else "it is empty"
        raise BadSetting(
            f"{_NAME} names '{path}', which holds no host key: {why}",
            hint=f"put the gateway's key into it, or {instead}",
        )
    return lines


def check(path: Path, lines: Sequence[Line], endpoint: Endpoint) -> tuple[Line, ...]:
    """The lines for an endpoint; raises HostKeyRefused if ssh could only refuse."""
    name = endpoint.known_hosts_name
    mine = known_hosts.serving(lines, name)
    if any(line.marker is not Marker.REVOKED for line in mine):
        return mine
    why = bare_host(lines, endpoint)
    for line in lines:
        if line.problem and known_hosts.names_match(line.hosts, name):
            why = f"; line {line.number} is for it, but ssh skips it: {line.problem}"
            break
    raise HostKeyRefused(
        f"'{path}' has no host key for '{name}'{why}",
        hint=f"add a line '{name} <type> <base64>', for the key that you trust",
    )


def bare_host(lines: Sequence[Line], endpoint: Endpoint) -> str:
    """A clause about the first line that names the host without the port: ssh would take it, this
    suite does not. Empty if there is none."""
    found = known_hosts.serving(lines, endpoint.host) if endpoint.port != 22 else ()
    if not found:
        return ""
    return (
        f"; line {found[0].number} is for '{endpoint.host}' on port 22 and does not serve port"
        f" {endpoint.port}"
    )
