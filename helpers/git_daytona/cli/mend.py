"""``git daytona doctor, version, recover, adopt, prune``: what is wrong, and making it good."""

import time
from datetime import datetime
from pathlib import Path

import click

from git_daytona import __version__
from git_daytona.agents.table import AGENTS
from git_daytona.api.account import moment
from git_daytona.api.cloud import SandboxInfo
from git_daytona.base import files, log, messages, paths
from git_daytona.base.errors import BadSetting, Elsewhere, GitDaytonaError, UsageError
from git_daytona.base.secret import printable
from git_daytona.cli import checks, common, options, screen
from git_daytona.cli.daytona_local import embedded, isolation_here
from git_daytona.cli.setting_rows import collect
from git_daytona.cli.table import age
from git_daytona.doctor import agents, examine
from git_daytona.doctor.bundle import report
from git_daytona.doctor.findings import Finding, Status
from git_daytona.doctor.versions import versions
from git_daytona.sandbox import ownership
from git_daytona.sessions import recovery, state, state_file

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
    examined = examine(Path.cwd(), isolation_here, embedded if live else None)
    if agent is not None:
        examined = agents.examine(AGENTS[agent], Path.cwd())
    if as_json:
        found = [*examined]
        options.print_json([finding.row() for finding in found])
    else:
        found = [*map(_shown, examined)]
    if bundle is not None:
        _write_report(bundle, list(map(checks.text, found)), lines)
    return int(any(finding.status is Status.FAIL for finding in found))


def _shown(finding: Finding) -> Finding:
    """Print a finding as soon as it is made."""
    colour = screen.colour(None, Path.cwd())
    text = checks.text(finding, columns=screen.columns(), colour=colour)
    click.echo(text, color=colour)
    return finding


def _write_report(name: str, findings: list[str], log_lines: list[str]) -> None:
    """Write the report into a new file, by default one with our own state, named by the moment."""
    key, config = None, []
    try:
        found, rows, problems = collect()
        config = [*map(str, rows), *(f"problem: {problem.message}" for problem in problems)]
        key = found.api_key()  # held, so that redact() knows it
    except GitDaytonaError as problem:
        config.append(f"problem: {problem.message}")
    text = report(versions(), findings, config, state_file.all_sessions(), log_lines)
    del key
    by_moment = time.strftime("git-daytona-report-%Y%m%dT%H%M%S.txt")
    path = Path(name).absolute() if name else paths.own_state() / by_moment
    if name and not path.parent.is_dir():
        raise BadSetting(f"there is no directory '{path.parent}'", hint="make it first")
    if not files.write_whole(path, text.encode("utf-8", "backslashreplace"), replace=False):
        raise BadSetting(f"'{path}' exists already", hint="name another file, or remove it")
    remark = "no keys or tokens are in it, but read it before you pass it on"
    messages.note(f"written: '{path}'; {remark}")


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
        away = Elsewhere.status if found.away else 0
        return GitDaytonaError.status if found.failed else away


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
@options.flag("--force", help="Remove the sandboxes that are named with all that is in them.")
@click.argument("sandbox", nargs=-1)
def prune(dry_run: bool, yes: bool, force: bool, sandbox: tuple[str, ...]) -> int:
    """Remove what nobody uses any more: sandboxes that were made here for this repository and have
    no session, remotes without a sandbox, stale leases; or the sandboxes that are named, and
    nothing else.

    With 'git config daytona.keptAge 90.days' also what syncs kept under refs/daytona/kept/ longer
    ago than that.

    The work in a sandbox comes back first, as with 'git daytona delete'; one from which it cannot
    stays, as a session. Sandboxes of other repositories, of others, or of nobody known, are listed
    and stay, unless they are named: then they go with what is in them.
    """
    if force and not sandbox:
        raise UsageError("--force is for sandboxes that are named", hint="name each SANDBOX")
    with common.coordinator(anywhere=True) as coordinator:
        found = recovery.leftovers(coordinator)
        if sandbox:
            found = found.only(sandbox, force=force)
        for problem in recovery.left_alone(coordinator):
            messages.note(f"left alone: {problem.message}")
        _print_leftovers(found, coordinator.settings.api_url)
        if not found:
            messages.note("there is nothing to prune")
        elif not dry_run:
            options.confirm("Remove all of this?", yes)
            result = recovery.prune(coordinator, found)
            for line in result.done:
                click.echo(printable(line))
            for line in result.failed:
                common.warn(line)
            if result.failed:
                return GitDaytonaError.status
            click.echo("pruned")
        return 0


def _print_leftovers(found: recovery.Leftovers, api_url: str) -> None:
    for info in found.others:
        messages.note(f"left alone: {_sandbox(info)}, of {ownership.owner(info)}")
    for remote in found.other_remotes:
        messages.note(f"left alone: remote {remote}, of another installation or an earlier version")
    if found.others:
        messages.note("hint: one that its owner has given up: git daytona prune SANDBOX")
    for info in (*found.sandboxes, *found.given_up):
        lost = ", with all that is in it" if info in found.given_up else ""
        click.echo(_sandbox(info, ownership.title(api_url, info.id)) + lost)
    for remote in found.remotes:
        click.echo(f"remote {remote}")
    for ref, oid in found.kept.items():
        click.echo(f"{ref} ({oid[:10]})")
    if found.leases:
        click.echo(f"{found.leases} stale leases")


def _sandbox(info: SandboxInfo, title: str = "") -> str:
    """Return a sandbox in one line: its state, its age, and what is known of its session."""
    how_old = "of unknown age"
    if created := moment(info.created_at, datetime.fromisoformat):
        how_old = f"{age(int(created.timestamp() * 1000), state.now())} old"
    known = {"repository": ownership.repository(info), "title": title}
    words = "".join(f", {what} '{name}'" for what, name in known.items() if name)
    return f"sandbox {info.id} ({info.state}, {how_old}){words}"
