"""The life of a session, for the command line, the service and hooks."""

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from git_daytona.api.cloud import Cloud
from git_daytona.base import errors, files, log, paths
from git_daytona.base.errors import (
    CutShort,
    Elsewhere,
    Forbidden,
    GitDaytonaError,
    NoRepository,
    SandboxGone,
)
from git_daytona.base.secret import printable
from git_daytona.base.threads import Late, within
from git_daytona.git import branches, configuration, identity, legacy_remotes, remotes, stays
from git_daytona.git.branches import Kept
from git_daytona.git.refs import SANDBOX_BRANCH, Names, number_in
from git_daytona.git.repository import Repository, need_worktree
from git_daytona.sandbox import report
from git_daytona.sandbox.lifecycle import Mark, Sandboxes, dangers, mark_for
from git_daytona.sandbox.transport import Transport
from git_daytona.sessions import choice, commits, copied, home, state, submodules, working
from git_daytona.sessions.beginning import HEAD, Beginning
from git_daytona.sessions.branch import Outcome
from git_daytona.sessions.creation import LACKING, Wanted
from git_daytona.sessions.forks import NOBODY, Origin
from git_daytona.sessions.provision import WAITING, Provision
from git_daytona.sessions.state import GitReturn, Session, SetUp, StateFile
from git_daytona.sessions.sync import SandboxBranch
from git_daytona.settings import preferences
from git_daytona.settings.order import NOTHING, Order, combined
from git_daytona.settings.settings import Settings
from git_daytona.transfer import leases
from git_daytona.transfer.transfer import Transfers
from git_daytona.trust.gateway import Policy

T = TypeVar("T")

AT_ONCE_SECONDS = 3.0
"""How long a command that syncs first waits for the API."""
REPLACED = "the sandbox was gone and was replaced; work that had not been synced is lost"
FINISHED = f"{REPLACED}, but for what was brought during its last turn, which is in the new one"
NO_RECORD: Mapping[str, Any] = MappingProxyType({})
NO_REPOSITORY = "there is no git repository here, so nothing is synced"


@dataclass(frozen=True)
class Started:
    """A session and whether this call made it (False: it was there already)."""

    session: Session
    new: bool
    replaced: bool = False
    """Its sandbox was gone and is a new one: work that had not been synced went with it."""
    remark: str = ""
    """What its sandbox lacks of what was ordered."""
    forked: str = ""
    """What its sandbox has of the session that it is a fork of."""


class Unmerged(GitDaytonaError):
    """A session that was to go if its work is merged has more; it is kept."""


