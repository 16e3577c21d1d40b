"""All that is done with sessions, for the command line, the service and hooks: they are found
(lookup.py), started (start.py), worked in, synced (sync.py) and deleted (deletion.py)."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from git_daytona.base.errors import Elsewhere, GitDaytonaError, SandboxGone
from git_daytona.git import branches
from git_daytona.git import repository as git
from git_daytona.sessions import home, state, working
from git_daytona.sessions.branch import Outcome
from git_daytona.sessions.deletion import Deletions
from git_daytona.sessions.provision import WAITING
from git_daytona.sessions.start import Started, Starts
from git_daytona.sessions.state import Session
from git_daytona.settings import settings

T = TypeVar("T")


class Coordinator(Starts, Deletions):
    """All operations on the sessions of one repository, or of a directory without one."""

    @classmethod
    def of(cls, directory: Path, *, anywhere: bool = False, **how: Any) -> Self:
        """Make that of the repository that a directory is in, or ``anywhere`` of one without, with
        its settings; ``how`` as in __init__. Raises BadSetting, NoRepository."""
        place = git.find(directory) if anywhere else git.discover(directory)
        found = settings.load(place.worktree if place else directory)
        return cls(place or directory, found, **how)

    def within(
        self,
        session_id: str,
        work: Callable[[str], T],
        *,
        begun: Session | None = None,
        origin: str | None = None,
    ) -> tuple[T, Session, str]:
        """Do something in the sandbox, by its id, of the session that a tool call is for.

        The sandbox is made at the first call, and started or replaced (HEAD is then what was synced
        last) when the work finds it stopped or gone; then the work is done again. Returns what it
        gave, the session, and a notice: what the agent has to be told besides (empty: nothing).
        ``begun`` is the session that the same call has worked in before; raises CutShort if it was
        deleted since then. ``origin`` is the id of the session that a new one was forked from.
        """
        if begun is not None and self.state.get(session_id) is None:
            raise home.deleted(begun)
        return self.work_in(self.ensure(session_id, origin=origin).session, work)

    def ensure(self, session_id: str, *, origin: str | None = None) -> Started:
        """Return the session for a tool call: made at the first one, without any API call later.

        A directory that cannot be synced (no repository, a bare one) gets an empty project. A setup
        that failed raises (case 58); the next call tries it again.
        """
        session = self.get(session_id)
        self._check_home(session)
        if session is not None and (
            session.git_return.state != state.SETUP_FAILED or self._only_blocked(session)
        ):
            return Started(session, new=False)
        synced = self.worktree is not None
        return self.start(session_id, synced=synced, for_tools=True, origin=origin)

    def _only_blocked(self, session: Session) -> bool:
        """Tell whether the project is in the sandbox, and only its branch cannot be here."""
        if session.number is None:
            return False
        blocked = branches.in_the_way(self.repository, session.prefix)
        return blocked is not None and session.git_return.message == blocked.message

    def work_in(self, session: Session, work: Callable[[str], T]) -> tuple[T, Session, str]:
        """Do something in a session's sandbox as ``within`` does."""
        # Before it is used, so that a crash leaves no work that nobody knows of. If the file knows
        # that already, the next call, or the sync, says that it cannot be written.
        known = session.needs_sync and not session.deleting
        touched = 0
        with suppress(GitDaytonaError) if known else nullcontext():
            touched = self.state.touch(session.id)
        with working.mark(self.git_dir, session.id):
            try:
                value = self.awake(session, work)
            except SandboxGone:
                session = self.start(session.id, for_tools=True, again=session).session
                value = self.awake(session, work)
            except Elsewhere:
                self.state.untouch(session, touched)
                raise
        if session.setup.state == WAITING and self.provision.is_permitted(session):
            with self.one_at_a_time(session.id):
                self.provision.permitted(self.find(session.id))
        return value, session, self.state.take_notice(session.id)

    def stop(self, name: str, *, synced: bool = True) -> Outcome | None:
        """Stop a session's sandbox once its work is here, unless ``synced`` is off; return what
        came back, None where nothing had to. Raises whatever keeps the work from coming back."""
        session = self.find(name)
        with self.at_home(session):
            running = self.sandboxes.settle(self.cloud.get(session.sandbox_id)).state == "started"
        outcome = None
        if running and synced and session.needs_sync:
            try:
                outcome = self.sync(session.id)
            except GitDaytonaError as problem:
                anyway = f"or stop it all the same: git daytona stop --no-sync {session.name}"
                hint = f"it runs on; {problem.hint or 'the log has more'}; {anyway}"
                raise problem.but(hint=hint) from problem
        with self.one_at_a_time(session.id), self.at_home(session):
            self.sandboxes.stop(session.sandbox_id)
        return outcome

    def snapshot(self, name: str, snapshot: str) -> Session:
        """Make a snapshot of a session's sandbox, which sandboxes can be made from; return the
        session. Raises UsageError where there is one of the name."""
        session = self.find(name)
        with self.one_at_a_time(session.id), self.at_home(session):
            self.sandboxes.snapshot(session.sandbox_id, snapshot)
        return session

    def resume(self, name: str) -> bool:
        """Start a session's sandbox; return whether it did not run. Raises SandboxGone."""
        session = self.find(name)
        with self.one_at_a_time(session.id), self.at_home(session):
            info = self.sandboxes.settle(self.cloud.get(session.sandbox_id))
            self.sandboxes.awake(info)
            return info.state != "started"
