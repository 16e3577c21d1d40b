"""``git daytona …``: sessions, for people. Imports what is heavy only inside the commands, so that ``--help`` is quick."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from git_daytona import __version__

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
def _coordinator() -> Iterator["Coordinator"]:
    from git_daytona import git, log, say, settings
    from git_daytona.sessions import Coordinator

    log.to_file()
    repository = git.discover(Path.cwd())
    found = settings.load(repository.worktree)
    for line in found.warnings:
        say.warning(PROGRAM, line)
    coordinator = Coordinator(repository, found, say.note)
    try:
        yield coordinator
    finally:
        coordinator.close()
        for line in coordinator.policy.warnings:
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
def start(session: str | None) -> None:
    """Start a session: a sandbox with HEAD in it, and branch opencode/N for what comes back.

    Starting a session that exists is safe: it makes good what an earlier start left undone.
    """
    from git_daytona import say

    with _coordinator() as coordinator:
        started = coordinator.start(session, show=_show())
        if started.replaced:
            say.warning(PROGRAM, "the session's sandbox was gone; what it had not synced is lost")
        names = started.names
        word = "started" if started.new else "already there"
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
    with _coordinator() as coordinator:
        line = command[0] if len(command) == 1 else shlex.join(command)
        result = coordinator.execute(name, line, timeout=timeout)
        output = result.output
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
def status(as_json: bool, offline: bool) -> None:
    """List the sessions of this repository: number, branch, sandbox and its state, and how the last sync went."""
    from git_daytona import say
    from git_daytona.errors import GitDaytonaError
    from git_daytona.sessions import status_rows

    with _coordinator() as coordinator:
        try:
            rows = status_rows(coordinator, offline=offline)
        except GitDaytonaError as problem:
            say.warning(PROGRAM, f"{problem.message}; the sandboxes' states are not shown")
            rows = status_rows(coordinator, offline=True)
        if as_json:
            click.echo(json.dumps(rows, indent=2))
            return
        if not rows:
            say.note("no sessions here yet; start one: git daytona start")
        for row in rows:
            message = f": {row['message']}" if row["message"] else ""
            click.echo(f"{row['number']}\t{row['branch']}\t{row['sandboxId']}\t{row['sandboxState']}\t{row['gitReturn']}{message}")


@cli.command()
@click.option("--force", is_flag=True, help="Delete it even if its work cannot be brought back.")
@click.argument("name", metavar="N")
def delete(force: bool, name: str) -> None:
    """Sync a session once more, then delete its sandbox. Branch opencode/N stays."""
    from git_daytona import say

    with _coordinator() as coordinator:
        outcome = coordinator.delete(name, force=force, show=_show())
        if outcome is None:
            say.note("the sandbox was gone already" if not force else "its last work could not be brought back")
        else:
            _tell(outcome)
        click.echo("deleted")
