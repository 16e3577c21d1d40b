"""``git daytona checkout, update, pr``: worktree and pull request of a session; yours in it."""

import re
import shlex
import shutil
from pathlib import Path

import click

from git_daytona.base import messages
from git_daytona.base.errors import NotFound, UsageError
from git_daytona.cli import common, options
from git_daytona.cli.plain_git import Work, find_work, foreground, no_sync
from git_daytona.git import branches
from git_daytona.git.repository import Repository
from git_daytona.sessions import commits
from git_daytona.sessions.state import one_line

CHOSEN_NAME = "daytonaName"
"""The key of a branch's section that has the name which it was pushed under."""
SUBJECTS = 50
"""How many commits a pull request lists."""


@click.command()
@no_sync
@common.session
@click.argument("directory", metavar="[DIR]", required=False)
def checkout(no_sync: bool, name: str, directory: str | None) -> None:
    """Make a worktree in DIR that has opencode/N checked out, and print its path.

    Later syncs move it along. Edits of yours there are kept first, as everywhere where the branch
    is checked out.
    """
    work = find_work(name, "checkout", synced=not no_sync)
    repository, names = work.repository, work.names
    top = repository.worktree or repository.common_dir
    place = Path(directory or f"{top}-{names.branch.replace('/', '-')}").absolute()
    shown = [tree.worktree for tree in repository.showing(names.ref) if tree.worktree]
    if shown:
        if directory and place.resolve() not in [each.resolve() for each in shown]:
            hint = "git has a branch in one worktree at a time"
            raise UsageError(f"{names.branch} is checked out in '{shown[0]}' already", hint=hint)
        place = shown[0]
    else:
        _check_out(repository, names.branch, place)
    click.echo(str(place))


def _check_out(repository: Repository, branch: str, place: Path) -> None:
    """Make a worktree at a place. Raises UsageError where something is."""
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise UsageError(f"'{place}' is there already", hint="name another directory")
    with branches.changing(repository):
        # as for the worktrees that follow (git/worktrees.py, reset)
        add = ("worktree", "add", "--quiet", "--", str(place), branch)
        repository.git(*add, env={"GIT_LFS_SKIP_SMUDGE": "1"})


@click.command()
@common.session
@click.argument("ref", required=False, default="HEAD")
def update(name: str, ref: str) -> None:
    """Merge REF (HEAD) into the branch that the session's sandbox works on, and sync.

    A conflict stays there for the agent to resolve. Uncommitted work of the agent's is committed
    first.
    """
    with common.coordinator(step="updating") as coordinator:
        outcome = coordinator.update(name, ref)
        click.echo(common.told(outcome) if outcome else "the session has all of it already")


@click.command(context_settings=options.PASSING_ON)
@no_sync
@click.option("--branch", metavar="NAME", help="What to call the branch there.")
@click.option("--remote", metavar="NAME", help="Where to push to; by default origin.")
@click.option("--title", metavar="TEXT", help="By default the session's title.")
@common.session
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[GH OPTION]...")
def pr(
    no_sync: bool,
    branch: str | None,
    remote: str | None,
    title: str | None,
    name: str,
    words: tuple[str, ...],
) -> int:
    """Push opencode/N to your origin, under a name made of its title, and make a pull request with
    'gh pr create'; without gh, print that command.

    Options behind N go to gh. The next time the same name is pushed.
    """
    work = find_work(name, "pr", synced=not no_sync)
    repository, names = work.repository, work.names
    chosen = _name(work, branch)
    remote = remote or repository.section("remote").get("pushdefault") or "origin"
    if remote not in repository.git("remote").text.splitlines():
        hint = "name yours: git daytona pr --remote NAME"
        raise NotFound(f"there is no remote '{remote}'", hint=hint)
    if work.dirty:
        messages.note(f"with the uncommitted work that it took along: {work.dirty[:10]}")
    push = ("git", "push", remote, f"{names.ref}:refs/heads/{chosen}")
    messages.note(f"+ {shlex.join(push)}")
    if (status := foreground(push)) != 0:
        return status
    repository.set_config("--replace-all", f"branch.{names.branch}.{CHOSEN_NAME}", chosen)
    # each a word of its own: no shell sees a title that somebody else has written
    title = title or commits.subject(work.session)
    about = ("--head", chosen, "--title", title, "--body", _body(work))
    command = ("gh", "pr", "create", *about, *words)
    if shutil.which("gh") is None:
        click.echo(shlex.join(command))
        return 0
    messages.note(f"+ {shlex.join(command)}")
    return foreground(command)


def _name(work: Work, wished: str | None) -> str:
    """Choose the name of the branch to push to: as wished, as the last time, or by the title."""
    names, repository = work.names, work.repository
    before = repository.section(f"branch.{names.branch}").get(CHOSEN_NAME.lower())
    words = re.sub(r"[^a-z0-9]+", "-", work.session.title.lower())[:50].strip("-")
    # below our own prefix: a title, which anybody may have written, could be "main"
    chosen = wished or before or "-".join(filter(None, (names.branch, words)))
    check = ("check-ref-format", "--branch", chosen)
    if chosen.startswith(("-", "@")) or repository.git(*check, check=False).status != 0:
        raise UsageError(f"'{chosen}' is no name of a branch", hint="name one: --branch NAME")
    return chosen


def _body(work: Work) -> str:
    """List the commits, one a line, and say where they are from."""
    words = ("log", "--reverse", f"--max-count={SUBJECTS}", "--format=%s", work.range)
    lines = [f"- {one_line(each)}" for each in work.repository.git(*words).text.splitlines()]
    origin = [f"{key}: {value}" for key, value in commits.provenance(work.session).items()]
    return "\n".join([*lines, "", *origin])
