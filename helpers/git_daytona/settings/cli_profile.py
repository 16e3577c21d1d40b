"""The profiles of the Daytona CLI (the Go program ``daytona``), the last place where an API key is
looked for.

Its ``config.json`` is ``{"activeProfile": ID, "profiles": [{"id", "name", "api": {"url", "key",
"token"}, …}]}``: apps/cli/config/config.go of github.com/daytonaio/daytona. ``daytona login
--api-key`` writes ``key``, a login with the browser ``token`` instead, which is of no use here.
"""

import json
from dataclasses import dataclass
from typing import Any

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
    """The key of the active profile if that is for this API: a key goes nowhere but where it was
    made for. None without a CLI."""
    path = paths.daytona_cli_config()
    file = f"'{path}' of the Daytona CLI"
    try:
        raw, mode = files.read_bounded(path, FILE_BYTES)
        profile = _active(json.loads(raw))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        return Found(file, None, f"{file} not read: {problem.strerror or problem}")
    except (ValueError, RecursionError):
        return Found(file, None, f"{file} not read: it makes no sense")
    if profile is None:
        return None
    name = printable(_text(profile.get("name")))[:80]
    source = f"profile '{name}' of the Daytona CLI in '{path}'"
    api = profile.get("api")
    api = api if isinstance(api, dict) else {}
    url, key = _text(api.get("url")).rstrip("/"), _text(api.get("key"))
    if url != api_url:
        return Found(source, None, f"{source} is for another API: '{printable(url)[:200]}'")
    if not key:
        return Found(
            source,
            None,
            f"{source} has no API key; make one, its login with the browser is of no use here",
        )
    if fault := key_problem(key):
        return Found(source, None, f"the API key of {source} {fault}")
    exposed = (
        f"others on this machine can read '{path}', and the key in it: chmod 600 it"
        if mode & 0o044
        else None
    )
    return Found(source, Secret(key), exposed)


def warning(api_url: str, source: str) -> str | None:
    """What is wrong with the way the key from ``source`` is kept, if that is a profile and
    something is."""
    found = look(api_url)
    return found.remark if found and found.key and found.source == source else None


def _active(config: Any) -> dict[str, Any] | None:
    """The active profile; None when there is none. Raises ValueError for what cannot be the
    CLI's."""
    if not isinstance(config, dict):
        raise ValueError
    profiles, wanted = config.get("profiles"), _text(config.get("activeProfile"))
    found = (
        [each for each in profiles if isinstance(each, dict)] if isinstance(profiles, list) else []
    )
    return next((each for each in found if wanted and _text(each.get("id")) == wanted), None)


def _text(value: object) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""
