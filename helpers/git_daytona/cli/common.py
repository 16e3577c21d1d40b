"""What the commands of ``git daytona`` share: the coordinator of the repository we stand in, and
how an outcome is told."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from git_daytona.sessions.coordinator import Coordinator
    from git_daytona.sessions.sync import Outcome

PROGRAM = "git-daytona"


def _complete(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> "list[CompletionItem[str]]":
    from git_daytona.cli.completion import sessions

    return sessions(context, parameter, incomplete)


def _complete_port(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> "list[CompletionItem[str]]":
    from git_daytona.cli.completion import ports

    return ports(context, parameter, incomplete)


port = click.argument(
    "port", required=False, type=click.IntRange(1, 65535), shell_complete=_complete_port
)
"""A port of the session's sandbox."""
session = click.argument("name", metavar="N", shell_complete=_complete)
"""The session that a command is for."""


@contextmanager
def coordinator(*, anywhere: bool = False) -> Iterator["Coordinator"]:
    """The coordinator of the repository we stand in; with ``anywhere`` also of a directory without
    one."""
    from git_daytona.base import log, messages
    from git_daytona.base.errors import NoRepository
    from git_daytona.base.progress import Progress
    from git_daytona.git import repository
    from git_daytona.sessions import recovery
    from git_daytona.sessions.coordinator import Coordinator
    from git_daytona.settings import settings

    log.to_file()
    recovery.scrub_old_log()
    place: repository.Repository | Path
    try:
        place = repository.discover(repository.here())
        directory = place.worktree
    except NoRepository:
        if not anywhere:
            raise
        place = directory = repository.here()
    found = settings.load(directory)
    for line in found.warnings:
        messages.warning(PROGRAM, line)
    with Progress() as progress:
        made = Coordinator(place, found, progress, show=sys.stderr.isatty())
        try:
            yield made
        finally:
            made.close()
            for line in (*made.state.warnings, *made.policy.warnings):
                messages.warning(PROGRAM, line)


def waiting(coordinator: "Coordinator", line: str) -> None:
    """What the user waits for next; it is only told if it takes its time."""
    from git_daytona.base.progress import Progress

    if isinstance(coordinator.tell, Progress):
        coordinator.tell.quietly(line)


def tell(outcome: "Outcome") -> None:
    """What came back, and each thing that was kept, on a line of its own."""
    from git_daytona.base import messages
    from git_daytona.base.secret import printable

    click.echo(printable(outcome.message))
    for kept in outcome.kept:
        messages.note(f"kept: {kept.what}\nhint: git log {kept.ref}")
