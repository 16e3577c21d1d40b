"""``git daytona install, uninstall, config, completion``: OpenCode, settings and shells."""

from collections.abc import Callable
from functools import partial
from importlib import resources
from pathlib import Path

import click

from git_daytona.agents import install as agents
from git_daytona.agents.table import AGENTS
from git_daytona.base import messages, paths
from git_daytona.base.errors import BadSetting, GitDaytonaError, NoRepository
from git_daytona.base.secret import printable
from git_daytona.cli import options
from git_daytona.cli.options import F
from git_daytona.cli.setting_rows import collect
from git_daytona.git import repository
from git_daytona.opencode import install, registration

warn = partial(messages.warning, "git-daytona")
SCRIPTS = {"bash": "bash/git-daytona", "zsh": "zsh/_git-daytona", "fish": "fish/git-daytona.fish"}


def _scope(command: F) -> F:
    """Whose configuration of OpenCode is changed."""
    project = "The configuration of this repository."
    everywhere = "The configuration for all projects."
    command = click.option("--global", "scope", flag_value="global", help=everywhere)(command)
    return click.option("--project", "scope", flag_value="project", help=project)(command)


KINDS = click.Choice(("opencode", *AGENTS))
_whose = click.option(
    "--agent", metavar="NAME", type=KINDS, default="opencode", help="Another agent's."
)


@click.command("install")
@options.dry_run
@_scope
@_whose
def install_(scope: str | None, dry_run: bool, agent: str) -> None:
    """Add the plugin to OpenCode's configuration, and show the change: to that for all projects,
    or to this repository's if it has one.

    Everything else in the file stays as it is. A plugin of another installation of git-daytona is
    replaced. For another agent its hooks, the MCP server and rules against its own tools are added:
    see git-daytona-agents(7).
    """
    if agent in AGENTS:
        worktree = _worktree(scope, partial(agents.is_of_project, AGENTS[agent]))
        for change in agents.install(AGENTS[agent], worktree):
            options.make(change, dry_run)
        messages.note(f"hint: what is covered, and what is not: git daytona doctor --agent {agent}")
        return
    if not (registration.PLUGIN / "index.js").is_file():
        hint = "install git-daytona again"
        raise BadSetting(f"the plugin file '{registration.PLUGIN}' is missing", hint=hint)
    worktree = _worktree(scope, registration.is_of_project)
    change = install.install(worktree)
    for spec in change.replaced:
        messages.note(f"replaced: '{spec}', a plugin of another installation")
    options.make(change, dry_run)
    if change and worktree is not None:
        named = "a file of this machine, and forbids OpenCode's own tools where that is missing"
        messages.note(f"note: '{change.path.name}' now names {named}")
        messages.note("hint: for all projects, in no file of theirs: git daytona install --global")
    for line in install.rivals(worktree or _here(), Path.cwd(), change.path):
        warn(line)


@click.command()
@options.dry_run
@_scope
@_whose
def uninstall(scope: str | None, dry_run: bool, agent: str) -> None:
    """Take the plugin out of OpenCode's configuration again, and show the change: out of this
    repository's if that has it, else out of that for all projects.

    A file that 'install' made and nobody changed is removed. Exits with 1 if the plugin is not
    there.
    """
    if agent in AGENTS:
        worktree = _worktree(scope, partial(agents.uninstall, AGENTS[agent]))
        found = agents.uninstall(AGENTS[agent], worktree)
        if not found:
            raise GitDaytonaError(
                f"there is nothing of git-daytona in {AGENTS[agent].title}'s configuration",
                hint="look into the other one: --global, or --project",
            )
        for change in found:
            options.make(change, dry_run)
            if change.after is None and not dry_run:
                agents.remove_empty(change.path, {worktree or paths.home(), paths.home()})
        return
    worktree = _worktree(scope, install.uninstall)
    changes = install.uninstall(worktree)
    if not changes:
        which = f"the {scope} one" if scope else "neither the project's nor the global one"
        raise GitDaytonaError(
            f"OpenCode's configuration does not name the plugin ({which})",
            hint="'git daytona doctor' shows where OpenCode finds it, if it does",
        )
    for change in changes:
        options.make(change, dry_run)


def _worktree(scope: str | None, has_one: Callable[[Path], object]) -> Path | None:
    """Find the worktree that is meant, without a scope if it ``has_one``; None: all projects."""
    if scope == "project":
        return repository.need_worktree(repository.discover(Path.cwd()))
    worktree = None if scope else _here()
    return worktree if worktree and has_one(worktree) else None


def _here() -> Path | None:
    """Find the worktree that we stand in, if it can be used."""
    try:
        return repository.need_worktree(repository.discover(Path.cwd()))
    except NoRepository:
        return None


@click.command()
@options.as_json
def config(as_json: bool) -> int:
    """Show every setting, its value, and where it came from: environment, .env, git's
    configuration, keyring or default.

    Preferences that trust does not depend on are set by git itself: git config daytona.NAME VALUE.
    See git-daytona(1) for them.
    """
    found, rows, problems = collect()
    for warning in found.warnings:
        warn(warning)
    if as_json:
        options.print_json([row.document() for row in rows])
    else:
        values = [printable(row.value) if row.value is not None else "-" for row in rows]
        name_width, value_width = max(len(row.name) for row in rows), min(44, max(map(len, values)))
        for row, value in zip(rows, values, strict=True):
            click.echo(f"{row.name:{name_width}}  {value:{value_width}}  {row.source}".rstrip())
    for problem in problems:
        messages.error("git-daytona", problem)
    return BadSetting.status if problems else 0


@click.command()
@click.argument("shell", type=click.Choice(tuple(SCRIPTS)))
def completion(shell: str) -> None:
    """Print the script that completes git daytona and the other programs in SHELL.

    An installation from a wheel has it in its share folder, where the shells find it if the
    installation is the system's. Otherwise: for bash add 'eval "$(git-daytona completion bash)"' to
    ~/.bashrc, for zsh 'source <(git-daytona completion zsh)' to ~/.zshrc behind compinit, for fish
    save it as ~/.config/fish/conf.d/git-daytona.fish.
    """
    script = resources.files("git_daytona").joinpath("completions", SCRIPTS[shell])
    click.echo(script.read_text("utf-8"), nl=False)
