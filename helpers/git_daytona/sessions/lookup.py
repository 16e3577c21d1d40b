"""Which sessions a repository has, which one is meant, where it lives, and whose turn it is."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from git_daytona.api.cloud import Cloud
from git_daytona.base import errors, files, log, paths
from git_daytona.base.errors import Forbidden, GitDaytonaError, NoRepository, SandboxGone
from git_daytona.git import configuration
from git_daytona.git.refs import number_in
from git_daytona.git.repository import Repository
from git_daytona.sandbox.lifecycle import Mark, Sandboxes, dangers, mark_for
from git_daytona.sessions import choice, home, project
from git_daytona.sessions.provision import Provision
from git_daytona.sessions.state import Session
from git_daytona.sessions.state_file import StateFile
from git_daytona.settings.settings import Settings
from git_daytona.transfer import leases
from git_daytona.transfer.transfer import Transfers
from git_daytona.trust.gateway import Policy

T = TypeVar("T")

NO_REPOSITORY = "there is no git repository here, so nothing is synced"


class Lookup:
    """The sessions of one repository, or of a directory without one. ``tell`` receives a line per
    step that a person may wait for; ``show`` lets git's own progress be seen."""

    def __init__(
        self,
        place: Repository | Path,
        found: Settings,
        tell: Callable[[str], None] = lambda _line: None,
        project_id: str | None = None,
        *,
        show: bool = False,
    ) -> None:
        self.settings, self.tell, self.show = found, tell, show
        self.cloud = Cloud(found)
        self.policy = Policy(found, self.cloud.config)
        self.transfers = Transfers(found, self.cloud, self.policy)
        self.sandboxes = Sandboxes(self.cloud, tell, self._woke)
        self._repository = place if isinstance(place, Repository) else None
        self.directory = place if isinstance(place, Path) else place.worktree or place.git_dir
        self.git_dir = str(self._repository.common_dir) if self._repository else str(self.directory)
        project_id = project_id or project.project_of(self._repository)
        self.state = StateFile(project_id, str(self.directory), self.git_dir)

    @property
    def has_repository(self) -> bool:
        return self._repository is not None

    @property
    def repository(self) -> Repository:
        """The repository; raises NoRepository where there is none."""
        if self._repository is None:
            raise NoRepository(NO_REPOSITORY, hint="go to a repository, or make one: git init")
        return self._repository

    @property
    def provision(self) -> Provision:
        """What sandboxes get beside the repository; raises NoRepository where there is none."""
        return Provision(self.cloud, self.state, self.repository, self.tell)

    def _woke(self, sandbox_id: str) -> None:
        if self._repository:
            self.provision.started(sandbox_id)

    @property
    def worktree(self) -> Path | None:
        """The worktree in which one stands; None where there is none."""
        return self._repository.worktree if self._repository else None

    def close(self) -> None:
        """Wait for what runs behind the calls (revocations)."""
        self.transfers.drain()

    # -- which session -----------------------------------------------------------------------------

    def sessions(self) -> list[Session]:
        """List the sessions of this repository, not of the project's other clones, by number."""
        self.state.gather()
        found = self._own(self.state.sessions())
        places = {str(self.directory)}
        # Only the existing plugin's records do not name their repository.
        if self._repository and not all(each.git_dir for each in found):
            places |= {str(tree.path) for tree in self._repository.worktrees()}
        return [each for each in found if each.git_dir or each.worktree in places]

    def _own(self, sessions: Sequence[Session]) -> list[Session]:
        """Leave out the sessions whose records name another repository."""
        mine, own = (None, self.git_dir), ("", self.state.identity)
        return [each for each in sessions if each.git_dir in mine and each.repository in own]

    def get(self, session_id: str) -> Session | None:
        """Return the session of an id; None where there is none. Raises NotFound for one that lives
        in another repository, BadRecord for one that cannot be read."""
        session = self.state.get(session_id)
        if session is not None and not self._own([session]):
            self.state.gather()  # the repository may have been moved here
            session = self.state.get(session_id)
        if session is not None and not self._own([session]):
            raise errors.NotFound(
                f"session '{session_id}' lives in another repository, that of '{session.worktree}'",
                hint="use it there, or start another one here",
            )
        return session

    def find(self, name: str) -> Session:
        """Find the session of ``3``, ``sandbox-3``, ``opencode/3`` or an id; with no name the one
        that is meant (choice.py). Raises NotFound, and Elsewhere for one of another API."""
        session = self.find_anywhere(name)
        self._check_home(session)
        return session

    def find_anywhere(self, name: str) -> Session:
        """Find a session as ``find`` does, for what asks nothing of its sandbox."""
        sessions = self.sessions()
        if not name:
            return choice.meant(sessions, self._repository)
        number = number_in(name) or -1
        for session in sessions:
            if name in (session.id, session.sandbox_id, session.branch):
                return session
            if number in (session.number, session.own_number):
                return session
        self.get(name)  # raises what is known of it
        raise errors.NotFound(
            f"there is no session '{name}' in this repository",
            hint="'git daytona status' lists them",
        )

    def identified(self, name: str) -> str:
        """Return the id of a session; the name itself where there is none yet, or none any more."""
        with suppress(errors.NotFound):
            return self.find_anywhere(name).id
        return name

    def mark(self, session_id: str) -> Mark:
        """Return the mark of a session's creation, as it is on disk or as it would be."""
        return mark_for(session_id, self.state.project_id, self.git_dir, self.settings.api_url)

    # -- where it lives ----------------------------------------------------------------------------

    def _check_home(self, session: Session | None) -> None:
        if session and (problem := home.elsewhere(session, self.settings.api_url)):
            raise problem

    def lives_here(self, sandbox_id: str) -> dict[str, str]:
        """Return the fields of a session which say that its sandbox lives here."""
        info = self.cloud.known(sandbox_id)
        organization_id = info.organization_id if info else ""
        return {"api_url": self.settings.api_url, "organization_id": organization_id}

    @contextmanager
    def at_home(self, session: Session) -> Iterator[None]:
        """Let the block use a session's sandbox where the session lives, and record where that is
        if nobody has. Raises Elsewhere, also for what another organisation's key is told."""
        self._check_home(session)
        try:
            with home.naming(session):
                yield
        except (SandboxGone, Forbidden) as problem:
            current = self.state.get(session.id) or session
            own = self.cloud.organization_id() if current.organization_id else ""
            if found := home.elsewhere(current, self.settings.api_url, own):
                raise found from problem
            if isinstance(problem, SandboxGone):
                if not current.api_url:
                    raise home.unknown(current, self.settings.api_url) from problem
                self.sandboxes.made(session.sandbox_id).forget()
            raise
        lives = self.lives_here(session.sandbox_id)
        if not session.api_url or (not session.organization_id and lives["organization_id"]):
            self.state.edit(session.id, **lives)

    def awake(self, session: Session, work: Callable[[str], T]) -> T:
        """Do something in a session's sandbox, by its id, where the session lives; the sandbox is
        started if it does not run. Raises Elsewhere, and SandboxGone."""
        with log.about(session=session.id), self.at_home(session):
            return self.sandboxes.while_awake(session.sandbox_id, lambda: work(session.sandbox_id))

    def is_there(self, session: Session | None) -> bool:
        """Start a session's sandbox; False where there is none, or it is gone for good (404)."""
        with suppress(SandboxGone):
            if session is not None:
                with self.at_home(session):
                    self.sandboxes.awake(self.cloud.get(session.sandbox_id))
                return True
        return False

    def dangers(self, session: Session) -> list[str]:
        """Say what a person has to know of a session's sandbox, as it was seen last."""
        info = self.cloud.known(session.sandbox_id)
        return dangers(info) if info else []

    # -- whose turn it is --------------------------------------------------------------------------

    @contextmanager
    def one_at_a_time(
        self, session_id: str, *, seconds: float = leases.LOCK_SECONDS
    ) -> Iterator[None]:
        """Wait for the session's turn, across processes, with preferences held. Raises TimedOut."""
        holds = f"session {self._called(session_id)}"
        lock = files.lock(self._lock(session_id), seconds=seconds, holds=holds)
        with log.about(session=session_id), lock, configuration.held():
            yield

    def _called(self, session_id: str) -> str:
        """Tell what the user knows a session by that may not be recorded yet, or not be ours."""
        with suppress(GitDaytonaError):
            if session := self.state.get(session_id):
                return session.name
        return session_id

    def busy(self, session_id: str) -> bool:
        """Tell whether anybody is at work on the session just now."""
        return files.is_locked(self._lock(session_id))

    def _lock(self, session_id: str) -> Path:
        name = sha256(f"{self.git_dir}\0{session_id}".encode()).hexdigest()[:24]
        return paths.locks() / f"session-{name}"
