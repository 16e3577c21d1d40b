"""``git daytona fork, snapshot``: more sessions from the state of one."""

import re

import click

from git_daytona.base import messages
from git_daytona.base.errors import UsageError
from git_daytona.cli import common, provisions, work
from git_daytona.cli.options import number
from git_daytona.git.refs import number_in
from git_daytona.sessions.start import new_id

WITH_FILES = (
    "hint: with its files: git daytona snapshot {0} NAME, then git daytona start --like {0} "
    "--snapshot NAME {1}"
)


@click.command()
@number(
    "--count",
    metavar="COUNT",
    within=(1, 20),
    default=1,
    help="Start so many, for several attempts from one point.",
)
@click.option("--title", metavar="TEXT", help="What 'git daytona status' shall call them.")
@common.session
def fork(count: int, title: str | None, name: str) -> None:
    """Start another session from the state of one, with a number, sandbox and branch of its own.

    What is pending in the session's sandbox is committed and synced first, and both go on from
    there. Where Daytona can copy a sandbox, which depends on its class, the new one is a copy, with
    ignored files and installed packages; else it has what is on opencode/N. Programs that run do
    not come along.
    """
    with common.coordinator(step="forking") as coordinator:
        origin = coordinator.find(name)
        _ = origin.names  # raises NoRepository
        for _ in range(count):
            called = title or origin.title or None
            started = work.begin(coordinator, new_id(), called, origin=origin.id)
            session = started.session
            place = f"sandbox {session.sandbox_id}, branch {session.branch}"
            click.echo(f"session {session.name} started: {place}")
            common.warn_of_dangers(coordinator, session)
            coordinator.state.take_notice(session.id)  # which says the same, to an agent
            messages.note(started.forked)
            if started.remark:
                common.warn(started.remark)
            provisions.tell(coordinator, session)
            if not coordinator.sandboxes.is_copy(session.sandbox_id):
                messages.note(WITH_FILES.format(origin.name, origin.branch))


@click.command("snapshot")
@click.argument("name", metavar="[N]", required=False, shell_complete=common.complete_sessions)
@click.argument("snapshot", metavar="NAME", required=False)
def snapshot_(name: str | None, snapshot: str | None) -> None:
    """Make a snapshot of a session's sandbox, by that NAME, for new sandboxes to be made from.

    It has all that is in the sandbox: installed packages, ignored files, and what is secret there.
    A session that is started from it begins with HEAD, not with the other one's work. Programs that
    run are not in it.
    """
    if snapshot is None:
        name, snapshot = None, name
        if snapshot is None or number_in(snapshot):  # of the session, most likely
            raise UsageError("the snapshot needs a name", hint="git daytona snapshot [N] NAME")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}", snapshot):
        hint = "use letters, digits and . _ : / -"
        raise UsageError("the name of the snapshot is not valid", hint=hint)
    with common.coordinator(anywhere=True) as coordinator:
        session = coordinator.snapshot(name or "", snapshot)
        click.echo(f"snapshot {snapshot} made of session {session.name}")
        messages.note(
            "it holds all files of the sandbox, with what is secret in them, for everybody in your "
            f"organisation\nhint: use it: git config daytona.snapshot {snapshot}"
        )
