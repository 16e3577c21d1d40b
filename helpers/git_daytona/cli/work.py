"""``git daytona start, exec, shell, cp, sync, fetch, push, wait, delete``: a session's life."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import click

from git_daytona.agents import command_line
from git_daytona.base import messages
from git_daytona.base.errors import CutShort, GitDaytonaError, UsageError
from git_daytona.base.secret import printable
from git_daytona.cli import common, options
from git_daytona.cli.options import flag, number
from git_daytona.git import repository
from git_daytona.sessions import copy, shell, status
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.sessions.state import Session
from git_daytona.sessions.sync import Outcome

LEFT_OUT = 20
"""How many names of what `cp` leaves out are shown."""


@click.command()
@click.option(
    "--session", metavar="ID", help="The session's id, if a client such as OpenCode gave it one."
)
@click.option("--title", metavar="TEXT", help="What 'git daytona status' shall call it.")
@flag(
    "--no-sync",
    help="A sandbox with an empty project, also where there is no repository; nothing is synced.",
)
def start(session: str | None, title: str | None, no_sync: bool) -> None:
    """Start a session: a sandbox with HEAD in it, and branch opencode/N for what comes back.

    Starting a session that exists is safe: it makes good what an earlier start left undone.
    """
    with common.coordinator(anywhere=no_sync) as coordinator:
        started = coordinator.start(session, synced=not no_sync)
        if title is not None:
            coordinator.state.set_title(started.session.id, title)
        if started.replaced:
            common.warn("the session's sandbox was gone; what it had not synced is lost")
        name, rest = started.session.id, "nothing is synced"
        if started.session.number is not None:
            names = started.session.names
            name, rest = str(names.number), f"branch {names.branch}"
        word = "started" if started.new else "already there"
        click.echo(f"session {name} {word}: sandbox {started.session.sandbox_id}, {rest}")
        common.warn_of_dangers(coordinator, started.session)


@click.command("exec", context_settings=options.PASSING_ON)
@number("--timeout", metavar="S", within=(1, 86400), default=3600, help="End it after S seconds.")
@click.option(
    "--for-agent",
    metavar="DIR",
    help="As hooks write it: N is the session id of an agent that works in DIR, and its session is "
    "started at first; DIR and COMMAND are percent-encoded.",
)
@common.session
@options.command
def exec_(timeout: int, for_agent: str | None, name: str, command: tuple[str, ...]) -> int:
    """Run COMMAND in the session's project directory, and exit with its status.

    Several words are one command with its arguments; a single word is a shell command line. It runs
    at most once, with standard input closed; what it prints comes when it has ended.
    """
    line = command[0] if len(command) == 1 else shlex.join(command)
    place = None
    if for_agent is not None:
        place, line = Path(_decoded("DIR", for_agent)), _decoded("COMMAND", line)
    with common.coordinator(place, anywhere=True, step="running the command") as coordinator:
        session: Session | str = name
        if place is not None:
            session = _agents_session(coordinator, name)
            line = _there(coordinator.directory, place) + line
        try:
            result, notice = coordinator.execute(session, line, timeout=timeout)
        except CutShort as problem:
            _print_output(problem.output)
            raise
        if notice:
            common.warn(notice)
        _print_output(result.output)
        return result.status


def _decoded(name: str, word: str) -> str:
    try:
        return command_line.decoded(word)
    except ValueError as problem:
        raise UsageError(
            f"{name} is not encoded as a hook does it", hint="leave --for-agent out"
        ) from problem


def _agents_session(coordinator: Coordinator, name: str) -> Session:
    begun = coordinator.ensure(coordinator.state.root_of(name) or name)
    if begun.new:
        messages.note(f"in a sandbox of session {begun.session.number or begun.session.id}")
        common.warn_of_dangers(coordinator, begun.session)
    return begun.session


def _there(project: Path, place: Path) -> str:
    """Return the beginning of a command line that goes to where it runs here, or where its agent
    works, in the project there."""
    root = project.resolve()
    for folder in (repository.here().resolve(), place.resolve()):
        if folder.is_relative_to(root):
            inner = folder.relative_to(root)
            return f"cd -- {shlex.quote(str(inner))} || exit\n" if inner.parts else ""
    return ""


def _print_output(output: str) -> None:
    sys.stdout.write(printable(output) if sys.stdout.isatty() else output)


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
    for line in done.left_out[:LEFT_OUT]:
        common.warn(f"left out: {line}")
    if len(done.left_out) > LEFT_OUT:
        common.warn(f"left out: {len(done.left_out) - LEFT_OUT} more")
    if done.repositories:
        unnamed = len(done.repositories) - LEFT_OUT
        more = f" and {unnamed} more" if unnamed > 0 else ""
        names = ", ".join(done.repositories[:LEFT_OUT])
        messages.note(f"without {names}{more}: history comes by git daytona sync")
    messages.note(f"{done.files} {'file' if done.files == 1 else 'files'} copied")
    return GitDaytonaError.status if done.left_out else 0


@click.command()
@common.session
def sync(name: str) -> None:
    """Commit what is pending in the sandbox and bring all of it back to opencode/N.

    What that would overwrite here is kept under refs/daytona/kept/ and named.
    """
    _bring_back(name, "syncing", Coordinator.sync)


@click.command()
@common.session
def fetch(name: str) -> None:
    """Fetch the sandbox's branches into sandbox-N/*, and leave opencode/N where it is."""
    _bring_back(name, "fetching from", Coordinator.fetch)


