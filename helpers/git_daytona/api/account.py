"""A Daytona account through the REST client that the official distribution generates: the key,
``/config``, tokens.

These clients load in a quarter of the time of the SDK above them, in half its memory, and read
nothing from the working directory's ``.env``.
"""

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from git_daytona.api import limits
from git_daytona.api.failures import from_status, said, translate
from git_daytona.base.endpoint import Endpoint, from_ssh_command
from git_daytona.base.errors import BadAnswer, GitDaytonaError, NotFound
from git_daytona.base.secret import Secret, printable
from git_daytona.settings.settings import Settings

REQUEST_SECONDS = 30.0
"""Limit of one API call that does not itself wait for something."""
CONFIG_BYTES = 1024 * 1024
LABEL_CHARACTERS, LABELS = 200, 100
CONNECTIONS = 64

# What a token may look like: it becomes a `User` line of ssh_config and a user name on the wire, so
# nothing that either could take for syntax. Daytona's are letters and digits.
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
    """The API key in use as the API describes it (no permissions: it does not say), and when it
    answered by its own clock."""

    name: str
    permissions: tuple[str, ...]
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
    """A sandbox id as a path segment of a URL; raises NotFound for what cannot be one."""
    if not _SANDBOX_ID.fullmatch(text):
        raise NotFound(
            f"'{printable(text)[:80]}' is not a sandbox id",
            hint="'git daytona status' lists the sessions and their sandboxes",
        )
    return text


def no_retries() -> Any:
    """No retries below us: leases and transfers decide what is repeated. No redirects: the key goes
    nowhere else."""
    import urllib3

    return urllib3.Retry(
        total=0, redirect=0, raise_on_redirect=False, respect_retry_after_header=False
    )


