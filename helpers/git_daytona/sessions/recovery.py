"""What the next start makes good after a crash, and what a person asks to be tidied up."""

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Container
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from git_daytona.api.cloud import SandboxInfo
from git_daytona.base import files, log, paths
from git_daytona.base.errors import Elsewhere, GitDaytonaError, NotFound, SandboxGone, UsageError
from git_daytona.base.secret import printable, redact
from git_daytona.git import branches, identity, legacy_remotes
from git_daytona.git.refs import Names, number_of_remote
from git_daytona.git.remotes import owner, remove_remote
from git_daytona.git.repository import Repository
from git_daytona.sandbox import lifecycle, ownership
from git_daytona.sessions import home, state, state_file
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.sessions.start import Started, is_usable
from git_daytona.sessions.state import Session
from git_daytona.settings import preferences
from git_daytona.transfer import leases

GONE = "the sandbox is gone; what it had not synced is lost"
TEMPORARY = ("daytona-ssh-*", "git-daytona-live-*")
"""Folders that ssh.py and ``doctor --live`` make for themselves."""


@dataclass
class Recovered:
    """What a recovery did, one line each, and what it could not do."""

    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    away: list[str] = field(default_factory=list)
    """The sessions that live elsewhere, with which nothing was done."""


def recover(coordinator: Coordinator) -> Recovered:
    """Make good what an interrupted process left: tokens, half-created and half-deleted sandboxes,
    work that did not come back; each by itself, but what another process is busy with."""
    found = Recovered()

    def step(what: str, work: Callable[[], str]) -> None:
        try:
            if line := work():
                found.done.append(line)
        except Elsewhere as problem:  # which names the session itself
            found.away.append(problem.message)
        except GitDaytonaError as problem:
            found.failed.append(f"{what}: {problem.message}")

    with log.event("recover") as event:
        step("stale tokens", partial(_reap, coordinator))
        step("temporary files", _sweep)
        if coordinator.has_repository:
            step("old remotes", lambda: legacy_remotes.rewrite(coordinator.repository))
            step("old refs", partial(_forget_bases, coordinator))
        for mark in lifecycle.marks():
            if mark.git_dir == coordinator.git_dir:
                name = mark.number or mark.session_id
                step(f"session {name}", partial(_finish_creation, coordinator, mark))
        for session in coordinator.sessions():
            step(f"session {session.name}", partial(_finish, coordinator, session))
        event.update(done=len(found.done), failed=len(found.failed))
    return found


def _reap(coordinator: Coordinator) -> str:
    number = leases.reap(coordinator.cloud)
    return f"{number} stale {'lease' if number == 1 else 'leases'} revoked" if number else ""


def _sweep() -> str:
    """Remove what killed processes left: locks, files half-written, folders."""
    files.remove_locks(paths.locks())
    for folder in (paths.leases(), lifecycle.creating(), paths.storage()):
        files.remove_temporary(folder)
    for pattern in TEMPORARY:
        for folder in files.stale(Path(tempfile.gettempdir()), pattern):
            if folder.lstat().st_uid == os.geteuid():
                shutil.rmtree(folder, ignore_errors=True)
    return ""


def _forget_bases(coordinator: Coordinator) -> str:
    def living() -> Container[int | None]:
        # The sessions last: one is recorded before its mark goes.
        made = [mark for mark in lifecycle.marks() if mark.git_dir == coordinator.git_dir]
        return range(10**9) if made else {each.number for each in coordinator.sessions()}

    branches.forget_bases(coordinator.repository, living)
    return ""


def _finish_creation(coordinator: Coordinator, mark: lifecycle.Mark) -> str:
    """Make a session of what an interrupted start left; without a sandbox, nothing."""
    home.check_begun(mark, coordinator.settings.api_url)
    with coordinator.one_at_a_time(mark.session_id):
        if not mark.path.exists():  # its own process has finished it meanwhile
            return ""
        left = coordinator.sandboxes.left(mark)
        if not left and coordinator.state.get(mark.session_id) is None:
            mark.path.unlink(missing_ok=True)
            return ""
    started = coordinator.start(mark.session_id, synced=coordinator.has_repository, for_tools=True)
    mark.path.unlink(missing_ok=True)
    name = started.session.name
    return f"session {name}: its interrupted start was finished"


def _finish(coordinator: Coordinator, session: Session) -> str:
    coordinator.find(session.id)  # raises Elsewhere
    if session.deleting:
        if coordinator.busy(session.id):
            return ""
        coordinator.delete(session.id)
        return f"session {session.name}: it was deleted, as wished"
    if session.number is None or not session.needs_sync or session.git_return.message == GONE:
        return ""
    try:
        outcome = coordinator.sync(session.id)
    except SandboxGone:
        coordinator.state.note(session.id, state.FAILED, GONE)
        raise
    return f"session {session.number}: {outcome.message}" if outcome.changed else ""


