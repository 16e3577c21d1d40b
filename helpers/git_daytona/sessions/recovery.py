"""What the next start makes good after a crash, and what a person asks to be tidied up."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from git_daytona.api.cloud import SandboxInfo
from git_daytona.base import files, log, paths
from git_daytona.base.errors import GitDaytonaError, SandboxGone, UsageError
from git_daytona.base.secret import redact
from git_daytona.git import branches, legacy_remotes
from git_daytona.git.refs import Names, number_of_remote
from git_daytona.sandbox import lifecycle
from git_daytona.sessions import state
from git_daytona.sessions.coordinator import Coordinator, Started
from git_daytona.sessions.state import Session
from git_daytona.settings import preferences
from git_daytona.transfer import leases

GONE = "the sandbox is gone; what it had not synced is lost"


@dataclass
class Recovered:
    """What a recovery did, one line each, and what it could not do."""

    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def recover(coordinator: Coordinator) -> Recovered:
    """Make good what an interrupted process left: tokens, half-created and half-deleted sandboxes,
    work that did not come back.

    Sessions that another process is busy with are left to it. Each step is tried whatever became of
    the others.
    """
    found = Recovered()

    def step(what: str, work: Callable[[], str]) -> None:
        try:
            if line := work():
                found.done.append(line)
        except GitDaytonaError as problem:
            found.failed.append(f"{what}: {problem.message}")

    with log.event("recover") as event:
        step("stale tokens", partial(_reap, coordinator))
        if coordinator.has_repository:
            step("old remotes", lambda: legacy_remotes.rewrite(coordinator.repository))
        for mark in lifecycle.marks():
            if mark.git_dir == coordinator.git_dir:
                step(f"session {mark.session_id}", partial(_finish_creation, coordinator, mark))
        for session in coordinator.sessions():
            step(f"session {session.number or session.id}", partial(_finish, coordinator, session))
        event.update(done=len(found.done), failed=len(found.failed))
    return found


def _reap(coordinator: Coordinator) -> str:
    number = leases.reap(coordinator.cloud)
    return f"{number} stale {'lease' if number == 1 else 'leases'} revoked" if number else ""


def _finish_creation(coordinator: Coordinator, mark: lifecycle.Mark) -> str:
    """Make a session of what an interrupted start left; without a sandbox, nothing."""
    with coordinator.one_at_a_time(mark.session_id):
        if not mark.path.exists():  # its own process has finished it meanwhile
            return ""
        left = coordinator.cloud.find(mark.labels)
        if not left and coordinator.state.get(mark.session_id) is None:
            mark.path.unlink(missing_ok=True)
            return ""
    started = coordinator.start(mark.session_id, synced=coordinator.has_repository, for_tools=True)
    mark.path.unlink(missing_ok=True)
    name = started.session.number or mark.session_id
    return f"session {name}: its interrupted start was finished"


def _finish(coordinator: Coordinator, session: Session) -> str:
    if session.deleting:
        if coordinator.busy(session.id):
            return ""
        coordinator.delete(session.id)
        return f"session {session.number or session.id}: it was deleted, as wished"
    if session.number is None or not session.needs_sync or session.git_return.message == GONE:
        return ""
    try:
        outcome = coordinator.sync(session.id)
    except SandboxGone:
        coordinator.state.note(session.id, state.FAILED, GONE)
        raise
    return f"session {session.number}: {outcome.message}" if outcome.changed else ""


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
    """Sandboxes that this machine made and that no session here knows."""
    remotes: dict[str, Names]
    """Remotes sandbox-N without a session."""
    leases: int
    kept: dict[str, str]
    """Refs with what a sync kept longer ago than daytona.keptAge, and their commits."""
    spared: dict[str, str] = field(default_factory=dict)
    """Sandboxes that are left alone, and where they are named: a record or a state file that cannot
    be read."""

    def __bool__(self) -> bool:
        return bool(self.sandboxes or self.remotes or self.leases or self.kept)


def leftovers(coordinator: Coordinator) -> Leftovers:
    """Look for what nobody uses: of sandboxes, what no state file of any project knows."""
    known = {session.sandbox_id for session in state.all_sessions()}
    unread = state.all_unreadable()
    being_made = {mark.session_id for mark in lifecycle.marks()}
    unknown = [
        info
        for info in coordinator.cloud.find({lifecycle.HOST: lifecycle.host_label()})
        if info.id not in known and info.labels.get(lifecycle.SESSION) not in being_made
    ]
    spared = {info.id: name for info in unknown if (name := _named_in(unread, info))}
    sandboxes = tuple(info for info in unknown if info.id not in spared)
    journals = len(leases.stale(coordinator.settings.api_url))
    if not coordinator.has_repository:
        return Leftovers(sandboxes, {}, journals, {}, spared)
    until = preferences.load(coordinator.directory).kept_until()
    numbers = {session.number for session in coordinator.sessions()}
    remotes = {
        name: Names(number)
        for name in coordinator.repository.git("remote").text.splitlines()
        if (number := number_of_remote(name)) and number not in numbers
    }
    kept = branches.kept_before(coordinator.repository, until)
    return Leftovers(sandboxes, remotes, journals, kept, spared)


def _named_in(unread: Mapping[str, str], info: SandboxInfo) -> str | None:
    """Where a sandbox is named, of what cannot be read."""
    session = info.labels.get(lifecycle.SESSION)
    return next((name for name, text in unread.items() if info.id in text or session == name), None)


def prune(coordinator: Coordinator, found: Leftovers) -> None:
    """Remove leftovers: sandboxes with all that is in them, remotes (branches stay), leases."""
    for info in found.sandboxes:
        coordinator.sandboxes.delete(info.id)
    for names in found.remotes.values():
        branches.keep_branches(coordinator.repository, names)
        branches.remove_remote(coordinator.repository, names)
    for ref, oid in found.kept.items():
        # Only if it still is what was listed. The log names the commit: until git's own gc it can
        # be had back by that.
        if coordinator.repository.update_refs([f"delete {ref} {oid}"]):
            log.logger.info("kept.expire ref=%s commit=%s", ref, oid)
    leases.reap(coordinator.cloud)


def adopt(coordinator: Coordinator, sandbox_id: str) -> Started:
    """Make a session of this repository from an existing sandbox, and sync it.

    Raises UsageError when a session has it already, NotFound when there is no such sandbox.
    """
    for session in state.all_sessions():
        if session.sandbox_id == sandbox_id:
            raise UsageError(
                f"sandbox '{sandbox_id}' belongs to session {session.number or session.id} "
                f"of '{session.worktree}'",
                hint="use it there, or delete that session first",
            )
    info = coordinator.sandboxes.awake(coordinator.cloud.get(sandbox_id))
    session_id = info.labels.get(lifecycle.SESSION) or f"adopted_{info.id[:40]}"
    with coordinator.one_at_a_time(session_id):
        # Without the branch: it begins where the sandbox's work is, which may be another history
        # than HEAD's.
        names = coordinator.reserve(base=False)
        coordinator.record(session_id, info.id, names, message="being adopted")
    coordinator.sync(session_id)
    return Started(coordinator.find(session_id), new=True)
