"""Every error that a person can meet. The man pages are compared with this list.

A message is one line, lower case, no full stop, subjects in single quotes; the hint says what to
do. Details go to the log. The docstring's first line is what git-daytona(7) says of a status.
"""

import copy
from typing import ClassVar, Self


class GitDaytonaError(Exception):
    """It was refused or failed; the message says why.

    ``hint`` is one line, ``details`` text for the log only (git's own output, an API's answer).
    ``session`` is the number, or id, of the session whose sandbox was used; people are told it.
    """

    entry: ClassVar[str] = "failed"
    """Its name in git-daytona-errors(7), in brackets behind the message."""
    status: ClassVar[int] = 1
    transient: ClassVar[bool] = False
    """Whether the same attempt may succeed a moment later; retries look at nothing else."""

    def __init_subclass__(cls, **features: str | int) -> None:
        """Take ``entry``, ``status`` and ``transient`` of a kind; the rest it inherits."""
        for name, value in features.items():
            setattr(cls, name, value)

    def __init__(self, message: str, *, hint: str | None = None, details: str | None = None):
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details
        self.session = ""

    def but(self, **changes: str | None) -> Self:
        """Make a copy with another ``message``, ``hint``, ``details`` or ``session``. The error
        itself is never changed: it may be kept, and raised to others."""
        other = copy.copy(self)
        vars(other).update(changes)
        other.args = (other.message,)
        return other


class Declined(GitDaytonaError):
    """The user was asked, and said no: nothing failed, and nothing was done."""


class UsageError(GitDaytonaError, entry="usage", status=2):
    """Wrong arguments."""


class NothingToVerify(GitDaytonaError, entry="nothing-to-verify", status=3):
    """There is nothing to verify the gateway's host key against."""


class ApiUnreachable(GitDaytonaError, entry="api-unreachable", status=4, transient=True):
    """The Daytona API cannot be reached, or did not answer in time.

    The request may not have arrived at all, or its answer was lost.
    """


class CertificateRefused(ApiUnreachable, entry="certificate-refused", transient=False):
    """The server's certificate is not trusted, is not valid now, or is for another name."""


class ProxyRefused(ApiUnreachable, entry="proxy-refused", transient=False):
    """The proxy lets nothing through to the server."""


class NoKey(GitDaytonaError, entry="no-key", status=5):
    """There is no API key."""


class KeyRefused(GitDaytonaError, entry="key-refused", status=6):
    """The API key is not accepted (HTTP 401)."""


class Forbidden(GitDaytonaError, entry="forbidden", status=7):
    """The API key may not do this (HTTP 403)."""


class NotFound(GitDaytonaError, entry="not-found", status=8):
    """No such session or sandbox."""


class SandboxGone(NotFound, entry="sandbox-gone"):
    """The API itself says that there is no such sandbox any more.

    Only this makes a session's sandbox replaced or forgotten: other services answer 404 for
    sandboxes that are archived or starting.
    """


class NoRepository(GitDaytonaError, entry="no-repository", status=9):
    """There is no git repository here, or not one that can be used."""


class RepositoryRefused(NoRepository, entry="repository-refused"):
    """There is a repository, but git does not work with it, or does not work here at all."""


class TransferFailed(GitDaytonaError, entry="transfer-failed", status=10):
    """Git or ssh failed while it talked to the sandbox."""


class ConnectionClosed(TransferFailed, entry="connection-closed", transient=True):
    """A bad token, a stopped sandbox, and one whose SSH is not up yet look the same."""


class HostKeyRefused(GitDaytonaError, entry="host-key-refused", status=11):
    """The gateway's host key is not the one that is trusted."""


class MissingProgram(GitDaytonaError, entry="missing-program", status=12):
    """Git or ssh is missing, or DAYTONA_SSH_BINARY cannot be used."""


class BadSetting(GitDaytonaError, entry="bad-setting", status=13):
    """A setting or a file of the suite cannot be read or makes no sense."""


class RateLimited(GitDaytonaError, entry="rate-limited", status=14, transient=True):
    """The Daytona API asks to wait (HTTP 429).

    ``retry_after`` is the server's wish in seconds, or None.
    """

    def __init__(self, message: str, *, retry_after: float | None = None, hint: str | None = None):
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class LimitReached(RateLimited, entry="limit-reached", transient=False):
    """The organisation's credits or limits do not allow it (HTTP 402, 429)."""


class BadAnswer(GitDaytonaError, entry="bad-answer", status=15):
    """The Daytona API answered something that cannot be used."""


class NotOffered(BadAnswer, entry="not-offered"):
    """The Daytona server does not offer it, or not for this sandbox (HTTP 405, 422)."""


class ServerError(BadAnswer, entry="server-error", transient=True):
    """HTTP 5xx."""


class Conflict(GitDaytonaError, entry="sandbox-changing", status=16, transient=True):
    """The sandbox is busy or in a state that does not allow this."""


class SandboxNotRunning(GitDaytonaError, entry="sandbox-not-running", status=Conflict.status):
    """The sandbox is not running."""


class SandboxBroken(GitDaytonaError, entry="sandbox-broken", status=17):
    """The sandbox is in an error state."""


class TimedOut(GitDaytonaError, entry="timed-out", status=18):
    """It took longer than its limit and was ended."""


class SandboxCommandFailed(GitDaytonaError, entry="sandbox-command-failed", status=19):
    """A preparation or commit inside the sandbox failed."""


class CutShort(SandboxCommandFailed, entry="cut-short"):
    """A command's sandbox stopped or was deleted while it ran; it is not run again.

    ``output`` is what it had printed, as far as that is known.
    """

    def __init__(self, message: str, *, output: str = ""):
        super().__init__(message, hint="see how far it came before you run it again")
        self.output = output


class SandboxBusy(SandboxCommandFailed, entry="sandbox-busy", transient=True):
    """The agent's git moved HEAD or the index while we looked."""


class Unconfined(GitDaytonaError, entry="unconfined", status=20):
    """An OpenCode runs here without the plugin; its tools act on this machine."""


class Elsewhere(GitDaytonaError, entry="lives-elsewhere", status=21):
    """The session lives on another Daytona, or in another organisation of it; nothing was changed.

    A sandbox that is not found there says nothing of the session's: only where a session lives can
    its sandbox be gone.
    """


class InternalError(GitDaytonaError, entry="internal", status=70):
    """An internal error; the log holds the details."""


INTERRUPTED = 130
"""Ended by Ctrl-C, as a shell reports it, or by a no to a question."""