def way_on(coordinator: Coordinator, session_id: str) -> str:
    """Say what an interrupted start has left, and how to go on."""
    session = coordinator.state.get(session_id)
    if session is not None and session.git_return.state == state.SETUP_FAILED:
        name = session.name
        return (
            f"session {name} has a sandbox, and the project is not in it yet; go on: git daytona "
            f"sync {name}; or give it up: git daytona delete {name}"
        )
    if session is not None:
        return f"session {session.name} is there; give it up: git daytona delete {session.name}"
    if coordinator.mark(session_id).path.exists():
        return "a sandbox may have been made; make a session of it: git daytona recover"
    return "nothing was made"


def scrub_old_log() -> None:
    """Once: take what looks like a token out of the log that earlier tools wrote."""
    marker = paths.own_state() / "log-scrubbed"
    if marker.exists():
        return
    try:
        content = paths.log_file().read_text(errors="surrogateescape")
        clean = redact(content)
        if clean != content:
            files.write_whole(paths.log_file(), clean.encode(errors="surrogateescape"))
    except FileNotFoundError:
        pass
    except OSError as problem:
        log.logger.warning("the log could not be scrubbed: %s", problem.strerror)
        return
    files.write_whole(marker, b"")


# -- prune and adopt -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Leftovers:
    """What ``prune`` would remove."""

    sandboxes: tuple[SandboxInfo, ...]
    """Certainly made here for this repository, and named by no file: their work comes back first.
    """
    others: tuple[SandboxInfo, ...]
    """Sandboxes of other repositories, of others, or of nobody known: what is in them cannot be
    looked at from here, and each goes only if it is named."""
    remotes: dict[str, Names]
    """Remotes sandbox-N without a session."""
    leases: int
    kept: dict[str, str]
    """Refs with what a sync kept longer ago than daytona.keptAge, and their commits."""
    other_remotes: tuple[str, ...] = ()
    """Remotes of others, or of nobody known, which stay."""
    given_up: tuple[SandboxInfo, ...] = ()
    """Sandboxes that go with all that is in them, as they were named."""

    def __bool__(self) -> bool:
        return bool(self.sandboxes or self.given_up or self.remotes or self.leases or self.kept)

    def only(self, sandbox_ids: Collection[str], *, force: bool = False) -> "Leftovers":
        """Choose these sandboxes, and nothing else; with ``force`` no work comes back from any.
        Raises NotFound for one that is not there."""
        every = {info.id: info for info in (*self.sandboxes, *self.others)}
        for missing in sorted(set(sandbox_ids) - set(every)):
            raise NotFound(
                f"sandbox '{printable(missing)}' is not one of those that nobody uses here",
                hint="see them: git daytona prune --dry-run",
            )
        chosen = [every[each] for each in dict.fromkeys(sandbox_ids)]
        looked_at = () if force else tuple(each for each in chosen if each in self.sandboxes)
        given_up = tuple(each for each in chosen if each not in looked_at)
        return Leftovers(looked_at, (), {}, 0, {}, given_up=given_up)


def _unused(coordinator: Coordinator) -> tuple[tuple[SandboxInfo, ...], tuple[SandboxInfo, ...]]:
    """Find the sandboxes that no file names: those made here for this repository, and others."""
    listed = [info for info in coordinator.cloud.find({}) if ownership.SESSION in info.labels]
    # before the files: a start writes there, and removes its mark then
    marks = list(lifecycle.marks())
    being_made = {mark.session_id for mark in marks}
    in_use = state_file.named(info.id for info in listed) | {mark.copy_name for mark in marks}
    made = ownership.made(coordinator.settings.api_url)
    mine = {each.sandbox_id for each in made if each.is_of(coordinator.git_dir)}
    in_doubt = being_made | state_file.unreadable()
    unused = [
        info
        for info in listed
        if not {info.id, info.name} & in_use and info.labels[ownership.SESSION] not in in_doubt
    ]
    own = tuple(info for info in unused if ownership.is_own(info, mine))
    return own, tuple(info for info in unused if info not in own)


def leftovers(coordinator: Coordinator) -> Leftovers:
    """Look for what nobody uses."""
    sandboxes = _unused(coordinator)
    journals = len(leases.stale(coordinator.settings.api_url))
    if not coordinator.has_repository:
        return Leftovers(*sandboxes, {}, journals, {})
    until = preferences.load(coordinator.directory).kept_until()
    numbers = {session.number for session in coordinator.sessions()}
    repository = coordinator.repository
    remotes = {
        name: Names(number)
        for name in repository.git("remote").text.splitlines()
        if (number := number_of_remote(name)) and number not in numbers
    }
    others = tuple(each for each in remotes if owner(repository, each) != ownership.owner_here())
    ours = {name: names for name, names in remotes.items() if name not in others}
    kept = branches.kept_before(repository, until)
    return Leftovers(*sandboxes, ours, journals, kept, others)


