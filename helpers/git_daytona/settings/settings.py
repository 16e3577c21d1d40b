"""What environment variables and a project's ``.env`` set: names, sources, and what counts now."""

import io
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from git_daytona.base import files
from git_daytona.base.endpoint import split_link
from git_daytona.base.errors import BadSetting, NoKey
from git_daytona.base.secret import Secret, key_problem
from git_daytona.settings import cli_profile, keystore

DEFAULT_API_URL = "https://app.daytona.io/api"
KEYS_PAGE = "https://app.daytona.io/dashboard/keys"
DOTENV_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Settings:
    """What was found; nothing of it is exported to child processes."""

    api_url: str = DEFAULT_API_URL
    target: str | None = None
    snapshot: str | None = None
    ssh_binary: str | None = None
    ssh_known_hosts: str | None = None
    auto_pin: bool = True
    key: Secret | None = None
    """From the environment or .env; where this is None, api_key() looks further."""
    key_source: str | None = None
    warnings: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    """Variable → where it came from, as messages name that; without those that are unset."""

    def values(self) -> dict[str, str | None]:
        """Variable → its value as a text, but for the key."""
        found = {each.name: getattr(self, each.field) for each in VARIABLES if each.field != "key"}
        return {
            name: str(value).lower() if isinstance(value, bool) else value
            for name, value in found.items()
        }

    def api_key(self) -> tuple[Secret, str]:
        """The API key and where it came from. Raises NoKey, or BadSetting for a broken keyring."""
        if self.key is not None:
            return self.key, self.key_source or "the environment"
        if stored := keystore.find(self.api_url):
            source = f"the OS keyring ({stored.place})"
            _check_key(stored.key, source, "store it anew: daytona-token login")
            return stored.key, source
        profile = cli_profile.look(self.api_url)
        if profile and profile.key:
            return profile.key, profile.source
        remark = f"; {profile.remark}" if profile and profile.remark else ""
        raise NoKey(
            f"there is no API key for {self.api_url}",
            hint=f"store one with 'daytona-token login', or set DAYTONA_API_KEY ({KEYS_PAGE}); "
            f"without an account: daytona-local exec -- COMMAND{remark}",
        )


def _check_key(key: Secret, source: str, hint: str) -> None:
    if problem := key_problem(key.reveal()):
        raise BadSetting(f"the API key in {source} {problem}", hint=hint)


def check_api_url(text: str) -> str:
    """Check the API's base URL, and return it without a slash at its end. Raises BadSetting."""
    if "@" in text:
        hint = "put the key into DAYTONA_API_KEY instead"
        raise BadSetting("DAYTONA_API_URL holds a user name or password", hint=hint)
    parts = split_link(text)
    if parts is None or parts.query or parts.fragment:
        hint = f"for the cloud leave it unset: {DEFAULT_API_URL}"
        raise BadSetting("DAYTONA_API_URL is not an http(s) URL", hint=hint)
    return text.rstrip("/")


def _is_on(text: str) -> bool:
    return text.lower() not in {"false", "0", "no", "off"}


@dataclass(frozen=True)
class Variable:
    """An environment variable, and the field of Settings that it sets."""

    name: str
    field: str
    dotenv: bool = False
    """Whether the project's ``.env`` may set it, too. A repository may come from a stranger: it may
    not choose where the key goes, which program runs, or what is trusted."""
    read: Callable[[str], Any] = str
    """Makes the field's value of a text, or raises BadSetting."""


VARIABLES = (
    Variable("DAYTONA_API_KEY", "key", dotenv=True, read=Secret),
    Variable("DAYTONA_API_URL", "api_url", read=check_api_url),
    Variable("DAYTONA_TARGET", "target"),
    Variable("DAYTONA_SNAPSHOT", "snapshot", dotenv=True),
    Variable("DAYTONA_SSH_BINARY", "ssh_binary"),
    Variable("DAYTONA_SSH_KNOWN_HOSTS", "ssh_known_hosts"),
    Variable("DAYTONA_SSH_AUTO_PIN", "auto_pin", read=_is_on),
)
FROM_DOTENV = tuple(each.name for each in VARIABLES if each.dotenv)
NEVER_FROM_DOTENV = tuple(each.name for each in VARIABLES if not each.dotenv)


def load(project: Path | None, environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings for a project root (None: environment only). Raises BadSetting."""
    env = os.environ if environ is None else environ
    warnings: list[str] = []
    dotenv = read_dotenv(project, warnings.append) if project is not None else {}
    if ignored := [name for name in NEVER_FROM_DOTENV if dotenv.get(name, "").strip()]:
        names, remedy = ", ".join(ignored), "set it in the environment instead"
        warnings.append(f"{names} in '.env' ignored: a repository may not choose this; {remedy}")
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for each in VARIABLES:
        if text := env.get(each.name, "").strip():
            sources[each.name] = f"the environment variable {each.name}"
        elif each.dotenv and (text := dotenv.get(each.name, "").strip()):
            sources[each.name] = f"'.env' of '{project}'"
        if text:
            values[each.field] = each.read(text)
    source = sources.get("DAYTONA_API_KEY")
    if source:
        _check_key(values["key"], source, "set DAYTONA_API_KEY to the key alone, in one line")
    return Settings(**values, key_source=source, warnings=tuple(warnings), sources=sources)


def read_dotenv(project: Path, warn: Callable[[str], None]) -> dict[str, str]:
    """Read the project's ``.env`` as python-dotenv does, without expansion: ``${NAME}`` in a
    stranger's file must not pull values out of our environment. A file that cannot be used is a
    warning, not an error (case 53)."""
    try:
        text = files.read_bounded(project / ".env", DOTENV_BYTES)[0].decode("utf-8-sig")
        unread = "it is not text" if "\0" in text else None
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as problem:
        unread = getattr(problem, "strerror", "it is not UTF-8")
    if unread:
        warn(f"'.env' of the project not read: {unread}")
        return {}
    found, bad = parse_dotenv(text)
    for line in bad:
        warn(f"'.env' of the project: line {line} is not NAME=VALUE and was skipped")
    return found


def parse_dotenv(text: str) -> tuple[dict[str, str], list[int]]:
    """Read lines NAME=VALUE without expansion; return them, and which lines are none."""
    # dotenv_values() would print what it cannot read to stderr, past messages.py
    from dotenv.parser import parse_stream

    bindings = list(parse_stream(io.StringIO(text)))
    found = {each.key: each.value or "" for each in bindings if each.key and not each.error}
    return found, [each.original.line for each in bindings if each.error]
