"""``git daytona status, open, logs``: looking at sessions, into a sandbox, and at the log."""

import contextlib
import html
import os
import re
import sys
from collections.abc import Sequence
from functools import partial

import click

from git_daytona.base import files, log, messages, paths
from git_daytona.base.errors import NotFound, TransferFailed, UsageError
from git_daytona.base.secret import printable
from git_daytona.cli import common, options, provisions, screen, table
from git_daytona.cli.options import flag, number
from git_daytona.service import charge, previews
from git_daytona.sessions import state, status
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.settings import order

WATCH_SECONDS = 2.0
FAILURES = 5
"""How many failed syncs are shown in full."""


@click.command("status")
@options.as_json
@click.option(
    "--porcelain",
    is_flag=False,
    flag_value="v1",
    type=click.Choice(["v1"]),
    help="Print lines for scripts: tabs between the fields, a form that stays as it is.",
)
@flag("--all", "everywhere", help="List the sessions of every repository of this machine.")
@flag("--verbose", "-v", help="Show what each sandbox was ordered with, too.")
@flag("--watch", "-w", help="Show the list, and what changes in it, until Ctrl-C.")
@flag("--offline", help="Do not ask Daytona for the sandboxes' states; show those seen last.")
@flag("--exit-code", help="Exit with 10 if the work of any session is not here.")
@click.option(
    "--color",
    type=click.Choice(["always", "auto", "never"]),
    help="Whether to colour it; by default as git does.",
)
def status_(
    as_json: bool,
    porcelain: str | None,
    everywhere: bool,
    verbose: bool,
    watch: bool,
    offline: bool,
    exit_code: bool,
    color: str | None,
) -> int:
    """List the sessions of this repository, a line each.

    Shown are number, branch, the sandbox's state, how and when the work came back last, the commits
    that the branch has over the one it started from, worktree and title; in a narrow window the
    rest without worktree and branch. If Daytona cannot be asked within three seconds, each
    sandbox's state is the one seen last, with its age. Exits with 20 if an OpenCode runs here whose
    tools act on this machine.
    """
    _check_forms(as_json, porcelain is not None, watch, exit_code or everywhere)
    with common.coordinator(anywhere=True) as coordinator:
        if watch:
            _watch(coordinator, offline=offline, color=color)
            return 0
        overview = status.everywhere if everywhere else status.overview
        found = overview(coordinator, offline=offline)
        if found.problem is not None:
            common.warn(f"{found.problem.message}; the sandboxes' states are those seen last")
        if as_json:
            options.print_json([row.document() for row in found.rows])
        elif porcelain:
            click.echo("".join(f"{table.porcelain(row)}\n" for row in found.rows), nl=False)
        else:
            _print_table(found.rows, screen.colour(color, coordinator.directory), everywhere)
            for row in found.rows:
                if verbose and row.ordered:  # by the names of the options
                    name = row.number or row.session_id
                    messages.note(f"session {name}: {order.line(row.ordered)}")
            for line in _notes(found.rows):
                messages.note(line)
            _print_failures(found.rows)
        charge.check(coordinator.directory)
        unsynced = exit_code and any(map(status.verdict, coordinator.sessions()))
        return TransferFailed.status if unsynced else 0


def _check_forms(json: bool, porcelain: bool, watch: bool, other: bool) -> None:
    if json and porcelain:
        raise click.UsageError("--json and --porcelain exclude each other")
    if watch and (json or porcelain or other or not sys.stdout.isatty()):
        raise UsageError(
            "--watch shows the list on a terminal, and takes no option but --offline and --color",
            hint="in a script, ask again: git daytona status --porcelain",
        )


def _print_table(rows: Sequence[status.Row], colour: bool, everywhere: bool = False) -> None:
    if not rows:
        messages.note("no sessions here yet; start one: git daytona start")
        return
    width, now = screen.columns(), state.now()
    for line in table.lines(rows, width=width, now=now, colour=colour, everywhere=everywhere):
        click.echo(line, color=colour)


def _notes(rows: Sequence[status.Row]) -> list[str]:
    """Return what is said below the table; what is said of a session elsewhere names it itself."""
    begins = [("" if row.elsewhere else f"session {row.name}: ", row) for row in rows]
    return [f"{begin}{line}" for begin, row in begins for line in row.notes]


