"""SSH access tokens: minted, revoked, expired. They are kept in memory only, as hashes: a restart
of the server ends them all."""

import hashlib
import secrets
import string
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

# As the cloud's: letters and digits only, so that no command line takes a token for an option.
ALPHABET = string.ascii_letters + string.digits
LENGTH = 32


@dataclass(frozen=True)
class Access:
    """One minted token. Times are seconds since the epoch."""

    id: str
    sandbox_id: str
    created_at: float
    expires_at: float
    token: str = field(repr=False)


class Tokens:
    """All tokens of a server; safe to use from any thread. `clock` gives seconds since the
    epoch."""

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._lock = threading.Lock()
        self._live: dict[bytes, tuple[str, float]] = {}
        self.on_mint: Callable[[str], None] = lambda token: None
        """Sees each token as it is minted: for who looks whether one leaked. Nothing here keeps
        them."""

    def mint(self, sandbox_id: str, seconds: float) -> Access:
        """A new token for the sandbox, which ends all its earlier ones."""
        now = self._clock()
        token = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
        with self._lock:
            self._drop(sandbox_id)
            self._live[_hash(token)] = (sandbox_id, now + seconds)
        self.on_mint(token)
        return Access(str(uuid.uuid4()), sandbox_id, now, now + seconds, token)

    def revoke(self, sandbox_id: str, token: str | None = None) -> None:
        """End one token of the sandbox, or all of them. A token that does not exist is no error, as
        in the cloud."""
        with self._lock:
            if token is None:
                self._drop(sandbox_id)
            elif self._live.get(_hash(token), ("", 0.0))[0] == sandbox_id:
                del self._live[_hash(token)]

    def sandbox_of(self, token: str) -> str | None:
        """The id of the sandbox that an unexpired token opens."""
        with self._lock:
            sandbox_id, expires_at = self._live.get(_hash(token), ("", 0.0))
        return sandbox_id if expires_at > self._clock() else None

    def live(self) -> int:
        """How many tokens would be accepted now."""
        now = self._clock()
        with self._lock:
            return sum(expires_at > now for _, expires_at in self._live.values())

    def _drop(self, sandbox_id: str) -> None:
        now = self._clock()
        self._live = {
            key: (owner, expires_at)
            for key, (owner, expires_at) in self._live.items()
            if owner != sandbox_id and expires_at > now
        }


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
