"""Several sessions in one command: ``N...`` and ``--all``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from git_daytona.base import messages
from git_daytona.base.errors import GitDaytonaError, UsageError
from git_daytona.base.secret import printable
from git_daytona.cli import boundary, common, options
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.sessions.state import Session


@dataclass(frozen=True)
class Chosen:
    """The sessions that a command line names; none of them: the one that is meant."""

    names: tuple[str, ...]
    all: bool = False

    def find(
        self, coordinator: Coordinator, among: Callable[[Session], bool] = lambda _: True
    ) -> list[str]:
        """List the names of these sessions, none of them twice; ``--all`` are those ``among``
        which it makes sense. Raises UsageError, and NotFound where there is no session."""
        if self.all:
            if self.names:
                raise UsageError("--all and N exclude each other", hint="leave one of them out")
            return [each.name for each in coordinator.sessions() if among(each)]
        if not self.names:
            return [coordinator.find_anywhere("").name]
        found: dict[str, str] = {}
        for name in self.names:
            found.setdefault(coordinator.identified(name), name)
        return list(found.values())

    def each(
        self,
        coordinator: Coordinator,
        work: Callable[[str], str | None],
        among: Callable[[Session], bool] = lambda _: True,
    ) -> int:
        """Work on one session after the other, and print what each piece of work returns.

        Of several each line says whose it is, and one that fails does not keep the others from
        their turn. Return 0, or the status of the first failure.
        """
        return one_by_one(self.find(coordinator, among), work)


def one_by_one(
    names: Sequence[str], work: Callable[[str], str | None], none: str = "no sessions here yet"
) -> int:
    """Work on sessions as ``Chosen.each`` does; say so where there are none."""
    if not names:
        messages.note(none)
    if len(names) == 1:
        _show(work(names[0]))
        return 0
    statuses = []
    for name in names:
        try:
            _show(work(name), f"session {printable(name)}: ")
        except GitDaytonaError as problem:
            told = problem.but(message=f"session {name}: {problem.message}")
            statuses.append(boundary.report(told, "git-daytona"))
    return statuses[0] if statuses else 0


def _show(text: str | None, begin: str = "") -> None:
    for line in (text or "").splitlines():
        click.echo(f"{begin}{line}")


def sessions(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the arguments ``[N...]`` and ``--all``, as ``chosen``."""

    @wraps(function)
    def invoke(*, names: tuple[str, ...], everyone: bool, **others: Any) -> Any:
        return function(chosen=Chosen(names, everyone), **others)

    several = click.argument(
        "names", metavar="[N]...", nargs=-1, shell_complete=common.complete_sessions
    )
    everyone = options.flag("--all", "everyone", help="All sessions of this repository.")
    return several(everyone(invoke))