def _print_failures(rows: Sequence[status.Row]) -> None:
    kinds = (state.FAILED, state.SETUP_FAILED)
    failed = [row for row in rows if row.deleting or row.git_return in kinds]
    for row in failed[:FAILURES]:
        what = "not deleted yet: " if row.deleting else ""
        messages.note(f"session {row.name}: {what}{' '.join(row.message.split())}")
    if failed:
        more = f"; and {len(failed) - FAILURES} more failed" if len(failed) > FAILURES else ""
        messages.note(f"hint: {_remedy(failed[0])}{more}")


def _remedy(row: status.Row) -> str:
    if not row.deleting:
        return f"try again: git daytona sync {row.name}"
    delete = "git daytona delete"
    return f"delete it: {delete} {row.name}; or keep it: {delete} --cancel {row.name}"


def _watch(coordinator: Coordinator, *, offline: bool, color: str | None) -> None:
    """Draw it again every two seconds. What it showed last stays on the screen when it ends."""
    colour = screen.colour(color, coordinator.directory)
    found = status.overview(coordinator, offline=True)

    def picture(columns: int) -> list[str]:
        remark = "offline" if offline else ""
        if found.problem:
            remark = f"not reached: {found.problem.message}"
        head = table.cut(f"git daytona status  Ctrl-C ends it  {remark}".rstrip(), columns)
        body = table.lines(found.rows, width=columns, now=state.now(), colour=colour)
        body += [table.cut(line, columns) for line in _notes(found.rows)]
        return [head, "", *(body if found.rows else ["no sessions here yet"])]

    with contextlib.suppress(KeyboardInterrupt), screen.second():
        screen.draw(picture, 0)
        while True:
            found = status.overview(coordinator, offline=offline)
            screen.draw(picture, WATCH_SECONDS)
    if found.rows:
        _print_table(found.rows, colour)


@click.command("open")
@click.option(
    "--browser/--no-browser",
    default=None,
    help="Whether to open it; by default on a graphical terminal.",
)
@common.session
@common.port
def open_(browser: bool | None, name: str, port: int | None) -> None:
    """Print a link to a PORT that a server in the session's sandbox listens on, and open it in the
    browser.

    Without PORT it is the one that listens. Whoever has the link can open it, for 24 hours.
    """
    with common.coordinator(anywhere=True) as coordinator:
        alone = port is None and re.fullmatch("[1-9][0-9]{3,4}", name)
        if alone and coordinator.identified(name) == name:  # no session: a port
            name, port = "", int(name)
        session = coordinator.find(name)
        listening = coordinator.awake(session, lambda id_: common.listening(coordinator, id_))
        port = port or _only(listening, session.name)
        if port not in listening:
            common.warn(f"nothing listens on port {port} in the sandbox yet")
        ask = partial(coordinator.cloud.preview, port=port, seconds=previews.LINK_SECONDS)
        link = coordinator.awake(session, ask)
    click.echo(link)
    if browser or (browser is None and sys.stdout.isatty() and _is_graphical()):
        _browse(link)


def _is_graphical() -> bool:
    """Tell whether a browser would have a window: else it would take the terminal."""
    displays = map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))
    return sys.platform == "darwin" or any(displays)


def _only(ports: Sequence[int], name: str) -> int:
    if not ports:
        raise NotFound(
            f"nothing listens in the sandbox of session {name}", hint="start a server there first"
        )
    if len(ports) > 1:
        hint = f"name one: git daytona open {name} {ports[0]}"
        raise UsageError(f"several ports listen there: {', '.join(map(str, ports))}", hint=hint)
    return ports[0]


def _browse(link: str) -> None:
    """Open a link through a page that only the user can read: everybody on this machine can read a
    process's arguments, and the link opens the port to whoever has it."""
    page, target = paths.own_state() / "open.html", html.escape(link)
    refresh = f'<meta http-equiv="refresh" content="0; url={target}">'
    files.write_whole(page, f'<!doctype html><meta charset="utf-8">{refresh}\n'.encode())
    import webbrowser  # what few commands need

    if not webbrowser.open(page.as_uri()):
        common.warn("no browser was found; open the link yourself")


@click.command()
@flag("--follow", "-f", help="Go on printing what is added, until Ctrl-C.")
@number(
    "--lines", "-n", metavar="COUNT", within=(0, None), default=50, help="How many of the last."
)
@flag("--setup", help="Of the set-up in session N's sandbox, all.")
@common.session
def logs(follow: bool, lines: int, setup: bool, name: str) -> None:
    """Print the end of the log."""
    if setup:
        provisions.print_log(name, follow=follow)
        return
    if name:
        raise UsageError("N goes with --setup", hint=f"git daytona logs --setup {printable(name)}")
    for line in log.tail(lines, follow=follow):
        click.echo(line)
