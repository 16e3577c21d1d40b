"""Which way commits travel: by SSH or, where that is blocked, through the API."""

import hashlib
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from git_daytona.base import files, log, paths
from git_daytona.base.endpoint import Endpoint
from git_daytona.git import history
from git_daytona.git.refs import PROJECT
from git_daytona.git.repository import Repository
from git_daytona.sandbox.packs import Packs, apart_from
from git_daytona.settings import preferences
from git_daytona.transfer.failures import Blocked
from git_daytona.transfer.transfer import Leased, Transfers

ANSWER_SECONDS = 5.0
"""How long the gateway has to accept a connection, and again to greet."""
BLOCKED_SECONDS = 3600.0
"""How long SSH that was found blocked is not tried again."""


@dataclass(frozen=True)
class Transport:
    """Fetches and pushes of one operation, as daytona.transport has it; ``tell`` is told, once,
    that SSH is blocked, ``show`` shows git's progress. ``within`` is a commit, and how many
    generations of its history pushes over SSH send (None: all)."""

    repository: Repository
    transfers: Transfers
    tell: Callable[[str], None]
    show: bool = False
    within: tuple[str, int] | None = None
    place: str = PROJECT
    """Where the repository lies in the sandbox."""
    above: "Transport | None" = None
    """That of the project whose submodule this is: it says which way commits travel."""

    def submodule(self, repository: Repository, path: str) -> "Transport":
        """Make the transport of a submodule, with all of its history."""
        place = f"{self.place}/{path}"
        return replace(self, repository=repository, within=None, place=place, above=self)

    def check(self) -> Endpoint:
        """Check what can be refused beforehand; return where the gateway is."""
        if self._through_api():
            return self.transfers.policy.endpoint()
        return self.transfers.check().endpoint

    def ahead(self, sandbox_id: str) -> AbstractContextManager[Callable[[], Leased] | None]:
        """Begin the lease for a push that comes within the block."""
        if self._through_api():
            return nullcontext()
        return self.transfers.ahead(self.repository, sandbox_id)

    def fetch(
        self,
        sandbox_id: str,
        refs: Mapping[str, str],
        refspecs: Sequence[str],
        here: Collection[str],
    ) -> None:
        """Fetch the sandbox's refs, name to object id, by explicit refspecs; ``here`` are commits
        of its branches that the repository has. Raises TransferFailed and its kinds."""

        def over_ssh(blocked: Callable[[], bool]) -> None:
            words, place = (self.repository, sandbox_id, refspecs), self.place
            self.transfers.fetch(*words, show=self.show, blocked=blocked, place=place)

        packs = Packs(self.transfers, self.repository, sandbox_id, self.place)
        self._either(over_ssh, lambda: packs.fetch(refs, refspecs, here, self.show))

    def push(
        self,
        sandbox_id: str,
        refspec: str,
        there: Collection[str] = (),
        *,
        relaxed: Sequence[str] = (),
        ahead: Callable[[], Leased] | None = None,
    ) -> None:
        """Push by an explicit refspec, ``[+]OID:REF``; ``there`` are commits that the sandbox has.
        Its checkout passes the ``relaxed`` filters by. Raises TransferFailed and its kinds."""

        def over_ssh(blocked: Callable[[], bool]) -> None:
            with self._cut() as repository:
                self.transfers.push(
                    *(repository, sandbox_id, [refspec]),
                    show=self.show,
                    ahead=ahead,
                    relaxed=relaxed,
                    blocked=blocked,
                    place=self.place,
                )

        packs = Packs(self.transfers, self.repository, sandbox_id, self.place)
        self._either(over_ssh, lambda: packs.push(refspec, there, relaxed))

    @contextmanager
    def _cut(self) -> Iterator[Repository]:
        """Give the repository to push from: a shallow one of our own, for a part of the history
        (gitformat of ``shallow``: gitrepository-layout(5)). The user's own stays whole."""
        cuts = history.boundary(self.repository, *self.within) if self.within else []
        if not cuts:
            yield self.repository
            return
        with apart_from(self.repository) as apart:
            own = self.repository.common_dir / "shallow"
            known = own.read_text().split() if own.exists() else []
            lines = "".join(f"{each}\n" for each in dict.fromkeys((*known, *cuts)))
            (apart.git_dir / "shallow").write_text(lines)
            yield apart

    def _either(
        self, over_ssh: Callable[[Callable[[], bool]], object], by_api: Callable[[], None]
    ) -> None:
        if self._through_api():
            by_api()
            return
        try:
            # A sandbox that is stopped, or just starting, looks the same to ssh; but then the
            # gateway answers.
            over_ssh(lambda: self._way == "auto" and not _answers(self.transfers.policy.endpoint()))
        except Blocked as problem:
            log.logger.warning("transport: %s", problem.message)
            by_api()
            files.write_whole(self._note, b"")
            self.tell("SSH to the gateway is blocked: for an hour, commits go through the API")

    @cached_property
    def _way(self) -> str:
        if self.above:
            return self.above._way
        return preferences.load(self.repository.directory).transport()

    def _through_api(self) -> bool:
        if self._way != "auto":
            return self._way == "api"
        try:
            return abs(time.time() - self._note.stat().st_mtime) < BLOCKED_SECONDS
        except OSError:
            return False

    @property
    def _note(self) -> Path:
        url = self.transfers.settings.api_url
        name = hashlib.sha256(url.encode()).hexdigest()[:16]
        return paths.own_state() / f"ssh-blocked-{name}"


def _answers(gateway: Endpoint) -> bool:
    """Tell whether an SSH server answers there (RFC 4253, section 4.2)."""
    try:
        place = (gateway.host, gateway.port)
        with socket.create_connection(place, timeout=ANSWER_SECONDS) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