class Account:
    """One Daytona account. Safe for many threads. Every method raises only GitDaytonaError."""

    request_seconds = REQUEST_SECONDS

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = threading.RLock()
        self._key: Secret | None = None
        self._rest: Any = None

    def key(self) -> Secret:
        """The API key; the keyring is asked at most once. Raises NoKey, BadSetting."""
        with self._lock:
            if self._key is None:
                self._key, source = self.settings.api_key()
                # for who refuses it to name
                self.settings = replace(self.settings, key_source=source)
            return self._key

    def config(self) -> dict[str, Any]:
        """``GET /config`` as sent: it needs no key. Raises ApiUnreachable, ServerError,
        BadAnswer."""
        with self._translated("ask for the configuration"):
            import daytona_api_client as rest

            client = self._rest_client(keyless=True)
            response = rest.ConfigApi(client).config_controller_get_config_without_preload_content(
                _request_timeout=self.request_seconds
            )
        return self._json(response, "ask for the configuration")[0]

    def key_info(self) -> KeyInfo:
        """What the API knows of the key in use, by one cheap call that needs it. Raises NoKey,
        KeyRefused."""
        doing = "ask about the API key"
        with self._translated(doing):
            import daytona_api_client as rest

            response = rest.ApiKeysApi(
                self._rest_client()
            ).get_current_api_key_without_preload_content(_request_timeout=self.request_seconds)
        answer, sent = self._json(response, doing)
        permissions = answer.get("permissions")
        return KeyInfo(
            name=_label(answer.get("name")),
            permissions=tuple(map(_label, permissions[:LABELS]))
            if isinstance(permissions, list)
            else (),
            expires_at=_moment(answer.get("expiresAt"), datetime.fromisoformat),
            answered_at=_moment(sent, parsedate_to_datetime),
            organization_id=_label(answer.get("organizationId")),
        )

    def organization_name(self, organization_id: str) -> str:
        """Its name. Raises, among others, Forbidden and KeyRefused for a key that is fine but may
        not ask this."""
        doing = "ask about the organisation"
        if not _SANDBOX_ID.fullmatch(organization_id):
            raise BadAnswer(
                f"could not {doing}: its id makes no sense", hint="check DAYTONA_API_URL"
            )
        with self._translated(doing):
            import daytona_api_client as rest

            response = rest.OrganizationsApi(
                self._rest_client()
            ).get_organization_without_preload_content(
                organization_id, _request_timeout=self.request_seconds
            )
        return _label(self._json(response, doing)[0].get("name"))

    def snapshot_state(self, name: str) -> str:
        """The state of a snapshot, ``active`` for one that can be used. Raises NotFound."""
        doing = f"find the snapshot '{name}'"
        with self._translated(doing):
            import daytona_api_client as rest

            response = rest.SnapshotsApi(self._rest_client()).get_snapshot_without_preload_content(
                name, _request_timeout=self.request_seconds
            )
        return printable(str(self._json(response, doing)[0].get("state") or "unknown"))

    def mint(self, sandbox_id: str, minutes: int) -> SshAccess:
        """Mint an SSH token, which ends the sandbox's earlier ones. A lost answer (ApiUnreachable)
        may leave a live token behind."""
        check_sandbox_id(sandbox_id)
        with self._translated("mint an SSH token for", sandbox_id):
            answer = self._sandbox_api().create_ssh_access(
                sandbox_id, expires_in_minutes=minutes, _request_timeout=self.request_seconds
            )
        token = getattr(answer, "token", None)
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise BadAnswer(
                "the Daytona API minted a malformed token; it was not used",
                hint="try again, and report it to Daytona",
            )
        return SshAccess(Secret(token), from_ssh_command(answer.ssh_command), answer.expires_at)

    def revoke(self, sandbox_id: str, token: Secret | None) -> None:
        """Revoke one token, or with None all of the sandbox. An unknown token or sandbox (404) is
        fine: it opens nothing."""
        check_sandbox_id(sandbox_id)
        if token is not None and not token.reveal():
            raise BadAnswer(
                "refusing to revoke an empty token: it would revoke all", hint="report this"
            )
        try:
            with self._translated("revoke an SSH token of", sandbox_id):
                response = self._sandbox_api().revoke_ssh_access_without_preload_content(
                    sandbox_id,
                    token=None if token is None else token.reveal(),
                    _request_timeout=self.request_seconds,
                )
                body, status = response.read(CONFIG_BYTES), response.status
            if not 200 <= status < 300:
                raise from_status(
                    status, "", "revoke an SSH token", self.settings, dict(response.headers)
                )
            # A page of some proxy with status 200 has revoked nothing.
            if body.strip() and not body.lstrip().startswith((b"{", b"[", b"true", b"null")):
                raise BadAnswer(
                    "could not revoke an SSH token: the answer makes no sense",
                    hint="check DAYTONA_API_URL",
                )
        except NotFound:
            pass

    # -- inside ------------------------------------------------------------------------------------

    def _checked(self, response: Any, doing: str, *, limit: int = CONFIG_BYTES) -> bytes:
        """The body of an answer that says yes, at most ``limit`` bytes and one; raises the error
        that any other deserves."""
        with self._translated(doing):
            body: bytes = response.read(limit + 1)
        if not 200 <= response.status < 300:
            raise from_status(response.status, said(body), doing, self.settings, response.headers)
        return body

    def _json(
        self, response: Any, doing: str, *, limit: int = CONFIG_BYTES
    ) -> tuple[dict[str, Any], str | None]:
        """The object that an answer holds, and its Date. Read by hand: the clients' models refuse a
        whole answer for one odd field, and would read a body of any size."""
        return self._parsed(
            self._checked(response, doing, limit=limit), doing, limit
        ), response.headers.get("Date")

    def _parsed(self, body: bytes, doing: str, limit: int) -> dict[str, Any]:
        """The object in a body that was read up to one byte beyond the limit. Raises BadAnswer."""
        try:
            answer = json.loads(body) if len(body) <= limit else None
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise BadAnswer(
                f"could not {doing}: {self.settings.api_url} did not answer with JSON",
                hint="check DAYTONA_API_URL: it must be the API's base URL",
            )
        return answer

    def _rest_client(self, *, keyless: bool = False) -> Any:
        import daytona_api_client as rest

        with self._lock:
            if keyless or self._rest is None:
                configuration = rest.Configuration(host=self.settings.api_url)
                configuration.retries = no_retries()
                # As many as sandboxes may be at work at once: what does not fit is closed after
                # each call.
                configuration.connection_pool_maxsize = CONNECTIONS
                client = rest.ApiClient(configuration)
                limits.bind(client)
                if keyless:
                    return client
                client.default_headers["Authorization"] = f"Bearer {self.key().reveal()}"
                self._rest = client
            return self._rest

    def _sandbox_api(self) -> Any:
        import daytona_api_client as rest

        return rest.SandboxApi(self._rest_client())

    @contextlib.contextmanager
    def _translated(self, doing: str, subject: str = "") -> Iterator[None]:
        """Turn whatever the clients and the libraries below them raise into one of our errors.
        Their texts may hold URLs with tokens: they go, redacted, into the details only, and the
        chain is cut."""
        try:
            yield
        # bounded.py's went through frames of urllib3 that hold the key
        except GitDaytonaError as problem:
            raise problem.with_traceback(None) from None
        except Exception as problem:  # noqa: BLE001 — the clients let through what urllib3 and pydantic raise
            raise translate(
                problem, f"{doing} sandbox '{subject}'" if subject else doing, self.settings
            ) from None
