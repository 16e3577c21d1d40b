"""A token's lifetime: lease = lock, journal, mint → use → revoke, and the journal removed.

The journal is one small file per sandbox under ``$XDG_STATE_HOME/git-daytona/leases``: sandbox id,
API, pid of the holder, never the token. One whose lock is free is that of a holder which died, or
could not revoke: ``reap`` revokes sandbox-wide.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import tenacity

from git_daytona.api.cloud import Cloud, SshAccess
from git_daytona.base import errors, files, log, paths, threads
from git_daytona.base.errors import GitDaytonaError
from git_daytona.base.secret import Secret

T = TypeVar("T")

MINUTES = 10
"""How long a token would live if nobody revoked it."""
TRIES = 3
LOCK_SECONDS = 600.0
"""How long a lease waits for the one before it on the same sandbox: as long as a token lives."""
RETRY_SECONDS = 45.0
"""No new try begins later than this."""
PAUSE_SECONDS = 0.2
"""Before the second try; twice as long before each further one, and at random up to that more."""
MAX_WAIT = 30.0
"""The longest a server's Retry-After is followed, seconds."""

_NOTHING_MINTED = (
    *(errors.NoKey, errors.KeyRefused, errors.Forbidden, errors.NotFound, errors.BadSetting),
    *(errors.CertificateRefused, errors.ProxyRefused, errors.LimitReached),
)


@dataclass(frozen=True)
class Journal:
    """The record of one sandbox's lease, which holds the lock beside it as long as it lives."""

    api_url: str
    sandbox_id: str

    @property
    def _name(self) -> str:
        # A digest, because neither a URL nor an id of the server's making shall become a path.
        return hashlib.sha256(f"{self.api_url}\0{self.sandbox_id}".encode()).hexdigest()[:32]

    @property
    def path(self) -> Path:
        return paths.leases() / f"{self._name}.json"

    def lock(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        """Lock the sandbox's leases. Raises what ``files.lock`` raises after so many seconds."""
        place = paths.locks() / f"lease-{self._name}"
        return files.lock(place, seconds=seconds, holds="the sandbox")

    def is_held(self) -> bool:
        """Tell whether a lease has the lock: the kernel frees that of a process which died."""
        try:
            with self.lock(0.0):
                return False
        except errors.TimedOut:
            return True

    def write(self) -> None:
        entry = {
            "sandboxId": self.sandbox_id,
            "apiUrl": self.api_url,
            "pid": os.getpid(),
            "at": time.time(),
        }
        files.write_whole(self.path, json.dumps(entry).encode())

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def _wait(state: tenacity.RetryCallState) -> float:
    """Return the pause that the server asks for, else exponential back-off with jitter."""
    problem = state.outcome.exception() if state.outcome else None
    if isinstance(problem, errors.RateLimited) and problem.retry_after is not None:
        return min(problem.retry_after, MAX_WAIT)
    growing = tenacity.wait_exponential(PAUSE_SECONDS, max=3.0)
    return float((growing + tenacity.wait_random(0.0, PAUSE_SECONDS))(state))


def patiently(
    call: Callable[[], T], *, kinds: tuple[type[GitDaytonaError], ...] = (GitDaytonaError,)
) -> T:
    """Call, and again after a pause while the failure is transient (429, 5xx, 409, no answer) and
    of one of the kinds; raises the last failure."""
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(
            lambda problem: isinstance(problem, kinds) and problem.transient
        ),
        # A call that took its whole time limit is not made again: people wait for its result.
        stop=tenacity.stop_after_attempt(TRIES) | tenacity.stop_after_delay(RETRY_SECONDS),
        wait=_wait,
        reraise=True,
    )
    return retrying(call)


@contextlib.contextmanager
def lease(
    cloud: Cloud, sandbox_id: str, *, background: "list[Future[None]] | None" = None
) -> Iterator[SshAccess]:
    """Hold the only live token of a sandbox while the block runs.

    Leases of one sandbox exclude each other across processes, since minting ends the sandbox's
    earlier tokens. The token is revoked on every way out; a failure is left to ``reap``. With
    ``background`` a thread does that, and its future is in the list until it has ended; the caller
    waits for those. Raises what ``Cloud.mint`` raises.
    """
    journal = Journal(cloud.settings.api_url, sandbox_id)
    with contextlib.ExitStack() as held:
        held.enter_context(journal.lock(LOCK_SECONDS))
        access = _mint(cloud, journal)
        held.callback(_revoke, cloud, access.token, journal)
        try:
            yield access
        finally:
            if background is not None:
                ending = threads.start(held.pop_all().close, daemon=False)
                background.append(ending)
                ending.add_done_callback(background.remove)


def _mint(cloud: Cloud, journal: Journal) -> SshAccess:
    """Mint a token. Unless certainly none is alive after a failure, the journal stays for ``reap``.

    No revocation without a token here: it would end what others may have minted meanwhile (case 2).
    """
    journal.write()
    failures: list[GitDaytonaError] = []

    def attempt() -> SshAccess:
        try:
            return cloud.mint(journal.sandbox_id, MINUTES)
        except GitDaytonaError as problem:
            failures.append(problem)
            raise

    try:
        with log.event("token.mint", sandbox=journal.sandbox_id):
            return patiently(attempt)
    except GitDaytonaError:
        if all(isinstance(each, _NOTHING_MINTED) for each in failures):
            journal.remove()
        raise


def _revoke(cloud: Cloud, token: Secret | None, journal: Journal) -> bool:
    sandbox_id = journal.sandbox_id
    try:
        with log.event("token.revoke", sandbox=sandbox_id):
            patiently(lambda: cloud.revoke(sandbox_id, token))
    except GitDaytonaError as problem:
        log.logger.warning(
            "token.revoke sandbox=%s left to the next start: %s", sandbox_id, problem.message
        )
        return False
    journal.remove()
    return True


def stale(api_url: str) -> list[Journal]:
    """List the journals of this API that no lease holds: a token of theirs may be alive."""
    found: list[Journal] = []
    for path in sorted(paths.leases().glob("*.json")):
        try:
            entry = json.loads(path.read_bytes())
            journal = Journal(str(entry["apiUrl"]), str(entry["sandboxId"]))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError):
            log.logger.warning("lease journal '%s' cannot be read and is left alone", path)
            continue
        if journal.api_url == api_url and not journal.is_held():
            found.append(journal)
    return found


def reap(cloud: Cloud) -> int:
    """Revoke, sandbox-wide, what leases left behind; returns how many. The rest stays."""
    done = 0
    for journal in stale(cloud.settings.api_url):
        with contextlib.suppress(GitDaytonaError), journal.lock(1.0):
            if journal.path.exists():  # no lease has begun and ended since
                done += _revoke(cloud, None, journal)
    return done
