"""A token or key that does not show itself, and the redaction of texts that might hold one."""

import re
import weakref
from typing import NoReturn
from urllib.parse import quote, quote_plus

REDACTED = "[redacted]"

# All secrets that are alive in this process, so that redact() can find them in the words of others (git, ssh, an API).
# Weak: a secret that nobody holds any more is forgotten.
_alive: "weakref.WeakSet[Secret]" = weakref.WeakSet()

# What looks like a secret although this process never held it: userinfo of a URL (earlier tools wrote ssh://TOKEN@host), bearer
# headers, and the prefix of Daytona's API keys.
_PATTERNS = (
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@'\"]+@", re.IGNORECASE), rf"\1{REDACTED}@"),
    (re.compile(r"(\bbearer\s+)[^\s'\"]+", re.IGNORECASE), rf"\1{REDACTED}"),
    (re.compile(r"\bdtn_[A-Za-z0-9]{8,}"), REDACTED),
    (re.compile(r"([?&]token=)[^&\s'\"]+"), rf"\1{REDACTED}"),
)


class Secret:
    """A value whose repr, str and format are redacted; ``reveal()`` is the only way to it, so that one can grep for the places."""

    __slots__ = ("__weakref__", "_value")

    def __init__(self, value: str):
        self._value = value
        _alive.add(self)

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"Secret({REDACTED})"

    def __str__(self) -> str:
        return REDACTED

    def __format__(self, spec: str) -> str:
        return REDACTED

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be pickled")


def redact(text: str) -> str:
    """The text without any secret that this process holds (raw, percent-encoded), and without what looks like one."""
    for secret in list(_alive):
        value = secret.reveal()
        if len(value) < 4:  # too short to be told from ordinary text
            continue
        for form in {value, quote(value, safe=""), quote(value), quote_plus(value)}:
            text = text.replace(form, REDACTED)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def printable(text: str) -> str:
    """The text with control characters made visible, for a terminal or a log: foreign words must not move the cursor (CASES 51)."""
    return "".join(c if c in "\n\t" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)
