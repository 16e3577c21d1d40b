"""``git daytona doctor, version, recover, adopt, prune``: what is wrong, and making it good."""

import time
from pathlib import Path

import click

from git_daytona import __version__
from git_daytona.base import files, log, messages
from git_daytona.base.errors import BadSetting, GitDaytonaError
from git_daytona.base.secret import printable
from git_daytona.cli import common, options
from git_daytona.cli.daytona_local import embedded, isolation_here
from git_daytona.cli.setting_rows import collect
from git_daytona.doctor import examine
from git_daytona.doctor.bundle import report
from git_daytona.doctor.findings import Status
from git_daytona.doctor.versions import versions
from git_daytona.sessions import recovery, state

LOG_LINES = 200
"""Of the log that go into a report."""


@click.command()
@options.as_json
@click.option(
    "--bundle",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Write a report for a bug report, without secrets.",
)
@options.flag(
    "--live", help="Also run OpenCode once, in a scratch project, and look where its agent acts."
)
def doctor(as_json: bool, bundle: str | None, live: bool) -> int:
    """Check the whole chain, from OpenCode to the gateway's host key, and say what to do where a
    link fails.

    Changes nothing. Exits with 1 if a link fails; warnings do not count. --bundle writes what it
    found, versions, settings, sessions and the end of the log into a new FILE: no keys, tokens or
    titles; read it before you pass it on. --live needs no account and no model: a Daytona and a
    model of its own run on this machine meanwhile.
    """
    log.to_file()
    # before the examination adds its own
    lines = list(log.tail(LOG_LINES)) if bundle is not None else []
    found = []
    for finding in examine(Path.cwd(), isolation_here, embedded if live else None):
        found.append(finding)
        if not as_json:
            click.echo(str(finding))
    if as_json:
        options.print_json([finding.row() for finding in found])
    if bundle is not None:
        _write_report(bundle, [str(finding) for finding in found], lines)
    return int(any(finding.status is Status.FAIL for finding in found))


def _write_report(name: str, findings: list[str], log_lines: list[str]) -> None:
    """Write the report into a new file, by default one here that is named after the moment."""
    key, config = None, []
    try:
        found, rows, problems = collect()
        config = [*map(str, rows), *(f"problem: {problem.message}" for problem in problems)]
        key = found.api_key()  # held, so that redact() knows it
    except GitDaytonaError as problem:
        config.append(f"problem: {problem.message}")
    text = report(versions(), findings, config, state.all_sessions(), log_lines)
    del key
    path = Path(name or time.strftime("git-daytona-report-%Y%m%dT%H%M%S.txt")).absolute()
    if not path.parent.is_dir():
        raise BadSetting(f"there is no directory '{path.parent}'", hint="make it first")
    if not files.write_whole(path, text.encode("utf-8", "backslashreplace"), replace=False):
        raise BadSetting(f"'{path}' exists already", hint="name another file, or remove it")
    messages.note(
        f"written: '{path}'; no keys or tokens are in it, but read it before you pass it on"
    )


@click.command()
@options.flag("--verbose", "-v", help="All of them, not only git-daytona's.")
def version(verbose: bool) -> None:
    """Print the version; with --verbose those of all that takes part, such as git and ssh."""
    if not verbose:
        click.echo(f"git-daytona {__version__}")
        return
    for name, text in versions().items():
        click.echo(f"{name}: {printable(text)}")


@click.command()
def recover() -> int:
    """Make good what an interrupted process left: tokens, half-made sandboxes, work that did not
    come back."""
    with common.coordinator(anywhere=True) as coordinator:
        found = recovery.recover(coordinator)
        for line in found.done:
            click.echo(line)
        for line in found.failed:
            common.warn(line)
        if not found.done and not found.failed:
            messages.note("there was nothing to recover")
        return GitDaytonaError.status if found.failed else 0


@click.command()
@click.argument("sandbox")
def adopt(sandbox: str) -> None:
    """Make a session of this repository from an existing SANDBOX, and bring its work back."""
    with common.coordinator() as coordinator:
        started = recovery.adopt(coordinator, sandbox)
        names = started.session.names
        click.echo(
            f"session {names.number}: sandbox {started.session.sandbox_id}, branch {names.branch}"
        )


@click.command()
@options.dry_run
@options.yes
def prune(dry_run: bool, yes: bool) -> None:
    """Remove what nobody uses any more: sandboxes of this machine without a session, remotes
    without a sandbox, stale leases.

    With 'git config daytona.keptAge 90.days' also what syncs kept under refs/daytona/kept/ longer
    ago than that.

    A sandbox without a session may hold work that is nowhere else: 'git daytona adopt' takes it
    over instead.
    """
    with common.coordinator(anywhere=True) as coordinator:
        found = recovery.leftovers(coordinator)
        for sandbox, name in found.spared.items():
            common.warn(f"sandbox {sandbox} stays: '{name}' names it, and cannot be read")
        for info in found.sandboxes:
            created = info.created_at or "at an unknown time"
            click.echo(f"sandbox {info.id} ({info.state}, created {created})")
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
