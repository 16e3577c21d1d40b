"""What a check finds; checks run in order, in time, and none whose ground has failed."""

import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from git_daytona.base import log, threads
from git_daytona.base.errors import GitDaytonaError
from git_daytona.base.secret import one_line, redact

CHECK_SECONDS = 10.0
"""How long one check may take."""


class Status(enum.Enum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Finding:
    """A check's name (``run`` gives it) and what it saw; what to do where that is not fine."""

    check: str
    status: Status
    detail: str
    hint: str | None = None

    def row(self) -> dict[str, str | None]:
        return vars(self) | {"status": self.status.value}


ok, skipped = partial(Finding, "", Status.OK), partial(Finding, "", Status.SKIPPED)
warn, fail = partial(Finding, "", Status.WARN), partial(Finding, "", Status.FAIL)


@dataclass(frozen=True)
class Check:
    """A link of the chain. ``look`` may raise GitDaytonaError, which is a failure; ``needs`` are
    names of links that must hold. One that is ``bounded`` has time limits of its own, and runs in
    the caller's thread, where Ctrl-C unwinds it."""

    name: str
    look: Callable[[], Finding]
    needs: tuple[str, ...] = ()
    bounded: bool = False


def run(checks: Iterable[Check], *, seconds: float = CHECK_SECONDS) -> Iterator[Finding]:
    """Run the checks, and yield what each finds as soon as it is known, fit for a terminal."""
    broken: set[str] = set()
    for check in checks:
        lacking = next((name for name in check.needs if name in broken), None)
        found = skipped(f"it needs '{lacking}'") if lacking else _within(seconds, check)
        if found.status in (Status.FAIL, Status.SKIPPED):
            broken.add(check.name)
        hint = _line(found.hint) if found.hint else None
        yield Finding(check.name, found.status, _line(found.detail), hint)


def _within(seconds: float, check: Check) -> Finding:
    """What a check sees, or why it sees nothing."""
    try:
        return check.look() if check.bounded else threads.within(seconds, check.look)
    except threads.Late:
        remedy = "look what keeps it: the network, a disk, a prompt"
        return fail(f"no answer within {seconds:.0f} seconds", remedy)
    except GitDaytonaError as problem:
        return fail(problem.message, problem.hint or "the log may say more: git daytona logs")
    except Exception:  # noqa: BLE001 — the other checks still have something to say
        log.logger.exception("doctor: the check '%s' failed", check.name)
        remedy = "please report it with the end of the log: git daytona logs"
        return fail("the check itself failed", remedy)


def _line(text: str) -> str:
    return one_line(redact(text))
