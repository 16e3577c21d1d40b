"""The local repository, through plain git."""

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from git_daytona.base.errors import (
    MissingProgram,
    NoRepository,
    NotFound,
    RepositoryRefused,
    TransferFailed,
)
from git_daytona.base.run import Result, run
from git_daytona.base.secret import one_line
from git_daytona.git import configuration, environment, version
from git_daytona.git.configuration import Entry
from git_daytona.git.refs import INCOMING, KEPT

LOCAL_SECONDS = 300.0
"""Limit of one local git command: a checkout of a large tree on a slow disk."""
LOCK_SECONDS = 10
"""How long another program may hold the lock on .git/config."""
LOCKED = 255
"""The status of a git config that could not lock the file, and of programs of ours like it."""
PACKS = 10
"""More than these, and git is asked whether that is too many (gc.autoPackLimit)."""

FOLDERS = ("--show-object-format", "--absolute-git-dir", "--git-common-dir")
"""What rev-parse is asked for a repository; and for its top, where it has a worktree."""

# What of a user's environment says which repository is meant; the last one only makes git more
# careful. The rest of what git hands to hooks and aliases (GIT_COMMON_DIR, GIT_OBJECT_DIRECTORY, …)
# belongs to the command that it was made for.
_MEANT = ("GIT_DIR", "GIT_WORK_TREE")
_SEARCH = (
    *_MEANT,
    "GIT_CEILING_DIRECTORIES",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM",
    "GIT_TEST_ASSUME_DIFFERENT_OWNER",
)


class NotInRepository(NoRepository):
    """There is no repository around a directory, and git would say so of any like it."""


class Worktree(NamedTuple):
    """A worktree and the full name of the branch it has checked out (None: detached)."""

    path: Path
    branch: str | None


