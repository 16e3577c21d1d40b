"""``git daytona doctor, version, recover, adopt, prune``: what is wrong, and making it good."""

import time
from datetime import datetime
from pathlib import Path

import click

from git_daytona import __version__
from git_daytona.agents.table import AGENTS
from git_daytona.api.account import moment
from git_daytona.api.cloud import SandboxInfo
from git_daytona.base import files, log, messages
from git_daytona.base.errors import BadSetting, Elsewhere, GitDaytonaError
from git_daytona.base.secret import printable
from git_daytona.cli import common, options
from git_daytona.cli.daytona_local import embedded, isolation_here
from git_daytona.cli.setting_rows import collect
from git_daytona.cli.table import age
from git_daytona.doctor import agents, examine
from git_daytona.doctor.bundle import report
from git_daytona.doctor.findings import Status
from git_daytona.doctor.versions import versions
from git_daytona.sandbox import ownership
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
@click.option(
    "--agent",
    metavar="NAME",
    type=click.Choice(tuple(AGENTS)),
    help="Another agent's configuration: what is covered, and what is not.",
)
def doctor(as_json: bool, bundle: str | None, live: bool, agent: str | None) -> int:
    """Check the whole chain, from OpenCode to the gateway's host key, and say what to do where a
    link fails.

    Changes nothing. Exits with 1 if a link fails; warnings do not count. --bundle writes what it
    found, versions, settings, sessions and the end of the log into a new FILE: no keys, tokens or
    titles; read it before you pass it on. --live needs no account and no model: a Daytona and a
    model of its own run on this machine meanwhile. --agent reads
    another agent's configuration instead of all this: see git-daytona-agents(7).
    """
    log.to_file()
    # before the examination adds its own
    lines = list(log.tail(LOG_LINES)) if bundle is not None else []
    found = []
    checks = examine(Path.cwd(), isolation_here, embedded if live else None)
    for finding in checks if agent is None else agents.examine(AGENTS[agent], Path.cwd()):
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
        for line in (*found.failed, *found.away):
            common.warn(line)
        if not found.done and not found.failed and not found.away:
            messages.note("there was nothing to recover")
        if found.failed:
            return GitDaytonaError.status
        return Elsewhere.status if found.away else 0


@click.command()
@click.argument("sandbox")
def adopt(sandbox: str) -> None:
    """Make a session of this repository from an existing SANDBOX, and bring its work back."""
    with common.coordinator() as coordinator:
        started = recovery.adopt(coordinator, sandbox)
        names = started.session.names
        sandbox_id = started.session.sandbox_id
        click.echo(f"session {names.number}: sandbox {sandbox_id}, branch {names.branch}")
        info = coordinator.cloud.known(sandbox_id)
        if info and info.labels.get(ownership.INSTALLATION) != ownership.installation():
            messages.note(f"it is of {ownership.owner(info)}, where it may be in use, too")
        common.warn_of_dangers(coordinator, started.session)


@click.command()
@options.dry_run
@options.yes
@click.argument("sandbox", nargs=-1)
def prune(dry_run: bool, yes: bool, sandbox: tuple[str, ...]) -> None:
    """Remove what nobody uses any more: sandboxes that were made here and have no session, remotes
    without a sandbox, stale leases; or the sandboxes that are named, and nothing else.

    With 'git config daytona.keptAge 90.days' also what syncs kept under refs/daytona/kept/ longer
    ago than that.

    Sandboxes of others, or of nobody known, are listed and stay, unless they are named. A sandbox
    without a session may hold work that is nowhere else: 'git daytona adopt' takes it over instead.
    """
    with common.coordinator(anywhere=True) as coordinator:
        found = recovery.leftovers(coordinator)
        if sandbox:
            found = found.only(sandbox)
        for problem in recovery.left_alone(coordinator):
            messages.note(f"left alone: {problem.message}")
        _print_leftovers(found)
        if not found:
            messages.note("there is nothing to prune")
        elif not dry_run:
            if not yes:
                click.confirm("Remove all of this, with what is in it?", abort=True, err=True)
            recovery.prune(coordinator, found)
            click.echo("pruned")


def _print_leftovers(found: recovery.Leftovers) -> None:
    for info in found.others:
        messages.note(f"left alone: {_others(info)}")
    for remote in found.other_remotes:
        messages.note(f"left alone: remote {remote}, of another installation or an earlier version")
    if found.others:
        messages.note("hint: one that its owner has given up: git daytona prune SANDBOX")
    for info in found.sandboxes:
        created = info.created_at or "at an unknown time"
        click.echo(f"sandbox {info.id} ({info.state}, created {created})")
    for remote in found.remotes:
        click.echo(f"remote {remote}")
    for ref, oid in found.kept.items():
        click.echo(f"{ref} ({oid[:10]})")
    if found.leases:
        click.echo(f"{found.leases} stale leases")


def _others(info: SandboxInfo) -> str:
    """Return a sandbox of somebody else's in one line, with its age."""
    how_old = "of unknown age"
    if created := moment(info.created_at, datetime.fromisoformat):
        how_old = f"{age(int(created.timestamp() * 1000), state.now())} old"
    return f"sandbox {info.id} ({info.state}, {how_old}), of {ownership.owner(info)}"
