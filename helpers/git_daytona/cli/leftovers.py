"""What was done with the Daytona of `daytona-local exec` comes back, and no more of it stays."""

import os
from collections.abc import Callable, Mapping, Set
from pathlib import Path

from git_daytona.base import paths
from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import GitDaytonaError
from git_daytona.git import branches, repository
from git_daytona.git.refs import Names
from git_daytona.sessions import state_file
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.sessions.state import Session
from git_daytona.sessions.state_file import StateFile
from git_daytona.settings import settings
from git_daytona.trust import pin_file

Say = Callable[[str], None]


def clear(sandboxes: Set[str], gateway: Endpoint, variables: Mapping[str, str], say: Say) -> bool:
    """Delete the sessions of these sandboxes, after a sync, and what is pinned for the gateway; say
    what came back, what is lost, and what stays and why; tell whether nothing stays.
    ``variables`` lead to their Daytona."""
    found = [
        (file, session)
        for file in state_file.all_files()
        for session in file.sessions()
        if session.sandbox_id in sandboxes
    ]
    cleared = True
    # The last first: then each number that was of no use can be given back.
    for file, session in sorted(found, key=lambda each: -(_number(each[1]) or 0)):
        name = f"session {session.name} of '{session.worktree}'"
        try:
            if line := _delete(file, session, variables):
                say(f"{name}: {line}")
        except (GitDaytonaError, OSError) as problem:
            say(f"{name} stays in the list of sessions: {problem}")
            cleared = False
    return _forget_pin(gateway, say) and cleared


def _forget_pin(gateway: Endpoint, say: Say) -> bool:
    try:
        with pin_file.changing(paths.pin_file()):
            pins = pin_file.load(paths.pin_file())
            if pins.serving(gateway):
                pin_file.forget(paths.pin_file(), pins, gateway)
    except GitDaytonaError as problem:
        say(f"the pin of '{gateway}' stays: {problem.message}")
        return False
    return True


def _delete(file: StateFile, session: Session, variables: Mapping[str, str]) -> str:
    """Return what there is to say: what came back just now, or is lost."""
    directory = Path(session.worktree)
    if not directory.is_dir():
        file.remove(session.id)
        return "its directory is not there any more"
    place = repository.find(directory)
    found = settings.load(None, {**os.environ, **variables})
    coordinator = Coordinator(place or directory, found, project_id=file.project_id)
    begun = None
    if place and session.number is not None:
        begun = place.refs(session.names.base).get(session.names.base)
    try:
        said = _deleted(coordinator, session.id)
    finally:
        coordinator.close()
    if place and (number := _number(session)):
        branches.give_back(place, Names(number, session.prefix), begun)
    return said


def _deleted(coordinator: Coordinator, session_id: str) -> str:
    if coordinator.busy(session_id):
        raise GitDaytonaError("another process is at work on it")
    try:
        outcome = coordinator.delete(session_id)
        return outcome.message if outcome is not None and outcome.changed else ""
    except GitDaytonaError as problem:
        coordinator.delete(session_id, force=True)
        return f"what had not come back is lost: {problem.message}"


def _number(session: Session) -> int | None:
    return session.number or session.own_number
