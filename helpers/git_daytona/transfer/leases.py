"""A token's lifetime: lease = lock, journal, mint → use → revoke, struck out (DESIGN.md §4).

The journal is one small file per sandbox under ``$XDG_STATE_HOME/git-daytona/leases``: sandbox id,
API, pid and start of the holder, never the token. A lease whose holder died is revoked sandbox-wide
by ``reap``.
"""

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import tenacity

from git_daytona.api.cloud import Cloud, SshAccess
from git_daytona.base import files, log, paths
from git_daytona.base.errors import GitDaytonaError, RateLimited
from git_daytona.base.secret import Secret

T = TypeVar("T")

MINUTES = 10
"""How long a token would live if nobody revoked it."""
TRIES = 3
LOCK_SECONDS = 600.0
"""How long a lease waits for the one before it on the same sandbox: as long as a token lives."""
RETRY_SECONDS = 45.0
"""No new try begins later than this."""
MAX_WAIT = 30.0
"""The longest a server's Retry-After is followed, seconds."""


@dataclass(frozen=True)
class Stale:
    """A journalled lease whose holder is gone, or whose mint's answer was lost."""

    sandbox_id: str
    api_url: str
    journal: Path
    lock: Path


def _wait(state: tenacity.RetryCallState) -> float:
    """What the server asked for, else exponential back-off with jitter."""
    problem = state.outcome.exception() if state.outcome else None
    if isinstance(problem, RateLimited) and problem.retry_after is not None:
        return min(problem.retry_after, MAX_WAIT)
    return float(
        (tenacity.wait_exponential(multiplier=0.2, max=3.0) + tenacity.wait_random(0.0, 0.2))(state)
    )


def patiently(
    call: Callable[[], T],
    *,
    kinds: tuple[type[GitDaytonaError], ...] = (GitDaytonaError,),
    tries: int = TRIES,
) -> T:
    """Call, and again after a pause while the failure is transient (429, 5xx, 409, no answer) and
    of one of the kinds; the last failure is raised."""
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(
            lambda problem: isinstance(problem, kinds) and problem.transient
        ),
        # A call that took its whole time limit is not made again: people wait for its result.
        stop=tenacity.stop_any(
            tenacity.stop_after_attempt(tries), tenacity.stop_after_delay(RETRY_SECONDS)
        ),
        wait=_wait,
        reraise=True,
    )
    return retrying(call)


@contextlib.contextmanager
def lease(
    cloud: Cloud,
    sandbox_id: str,
    *,
    minutes: int = MINUTES,
    background: list[threading.Thread] | None = None,
) -> Iterator[SshAccess]:
    """Hold the only live token of a sandbox while the block runs.

    Leases of one sandbox exclude each other across processes, since minting ends the sandbox's
    earlier tokens. On every way out the token is revoked, three tries; a failure to revoke is
    logged and left to ``reap``. With ``background`` the revocation runs in a thread, which is in
    that list until it has ended; the caller joins those that are there before it ends. Raises what
    ``Cloud.mint`` raises.
    """
    journal, lock = _places(cloud.settings.api_url, sandbox_id)
    with contextlib.ExitStack() as stack:
        stack.enter_context(files.lock(lock, seconds=LOCK_SECONDS, holds=f"sandbox {sandbox_id}"))
        _write(journal, cloud.settings.api_url, sandbox_id, state="minting")
        unsure = False

        def mint() -> SshAccess:
            nonlocal unsure
            try:
                return cloud.mint(sandbox_id, minutes)
            except GitDaytonaError as problem:
                unsure = unsure or problem.status not in _REFUSALS
                raise

        try:
            with log.event("token.mint", sandbox=sandbox_id):
                access = patiently(mint)
        except (KeyboardInterrupt, SystemExit):
            _write(journal, cloud.settings.api_url, sandbox_id, state="lost")
            raise
        except GitDaytonaError:
            # A refusal at the first try minted nothing. Otherwise a token may be alive that nobody
            # knows: the journal keeps it for reap(). (No revocation without a token here: it would
            # end what others may have minted meanwhile, CASES 2.)
            if unsure:
                _write(journal, cloud.settings.api_url, sandbox_id, state="lost")
            else:
                journal.unlink(missing_ok=True)
            raise
        released = stack.pop_all()

    def release() -> None:
        with released:
            _revoke(cloud, sandbox_id, access.token, journal)

    try:
        yield access
    finally:
        if background is None:
            release()
        else:

            def behind() -> None:
                try:
                    release()
                finally:
                    background.remove(thread)

            thread = threading.Thread(target=behind, name=f"revoke {sandbox_id}")
            background.append(thread)
            thread.start()