@dataclass(frozen=True)
class Repository:
    """A repository and the worktree we were called in (None: bare). Paths are absolute."""

    git_dir: Path
    common_dir: Path
    worktree: Path | None
    object_format: str = "sha1"

    @property
    def zero(self) -> str:
        """The object id that means "must not exist" to update-ref."""
        return "0" * (64 if self.object_format == "sha256" else 40)

    @property
    def existing_dir(self) -> Path:
        """``git_dir``, or what all worktrees share once our linked one was removed (case 36)."""
        return self.git_dir if self.git_dir.is_dir() else self.common_dir

    @property
    def directory(self) -> Path:
        """Its worktree, or ``existing_dir`` where that is gone, or there is none."""
        if self.worktree is not None and self.worktree.is_dir():
            return self.worktree
        return self.existing_dir

    @property
    def _place(self) -> tuple[str, str]:
        """The options by which git finds it."""
        return "-C" if self.directory == self.worktree else "--git-dir", str(self.directory)

    def git(
        self,
        *arguments: str,
        check: bool = True,
        stdin: bytes | None = None,
        env: dict[str, str] | None = None,
    ) -> Result:
        """Run git on this repository. Raises TransferFailed when it fails, if ``check`` is on."""
        options = (*self._place, *environment.config_arguments(environment.LOCAL_CONFIG))
        argv = ("git", *options, *arguments)
        result = run(argv, env=environment.base() | (env or {}), timeout=LOCAL_SECONDS, stdin=stdin)
        if check and result.status != 0:
            raise failure(result, f"git {arguments[0]} failed")
        return result

    def listed(
        self, *arguments: str, check: bool = True, env: dict[str, str] | None = None
    ) -> list[bytes]:
        """Run git as ``git``, and return what it prints with a NUL behind each."""
        return self.git(*arguments, check=check, env=env).stdout.split(b"\0")[:-1]

    def resolve(self, revision: str) -> str | None:
        """The object id of a commit, or None. Raises TransferFailed where git cannot tell."""
        words = ("--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        found = self.git("rev-parse", *words, check=False)
        if found.status not in (0, 1):
            raise failure(found, f"git cannot look for '{revision}'")
        return found.text or None

    def commit(self, revision: str) -> str:
        """The object id of a commit that a user names. Raises NotFound where there is none."""
        if (commit := self.resolve(revision)) is None:
            raise NotFound(
                f"there is no commit '{one_line(revision)}' here",
                hint="see what is: git log --all",
            )
        return commit

    def refs(self, *prefixes: str) -> dict[str, str]:
        """Refs under the prefixes, name to object id."""
        listing = self.git("for-each-ref", "--format=%(refname) %(objectname)", *prefixes).text
        return dict(line.split(" ", 1) for line in filter(None, listing.split("\n")))

    def update_refs(self, commands: Sequence[str]) -> bool:
        """Apply ``update-ref --stdin`` commands, all or none; False when a ref has moved."""
        if not commands:
            return True
        script = "".join(f"{command}\n" for command in ["start", *commands, "prepare", "commit"])
        result = self.git(
            "update-ref", "--no-deref", "--stdin", check=False, stdin=to_bytes(script)
        )
        return result.status == 0

    def remove_refs(self, *prefixes: str) -> None:
        """Remove the refs under the prefixes, unless one moves meanwhile."""
        self.update_refs([f"delete {ref} {oid}" for ref, oid in self.refs(*prefixes).items()])

    def contains(self, tips: Sequence[str], oid: str) -> bool:
        """Whether the commit is in the history of any of the tips."""
        # not rev-list, which gives up early where commits are dated before their parents
        return oid in tips or self.git("merge-base", oid, *tips, check=False).text == oid

    def tidy(self) -> None:
        """Let git repack what many fetches brought, as it does after a fetch of the user's: if the
        user lets it and it is due, in the background."""
        packs = self.common_dir.glob("objects/pack/*.pack")
        setting = ("config", "--type=bool", "--get", "maintenance.auto")
        if len(list(packs)) > PACKS and self.git(*setting, check=False).text != "false":
            self.git("gc", "--auto", "--quiet", check=False)

    def has(self, oid: str, *, but: str = f"{INCOMING}*") -> bool:
        """Whether a ref here, other than what was just fetched (or ``but``), has a commit in
        its history, or names a tag."""
        if self.resolve(oid) != oid:
            return oid in self.refs("refs/tags", KEPT).values()
        tips = ("--not", f"--exclude={but}", "--all")
        found = self.git("rev-list", "--max-count=1", oid, *tips, env=environment.ALL_REFS)
        return not found.text

    def configuration(self, *, now: bool = False) -> tuple[Entry, ...]:
        """What git's configuration has for it, as it was in this operation, or is ``now`` for git
        in a transfer. Raises TransferFailed."""
        if now:
            return configuration.read("--git-dir", str(self.existing_dir), now=True)
        return configuration.read(*self._place)

    def section(self, name: str) -> dict[str, str]:
        """The values of a section of it, by key in lower case."""
        return configuration.section(self.configuration(), name)

    def set_config(self, *arguments: str) -> Result:
        """``git config --local …``, tried again while another program holds its lock (case 41)."""
        return past_lock(lambda: self.git("config", "--local", *arguments, check=False))

    def worktrees(self) -> list[Worktree]:
        """All worktrees that are there, with what they have checked out."""
        found = []
        for block in self.git("worktree", "list", "--porcelain", "-z").text.split("\0\0"):
            entries = (entry.partition(" ") for entry in block.split("\0"))
            fields = {key: value for key, _, value in entries}
            path = Path(fields.get("worktree", ""))
            if "worktree" in fields and not fields.keys() & {"bare", "prunable"} and path.is_dir():
                found.append(Worktree(path, fields.get("branch")))
        return found

    def showing(self, ref: str) -> list["Repository"]:
        """The repository in each of the worktrees that have a branch checked out, by its full name.

        git lists the git directory in place of a main worktree that lies apart from it: in a
        submodule that knows the way, with ``--separate-git-dir`` nothing does (None).
        """
        return [self.at(tree.path) for tree in self.worktrees() if tree.branch == ref]

    def at(self, place: Path) -> "Repository":
        """The same repository in another of its worktrees."""
        there = partial(self.git, "-C", str(place), "rev-parse", check=False)
        found = parsed(there, "--absolute-git-dir", "--show-toplevel")
        git_dir, top = found or (there("--absolute-git-dir", check=True).text, "")
        if Path(git_dir) == self.git_dir:
            return self
        return replace(self, git_dir=Path(git_dir), worktree=Path(top) if top else None)


def to_bytes(text: str) -> bytes:
    """Encode names of refs as git has them; those that are not UTF-8 came as surrogates."""
    return text.encode("utf-8", "surrogateescape")


def parsed(ask: Callable[..., Result], *words: str) -> list[str]:
    """What git rev-parse, by ``ask``, answers to each word; empty if it cannot answer them all."""
    found = ask(*words)
    lines = found.text.split("\n") if found.status == 0 else []
    if lines and len(lines) != len(words):  # one has a line break in its name
        return [ask(word).text for word in words]
    return lines


def past_lock(change: Callable[[], Result]) -> Result:
    """The result of a change of .git/config, made again while another program holds its lock."""
    import tenacity

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_result(
            lambda result: result.status == LOCKED or b"could not lock" in result.stderr
        ),
        stop=tenacity.stop_after_delay(LOCK_SECONDS),
        wait=tenacity.wait_random_exponential(multiplier=0.02, max=0.5),
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
    )
    return retrying(change)


def failure(result: Result, what: str) -> TransferFailed:
    """git's own words as an error: the line that says error or fatal, the rest for the log."""
    return TransferFailed(
        f"{what}: {_reason(result)}", hint="the log has all that git said", details=result.complaint
    )


