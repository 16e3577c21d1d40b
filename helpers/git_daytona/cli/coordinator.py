"""``git daytona …``: sessions, for people. Imports what is heavy only inside the commands, so that ``--help`` is quick."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from git_daytona import __version__
from git_daytona.cli import hosts, upkeep

if TYPE_CHECKING:
    from git_daytona.sessions import Coordinator
    from git_daytona.sync import Outcome

PROGRAM = "git-daytona"
NAME = "N is a number, sandbox-N, opencode/N, a sandbox id or a session id."


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"{NAME} See git-daytona(1) for exit statuses and files.",
)
@click.version_option(__version__, "--version", message="git-daytona %(version)s")
def cli() -> None:
    """Run OpenCode sessions in Daytona sandboxes and get their work back through git."""


@contextmanager
def _coordinator(*, anywhere: bool = False) -> Iterator["Coordinator"]:
    """The coordinator of the repository we stand in; with ``anywhere`` also of a directory without one."""
    from git_daytona import git, log, recovery, say, settings
    from git_daytona.errors import NoRepository
    from git_daytona.sessions import Coordinator

    log.to_file()
    recovery.scrub_old_log()
    place: git.Repository | Path
    try:
        place = git.discover(git.here())
        directory = place.worktree
    except NoRepository:
        if not anywhere:
            raise
        place = directory = git.here()
    found = settings.load(directory)
    for line in found.warnings:
        say.warning(PROGRAM, line)
    coordinator = Coordinator(place, found, say.note)
    try:
        yield coordinator
    finally:
        coordinator.close()
        for line in (*coordinator.state.warnings, *coordinator.policy.warnings):
            say.warning(PROGRAM, line)


def _show() -> bool:
    """Whether git's progress goes to the terminal."""
    return sys.stderr.isatty()


def _tell(outcome: "Outcome") -> None:
    """What came back, and each thing that was kept, on a line of its own."""
    from git_daytona import say
    from git_daytona.secret import printable

    click.echo(printable(outcome.message))
    for kept in outcome.kept:
        say.note(f"kept: {kept.what}\nhint: git log {kept.ref}")


@cli.command()
@click.option("--session", metavar="ID", help="The session's id, if a host such as OpenCode gave it one.")
@click.option(
    "--no-sync", is_flag=True, help="A sandbox with an empty project, also where there is no repository; nothing is synced."
)
def start(session: str | None, no_sync: bool) -> None:
    """Start a session: a sandbox with HEAD in it, and branch opencode/N for what comes back.

    Starting a session that exists is safe: it makes good what an earlier start left undone.
    """
    from git_daytona import say

    with _coordinator(anywhere=no_sync) as coordinator:
        started = coordinator.start(session, synced=not no_sync, show=_show())
        if started.replaced:
            say.warning(PROGRAM, "the session's sandbox was gone; what it had not synced is lost")
        word = "started" if started.new else "already there"
        if started.session.number is None:
            click.echo(f"session {started.session.id} {word}: sandbox {started.session.sandbox_id}, nothing is synced")
        else:
            names = started.names
            click.echo(f"session {names.number} {word}: sandbox {started.session.sandbox_id}, branch {names.branch}")


@cli.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--timeout", type=click.IntRange(1, 86400), default=3600, show_default=True, metavar="S", help="End it after S seconds."
)
@click.argument("name", metavar="N")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_(timeout: int, name: str, command: tuple[str, ...]) -> int:
    """Run COMMAND in the session's project directory, and exit with its status.

    Several words are one command with its arguments; a single word is a shell command line. It runs at most once, with standard
    input closed; what it prints comes when it has ended.
    """
    import shlex

    command = command[1:] if command[0] == "--" else command
    if not command:
        raise click.UsageError("Missing argument 'COMMAND...'.")
    from git_daytona import say

    with _coordinator(anywhere=True) as coordinator:
        line = command[0] if len(command) == 1 else shlex.join(command)
        executed = coordinator.execute(name, line, timeout=timeout)
        if executed.notice:
            say.warning(PROGRAM, executed.notice)
        result, output = executed.result, executed.result.output
        if sys.stdout.isatty():
            from git_daytona.secret import printable

            output = printable(output)
        sys.stdout.write(output)
        return result.status


@cli.command()
@click.argument("name", metavar="N")
def sync(name: str) -> None:
    """Commit what is pending in the sandbox and bring all of it back to opencode/N.

    What that would overwrite here is kept under refs/daytona/kept/ and named.
    """
    with _coordinator() as coordinator:
        _tell(coordinator.sync(name, show=_show()))


@cli.command()
@click.argument("name", metavar="N")
def fetch(name: str) -> None:
    """Fetch the sandbox's branches into sandbox-N/*, and leave opencode/N where it is."""
    with _coordinator() as coordinator:
        _tell(coordinator.fetch(name, show=_show()))


