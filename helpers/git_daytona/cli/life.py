"""``git daytona stop, resume``: a sandbox that sleeps, and is there again."""

import click

from git_daytona.cli import choice, common
from git_daytona.cli.choice import Chosen
from git_daytona.cli.options import flag
from git_daytona.sessions.coordinator import Coordinator


@click.command()
@flag("--no-sync", help="Bring nothing back before.")
@choice.sessions
def stop(no_sync: bool, chosen: Chosen) -> int:
    """Bring a session's work back, then stop its sandbox: files stay, what runs in it ends.

    The next command or tool call that needs the sandbox starts it again.
    """
    with common.coordinator(anywhere=True, step="stopping") as coordinator:
        return chosen.each(coordinator, lambda name: _stopped(coordinator, name, not no_sync))


def _stopped(coordinator: Coordinator, name: str, synced: bool) -> str:
    outcome = coordinator.stop(name, synced=synced)
    return "stopped" if outcome is None else f"{common.told(outcome)}\nstopped"


@click.command()
@choice.sessions
def resume(chosen: Chosen) -> int:
    """Start a session's sandbox again, if it does not run."""
    with common.coordinator(anywhere=True, step="starting") as coordinator:
        return chosen.each(
            coordinator, lambda name: "started" if coordinator.resume(name) else "it runs already"
        )
