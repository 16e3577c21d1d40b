"""The project on its way into a session's sandbox, and its work on the way back."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from git_daytona.base import errors
from git_daytona.base.errors import Elsewhere, GitDaytonaError, SandboxGone
from git_daytona.base.secret import one_line
from git_daytona.base.threads import Late, within
from git_daytona.git import branches
from git_daytona.git.repository import Repository
from git_daytona.sandbox import report
from git_daytona.sandbox.transport import Transport
from git_daytona.sessions import commits, state, submodules
from git_daytona.sessions.branch import Outcome
from git_daytona.sessions.lookup import Lookup
from git_daytona.sessions.sandbox_branch import SandboxBranch
from git_daytona.sessions.state import Session
from git_daytona.settings import preferences

T = TypeVar("T")

AT_ONCE_SECONDS = 3.0
"""How long a command that syncs first waits for the API."""
REPLACED = "the sandbox was gone and was replaced; work that had not been synced is lost"
FINISHED = f"{REPLACED}, but for what was brought during its last turn, which is in the new one"


class Syncs(Lookup):
    """What goes between a session's branch and its sandbox."""

    def sync(self, name: str, *, everything: bool = False) -> Outcome:
        """Bring a session's work back, ``everything`` if its sandbox goes; record how it went."""
        session = self.find(name)
        _ = session.names  # raises NoRepository
        with self.one_at_a_time(session.id):
            # it may have been deleted meanwhile
            return self._sync_noted(self.find(session.id), everything=everything)

    def sync_aside(self, name: str, *, everything: bool = False) -> Outcome:
        """Bring what a session has so far in the middle of a turn, without the agent's noticing it;
        the turn's end is still to be synced. Raises what ``sync`` does."""
        with self.one_at_a_time(self.find(name).id):
            session = self.find(name)
            outcome = self._sync(session, everything=everything, aside=True)
            if outcome.changed:
                self.state.note(session.id, state.PENDING, outcome.message)
            return outcome

    def sync_at_once(self, session: Session) -> Outcome | None:
        """Sync a session that was used since its last sync, if nobody has to wait for more than
        that: not for a sandbox that sleeps, an API that is slow or another sync. Return what came,
        None for nothing. Raises what says why it was not."""
        if not session.needs_sync:
            return None
        if self.busy(session.id):
            raise errors.TimedOut("another process is at work on it just now")
        try:
            with self.at_home(session):
                info = within(AT_ONCE_SECONDS, lambda: self.cloud.get(session.sandbox_id))
        except Late:
            raise errors.TimedOut("Daytona does not answer at once") from None
        if info.state != "started":
            raise errors.SandboxNotRunning(f"its sandbox is {one_line(info.state)}")
        return self.sync(session.id)

    def syncs_on_idle(self, session: Session) -> bool:
        """Tell whether the end of a session's turn is synced: as daytona.syncOnIdle says, and where
        what is only in the sandbox may be gone by itself."""
        if preferences.load(self.directory).sync_on_idle():
            return True
        with suppress(GitDaytonaError), self.at_home(session):  # a sync would fail as well
            info = self.cloud.known(session.sandbox_id) or self.cloud.get(session.sandbox_id)
            return info.ends_by_itself
        return False

    def update(self, name: str, revision: str = "HEAD") -> Outcome | None:
        """Merge commits of the user's in a session's sandbox, and bring the result back; return
        None where there was nothing new. Log and diff then begin where these commits end, unless
        they lack what the session began with. Raises NotFound, TransferFailed."""
        session, repository = self.find(name), self.repository
        commit = repository.commit(revision)
        label = repository.git("rev-parse", "--abbrev-ref", revision, check=False).text
        what = f"{label} ({commit[:10]})" if label and label.isprintable() else commit[:10]
        branch, names = self._branch(session), session.names
        with self.one_at_a_time(session.id):
            self.state.touch(session.id)
            if not self.awake(session, lambda _: branch.update(commit, what)):
                return None
            outcome = self._sync_noted(self.find(session.id))
            base = repository.refs(names.base).get(names.base)
            if base and repository.contains([commit], base):
                repository.update_refs([f"update {names.base} {commit} {base}"])
            return outcome

    def fetch(self, name: str) -> Outcome:
        """Fetch a session's branches as they are: nothing is committed there, opencode/N stays."""
        return self._in_turn(name, SandboxBranch.fetch)

    def push(self, name: str) -> str:
        """Push the local opencode/N into the sandbox, fast-forward only; return the commit."""
        return self._in_turn(name, SandboxBranch.push)

    def _in_turn(self, name: str, work: Callable[[SandboxBranch], T]) -> T:
        session = self.find(name)
        branch = self._branch(session)
        with self.one_at_a_time(session.id):
            return self.awake(session, lambda _: work(branch))

    # -- the parts ---------------------------------------------------------------------------------

    def _sync_noted(self, session: Session, *, everything: bool = False) -> Outcome:
        """Sync, and record the outcome or the error."""
        begun = session.last_accessed
        outcome = self._sync_or_note(session, everything=everything)
        self.state.note(session.id, state.SYNCED, outcome.message, synced_at=begun)
        return outcome

    def _sync_or_note(self, session: Session, *, everything: bool = False) -> Outcome:
        """Sync, or record the error, but of a session that lives elsewhere."""
        try:
            return self._sync(session, everything=everything)
        except Elsewhere:
            raise
        except GitDaytonaError as problem:
            # what is not set up stays so, or tools would miss the project in it
            now = self.state.get(session.id) or session
            setting_up = now.git_return.state == state.SETUP_FAILED
            failed = state.SETUP_FAILED if setting_up else state.FAILED
            self.state.note(session.id, failed, problem.message)
            raise

    def _sync(self, session: Session, *, everything: bool = False, aside: bool = False) -> Outcome:
        branch = self._branch(session)
        # what the sandbox lacks comes first; it may only have been a bad moment
        if session.git_return.state == state.SETUP_FAILED:
            if blocked := branches.in_the_way(self.repository, session.prefix):
                raise blocked
            self.awake(session, lambda _: self._set_up(session))
        try:
            return self.awake(session, lambda _: branch.sync(everything=everything, aside=aside))
        except SandboxGone:  # the branch gets what there is of it
            self._finish_turn(session)
            raise

    def _set_up(self, session: Session, *, fresh: bool = False, replaced: str = "") -> None:
        """Put the project into a sandbox: a ``fresh`` one, which has ``replaced`` another one where
        that says so, or one that was there. If only a branch is in the way, the agent is told."""
        if session.number is None:
            report.make_project(self.cloud, session.sandbox_id)
            return
        is_copy = self.sandboxes.is_copy(session.sandbox_id)
        try:
            self._branch(session).set_up(fresh=fresh and not is_copy)
        except GitDaytonaError as problem:
            self.state.note(session.id, state.SETUP_FAILED, problem.message)
            raise
        # before it counts as set up: who is killed meanwhile leaves it to be done
        if is_copy:  # it has the files, and what the set-up has made
            self.provision.started(session.sandbox_id)
        else:
            self.provision.begin(session, fresh=fresh)
        if blocked := branches.in_the_way(self.repository, session.prefix):
            self.state.note(session.id, state.SETUP_FAILED, blocked.message)
            why = f"{blocked.message} ({blocked.hint})"
            told = f"nothing comes back from this sandbox as long as {why}"
            self.state.add_notice(session.id, told)
        else:
            self.state.note(session.id, state.PENDING, replaced or "not synced yet")

    def _lost(self, session: Session) -> str:
        """Say what is lost with a sandbox that is gone; what had come is on the branch then."""
        return FINISHED if session.number is not None and self._finish_turn(session) else REPLACED

    def _finish_turn(self, session: Session) -> bool:
        """Give the branches what came during a turn whose sandbox is gone; tell whether any did."""
        names = session.names
        return sum(branches.finish_turn(each, names) for each in self._repositories(session)) > 0

    def _repositories(self, session: Session) -> list[Repository]:
        """The repositories here that have refs of a session's."""
        if not preferences.load(self.directory).submodules():
            return [self.repository]
        return list(submodules.repositories(self._branch(session)))

    def _branch(self, session: Session) -> SandboxBranch:
        names = session.names
        commit = commits.text(self.state.get(session.id) or session, self.directory)
        base = self.repository.refs(names.base).get(names.base) if session.depth else None
        transport = self._transport((base, session.depth) if base else None)
        preferred = preferences.load(self.directory)
        lfs, inner = preferred.lfs(), preferred.submodules()
        repository, begun_in = self.repository, Path(session.worktree)
        # each worktree has submodules of its own
        if inner and begun_in in (tree.path for tree in repository.worktrees()):
            repository = repository.at(begun_in)
        return SandboxBranch(repository, transport, session.sandbox_id, names, commit, inner, lfs)

    def _transport(self, within: tuple[str, int] | None = None) -> Transport:
        return Transport(self.repository, self.transfers, self.tell, self.show, within)
