"""What the commands of ``git daytona`` share: the coordinator of the repository we stand in, and how an outcome is told."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from git_daytona.sessions import Coordinator
    from git_daytona.sync import Outcome

PROGRAM = "git-daytona"


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem[str]]":
    from git_daytona.cli.completing import sessions

    return sessions(context, parameter, incomplete)


def _complete_port(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem[str]]":
    from git_daytona.cli.completing import ports

    return ports(context, parameter, incomplete)


port = click.argument("port", required=False, type=click.IntRange(1, 65535), shell_complete=_complete_port)
"""A port of the session's sandbox."""
session = click.argument("name", metavar="N", shell_complete=_complete)
"""The session that a command is for."""


@contextmanager
def coordinator(*, anywhere: bool = False) -> Iterator["Coordinator"]:
    """The coordinator of the repository we stand in; with ``anywhere`` also of a directory without one."""
    from git_daytona import git, log, recovery, say
    from git_daytona.config import settings
    from git_daytona.errors import NoRepository
    from git_daytona.progress import Progress
    from git_daytona.sessions import Coordinator

    log.to_file()
    recovery.scrub_old_log()
    place: git.Repository | Path
    try:
        place = git.discover(git.here())
        directory = place.worktree
    except NoRepository:
        if not anywhere:
            raise
        place = directory = git.here()
    found = settings.load(directory)
    for line in found.warnings:
        say.warning(PROGRAM, line)
    with Progress() as progress:
        made = Coordinator(place, found, progress)
        try:
            yield made
        finally:
            made.close()
            for line in (*made.state.warnings, *made.policy.warnings):
                say.warning(PROGRAM, line)


def waiting(coordinator: "Coordinator", line: str) -> None:
    """What the user waits for next; it is only told if it takes its time."""
    from git_daytona.progress import Progress

    if isinstance(coordinator.tell, Progress):
        coordinator.tell.quietly(line)


def show() -> bool:
    """Whether git's progress goes to the terminal."""
    return sys.stderr.isatty()


def tell(outcome: "Outcome") -> None:
    """What came back, and each thing that was kept, on a line of its own."""
    from git_daytona import say
    from git_daytona.secret import printable

    click.echo(printable(outcome.message))
    for kept in outcome.kept:
        say.note(f"kept: {kept.what}\nhint: git log {kept.ref}")
