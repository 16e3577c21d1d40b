"""How `daytona-pin` prints keys and gateways: as text for people, as JSON for programs. stdout is
data."""

import json
from collections.abc import Iterable
from typing import Any

import click

from git_daytona.base.endpoint import Endpoint
from git_daytona.base.secret import printable
from git_daytona.trust.host_keys import HostKey


def line(words: str) -> None:
    click.echo(printable(words))


def table(title: str, rows: Iterable[tuple[str, str]]) -> None:
    """A line for each row, its first column aligned."""
    listed = list(rows)
    width = max((len(left) for left, _ in listed), default=0)
    for left, right in listed:
        line(f"{title:9} {left:{width}}  {right}")


def as_json(value: dict[str, Any]) -> None:
    click.echo(json.dumps(value, indent=2))


def key(found: HostKey) -> dict[str, str]:
    return {"type": found.type, "fingerprint": found.fingerprint, "key": found.line}


def gateway(endpoint: Endpoint) -> dict[str, Any]:
    return {"host": endpoint.host, "port": endpoint.port, "name": endpoint.known_hosts_name}


def text(raw: bytes) -> str:
    """Bytes of a file, fit for a terminal."""
    return printable(raw.decode("utf-8", "replace"))
