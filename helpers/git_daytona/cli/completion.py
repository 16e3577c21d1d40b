"""What completes a command line, for the scripts in completions/: they ask a program by a variable
of its name (click's way).

``_GIT_DAYTONA_COMPLETE=lines_complete`` with COMP_WORDS (shell-quoted) and COMP_CWORD in the
environment makes it print one line for each candidate: type (``plain``, ``file``, ``dir``), value
and help, with tabs between.
"""

import contextlib
import os
from collections.abc import Iterable
from importlib import resources
from typing import TYPE_CHECKING

import click
from click.shell_completion import (
    CompletionItem,
    ShellComplete,
    add_completion_class,
    split_arg_string,
)

if TYPE_CHECKING:
    from git_daytona.sessions.coordinator import Coordinator


@add_completion_class
class Lines(ShellComplete):
    """One format for every shell; what they need besides stands in their scripts."""

    name = "lines"

    def get_completion_args(self) -> tuple[list[str], str]:
        words = split_arg_string(os.environ.get("COMP_WORDS", ""))
        index = int(os.environ.get("COMP_CWORD", "0"))
        return words[1:index], words[index] if index < len(words) else ""

    def format_completion(self, item: CompletionItem[str]) -> str:
        return "\t".join((item.type, item.value, " ".join((item.help or "").split())))


PORTS_SECONDS = 2.0
"""How long a person who pressed Tab waits for the ports of a sandbox."""


def _coordinator() -> "Coordinator | None":
    """Of the repository we stand in; None where there is none, or anything is wrong: a Tab
    complains of nothing."""
    from git_daytona.base.errors import GitDaytonaError
    from git_daytona.git import repository as git
    from git_daytona.sessions.coordinator import Coordinator
    from git_daytona.settings import settings

    with contextlib.suppress(GitDaytonaError, OSError):
        repository = git.discover(git.here())
        return Coordinator(repository, settings.load(repository.worktree))
    return None


def sessions(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Session numbers, each with its branch and how the last sync went."""
    from git_daytona.base.secret import printable

    coordinator = _coordinator()
    found = []
    for session in coordinator.sessions() if coordinator else []:
        value = str(session.number) if session.number else session.id
        if value.startswith(incomplete):
            branch = f"{session.prefix}/{session.number}, " if session.number else ""
            found.append(
                CompletionItem(value, help=printable(f"{branch}{session.git_return.state}"))
            )
    return found


def ports(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """The ports that servers in the session's sandbox listen on: one API call, which does not start
    a sandbox."""
    from git_daytona.base import threads
    from git_daytona.base.errors import GitDaytonaError
    from git_daytona.sandbox import report
    from git_daytona.service import previews

    def ask() -> Iterable[int]:
        coordinator = _coordinator()
        if coordinator is None:
            return ()
        session = coordinator.find(str(context.params.get("name")))
        return report.ports(coordinator.cloud, session.sandbox_id)

    found: Iterable[int] = ()
    with contextlib.suppress(threads.Late, GitDaytonaError, OSError):
        found = threads.within(PORTS_SECONDS, ask)
    return [
        CompletionItem(str(port))
        for port in sorted(set(found) - previews.DAYTONAS_OWN)
        if str(port).startswith(incomplete)
    ]


SCRIPTS = {"bash": "bash/git-daytona", "zsh": "zsh/_git-daytona", "fish": "fish/git-daytona.fish"}


@click.command(short_help="Print the completion script for a shell")
@click.argument("shell", type=click.Choice(tuple(SCRIPTS)))
def completion(shell: str) -> None:
    """Print the script that completes git daytona and the other programs in SHELL.

    An installation from a wheel has it in its share folder, where the shells find it if the
    installation is the system's. Otherwise: for bash add 'eval "$(git-daytona completion bash)"' to
    ~/.bashrc, for zsh 'source <(git-daytona completion zsh)' to ~/.zshrc behind compinit, for fish
    save it as ~/.config/fish/conf.d/git-daytona.fish.
    """
    script = resources.files("git_daytona").joinpath("completions", SCRIPTS[shell])
    click.echo(script.read_text("utf-8"), nl=False)
