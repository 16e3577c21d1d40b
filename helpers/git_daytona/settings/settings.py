"""Settings: their names, where each may come from, and what they are here and now."""

import io
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from git_daytona.base import files
from git_daytona.base.errors import BadSetting, NoKey
from git_daytona.base.secret import Secret, key_problem
from git_daytona.settings import cli_profile, keystore

DEFAULT_API_URL = "https://app.daytona.io/api"
KEYS_PAGE = "https://app.daytona.io/dashboard/keys"
FROM_DOTENV = ("DAYTONA_API_KEY", "DAYTONA_SNAPSHOT")
NEVER_FROM_DOTENV = (
    "DAYTONA_API_URL",
    "DAYTONA_TARGET",
    "DAYTONA_SSH_BINARY",
    "DAYTONA_SSH_KNOWN_HOSTS",
    "DAYTONA_SSH_AUTO_PIN",
)
"""A repository may come from a stranger: it may not choose where the key goes, which program runs,
or what is trusted."""
DOTENV_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Value:
    """A setting's value and its source, as messages name it."""

    value: str
    source: str


@dataclass(frozen=True)
class Settings:
    """What was found; nothing of it is exported to child processes."""

    api_url: str
    target: str | None
    snapshot: str | None
    ssh_binary: str | None
    ssh_known_hosts: str | None
    auto_pin: bool
    key: Secret | None
    """From the environment or .env; api_key() asks the keyring and the Daytona CLI when this is
    None."""
    key_source: str | None
    warnings: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    """Name → where it came from, as messages name that; those that have their default are not
    here."""

    def api_key(self) -> tuple[Secret, str]:
        """The API key and where it came from. Raises NoKey, or BadSetting for a keyring that cannot
        be asked."""
        if self.key is not None:
            return self.key, self.key_source or "the environment"
        if stored := keystore.find(self.api_url):
            source = f"the OS keyring ({stored.place})"
            _check_key(stored.key.reveal(), source, "store it anew: daytona-token login")
            return stored.key, source
        profile = cli_profile.look(self.api_url)
        if profile and profile.key:
            return profile.key, profile.source
        raise NoKey(
            f"there is no API key for {self.api_url}",
            hint=f"store one with 'daytona-token login', or set DAYTONA_API_KEY ({KEYS_PAGE}); "
            "without an account:"
            " daytona-local exec -- "
            f"COMMAND{f'; {profile.remark}' if profile and profile.remark else ''}",
        )


def _check_key(text: str, source: str, hint: str) -> None:
    if problem := key_problem(text):
        raise BadSetting(f"the API key in {source} {problem}", hint=hint)


def load(project: Path | None, environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings for a project root (None: no project, environment only). Raises
    BadSetting."""
    env = os.environ if environ is None else environ
    warnings: list[str] = []
    dotenv = read_dotenv(project, warnings.append) if project is not None else {}
    ignored = [name for name in NEVER_FROM_DOTENV if dotenv.get(name, "").strip()]
    if ignored:
        warnings.append(
            f"{', '.join(ignored)} in '.env' ignored: a repository may not choose this; set "
            "it in the environment instead"
        )

    def first(name: str) -> Value | None:
        if value := env.get(name, "").strip():
            return Value(value, f"the environment variable {name}")
        if name in FROM_DOTENV and (value := dotenv.get(name, "").strip()):
            return Value(value, f"'.env' of '{project}'")
        return None

    def plain(name: str) -> str | None:
        found = first(name)
        return found.value if found else None

    key = first("DAYTONA_API_KEY")
    if key:
        _check_key(key.value, key.source, "set DAYTONA_API_KEY to the key alone, in one line")
    return Settings(
        api_url=check_api_url(plain("DAYTONA_API_URL") or DEFAULT_API_URL),
        target=plain("DAYTONA_TARGET"),
        snapshot=plain("DAYTONA_SNAPSHOT"),
        ssh_binary=plain("DAYTONA_SSH_BINARY"),
        ssh_known_hosts=plain("DAYTONA_SSH_KNOWN_HOSTS"),
        auto_pin=(plain("DAYTONA_SSH_AUTO_PIN") or "true").lower()
        not in {"false", "0", "no", "off"},
        key=Secret(key.value) if key else None,
        key_source=key.source if key else None,
        warnings=tuple(warnings),
        sources={
            name: value.source
            for name in (*FROM_DOTENV, *NEVER_FROM_DOTENV)
            if (value := first(name))
        },
    )


def check_api_url(text: str) -> str:
    """The API's base URL without a trailing slash; raises BadSetting when it is none."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        usable = (
            usable
            and not parts.query
            and not parts.fragment
            and text.isprintable()
            and " " not in text
        )
    except ValueError:
        usable = False
    if not usable:
        raise BadSetting(
            "DAYTONA_API_URL is not an http(s) URL",
            hint=f"for the cloud leave it unset: {DEFAULT_API_URL}",
        )
    if parts.username is not None or parts.password is not None:
        raise BadSetting(
            "DAYTONA_API_URL holds a user name or password",
            hint="put the key into DAYTONA_API_KEY instead",
        )
    return text.rstrip("/")


def read_dotenv(project: Path, warn: Callable[[str], None]) -> dict[str, str]:
    """The project's ``.env`` as python-dotenv reads it, without expansion: ``${NAME}`` in a
    stranger's file must not pull values out of our environment. A file that cannot be used is a
    warning, not an error (case 53)."""
    try:
        raw, _ = files.read_bounded(project / ".env", DOTENV_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as problem:
        warn(f"'.env' of the project not read: {problem.strerror}")
        return {}
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        warn("'.env' of the project not read: it is not UTF-8")
        return {}
    if "\0" in text:
        warn("'.env' of the project not read: it is not text")
        return {}
    # dotenv_values() would print what it cannot read to stderr, past say.py
    from dotenv.parser import parse_stream

    found: dict[str, str] = {}
    for binding in parse_stream(io.StringIO(text)):
        if binding.error:
            warn(
                f"'.env' of the project: line {binding.original.line} makes no sense and "
                "was skipped"
            )
        elif binding.key is not None:
            found[binding.key] = binding.value or ""
    return found
