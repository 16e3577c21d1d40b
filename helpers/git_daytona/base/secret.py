"""A token or key that does not show itself, and the redaction of texts that might hold one."""

import collections
import contextlib
import json
import os
import re
import weakref
from collections.abc import Iterator
from typing import NoReturn
from urllib.parse import quote, quote_plus

REDACTED = "[redacted]"
ODD = "surrogatepass"
QUOTED = r"['\"\\\s]"
"""What is written in another way where a text is quoted."""
REDACTED_FROM = 6
"""Characters from which a secret is looked for in texts: a shorter one, such as a variable's value,
may be any word."""
KEY_CHARACTERS = 4096
"""No API key is longer. Daytona's have 68; those of self-hosted servers may be JSON Web Tokens."""

# What redact() looks for in the words of others (git, ssh, an API): all secrets that are alive, and
# the last ones that were, because a server may repeat a token whose lease has ended.
_alive: "weakref.WeakSet[Secret]" = weakref.WeakSet()
_last: "collections.deque[Secret]" = collections.deque(maxlen=64)

# What looks like a secret although this process never held it: userinfo of a URL (earlier tools
# wrote ssh://TOKEN@host), bearer headers, and the prefix of Daytona's API keys.
_PATTERNS = (
    # A scheme is short: without a limit, each of many words in a row would be read to their end.
    (re.compile(r"(\b[a-z][a-z0-9+.-]{0,30}://)[^/\s@'\"]+@", re.IGNORECASE), rf"\1{REDACTED}@"),
    (re.compile(r"(\bbearer\s+)[^\s'\"]+", re.IGNORECASE), rf"\1{REDACTED}"),
    (re.compile(r"\bdtn_[A-Za-z0-9]{8,}"), REDACTED),
    (re.compile(r"([?&]token=)[^&\s'\"]+"), rf"\1{REDACTED}"),
)


@contextlib.contextmanager
def key_out_of_environment() -> Iterator[None]:
    """Take the API key out of our environment while asyncssh is imported: it starts gcc and ld."""
    key = os.environ.pop("DAYTONA_API_KEY", None)
    try:
        yield
    finally:
        if key is not None:
            os.environ["DAYTONA_API_KEY"] = key


class Secret:
    """A value that is redacted wherever it is shown; only ``reveal()`` gives it, for grep."""

    __slots__ = ("__weakref__", "_value")

    def __init__(self, value: str):
        self._value = value
        _alive.add(self)
        _last.append(self)

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:  # str() and format() show the same
        return REDACTED

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be pickled")


def key_problem(text: str) -> str | None:
    """What is wrong with a text that should be an API key, as the end of a sentence, or None."""
    if len(text) > KEY_CHARACTERS:
        return f"is longer than {KEY_CHARACTERS} characters"
    if not re.fullmatch(r"[\x21-\x7e]+", text):
        return "holds blanks or characters that no key has"
    return None


def _forms(value: str) -> set[str]:
    """Return a value as it is, percent-encoded, and as JSON has it."""
    encoded = (quote(value, safe="", errors=ODD), quote(value, errors=ODD))
    return {value, *encoded, quote_plus(value, errors=ODD), json.dumps(value)[1:-1]}


def _quoted(value: str) -> str:
    """Return a pattern of a value as JSON and shells quote it, however often: an answer may repeat
    a request, and a command in it. It begins with a letter of the value, so as to be quick."""
    run = r"['\"\\]+"
    pattern = run.join(map(re.escape, re.split(run, value.strip("'\"\\ \t\r\n"))))
    for written, letter in (("\\\n", "n"), ("\\\t", "t"), ("\\\r", "r")):
        pattern = pattern.replace(written, rf"(?:\{written[1]}|\\+{letter})")
    return pattern


def redact(text: str) -> str:
    """Take out all secrets of this process, in all their forms, and what looks like one."""
    for secret in list(_alive):
        value = secret.reveal()
        if len(value) >= REDACTED_FROM:
            for form in _forms(value):
                text = text.replace(form, REDACTED)
            plain = re.sub(QUOTED, "", value)
            if REDACTED_FROM <= len(plain) < len(value):
                text = re.sub(_quoted(value), REDACTED, text)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def printable(text: str) -> str:
    """Make control characters visible: foreign words must not move the cursor (case 51)."""
    return "".join(
        c if c in "\n\t" or c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


def one_line(text: str) -> str:
    """Foreign words as a part of a message, which is one line: no tabs, no line breaks."""
    return printable(" ".join(text.split()))
