"""``git daytona recover, prune, adopt, logs``: after something went wrong."""

import click

from git_daytona.cli import common


@click.command(short_help="Make good what an interrupted process left")
def recover() -> int:
    """Make good what an interrupted process left: tokens, half-made sandboxes, work that did not
    come back."""
    from git_daytona.base import messages
    from git_daytona.base.errors import GitDaytonaError
    from git_daytona.sessions import recovery

    with common.coordinator(anywhere=True) as coordinator:
        found = recovery.recover(coordinator)
        for line in found.done:
            click.echo(line)
        for line in found.failed:
            messages.warning(common.PROGRAM, line)
        if not found.done and not found.failed:
            messages.note("there was nothing to recover")
        return GitDaytonaError.status if found.failed else 0


@click.command(short_help="Remove sandboxes, remotes and leases that nobody uses")
@click.option("--dry-run", "-n", is_flag=True, help="Only say what would be removed.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def prune(dry_run: bool, yes: bool) -> None:
    """Remove what nobody uses any more: sandboxes of this machine without a session, remotes
    without a sandbox, stale leases.

    With 'git config daytona.keptAge 90.days' also what syncs kept under refs/daytona/kept/ longer
    ago than that.

    A sandbox without a session may hold work that is nowhere else: 'git daytona adopt' takes it
    over instead.
    """
    from git_daytona.base import messages
    from git_daytona.sessions import recovery

    with common.coordinator(anywhere=True) as coordinator:
        found = recovery.leftovers(coordinator)
        for info in found.sandboxes:
            click.echo(
                f"sandbox {info.id} ({info.state}, created "
                f"{info.created_at or 'at an unknown time'})"
            )
        for remote in found.remotes:
            click.echo(f"remote {remote}")
        for ref, oid in found.kept.items():
            click.echo(f"{ref} ({oid[:10]})")
        if found.leases:
            click.echo(f"{found.leases} stale leases")
        if not found:
            messages.note("there is nothing to prune")
        elif not dry_run:
            if not yes:
                click.confirm("Remove all of this, with what is in it?", abort=True, err=True)
            recovery.prune(coordinator, found)
            click.echo("pruned")


@click.command(short_help="Make a session from an existing sandbox")
@click.argument("sandbox")
def adopt(sandbox: str) -> None:
    """Make a session of this repository from an existing SANDBOX, and bring its work back."""
    from git_daytona.sessions import recovery

    with common.coordinator() as coordinator:
        started = recovery.adopt(coordinator, sandbox)
        names = started.session.names
        click.echo(
            f"session {names.number}: sandbox {started.session.sandbox_id}, branch {names.branch}"
        )


@click.command(short_help="Print the end of the log")
@click.option("--follow", "-f", is_flag=True, help="Go on printing what is added, until Ctrl-C.")
@click.option(
    "--lines",
    "-n",
    type=click.IntRange(0),
    default=50,
    show_default=True,
    metavar="COUNT",
    help="How many of the last lines.",
)
def logs(follow: bool, lines: int) -> None:
    """Print the end of the log."""
    from git_daytona.base import log

    for line in log.tail(lines, follow=follow):
        click.echo(line)
