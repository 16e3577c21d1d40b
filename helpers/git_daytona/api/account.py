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

from git_daytona.api.failures import NO_SANDBOX, from_status, said, senseless
from git_daytona.base.endpoint import Endpoint, from_ssh_command
from git_daytona.base.errors import BadAnswer, NotFound
from git_daytona.base.secret import Secret, one_line
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
    """The API key in use as the API describes it, and when it answered by its own clock. Texts are
    empty and moments None where it does not say."""

    name: str
    permissions: tuple[str, ...]
    expires_at: datetime | None
    answered_at: datetime | None
    organization_id: str

    @property
    def lacks(self) -> str:
        """The permissions that it lacks of those that sessions need; empty for none."""
        needed = ("write:sandboxes", "delete:sandboxes") if self.permissions else ()
        return " and ".join(name for name in needed if name not in self.permissions)


def moment(text: object, read: Callable[[str], datetime]) -> datetime | None:
    """Read a moment that somebody sent, with its zone; None for anything else."""
    try:
        found = read(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


def label(value: object) -> str:
    """Return a name that somebody sent in one line, cut to a length that a person can read."""
    return one_line(str(value or ""))[:LABEL_CHARACTERS]


def check_sandbox_id(text: str) -> str:
    """Return a sandbox id that fits a URL's path; raises NotFound for what cannot be one."""
    if not _SANDBOX_ID.fullmatch(text):
        hint = "'git daytona status' lists the sessions and their sandboxes"
        raise NotFound(f"'{one_line(text)[:80]}' is not a sandbox id", hint=hint)
    return text


def path_of(sandbox_id: str, more: str = "") -> str:
    """Make a sandbox's path in the API. Raises NotFound for what cannot be an id."""
    return f"/sandbox/{check_sandbox_id(sandbox_id)}{more}"


class Account:
    """One Daytona account. Safe for many threads. Every method raises only GitDaytonaError."""

    request_seconds = REQUEST_SECONDS

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = threading.RLock()
        self._key: Secret | None = None
        self._client: Client | None = None

    def key(self) -> Secret:
        """Return the API key; the keyring is asked at most once. Raises NoKey, BadSetting."""
        with self._lock:
            if self._key is None:
                self._key, source = self.settings.api_key()
                # for the message of a refusal
                self.settings = replace(self.settings, key_source=source)
            return self._key

    def config(self) -> dict[str, Any]:
        """Ask for ``/config`` as it is; that needs no key."""
        answer = self._ask("ask for the configuration", "GET", "/config", anonymous=True)
        return self._object(answer)

    def key_info(self) -> KeyInfo:
        """Ask what the API knows of the key in use. Raises NoKey, KeyRefused."""
        answer = self._ask("ask about the API key", "GET", "/api-keys/current")
        found = self._object(answer)
        permissions = found.get("permissions")
        return KeyInfo(
            label(found.get("name")),
            tuple(map(label, permissions[:LABELS])) if isinstance(permissions, list) else (),
            moment(found.get("expiresAt"), datetime.fromisoformat),
            moment(answer.headers.get("Date"), parsedate_to_datetime),
            label(found.get("organizationId")),
        )

    def organization_name(self, organization_id: str) -> str:
        """Ask for its name. Raises Forbidden and KeyRefused also for a good key that may not."""
        doing = "ask about the organisation"
        if not _SANDBOX_ID.fullmatch(organization_id):
            raise senseless(doing)
        answer = self._ask(doing, "GET", f"/organizations/{organization_id}")
        return label(self._object(answer).get("name"))

    def snapshot_state(self, name: str) -> str:
        """Ask for a snapshot's state, ``active`` if it can be used. Raises NotFound."""
        path = f"/snapshots/{quote(name, safe='')}"
        answer = self._ask(f"find the snapshot '{name}'", "GET", path)
        return one_line(str(self._object(answer).get("state") or "unknown"))

    def mint(self, sandbox_id: str, minutes: int) -> SshAccess:
        """Mint an SSH token, which ends the sandbox's earlier ones. A lost answer (ApiUnreachable)
        may leave a live token behind."""
        doing = "mint an SSH token for the sandbox"
        path = path_of(sandbox_id, "/ssh-access")
        answer = self._send(doing, "POST", path, query={"expiresInMinutes": minutes})
        if answer.status in (404, 405) and not NO_SANDBOX.match(said(answer.body)):
            hint = "update the Daytona server, or check DAYTONA_API_URL"
            raise BadAnswer("this server mints no SSH tokens", hint=hint)
        found = self._object(self._checked(answer))
        token, command = found.get("token"), found.get("sshCommand")
        expires_at = moment(found.get("expiresAt"), datetime.fromisoformat)
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise BadAnswer(
                "the Daytona API returned an invalid SSH token; it was not used",
                hint="try again, and report it to Daytona",
            )
        if not isinstance(command, str) or expires_at is None:
            raise senseless(doing)
        return SshAccess(Secret(token), from_ssh_command(command), expires_at)

    def revoke(self, sandbox_id: str, token: Secret | None) -> None:
        """Revoke one token, or with None all of the sandbox. An unknown token or sandbox (404) is
        fine: it opens nothing."""
        doing = "revoke an SSH token of the sandbox"
        if token is not None and not token.reveal():
            raise BadAnswer(
                "refusing to revoke an empty token: it would revoke all", hint="report this"
            )
        answer = self._send(
            doing,
            "DELETE",
            path_of(sandbox_id, "/ssh-access"),
            query={} if token is None else {"token": token.reveal()},  # in no frame of ours
        )
        if answer.status == 404:
            return
        # without the server's words, which may repeat the token
        self._checked(replace(answer, body=b""))
        # A page of some proxy with status 200 has revoked nothing.
        body = answer.body.strip()
        if body and not body.startswith((b"{", b"[", b"true", b"null")):
            raise senseless(doing)

    # -- inside ------------------------------------------------------------------------------------

    def _ask(self, doing: str, method: str, path: str, **request: Any) -> "Answer":
        """Ask as ``_send`` does, and raise the error of any status but 2xx."""
        return self._checked(self._send(doing, method, path, **request))

    def _send(
        self,
        doing: str,
        method: str,
        path: str,
        *,
        base: str | None = None,
        anonymous: bool = False,
        seconds: float | None = None,
        **request: Any,
    ) -> "Answer":
        """Ask the API, or what is at ``base``. ``request`` as for Client.request."""
        return self._http().request(
            doing,
            method,
            f"{base or self.settings.api_url}{path}",
            key=None if anonymous else self.key(),
            seconds=seconds or self.request_seconds,
            **request,
        )

    def _http(self) -> "Client":
        # urllib3 is not loaded by what asks nothing
        from git_daytona.api.http import Client

        with self._lock:
            self._client = self._client or Client(self.settings.api_url)
            return self._client

    def _checked(self, answer: "Answer", settings: Settings | None = None) -> "Answer":
        if 200 <= answer.status < 300:
            return answer
        text = said(answer.body[:CONFIG_BYTES])
        settings = settings or self.settings
        raise from_status(answer.status, text, answer.doing, settings, answer.headers)

    def _object(self, answer: "Answer", *, most: int | None = CONFIG_BYTES) -> dict[str, Any]:
        """Read the object in an answer of at most ``most`` bytes (None: any). Raises BadAnswer."""
        try:
            fits = most is None or len(answer.body) <= most
            found = json.loads(answer.body) if fits else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise BadAnswer(
                f"could not {answer.doing}: {self.settings.api_url} did not answer with JSON",
                hint="check DAYTONA_API_URL: it must be the API's base URL",
            )
        return found
