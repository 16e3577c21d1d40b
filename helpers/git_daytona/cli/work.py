"""``git daytona start, shell, cp, sync, fetch, push, wait, stop, resume, delete``."""

import sys
import time
from functools import partial
from typing import Any

import click

from git_daytona.base import messages
from git_daytona.base.errors import GitDaytonaError, UsageError
from git_daytona.base.secret import printable
from git_daytona.cli import choice, common, ordering, provisions
from git_daytona.cli.choice import Chosen
from git_daytona.cli.options import flag, number
from git_daytona.sessions import copy, recovery, shell, status
from git_daytona.sessions.beginning import Beginning
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.sessions.start import Started, new_id
from git_daytona.settings.order import Order

LEFT_OUT = 20
"""How many names of what `cp` leaves out are shown."""


@click.command()
@click.option(
    "--session", metavar="ID", help="The session's id, if a client such as OpenCode gave it one."
)
@click.option("--title", metavar="TEXT", help="What 'git daytona status' shall call it.")
@click.option(
    "--like",
    metavar="N",
    default="",
    shell_complete=common.complete_sessions,
    help="Order the sandbox as that of session N.",
)
@flag("--dirty/--no-dirty", default=None, help="Take uncommitted and untracked work along.")
@number(
    "--depth",
    metavar="COUNT",
    within=(0, 10000),
    default=0,
    help="Generations of the history that the sandbox gets; 0: all.",
)
@flag(
    "--no-sync",
    help="A sandbox with an empty project, also where there is no repository; nothing is synced.",
)
@click.argument("ref", required=False, default="")
@ordering.options
def start(
    session: str | None,
    title: str | None,
    like: str,
    dirty: bool | None,
    depth: int,
    no_sync: bool,
    ref: str,
    order: Order,
) -> None:
    """Start a session: a sandbox with REF (HEAD) in it, and branch opencode/N for what comes back.

    Starting a session that exists is safe: it makes good what an earlier start left undone.
    """
    if (ref and dirty) or (no_sync and (ref or dirty or depth)):
        raise UsageError(
            "REF, --dirty and --depth do not go with --no-sync, nor REF with --dirty",
            hint="see 'git daytona start -h'",
        )
    session, beginning = session or new_id(), Beginning(ref, dirty, depth)
    with common.coordinator(anywhere=no_sync) as coordinator:
        if like:
            other, lacking = coordinator.like(like)
            order = order.over(other)
            if lacking:
                common.warn(lacking)
        started = begin(
            *(coordinator, session, title), synced=not no_sync, beginning=beginning, order=order
        )
        _print_start(coordinator, started)


def begin(coordinator: Coordinator, session: str, title: str | None, **how: Any) -> Started:
    """Start a session as ``Coordinator.start`` does. Interrupted, it says how to go on."""
    try:
        started = coordinator.start(session, **how)
    except KeyboardInterrupt as end:
        raise KeyboardInterrupt(recovery.way_on(coordinator, session)) from end
    if title is not None:
        coordinator.state.set_title(started.session.id, title)
    return started


def _print_start(coordinator: Coordinator, started: Started) -> None:
    if started.replaced:
        common.warn("the session's sandbox was gone; what it had not synced is lost")
    if started.remark:
        common.warn(started.remark)
    name, branch = started.session.name, started.session.branch
    rest = f"branch {branch}" if branch else "nothing is synced"
    word = "started" if started.new else "already there"
    click.echo(f"session {name} {word}: sandbox {started.session.sandbox_id}, {rest}")
    common.warn_of_dangers(coordinator, started.session)
    if started.new and branch:
        provisions.tell(coordinator, started.session)
    if started.new and (line := coordinator.stays_here(started.session)):
        messages.note(line)


@click.command("shell")
@common.session
def shell_(name: str) -> int:
    """Open a shell in the project directory of the session's sandbox, and exit with its status.

    On a terminal it is a whole one: keys, Ctrl-C and the window's size go there. Otherwise it reads
    commands from standard input. It may stay open as long as you like; what you change there comes
    back with the next sync.
    """
    with common.coordinator(anywhere=True) as coordinator:
        session = coordinator.find(name)
        exit_status = shell.shell(coordinator, session.id)
        if session.number is not None and sys.stdin.isatty():
            messages.note(f"hint: bring back what you changed: git daytona sync {session.number}")
        return exit_status


@click.command()
@flag("--recursive", "-r", help="Nothing: a directory is always copied whole; taken from habit.")
@click.argument("source")
@click.argument("target")
def cp(recursive: bool, source: str, target: str) -> int:
    """Copy a file or directory: SOURCE or TARGET is N:PATH, a path in the session's sandbox,
    relative to its project.

    What is there is overwritten, as cp does; an existing directory gets it below its own name. A
    directory comes out of a sandbox without .git. Links that lead out of it, devices and pipes are
    left out and named, and the exit status then is 1.
    """
    from_, to = copy.place(source), copy.place(target)
    if (from_.session is None) == (to.session is None):
        raise UsageError(
            "one of the two has to be in a sandbox, and one here",
            hint="git daytona cp N:PATH TARGET, or git daytona cp SOURCE N:PATH; a name with a "
            "colon: ./a:b",
        )
    with common.coordinator(anywhere=True, step="copying") as coordinator:
        if from_.session is not None:
            done = copy.copy_out(coordinator, from_.session, from_.path, to.path)
        else:
            done = copy.copy_in(coordinator, to.session or "", from_.path, to.path)
    unnamed = len(done.left_out) - LEFT_OUT
    for line in (*done.left_out[:LEFT_OUT], *([f"{unnamed} more"] if unnamed > 0 else ())):
        common.warn(f"left out: {line}")
    if done.repositories:
        unnamed = len(done.repositories) - LEFT_OUT
        more = f" and {unnamed} more" if unnamed > 0 else ""
        names = ", ".join(done.repositories[:LEFT_OUT])
        messages.note(f"without {names}{more}: history comes by git daytona sync")
    messages.note(f"{done.files} {'file' if done.files == 1 else 'files'} copied")
    return GitDaytonaError.status if done.left_out else 0


