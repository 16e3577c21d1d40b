"""A Daytona account: the key, ``/config``, SSH tokens, and how the API is asked.

Paths, queries and fields are those of Daytona's OpenAPI description
(apps/api in github.com/daytonaio/daytona); answers are read by hand, field by field.
"""

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from git_daytona.api.failures import from_status, said, senseless
from git_daytona.base.endpoint import Endpoint, from_ssh_command
from git_daytona.base.errors import BadAnswer, NotFound
from git_daytona.base.secret import Secret, printable
from git_daytona.settings.settings import Settings

if TYPE_CHECKING:
    from git_daytona.api.http import Answer, Client

REQUEST_SECONDS = 30.0
"""Limit of one API call that does not itself wait for something."""
CONFIG_BYTES = 1024 * 1024
LABEL_CHARACTERS, LABELS = 200, 100

# A token becomes a `User` line of ssh_config and a user name on the wire: nothing that either could
# take for syntax. Daytona's are letters and digits.
_TOKEN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.~+=-]{7,511}")
_SANDBOX_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True)
class SshAccess:
    """A minted token and the gateway that takes it (None: the default one)."""

    token: Secret
    endpoint: Endpoint | None
    expires_at: datetime


@dataclass(frozen=True)
class KeyInfo:
    """The API key in use as the API describes it, and when it answered by its own clock."""

    name: str
    permissions: tuple[str, ...]
    """Empty where it does not say."""
    expires_at: datetime | None
    answered_at: datetime | None
    organization_id: str
    """Empty where it does not say."""


