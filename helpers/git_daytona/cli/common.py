"""What the commands of ``git daytona`` that have to do with sessions share."""

import contextlib
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from git_daytona.base import log, messages, threads
from git_daytona.base.errors import GitDaytonaError, UsageError
from git_daytona.base.progress import Progress
from git_daytona.base.secret import printable
from git_daytona.git import repository
from git_daytona.git.refs import number_in
from git_daytona.sandbox import report
from git_daytona.service import previews
from git_daytona.sessions import recovery, state_file
from git_daytona.sessions.branch import Outcome
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.sessions.state import Session

warn = partial(messages.warning, "git-daytona")
PORTS_SECONDS = 2.0
"""How long a person who pressed Tab waits for the ports of a sandbox."""


# -- arguments, and how they are completed: a Tab complains of nothing -----------------------------


def complete_sessions(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> "list[CompletionItem[str]]":
    """Session numbers, each with its branch and how the last sync went."""
    found = []
    with contextlib.suppress(GitDaytonaError, OSError):
        for session in Coordinator.of(repository.here()).sessions():
            branch = f"{session.branch}, " if session.branch else ""
            text = printable(f"{branch}{session.git_return.state}")
            found.append(CompletionItem(session.name, help=text))
    return [item for item in found if item.value.startswith(incomplete)]


def listening(coordinator: Coordinator, sandbox_id: str) -> list[int]:
    """The ports that servers of the user listen on in a sandbox: one API call."""
    return sorted(set(report.ports(coordinator.cloud, sandbox_id)) - previews.DAYTONAS_OWN)


def complete_ports(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> "list[CompletionItem[str]]":
    """The ports in the session's sandbox, which is not started for this."""

    def ask() -> list[int]:
        coordinator = Coordinator.of(repository.here())
        session = coordinator.find(str(context.params.get("name")))
        return listening(coordinator, session.sandbox_id)

    found: list[int] = []
    with contextlib.suppress(threads.Late, GitDaytonaError, OSError):
        found = threads.within(PORTS_SECONDS, ask)
    return [CompletionItem(str(port)) for port in found if str(port).startswith(incomplete)]


port = click.argument(
    "port", required=False, type=click.IntRange(1, 65535), shell_complete=complete_ports
)
"""A port of the session's sandbox."""
session = click.argument(
    "name", metavar="[N]", required=False, default="", shell_complete=complete_sessions
)
"""The session that a command is for; empty for the one that is meant (sessions/choice.py). Several
are in cli/choice.py."""


@contextlib.contextmanager
def coordinator(
    start: Path | None = None, *, anywhere: bool = False, step: str = ""
) -> Iterator[Coordinator]:
    """The coordinator of the repository of a directory, by default the one we are in; with
    ``anywhere`` also of a directory without one.

    The user reads of the step only if it takes its time.
    """
    log.to_file()
    recovery.scrub_old_log()
    with Progress() as progress:
        if step:
            progress.quietly(step)
        directory, show = start or repository.here(), sys.stderr.isatty()
        made = Coordinator.of(directory, anywhere=anywhere, tell=progress, show=show)
        for line in made.settings.warnings:
            warn(line)
        try:
            yield made
        finally:
            made.close()
            for line in (*made.state.warnings, *made.policy.warnings):
                warn(line)


def go_to(name: str) -> str:
    """Go to the repository whose session is meant, for its settings, and name it so that it is
    found there. A number is that of the repository here; where there is none, since the program
    that started us may be anywhere, that of one session alone. Raises UsageError."""
    number = number_in(name)
    if number is not None and repository.find(repository.here()):
        return name
    found = _called({name, number} - {None})
    if number is not None and len(found) > 1:
        hint = f"name the sandbox: that of '{found[0].worktree}' is {found[0].sandbox_id}"
        raise UsageError(f"there are {len(found)} sessions {number} on this machine", hint=hint)
    for each in found:
        if Path(each.worktree).is_dir():
            os.chdir(each.worktree)
        return each.sandbox_id
    return name


def _called(names: set[str | int | None]) -> list[Session]:
    """The sessions of this machine that have one of these numbers or sandboxes' ids."""
    every = (each for each in state_file.all_sessions() if each.sandbox_id)
    return [each for each in every if names & {each.number, each.sandbox_id}]


def warn_of_dangers(coordinator: Coordinator, session: Session) -> None:
    """Say what may end the session's sandbox by itself, while there is time to sync."""
    for line in coordinator.dangers(session):
        warn(f"session {session.name}: {line}")


def told(outcome: Outcome) -> str:
    """Say of each thing that was kept where it is; return the line on what came back."""
    for kept in outcome.kept:
        messages.note(f"kept: {kept.what}\nhint: git log {kept.ref}")
    return printable(outcome.message)
