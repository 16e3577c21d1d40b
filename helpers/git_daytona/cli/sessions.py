"""``git daytona start, exec, sync, fetch, push, wait, delete``: the life of a session."""

import sys

import click

from git_daytona.cli import common


@click.command(short_help="Start a session: a sandbox with HEAD in it")
@click.option(
    "--session", metavar="ID", help="The session's id, if a host such as OpenCode gave it one."
)
@click.option("--title", metavar="TEXT", help="What 'git daytona status' shall call it.")
@click.option(
    "--no-sync",
    is_flag=True,
    help="A sandbox with an empty project, also where there is no repository; nothing is synced.",
)
def start(session: str | None, title: str | None, no_sync: bool) -> None:
    """Start a session: a sandbox with HEAD in it, and branch opencode/N for what comes back.

    Starting a session that exists is safe: it makes good what an earlier start left undone.
    """
    from git_daytona.base import messages

    with common.coordinator(anywhere=no_sync) as coordinator:
        started = coordinator.start(session, synced=not no_sync)
        if title is not None:
            coordinator.state.set_title(started.session.id, title)
        if started.replaced:
            messages.warning(
                common.PROGRAM, "the session's sandbox was gone; what it had not synced is lost"
            )
        word = "started" if started.new else "already there"
        if started.session.number is None:
            click.echo(
                f"session {started.session.id} {word}: sandbox "
                f"{started.session.sandbox_id}, nothing is synced"
            )
        else:
            names = started.session.names
            click.echo(
                f"session {names.number} {word}: sandbox {started.session.sandbox_id}, "
                f"branch {names.branch}"
            )


@click.command(
    "exec",
    short_help="Run a command in a session's sandbox",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--timeout",
    type=click.IntRange(1, 86400),
    default=3600,
    show_default=True,
    metavar="S",
    help="End it after S seconds.",
)
@common.session
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_(timeout: int, name: str, command: tuple[str, ...]) -> int:
    """Run COMMAND in the session's project directory, and exit with its status.

    Several words are one command with its arguments; a single word is a shell command line. It runs
    at most once, with standard input closed; what it prints comes when it has ended.
    """
    import shlex

    command = command[1:] if command[0] == "--" else command
    if not command:
        raise click.UsageError("Missing argument 'COMMAND...'.")
    from git_daytona.base import messages

    with common.coordinator(anywhere=True) as coordinator:
        line = command[0] if len(command) == 1 else shlex.join(command)
        common.waiting(coordinator, "running the command")
        result, notice = coordinator.execute(name, line, timeout=timeout)
        if notice:
            messages.warning(common.PROGRAM, notice)
        output = result.output
        if sys.stdout.isatty():
            from git_daytona.base.secret import printable

            output = printable(output)
        sys.stdout.write(output)
        return result.status


@click.command(short_help="Bring a session's work back to opencode/N")
@common.session
def sync(name: str) -> None:
    """Commit what is pending in the sandbox and bring all of it back to opencode/N.

    What that would overwrite here is kept under refs/daytona/kept/ and named.
    """
    with common.coordinator() as coordinator:
        common.waiting(coordinator, f"syncing session {name}")
        common.tell(coordinator.sync(name))


@click.command(short_help="Fetch a sandbox's branches into sandbox-N/*, no more")
@common.session
def fetch(name: str) -> None:
    """Fetch the sandbox's branches into sandbox-N/*, and leave opencode/N where it is."""
    with common.coordinator() as coordinator:
        common.waiting(coordinator, f"fetching from session {name}")
        common.tell(coordinator.fetch(name))


@click.command(short_help="Push opencode/N into its sandbox, fast-forward only")
@common.session
def push(name: str) -> None:
    """Push the local branch opencode/N into the sandbox, fast-forward only."""
    with common.coordinator() as coordinator:
        common.waiting(coordinator, f"pushing to session {name}")
        commit = coordinator.push(name)
        click.echo(f"the sandbox is at {commit[:10]}")


@click.command(short_help="Wait until a session's work is here")
@click.option(
    "--timeout",
    type=click.FloatRange(0, 86400),
    default=300.0,
    show_default=True,
    metavar="S",
    help="Give up after S seconds.",
)
@common.session
def wait(timeout: float, name: str) -> None:
    """Wait until what a session is busy with has ended and its work is here.

    Exits with 0 when it is (or nothing is synced), with 10 when the last sync failed, with 18 when
    the time is over.
    """
    from git_daytona.sessions import status as statuses

    with common.coordinator() as coordinator:
        click.echo(statuses.wait(coordinator, name, timeout))


@click.command(short_help="Sync a session a last time and delete its sandbox")
@click.option("--force", is_flag=True, help="Delete it even if its work cannot be brought back.")
@common.session
def delete(force: bool, name: str) -> None:
    """Sync a session once more, then delete its sandbox. Branch opencode/N stays."""
    from git_daytona.base import messages

    with common.coordinator(anywhere=True) as coordinator:
        outcome = coordinator.delete(name, force=force)
        if outcome is None:
            messages.note("there was nothing to bring back any more")
        else:
            common.tell(outcome)
        click.echo("deleted")
