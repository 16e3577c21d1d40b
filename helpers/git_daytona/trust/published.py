"""What ``GET /config`` says about the SSH gateway: distrusted, and asked for once."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from git_daytona.base.endpoint import Endpoint, endpoint, from_ssh_command
from git_daytona.base.errors import GitDaytonaError
from git_daytona.trust.host_keys import SERVER_TYPES, HostKey, parse_line

MOST_KEYS = 64
"""More than a gateway can have; the rest of a longer list is ignored."""
AGAIN_SECONDS = 1.0
"""The API is not asked again sooner than this, however many transfers are refused."""
FAILED_SECONDS = 60.0
"""How long a failure to ask is believed."""


@dataclass(frozen=True)
class Published:
    """The gateway's endpoint and its host keys as the API publishes them, in its order, each once.

    ``unreadable`` says for each published item that is not a host key why not; ``fingerprints`` are
    those published with the keys; ``legacy``: an older server, which publishes no host keys at all.
    """

    endpoint: Endpoint
    keys: tuple[HostKey, ...] = ()
    unreadable: tuple[str, ...] = ()
    fingerprints: tuple[str, ...] = ()
    legacy: bool = False

    @property
    def contradicted(self) -> tuple[HostKey, ...]:
        """Keys whose fingerprint is not among the published ones, where there are any."""
        listed = self.fingerprints
        return tuple(key for key in self.keys if listed and key.fingerprint not in listed)


class PublishedConfig:
    """The answer of ``GET /config``, kept for the process. While one thread asks, others wait."""

    def __init__(
        self, ask: Callable[[], Mapping[str, Any]], clock: Callable[[], float] = time.monotonic
    ):
        self._ask = ask
        self._clock = clock
        self._lock = threading.RLock()
        self._answer: Published | GitDaytonaError | None = None
        self._asked_at = 0.0
        self._renewed_at = float("-inf")

    def answer(self) -> Published | GitDaytonaError:
        """What the API says; or the error of asking, or the one that the answer deserves."""
        with self._lock:
            failed = isinstance(self._answer, GitDaytonaError)
            if self._answer is None or (failed and self._clock() - self._asked_at > FAILED_SECONDS):
                try:
                    self._answer = read(self._ask())
                except GitDaytonaError as problem:
                    self._answer = problem
                self._asked_at = self._clock()
            return self._answer

    def renew(self, *, evidence: bool = False) -> None:
        """Forget an answer that is not fresh, so that the API is asked anew.

        With ``evidence`` that a key has changed even a new answer is not fresh, unless such
        evidence renewed it just now.
        """
        with self._lock:
            now = self._clock()
            last = self._renewed_at if evidence else self._asked_at
            if self._answer is not None and now - last >= AGAIN_SECONDS:
                self._answer = None
                self._renewed_at = now if evidence else self._renewed_at


def read(config: Mapping[str, Any]) -> Published:
    """Read the answer of ``GET /config``; raises BadAnswer when it names no usable gateway.

    Fields (daytona_api_client DaytonaConfiguration): ``sshGatewayHost``, ``sshGatewayPort``,
    ``sshGatewayHostKeys`` (a list of ``<type> <base64>``), ``sshGatewayHostKeyFingerprints``. Older
    servers have ``sshGatewayCommand`` instead, a template, and ``sshGatewayPublicKey``, which is
    not a host key and is ignored.
    """
    host, port = config.get("sshGatewayHost"), config.get("sshGatewayPort")
    found = None if host else from_ssh_command(config.get("sshGatewayCommand"))
    keys: dict[HostKey, None] = {}
    unreadable: list[str] = []
    for item in _items(config.get("sshGatewayHostKeys")):
        try:
            if not isinstance(item, str):
                raise ValueError(f"it is a {type(item).__name__}, not a text")
            key = parse_line(item.strip())
            if key.type not in SERVER_TYPES:
                raise ValueError(f"'{key.type}' is not a type of host key that can be pinned")
            keys.setdefault(key)
        except ValueError as problem:
            unreadable.append(str(problem))
    listed = map(str, _items(config.get("sshGatewayHostKeyFingerprints")))
    return Published(
        endpoint=found or endpoint(host, 22 if port is None else port),
        keys=tuple(keys),
        unreadable=tuple(unreadable),
        fingerprints=tuple(each for each in listed if each.startswith("SHA256:")),
        legacy="sshGatewayHostKeys" not in config,
    )


def _items(value: object) -> list[object]:
    """The items of a list that are not empty; a text counts as a list of its lines."""
    items = value.splitlines() if isinstance(value, str) else value
    several = items[:MOST_KEYS] if isinstance(items, list) else [items]
    return [each for each in several if each is not None and str(each).strip()]