def _bring_back(name: str, doing: str, bring: Callable[..., Outcome]) -> None:
    with common.coordinator(step=f"{doing} session {name}") as coordinator:
        common.print_outcome(bring(coordinator, name))


@click.command()
@common.session
def push(name: str) -> None:
    """Push the local branch opencode/N into the sandbox, fast-forward only."""
    with common.coordinator(step=f"pushing to session {name}") as coordinator:
        commit = coordinator.push(name)
        click.echo(f"the sandbox is at {commit[:10]}")


@click.command()
@number("--timeout", metavar="S", within=(0, 86400), default=300.0, help="Give up after S seconds.")
@common.session
def wait(timeout: float, name: str) -> None:
    """Wait until what a session is busy with has ended and its work is here, and bring back what no
    sync has brought yet.

    Exits with 0 when it is (or nothing is synced), with 10 when the last sync failed, with 18 when
    the time is over.
    """
    with common.coordinator() as coordinator:
        click.echo(status.wait(coordinator, name, timeout))


@click.command()
@flag("--force", help="Delete it even if its work cannot be brought back now.")
@flag("--forget", help="Only forget the session: for one whose Daytona is no more.")
@flag("--cancel", help="Keep a session whose deletion did not succeed.")
@common.session
def delete(force: bool, forget: bool, cancel: bool, name: str) -> None:
    """Sync a session once more, then delete its sandbox. Branch opencode/N stays.

    A deletion that does not succeed is tried again by 'git daytona recover' and by the next start
    of OpenCode, after a sync, until it succeeds, the session is used again, or --cancel. With
    --forget nothing is asked of Daytona, and the sandbox stays as it is.
    """
    if force + forget + cancel > 1:
        raise UsageError(
            "--force, --forget and --cancel exclude each other",
            hint="see 'git daytona delete --help'",
        )
    with common.coordinator(anywhere=True) as coordinator:
        if cancel:
            was = coordinator.keep(name)
            click.echo("kept" if was else "kept; there was no deletion to take back")
            return
        if forget:
            session = coordinator.forget(name)
            click.echo("forgotten")
            if session is not None:
                place = f" of {printable(session.api_url)}" if session.api_url else ""
                messages.note(f"sandbox {printable(session.sandbox_id)}{place} was left as it is")
            return
        outcome = coordinator.delete(name, force=force)
        if outcome is None:
            messages.note("there was nothing to bring back any more")
        else:
            common.print_outcome(outcome)
        click.echo("deleted")