@cli.command()
@click.argument("name", metavar="N")
def push(name: str) -> None:
    """Push the local branch opencode/N into the sandbox, fast-forward only."""
    with _coordinator() as coordinator:
        commit = coordinator.push(name, show=_show())
        click.echo(f"the sandbox is at {commit[:10]}")


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--offline", is_flag=True, help="Do not ask Daytona for the sandboxes' states.")
@click.option("--exit-code", is_flag=True, help="Exit with 10 if the work of any session is not here.")
def status(as_json: bool, offline: bool, exit_code: bool) -> int:
    """List the sessions of this repository: number, branch, sandbox and its state, and how the last sync went."""
    from git_daytona import say
    from git_daytona import status as statuses
    from git_daytona.errors import GitDaytonaError, TransferFailed

    with _coordinator(anywhere=True) as coordinator:
        try:
            rows = statuses.rows(coordinator, offline=offline)
        except GitDaytonaError as problem:
            say.warning(PROGRAM, f"{problem.message}; the sandboxes' states are not shown")
            rows = statuses.rows(coordinator, offline=True)
        if as_json:
            click.echo(json.dumps(rows, indent=2))
        elif not rows:
            say.note("no sessions here yet; start one: git daytona start")
        else:
            for row in rows:
                said = f"{row['gitReturn']}: {row['message']}" if row["message"] else str(row["gitReturn"])
                click.echo(f"{row['number'] or '-'}\t{row['branch'] or '-'}\t{row['sandboxId']}\t{row['sandboxState']}\t{said}")
        bad = exit_code and any(statuses.verdict(session) for session in coordinator.sessions())
        return TransferFailed.status if bad else 0


@cli.command()
@click.option(
    "--timeout", type=click.FloatRange(0, 86400), default=300.0, show_default=True, metavar="S", help="Give up after S seconds."
)
@click.argument("name", metavar="N")
def wait(timeout: float, name: str) -> None:
    """Wait until what a session is busy with has ended and its work is here.

    Exits with 0 when it is (or nothing is synced), with 10 when the last sync failed, with 18 when the time is over.
    """
    from git_daytona import status as statuses

    with _coordinator() as coordinator:
        click.echo(statuses.wait(coordinator, name, timeout))


@cli.command()
@click.option("--force", is_flag=True, help="Delete it even if its work cannot be brought back.")
@click.argument("name", metavar="N")
def delete(force: bool, name: str) -> None:
    """Sync a session once more, then delete its sandbox. Branch opencode/N stays."""
    from git_daytona import say

    with _coordinator(anywhere=True) as coordinator:
        outcome = coordinator.delete(name, force=force, show=_show())
        if outcome is None:
            say.note("there was nothing to bring back any more")
        else:
            _tell(outcome)
        click.echo("deleted")


@cli.command()
def recover() -> int:
    """Make good what an interrupted process left: tokens, half-made sandboxes, work that did not come back."""
    from git_daytona import recovery, say
    from git_daytona.errors import GitDaytonaError

    with _coordinator(anywhere=True) as coordinator:
        found = recovery.recover(coordinator)
        for line in found.done:
            click.echo(line)
        for line in found.failed:
            say.warning(PROGRAM, line)
        if not found.done and not found.failed:
            say.note("there was nothing to recover")
        return GitDaytonaError.status if found.failed else 0


@cli.command()
@click.option("--dry-run", "-n", is_flag=True, help="Only say what would be removed.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def prune(dry_run: bool, yes: bool) -> None:
    """Remove what nobody uses any more: sandboxes of this machine without a session, remotes without a sandbox, stale leases.

    A sandbox without a session may hold work that is nowhere else: 'git daytona adopt' takes it over instead.
    """
    from git_daytona import recovery, say

    with _coordinator(anywhere=True) as coordinator:
        found = recovery.leftovers(coordinator)
        for info in found.sandboxes:
            click.echo(f"sandbox {info.id} ({info.state}, created {info.created_at or 'at an unknown time'})")
        for remote in found.remotes:
            click.echo(f"remote {remote}")
        if found.leases:
            click.echo(f"{found.leases} stale leases")
        if not found:
            say.note("there is nothing to prune")
        elif not dry_run:
            if not yes:
                click.confirm("Remove all of this, with what is in those sandboxes?", abort=True, err=True)
            recovery.prune(coordinator, found)
            click.echo("pruned")


@cli.command()
@click.argument("sandbox")
def adopt(sandbox: str) -> None:
    """Make a session of this repository from an existing SANDBOX, and bring its work back."""
    from git_daytona import recovery

    with _coordinator() as coordinator:
        started = recovery.adopt(coordinator, sandbox)
        names = started.names
        click.echo(f"session {names.number}: sandbox {started.session.sandbox_id}, branch {names.branch}")


@cli.command()
@click.option("--follow", "-f", is_flag=True, help="Go on printing what is added, until Ctrl-C.")
@click.option(
    "--lines", "-n", type=click.IntRange(0), default=50, show_default=True, metavar="COUNT", help="How many of the last lines."
)
def logs(follow: bool, lines: int) -> None:
    """Print the end of the log."""
    from git_daytona import log

    for line in log.tail(lines, follow=follow):
        click.echo(line)


for command in (upkeep.install, upkeep.uninstall, upkeep.doctor, hosts.serve, hosts.hook):
    cli.add_command(command)
