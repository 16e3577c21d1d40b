"""``git daytona forward``: ports of a sandbox on this machine's loopback."""

import re
import socket
from collections.abc import Sequence

import click

from git_daytona.base.errors import INTERRUPTED, ConnectionClosed, GitDaytonaError, UsageError
from git_daytona.cli import common
from git_daytona.cli.daytona_ssh import LOOPBACK, on_loopback
from git_daytona.sessions.connect import Wish, connect
from git_daytona.sessions.remote import destination

Pair = tuple[int, int]
"""A port here, and one in the sandbox."""


def _pairs(context: click.Context, _: click.Parameter, words: Sequence[str]) -> list[Pair]:
    pairs = []
    for word in words:
        found = re.fullmatch(r"(?:([0-9]{1,5}):)?([0-9]{1,5})", word)
        numbers = [int(found[1] or found[2]), int(found[2])] if found else [0]
        if not all(0 < number < 65536 for number in numbers):
            raise click.UsageError(f"'{word}' is not [LOCAL:]PORT", context)
        pairs.append((numbers[0], numbers[1]))
    return pairs


class _PortsLast(click.Command):
    """N may be left out: where there is one number, and where the first is two ports."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [each for each in args if not each.startswith("-")]
        first = words[0] if words and not ctx.resilient_parsing else ""
        if ":" in first or (len(words) == 1 and first.isdecimal()):
            args = ["", *args]
        return super().parse_args(ctx, args)


@click.command(cls=_PortsLast)
@common.session
@click.argument(
    "ports",
    metavar="[[LOCAL:]PORT]...",
    nargs=-1,
    callback=_pairs,
    shell_complete=common.complete_ports,
)
def forward(name: str, ports: list[Pair]) -> int:
    """Let 127.0.0.1:LOCAL of this machine be PORT of the session's sandbox, until Ctrl-C.

    LOCAL is PORT if it is not given. Without ports they are those that the project's
    devcontainer.json forwards; a number alone is a port, so that N is sandbox-N then. Nobody on
    another machine reaches them; every user of this one does.
    """
    ports = ports or _of_project(name)
    for here, there in ports:
        _check_free(name, here, there)
    specs = [on_loopback(f"{here}:localhost:{there}", "L") for here, there in ports]
    options = ("ClearAllForwardings=no", "ExitOnForwardFailure=yes", "GatewayPorts=no")
    more = [word for pair in (*specs, *(("-o", each) for each in options)) for word in pair]
    with common.coordinator(anywhere=True) as coordinator:
        found = destination(coordinator, name)

        def stands() -> None:
            for here, there in ports:
                place = f"http://{LOOPBACK}:{here}"
                click.echo(f"{place} -> port {there} of session {found.name}")

        wish = Wish(session=("-N",), more=more)
        status = connect(coordinator, found.sandbox_id, wish, stands=stands)
    if status in (0, INTERRUPTED):  # Ctrl-C is how it ends
        return 0
    raise ConnectionClosed(
        "the connection to the sandbox has ended, and the ports with it",
        hint=f"git daytona status; then again: git daytona forward {name} …",
    )


def _of_project(name: str) -> list[Pair]:
    """Return the ports that the session's devcontainer.json forwards. Raises UsageError."""
    with common.coordinator() as coordinator:
        session = coordinator.find(name)
        plan = coordinator.provision.of_branch(session)[1]
    if not plan or not plan.ports:
        raise UsageError(
            f"no port is named, and the project of session {session.name} forwards none",
            hint=f"name one: git daytona forward {session.name} PORT",
        )
    return [(port, port) for port in plan.ports]


def _check_free(name: str, here: int, there: int) -> None:
    """Raise GitDaytonaError for a port of this machine that ssh could not have."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((LOOPBACK, here))
        except OSError as problem:
            raise GitDaytonaError(
                f"port {here} of this machine cannot be used: {problem.strerror}",
                hint=f"choose another: git daytona forward {name} {1024 + here % 60000}:{there}",
            ) from None
