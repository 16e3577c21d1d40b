"""Whom the proxy lets through to a sandbox's toolbox, and what it remembers of that.

The proxy asks the API whether a key may see a sandbox, and keeps the answer for a while. So it
cannot tell a wrong key from a sandbox that does not exist, and for some time lets through to
sandboxes that have gone.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable

from aiohttp import web

from git_daytona.local.core.model import ApiError
from git_daytona.local.core.registry import Sandboxes, Timings

VALID, INVALID = 2.0, 5 / 60
"""Minutes that an answer is kept."""
KEPT = 10_000
"""Answers that are kept at all: callers choose what they ask for."""
SIGNED_ROUTES = {("GET", "files/download"), ("POST", "files/upload-v2")}
"""Calls that a signed link opens, by method and path below the sandbox."""


class Admission:
    """The proxy's knowledge of keys and signed links."""

    def __init__(
        self,
        sandboxes: Sandboxes,
        timings: Timings,
        is_key: Callable[[str], bool],
        *,
        signed_links: bool,
    ):
        self._sandboxes = sandboxes
        self._timings = timings
        self._is_key = is_key
        self._signed_links = signed_links
        self._answers: dict[tuple[str, bytes], tuple[float, bool]] = {}

    def admit(self, request: web.Request, key: str) -> None:
        """Let the call through, or raise ApiError(401)."""
        named = request.match_info.get("sandbox", "")
        if not (self._is_signed(request, named) or self._is_valid(named, key)):
            raise ApiError(401, "authentication failed: Bearer token is invalid")

    def _is_valid(self, named: str, key: str) -> bool:
        now = self._timings.clock()
        # Hashed: no secret of a caller is kept in memory.
        asked = (named, hashlib.sha256(key.encode("utf-8", "replace")).digest())
        until, valid = self._answers.get(asked, (now, False))
        if until <= now:
            valid = self._is_key(key) and self._exists(named)
            if len(self._answers) >= KEPT:
                self._answers = {
                    one: answer for one, answer in self._answers.items() if answer[0] > now
                }
            if len(self._answers) < KEPT:
                self._answers[asked] = (
                    now + (VALID if valid else INVALID) * self._timings.minute,
                    valid,
                )
        return valid

    def _is_signed(self, request: web.Request, named: str) -> bool:
        path = request.rel_url.path.split("/", 3)[-1]
        given = request.query.get("signature")
        if not self._signed_links or given is None or (request.method, path) not in SIGNED_ROUTES:
            return False
        try:
            record = self._sandboxes.record(named)
            expires = int(request.query.get("expires", ""))
        except (ApiError, ValueError):
            return False
        wanted = signature(
            record.signing_key, request.method, request.query.get("path", ""), expires
        )
        return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode()) and (
            expires == 0 or self._timings.clock() < expires
        )

    def _exists(self, named: str) -> bool:
        try:
            self._sandboxes.record(named)
        except ApiError:
            return False
        return True


def signature(key: str, method: str, path: str, expires: int) -> str:
    """What a link to a file is signed with, as the SDKs do it."""
    digest = hmac.new(
        key.encode(), f"v1:files:{method}:{path}:{expires}".encode(), hashlib.sha256
    ).digest()
    return "v1_" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