def left_alone(coordinator: Coordinator) -> list[Elsewhere]:
    """Find the sessions of this repository that live elsewhere."""
    sessions, api_url = coordinator.sessions(), coordinator.settings.api_url
    recorded = any(each.organization_id and each.api_url == api_url for each in sessions)
    own = coordinator.cloud.organization_id() if recorded else ""
    return [problem for each in sessions if (problem := home.elsewhere(each, api_url, own))]


def prune(coordinator: Coordinator, found: Leftovers) -> Recovered:
    """Remove sandboxes, their work first unless they are given up; remotes, no branches; leases."""
    result = Recovered()
    for info in (*found.sandboxes, *found.given_up):
        try:
            result.done += _prune_sandbox(coordinator, info, lose=info in found.given_up)
        except SandboxGone:
            pass
        except GitDaytonaError as problem:
            hint = problem.hint or "the log has more"
            result.failed.append(f"sandbox {info.id} stays: {problem.message} ({hint})")
    for names in found.remotes.values():
        branches.keep_branches(coordinator.repository, names)
        remove_remote(coordinator.repository, names)
    for ref, oid in found.kept.items():
        # Only if it still is what was listed. The log names the commit: until git's own gc it can
        # be had back by that.
        if coordinator.repository.update_refs([f"delete {ref} {oid}"]):
            log.logger.info("kept.expire ref=%s commit=%s", ref, oid)
    leases.reap(coordinator.cloud)
    return result


def _prune_sandbox(coordinator: Coordinator, listed: SandboxInfo, *, lose: bool) -> list[str]:
    """Delete a sandbox, once its work is here, and say what came back. One whose work cannot all be
    brought here stays, as a session. Raises what keeps it."""
    info = coordinator.cloud.get(listed.id)
    if info.labels != listed.labels:  # a list may be stale: it goes if it is what was listed
        return []
    if lose:
        coordinator.sandboxes.delete(info.id)
        return []
    try:
        session = _take_over(coordinator, info, deleting=state.now())
    except (SandboxGone, UsageError):
        raise
    except GitDaytonaError as problem:
        lose_it = f"git daytona prune --force {info.id}"
        raise problem.but(hint=f"give it up, with all that is in it: {lose_it}") from problem
    outcome = coordinator.delete(session.id)
    has_branch = _has_work(coordinator.repository, session.names)
    came = outcome is not None and (outcome.kept or has_branch)
    return [f"sandbox {info.id}: {outcome.message}"] if outcome and came else []


def _has_work(repository: Repository, names: Names) -> bool:
    """Tell whether a branch has work that no other has; one that has none goes."""
    ref = names.ref
    tip = repository.refs(ref).get(ref)
    if tip is not None and repository.has(tip, but=ref):
        branches.give_back(repository, names, tip)
    return bool(repository.refs(ref))


def adopt(coordinator: Coordinator, sandbox_id: str) -> Started:
    """Make a session of this repository from an existing sandbox, and sync it.

    A session of this repository whose sandbox is the same one on an API with a new address lives
    there from now on. Raises UsageError when a session has it, NotFound where there is none.
    """
    try:
        info = coordinator.cloud.get(sandbox_id)
    except SandboxGone as problem:
        raise problem.but(
            message=f"there is no sandbox '{printable(sandbox_id)}'",
            hint="see those without a session: git daytona prune --dry-run",
        ) from problem
    for session in state_file.all_sessions():
        if session.sandbox_id != info.id:
            continue
        moved = home.elsewhere(session, coordinator.settings.api_url, info.organization_id)
        if moved and session.git_dir == coordinator.git_dir:
            coordinator.state.edit(session.id, **coordinator.lives_here(info.id))
            return Started(coordinator.find(session.id), new=False)
        if session.git_dir and not identity.is_at(session.git_dir, session.repository):
            coordinator.state.remove(session.id)  # its repository is gone
        else:
            raise _taken(session)
    session_id = _take_over(coordinator, info).id
    coordinator.sync(session_id)
    return Started(coordinator.find(session_id), new=True)


def _taken(session: Session) -> UsageError:
    return UsageError(
        f"sandbox '{session.sandbox_id}' belongs to session {session.name} of '{session.worktree}'",
        hint="use it there, or delete that session first",
    )


def _take_over(coordinator: Coordinator, info: SandboxInfo, *, deleting: int = 0) -> Session:
    """Make a session of a sandbox that nobody has, or that is to go since ``deleting``. Raises
    UsageError if another process was faster."""
    coordinator.sandboxes.awake(info)
    session_id = info.labels.get(ownership.SESSION, "")
    # whoever labelled it may have copied that from a session of ours
    if not is_usable(session_id) or coordinator.state.get(session_id) is not None:
        session_id = f"adopted_{info.id[:40]}"
    with coordinator.one_at_a_time(session_id):
        for session in state_file.all_sessions():
            if session.sandbox_id == info.id:
                raise _taken(session)
        # Without the branch: it begins where the sandbox's work is, which may be another history
        # than HEAD's.
        names = coordinator.reserve(base=False)
        return coordinator.record(
            session_id, info.id, names, message="being adopted", deleting=deleting
        )
