"""``git daytona log, diff, merge, apply``: plain git on a session's branch, synced first."""

import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import click

from git_daytona import ssh
from git_daytona.base import messages, run
from git_daytona.base.errors import GitDaytonaError, NotFound, UsageError
from git_daytona.cli import common, options
from git_daytona.git import worktrees
from git_daytona.git.refs import Names
from git_daytona.git.repository import Repository
from git_daytona.sessions import commits, home
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.sessions.state import Session

no_sync = options.flag("--no-sync", help="Take what is here; do not sync first.")
PAGER_SECONDS = 60.0
"""How long git may take to name the user's pager."""


@dataclass(frozen=True)
class Work:
    """The branch of a session, in the repository that has it."""

    repository: Repository
    session: Session

    @property
    def names(self) -> Names:
        return self.session.names

    @property
    def dirty(self) -> str | None:
        """The commit of uncommitted work that the session took along."""
        return self.repository.refs(self.names.dirty).get(self.names.dirty)

    @property
    def branch(self) -> str:
        """The branch as git shortens it: with no hyphen in front, and no tag of that name."""
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


def _plain(
    *flags: tuple[str, str],
) -> Callable[[Callable[[Work, tuple[str, ...]], int]], click.Command]:
    """Make the decorator that makes a command of a function; it gets a session's work, and all
    words behind N, for git. Of git's options the ``flags``, each with its help, may stand in front
    of N, too."""

    def make(work: Callable[[Work, tuple[str, ...]], int]) -> click.Command:
        verb = work.__name__

        def invoke(no_sync: bool, name: str, words: tuple[str, ...], **given: bool) -> int:
            own = words[: words.index("--")] if "--" in words else words
            synced = not (no_sync or "--no-sync" in own)
            rest = (*(each for each in own if each != "--no-sync"), *words[len(own) :])
            rest = (*(flag for flag, _ in flags if given[flag[2:]]), *rest)
            if name.startswith("-"):  # an option of git's
                return work(find_work("", verb, words, synced=synced), (name, *rest))
            return work(find_work(name, verb, synced=synced), rest)

        rest = click.argument(
            "words", nargs=-1, type=click.UNPROCESSED, metavar="[GIT OPTION | PATH]..."
        )
        function = no_sync(common.session(rest(invoke)))
        for flag, text in flags:
            function = options.flag(flag, help=text)(function)
        return click.command(verb, help=work.__doc__, context_settings=options.PASSING_ON)(function)

    return make


@_plain()
def log(work: Work, words: tuple[str, ...]) -> int:
    """Show the commits that opencode/N has over the commit it started from, by 'git log'."""
    return _git("log", work.range, *words)


@_plain()
def diff(work: Work, words: tuple[str, ...]) -> int:
    """Show the changes of opencode/N against the commit it started from, by 'git diff'."""
    return _git("diff", work.range, *words)


@_plain(("--squash", "Make one commit of it, with the session's title."))
def merge(work: Work, words: tuple[str, ...]) -> int:
    """Merge opencode/N into the branch that is checked out, by 'git merge'.

    With --squash --no-commit the commit is left to you.
    """
    if "--squash" in words:
        return _squash(work, words)
    if (taken := _unmerged(work)) and (joined := _join(work, taken)) != 0:
        return joined
    return _git("merge", *words, work.branch)


@_plain()
def apply(work: Work, words: tuple[str, ...]) -> int:
    """Put the changes of opencode/N since the commit it started from into your files and index,
    without a commit.

    It is 'git apply --3way': what does not fit becomes a conflict to resolve. The options go to
    'git apply'. Over uncommitted work that the session took along it is put into the files alone.
    """
    return _apply(work, words, apart=work.dirty is not None)


def _apply(work: Work, words: tuple[str, ...], *, apart: bool = False) -> int:
    """Apply a session's changes; ``apart``: to the files as they are, whatever the index has."""
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
    until: AbstractContextManager[Mapping[str, str]] = nullcontext({})
    if apart:
        until = worktrees.as_index(work.repository, work.range)
    with until as more:
        return foreground(command, patch, **more)


def _join(work: Work, taken: str) -> int:
    """Have git know, before a merge, that what the session took along is committed here by now."""
    if not worktrees.is_committed(work.repository, taken):
        return 0
    text = f"Uncommitted work that session {work.session.name} took along, committed here since"
    return _git("merge", "-q", "-s", "ours", "--no-ff", "-m", text, taken)


def _unmerged(work: Work) -> str | None:
    """Return the commit of the uncommitted work that the session took along, unless HEAD has it.
    Raises Uncommitted where it is in the way of a merge."""
    taken, head = work.dirty, work.repository.resolve("HEAD")
    if taken is None or head is None or work.repository.contains([head], taken):
        return None
    if worktrees.is_clean(work.repository, taken):
        return taken
    name = work.session.name
    raise Uncommitted(
        f"the uncommitted work that session {name} took along is still uncommitted here",
        hint=f"take what was made on top of it: git daytona apply {name}; or commit yours first",
    )


