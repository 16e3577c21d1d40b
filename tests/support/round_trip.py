"""The whole round trip at hand, for the conftests of flows and stories: an embedded Daytona per
module, a repository and a coordinator."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from git_daytona.api.cloud import Cloud, Execution
from git_daytona.git import repository as git
from git_daytona.local.server import LocalDaytona
from git_daytona.sandbox import report
from git_daytona.sessions.branch import Outcome
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.settings import settings

BIN = Path(__file__).parents[2] / "bin"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalDaytona]:
    with LocalDaytona(tmp_path_factory.mktemp("daytona")) as running:
        yield running


@pytest.fixture
def local(server: LocalDaytona, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalDaytona]:
    """The module's server without faults or calls on record; the environment points to it."""
    server.faults.clear()
    server.forget_calls()
    monkeypatch.setenv("DAYTONA_API_URL", server.api_url)
    monkeypatch.setenv("DAYTONA_API_KEY", server.api_key)
    yield server
    server.faults.clear()


@dataclass
class Repo:
    """A local repository, by plain git as a user would."""

    path: Path

    def git(
        self,
        *arguments: str,
        check: bool = True,
        env: dict[str, str] | None = None,
        stdin: str | None = None,
    ) -> str:
        done = subprocess.run(
            ("git", *arguments),
            cwd=self.path,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=60,
            env=os.environ | (env or {}),
            input=stdin,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"git {arguments} failed: {done.stderr}")
        return done.stdout.strip()

    def write(self, name: str, content: str = "content\n") -> Path:
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        return target

    def commit(self, name: str, content: str = "content\n") -> str:
        self.write(name, content)
        self.git("add", "--", name)
        self.git("commit", "-q", "-m", f"Add {name}")
        return self.git("rev-parse", "HEAD")

    def kept(self) -> dict[str, str]:
        """refs/daytona/kept/…: name to commit."""
        lines = self.git(
            "for-each-ref", "--format=%(refname) %(objectname)", "refs/daytona/kept"
        ).splitlines()
        return dict(line.split(" ") for line in lines)

    def show(self, revision: str, name: str) -> str:
        return self.git("show", f"{revision}:{name}")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """A repository with one commit."""
    path = tmp_path / "repository"
    path.mkdir()
    made = Repo(path)
    made.git("init", "-q")
    made.commit("README", "hello\n")
    return made


def program(path: Path, text: str) -> Path:
    """An executable script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def trust_by_hand(server: LocalDaytona, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust a server's gateway by a file, as a person would for one that publishes no host keys."""
    known = folder / "known_hosts"
    known.write_text(
        "".join(
            f"[{server.gateway_host}]:{server.gateway_port} {key}\n"
            for key in server.gateway.presented_keys()
        )
    )
    monkeypatch.setenv("DAYTONA_SSH_KNOWN_HOSTS", str(known))


def stop(cloud: Cloud, sandbox_id: str) -> None:
    """Stop a sandbox as its idle limit would, and wait until it has stopped."""
    cloud._ask("stop it", "POST", f"/sandbox/{sandbox_id}/stop")
    while cloud.get(sandbox_id).state != "stopped":
        time.sleep(0.02)


def in_project(command: str, *, timeout: float) -> report.Command:
    """A line of shell, for the project's directory (home without one)."""
    return report.in_directory('command=$1; set --; eval " $command"', command, timeout=timeout)


def execute(
    coordinator: Coordinator, name: str, command: str, *, timeout: float = 300
) -> tuple[Execution, str]:
    """Run a line of shell in a session's project as a tool does: its result, and what the agent is
    told besides."""
    once = in_project(command, timeout=timeout)
    result, _, notice = coordinator.work_in(
        coordinator.find(name), lambda sandbox_id: once.run(coordinator.cloud, sandbox_id)
    )
    return result, notice


@dataclass
class Session:
    """A started session with short ways to act in its sandbox."""

    coordinator: Coordinator
    number: int
    sandbox_id: str
    told: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.number)

    def agent(self, script: str) -> str:
        """Run a script in the sandbox's project as the agent would; it must succeed."""
        result = execute(self.coordinator, self.name, script)[0]
        assert result.status == 0, result.output
        return result.output

    def sync(self) -> Outcome:
        return self.coordinator.sync(self.name)


@pytest.fixture
def coordinate() -> Iterator[Callable[[Path], Coordinator]]:
    """A coordinator for a repository, as a process of its own would make one."""
    made: list[Coordinator] = []

    def make(path: Path) -> Coordinator:
        repository = git.discover(path)
        made.append(Coordinator(repository, settings.load(repository.worktree)))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def begin(local: LocalDaytona, coordinate: Callable[[Path], Coordinator]) -> Callable[..., Session]:
    """Start a session in a repository."""

    def start(repository: Repo, session_id: str | None = None) -> Session:
        coordinator = coordinate(repository.path)
        started = coordinator.start(session_id)
        return Session(coordinator, started.session.names.number, started.session.sandbox_id)

    return start


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str


@pytest.fixture
def command() -> Callable[..., Ran]:
    """Run one of the executables in bin/ as a user does."""

    def run(
        *words: str,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        stdin: str = "",
        timeout: float = 60,
    ) -> Ran:
        done = subprocess.run(
            (str(BIN / words[0]), *words[1:]),
            cwd=cwd,
            env=os.environ | (env or {}),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert "Traceback" not in done.stderr + done.stdout
        return Ran(done.returncode, done.stdout, done.stderr)

    return run
