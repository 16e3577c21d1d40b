"""``git daytona shell, open, cp``: a person's own way into a sandbox."""

import os
import sys

import click

from git_daytona.cli import common

LEFT_OUT = 20
"""How many names of what is left out are told."""


@click.command(short_help="Open a shell in a session's sandbox")
@common.session
def shell(name: str) -> int:
    """Open a shell in the project directory of the session's sandbox, and exit with its status.

    On a terminal it is a whole one: keys, Ctrl-C and the window's size go there. Otherwise it reads
    commands from standard input. It may stay open as long as you like; what you change there comes
    back with the next sync.
    """
    from git_daytona.base import messages
    from git_daytona.sessions import shell as shells

    with common.coordinator(anywhere=True) as coordinator:
        session = coordinator.find(name)
        status = shells.shell(coordinator, session.id)
        if session.number is not None and sys.stdin.isatty():
            messages.note(f"hint: bring back what you changed: git daytona sync {session.number}")
        return status


@click.command("open", short_help="Print and open a link to a server in a sandbox")
@click.option(
    "--browser/--no-browser",
    default=None,
    help="Whether to open it; by default on a graphical terminal.",
)
@common.session
@common.port
def open_(browser: bool | None, name: str, port: int | None) -> None:
    """Print a link to a PORT that a server in the session's sandbox listens on, and open it in the
    browser.

    Without PORT it is the one that listens. Whoever has the link can open it, for 24 hours.
    """
    from git_daytona.base import messages
    from git_daytona.base.errors import NotFound, UsageError
    from git_daytona.sandbox import report
    from git_daytona.service import previews

    with common.coordinator(anywhere=True) as coordinator:
        session = coordinator.find(name)
        cloud, sandbox_id = coordinator.cloud, session.sandbox_id
        ports = coordinator.sandboxes.while_awake(
            sandbox_id, lambda: report.ports(cloud, sandbox_id)
        )
        listening = sorted(set(ports) - previews.DAYTONAS_OWN)
        if port is None:
            if not listening:
                raise NotFound(
                    f"nothing listens in the sandbox of session '{name}'",
                    hint="start a server there first",
                )
            if len(listening) > 1:
                raise UsageError(
                    f"several ports listen there: {', '.join(map(str, listening))}",
                    hint=f"name one: git daytona open {name} {listening[0]}",
                )
            port = listening[0]
        elif port not in listening:
            messages.warning(common.PROGRAM, f"nothing listens on port {port} in the sandbox yet")
        link = cloud.preview(sandbox_id, port, seconds=previews.LINK_SECONDS)
        click.echo(link)
        if browser or (browser is None and sys.stdout.isatty() and _graphical()):
            _browse(link)


def _graphical() -> bool:
    """Whether a browser would open a window, rather than take the terminal."""
    return sys.platform == "darwin" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


def _browse(link: str) -> None:
    """Through a page of our own that only the user can read: the link opens the port to whoever has
    it, and a process's arguments can be read by all on this machine."""
    import html
    import webbrowser

    from git_daytona.base import files, messages, paths

    page = paths.own_state() / "open.html"
    text = (
        '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; '
        f'url={html.escape(link)}">\n'
    )
    files.write_whole(page, text.encode())
    if not webbrowser.open(page.as_uri()):
        messages.warning(common.PROGRAM, "no browser was found; open the link yourself")


@click.command(short_help="Copy files into a sandbox, or out of it")
@click.option(
    "--recursive",
    "-r",
    is_flag=True,
    help="Nothing: a directory is always copied whole. Taken for the sake of habit.",
)
@click.argument("source")
@click.argument("target")
def cp(recursive: bool, source: str, target: str) -> int:
    """Copy a file or directory: SOURCE or TARGET is N:PATH, a path in the session's sandbox,
    relative to its project.

    What is there is overwritten, as cp does; an existing directory gets it below its own name. A
    directory comes out of a sandbox without .git. Links that lead out of it, devices and pipes are
    left out and named, and the exit status then is 1.
    """
    from git_daytona.base import messages
    from git_daytona.base.errors import GitDaytonaError, UsageError
    from git_daytona.sessions import copy

    there, here = copy.place(source), copy.place(target)
    if (there.session is None) == (here.session is None):
        raise UsageError(
            "one of the two has to be in a sandbox, and one here",
            hint="git daytona cp N:PATH TARGET, or git daytona cp SOURCE N:PATH; a name with a "
            "colon: ./a:b",
        )
    with common.coordinator(anywhere=True) as coordinator:
        common.waiting(coordinator, "copying")
        if there.session is not None:
            done = copy.copy_out(coordinator, there.session, there.path, here.path)
        else:
            done = copy.copy_in(coordinator, here.session or "", there.path, here.path)
        for line in done.left_out[:LEFT_OUT]:
            messages.warning(common.PROGRAM, f"left out: {line}")
        if len(done.left_out) > LEFT_OUT:
            messages.warning(common.PROGRAM, f"left out: {len(done.left_out) - LEFT_OUT} more")
        if done.repositories:
            more = (
                f" and {len(done.repositories) - LEFT_OUT} more"
                if len(done.repositories) > LEFT_OUT
                else ""
            )
            messages.note(
                f"without {', '.join(done.repositories[:LEFT_OUT])}{more}: history comes by "
                "git daytona sync"
            )
        messages.note(f"{done.files} {'file' if done.files == 1 else 'files'} copied")
        return GitDaytonaError.status if done.left_out else 0
