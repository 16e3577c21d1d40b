"""``git daytona log, diff, merge, apply``: plain git on a session's branch. Each prints the git
command that it runs."""

import os
import shlex
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from git_daytona.cli import common

if TYPE_CHECKING:
    from git_daytona.git.refs import Names
    from git_daytona.git.repository import Repository


def _alias(name: str, short_help: str) -> Callable[[Callable[..., int]], click.Command]:
    """A command whose words behind N all go to git, whatever they look like."""

    def make(work: Callable[..., int]) -> click.Command:
        settings = {"ignore_unknown_options": True, "allow_interspersed_args": False}
        rest = click.argument(
            "options", nargs=-1, type=click.UNPROCESSED, metavar="[GIT OPTION | PATH]..."
        )
        return click.command(name, short_help=short_help, context_settings=settings)(
            common.session(rest(work))
        )

    return make


@_alias("log", "Show the commits of a session")
def log(name: str, options: tuple[str, ...]) -> int:
    """Show the commits that opencode/N has over the commit it started from, by 'git log'."""
    repository, names = _session(name, "log")
    return _git("log", _range(repository, names), *options)


@_alias("diff", "Show what a session has changed")
def diff(name: str, options: tuple[str, ...]) -> int:
    """Show the changes of opencode/N against the commit it started from, by 'git diff'."""
    repository, names = _session(name, "diff")
    return _git("diff", _range(repository, names), *options)


@_alias("merge", "Merge opencode/N into the branch you are on")
def merge(name: str, options: tuple[str, ...]) -> int:
    """Merge opencode/N into the branch that is checked out, by 'git merge'."""
    repository, names = _session(name, "merge")
    return _git("merge", *options, _branch(repository, names))


@_alias("apply", "Put a session's changes into your files, uncommitted")
def apply(name: str, options: tuple[str, ...]) -> int:
    """Put the changes of opencode/N since the commit it started from into your files and index,
    without a commit.

    It is 'git apply --3way': what does not fit becomes a conflict to resolve. The options go to
    'git apply'.
    """
    from git_daytona.base import messages

    repository, names = _session(name, "apply")
    # The plumbing's form is the same whatever diff.* is set to. No program of a textconv or a diff
    # driver runs.
    arguments = (
        "diff-tree",
        "-p",
        "--binary",
        "--full-index",
        "--no-ext-diff",
        "--no-textconv",
        _range(repository, names),
    )
    patch = repository.git(*arguments).stdout
    if not patch:
        messages.note(f"{names.branch} has changed nothing since it started")
        return 0
    # In a subdirectory 'git apply' leaves the rest of a patch out without a word.
    place = (
        ("-C", str(repository.worktree)) if repository.worktree not in (None, Path.cwd()) else ()
    )
    command = ("git", *place, "apply", "--3way", *options)
    _tell(f"git {shlex.join(arguments)} | {shlex.join(command)}")
    with tempfile.TemporaryFile() as source:
        source.write(patch)
        source.seek(0)
        return _foreground(command, source.fileno())


# -- inside ----------------------------------------------------------------------------------------


def _session(name: str, verb: str) -> "tuple[Repository, Names]":
    """The repository, and the names of a session whose branch is there. Says so if the sandbox may
    have newer work."""
    from git_daytona.base import messages
    from git_daytona.base.errors import NotFound, UsageError

    if name.startswith("-"):
        raise UsageError(
            f"'{name}' stands where the session belongs",
            hint=f"the session first: git daytona {verb} N {name}",
        )
    with common.coordinator() as coordinator:
        session = coordinator.find(name)
        names, repository = session.names, coordinator.repository
    if names.ref not in repository.refs(names.ref):
        raise NotFound(
            f"there is no local branch '{names.branch}'",
            hint=f"get it: git daytona sync {names.number}",
        )
    if session.needs_sync:
        messages.note(
            f"hint: session {names.number} was used since its last sync; to see that, too: "
            f"git daytona sync {names.number}"
        )
    return repository, names


def _branch(repository: "Repository", names: "Names") -> str:
    """The branch as git shortens it, which begins with no hyphen, and means the branch also where a
    tag has its name."""
    found = repository.git("rev-parse", "--abbrev-ref=strict", names.ref, check=False)
    return found.text if found.status == 0 and found.text else names.ref


def _range(repository: "Repository", names: "Names") -> str:
    from git_daytona.base.errors import NotFound

    if names.base not in repository.refs(names.base):
        raise NotFound(
            f"it is not known from which commit session {names.number} started",
            hint=f"compare it with one of yours: git log HEAD..{names.branch}",
        )
    return f"{names.base}..{_branch(repository, names)}"


def _git(*words: str) -> int:
    _tell(shlex.join(("git", *words)))
    return _foreground(("git", *words))


def _tell(line: str) -> None:
    from git_daytona.base import messages

    messages.note(f"+ {line}")


def _foreground(command: tuple[str, ...], stdin: int | None = None) -> int:
    """Run it as the user would have: own configuration, pager, editor, terminal. Our own variables
    (the key) are none of its business."""
    from git_daytona.base import run

    env = {name: value for name, value in os.environ.items() if not name.startswith("DAYTONA_")}
    return run.foreground(command, env, stdin=stdin)
