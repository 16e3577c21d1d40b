"""Answers of Daytona's servers that refuse something, turned into the suite's own errors. Pure."""

import json
import re
from collections.abc import Mapping
from typing import Any

from git_daytona.base import errors
from git_daytona.base.errors import BadAnswer, GitDaytonaError
from git_daytona.base.secret import one_line, redact
from git_daytona.settings.settings import Settings

_REFUSED = (400, 422)
# What only the servers' words tell, and whose they are (github.com/daytonaio/daytona). Of a
# sandbox's runner (apps/runner) and the proxies before it:
_NOT_RUNNING = re.compile("(?i)not running|not started|is the sandbox started|is stopped")
# Of the API (apps/api), about the DAYTONA_SNAPSHOT that it is asked for:
_SNAPSHOT = re.compile("(?i)snapshot")
# Of the API, at the beginning of its 404 for an unknown sandbox rather than an unknown path:
NO_SANDBOX = re.compile("(?i)sandbox")
DASHBOARD = "https://app.daytona.io/dashboard"
# Of the API, in a 402, a 403 that is not about the key, or a 429 that waiting does not help:
_ORGANIZATION = (
    (re.compile("(?i)suspend"), f"an owner of the organisation sees why: {DASHBOARD}/limits"),
    (
        re.compile("(?i)limit reached|limit exceeded|quota|credit|upgrade"),
        "delete sandboxes that are not needed ('git daytona status' lists them), or have the limits"
        f" or credits raised: {DASHBOARD}/limits",
    ),
)


class Refused(BadAnswer):
    """The API does not take what the request says (HTTP 400)."""


def said(body: str | bytes) -> str:
    """Return the server's own words in its refusal, as one line; empty for a foreign body."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(answer, dict):
        return ""
    errors = answer.get("errors")  # of an upload, which goes on after one
    several = "; ".join(map(str, errors[:10])) if isinstance(errors, list) else ""
    text = str(answer.get("message") or answer.get("error") or several)
    return one_line(redact(text[:50_000])[:5000])[:500]


def senseless(doing: str, details: str | None = None) -> BadAnswer:
    return BadAnswer(
        f"could not {doing}: the answer is not valid", hint="check DAYTONA_API_URL", details=details
    )


def from_status(
    status: int, text: str, doing: str, settings: Settings, headers: Mapping[str, Any]
) -> GitDaytonaError:
    """Make the error of a status that is not 2xx; ``text`` is what ``said`` found in the body."""
    said = f": {text}" if text else ""
    if status in _REFUSED:
        refused = errors.NotOffered if status == 422 else Refused
        return _from_words(text, said, doing, settings, refused)
    if status in (402, 403, 429):
        return _from_organization(status, text, said, doing, headers)
    if status >= 500:
        return errors.ServerError(
            f"could not {doing}: the server failed (HTTP {status}){said}",
            hint="try again in a moment",
        )
    table: dict[int, GitDaytonaError] = {
        401: errors.KeyRefused(
            f"{settings.api_url} does not accept the API key from"
            f" {settings.key_source or 'the keyring'}{said}",
            hint=f"make a new one ({DASHBOARD}/keys) and set DAYTONA_API_KEY",
        ),
        405: errors.NotOffered(
            f"could not {doing}: the server does not offer it{said}",
            hint="update the Daytona server, or check DAYTONA_API_URL",
        ),
        404: errors.NotFound(
            f"could not {doing}: it does not exist{said}",
            hint="'git daytona status' lists the sessions and their sandboxes",
        ),
        409: errors.Conflict(
            f"could not {doing}: the sandbox is busy{said}", hint="wait a moment, then try again"
        ),
        408: errors.TimedOut(
            f"could not {doing} within its time limit{said}",
            hint="allow it more time, or look why it takes so long",
        ),
    }
    return table.get(status) or BadAnswer(
        f"could not {doing}: unexpected answer (HTTP {status}{said})", hint="check DAYTONA_API_URL"
    )


def _from_organization(
    status: int, text: str, said: str, doing: str, headers: Mapping[str, Any]
) -> GitDaytonaError:
    """Make the error of what a key, or the organisation behind it, may not or has no means for."""
    remedy = _remedy(text)
    wait = _retry_after(headers)
    if status == 403 and remedy:
        return errors.Forbidden(f"could not {doing}{said}", hint=remedy)
    if status == 403:
        hint = "use a key with the permission to write sandboxes"
        return errors.Forbidden(f"the API key may not {doing}{said}", hint=hint)
    if status == 402 or (remedy and wait is None):
        return errors.LimitReached(
            f"could not {doing}{said or ': it has to be paid for'}",
            hint=remedy or f"see the organisation's billing: {DASHBOARD}/billing",
        )
    return errors.RateLimited(
        f"could not {doing}: too many requests{said}",
        retry_after=wait,
        hint="wait a minute, then try again",
    )


def _remedy(text: str) -> str | None:
    return next((hint for words, hint in _ORGANIZATION if words.search(text)), None)


def _retry_after(headers: Mapping[str, Any]) -> float | None:
    """Read seconds; the header's other form, a date, does not count (RFC 9110, 10.2.3)."""
    wait = re.fullmatch(r"\s*([0-9]{1,9})\s*", str(headers.get("Retry-After", "")))
    return float(wait[1]) if wait else None


def _from_words(
    text: str, said: str, doing: str, settings: Settings, refused: type[BadAnswer]
) -> GitDaytonaError:
    if _NOT_RUNNING.search(text):
        hint = "it is started by the next 'git daytona exec' or 'sync'"
        return errors.SandboxNotRunning(f"could not {doing}: the sandbox is not running", hint=hint)
    if settings.snapshot and _SNAPSHOT.search(text):
        source = settings.sources.get("DAYTONA_SNAPSHOT", "as set")
        return errors.BadSetting(
            f"the snapshot '{settings.snapshot}' cannot be used{said}",
            hint=f"correct DAYTONA_SNAPSHOT ({source}), or unset it for the default",
        )
    return refused(
        f"could not {doing}{said or ': the request was refused'}", hint="the log has more"
    )
