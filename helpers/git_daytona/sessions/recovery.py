"""What the next start makes good after a crash, and what a person asks to be tidied up."""

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Container
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from git_daytona.api.cloud import SandboxInfo
from git_daytona.base import files, log, paths
from git_daytona.base.errors import Elsewhere, GitDaytonaError, NotFound, SandboxGone, UsageError
from git_daytona.base.secret import printable, redact
from git_daytona.git import branches, identity, legacy_remotes
from git_daytona.git.refs import Names, number_of_remote
from git_daytona.sandbox import lifecycle, ownership
from git_daytona.sessions import home, state
from git_daytona.sessions.coordinator import Coordinator, Started, is_usable
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
    work that did not come back.

    Sessions that another process is busy with are left to it. Each step is tried whatever became of
    the others.
    """
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
    if problem := home.begun_elsewhere(mark, coordinator.settings.api_url):
        raise problem
    with coordinator.one_at_a_time(mark.session_id):
        if not mark.path.exists():  # its own process has finished it meanwhile
            return ""
        left = coordinator.cloud.find(mark.labels)
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
    """Sandboxes that were made here for certain, and that no file of ours names any more."""
    others: tuple[SandboxInfo, ...]
    """Sandboxes of others, or of nobody known: each goes only if it is named."""
    remotes: dict[str, Names]
    """Remotes sandbox-N without a session."""
    leases: int
    kept: dict[str, str]
    """Refs with what a sync kept longer ago than daytona.keptAge, and their commits."""
    other_remotes: tuple[str, ...] = ()
    """Remotes of others, or of nobody known, which stay."""

    def __bool__(self) -> bool:
        return bool(self.sandboxes or self.remotes or self.leases or self.kept)

    def only(self, sandbox_ids: Collection[str]) -> "Leftovers":
        """Choose these sandboxes, and nothing else. Raises NotFound for one that is not there."""
        every = {info.id: info for info in (*self.sandboxes, *self.others)}
        for missing in sorted(set(sandbox_ids) - set(every)):
            raise NotFound(
                f"sandbox '{printable(missing)}' is not one of those that nobody uses here",
                hint="see them: git daytona prune --dry-run",
            )
        return Leftovers(tuple(every[each] for each in dict.fromkeys(sandbox_ids)), (), {}, 0, {})


def _unused(coordinator: Coordinator) -> tuple[tuple[SandboxInfo, ...], tuple[SandboxInfo, ...]]:
    """Find the sandboxes that no file of any project names: those made here, and all others."""
    listed = [info for info in coordinator.cloud.find({}) if ownership.SESSION in info.labels]
    # before the files: a start writes there, and removes its mark then
    being_made = {mark.session_id for mark in lifecycle.marks()}
    in_use = state.named(info.id for info in listed)
    mine = {each.sandbox_id for each in ownership.made(coordinator.settings.api_url)}
    in_doubt = being_made | state.unreadable()
    own: list[SandboxInfo] = []
    others: list[SandboxInfo] = []
    for info in listed:
        if info.id not in in_use and info.labels[ownership.SESSION] not in in_doubt:
            (own if ownership.is_own(info, mine) else others).append(info)
    return tuple(own), tuple(others)


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
    others = [
        each for each in remotes if branches.owner(repository, each) != ownership.owner_here()
    ]
    remotes = {name: remotes[name] for name in remotes if name not in others}
    kept = branches.kept_before(repository, until)
    return Leftovers(*sandboxes, remotes, journals, kept, tuple(others))


def left_alone(coordinator: Coordinator) -> list[Elsewhere]:
    """Find the sessions of this repository that live elsewhere."""
    sessions, api_url = coordinator.sessions(), coordinator.settings.api_url
    recorded = any(each.organization_id and each.api_url == api_url for each in sessions)
    own = coordinator.cloud.organization_id() if recorded else ""
    return [problem for each in sessions if (problem := home.elsewhere(each, api_url, own))]


def prune(coordinator: Coordinator, found: Leftovers) -> None:
    """Remove leftovers: sandboxes with all that is in them, remotes (branches stay), leases."""
    for info in found.sandboxes:
        with suppress(SandboxGone):
            # A list may be stale: it goes if it still is what was listed.
            if coordinator.cloud.get(info.id).labels == info.labels:
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

    A session of this repository whose sandbox is the same one on an API with a new address lives
    there from now on. Raises UsageError when a session has it already, NotFound when there is no
    such sandbox.
    """
    try:
        info = coordinator.cloud.get(sandbox_id)
    except SandboxGone as problem:
        raise problem.but(
            message=f"there is no sandbox '{printable(sandbox_id)}'",
            hint="see those without a session: git daytona prune --dry-run",
        ) from problem
    for session in state.all_sessions():
        if session.sandbox_id != info.id:
            continue
        moved = home.elsewhere(session, coordinator.settings.api_url, info.organization_id)
        if moved and session.git_dir == coordinator.git_dir:
            coordinator.state.edit(session.id, **coordinator.lives_here(info.id))
            return Started(coordinator.find(session.id), new=False)
        if session.git_dir and not identity.is_at(session.git_dir, session.repository):
            coordinator.state.remove(session.id)  # its repository is gone
        else:
            raise UsageError(
                f"sandbox '{sandbox_id}' belongs to session {session.name} of '{session.worktree}'",
                hint="use it there, or delete that session first",
            )
    coordinator.sandboxes.awake(info)
    session_id = info.labels.get(ownership.SESSION, "")
    # whoever labelled it may have copied that from a session of ours
    if not is_usable(session_id) or coordinator.state.get(session_id) is not None:
        session_id = f"adopted_{info.id[:40]}"
    with coordinator.one_at_a_time(session_id):
        # Without the branch: it begins where the sandbox's work is, which may be another history
        # than HEAD's.
        names = coordinator.reserve(base=False)
        coordinator.record(session_id, info.id, names, message="being adopted")
    coordinator.sync(session_id)
    return Started(coordinator.find(session_id), new=True)
