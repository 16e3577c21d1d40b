"""The life of a session: start, look up, run in it, delete. Every face (click, service, hooks) goes through a Coordinator."""

import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from git_daytona import branches, files, git, leases, log, paths, sandbox, settings, state
from git_daytona import sync as syncing
from git_daytona.cloud import Cloud, Execution, SandboxInfo
from git_daytona.errors import (
    BadAnswer,
    Conflict,
    GitDaytonaError,
    NotFound,
    SandboxBroken,
    SandboxNotRunning,
    TransferFailed,
    UsageError,
)
from git_daytona.git import Repository
from git_daytona.pin import Policy
from git_daytona.refs import SANDBOX_BRANCH, Names, number_in
from git_daytona.secret import printable
from git_daytona.state import GitReturn, Session, StateFile
from git_daytona.sync import Outcome
from git_daytona.transfer import Transfers

T = TypeVar("T")

LABEL = "git-daytona"
EXEC_SECONDS = 3600.0
REPLACED = "the sandbox was gone and was replaced; work that had not been synced is lost"


@dataclass(frozen=True)
class Started:
    """A session and whether this call made it (False: it was there already)."""

    session: Session
    names: Names
    new: bool
    replaced: bool = False
    """The session's sandbox was gone and is a new one: work that had not been synced went with it."""


