"""Every error that a person can meet, with its exit status. The table in the man pages is this one
(tests/test_man.py).

A message is one line, lower case, no full stop, subjects in single quotes; the hint says what to
do. Details go to the log. Each kind has an entry in git-daytona-errors(7), which is named in
brackets behind the message.
"""

from typing import ClassVar


class GitDaytonaError(Exception):
    """Base of all errors. ``hint`` is one line that says what to do; ``details`` is text for the
    log only (git's own output, an API's answer)."""

    entry: ClassVar[str] = "failed"
    """Its name in git-daytona-errors(7)."""
    status: ClassVar[int] = 1
    meaning: ClassVar[str] = "it was refused or failed; the message says why"
    transient: ClassVar[bool] = False
    """Whether the same attempt may succeed a moment later; retries look at nothing else."""

    def __init__(self, message: str, *, hint: str | None = None, details: str | None = None):
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details


class UsageError(GitDaytonaError):
    entry = "usage"
    status = 2
    meaning = "wrong arguments"


class NothingToVerify(GitDaytonaError):
    entry = "nothing-to-verify"
    status = 3
    meaning = "there is nothing to verify the gateway's host key against"


class ApiUnreachable(GitDaytonaError):
    """The request may not have arrived at all, or its answer was lost."""

    entry = "api-unreachable"
    status = 4
    meaning = "the Daytona API cannot be reached, or did not answer in time"
    transient = True


class NoKey(GitDaytonaError):
    entry = "no-key"
    status = 5
    meaning = "there is no API key"


class KeyRefused(GitDaytonaError):
    entry = "key-refused"
    status = 6
    meaning = "the API key is not accepted (HTTP 401)"


class Forbidden(GitDaytonaError):
    entry = "forbidden"
    status = 7
    meaning = "the API key may not do this (HTTP 403)"


class NotFound(GitDaytonaError):
    entry = "not-found"
    status = 8
    meaning = "no such session or sandbox"


class SandboxGone(NotFound):
    """The API itself says that there is no such sandbox any more. Only this makes a session's
    sandbox replaced or forgotten: other services answer 404 for sandboxes that are archived or
    starting."""

    entry = "sandbox-gone"


class NoRepository(GitDaytonaError):
    entry = "no-repository"
    status = 9
    meaning = "there is no git repository here, or not one that can be used"


class TransferFailed(GitDaytonaError):
    entry = "transfer-failed"
    status = 10
    meaning = "git or ssh failed while it talked to the sandbox"


class ConnectionClosed(TransferFailed):
    """The gateway closed the connection: bad token, stopped sandbox, or its SSH is not up yet; they
    look the same."""

    entry = "connection-closed"
    transient = True


class HostKeyRefused(GitDaytonaError):
    entry = "host-key-refused"
    status = 11
    meaning = "the gateway's host key is not the one that is trusted"


class MissingProgram(GitDaytonaError):
    entry = "missing-program"
    status = 12
    meaning = "git or ssh is missing, or DAYTONA_SSH_BINARY cannot be used"


class BadSetting(GitDaytonaError):
    entry = "bad-setting"
    status = 13
    meaning = "a setting or a file of the suite cannot be read or makes no sense"


class RateLimited(GitDaytonaError):
    """``retry_after`` is the server's wish in seconds, or None."""

    entry = "rate-limited"
    status = 14
    meaning = "the Daytona API asks to wait (HTTP 429)"
    transient = True

    def __init__(self, message: str, *, retry_after: float | None = None, hint: str | None = None):
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class BadAnswer(GitDaytonaError):
    entry = "bad-answer"
    status = 15
    meaning = "the Daytona API answered something that cannot be used"


class ServerError(BadAnswer):
    """HTTP 5xx."""

    entry = "server-error"
    transient = True


class Conflict(GitDaytonaError):
    """HTTP 409: the sandbox is changing its state just now."""

    entry = "sandbox-changing"
    status = 16
    meaning = "the sandbox is busy or in a state that does not allow this"
    transient = True


class SandboxNotRunning(GitDaytonaError):
    entry = "sandbox-not-running"
    status = 16
    meaning = Conflict.meaning


class SandboxBroken(GitDaytonaError):
    entry = "sandbox-broken"
    status = 17
    meaning = "the sandbox is in an error state"


class TimedOut(GitDaytonaError):
    entry = "timed-out"
    status = 18
    meaning = "it took longer than its limit and was ended"


class SandboxCommandFailed(GitDaytonaError):
    entry = "sandbox-command-failed"
    status = 19
    meaning = "a preparation or commit inside the sandbox failed"


class SandboxBusy(SandboxCommandFailed):
    """The agent's git moved HEAD or the index while we looked."""

    entry = "sandbox-busy"
    transient = True


class InternalError(GitDaytonaError):
    """An error of the suite itself; the log holds the traceback."""

    entry = "internal"
    status = 70
    meaning = "an internal error; the log holds the details"


INTERRUPTED = 130
"""Ended by Ctrl-C, as a shell reports it."""


def kinds() -> list[type[GitDaytonaError]]:
    """Every kind of error, each before those that are special cases of it."""
    found: list[type[GitDaytonaError]] = [GitDaytonaError]
    for kind in found:
        found.extend(kind.__subclasses__())
    return found


def table() -> list[tuple[int, str]]:
    """Rows (exit status, meaning) in order, for man pages and README."""
    rows: dict[int, str] = {0: "success"}
    for kind in kinds():
        rows.setdefault(kind.status, kind.meaning)
    rows[INTERRUPTED] = "interrupted with Ctrl-C"
    return sorted(rows.items())
