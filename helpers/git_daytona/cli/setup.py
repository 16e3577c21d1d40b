"""``git daytona install``, ``uninstall`` and ``doctor``: whether OpenCode uses the suite, and
whether all that takes part is well."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from git_daytona.opencode.install import Change

PROGRAM = "git-daytona"
LOG_LINES = 200
"""Of the log that go into a report."""


def _scope(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--dry-run", "-n", is_flag=True, help="Only show the change."),
        click.option(
            "--project",
            "scope",
            flag_value="project",
            help="The configuration of this repository (the default).",
        ),
        click.option(
            "--global", "scope", flag_value="global", help="The configuration for all projects."
        ),
    ):
        command = option(command)
    return command


@click.command(short_help="Add the plugin to OpenCode's configuration")
@_scope
def install(scope: str | None, dry_run: bool) -> None:
    """Add the plugin to OpenCode's configuration, and show the change.

    Everything else in the file stays as it is. A plugin of another installation of git-daytona is
    replaced.
    """
    from git_daytona.base import messages
    from git_daytona.base.errors import BadSetting
    from git_daytona.opencode import install as installing
    from git_daytona.opencode import registration

    if not (registration.PLUGIN / "index.js").is_file():
        raise BadSetting(
            f"the plugin file '{registration.PLUGIN}' is missing", hint="install git-daytona again"
        )
    worktree = _worktree(scope)
    change = installing.install(worktree)
    for spec in change.replaced:
        messages.note(f"replaced: '{spec}', a plugin of another installation")
    if not change:
        messages.note(f"nothing to do: '{change.path}' has it already")
    else:
        _make(change, dry_run)
        if worktree is not None:
            messages.note(f"note: '{change.path.name}' now names a file of this machine")
            messages.note(
                "hint: in a repository that others use, too, better: git daytona install --global"
            )
    for line in installing.rivals(worktree, Path.cwd(), change.path):
        messages.warning(PROGRAM, line)


@click.command(short_help="Take the plugin out of it again")
@_scope
def uninstall(scope: str | None, dry_run: bool) -> int:
    """Take the plugin out of OpenCode's configuration again, and show the change.

    A file that 'install' made and nobody changed is removed. Exits with 1 if the plugin is not
    there.
    """
    from git_daytona.base.errors import GitDaytonaError
    from git_daytona.opencode import install as installing

    worktree = _worktree(scope)
    changes = installing.uninstall(worktree)
    if not changes:
        which, other = ("project", "global") if worktree is not None else ("global", "project")
        raise GitDaytonaError(
            f"OpenCode's {which} configuration does not name the plugin",
            hint=f"look into the other one: git daytona uninstall --{other}",
        )
    for change in changes:
        _make(change, dry_run)
    return 0


def _worktree(scope: str | None) -> Path | None:
    """The worktree whose configuration is meant; None for the one of all projects."""
    if scope == "global":
        return None
    from git_daytona.base.errors import NoRepository
    from git_daytona.git import repository

    try:
        return repository.need_worktree(repository.discover(Path.cwd()))
    except NoRepository as problem:
        if scope is None:
            problem.hint = f"{problem.hint}; or, for all projects: --global"
        raise


def _make(change: "Change", dry_run: bool) -> None:
    from git_daytona.base import messages

    click.echo(change.diff())
    if not dry_run:
        change.make()
    verb = "removed" if change.after is None else "written" if change.before is None else "changed"
    messages.note(f"'{change.path}' would be {verb}" if dry_run else f"{verb}: '{change.path}'")


@click.command(short_help="Check the whole chain, and say what to do")
@click.option("--json", "as_json", is_flag=True, help="Print a list of JSON objects.")
@click.option(
    "--bundle",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Write a report for a bug report, without secrets.",
)
@click.option(
    "--live",
    is_flag=True,
    help="Also run OpenCode once, in a scratch project, and look where its agent acts.",
)
def doctor(as_json: bool, bundle: str | None, live: bool) -> int:
    """Check the whole chain, from OpenCode to the gateway's host key, and say what to do where a
    link fails.

    Changes nothing. Exits with 1 if a link fails; warnings do not count. --bundle writes what it
    found, versions, settings, sessions and the end of the log into a new FILE: no keys, tokens or
    titles; read it before you pass it on. --live needs no account and no model: a Daytona and a
    model of its own run on this machine meanwhile.
    """
    from git_daytona import doctor as practice
    from git_daytona.base import log
    from git_daytona.cli.daytona_local import embedded, isolation_here

    log.to_file()
    # before the examination adds its own
    lines = list(log.tail(LOG_LINES)) if bundle is not None else []
    found = []
    for finding in practice.examine(Path.cwd(), isolation_here, embedded if live else None):
        found.append(finding)
        if not as_json:
            click.echo(str(finding))
    if as_json:
        click.echo(json.dumps([finding.row() for finding in found], indent=2))
    if bundle is not None:
        _bundle(bundle, [str(finding) for finding in found], lines)
    return int(any(finding.status is practice.Status.FAIL for finding in found))


def _bundle(name: str, findings: list[str], log: list[str]) -> None:
    """Write the report into a new file; by default one in the current directory that is named after
    the moment."""
    import time

    from git_daytona.base import files, messages
    from git_daytona.base.errors import BadSetting, GitDaytonaError, NoRepository
    from git_daytona.cli import configuring
    from git_daytona.doctor import bundle, versions
    from git_daytona.git import repository
    from git_daytona.sessions import state
    from git_daytona.settings import preferences, settings

    try:
        directory = repository.discover(repository.here()).worktree or repository.here()
    except NoRepository:
        directory = repository.here()
    key, config = None, []
    try:
        found = settings.load(directory)
        lines, problems = configuring.collect(found, preferences.load(directory))
        config = [
            f"{line.name}: {line.value or '-'} {f'({line.source})' if line.source else ''}".rstrip()
            for line in lines
        ]
        config += [f"problem: {problem.message}" for problem in problems]
        key = found.api_key()  # held, so that redact() knows it
    except GitDaytonaError as problem:
        config.append(f"problem: {problem.message}")
    text = bundle.report(versions.versions(), findings, config, state.all_sessions(), log)
    del key
    path = Path(name or f"git-daytona-report-{time.strftime('%Y%m%dT%H%M%S')}.txt").absolute()
    if not path.parent.is_dir():
        raise BadSetting(f"there is no directory '{path.parent}'", hint="make it first")
    if not files.write_whole(path, text.encode("utf-8", "backslashreplace"), replace=False):
        raise BadSetting(f"'{path}' exists already", hint="name another file, or remove it")
    messages.note(
        f"written: '{path}'; no keys or tokens are in it, but read it before you pass it on"
    )


@click.command(short_help="Print versions, all that a bug report needs")
@click.option("--verbose", "-v", is_flag=True, help="All of them, not only git-daytona's.")
def version(verbose: bool) -> None:
    """Print the version; with --verbose those of all that takes part: Python, git, ssh, OpenCode,
    packages, system."""
    from git_daytona import __version__

    if not verbose:
        click.echo(f"git-daytona {__version__}")
        return
    from git_daytona.base.secret import printable
    from git_daytona.doctor.versions import versions

    for name, text in versions().items():
        click.echo(f"{name}: {printable(text)}")