class Coordinator:
    """All operations on the sessions of one repository. ``tell`` receives one line per step that a person may wait for."""

    def __init__(self, repository: Repository, found: settings.Settings, tell: Callable[[str], None] = lambda _line: None) -> None:
        self.repository = repository
        self.settings = found
        self.cloud = Cloud(found)
        self.policy = Policy(found, self.cloud.config)
        self.transfers = Transfers(found, self.cloud, self.policy)
        self.tell = tell
        roots = repository.git("rev-list", "--max-parents=0", "--all", check=False)
        project = state.project_of(repository.common_dir, roots.text if roots.status == 0 else "")
        self.state = StateFile(project, str(repository.worktree or repository.git_dir))

    def close(self) -> None:
        """Wait for what runs behind the calls (revocations)."""
        self.transfers.drain()

    # -- looking up ---------------------------------------------------------------------------------------------------

    def sessions(self) -> list[Session]:
        """The sessions of this repository: the project's, without those of other clones."""
        own = str(self.repository.common_dir)
        places = {str(tree.path) for tree in self.repository.worktrees()} | {str(self.repository.worktree)}
        return [each for each in self.state.sessions() if (each.git_dir == own if each.git_dir else each.worktree in places)]

    def find(self, name: str) -> tuple[Session, Names]:
        """The session that ``3``, ``sandbox-3``, ``opencode/3``, a sandbox id or a session id names. Raises NotFound."""
        number = number_in(name)
        for session in self.sessions():
            if session.number is not None and (name in (session.id, session.sandbox_id) or session.number == number):
                return session, Names(session.number)
        raise NotFound(f"there is no session '{name}' in this repository", hint="'git daytona status' lists them")

    # -- start --------------------------------------------------------------------------------------------------------

    def start(self, session_id: str | None = None, *, show: bool = False) -> Started:
        """Create a sandbox with local HEAD in it, and ``opencode/N`` for what comes back.

        Starting a session that exists makes good what an earlier start left undone. Raises what any step raises; the state file says
        ``setup-failed`` when the sandbox exists but its repository is not ready.
        """
        session_id = session_id or f"cli_{secrets.token_hex(8)}"
        if not session_id.isprintable() or len(session_id) > 200 or not session_id.strip():
            raise UsageError("that is no session id", hint="use letters, digits, '_' and '-'")
        git.need_worktree(self.repository)
        with self.one_at_a_time(session_id), log.event("session.start", session=session_id):
            leases.reap(self.cloud)
            session = self.state.get(session_id)
            if session is not None and session.number is None:
                raise UsageError(
                    f"session '{session_id}' has no repository to sync with", hint="start another one without --session"
                )
            branches.check_namespace(self.repository)
            trust = self.transfers.check()
            replaced = False
            if session is not None:
                try:
                    self._running(session)
                    if session.git_return.state != state.SETUP_FAILED:
                        return Started(session, Names(session.number or 0), new=False)
                except NotFound:
                    # Gone for good (404), and only then replaced; the number stays.
                    replaced = True
                    session = self._create(session_id, session)
            else:
                session = self._create(session_id, None)
            assert session.number is not None
            names = Names(session.number)
            try:
                branches.set_remote(self.repository, names, trust.endpoint)
                self._fill(session, names, show=show)
            except GitDaytonaError as problem:
                self.state.note(session_id, state.SETUP_FAILED, problem.message)
                raise
            self.state.note(session_id, state.PENDING, REPLACED if replaced else "not synced yet")
            return Started(session, names, new=True, replaced=replaced)

    def _create(self, session_id: str, earlier: Session | None) -> Session:
        """Create and record the sandbox of a session; an earlier record, whose sandbox is gone, gives its number."""
        labels = {f"{LABEL}/session": session_id, f"{LABEL}/project": self.state.project_id}
        creating = self._creation_mark(session_id)
        # Only after an interrupted start may there be a sandbox that nobody recorded: then its label finds it.
        left = self.cloud.find(labels) if creating.exists() else []
        files.write_whole(creating, session_id.encode())
        self.tell("creating a sandbox")
        with log.event("sandbox.create", session=session_id) as event:
            info = self._awake(left[0]) if left else self.cloud.create(labels | {f"{LABEL}/host": socket.gethostname()[:60]})
            event["sandbox"] = info.id
        above = max((each.number or 0 for each in self.sessions()), default=0)
        number = earlier.number if earlier else branches.reserve(self.repository, above=above).number
        now = state.now()
        session = Session(
            id=session_id,
            sandbox_id=info.id,
            number=number,
            worktree=str(self.repository.worktree),
            created=earlier.created if earlier else now,
            last_accessed=now,
            git_return=GitReturn(state.SETUP_FAILED, "setting up", now),
            git_dir=str(self.repository.common_dir),
        )
        self.state.put(session)
        creating.unlink(missing_ok=True)
        return session

    def _creation_mark(self, session_id: str) -> Path:
        import hashlib

        return paths.own_state() / "creating" / hashlib.sha256(f"{self.state.path}\0{session_id}".encode()).hexdigest()[:32]

    def _fill(self, session: Session, names: Names, *, show: bool) -> None:
        """Prepare the sandbox's repository and push HEAD to it; the push checks it out there."""
        self.tell("preparing its repository")
        there = sandbox.prepare(self.cloud, session.sandbox_id, self.repository.object_format)
        refs = self.repository.refs(names.ref, names.base)
        # The branch: it is where the session stands, also when its sandbox is a new one.
        head = refs.get(names.ref) or refs.get(names.base)
        if head is None:  # a repository without commits: the sandbox's stays empty until the agent commits
            return
        if there is None:
            self.tell(f"pushing {head[:10]}")
            self.transfers.push(self.repository, session.sandbox_id, [f"{head}:refs/heads/{SANDBOX_BRANCH}"], show=show)
        elif there != head:
            log.logger.info("session.start sandbox=%s has commits already; nothing pushed", session.sandbox_id)

    # -- in between ---------------------------------------------------------------------------------------------------

    def execute(self, name: str, command: str, *, timeout: float = EXEC_SECONDS) -> Execution:
        """Run a shell command in a session's project directory; a stopped sandbox is started first."""
        session, _names = self.find(name)
        return self.awake(session, lambda: sandbox.execute(self.cloud, session.sandbox_id, command, timeout=timeout))

    def sync(self, name: str, *, show: bool = False) -> Outcome:
        """Bring the work of a session back; the outcome, or the error, is recorded in the state file."""
        session, names = self.find(name)
        return self._recorded(session, lambda: self._sync(session, names, show=show))

    def _sync(self, session: Session, names: Names, *, show: bool) -> Outcome:
        if session.git_return.state == state.SETUP_FAILED:  # what the sandbox lacks comes first; it may only have been a bad moment
            self.awake(session, lambda: self._fill(session, names, show=show))
        return self.awake(session, lambda: syncing.sync(self.repository, self.transfers, session.sandbox_id, names, show=show))

    def fetch(self, name: str, *, show: bool = False) -> Outcome:
        """Fetch a session's branches as they are: no commit of what is pending there, and opencode/N stays where it is."""
        session, names = self.find(name)
        with self.one_at_a_time(session.id):
            return self.awake(session, lambda: syncing.fetch(self.repository, self.transfers, session.sandbox_id, names, show=show))

    def push(self, name: str, *, show: bool = False) -> str:
        """Push the local opencode/N into the running sandbox, fast-forward only. Returns the commit. The sandbox's work comes back first."""
        session, names = self.find(name)
        return self._recorded(
            session,
            lambda: self.awake(
                session, lambda: syncing.push(self.repository, self.transfers, session.sandbox_id, names, show=show)
            ),
        )

    def delete(self, name: str, *, force: bool = False, show: bool = False) -> Outcome | None:
        """Delete a session's sandbox once all its work is here; branch opencode/N stays. None: the sandbox was gone already.

        Raises whatever kept the work from coming back, and then nothing is deleted; with ``force`` it is deleted all the same.
        """
        session, names = self.find(name)
        with self.one_at_a_time(session.id), log.event("session.delete", session=session.id, sandbox=session.sandbox_id):
            outcome = self._bring_back(session, names, force=force, show=show)
            kept = branches.keep_branches(self.repository, names)
            self.cloud.delete(session.sandbox_id)
            self.state.remove(session.id)
            branches.remove_remote(self.repository, names)
            return replace(outcome, kept=(*outcome.kept, *kept)) if outcome else None

    def _bring_back(self, session: Session, names: Names, *, force: bool, show: bool) -> Outcome | None:
        self.tell("syncing before the deletion")
        try:
            outcome = self._sync(session, names, show=show)
            if not outcome.left_behind or force:
                return outcome
            problem: GitDaytonaError = TransferFailed(
                f"not deleted: {outcome.left_behind}",
                hint=f"move that work into the project's own repository, or lose it: git daytona delete --force {names.number}",
            )
        except NotFound:
            return None
        except GitDaytonaError as failed:
            if force:
                return None
            problem = failed
            problem.hint = (
                f"nothing was deleted; {failed.hint or 'see the log'}; or lose its work: git daytona delete --force {names.number}"
            )
        self.state.note(session.id, state.FAILED, problem.message)
        raise problem

    # -- sandboxes that do not run ------------------------------------------------------------------------------------

    def awake(self, session: Session, work: Callable[[], T]) -> T:
        """Do the work at once; only if it fails because the sandbox does not run, start that and do it again.

        The services say in many ways that it does not; after a refusal its state tells.
        """
        try:
            return work()
        except (SandboxNotRunning, Conflict, BadAnswer):
            info = self.cloud.get(session.sandbox_id)
            if info.state == "started":
                raise
            self._awake(info)
            return work()

    def _running(self, session: Session) -> SandboxInfo:
        return self._awake(self.cloud.get(session.sandbox_id))

    def _awake(self, info: SandboxInfo) -> SandboxInfo:
        """Start a sandbox unless it runs; recover an errored one where Daytona offers it. Raises SandboxBroken."""
        if info.state == "started":
            return info
        if info.state in ("error", "build_failed"):
            if info.recoverable:
                self.tell("recovering the sandbox")
                return self.cloud.recover(info.id)
            raise SandboxBroken(
                f"sandbox '{info.id}' is in state '{info.state}'" + (f": {info.error_reason}" if info.error_reason else ""),
                hint="see it in Daytona's dashboard; its work is still in it",
            )
        self.tell(f"starting the sandbox ({info.state})")
        with log.event("sandbox.start", sandbox=info.id, state=info.state):
            return leases.patiently(lambda: self.cloud.start(info.id))

    # -- recording ----------------------------------------------------------------------------------------------------

    def _recorded(self, session: Session, work: Callable[[], T]) -> T:
        """Do the work in the session's turn and write down how it went."""
        with self.one_at_a_time(session.id):
            try:
                result = work()
            except GitDaytonaError as problem:
                self.state.note(session.id, state.FAILED, problem.message)
                raise
            message = result.message if isinstance(result, Outcome) else "pushed"
            self.state.note(session.id, state.SYNCED, message)
            return result

    @contextmanager
    def one_at_a_time(self, session_id: str) -> Iterator[None]:
        """The session's queue: one operation at a time, across processes."""
        import hashlib

        name = hashlib.sha256(f"{self.state.path}\0{session_id}".encode()).hexdigest()[:24]
        with files.lock(paths.locks() / f"session-{name}", seconds=leases.LOCK_SECONDS, holds=f"session {session_id}"):
            yield


def status_rows(coordinator: Coordinator, *, offline: bool) -> list[dict[str, object]]:
    """One dictionary per session, as ``git daytona status --json`` prints it. Asks the API once unless ``offline``."""
    sessions = coordinator.sessions()
    states: dict[str, str] = {}
    if sessions and not offline:
        states = {info.id: info.state for info in coordinator.cloud.find({f"{LABEL}/project": coordinator.state.project_id})}
    return [
        {
            "number": session.number,
            "branch": Names(session.number).branch if session.number else None,
            "sessionId": session.id,
            "sandboxId": session.sandbox_id,
            "sandboxState": "unknown" if offline else states.get(session.sandbox_id, "gone"),
            "gitReturn": session.git_return.state,
            "message": printable(session.git_return.message),
            "updatedAt": session.git_return.updated_at,
            "worktree": session.worktree,
        }
        for session in sessions
    ]