def _squash(work: Work, words: tuple[str, ...]) -> int:
    """Make one commit of a session's work, with its title."""
    taken = _unmerged(work)
    if foreground(("git", "diff", "--cached", "--quiet")) != 0:
        hint = "commit or unstage it first"
        raise UsageError("something is staged, which would go into the same commit", hint=hint)
    rest = tuple(each for each in words if each not in ("--squash", "--no-commit", "--commit"))
    if taken and worktrees.is_committed(work.repository, taken):
        status = _apply(work, rest)
    else:
        status = _git("merge", "--squash", *rest, work.branch)
    if status != 0 or "--no-commit" in words:
        return status
    if foreground(("git", "diff", "--cached", "--quiet")) == 0:
        messages.note("there is nothing to commit")
        return 0
    subject, trailers = commits.subject(work.session), commits.provenance(work.session)
    text = commits.message("{title}", {"title": subject}, trailers)
    command = ("git", "commit", "--file=-")
    messages.note(f"+ {shlex.join(command)}")
    return foreground(command, f"{text}\n".encode("utf-8", "replace"))


class Uncommitted(GitDaytonaError):
    """Edits in the worktree are in the way of a merge that has them, too."""


def find_work(name: str, verb: str, words: tuple[str, ...] = (), *, synced: bool = True) -> Work:
    """Find a session whose branch is here, and sync it first, if it can be at once; says so where
    the sandbox may have newer work.

    Without a name none of git's ``words`` may be that of a session: it would be git's then.
    """
    with common.coordinator() as coordinator:
        for word in words:
            if coordinator.identified(word) != word:
                raise UsageError(
                    f"'{word}' is a session, and stands behind options of git's",
                    hint=f"the session first: git daytona {verb} {word} …",
                )
        session = coordinator.find_anywhere(name)
        away = home.elsewhere(session, coordinator.settings.api_url)
        if away is None and synced and session.number is not None:
            session = _sync(coordinator, session)
        work = Work(coordinator.repository, session)
    if not work.repository.resolve(work.names.ref):
        raise _missing(work)
    number = work.names.number
    if away is not None:
        messages.note(f"{away.message}; this is what came back last")
    elif session.needs_sync:
        remedy = f"to see that, too: git daytona sync {number}"
        messages.note(f"hint: session {number} was used since its last sync; {remedy}")
    return work


def _missing(work: Work) -> NotFound:
    # neither, where the session began without a commit and has none yet
    refs = work.repository.refs(work.names.tracking, work.names.base)
    hint = f"get it: git daytona sync {work.names.number}"
    if not (work.session.needs_sync or refs):
        remedy = f"git daytona exec {work.names.number} -- git status"
        hint = f"nothing was committed there yet, see: {remedy}"
    return NotFound(f"there is no local branch '{work.names.branch}'", hint=hint)


def _sync(coordinator: Coordinator, session: Session) -> Session:
    """Sync a session now if that takes no waiting; return it as it is then."""
    try:
        outcome = coordinator.sync_at_once(session)
        if outcome is not None and outcome.changed:
            messages.note(common.told(outcome))
    except GitDaytonaError as problem:
        messages.note(f"not synced: {problem.message}")
    return coordinator.state.get(session.id) or session


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
        return foreground(("git", *words))
    clean = f"LC_ALL=C sed {shlex.quote(_COLOURS_ALONE)}"
    pager = _pager(words[0])
    piped = f"{clean} | {pager}" if pager else clean
    return foreground(("git", "-p", *words), GIT_PAGER=piped)


def _pager(command: str) -> str:
    """Find the user's pager for a command of git's; empty for none (git-config(1), pager.<cmd>)."""

    def ask(*words: str) -> str:
        env = ssh.scrubbed(dict(os.environ))
        return run.run(("git", *words), env=env, timeout=PAGER_SECONDS).text

    named = ask("config", "--get", f"pager.{command}")
    if named.lower() in ("", "true", "yes", "on", "1"):
        named = ask("var", "GIT_PAGER")
    return "" if named.lower() in ("cat", "false", "no", "off", "0") else named


def foreground(command: tuple[str, ...], stdin: bytes | None = None, **more: str) -> int:
    """Run it with the user's configuration, pager and terminal, but without our key."""
    env = ssh.scrubbed(dict(os.environ)) | more
    if stdin is None:
        return run.foreground(command, env)
    with tempfile.TemporaryFile() as source:
        source.write(stdin)
        source.seek(0)
        return run.foreground(command, env, stdin=source.fileno())
