"""A session's start: its sandbox, made or made again, and who asks for that."""

import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from git_daytona.api.cloud import SandboxInfo
from git_daytona.base import errors, log
from git_daytona.base.errors import GitDaytonaError
from git_daytona.git import branches, configuration, identity, legacy_remotes, stays
from git_daytona.git.refs import SANDBOX_BRANCH, Names
from git_daytona.git.repository import need_worktree
from git_daytona.sandbox.lifecycle import Mark
from git_daytona.sessions import copied, home, project, state, submodules
from git_daytona.sessions.beginning import HEAD, NOBODY, Beginning, Origin
from git_daytona.sessions.lookup import NO_REPOSITORY
from git_daytona.sessions.state import GitReturn, Session, SetUp, joined
from git_daytona.sessions.sync import Syncs
from git_daytona.settings import preferences
from git_daytona.settings.order import NOTHING, Order, combined
from git_daytona.transfer import leases

LACKING = "the sandbox lacks {}: not set where it was made"
OWN_KEY = "the sandbox does not get {}, which holds Daytona's API key"
NO_RECORD: Mapping[str, Any] = MappingProxyType({})


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


class Starts(Syncs):
    """What makes a session's sandbox: a person's start, and a tool's first call."""

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
        sandbox. Raises what any step raises; the state file says ``setup-failed`` when the sandbox
        exists but its repository is not ready, or nothing can come back.
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
                made = self._create(
                    *(session_id, session, order, lost),
                    synced=synced,
                    origin=origin,
                    beginning=beginning,
                )
            else:
                made = Started(session, new=True)
            self._set_up(made.session, fresh=fresh, replaced=lost)
            return made

    def _current(self, session_id: str, again: Session | None) -> Session | None:
        session = self.get(session_id)
        self._check_home(session)
        home.check_begun(self.mark(session_id), self.settings.api_url)
        if again is not None and (session is None or session.deleting):
            raise home.deleted(again)
        if session is not None and session.deleting:
            self.state.touch(session.id)
        return session

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
        """Bring the work of a session here that is to be forked; return what is known of it."""
        session = self.state.get(session_id)
        if session is None or session.number is None or not self._own([session]):
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

    def _create(
        self,
        session_id: str,
        earlier: Session | None,
        order: Order,
        lost: str,
        *,
        synced: bool,
        origin: str | None,
        beginning: Beginning,
    ) -> Started:
        """Create and record a session's sandbox; an ``earlier`` one, which had its number, is gone,
        and what is ``lost`` with it is told to the agent."""
        mark = self.mark(session_id)
        fork = NOBODY if earlier else self._origin(mark.origin or origin or "")
        begin, dirty = mark.begin or fork.commit, False
        if synced and not earlier and not fork.id:
            begin, dirty = beginning.first(self.repository, self.directory)
        model = earlier or fork.session
        before = mark.ordered or (model and model.ordered) or {}
        mark = replace(mark, ordered=order.record() or before, origin=fork.id, begin=begin)
        info, remark = self._sandbox(mark, fork, order, before, earlier, synced=synced)
        mark, names = self._named(mark, earlier, dirty=dirty, synced=synced)
        is_copy = info.name == mark.copy_name
        told = fork.told(copied=is_copy)
        # as it is now: what ran there before the copy was made has its traces in the copy
        original = self.state.get(fork.id) if is_copy else None
        session = self.record(
            *(session_id, info.id, names, earlier),
            notice=joined(lost, told, remark),
            depth=model.depth if model else beginning.depth,
            ordered=dict(mark.ordered) or None,
            setup=original.setup if original else SetUp(),
        )
        mark.path.unlink(missing_ok=True)
        return Started(session, new=True, replaced=bool(lost), remark=remark, forked=told)

    def _sandbox(
        self,
        mark: Mark,
        fork: Origin,
        order: Order,
        before: Mapping[str, Any],
        earlier: Session | None,
        *,
        synced: bool,
    ) -> tuple[SandboxInfo, str]:
        """Create a session's sandbox, and say what it lacks of what was ordered."""
        order, unknown = self.ordered(order, before)
        if synced:
            order = self.provision.completed(order, earlier, mark.begin)
        order, own = order.without(self.cloud.key())
        name = project.name_of(self._repository) if self._repository else self.directory.name
        like = fork.session.sandbox_id if fork.session else ""
        info = self.sandboxes.create(mark, name, order, synced=synced, like=like)
        # it may be of an earlier start, or a copy
        lacks = {LACKING: [each for each in unknown if each not in info.variables], OWN_KEY: own}
        return info, joined(*(text.format(", ".join(each)) for text, each in lacks.items() if each))

    def _named(
        self, mark: Mark, earlier: Session | None, *, dirty: bool, synced: bool
    ) -> tuple[Mark, Names | None]:
        """Give a new session its number, on record before anything has it; others keep theirs."""
        numbered = earlier or mark
        if numbered.number:
            return mark, Names(numbered.number, numbered.prefix)
        if earlier or not synced:
            return mark, None
        names = self.reserve(begin=mark.begin, dirty=dirty)
        return mark.write(names.number, names.prefix), names

    def record(
        self,
        session_id: str,
        sandbox_id: str,
        names: Names | None,
        earlier: Session | None = None,
        *,
        message: str = "setting up",
        **more: Any,
    ) -> Session:
        """Record a session whose sandbox exists, with ``more`` fields; without names, unsynced."""
        now = state.now()
        git_return = GitReturn(state.SETUP_FAILED, message, now)
        own_number = earlier.own_number if earlier else None
        if names is None:
            git_return = GitReturn(state.DISABLED, self._why_unsynced(), now)
            if own_number is None and self._repository:
                with suppress(GitDaytonaError):  # a repository that cannot be written
                    own_number = self.reserve(base=False).number
        more |= self.lives_here(sandbox_id)
        session = Session(
            session_id,
            sandbox_id,
            number=names.number if names else None,
            worktree=str(self.directory),
            created=earlier.created if earlier else now,
            last_accessed=now,
            git_return=git_return,
            git_dir=self.git_dir,
            repository=identity.give(self.git_dir),
            prefix=names.prefix if names else SANDBOX_BRANCH,
            own_number=own_number,
            **more,
        )
        self.state.put(session)
        if names is None and not self._repository and own_number is None:
            self.state.give_number(session_id)
            session = self.state.get(session_id) or session
        return session

    def _why_unsynced(self) -> str:
        if self._repository is None:
            return NO_REPOSITORY
        if self._repository.worktree is None:
            return "this is a bare repository, so nothing is synced"
        return "it was started so"

    def reserve(self, *, base: bool = True, begin: str | None = None, dirty: bool = False) -> Names:
        """Reserve the next number, with its branch at a commit, or HEAD, unless ``base`` is off."""
        known = {each for s in self.sessions() for each in (s.number, s.own_number) if each}
        preferred = preferences.load(self.directory)
        prefix = preferred.branch_prefix()
        if preferred.submodules():
            known |= submodules.numbers(self.repository, prefix)
        return branches.reserve(
            self.repository, prefix, known=known, base=base, begin=begin, dirty=dirty
        )

    # -- what its sandbox is made with -------------------------------------------------------------

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


def is_usable(session_id: str) -> bool:
    """Tell whether a text can be a session's id."""
    return session_id.isprintable() and 0 < len(session_id.strip()) <= len(session_id) <= 200


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