def _reason(result: Result) -> str:
    lines = result.complaint.splitlines()
    beginnings = (("fatal:", "error:"), ("remote:", "!", " ! "), ("",))
    telling = [line for begin in beginnings for line in lines if line.startswith(begin)]
    reason = telling[0] if telling else f"exit status {result.status}"
    return one_line(reason.removeprefix("fatal: ").removeprefix("error: "))


def here() -> Path:
    """The current directory; raises NoRepository when it was deleted under us."""
    try:
        return Path.cwd()
    except FileNotFoundError as problem:
        raise NoRepository(
            "the current directory does not exist any more", hint="cd to one that does"
        ) from problem


def discover(start: Path) -> Repository:
    """Find a directory's repository as git would. Raises NotInRepository where there is none,
    another NoRepository where there is one that cannot be used, and MissingProgram."""
    if shutil.which("git") is None:
        raise MissingProgram("git is not installed", hint="install it (Debian: apt install git)")
    version.check()
    env = environment.base() | {name: os.environ[name] for name in _SEARCH if name in os.environ}

    def ask(*words: str) -> Result:
        return run(("git", *words), cwd=start, env=env, timeout=LOCAL_SECONDS)

    look = partial(ask, "rev-parse")
    words = ("--is-bare-repository", "--is-inside-work-tree", *FOLDERS)
    found = parsed(look, *words, "--show-toplevel") or [*parsed(look, *words), ""]
    if len(found) == 1:
        raise _not_found(start, look(*words), ask)
    bare, inside, object_format, git_dir, common_dir, top = found
    if "true" not in (bare, inside):
        raise NoRepository(f"'{start}' lies inside a .git directory", hint="go to the worktree")
    top = top if inside == "true" else ""
    if top and not os.environ.keys().isdisjoint(_MEANT):
        _check_together(top, git_dir)
    return made(start, object_format, git_dir, common_dir, top)


def made(start: Path, object_format: str, git_dir: str, common_dir: str, top: str) -> Repository:
    """Make a repository of what rev-parse, run in a directory, answers to FOLDERS."""
    worktree = Path(top) if top else None
    return Repository(Path(git_dir), (start / common_dir).resolve(), worktree, object_format)


def find(start: Path) -> Repository | None:
    """Find a directory's repository; None outside one. Raises NoRepository for one that cannot be
    used."""
    try:
        return discover(start)
    except NotInRepository:
        return None


def _not_found(start: Path, result: Result, ask: Callable[..., Result]) -> NoRepository:
    """What to say where git finds no repository: there is none, or why git refuses the one there
    is. Tools would work in an empty project if the second were taken for the first."""
    look = ("rev-parse", "--git-dir")
    if ask(*look).status != 0 and ask("-c", "safe.directory=*", *look).status == 0:
        return RepositoryRefused(
            f"git does not trust the repository at '{start}': somebody else owns it",
            hint=f"if you trust it: git config --global --add safe.directory '{start}'",
            details=result.complaint,
        )
    named = [name for name in _MEANT if name in os.environ]
    if not named and not _looks_like_one(start) and ask("config", "--list").status == 0:
        return NotInRepository(
            f"'{start}' is not in a git repository",
            hint="go to one, or make one: git init",
            details=result.complaint,
        )
    remedy = f"unset {' '.join(named)}" if named else "mend what it names"
    return RepositoryRefused(
        f"git refuses to work at '{start}': {_reason(result)[:300]}",
        hint=f"{remedy}, until this works: git -C '{start}' status",
        details=result.complaint,
    )


def _looks_like_one(start: Path) -> bool:
    """Whether there is something that git would look into: a ``.git`` that is more than an empty
    folder, or the folders of a bare repository."""
    ceilings = os.environ.get("GIT_CEILING_DIRECTORIES", "").split(os.pathsep)
    for folder in (start.resolve(), *start.resolve().parents):
        if str(folder) in ceilings and folder != start.resolve():
            break
        inner = folder / ".git"
        with contextlib.suppress(OSError):
            if not list(inner.iterdir()):
                continue
        if os.path.lexists(inner) or ((folder / "HEAD").exists() and (folder / "refs").is_dir()):
            return True
    return False


def _check_together(worktree: str, git_dir: str) -> None:
    """Raise NoRepository unless the worktree leads to the git directory by itself, as later on."""
    argv = ("git", "-C", worktree, "rev-parse", "--absolute-git-dir", "--show-toplevel")
    found = run(argv, env=environment.base(), timeout=LOCAL_SECONDS)
    if found.status != 0 or found.text != f"{git_dir}\n{worktree}":
        raise NoRepository(
            f"'{git_dir}' is not the repository of the worktree '{worktree}'",
            hint="go to its own worktree, and run it there without GIT_DIR and 'git --git-dir'",
        )


def need_worktree(repository: Repository) -> Path:
    """The worktree, or NoRepository for a bare repository."""
    if repository.worktree is None:
        hint = "run it in a clone, or add one: git worktree add"
        raise NoRepository("this is a bare repository, and syncing needs a worktree", hint=hint)
    return repository.worktree
