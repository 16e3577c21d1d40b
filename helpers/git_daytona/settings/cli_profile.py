"""The profiles of the Daytona CLI (the Go program ``daytona``), the last place where an API key is
looked for.

Its ``config.json`` is ``{"activeProfile": ID, "profiles": [{"id", "name", "api": {"url", "key",
"token"}, …}]}``: apps/cli/config/config.go of github.com/daytonaio/daytona. ``daytona login
--api-key`` writes ``key``, a login with the browser ``token`` instead, which is of no use here.
"""

import json
from dataclasses import dataclass

from git_daytona.base import files, paths
from git_daytona.base.secret import Secret, key_problem, printable

FILE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Found:
    """What the CLI has for an API: a key, or the reason why there is none."""

    source: str
    key: Secret | None
    remark: str | None = None
    """Why its key is not used; beside a key, what is wrong with the way it is kept."""


def look(api_url: str) -> Found | None:
    """The key of the active profile, if that is for this API; None without a CLI."""
    path = paths.daytona_cli_config()
    file = f"'{path}' of the Daytona CLI"
    try:
        raw, mode = files.read_bounded(path, FILE_BYTES)
        profile = _active(json.loads(raw))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not valid"
        return Found(file, None, f"{file} not read: {reason}")
    if profile is None:
        return None
    source = f"profile '{printable(_text(profile, 'name'))[:80]}' of the Daytona CLI in '{path}'"
    url, key = _text(profile, "api", "url").rstrip("/"), _text(profile, "api", "key")
    remark = None
    if url != api_url:
        remark = f"{source} is for another API: '{printable(url)[:200]}'"
    elif not key:
        remark = f"{source} has no API key; make one, its login with the browser is of no use here"
    elif fault := key_problem(key):
        remark = f"the API key of {source} {fault}"
    if remark:
        return Found(source, None, remark)
    exposed = f"others on this machine can read '{path}', and the key in it: chmod 600 it"
    return Found(source, Secret(key), exposed if mode & 0o044 else None)


def _active(config: object) -> object:
    """The active profile; None when there is none. Raises ValueError for what is not the CLI's."""
    if not isinstance(config, dict):
        raise ValueError
    profiles, active = config.get("profiles"), _text(config, "activeProfile")
    listed = profiles if active and isinstance(profiles, list) else []
    return next((each for each in listed if _text(each, "id") == active), None)


def warning(api_url: str, source: str) -> str | None:
    """What is wrong with the way a profile's key is kept, if ``source`` is one."""
    found = look(api_url)
    return found.remark if found and found.key and found.source == source else None


def _text(value: object, *names: str) -> str:
    """The text at a place in JSON objects, with single blanks; empty where there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return " ".join(value.split()) if isinstance(value, str) else ""