_REFUSALS = frozenset({5, 6, 7, 8, 13})
"""Statuses of errors that say for certain that nothing was minted: no key, 401, 403, 404, a bad
setting."""


def _revoke(cloud: Cloud, sandbox_id: str, token: Secret | None, journal: Path) -> bool:
    try:
        with log.event("token.revoke", sandbox=sandbox_id):
            patiently(lambda: cloud.revoke(sandbox_id, token))
    except GitDaytonaError as problem:
        log.logger.warning(
            "token.revoke sandbox=%s left to the next start: %s", sandbox_id, problem.message
        )
        _write(journal, cloud.settings.api_url, sandbox_id, state="lost")
        return False
    journal.unlink(missing_ok=True)
    return True


def stale(api_url: str) -> list[Stale]:
    """The journalled leases of this API that nobody holds any more."""
    found: list[Stale] = []
    for journal in sorted(paths.leases().glob("*.json")):
        try:
            entry = json.loads(journal.read_bytes())
            sandbox_id, url = str(entry["sandboxId"]), str(entry["apiUrl"])
            alive = entry["state"] != "lost" and _alive(int(entry["pid"]), str(entry["started"]))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError):
            log.logger.warning("lease journal '%s' cannot be read and is left alone", journal)
            continue
        if url == api_url and not alive:
            found.append(Stale(sandbox_id, url, *_places(url, sandbox_id)))
    return found


def reap(cloud: Cloud) -> int:
    """Revoke, sandbox-wide, what dead holders left behind. Returns how many were revoked; those
    that failed stay journalled."""
    done = 0
    for entry in stale(cloud.settings.api_url):
        try:
            with files.lock(entry.lock, seconds=1.0, holds=f"sandbox {entry.sandbox_id}"):
                # Under the lock look again: a new lease may have begun (its mint ended the old
                # token) and ended since.
                if entry in stale(cloud.settings.api_url):
                    done += _revoke(cloud, entry.sandbox_id, None, entry.journal)
        # a live lease holds the lock: its mint has ended the old token, and it will revoke its own
        except GitDaytonaError:
            continue
    return done


def _places(api_url: str, sandbox_id: str) -> tuple[Path, Path]:
    # A digest, because neither a URL nor an id of the server's making shall become a path.
    name = hashlib.sha256(f"{api_url}\0{sandbox_id}".encode()).hexdigest()[:32]
    return paths.leases() / f"{name}.json", paths.locks() / f"lease-{name}"


def _write(journal: Path, api_url: str, sandbox_id: str, *, state: str) -> None:
    pid = os.getpid()
    entry = {
        "sandboxId": sandbox_id,
        "apiUrl": api_url,
        "pid": pid,
        "started": _started(pid),
        "at": time.time(),
        "state": state,
    }
    files.write_whole(journal, json.dumps(entry).encode())


def _started(pid: int) -> str:
    """Something that tells a process from a later one with the same number: its start time where
    /proc has it, else nothing."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # field 22, starttime (proc(5)); the name before it may hold blanks and brackets
    return stat.rsplit(")", 1)[-1].split()[19]


def _alive(pid: int, started: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return not started or _started(pid) in ("", started)