class Coordinator:
    """All operations on the sessions of one repository, or of a directory without one.

    ``tell`` receives a line per step that a person may wait for; ``show`` lets git's own progress
    be seen.
    """

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
        project = project_id or state.project_of(self._repository)
        self.state = StateFile(project, str(self.directory), self.git_dir)

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

    # -- looking up --------------------------------------------------------------------------------

    def sessions(self) -> list[Session]:
        """List the sessions of this repository, not of the project's other clones, by number."""
        self.state.gather()
        found = self.state.sessions()
        places, own = {str(self.directory)}, ("", self.state.identity)
        # Only the existing plugin's records do not name their repository.
        if self._repository and not all(each.git_dir for each in found):
            places |= {str(tree.path) for tree in self._repository.worktrees()}
        return [
            each
            for each in found
            if (each.git_dir == self.git_dir if each.git_dir else each.worktree in places)
            and each.repository in own
        ]

    def get(self, session_id: str) -> Session | None:
        """Return the session of an id; None where there is none. Raises NotFound for one that lives
        in another repository, BadRecord for one that cannot be read."""
        session = self.state.get(session_id)
        if session is not None and not self._is_ours(session):
            self.state.gather()  # the repository may have been moved here
            session = self.state.get(session_id)
        if session is not None and not self._is_ours(session):
            raise errors.NotFound(
                f"session '{session_id}' lives in another repository, that of '{session.worktree}'",
                hint="use it there, or start another one here",
            )
        return session

    def _is_ours(self, session: Session) -> bool:
        own = ("", self.state.identity)
        return session.git_dir in (None, "", self.git_dir) and session.repository in own

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

    # -- where sessions live -----------------------------------------------------------------------

    def _check_home(self, session: Session | None) -> None:
        if session and (problem := home.elsewhere(session, self.settings.api_url)):
            raise problem

    def _check_begun(self, session_id: str) -> None:
        if problem := home.begun_elsewhere(self.mark(session_id), self.settings.api_url):
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
            with naming(session):
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

    def dangers(self, session: Session) -> list[str]:
        """Say what a person has to know of a session's sandbox, as it was seen last."""
        info = self.cloud.known(session.sandbox_id)
        return dangers(info) if info else []

    # -- start -------------------------------------------------------------------------------------

    def start(
        self,
        session_id: str | None = None,
        *,
        synced: bool = True,
        for_tools: bool = False,
        again: Session | None = None,
        origin: str | None = None,
        beginning: Beginning = HEAD,
        order: Order = NOTHING,
    ) -> Started:
        """Create a sandbox with local HEAD in it, and ``opencode/N`` for what comes back.

        Starting a session that exists makes good what an earlier start left undone.
        Without ``synced``, a new one has no branch. ``for_tools`` goes on where only a branch is in
        the way: tools then work on the project, and the agent is told (case 38). ``again`` is a
        session that was in use: if it was deleted meanwhile, CutShort is raised. A new session that
        was forked from another one (``origin``, its id) begins where that one's work is, not with
        its ``beginning``, and its agent is told. ``order`` is what the command line says of the
        sandbox. Raises what any step raises; the state file says
        ``setup-failed`` when the sandbox exists but its repository is not ready, or nothing can
        come back.
        """
        session_id = _usable(session_id)
        with self.one_at_a_time(session_id), log.event("session.start", session=session_id):
            session = self._current(session_id, again)
            synced = session.number is not None if session else synced
            if synced:
                need_worktree(self.repository)
            self.cloud.key()
            leases.reap(self.cloud)
            if session is not None and (beginning != HEAD or order):
                raise errors.UsageError(
                    f"session {session.name} is there already, and has begun with something else",
                    hint=f"merge commits there: git daytona update {session.name} REF",
                )
            fresh = not self.is_there(session)
            if session and not fresh and session.git_return.state != state.SETUP_FAILED:
                return Started(session, new=False)
            if synced:
                self._check(session, for_tools=for_tools)
            lost = self._lost(session) if session and fresh else ""
            if session is None or fresh:
                wanted = self._wanted(
                    *(session_id, session, order), synced=synced, origin=origin, beginning=beginning
                )
                started = self._create(session_id, session, wanted, synced=synced)
            else:
                started = Started(session, new=True)
            self._set_up(started.session, fresh=fresh, replaced=lost)
            return replace(started, replaced=bool(lost))

    def _current(self, session_id: str, again: Session | None) -> Session | None:
        session = self.get(session_id)
        self._check_home(session)
        self._check_begun(session_id)
        if again is not None and (session is None or session.deleting):
            raise _deleted(again)
        if session is not None and session.deleting:
            self.state.touch(session.id)
        return session

    def is_there(self, session: Session | None) -> bool:
        """Start a session's sandbox; False where there is none, or it is gone for good (404)."""
        with suppress(SandboxGone):
            if session is not None:
                with self.at_home(session):
                    self.sandboxes.awake(self.cloud.get(session.sandbox_id))
                return True
        return False

    def _check(self, session: Session | None, *, for_tools: bool) -> None:
        """Raise what would keep work from coming back, before a sandbox is created for it."""
        legacy_remotes.rewrite(self.repository)
        preferred = preferences.load(self.directory)
        preferred.author()  # raises what the first sync would
        prefix = session.prefix if session else preferred.branch_prefix()
        blocked = branches.in_the_way(self.repository, prefix)
        if blocked and not for_tools:
            raise blocked
        self._transport().check()

    def _origin(self, session_id: str) -> Origin:
        """Bring the work of a session here that is to be forked, and return what is known of it;
        with no id there is none."""
        session = self.state.get(session_id)
        if session is None or session.number is None or not self._is_ours(session):
            return Origin(session_id)
        problem = ""
        try:
            # a server may have written since
            if session.needs_sync or self.cloud.get(session.sandbox_id).state == "started":
                self.sync(session.id)
        except GitDaytonaError as failed:
            problem = f", without what could not be brought there ({failed.message})"
        ref = session.names.ref
        return Origin(session_id, session, self.repository.refs(ref).get(ref), problem)

    def _begins(
        self, mark: Mark, origin: str | None, beginning: Beginning, *, synced: bool
    ) -> tuple[Origin, str | None, bool, int]:
        """Return what a new session is a fork of, the commit that it begins with, whether that has
        uncommitted work, and its depth."""
        forked = self._origin(mark.origin or origin or "")
        if forked.id:
            return forked, mark.begin or forked.commit, False, forked.depth
        if synced:
            return forked, *beginning.first(self.repository, self.directory), beginning.depth
        return forked, mark.begin, False, beginning.depth

    def _wanted(
        self,
        session_id: str,
        earlier: Session | None,
        order: Order,
        *,
        synced: bool,
        origin: str | None,
        beginning: Beginning,
    ) -> Wanted:
        """Return what a session's sandbox is to be made with."""
        mark = self.mark(session_id)
        if earlier is None:
            forked, begin, dirty, depth = self._begins(mark, origin, beginning, synced=synced)
        else:
            forked, begin, dirty, depth = NOBODY, mark.begin, False, earlier.depth
        before = mark.ordered or (earlier or forked).ordered or {}
        mark = replace(mark, ordered=order.record() or before, origin=forked.id, begin=begin)
        order, lost = self.ordered(order, before)
        if synced:
            order = self.provision.completed(order, earlier, begin)
        order, own = order.without(self.cloud.key())
        return Wanted(mark, order, forked, dirty, depth, lost, own)

    def _create(
        self, session_id: str, earlier: Session | None, wanted: Wanted, *, synced: bool
    ) -> Started:
        """Create and record a session's sandbox; an earlier one, which is gone, had its number."""
        mark, forked, repository = wanted.mark, wanted.origin, self._repository
        name = state.name_of(repository) if repository else self.directory.name
        like = forked.sandbox_id
        info = self.sandboxes.create(mark, name, wanted.order, synced=synced, like=like)
        numbered = earlier or mark
        names = Names(numbered.number, numbered.prefix) if numbered.number else None
        if names is None and synced and earlier is None:
            names = self.reserve(begin=mark.begin, dirty=wanted.dirty)
            mark = mark.write(names.number, names.prefix)
        remark, is_copy = wanted.remark(info), info.name == mark.copy_name
        told = forked.told(copied=is_copy)
        # as it is now: what ran there before the copy was made has its traces in the copy
        original = self.state.get(forked.id) if is_copy else None
        session = self.record(
            *(session_id, info.id, names),
            earlier=earlier,
            notice="; ".join(filter(None, (told, remark))),
            depth=wanted.depth,
            ordered=dict(mark.ordered or {}) or None,
            setup=original.setup if original else None,
        )
        mark.path.unlink(missing_ok=True)
        return Started(session, new=True, remark=remark, forked=told)

    def like(self, name: str) -> tuple[Order, str]:
        """Return an order like that of a session's sandbox, and what of that is not known here:
        values of variables. Raises NotFound, SandboxGone, Elsewhere."""
        session = self.find(name)
        recorded, lost = Order.recorded(session.ordered or {})
        with self.at_home(session):
            order = self.cloud.order(session.sandbox_id).over(recorded)
        lost = [each for each in lost if each not in order.members]
        return order, LACKING.format(", ".join(lost)) if lost else ""

    def ordered(
        self, order: Order, before: Mapping[str, Any] = NO_RECORD
    ) -> tuple[Order, list[str]]:
        """Return all that is ordered for a new sandbox, by an order or else as was recorded of one
        ``before``, and the names of what could not be had. Raises UsageError, BadSetting."""
        lost: list[str] = []
        if not order:
            order, lost = Order.recorded(before)
        # a bare repository may have come with the files of another one: it orders nothing
        is_bare = self._repository is not None and self.worktree is None
        preferred = preferences.load(Path(self.directory.anchor) if is_bare else self.directory)
        order, unset = combined(preferred, self.settings, order).settled()
        self.cloud.settings = order.applied(self.settings)  # for what messages say
        return order, [*(name for name in lost if name not in order.env), *unset]

    def mark(self, session_id: str) -> Mark:
        """Return the mark of a session's creation, as it is on disk or as it would be."""
        return mark_for(session_id, self.state.project_id, self.git_dir, self.settings.api_url)

    def reserve(self, *, base: bool = True, begin: str | None = None, dirty: bool = False) -> Names:
        """Reserve the next number, with its branch at a commit, or HEAD, unless ``base`` is off."""
        numbers = [(each.number, each.own_number) for each in self.sessions()]
        known = {each for both in numbers for each in both if each}
        prefix = preferences.load(self.directory).branch_prefix()
        if preferences.load(self.directory).submodules():
            known |= submodules.numbers(self.repository, prefix)
        return branches.reserve(
            self.repository, prefix, known=known, base=base, begin=begin, dirty=dirty
        )

    def record(
        self,
        session_id: str,
        sandbox_id: str,
        names: Names | None,
        *,
        message: str = "setting up",
        earlier: Session | None = None,
        notice: str = "",
        deleting: int = 0,
        depth: int = 0,
        ordered: dict[str, Any] | None = None,
        setup: SetUp | None = None,
    ) -> Session:
        """Record a session whose sandbox exists; without names, nothing of it is synced."""
        now = state.now()
        git_return = GitReturn(state.SETUP_FAILED, message, now)
        if names is None:
            git_return = GitReturn(state.DISABLED, self._why_unsynced(), now)
        lives = self.lives_here(sandbox_id)
        session = Session(
            session_id,
            sandbox_id,
            names.number if names else None,
            str(self.directory),
            created=earlier.created if earlier else now,
            last_accessed=now,
            git_return=git_return,
            git_dir=self.git_dir,
            repository=identity.give(self.git_dir),
            prefix=names.prefix if names else SANDBOX_BRANCH,
            notice=notice,
            deleting=deleting,
            api_url=lives["api_url"],
            organization_id=lives["organization_id"],
            depth=depth,
            own_number=earlier.own_number if earlier else None,
            ordered=ordered,
            setup=setup or SetUp(),
        )
        if names is None and session.own_number is None and self._repository:
            with suppress(GitDaytonaError):  # a repository that cannot be written
                session = replace(session, own_number=self.reserve(base=False).number)
        self.state.put(session)
        if names is None and not self._repository and session.own_number is None:
            self.state.give_number(session_id)
            session = self.state.get(session_id) or session
        return session

    def _why_unsynced(self) -> str:
        if self._repository is None:
            return NO_REPOSITORY
        if self._repository.worktree is None:
            return "this is a bare repository, so nothing is synced"
        return "it was started so"

    @configuration.held()
    def stays_here(self, session: Session) -> str:
        """Say in one line what of the user's is not in a session's sandbox; empty for nothing."""
        if session.number is None or self.repository.worktree is None:
            return ""
        try:
            taken = self.repository.refs(session.names.dirty).get(session.names.dirty)
            branch = self._branch(session)
            inner = {path: each.repository for path, each in submodules.of(branch).items()}
            stay = stays.look(self.repository, taken, inner)
            if stay.secrets and (patterns := preferences.load(self.directory).copy_files()):
                went = copied.matched(self.repository, patterns)
                secrets_left = tuple(each for each in stay.secrets if each not in went)
                stay = replace(stay, secrets=secrets_left)
            return stays.described(replace(stay, lfs=()) if branch.with_lfs else stay)
        except GitDaytonaError as problem:  # it is only said
            log.logger.warning("what stays here is not known: %s", problem.message)
            return ""

    def _set_up(self, session: Session, *, fresh: bool = False, replaced: str = "") -> None:
        """Put the project into a sandbox, a ``fresh`` one or one that was there; the agent is told
        with its next tool result what it ``replaced``, or that only a branch is in the way."""
        if replaced:
            told = "; ".join(filter(None, (replaced, session.notice)))
            self.state.edit(session.id, notice=told)
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
            told = (self.state.get(session.id) or session).notice
            notice = (
                "nothing comes back from this sandbox as long as "
                f"{blocked.message} ({blocked.hint})"
            )
            self.state.edit(session.id, notice="; ".join(filter(None, (told, notice))))
        else:
            self.state.note(session.id, state.PENDING, replaced or "not synced yet")

    # -- in between --------------------------------------------------------------------------------

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
            raise _deleted(begun)
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
        synced = self._repository is not None and self._repository.worktree is not None
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

    def awake(self, session: Session, work: Callable[[str], T]) -> T:
        """Do something in a session's sandbox, by its id, where the session lives; the sandbox is
        started if it does not run. Raises Elsewhere, and SandboxGone."""
        with log.about(session=session.id), self.at_home(session):
            return self.sandboxes.while_awake(session.sandbox_id, lambda: work(session.sandbox_id))

    def sync(self, name: str, *, everything: bool = False) -> Outcome:
        """Bring the work of a session back, before its sandbox goes ``everything``; record the
        outcome or the error."""
        session = self.find(name)
        _ = session.names  # raises NoRepository
        with self.one_at_a_time(session.id):
            # it may have been deleted meanwhile
            return self._sync_noted(self.find(session.id), everything=everything)

    def syncs_on_idle(self, session: Session) -> bool:
        """Tell whether the end of a session's turn is synced: as daytona.syncOnIdle says, and where
        what is only in the sandbox may be gone by itself."""
        if preferences.load(self.directory).sync_on_idle():
            return True
        with suppress(GitDaytonaError), self.at_home(session):  # a sync would fail as well
            info = self.cloud.known(session.sandbox_id) or self.cloud.get(session.sandbox_id)
            return info.ends_by_itself
        return False

    def sync_aside(self, name: str, *, everything: bool = False) -> Outcome:
        """Bring what a session has so far in the middle of a turn, without the agent's noticing it;
        the turn's end is still to be synced. Raises what ``sync`` does."""
        with self.one_at_a_time(self.find(name).id):
            session = self.find(name)
            outcome = self._sync(session, everything=everything, aside=True)
            if outcome.changed:
                self.state.note(session.id, state.PENDING, outcome.message)
            return outcome

    def _sync_noted(self, session: Session, *, everything: bool = False) -> Outcome:
        begun = session.last_accessed
        try:
            outcome = self._sync(session, everything=everything)
        except GitDaytonaError as problem:
            self._note_failure(session.id, problem)
            raise
        self.state.note(session.id, state.SYNCED, outcome.message, synced_at=begun)
        return outcome

    def update(self, name: str, revision: str = "HEAD") -> Outcome | None:
        """Merge commits of the user's in a session's sandbox, and bring the result back; return
        None where there was nothing new. Log and diff then begin where these commits end, unless
        they lack what the session began with. Raises NotFound, TransferFailed."""
        session, repository = self.find(name), self.repository
        commit = repository.resolve(revision)
        if commit is None:
            raise errors.NotFound(
                f"there is no commit '{revision}' here", hint="see what is: git log --all"
            )
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
            raise errors.SandboxNotRunning(f"its sandbox is {printable(info.state)}")
        return self.sync(session.id)

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

    def _lost(self, session: Session) -> str:
        """Say what is lost with a session's sandbox, which is gone; what had come is on its
        branch then."""
        if session.number is not None and self._finish_turn(session):
            return FINISHED
        return REPLACED

    def _finish_turn(self, session: Session) -> bool:
        """Give the branches what was brought during a turn whose sandbox is gone; return whether
        there was any."""
        names = session.names
        return sum(branches.finish_turn(each, names) for each in self._repositories(session)) > 0

    def _branch(self, session: Session) -> SandboxBranch:
        names = session.names
        commit = commits.text(self.state.get(session.id) or session, self.directory)
        base = self.repository.refs(names.base).get(names.base) if session.depth else None
        transport = self._transport((base, session.depth) if base else None)
        here = SandboxBranch(self.repository, transport, session.sandbox_id, names, commit)
        preferred = preferences.load(self.directory)
        here = replace(here, with_lfs=preferred.lfs())
        if not preferred.submodules():
            return here
        # each worktree has submodules of its own
        begun_in = Path(session.worktree)
        if begun_in in (tree.path for tree in self.repository.worktrees()):
            here = replace(here, repository=self.repository.at(begun_in))
        return replace(here, with_submodules=True)

    def _transport(self, within: tuple[str, int] | None = None) -> Transport:
        return Transport(self.repository, self.transfers, self.tell, self.show, within)

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

    # -- the end -----------------------------------------------------------------------------------

    def is_merged(self, session: Session) -> bool:
        """Tell whether what a session has committed is in HEAD, or in the upstream of HEAD. One
        that has committed nothing is not merged: it has just begun."""
        if session.number is None:
            return False
        names = session.names
        found = self.repository.refs(names.ref, names.base)
        tip = found.get(names.ref)
        if tip is None or tip == found.get(names.base):
            return False
        # git fails where HEAD has no upstream
        upstream = self.repository.git("rev-parse", "--verify", "@{upstream}^{commit}", check=False)
        tips = filter(None, (self.repository.resolve("HEAD"), upstream.text))
        return self.repository.contains(list(tips), tip)

    def delete(self, name: str, *, force: bool = False, merged: bool = False) -> Outcome | None:
        """Delete a session's sandbox once all its work is here; branch opencode/N stays. Return
        None where there was no work to bring back.

        Raises whatever keeps the work from coming back, unless ``force`` is on; then nothing is
        deleted. That the session shall go is on record until it has gone, is used again, or
        ``keep``; not that its work may be lost: a later try (recovery) brings it back first.
        With ``merged``, one that turns out to have work which is not merged is kept, and Unmerged
        raised.
        """
        if self.mark(name).path.exists():
            # it is being created just now: then it is there when that has ended
            with self.one_at_a_time(name):
                pass
        session = self.find(name)
        event = log.event("session.delete", session=session.id, sandbox=session.sandbox_id)
        with self.one_at_a_time(session.id), event:
            current = self.find(session.id)
            self.state.edit(current.id, deleting=current.deleting or state.now())
            outcome, kept = None, []
            try:
                if current.number is not None:
                    outcome = self._bring_back(current, force=force)
                    if merged and not self.is_merged(current):
                        raise _unmerged(current)
                    kept = self._keep_branches(current)
                self._delete_sandbox(current)
            except (Elsewhere, Unmerged):
                self.state.edit(current.id, deleting=current.deleting)
                raise
            self._remove(current)
            return replace(outcome, kept=(*outcome.kept, *kept)) if outcome else None

    def keep(self, name: str) -> bool:
        """Take back a deletion that did not succeed; return whether there was one."""
        session = self.find_anywhere(name)
        with self.one_at_a_time(session.id):
            before = self.state.edit(session.id, deleting=0)
            was = before is not None and before.deleting > 0
            if was and before and before.git_return.state == state.FAILED:
                self.state.note(session.id, state.PENDING, "its deletion was taken back")
        return was

    def _keep_branches(self, session: Session) -> list[Kept]:
        kept: list[Kept] = []
        for repository in self._repositories(session):
            kept += branches.keep_branches(repository, session.names)
        return kept

    def _repositories(self, session: Session) -> list[Repository]:
        """The repositories here that have refs of a session's."""
        if not preferences.load(self.directory).submodules():
            return [self.repository]
        return list(submodules.repositories(self._branch(session)))

    def _delete_sandbox(self, session: Session) -> None:
        """Delete a session's sandbox, on which no work depends any more."""
        name = session.name
        try:
            with suppress(SandboxGone), self.at_home(session):
                self.sandboxes.delete(session.sandbox_id)
        except GitDaytonaError as problem:
            current = self.state.get(session.id) or session
            message = f"its sandbox was not deleted: {problem.message}"
            self.state.note(session.id, current.git_return.state, message)
            hint = (
                f"{problem.hint or 'the log has more'}; 'git daytona recover' tries again, after a "
                f"sync; or keep it: git daytona delete --cancel {name}"
            )
            raise problem.but(hint=hint) from problem

    def _remove(self, session: Session) -> None:
        if session.number is not None:
            for repository in self._repositories(session):
                remotes.remove_remote(repository, session.names)
        self.state.remove(session.id)

    def forget(self, name: str) -> Session | None:
        """Forget a session, wherever it lives; its sandbox and branch stay. Return it, or None
        where only its start had begun."""
        mark = self.mark(name)
        if mark.path.exists() and self.state.get(name) is None:
            with self.one_at_a_time(name):
                mark.path.unlink(missing_ok=True)
            return None
        session = self.find_anywhere(name)
        with self.one_at_a_time(session.id):
            if session.number is not None:
                self._keep_branches(session)
            self._remove(session)
        return session

    def _bring_back(self, session: Session, *, force: bool) -> Outcome | None:
        lose = f"git daytona delete --force {session.number}"
        self.tell("syncing before the deletion")
        begun = session.last_accessed
        try:
            outcome = self._sync(session, everything=True)
        except SandboxGone:
            return None
        except Elsewhere:
            raise
        except GitDaytonaError as problem:
            if force:
                return None
            remedy = problem.hint or "the log has more"
            cancel = f"git daytona delete --cancel {session.number}"
            self._note_failure(session.id, problem)
            hint = f"nothing was deleted; {remedy}; or lose its work: {lose}; or keep it: {cancel}"
            raise problem.but(hint=hint) from problem
        if outcome.left_behind and not force:
            message = f"not deleted: {outcome.left_behind}"
            self.state.note(session.id, state.FAILED, message)
            remedy = f"let the agent move that work into the project, or lose it: {lose}"
            raise errors.TransferFailed(message, hint=remedy)
        self.state.note(session.id, state.SYNCED, outcome.message, synced_at=begun)
        return outcome

    # -- one after the other -----------------------------------------------------------------------

    def _note_failure(self, session_id: str, problem: GitDaytonaError) -> None:
        """Record a failure; what is not set up stays so, or tools would miss the project in it.
        Nothing of a session that lives elsewhere."""
        if isinstance(problem, Elsewhere):
            return
        session = self.state.get(session_id)
        failed = session is not None and session.git_return.state == state.SETUP_FAILED
        self.state.note(session_id, state.SETUP_FAILED if failed else state.FAILED, problem.message)

    @contextmanager
    def one_at_a_time(
        self, session_id: str, *, seconds: float = leases.LOCK_SECONDS
    ) -> Iterator[None]:
        """Wait for the session's turn, across processes; preferences do not change meanwhile.
        Raises TimedOut."""
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


def _unmerged(session: Session) -> Unmerged:
    return Unmerged(
        f"not deleted: {session.branch} has got commits that are not merged",
        hint=f"merge them: git daytona merge {session.name}",
    )


def _deleted(session: Session) -> CutShort:
    return CutShort(f"session {session.name} was deleted while this ran")


def is_usable(session_id: str) -> bool:
    """Tell whether a text can be a session's id."""
    return session_id.isprintable() and 0 < len(session_id.strip()) <= len(session_id) <= 200


@contextmanager
def naming(session: Session) -> Iterator[None]:
    """Let what fails in the block name the session, by what its user knows it by."""
    try:
        yield
    except GitDaytonaError as problem:
        raise problem.but(session=session.name) from problem


def new_id() -> str:
    """Make the id of a session that no client has named."""
    return f"cli_{secrets.token_hex(8)}"


def _usable(session_id: str | None) -> str:
    """Check a session's id, or make one. Raises UsageError."""
    session_id = session_id or new_id()
    if not is_usable(session_id):
        raise errors.UsageError(
            "the session id is not valid", hint="use letters, digits, '_' and '-'"
        )
    return session_id
