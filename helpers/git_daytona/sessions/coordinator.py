"""The life of a session: start, look up, run in it, sync, delete. Every face (click, service,
hooks) goes through a Coordinator."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from git_daytona.api.cloud import Cloud, Execution
from git_daytona.base import files, log, paths
from git_daytona.base.errors import (
    GitDaytonaError,
    NoRepository,
    NotFound,
    SandboxGone,
    TimedOut,
    TransferFailed,
    UsageError,
)
from git_daytona.base.threads import concurrently
from git_daytona.git import branches, legacy_remotes
from git_daytona.git.refs import SANDBOX_BRANCH, Names, number_in
from git_daytona.git.repository import Repository, need_worktree
from git_daytona.sandbox import report
from git_daytona.sandbox.lifecycle import Sandboxes, mark_for
from git_daytona.sessions import state
from git_daytona.sessions.state import GitReturn, Session, StateFile
from git_daytona.sessions.sync import Outcome, SandboxBranch
from git_daytona.settings import preferences
from git_daytona.settings.settings import Settings
from git_daytona.transfer import leases
from git_daytona.transfer.transfer import Transfers
from git_daytona.trust.gateway import Policy

T = TypeVar("T")

EXEC_SECONDS = 3600.0
REPLACED = "the sandbox was gone and was replaced; work that had not been synced is lost"
NO_REPOSITORY = "there is no git repository here, so nothing is synced"


@dataclass(frozen=True)
class Started:
    """A session and whether this call made it (False: it was there already)."""

    session: Session
    new: bool
    replaced: bool = False
    """The session's sandbox was gone and is a new one: work that had not been synced went with
    it."""

    @property
    def names(self) -> Names:
        return names_of(self.session)


@dataclass(frozen=True)
class Executed:
    """What a command left, and what its caller has to be told besides (empty: nothing)."""

    result: Execution
    notice: str = ""


def names_of(session: Session) -> Names:
    """The names of a session's branch and remote; raises NoRepository for one that is not
    synced."""
    if session.number is None:
        raise NoRepository(
            f"session '{session.id}' is not synced: {session.git_return.message}",
            hint="'git daytona exec' reaches it",
        )
    return Names(session.number, session.prefix)


class Coordinator:
    """All operations on the sessions of one repository, or of a directory without one.

    ``tell`` receives one line per step that a person may wait for.
    """

    def __init__(
        self,
        place: Repository | Path,
        found: Settings,
        tell: Callable[[str], None] = lambda _line: None,
        project_id: str | None = None,
    ) -> None:
        self.settings = found
        self.tell = tell
        self.cloud = Cloud(found)
        self.policy = Policy(found, self.cloud.config)
        self.transfers = Transfers(found, self.cloud, self.policy)
        self.sandboxes = Sandboxes(self.cloud, tell)
        self._repository = place if isinstance(place, Repository) else None
        self.directory = place if isinstance(place, Path) else place.worktree or place.git_dir
        self.git_dir = str(self._repository.common_dir) if self._repository else str(self.directory)
        self.state = StateFile(project_id or self._project(), str(self.directory))

    def _project(self) -> str:
        if self._repository is None:
            return state.NO_PROJECT
        roots = self._repository.git("rev-list", "--max-parents=0", "--all", check=False)
        return state.project_of(
            self._repository.common_dir, roots.text if roots.status == 0 else ""
        )

    @property
    def has_repository(self) -> bool:
        return self._repository is not None

    @property
    def repository(self) -> Repository:
        """The repository; raises NoRepository where there is none."""
        if self._repository is None:
            raise NoRepository(NO_REPOSITORY, hint="go to a repository, or make one: git init")
        return self._repository

    def close(self) -> None:
        """Wait for what runs behind the calls (revocations)."""
        self.transfers.drain()

    # -- looking up --------------------------------------------------------------------------------

    def sessions(self) -> list[Session]:
        """The sessions of this repository: the project's, without those of other clones, by
        number."""
        self.state.gather(self.git_dir)
        found = self.state.sessions()
        places = {str(self.directory)}
        # Only the existing plugin's records do not name their repository.
        if self._repository and not all(each.git_dir for each in found):
            places |= {str(tree.path) for tree in self._repository.worktrees()}
        return [
            each
            for each in found
            if (each.git_dir == self.git_dir if each.git_dir else each.worktree in places)
        ]

    def find(self, name: str) -> Session:
        """The session that ``3``, ``sandbox-3``, ``opencode/3``, a sandbox id or a session id
        names. Raises NotFound."""
        number = number_in(name)
        for session in self.sessions():
            branch = f"{session.prefix}/{session.number}"
            if name in (session.id, session.sandbox_id, branch) or (
                number is not None and session.number == number
            ):
                return session
        raise NotFound(
            f"there is no session '{name}' in this repository",
            hint="'git daytona status' lists them",
        )

    # -- start -------------------------------------------------------------------------------------

    def start(
        self,
        session_id: str | None = None,
        *,
        synced: bool = True,
        show: bool = False,
        for_tools: bool = False,
    ) -> Started:
        """Create a sandbox with local HEAD in it, and ``opencode/N`` for what comes back.

        Starting a session that exists makes good what an earlier start left undone.
        ``synced=False`` makes one without a branch (for a directory without a repository). Raises
        what any step raises; the state file says ``setup-failed`` when the sandbox exists but its
        repository is not ready, or nothing can come back. ``for_tools`` goes on where only a branch
        is in the way: tools then work on the project, and the agent is told (case 38).
        """
        session_id = session_id or f"cli_{secrets.token_hex(8)}"
        if not session_id.isprintable() or len(session_id) > 200 or not session_id.strip():
            raise UsageError("that is no session id", hint="use letters, digits, '_' and '-'")
        if synced:
            need_worktree(self.repository)
        with self.one_at_a_time(session_id), log.event("session.start", session=session_id):
            self.cloud.key()
            leases.reap(self.cloud)
            session = self.state.get(session_id)
            replaced = session is not None and not self._is_there(session)
            if (
                session is not None
                and not replaced
                and session.git_return.state != state.SETUP_FAILED
            ):
                return Started(session, new=False)
            if synced and (session is None or session.number is not None):
                self._check(session, for_tools=for_tools)
            fresh = session is None or replaced
            if session is None or replaced:
                session = self._create(session_id, session, synced=synced)
            if replaced:  # whoever started it: the agent is told with its next tool result
                self.state.edit(session_id, notice=REPLACED)
            if session.number is None:
                report.make_project(self.cloud, session.sandbox_id)
                return Started(session, new=True, replaced=replaced)
            message = REPLACED if replaced else "not synced yet"
            if blocked := self._set_up(session, show=show, message=message, fresh=fresh):
                notice = (
                    "nothing comes back from this sandbox as long as "
                    f"{blocked.message} ({blocked.hint})"
                )
                self.state.edit(session_id, notice=f"{REPLACED}; {notice}" if replaced else notice)
            return Started(session, new=True, replaced=replaced)

    def _is_there(self, session: Session) -> bool:
        """Start a session's sandbox; False where it is gone for good (404)."""
        try:
            self.sandboxes.awake(self.cloud.get(session.sandbox_id))
        except SandboxGone:
            return False
        return True

    def _check(self, session: Session | None, *, for_tools: bool) -> None:
        """Raise what would keep work from coming back, before a sandbox is created for it."""
        legacy_remotes.rewrite(self.repository)
        blocked = branches.in_the_way(self.repository, self._prefix(session))
        if blocked and not for_tools:
            raise blocked
        self.transfers.check()

    def ensure(self, session_id: str) -> Started:
        """The session for a tool call: made at the first one, however many come at once; without
        any API call later on.

        A directory that cannot be synced (no repository, a bare one) gets a sandbox with an empty
        project. A setup that failed raises: nothing pretends that the project is there (case 58);
        ``start`` tries it again, and so does the next call.
        """
        session = self.state.get(session_id)
        if session is not None and (
            session.git_return.state != state.SETUP_FAILED or self._only_blocked(session)
        ):
            return Started(session, new=False)
        synced = self._repository is not None and self._repository.worktree is not None
        return self.start(session_id, synced=synced, for_tools=True)

    def _only_blocked(self, session: Session) -> bool:
        """Whether the project is in the session's sandbox, and only its branch cannot be."""
        blocked = (
            branches.in_the_way(self.repository, session.prefix)
            if session.number is not None
            else None
        )
        return blocked is not None and session.git_return.message == blocked.message

    def _create(self, session_id: str, earlier: Session | None, *, synced: bool) -> Session:
        """Create and record the sandbox of a session; an earlier record, whose sandbox is gone,
        gives its number."""
        mark = mark_for(session_id, self.state.project_id, self.git_dir)
        # the snapshot, as it is set now
        self.cloud.settings = preferences.load(self.directory).applied(self.settings)
        info = self.sandboxes.create(mark)
        number, prefix = (earlier.number, earlier.prefix) if earlier else (mark.number, mark.prefix)
        if number is None and synced and earlier is None:
            names = branches.reserve(self.repository, self._prefix(None), above=self._highest())
            number, prefix = names.number, names.prefix
            mark = mark.write(number, prefix)
        now = state.now()
        unsynced = GitReturn(state.DISABLED, self._why_unsynced(), now)
        session = Session(
            id=session_id,
            sandbox_id=info.id,
            number=number,
            worktree=str(self.directory),
            created=earlier.created if earlier else now,
            last_accessed=now,
            git_return=GitReturn(state.SETUP_FAILED, "setting up", now) if number else unsynced,
            git_dir=self.git_dir,
            prefix=prefix,
        )
        self.state.put(session)
        mark.path.unlink(missing_ok=True)
        return session

    def _why_unsynced(self) -> str:
        """Why a session of this directory has no branch."""
        if self._repository is None:
            return NO_REPOSITORY
        return (
            "this is a bare repository, so nothing is synced"
            if self._repository.worktree is None
            else "it was started so"
        )

    def _prefix(self, session: Session | None) -> str:
        """What stands before ``/N`` in the name of a session's branch: of an existing one what did
        when it started, else what is preferred now. Raises BadSetting."""
        return (
            session.prefix
            if session is not None
            else preferences.load(self.directory).branch_prefix()
        )

    def _highest(self) -> int:
        return max((each.number or 0 for each in self.sessions()), default=0)

    def _set_up(
        self, session: Session, *, show: bool, message: str, fresh: bool = False
    ) -> NoRepository | None:
        """Give the session its remote, its sandbox's repository, and HEAD in it; the push checks
        that out there.

        ``fresh`` is a sandbox just created: it will be pushed to, so the token is minted while its
        repository is prepared. Returns why nothing can come back all the same; None: it can.
        """
        names = names_of(session)
        try:
            endpoint = self.transfers.check().endpoint
            refs = self.repository.refs(names.ref, names.base)
            # The branch: it is where the session stands, also when its sandbox is a new one.
            # Neither: a repository without commits.
            head = refs.get(names.ref) or refs.get(names.base)
            begun = (
                self.transfers.ahead(self.repository, session.sandbox_id)
                if fresh and head is not None
                else nullcontext()
            )
            with (
                begun as ahead,
                concurrently(
                    lambda: branches.set_remote(self.repository, names, endpoint)
                ) as remote,
            ):
                self.tell("preparing its repository")
                there = report.prepare(
                    self.cloud, session.sandbox_id, self.repository.object_format
                )
                remote.result()
                if there is None and head is not None:
                    self.tell(f"pushing {head[:10]}")
                    refspecs = [f"{head}:refs/heads/{SANDBOX_BRANCH}"]
                    self.transfers.push(
                        self.repository, session.sandbox_id, refspecs, show=show, ahead=ahead
                    )
                    # As a push to a remote by name would: then a first turn without changes needs
                    # no fetch.
                    self.repository.git("update-ref", f"{names.tracking}{SANDBOX_BRANCH}", head)
        except GitDaytonaError as problem:
            self.state.note(session.id, state.SETUP_FAILED, problem.message)
            raise
        blocked = branches.in_the_way(self.repository, session.prefix)
        self.state.note(
            session.id,
            *((state.SETUP_FAILED, blocked.message) if blocked else (state.PENDING, message)),
        )
        return blocked

    # -- in between --------------------------------------------------------------------------------

    def execute(self, name: str, command: str, *, timeout: float = EXEC_SECONDS) -> Executed:
        """Run a shell command in a session's project directory.

        A stopped sandbox is started first; one that is gone is replaced (HEAD is then what was
        synced last), and the notice says so.
        """
        session = self.find(name)
        self.state.touch(session.id)
        try:
            result = self._execute(session, command, timeout)
        except SandboxGone:
            self.start(session.id, synced=session.number is not None, for_tools=True)
            result = self._execute(self.find(session.id), command, timeout)
        return Executed(result, self.state.take_notice(session.id))

    def within(self, session_id: str, work: Callable[[str], T]) -> tuple[T, Session, str]:
        """Do something in the sandbox of the session that a tool call is for, at once: ``work``
        gets the sandbox's id.

        The sandbox is made at the first call, and started or replaced when the work finds it
        stopped or gone; then the work is done again. Returns what it gave, the session, and what
        the agent has to be told besides (empty: nothing).
        """
        started = self.ensure(session_id)
        try:
            with self._used(started.session):
                value = self._awake(started.session, work)
        except SandboxGone:
            started = self.start(
                session_id, synced=started.session.number is not None, for_tools=True
            )
            value = self._awake(started.session, work)
        return value, started.session, self.state.take_notice(session_id)

    @contextmanager
    def _used(self, session: Session) -> Iterator[None]:
        """Record that a session is used by the block: before it begins, so that a crash leaves no
        work that nobody knows of. Where the state file says that already, only later, it is done
        beside it."""
        if not session.needs_sync or session.deleting:
            self.state.touch(session.id)
            yield
            return
        with concurrently(lambda: self.state.touch(session.id)) as touched:
            yield
        # the next call, or the sync, says that the file cannot be written
        with suppress(GitDaytonaError):
            touched.result()

    def _awake(self, session: Session, work: Callable[[str], T]) -> T:
        with log.about(session=session.id):
            return self.sandboxes.while_awake(session.sandbox_id, lambda: work(session.sandbox_id))

    def _execute(self, session: Session, command: str, timeout: float) -> Execution:
        return self._awake(
            session,
            lambda sandbox_id: report.execute(self.cloud, sandbox_id, command, timeout=timeout),
        )

    def sync(self, name: str, *, show: bool = False) -> Outcome:
        """Bring the work of a session back; the outcome, or the error, is recorded in the state
        file."""
        session = self.find(name)
        names_of(session)
        return self._recorded(session, lambda current: self._sync(current, show=show))

    def _sync(self, session: Session, *, show: bool) -> Outcome:
        branch = self._branch(session, show=show)
        # what the sandbox lacks comes first; it may only have been a bad moment
        if session.git_return.state == state.SETUP_FAILED:
            if blocked := branches.in_the_way(self.repository, session.prefix):
                raise blocked
            self.sandboxes.while_awake(
                session.sandbox_id,
                lambda: self._set_up(session, show=show, message="not synced yet"),
            )
        return self.sandboxes.while_awake(session.sandbox_id, branch.sync)

    def _branch(self, session: Session, *, show: bool) -> SandboxBranch:
        return SandboxBranch(
            self.repository, self.transfers, session.sandbox_id, names_of(session), show
        )

    def fetch(self, name: str, *, show: bool = False) -> Outcome:
        """Fetch a session's branches as they are: no commit of what is pending there, and
        opencode/N stays where it is."""
        session = self.find(name)
        branch = self._branch(session, show=show)
        with self.one_at_a_time(session.id):
            return self.sandboxes.while_awake(session.sandbox_id, branch.fetch)

    def push(self, name: str, *, show: bool = False) -> str:
        """Push the local opencode/N into the running sandbox, fast-forward only. Returns the
        commit."""
        session = self.find(name)
        branch = self._branch(session, show=show)
        with self.one_at_a_time(session.id):
            return self.sandboxes.while_awake(session.sandbox_id, branch.push)

    # -- the end -----------------------------------------------------------------------------------

    def delete(self, name: str, *, force: bool = False, show: bool = False) -> Outcome | None:
        """Delete a session's sandbox once all its work is here; branch opencode/N stays. None:
        there was no work to bring back.

        Raises whatever kept the work from coming back, and then nothing is deleted; with ``force``
        it is deleted all the same.
        """
        if mark_for(name, self.state.project_id, self.git_dir).path.exists():
            # it is being created just now: then it is there when that has ended
            with self.one_at_a_time(name):
                pass
        session = self.find(name)
        with (
            self.one_at_a_time(session.id),
            log.event("session.delete", session=session.id, sandbox=session.sandbox_id),
        ):
            current = self._current(session, name)
            outcome, kept = None, []
            if current.number is not None:
                outcome = self._bring_back(current, force=force, show=show)
                kept = branches.keep_branches(self.repository, names_of(current))
            self.state.edit(current.id, deleting=state.now())
            self.finish_deletion(current)
            return replace(outcome, kept=(*outcome.kept, *kept)) if outcome else None

    def finish_deletion(self, session: Session) -> None:
        """The part of a deletion that a crash may interrupt: nothing of the work depends on it any
        more."""
        self.sandboxes.delete(session.sandbox_id)
        if session.number is not None:
            branches.remove_remote(self.repository, names_of(session))
        self.state.remove(session.id)

    def _bring_back(self, session: Session, *, force: bool, show: bool) -> Outcome | None:
        lose = f"git daytona delete --force {session.number}"
        self.tell("syncing before the deletion")
        begun = state.now()
        try:
            outcome = self._sync(session, show=show)
        except SandboxGone:
            return None
        except GitDaytonaError as problem:
            if force:
                return None
            remedy = problem.hint or "the log has more"
            problem.hint = f"nothing was deleted; {remedy}; or lose its work: {lose}"
            self._note_failure(session.id, problem)
            raise
        if outcome.left_behind and not force:
            message = f"not deleted: {outcome.left_behind}"
            self.state.note(session.id, state.FAILED, message)
            raise TransferFailed(
                message,
                hint=f"move that work into the project's own repository, or lose it: {lose}",
            )
        self.state.note(session.id, state.SYNCED, outcome.message, synced_at=begun)
        return outcome

    # -- one after the other -----------------------------------------------------------------------

    def _recorded(self, session: Session, work: Callable[[Session], Outcome]) -> Outcome:
        """Do the work in the session's turn and write down how it went."""
        with self.one_at_a_time(session.id):
            current = self._current(session, session.id)
            begun = state.now()
            try:
                result = work(current)
            except GitDaytonaError as problem:
                self._note_failure(session.id, problem)
                raise
            self.state.note(session.id, state.SYNCED, result.message, synced_at=begun)
            return result

    def _current(self, session: Session, name: str) -> Session:
        """The session as of now; raises NotFound for one that was deleted meanwhile."""
        current = self.state.get(session.id)
        if current is None:
            raise NotFound(
                f"session '{name}' was deleted meanwhile",
                hint="'git daytona status' lists the sessions",
            )
        return current

    def _note_failure(self, session_id: str, problem: GitDaytonaError) -> None:
        """What is not set up stays so, whatever fails besides: else tools would take its sandbox
        for one that has the project."""
        session = self.state.get(session_id)
        set_up = session is None or session.git_return.state != state.SETUP_FAILED
        self.state.note(session_id, state.FAILED if set_up else state.SETUP_FAILED, problem.message)

    @contextmanager
    def one_at_a_time(
        self, session_id: str, *, seconds: float = leases.LOCK_SECONDS
    ) -> Iterator[None]:
        """The session's queue: one operation at a time, across processes. Raises TimedOut."""
        name = sha256(f"{self.state.path}\0{session_id}".encode()).hexdigest()[:24]
        with (
            log.about(session=session_id),
            files.lock(
                paths.locks() / f"session-{name}", seconds=seconds, holds=f"session {session_id}"
            ),
        ):
            yield

    def busy(self, session_id: str) -> bool:
        """Whether anybody is at work on the session just now."""
        try:
            with self.one_at_a_time(session_id, seconds=0):
                return False
        except TimedOut:
            return True
