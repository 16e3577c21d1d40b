"""The suite itself, as its service uses it."""

from dataclasses import dataclass

from git_daytona.git import repository as git
from git_daytona.git.refs import PROJECT
from git_daytona.sandbox import report as sandbox
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.settings import settings
from support.round_trip import Repo


def coordinator(repo: Repo) -> Coordinator:
    """The coordinator that the service of a repository would have."""
    repository = git.discover(repo.path)
    return Coordinator(repository, settings.load(repository.worktree))


@dataclass
class Ours:
    """One session at a time; everything in one process, revocations behind the operation."""

    coordinator: Coordinator
    session: str = ""
    sandbox: str = ""
    count: int = 0

    def start(self) -> None:
        self.count += 1
        self.session = f"ses_{self.count}"
        self.call()
        found = self.coordinator.state.get(self.session)
        assert found is not None
        self.sandbox = found.sandbox_id

    def call(self) -> None:
        cloud = self.coordinator.cloud
        source = 'cd "$1" && exec sh -c "$2"'
        value = self.coordinator.within(
            self.session,
            lambda place: sandbox.Command(source, PROJECT, "true", timeout=60).run(cloud, place),
        )[0]
        assert value.status == 0

    def sync(self) -> None:
        self.coordinator.sync(self.session)

    def delete(self) -> None:
        self.coordinator.delete(self.session)

    def settle(self) -> None:
        self.coordinator.close()