def _moment(text: object, read: Callable[[str], datetime]) -> datetime | None:
    """A moment that somebody sent, with its zone; None for anything else."""
    try:
        found = read(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


def _label(value: object) -> str:
    """A name that somebody sent, in one line, cut to a length that a person can read."""
    return printable(" ".join(str(value or "").split()))[:LABEL_CHARACTERS]


def check_sandbox_id(text: str) -> str:
    """Return a sandbox id that fits a URL's path; raises NotFound for what cannot be one."""
    if not _SANDBOX_ID.fullmatch(text):
        raise NotFound(
            f"'{printable(text)[:80]}' is not a sandbox id",
            hint="'git daytona status' lists the sessions and their sandboxes",
        )
    return text


class Account:
    """One Daytona account. Safe for many threads. Every method raises only GitDaytonaError."""

    request_seconds = REQUEST_SECONDS

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = threading.RLock()
        self._key: Secret | None = None
        self._client: Client | None = None

    def key(self) -> Secret:
        """The API key; the keyring is asked at most once. Raises NoKey, BadSetting."""
        with self._lock:
            if self._key is None:
                self._key, source = self.settings.api_key()
                # for the message of a refusal
                self.settings = replace(self.settings, key_source=source)
            return self._key

    def config(self) -> dict[str, Any]:
        """``GET /config`` as sent; it needs no key."""
        doing = "ask for the configuration"
        answer = self._send(doing, "GET", f"{self.settings.api_url}/config", key=None)
        return self._json(self._checked(answer, doing), doing)

    def key_info(self) -> KeyInfo:
        """What the API knows of the key in use, by one cheap call. Raises NoKey, KeyRefused."""
        doing = "ask about the API key"
        answer = self._ask(doing, "GET", "/api-keys/current")
        found = self._json(answer, doing)
        permissions = found.get("permissions")
        return KeyInfo(
            name=_label(found.get("name")),
            permissions=tuple(map(_label, permissions[:LABELS]))
            if isinstance(permissions, list)
            else (),
            expires_at=_moment(found.get("expiresAt"), datetime.fromisoformat),
            answered_at=_moment(answer.headers.get("Date"), parsedate_to_datetime),
            organization_id=_label(found.get("organizationId")),
        )

    def organization_name(self, organization_id: str) -> str:
        """Its name. Raises Forbidden and KeyRefused also for a good key that may not ask this."""
        doing = "ask about the organisation"
        if not _SANDBOX_ID.fullmatch(organization_id):
            raise BadAnswer(
                f"could not {doing}: its id makes no sense", hint="check DAYTONA_API_URL"
            )
        answer = self._ask(doing, "GET", f"/organizations/{organization_id}")
        return _label(self._json(answer, doing).get("name"))

    def snapshot_state(self, name: str) -> str:
        """The state of a snapshot, ``active`` for one that can be used. Raises NotFound."""
        doing = f"find the snapshot '{name}'"
        answer = self._ask(doing, "GET", f"/snapshots/{quote(name, safe='')}")
        return printable(str(self._json(answer, doing).get("state") or "unknown"))

    def mint(self, sandbox_id: str, minutes: int) -> SshAccess:
        """Mint an SSH token, which ends the sandbox's earlier ones. A lost answer (ApiUnreachable)
        may leave a live token behind."""
        doing = f"mint an SSH token for sandbox '{check_sandbox_id(sandbox_id)}'"
        url = f"{self.settings.api_url}/sandbox/{sandbox_id}/ssh-access"
        answer = self._send(doing, "POST", url, key=self.key(), query={"expiresInMinutes": minutes})
        if answer.status in (404, 405) and not said(answer.body).lower().startswith("sandbox"):
            raise BadAnswer(
                "this server mints no SSH tokens",
                hint="update the Daytona server, or check DAYTONA_API_URL",
            )
        found = self._json(self._checked(answer, doing), doing)
        token, command = found.get("token"), found.get("sshCommand")
        expires_at = _moment(found.get("expiresAt"), datetime.fromisoformat)
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise BadAnswer(
                "the Daytona API minted a malformed token; it was not used",
                hint="try again, and report it to Daytona",
            )
        if not isinstance(command, str) or expires_at is None:
            raise senseless(doing)
        return SshAccess(Secret(token), from_ssh_command(command), expires_at)

    def revoke(self, sandbox_id: str, token: Secret | None) -> None:
        """Revoke one token, or with None all of the sandbox. An unknown token or sandbox (404) is
        fine: it opens nothing."""
        doing = "revoke an SSH token"
        url = f"{self.settings.api_url}/sandbox/{check_sandbox_id(sandbox_id)}/ssh-access"
        if token is not None and not token.reveal():
            raise BadAnswer(
                "refusing to revoke an empty token: it would revoke all", hint="report this"
            )
        answer = self._send(
            f"{doing} of sandbox '{sandbox_id}'",
            "DELETE",
            url,
            key=self.key(),
            query=None if token is None else {"token": token.reveal()},
        )
        if answer.status == 404:
            return
        # without the server's words, which may repeat the token
        self._checked(replace(answer, body=b""), doing)
        # A page of some proxy with status 200 has revoked nothing.
        body = answer.body.strip()
        if body and not body.startswith((b"{", b"[", b"true", b"null")):
            raise BadAnswer(
                "could not revoke an SSH token: the answer makes no sense",
                hint="check DAYTONA_API_URL",
            )

    # -- inside ------------------------------------------------------------------------------------

    def _ask(self, doing: str, method: str, path: str, **request: Any) -> "Answer":
        """Ask the API, with the key; raises the error that an answer with another status than 2xx
        deserves. ``request`` as for Client.request."""
        answer = self._send(
            doing, method, f"{self.settings.api_url}{path}", key=self.key(), **request
        )
        return self._checked(answer, doing)

    def _send(
        self, doing: str, method: str, url: str, *, seconds: float | None = None, **request: Any
    ) -> "Answer":
        return self._http().request(
            doing, method, url, seconds=seconds or self.request_seconds, **request
        )

    def _http(self) -> "Client":
        # urllib3 is not loaded by what asks nothing
        from git_daytona.api.http import Client

        with self._lock:
            self._client = self._client or Client(self.settings.api_url)
            return self._client

    def _checked(self, answer: "Answer", doing: str) -> "Answer":
        if not 200 <= answer.status < 300:
            text = said(answer.body[:CONFIG_BYTES])
            raise from_status(answer.status, text, doing, self.settings, answer.headers)
        return answer

    def _json(self, answer: "Answer", doing: str, *, limit: int = CONFIG_BYTES) -> dict[str, Any]:
        """The object that an answer of at most ``limit`` bytes holds. Raises BadAnswer."""
        try:
            found = json.loads(answer.body) if len(answer.body) <= limit else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise BadAnswer(
                f"could not {doing}: {self.settings.api_url} did not answer with JSON",
                hint="check DAYTONA_API_URL: it must be the API's base URL",
            )
        return found
