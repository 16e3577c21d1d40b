"""``git daytona status``: the sessions of this repository."""

import json

import click

from git_daytona.cli import common


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--offline", is_flag=True, help="Do not ask Daytona for the sandboxes' states.")
@click.option("--exit-code", is_flag=True, help="Exit with 10 if the work of any session is not here.")
def status(as_json: bool, offline: bool, exit_code: bool) -> int:
    """List the sessions of this repository: number, branch, sandbox and its state, and how the last sync went."""
    from git_daytona import say
    from git_daytona import status as statuses
    from git_daytona.errors import GitDaytonaError, TransferFailed

    with common.coordinator(anywhere=True) as coordinator:
        try:
            rows = statuses.rows(coordinator, offline=offline)
        except GitDaytonaError as problem:
            say.warning(common.PROGRAM, f"{problem.message}; the sandboxes' states are not shown")
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
