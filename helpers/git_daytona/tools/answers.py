"""Reading what the tools' scripts print. The sandbox is untrusted: anything unexpected is one
error, never a traceback. Pure."""

import base64
import binascii
import re

from git_daytona.api.cloud import Execution
from git_daytona.base.errors import SandboxCommandFailed
from git_daytona.tools import clean


def lines(result: Execution, tool: str) -> list[str]:
    """The lines of a finished script (its last one is ``end``), without that. Raises
    SandboxCommandFailed."""
    found = result.output.split("\n")
    while found and not found[-1]:
        found.pop()
    if not found or found[-1] != "end":
        raise unexpected(result, tool)
    return found[:-1]


def number(text: str) -> int | None:
    """A number that a script printed; None for anything else. (To isdigit() "²" is one, too, and
    int() refuses very long ones.)"""
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None


def decoded(line: str) -> bytes:
    """A base64 line; raises SandboxCommandFailed."""
    try:
        return base64.b64decode(line, validate=True)
    except (binascii.Error, ValueError):
        raise SandboxCommandFailed(
            "the sandbox's answer cannot be read", hint="is base64 broken in its image?"
        ) from None


def path(line: str) -> str:
    """A file name of a base64 line; bytes that are no UTF-8 are kept as lone surrogates."""
    return decoded(line).decode("utf-8", "surrogateescape")


def names(line: str) -> list[str]:
    """NUL-separated names of a base64 line."""
    return [each for each in path(line).split("\0") if each]


def unexpected(result: Execution, tool: str) -> SandboxCommandFailed:
    """The error for an answer that is none of ours, with what the sandbox said instead."""
    said = clean.output(result.output).strip()[-300:] or "nothing"
    return SandboxCommandFailed(
        f"{tool} could not look into the sandbox (exit status {result.status}); it said: {said}"
    )
