"""``git-remote-daytona``: git's helper for remotes in sandboxes (gitremote-helpers(7))."""

import io
import os

import click

from git_daytona import __version__
from git_daytona.base.errors import BadAnswer, NoRepository, UsageError
from git_daytona.cli import common
from git_daytona.git import repository
from git_daytona.sessions import remote

LINE_BYTES = 1000


@click.command("git-remote-daytona", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", message="git-remote-daytona %(version)s")
@click.argument("name", metavar="REMOTE")
@click.argument("url", required=False)
def cli(name: str, url: str | None) -> int:
    """Connect git with the repository in a sandbox. git runs this.

    For a remote sandbox-N, whose 'vcs' is daytona, and for URLs: git clone daytona::SANDBOX,
    git fetch daytona::N.
    """
    for line in iter(_read_line, ""):
        if line == "capabilities":
            _write("connect\n\n")
        elif (service := line.removeprefix("connect ")) in remote.SERVICES:
            _look_from_here()
            with common.coordinator(anywhere=True) as coordinator:
                place = _place(name, url)
                return remote.serve(coordinator, place, service, begin=lambda: _write("\n"))
        else:
            raise UsageError(
                "git asks for something that this remote helper does not do",
                hint="git runs this program; try: git fetch sandbox-1",
            )
    return 0


def _look_from_here() -> None:
    """Forget a GIT_DIR that is not of this directory: that of a clone, which is being made."""
    try:
        repository.discover(repository.here())
    except NoRepository:
        for variable in ("GIT_DIR", "GIT_WORK_TREE"):
            os.environ.pop(variable, None)


def _place(name: str, url: str | None) -> str:
    """The session or sandbox that is meant: the remote's name, or what the URL names."""
    if url is None or url.startswith("ssh://"):
        return name
    return url.removeprefix("daytona://").rstrip("/")


def _read_line() -> str:
    """Read a line (empty: the end), and nothing behind it: that is for the sandbox."""
    line = io.FileIO(0, closefd=False).readline(LINE_BYTES + 1).removesuffix(b"\n")
    if len(line) > LINE_BYTES:
        raise BadAnswer("git sent a command that has no end", hint="report it with 'git version'")
    return line.decode("utf-8", "replace")


def _write(text: str) -> None:
    os.write(1, text.encode())
