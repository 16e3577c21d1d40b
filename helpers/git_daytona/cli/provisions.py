"""``git daytona allow, setup``: what a repository wants to run in its sandboxes, and running it."""

import sys

import click

from git_daytona.base import messages, progress
from git_daytona.base.errors import NotFound, SandboxCommandFailed
from git_daytona.base.secret import printable
from git_daytona.cli import common
from git_daytona.cli.options import flag
from git_daytona.sessions import consent, devcontainer
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.sessions.provision import FAILED, RUNNING, WAITING
from git_daytona.sessions.state import Session


@click.command()
@flag("--show", help="Only show what would run.")
@flag("--revoke", help="Take back all consent in this repository.")
@click.argument("ref", required=False, default="")
def allow(show: bool, revoke: bool, ref: str) -> None:
    """Show what the devcontainer.json of REF (HEAD) wants to run in sandboxes, and allow it.

    It runs in the sandbox of each new session, and of those that wait for it with their next
    command. What counts is committed; when it changes, it is asked for again. Scripts and programs
    that the commands start are the project's, and may change.
    """
    if revoke and (show or ref):
        raise click.UsageError("--revoke is for all, and alone")
    with common.coordinator() as coordinator:
        if revoke:
            count = consent.revoke(coordinator.git_dir)
            click.echo(f"revoked: {count}; what sandboxes have already, they keep")
            return
        commit = coordinator.repository.commit(ref or "HEAD")
        plan = coordinator.provision.plan(commit)
        if plan is None:
            raise NotFound(
                f"there is no {' or '.join(devcontainer.FILES)} in {printable(ref or 'HEAD')}",
                hint="what counts is committed; name another commit: git daytona allow REF",
            )
        click.echo(f"{plan.path} at {commit[:10]}:")
        for line in plan.described():
            click.echo(f"  {line}")
        if show or not plan.wanted:
            return
        consent.allow(coordinator.git_dir, plan)
        messages.note(f"allowed{_waiting(coordinator)}")


def _waiting(coordinator: Coordinator) -> str:
    waiting = [each.name for each in coordinator.sessions() if each.setup.state == WAITING]
    return f"\nhint: at once: git daytona setup {waiting[0]}" if waiting else ""


@click.command()
@common.session
def setup(name: str) -> None:
    """Run the set-up of the project's devcontainer.json in the session's sandbox, from its
    beginning, and wait for its end; copy the files of daytona.copyFiles there, too.

    New sessions have it run by themselves, once you have allowed it (git daytona allow). Ctrl-C
    leaves it running.
    """
    with common.coordinator(step="setting up") as coordinator:
        session = coordinator.find(name)
        _ = session.names  # raises NoRepository
        with coordinator.one_at_a_time(session.id):
            again = coordinator.provision.again
            session = coordinator.awake(session, lambda _: again(coordinator.find(session.id)))
        if session.setup.state == RUNNING or session.setup.run:
            _follow(coordinator, session)
        session = coordinator.find(session.id)
        if session.setup.state == FAILED:
            raise SandboxCommandFailed(
                f"the set-up of session {session.name}: {session.setup.message}",
                hint=f"look into it: git daytona shell {session.name}",
            )
        click.echo("set up")
        if session.setup.message:
            common.warn(session.setup.message)


def print_log(name: str, *, follow: bool) -> None:
    """Print the output of a session's set-up; with ``follow`` until it ends."""
    with common.coordinator(step="reading the log") as coordinator:
        session = coordinator.find(name)
        if not session.setup.run:
            hint = "see what would: git daytona allow --show"
            raise NotFound(f"no set-up has run in the sandbox of session {session.name}", hint=hint)
        if not _follow(coordinator, session, once=not follow):
            messages.note("the set-up's log in the sandbox is empty, or was removed there")


def tell(coordinator: Coordinator, session: Session) -> None:
    """Say where a new session's set-up stands; on a terminal follow it, until Ctrl-C."""
    session = coordinator.find(session.id)
    if session.setup.state == RUNNING and sys.stderr.isatty():
        messages.note("the project's set-up runs in the sandbox; Ctrl-C leaves it to go on there")
        try:
            _follow(coordinator, session, err=True)
        except KeyboardInterrupt:
            messages.note("")
        session = coordinator.find(session.id)
    for line in coordinator.provision.said(session):
        messages.note(line)


def _follow(
    coordinator: Coordinator, session: Session, *, once: bool = False, err: bool = False
) -> bool:
    """Print what a set-up writes; return whether that is anything."""
    shown = False

    def show(data: bytes) -> None:
        nonlocal shown
        shown = shown or bool(data)
        progress.give_way()
        text = data.decode("utf-8", "backslashreplace").replace("\r\n", "\n").replace("\r", "\n")
        click.echo(printable(text), nl=False, err=err)

    def work(_: str) -> None:
        provision = coordinator.provision
        provision.follow(coordinator.find(session.id), show, over=lambda: once)

    coordinator.awake(session, work)
    return shown