@click.command()
@choice.sessions
def sync(chosen: Chosen) -> int:
    """Commit what is pending in the sandbox and bring all of it back to opencode/N.

    What that would overwrite here is kept under refs/daytona/kept/ and named.
    """
    with common.coordinator(step="syncing") as coordinator:
        return chosen.each(
            coordinator,
            lambda name: common.told(coordinator.sync(name)),
            among=lambda session: session.number is not None,
        )


@click.command()
@common.session
def fetch(name: str) -> None:
    """Fetch the sandbox's branches into sandbox-N/*, and leave opencode/N where it is."""
    with common.coordinator(step="fetching") as coordinator:
        click.echo(common.told(coordinator.fetch(name)))


@click.command()
@common.session
def push(name: str) -> None:
    """Push the local branch opencode/N into the sandbox, fast-forward only."""
    with common.coordinator(step="pushing") as coordinator:
        commit = coordinator.push(name)
        click.echo(f"the sandbox is at {commit[:10]}")


@click.command()
@number("--timeout", metavar="S", within=(0, 86400), default=300.0, help="Give up after S seconds.")
@choice.sessions
def wait(timeout: float, chosen: Chosen) -> int:
    """Wait until what a session is busy with has ended and its work is here, and bring back what no
    sync has brought yet.

    Exits with 0 when it is (or nothing is synced), with 10 when the last sync failed, with 18 when
    the time is over.
    """
    with common.coordinator() as coordinator:
        until = time.monotonic() + timeout
        return chosen.each(coordinator, lambda name: status.wait(coordinator, name, until))


@click.command()
@flag("--no-sync", help="Bring nothing back before.")
@choice.sessions
def stop(no_sync: bool, chosen: Chosen) -> int:
    """Bring a session's work back, then stop its sandbox: files stay, what runs in it ends.

    The next command or tool call that needs the sandbox starts it again.
    """
    with common.coordinator(anywhere=True, step="stopping") as coordinator:

        def stopped(name: str) -> str:
            outcome = coordinator.stop(name, synced=not no_sync)
            return f"{common.told(outcome)}\nstopped" if outcome else "stopped"

        return chosen.each(coordinator, stopped)


@click.command()
@choice.sessions
def resume(chosen: Chosen) -> int:
    """Start a session's sandbox again, if it does not run."""
    with common.coordinator(anywhere=True, step="starting") as coordinator:
        return chosen.each(
            coordinator,
            lambda name: "started" if coordinator.resume(name) else "it runs already",
        )


@click.command()
@flag("--force", help="Delete it even if its work cannot be brought back now.")
@flag("--forget", help="Only forget the session: for one whose Daytona is no more.")
@flag("--cancel", help="Keep a session whose deletion did not succeed.")
@flag("--merged", help="All whose branch is merged into HEAD or its upstream.")
@choice.sessions
def delete(force: bool, forget: bool, cancel: bool, merged: bool, chosen: Chosen) -> int:
    """Sync a session once more, then delete its sandbox. Branch opencode/N stays.

    A deletion that does not succeed is tried again by 'git daytona recover' and by the next start
    of OpenCode, after a sync, until it succeeds, the session is used again, or --cancel. With
    --forget nothing is asked of Daytona, and the sandbox stays as it is.
    """
    if merged and (force or forget or cancel or chosen != Chosen(())):
        raise click.UsageError("--merged is for all sessions, and alone")
    if force + forget + cancel > 1:
        raise click.UsageError("--force, --forget, --cancel and --merged exclude each other")
    with common.coordinator(anywhere=not merged, step="deleting") as coordinator:
        if merged:
            names = [each.name for each in coordinator.sessions() if coordinator.is_merged(each)]
            work = partial(_deleted, coordinator, merged=True)
            return choice.one_by_one(names, work, none="no session has its work merged")
        act = _kept if cancel else _forgotten if forget else partial(_deleted, force=force)
        return chosen.each(coordinator, partial(act, coordinator))


def _kept(coordinator: Coordinator, name: str) -> str:
    return "kept" if coordinator.keep(name) else "kept; there was no deletion to take back"


def _forgotten(coordinator: Coordinator, name: str) -> str:
    session = coordinator.forget(name)
    if session is not None:
        place = f" of {printable(session.api_url)}" if session.api_url else ""
        messages.note(f"sandbox {printable(session.sandbox_id)}{place} was left as it is")
    return "forgotten"


def _deleted(
    coordinator: Coordinator, name: str, *, force: bool = False, merged: bool = False
) -> str:
    outcome = coordinator.delete(name, force=force, merged=merged)
    if outcome is None:
        messages.note("there was nothing to bring back any more")
        return "deleted"
    return f"{common.told(outcome)}\ndeleted"
