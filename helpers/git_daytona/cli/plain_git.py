"""``git daytona log, diff, merge, apply``: plain git on a session's branch, which is shown."""

import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from git_daytona.base import messages, run
from git_daytona.base.errors import NotFound, UsageError
from git_daytona.cli import common, options
from git_daytona.git.refs import Names
from git_daytona.git.repository import Repository
from git_daytona.sessions import home

PAGER_SECONDS = 60.0
"""How long git may take to name the user's pager."""


@dataclass(frozen=True)
class _Work:
    """The branch of a session, in the repository that has it."""

    repository: Repository
    names: Names

    @property
    def branch(self) -> str:
        """The branch as git shortens it: it begins with no hyphen, and means the branch also where
        a tag has its name."""
        found = self.repository.git("rev-parse", "--abbrev-ref=strict", self.names.ref, check=False)
        return found.text if found.status == 0 and found.text else self.names.ref

    @property
    def range(self) -> str:
        if not self.repository.resolve(self.names.base):
            raise NotFound(
                f"it is not known from which commit session {self.names.number} started",
                hint=f"compare it with one of yours: git log HEAD..{self.names.branch}",
            )
        return f"{self.names.base}..{self.branch}"


def _plain(work: Callable[[_Work, tuple[str, ...]], int]) -> click.Command:
    """Make a command of a function; it gets a session's work, and all words behind N, for git."""

    def invoke(name: str, words: tuple[str, ...]) -> int:
        return work(_find(name, work.__name__), words)

    rest = click.argument(
        "words", nargs=-1, type=click.UNPROCESSED, metavar="[GIT OPTION | PATH]..."
    )
    return click.command(work.__name__, help=work.__doc__, context_settings=options.PASSING_ON)(
        common.session(rest(invoke))
    )


@_plain
def log(work: _Work, words: tuple[str, ...]) -> int:
    """Show the commits that opencode/N has over the commit it started from, by 'git log'."""
    return _git("log", work.range, *words)


@_plain
def diff(work: _Work, words: tuple[str, ...]) -> int:
    """Show the changes of opencode/N against the commit it started from, by 'git diff'."""
    return _git("diff", work.range, *words)


@_plain
def merge(work: _Work, words: tuple[str, ...]) -> int:
    """Merge opencode/N into the branch that is checked out, by 'git merge'."""
    return _git("merge", *words, work.branch)


@_plain
def apply(work: _Work, words: tuple[str, ...]) -> int:
    """Put the changes of opencode/N since the commit it started from into your files and index,
    without a commit.

    It is 'git apply --3way': what does not fit becomes a conflict to resolve. The options go to
    'git apply'.
    """
    # The plumbing's form is the same whatever diff.* is set to. No program of a textconv or a diff
    # driver runs.
    flags = ("-p", "--binary", "--full-index", "--no-ext-diff", "--no-textconv")
    arguments = ("diff-tree", *flags, work.range)
    patch = work.repository.git(*arguments).stdout
    if not patch:
        messages.note(f"{work.names.branch} has changed nothing since it started")
        return 0
    # In a subdirectory 'git apply' leaves the rest of a patch out without a word.
    worktree = work.repository.worktree
    place = () if worktree in (None, Path.cwd()) else ("-C", str(worktree))
    command = ("git", *place, "apply", "--3way", *words)
    messages.note(f"+ git {shlex.join(arguments)} | {shlex.join(command)}")
    with tempfile.TemporaryFile() as source:
        source.write(patch)
        source.seek(0)
        return _foreground(command, source.fileno())


def _find(name: str, verb: str) -> _Work:
    """Find a session whose branch is here. Says so if the sandbox may have newer work."""
    if name.startswith("-"):
        raise UsageError(
            f"'{name}' stands where the session belongs",
            hint=f"the session first: git daytona {verb} N {name}",
        )
    with common.coordinator() as coordinator:
        session = coordinator.find_anywhere(name)
        away = home.elsewhere(session, coordinator.settings.api_url)
        work = _Work(coordinator.repository, session.names)
    number = work.names.number
    if not work.repository.resolve(work.names.ref):
        # neither, where the session began without a commit and has none yet
        refs = work.repository.refs(work.names.tracking, work.names.base)
        came = session.needs_sync or refs
        raise NotFound(
            f"there is no local branch '{work.names.branch}'",
            hint=f"get it: git daytona sync {number}"
            if came
            else f"nothing was committed there yet, see: git daytona exec {number} -- git status",
        )
    if away is not None:
        messages.note(f"{away.message}; this is what came back last")
    elif session.needs_sync:
        messages.note(
            f"hint: session {number} was used since its last sync; to see that, too: "
            f"git daytona sync {number}"
        )
    return work


# Of what a sandbox wrote, no control character but colours and ends of lines gets to a terminal:
# a pager may pass them on (PAGER=cat, LESS=-r). The bytes of C1 are those of UTF-8.
_COLOURS_ALONE = (
    "s/\1/?/g; s/\33\\[\\([0-9;]*m\\)/\1\\1/g; s/\r/^M/g; s/[\2-\10\13-\37\177]/?/g;"
    " s/\udcc2[\udc80-\udc9f]/?/g; s/\1/\33[/g"
)


def _git(*words: str) -> int:
    """Run git on what a sandbox wrote, its output cleaned where that goes to a terminal."""
    messages.note(f"+ {shlex.join(('git', *words))}")
    if words[0] == "merge" or sys.stdout is None or not sys.stdout.isatty():
        return _foreground(("git", *words))
    clean = f"LC_ALL=C sed {shlex.quote(_COLOURS_ALONE)}"
    pager = _pager(words[0])
    piped = f"{clean} | {pager}" if pager else clean
    return _foreground(("git", "-p", *words), GIT_PAGER=piped)


def _pager(command: str) -> str:
    """Find the user's pager for a command of git's; empty for none (git-config(1), pager.<cmd>)."""

    def ask(*words: str) -> str:
        return run.run(("git", *words), env=_environment(), timeout=PAGER_SECONDS).text

    named = ask("config", "--get", f"pager.{command}")
    if named.lower() in ("", "true", "yes", "on", "1"):
        named = ask("var", "GIT_PAGER")
    return "" if named.lower() in ("cat", "false", "no", "off", "0") else named


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("DAYTONA_")}


def _foreground(command: tuple[str, ...], stdin: int | None = None, **more: str) -> int:
    """Run it with the user's configuration, pager and terminal, but without our key."""
    return run.foreground(command, _environment() | more, stdin=stdin)
