"""What plain git gets of a sandbox: its upload-pack, receive-pack or upload-archive."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from git_daytona.base import messages
from git_daytona.base.errors import NotFound, SandboxGone
from git_daytona.git.refs import PROJECT
from git_daytona.sessions import commits
from git_daytona.sessions.connect import Wish, connect
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.sessions.sandbox_branch import ready_for_push
from git_daytona.sessions.state import Session
from git_daytona.transfer.transfer import SERVER, UPLOAD_PACK, receive_pack

UPLOAD, RECEIVE, ARCHIVE = "git-upload-pack", "git-receive-pack", "git-upload-archive"
SERVICES = {UPLOAD: UPLOAD_PACK, RECEIVE: receive_pack(), ARCHIVE: f"{SERVER} upload-archive"}
"""git's names for its servers (gitremote-helpers(7), connect), and what runs in the sandbox."""


@dataclass(frozen=True)
class Destination:
    """A sandbox, and the session here that it belongs to, if there is one."""

    sandbox_id: str
    session: Session | None = None

    @property
    def name(self) -> str:
        """What a person calls it."""
        return self.session.name if self.session else self.sandbox_id


def destination(coordinator: Coordinator, name: str) -> Destination:
    """Find the sandbox of ``3``, ``sandbox-3``, ``opencode/3``, a session's or a sandbox's id, and
    start it. Raises NotFound, SandboxGone, SandboxBroken, Elsewhere."""
    try:
        session = coordinator.find(name)
    except NotFound as problem:
        if not name:
            raise
        try:
            info = coordinator.cloud.get(name)
        except SandboxGone:
            raise problem from None
        return Destination(coordinator.sandboxes.awake(info).id)
    with coordinator.at_home(session):
        coordinator.sandboxes.awake(coordinator.cloud.get(session.sandbox_id))
    return Destination(session.sandbox_id, session)


def serve(coordinator: Coordinator, name: str, service: str, begin: Callable[[], None]) -> int:
    """Connect our standard streams with one of SERVICES in a sandbox; return its exit status.

    ``begin`` is called before the sandbox's side writes anything. A push is as 'git daytona push':
    what was pending is committed, fast-forward only. Raises TransferFailed, and as ``connect``.
    """
    found = destination(coordinator, name)
    wish = Wish(f"{SERVICES[service]} {shlex.quote(PROJECT)}")
    # git itself asks for version 2 of its protocol by HTTP and ssh only
    options = {"GIT_PROTOCOL": "version=2"} if service == UPLOAD else {}
    if service != RECEIVE:
        return connect(coordinator, found.sandbox_id, wish, options=options, begin=begin)
    turn = coordinator.one_at_a_time(found.session.id if found.session else found.sandbox_id)
    with turn:
        commit = commits.text(found.session, coordinator.directory)
        report = ready_for_push(coordinator.cloud, found.sandbox_id, found.name, commit)
        here = coordinator.repository if coordinator.has_repository else None
        if report.head and here and not here.resolve(report.head):
            messages.note(
                "the sandbox has work that is not here; a push to its branch will be rejected\n"
                f"hint: bring it here first: git daytona sync {found.name}"
            )
        wish = Wish(f"{receive_pack(report.filters)} {shlex.quote(PROJECT)}")
        return connect(coordinator, found.sandbox_id, wish, begin=begin)
