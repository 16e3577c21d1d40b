"""What ``GET /config`` says about the SSH gateway. Pure: the decoded answer in, values out; every
field is distrusted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from git_daytona.base.endpoint import Endpoint, endpoint, from_ssh_command
from git_daytona.trust.host_keys import SERVER_TYPES, HostKey, parse_line

MOST_KEYS = 64
"""More than a gateway can have; the rest of a longer list is not looked at."""


@dataclass(frozen=True)
class Published:
    """The gateway's endpoint and its host keys as the API publishes them, in its order and each
    once.

    ``unreadable`` says of each published item that is no host key why not; ``fingerprints`` are
    those published beside the keys; ``legacy`` that the server is an older one that publishes no
    host keys at all.
    """

    endpoint: Endpoint
    keys: tuple[HostKey, ...] = ()
    unreadable: tuple[str, ...] = ()
    fingerprints: tuple[str, ...] = ()
    legacy: bool = False

    @property
    def something(self) -> bool:
        """Whether anything was published, readable or not: if so, it must never end in silent trust
        (CASES 25)."""
        return bool(self.keys or self.unreadable)

    @property
    def contradicted(self) -> tuple[HostKey, ...]:
        """Keys whose fingerprint is not among the published ones, where there are any."""
        return tuple(
            key
            for key in self.keys
            if self.fingerprints and key.fingerprint not in self.fingerprints
        )


def read(config: Mapping[str, Any]) -> Published:
    """Read the answer of ``GET /config``; raises BadAnswer when it names no usable gateway.

    Fields (daytona_api_client DaytonaConfiguration): ``sshGatewayHost``, ``sshGatewayPort``,
    ``sshGatewayHostKeys`` (a list of ``<type> <base64>``), ``sshGatewayHostKeyFingerprints``. Older
    servers have ``sshGatewayCommand`` instead, a template, and ``sshGatewayPublicKey``, which is
    not a host key (FACTS.md) and is ignored.
    """
    keys: dict[HostKey, None] = {}
    unreadable: list[str] = []
    for item in _items(config.get("sshGatewayHostKeys")):
        if item is None or (isinstance(item, str) and not item.strip()):
            continue
        try:
            keys.setdefault(_host_key(item))
        except ValueError as problem:
            unreadable.append(str(problem))
    fingerprints = _items(config.get("sshGatewayHostKeyFingerprints"))
    return Published(
        endpoint=_endpoint(config),
        keys=tuple(keys),
        unreadable=tuple(unreadable),
        fingerprints=tuple(
            each for each in fingerprints if isinstance(each, str) and each.startswith("SHA256:")
        ),
        legacy="sshGatewayHostKeys" not in config,
    )


def _items(value: object) -> list[object]:
    if value is None:
        return []
    if isinstance(value, list):
        return value[:MOST_KEYS]
    # one text of several lines: not what the API documents, but plain enough
    if isinstance(value, str):
        return list(value.splitlines()[:MOST_KEYS])
    return [value]


def _host_key(item: object) -> HostKey:
    if not isinstance(item, str):
        raise ValueError(f"it is a {type(item).__name__}, not a text")
    key = parse_line(item.strip())
    if key.type not in SERVER_TYPES:
        raise ValueError(f"'{key.type}' is not a type of host key that can be pinned")
    return key


def _endpoint(config: Mapping[str, Any]) -> Endpoint:
    from_command = (
        from_ssh_command(config.get("sshGatewayCommand"))
        if not config.get("sshGatewayHost")
        else None
    )
    if from_command is not None:
        return from_command
    port = config.get("sshGatewayPort")
    return endpoint(config.get("sshGatewayHost"), 22 if port is None else port)
