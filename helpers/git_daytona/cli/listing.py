"""``git daytona status``: the sessions of this repository."""

import contextlib
import json
import sys
from typing import TYPE_CHECKING

import click

from git_daytona.cli import common

if TYPE_CHECKING:
    from git_daytona.sessions.coordinator import Coordinator
    from git_daytona.sessions.status import Overview

WATCH_SECONDS = 2.0
FAILURES = 5
"""How many failed syncs are told of in full."""


@click.command(short_help="List the sessions, and where each one's work is")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--porcelain",
    is_flag=False,
    flag_value="v1",
    type=click.Choice(["v1"]),
    help="Print lines for scripts: tabs between the fields, a form that stays as it is.",
)
@click.option(
    "--watch", "-w", is_flag=True, help="Show the list, and what changes in it, until Ctrl-C."
)
@click.option(
    "--offline",
    is_flag=True,
    help="Do not ask Daytona for the sandboxes' states; show those seen last.",
)
@click.option(
    "--exit-code", is_flag=True, help="Exit with 10 if the work of any session is not here."
)
@click.option(
    "--color",
    type=click.Choice(["always", "auto", "never"]),
    help="Whether to colour it; by default as git does.",
)
def status(
    as_json: bool,
    porcelain: str | None,
    watch: bool,
    offline: bool,
    exit_code: bool,
    color: str | None,
) -> int:
    """List the sessions of this repository, a line each.

    Shown are number, branch, the sandbox's state, how and when the work came back last, the commits
    that the branch has over the one it started from, worktree and title; in a narrow window the
    rest without worktree and branch. If Daytona cannot be asked within three seconds, each
    sandbox's state is the one seen last, with its age.
    """
    from git_daytona.base import messages
    from git_daytona.base.errors import TransferFailed, UsageError
    from git_daytona.sessions import status as statuses

    if as_json and porcelain:
        raise UsageError(
            "--json and --porcelain exclude each other", hint="see 'git daytona status --help'"
        )
    if watch and (as_json or porcelain or exit_code or not sys.stdout.isatty()):
        raise UsageError(
            "--watch shows the list on a terminal, and takes no --json, --porcelain or --exit-code",
            hint="in a script, ask again: git daytona status --porcelain",
        )
    with common.coordinator(anywhere=True) as coordinator:
        if watch:
            _watch(coordinator, offline=offline, color=color)
            return 0
        found = statuses.overview(coordinator, offline=offline)
        if found.problem is not None:
            messages.warning(
                common.PROGRAM,
                f"{found.problem.message}; the sandboxes' states are those seen last",
            )
        if as_json:
            click.echo(json.dumps([row.document() for row in found.rows], indent=2))
        elif porcelain:
            from git_daytona.cli import table

            for row in found.rows:
                click.echo(table.porcelain(row))
        elif not found.rows:
            messages.note("no sessions here yet; start one: git daytona start")
        else:
            _table(coordinator, found, color)
        bad = exit_code and any(statuses.verdict(session) for session in coordinator.sessions())
        return TransferFailed.status if bad else 0


def _table(coordinator: "Coordinator", found: "Overview", color: str | None) -> None:
    from git_daytona.base import messages
    from git_daytona.cli import screen, table
    from git_daytona.sessions import state

    colour = screen.colour(color, coordinator.directory)
    for line in table.lines(
        found.rows, width=screen.width(), now=state.now(), home=table.home(), colour=colour
    ):
        click.echo(line, color=colour)
    failed = [row for row in found.rows if row.git_return in (state.FAILED, state.SETUP_FAILED)]
    for row in failed[:FAILURES]:
        messages.note(f"session {row.number or row.session_id}: {' '.join(row.message.split())}")
    if failed:
        more = f"; and {len(failed) - FAILURES} more failed" if len(failed) > FAILURES else ""
        messages.note(
            f"hint: try again: git daytona sync {failed[0].number or failed[0].session_id}{more}"
        )


def _watch(coordinator: "Coordinator", *, offline: bool, color: str | None) -> None:
    """Draw it again every two seconds. What it showed last stays on the screen when it ends."""
    from git_daytona.cli import screen, table
    from git_daytona.sessions import state
    from git_daytona.sessions import status as statuses

    colour, home = screen.colour(color, coordinator.directory), table.home()
    found = statuses.overview(coordinator, offline=True)

    def picture(columns: int, _rows: int) -> list[str]:
        said = (
            f"not reached: {found.problem.message}"
            if found.problem
            else "offline"
            if offline
            else ""
        )
        head = table.cut(f"git daytona status  Ctrl-C ends it  {said}".rstrip(), columns)
        body = table.lines(found.rows, width=columns, now=state.now(), home=home, colour=colour)
        return [head, "", *(body if found.rows else ["no sessions here yet"])]

    with contextlib.suppress(KeyboardInterrupt), screen.watching() as draw:
        draw(picture, 0)
        while True:
            found = statuses.overview(coordinator, offline=offline)
            draw(picture, WATCH_SECONDS)
    for line in table.lines(
        found.rows, width=screen.width(), now=state.now(), home=home, colour=colour
    ):
        click.echo(line, color=colour)
