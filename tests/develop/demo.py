"""``bin/demo``: the whole round trip, for real, on this machine. Not installed.

It works as a person would, with the executables in bin/, real git and real ssh. Only the embedded
Daytona runs in this process, so that it can be asked which tokens it gave out.
"""

import argparse
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

from git_daytona.local.api.snapshots import DEFAULT_SNAPSHOT
from git_daytona.local.server import LocalDaytona

ROOT = Path(__file__).resolve().parents[2]
FAILED, INTERRUPTED = 1, 130
STEP_SECONDS = 120
"""No command of the demo takes nearly as long, on any machine."""
KEPT_OF_GIT = {"GIT_EXEC_PATH", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"}
DIFF_LINES = 40


class Failed(Exception):
    """The demo cannot go on: what happened, and what to do."""

    def __init__(
        self,
        message: str,
        hint: str = "try again; if it happens again, please report it with all of this output",
    ):
        super().__init__(message)
        self.hint = hint


# -- telling ---------------------------------------------------------------------------------------


class Story:
    """Steps with headings, what the commands say, and how long each step took."""

    def __init__(self) -> None:
        self.coloured = (
            sys.stdout.isatty()
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb"
        )
        self.began = time.monotonic()
        self.steps = 0
        self.broken: list[str] = []

    def paint(self, code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self.coloured else text

    def say(self, line: str = "") -> None:
        print(line, flush=True)

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        self.steps += 1
        self.say("\n" + self.paint("1", f"{self.steps}. {title}"))
        began = time.monotonic()
        yield
        self.say(self.paint("2", f"   {time.monotonic() - began:.1f} s"))

    def line(self, text: str) -> None:
        self.say(f"   {text}")

    def command(self, text: str) -> None:
        for number, part in enumerate(text.splitlines()):
            self.say(self.paint("36", f"   {'$ ' if number == 0 else '  '}{part}"))

    def check(self, holds: bool, claim: str) -> None:
        self.say(f"   {self.paint('32', 'ok') if holds else self.paint('1;31', 'NOT SO')}  {claim}")
        if not holds:
            self.broken.append(claim)


# -- doing -----------------------------------------------------------------------------------------


def environment(home: Path) -> dict[str, str]:
    """The person's own, without what would lead git or the suite elsewhere; the suite's files go
    below ``home``."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("DAYTONA_") and (not name.startswith("GIT_") or name in KEPT_OF_GIT)
    }
    for name in ("no_proxy", "NO_PROXY"):
        env[name] = ",".join(filter(None, (env.get(name), "127.0.0.1")))
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        env[name] = str(home / name.lower())
    return env | {
        "PATH": os.pathsep.join((str(ROOT / "bin"), env.get("PATH", os.defpath))),
        "GIT_PAGER": "cat",
    }


class Signals:
    """Ctrl-C, SIGTERM and SIGHUP end the demo in good order, but not between the start of a child
    and our knowing of it."""

    def __init__(self) -> None:
        self.waiting: int | None = None
        self.holding = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._meet)

    def _meet(self, number: int, _frame: FrameType | None) -> None:
        self.waiting = number
        if not self.holding:
            self._act()

    def _act(self) -> None:
        number, self.waiting = self.waiting, None
        if number is not None:
            # What follows is cleaning up, which a second Ctrl-C would only spoil. (SIG_IGN would be
            # inherited by what that runs.)
            for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(each, lambda _number, _frame: None)
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """What arrives in this block takes effect at its end."""
        self.holding = True
        try:
            yield
        finally:
            self.holding = False
        self._act()


@dataclass
class Shell:
    """Runs commands in the repository, without a terminal."""

    story: Story
    signals: Signals
    env: dict[str, str]
    place: Path = ROOT

    def _run(self, argv: Sequence[str], stderr: int) -> "subprocess.CompletedProcess[bytes]":
        process: subprocess.Popen[bytes] | None = None
        try:
            with self.signals.held():
                process = subprocess.Popen(
                    argv,
                    cwd=self.place,
                    env=self.env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    # A Ctrl-C reaches it through us, once.
                    start_new_session=True,
                )
            out, err = process.communicate(timeout=STEP_SECONDS)
        except BaseException as problem:
            if process is not None:
                _end(process)
            if isinstance(problem, subprocess.TimeoutExpired):
                raise Failed(f"'{argv[0]}' did not finish within {STEP_SECONDS} seconds") from None
            raise
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def quiet(self, *argv: str, check: bool = True) -> bytes:
        """The command's stdout; what it says on stderr becomes the error."""
        done = self._run(argv, subprocess.PIPE)
        if check and done.returncode != 0:
            told = done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
            raise Failed(f"'{shlex.join(argv[:3])} …' failed: {told.splitlines()[-1]}")
        return done.stdout

    def text(self, *argv: str) -> str:
        return self.quiet(*argv).decode(errors="replace").strip()

    def show(self, *argv: str, display: str | None = None) -> str:
        """Run a command before the reader's eyes. Returns what it printed."""
        self.story.command(display or shlex.join(argv))
        done = self._run(argv, subprocess.STDOUT)
        output = done.stdout.decode(errors="replace")
        lines = output.splitlines()
        for text in lines[:DIFF_LINES]:
            self.story.line(text)
        if len(lines) > DIFF_LINES:
            self.story.line(f"… and {len(lines) - DIFF_LINES} lines more")
        if done.returncode != 0:
            raise Failed(f"'{argv[0]} {argv[1]}' ended with status {done.returncode}")
        return output


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ask a child and its group to end, so that it can clean up; then make it."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=10)
            return


# -- looking ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Own:
    """What belongs to the user and must stay as it is: the branch, HEAD, and every changed file."""

    branch: str
    head: str
    status: bytes

    @classmethod
    def of(cls, shell: Shell) -> "Own":
        branch = (
            shell.quiet("git", "symbolic-ref", "-q", "HEAD", check=False)
            .decode(errors="replace")
            .strip()
        )
        return cls(
            branch,
            shell.text("git", "rev-parse", "HEAD"),
            shell.quiet("git", "status", "--porcelain=v1", "-z"),
        )


@dataclass
class Search:
    """Looks for secrets in files and git objects, and counts where it looked."""

    secrets: Sequence[str]
    files: int = 0
    found: list[str] = field(default_factory=list)

    def in_bytes(self, content: bytes, where: str) -> None:
        self.found += [where for secret in self.secrets if secret.encode() in content]

    def in_files(self, folder: Path, *, without: str | None = None) -> None:
        for parent, folders, names in os.walk(folder):
            if without in folders:
                folders.remove(without)
            for name in names:
                path = Path(parent, name)
                if path.is_file():
                    self.files += 1
                    self.in_bytes(path.read_bytes(), str(path))


def editable(shell: Shell) -> str:
    """A tracked plain file for the agent to edit: the README if there is one."""
    entries = shell.quiet("git", "ls-files", "-s", "-z").decode(errors="replace").split("\0")
    names = [entry.partition("\t")[2] for entry in entries if entry.startswith("100")]
    names = [name for name in names if name.isprintable()]
    return next(
        (name for name in names if name.lower().startswith("readme")),
        names[0] if names else "README",
    )


def unused(shell: Shell) -> str:
    """A name for the agent's new file."""
    return next(
        name
        for number in range(1, 1000)
        if not (shell.place / (name := f"from-the-sandbox-{number}.txt")).exists()
    )


# -- the story -------------------------------------------------------------------------------------


@dataclass
class Trip:
    """One round trip in a repository."""

    story: Story
    shell: Shell
    local: LocalDaytona
    tokens: list[str]
    data: Path
    whole: bool
    """Whether all objects of the repository are searched for secrets, or only the new ones (it may
    be large)."""
    number: str = ""

    def git(self, *arguments: str) -> str:
        return self.shell.text("git", *arguments)

    @property
    def branch(self) -> str:
        return f"opencode/{self.number}"

    def run(self) -> None:
        own = Own.of(self.shell)
        self.start()
        self.work()
        there = self.bring_back()
        self.look(own, there)
        self.check_secrets(own.head)
        self.delete()

    def start(self) -> None:
        with self.story.step("Start a session: make a sandbox, and push HEAD into it over SSH"):
            told = re.search(
                r"^session (\d+) started", self.shell.show("git", "daytona", "start"), re.MULTILINE
            )
            if told is None:
                raise Failed("'git daytona start' did not say which session it started")
            self.number = told[1]

    def work(self) -> None:
        with self.story.step(
            "Work in it as an agent would: commit a new file, edit another and leave it at that"
        ):
            new, edited = unused(self.shell), editable(self.shell)
            steps = (
                "pwd",
                f"echo 'Hello from the sandbox.' >{shlex.quote(new)}",
                f"git add -f {shlex.quote(new)} && git commit -q -m 'Say hello from the sandbox'",
                f"echo 'One more line, not committed.' >>{shlex.quote('./' + edited)}",
                "git status --short",
            )
            display = (
                f'git daytona exec {self.number} -- "\n  '
                f'{chr(10).join(steps).replace(chr(10), chr(10) + "  ")}"'
            )
            self.shell.show(
                "git",
                "daytona",
                "exec",
                self.number,
                "--",
                "set -e\n" + "\n".join(steps),
                display=display,
            )

    def bring_back(self) -> str:
        """Sync. Returns the commit that the sandbox has checked out, read from the sandbox's own
        files."""
        with self.story.step(
            "Bring it back: commit what is pending there, and fetch it all under one "
            "short-lived token"
        ):
            self.shell.show("git", "daytona", "sync", self.number)
        project = self.local.sandboxes[0].home / "project"
        return self.git("-c", f"safe.directory={project}", "-C", str(project), "rev-parse", "HEAD")

    def look(self, own: Own, there: str) -> None:
        with self.story.step(f"Look at what came back on {self.branch}"):
            colour = ("-c", "color.ui=always") if self.story.coloured else ()
            for arguments in (
                ("log", "--graph", "--oneline", "--decorate", "-4", self.branch),
                ("diff", "HEAD", self.branch),
            ):
                self.shell.show("git", *colour, *arguments, display=f"git {shlex.join(arguments)}")
            here = self.git("rev-parse", f"refs/heads/{self.branch}")
            self.story.check(
                here == there,
                f"{self.branch} is the commit that the sandbox has checked out: {there[:10]}",
            )
            commits = self.git("rev-list", "--count", f"{own.head}..{here}")
            on_top = self.git("merge-base", own.head, here) == own.head
            self.story.check(
                commits == "2" and on_top,
                "both commits, the agent's and the sync's, are there, on top of your HEAD",
            )
            self.story.check(
                Own.of(self.shell) == own, "your own branch, index and files are as they were"
            )

    def check_secrets(self, base: str) -> None:
        with self.story.step("Look for secrets"):
            address = self.git("remote", "get-url", f"sandbox-{self.number}")
            self.shell.show("git", "remote", "get-url", f"sandbox-{self.number}")
            self.story.check(
                "@" not in urlsplit(address).netloc,
                "the remote's URL names no user: the token is not in it",
            )
            search = Search([*self.tokens, self.local.api_key])
            folder = Path(self.git("rev-parse", "--absolute-git-dir"))
            search.in_files(folder, without="objects")
            which = ("--batch-all-objects",) if self.whole else ()
            names = self.git("rev-list", "--objects", "--no-object-names", self.branch, f"^{base}")
            search.in_bytes(self.objects(names, which), "an object of the repository")
            search.in_files(self.data)
            tokens = f"none of the {len(self.tokens)} tokens that were minted"
            where = f"{search.files} files, objects unpacked"
            self.story.check(
                bool(self.tokens) and not search.found,
                f"{tokens}, nor the API key, is in .git, the state or the log ({where})",
            )
            for place in dict.fromkeys(search.found):
                self.story.line(f"found in {place}")
            self.check_tokens()

    def objects(self, names: str, options: Sequence[str]) -> bytes:
        if options:
            return self.shell.quiet("git", "cat-file", "--batch", "--unordered", *options)
        return b"".join(self.shell.quiet("git", "cat-file", "-p", name) for name in names.split())

    def check_tokens(self) -> None:
        minted, revoked, live = (
            self.local.counts["mint"],
            self.local.counts["revoke"],
            self.local.live_tokens(),
        )
        holds = 0 < minted == revoked == len(self.tokens) and live == 0
        self.story.check(holds, f"tokens: {minted} minted, {revoked} revoked, {live} alive")

    def delete(self) -> None:
        with self.story.step(f"Delete the session; {self.branch} stays"):
            self.shell.show("git", "daytona", "delete", self.number)
            remotes = self.git("remote").split()
            gone = f"sandbox-{self.number}" not in remotes and not self.local.sandboxes
            self.story.check(gone, f"the sandbox and the remote sandbox-{self.number} are gone")
            self.check_tokens()

    def abandon(self) -> None:
        """After a failure in somebody's own repository: take the session away again. Branch
        opencode/N stays."""
        self.shell.quiet("git", "daytona", "delete", "--force", self.number, check=False)

    def conclude(self) -> None:
        tip = self.git("log", "-1", "--format=%H %s", self.branch)
        commit, _, subject = tip.partition(" ")
        self.story.say(
            f"\n{self.story.paint('1', self.branch)} holds the sandbox's commit "
            f"{commit[:10]} '{subject}'"
        )
        minted, revoked = self.local.counts["mint"], self.local.counts["revoke"]
        self.story.say(
            f"{minted} tokens were minted and {revoked} revoked, all within "
            f"{time.monotonic() - self.story.began:.1f} s"
        )


@contextlib.contextmanager
def embedded(story: Story, place: Path, tokens: list[str]) -> Iterator[LocalDaytona]:
    with contextlib.ExitStack() as stack:
        with story.step("Start a Daytona of our own, on loopback"):
            local = stack.enter_context(LocalDaytona(place))
            local.watch_tokens(tokens.append)
            story.line(
                f"API {local.api_url}, SSH gateway {local.gateway_host}:{local.gateway_port}"
            )
            story.line(
                f"sandboxes are kept apart from this machine by {local.isolation.name}"
                if local.isolation.isolates
                else "SANDBOXES ARE NOT KEPT APART from this machine (install bubblewrap): they "
                "run as you"
            )
        yield local


def clone(story: Story, shell: Shell, target: Path) -> None:
    with story.step("Clone this checkout into a scratch folder"):
        if not (ROOT / ".git").exists():
            raise Failed(
                f"'{ROOT}' is not a git repository",
                "work in a repository of yours: bin/demo --repo DIR",
            )
        # Loose ends of the checkout stay there: git copies commits, and hard links would let a
        # repack reach the original.
        shell.show(
            "git",
            "clone",
            "--quiet",
            "--no-hardlinks",
            str(ROOT),
            str(target),
            display=f"git clone {ROOT} {target}",
        )
        shell.place = target
        story.line(f"HEAD is {shell.text('git', 'log', '-1', '--format=%h %s')}")


def use(story: Story, shell: Shell, folder: Path) -> None:
    if not folder.is_dir():
        raise Failed(f"'{folder}' is not a directory", "give the directory of a git repository")
    shell.place = folder.resolve()
    if shell.quiet("git", "rev-parse", "--verify", "-q", "HEAD^{commit}", check=False) == b"":
        raise Failed(
            f"'{folder}' is not a git repository with a commit",
            "give one that has a commit to start from",
        )
    story.line(
        f"in {shell.text('git', 'rev-parse', '--show-toplevel')}, HEAD is "
        f"{shell.text('git', 'log', '-1', '--format=%h %s')}"
    )


def demo(signals: Signals, repo: Path | None, keep: bool) -> int:
    story = Story()
    story.say(
        "A round trip with git-daytona. All of it happens on this machine; no account is needed."
    )
    with contextlib.ExitStack() as stack:
        place = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="git-daytona-demo-", ignore_cleanup_errors=True)
            )
        )
        shell = Shell(story, signals, environment(place))
        tokens: list[str] = []
        local = stack.enter_context(embedded(story, place / "daytona", tokens))
        shell.env |= {
            "DAYTONA_API_URL": local.api_url,
            "DAYTONA_API_KEY": local.api_key,
            "DAYTONA_SNAPSHOT": DEFAULT_SNAPSHOT,
        }
        if repo is not None:
            use(story, shell, repo)
        else:
            scratch = Path(tempfile.mkdtemp(prefix="git-daytona-scratch-"))
            if not keep:
                stack.callback(shutil.rmtree, scratch, ignore_errors=True)
            clone(story, shell, scratch / "checkout")
        trip = Trip(story, shell, local, tokens, place / "xdg_data_home", whole=repo is None)
        try:
            trip.run()
        except BaseException:
            if repo is not None and trip.number:
                trip.abandon()
            raise
        trip.conclude()
        if repo is None and keep:
            story.say(f"the scratch clone is kept: {shell.place}")
    if story.broken:
        raise Failed(f"{len(story.broken)} of the promises above did not hold")
    return 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="bin/demo",
        description="Show the whole round trip with an embedded Daytona: HEAD goes into a sandbox, "
        "and "
        "work comes back on opencode/N.",
    )
    parser.add_argument(
        "--repo",
        metavar="DIR",
        type=Path,
        help="work in this repository, for real, instead of a scratch clone",
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the scratch clone and say where it is"
    )
    options = parser.parse_args(arguments)
    signals = Signals()
    try:
        return demo(signals, options.repo, options.keep)
    except Failed as problem:
        sys.stdout.flush()
        sys.stderr.write(f"demo: error: {problem}\nhint: {problem.hint}\n")
        return FAILED
    except KeyboardInterrupt:
        sys.stdout.flush()
        sys.stderr.write("\ninterrupted; everything was cleaned up\n")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
