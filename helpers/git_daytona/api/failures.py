"""Answers of Daytona's servers that refuse something, turned into the suite's own errors. Pure."""

import json
import re
from collections.abc import Mapping
from typing import Any

from git_daytona.base.errors import (
    BadAnswer,
    BadSetting,
    Conflict,
    Forbidden,
    GitDaytonaError,
    KeyRefused,
    NotFound,
    RateLimited,
    SandboxGone,
    SandboxNotRunning,
    ServerError,
    TimedOut,
)
from git_daytona.base.secret import printable, redact
from git_daytona.settings.settings import Settings

_NOT_RUNNING = ("not running", "not started", "is the sandbox started", "is stopped")
"""How the runners and proxies of Daytona say so, all of them with status 400."""


def said(body: str | bytes) -> str:
    """Return the server's own words in its refusal, as one line; empty for a foreign body."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(answer, dict):
        return ""
    errors = answer.get("errors")  # of an upload, which goes on after one
    return _one_line(
        answer.get("message")
        or answer.get("error")
        or ("; ".join(map(str, errors[:10])) if isinstance(errors, list) else "")
    )


def _one_line(text: object) -> str:
    return printable(redact(" ".join(str(text)[:5000].split())))[:500]


def gone(sandbox_id: str) -> SandboxGone:
    return SandboxGone(
        f"sandbox '{sandbox_id}' does not exist (any more)",
        hint="'git daytona status' lists the sessions",
    )


def senseless(doing: str) -> BadAnswer:
    return BadAnswer(f"could not {doing}: the answer makes no sense", hint="check DAYTONA_API_URL")


def from_status(
    status: int, text: str, doing: str, settings: Settings, headers: Mapping[str, Any]
) -> GitDaytonaError:
    said = f": {text}" if text else ""
    if status == 401:
        return KeyRefused(
            f"{settings.api_url} does not accept the API key from"
            f" {settings.key_source or 'the keyring'}",
            hint="make a new one (https://app.daytona.io/dashboard/keys) and set DAYTONA_API_KEY",
        )
    if status == 403:
        return Forbidden(
            f"the API key may not {doing}{said}",
            hint="use a key with the permission to write sandboxes",
        )
    if status == 405:
        return BadAnswer(
            f"could not {doing}: the server does not offer it",
            hint="update the Daytona server, or check DAYTONA_API_URL",
        )
    if status == 404:
        return NotFound(
            f"could not {doing}: it does not exist{said}",
            hint="'git daytona status' lists the sessions and their sandboxes",
        )
    if status == 408:
        return TimedOut(
            f"could not {doing} within its time limit",
            hint="allow it more time, or look why it takes so long",
        )
    if status == 409:
        return Conflict(
            f"could not {doing}: the sandbox is busy{said}", hint="wait a moment, then try again"
        )
    if status == 429:
        return RateLimited(
            f"could not {doing}: too many requests",
            retry_after=_seconds(headers),
            hint="wait a minute, then try again",
        )
    if status in (400, 422) and any(words in text.lower() for words in _NOT_RUNNING):
        return SandboxNotRunning(
            f"could not {doing}: the sandbox is not running",
            hint="it is started by the next 'git daytona exec' or 'sync'",
        )
    if status in (400, 422):
        if settings.snapshot and "snapshot" in text.lower():
            return BadSetting(
                f"the snapshot '{settings.snapshot}' cannot be used{said}",
                hint="correct DAYTONA_SNAPSHOT"
                f" ({settings.sources.get('DAYTONA_SNAPSHOT', 'as set')}),"
                " or unset it for the default",
            )
        return BadAnswer(
            f"could not {doing}{said or ': the request was refused'}", hint="the log has more"
        )
    if status >= 500:
        return ServerError(
            f"could not {doing}: the server failed (HTTP {status}){said}",
            hint="try again in a moment",
        )
    return BadAnswer(
        f"could not {doing}: unexpected answer (HTTP {status})", hint="check DAYTONA_API_URL"
    )


def _seconds(headers: Mapping[str, Any]) -> float | None:
    for name, value in headers.items():
        if str(name).lower() == "retry-after" and re.fullmatch(r"\s*[0-9]{1,9}\s*", str(value)):
            return float(str(value))
    return None
