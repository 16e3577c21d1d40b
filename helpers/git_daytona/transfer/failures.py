"""Why a transfer failed: the wrapper's report first, then what git and the sandbox print."""

import re

from git_daytona.base.errors import BadSetting, ConnectionClosed, GitDaytonaError, TransferFailed
from git_daytona.base.run import Result
from git_daytona.base.secret import one_line
from git_daytona.git.repository import failure
from git_daytona.transfer.environment import ConnectionEnd
from git_daytona.trust.gateway import Policy, Trust

# A line of the user's own ssh configuration that ssh cannot read (readconf.c has both forms; trying
# again does not help).
_CONFIGURATION = re.compile(r"^(/.*?):? (line \d+): (.*)$", re.MULTILINE)
# What the sandbox's side writes to its stderr or in git's side band (both come as "remote: …"),
# what has happened, and what to do. First match wins. Its git runs in the C locale.
_REMOTE = (
    (
        "git: (?:command )?not found",
        "git is not installed in the sandbox",
        "install it there, or use a snapshot that has it: git daytona config daytona.snapshot",
    ),
    (
        "dubious ownership",
        "the sandbox's git refuses its repository, which belongs to another user there",
        'give it to the user who runs git: git daytona exec N -- chown -R "$(id -u)" .',
    ),
    (
        "does not appear to be a git repository|not a git repository",
        "the sandbox has no repository any more",
        "'git daytona sync N' makes it again",
    ),
    (
        "No space left on device|[Dd]isk quota exceeded",
        "the sandbox's disk is full",
        "make room there: git daytona exec N -- df -h; its work is still in it",
    ),
    (
        "[Oo]ut of memory|Cannot allocate memory",
        "the sandbox ran out of memory",
        "end what runs there: git daytona exec N -- ps aux; or use a larger snapshot",
    ),
)
_NO_REF = re.compile(r"^fatal: couldn't find remote ref ", re.MULTILINE)


class Blocked(ConnectionClosed):
    """Nothing answers where the gateway is."""


class RefGone(TransferFailed):
    """A ref that was to be fetched is not in the sandbox: it was deleted since the report."""


def explain(
    result: Result, end: ConnectionEnd, trust: Trust, verb: str, policy: Policy
) -> GitDaytonaError:
    """Make the error of a git command that failed."""
    # The wrapper knows for certain whether the sandbox's side ended by itself (ssh.py, Ending).
    cut = end.entry == ConnectionClosed.entry
    if end.entry and not cut:
        return TransferFailed(end.message, hint=end.hint, details=result.complaint)
    if wrong := _CONFIGURATION.search(end.stderr):
        return BadSetting(
            f"your ssh configuration cannot be used: '{wrong[1]}' {wrong[2]}: {one_line(wrong[3])}",
            hint="mend that line; 'ssh -G localhost' shows whether ssh can read it",
            details=result.complaint,
        )
    if problem := policy.refusal(trust, end.stderr) or _of_sandbox(result):
        return problem
    if cut:
        # the first words of ssh are those of a ProxyCommand, where that is what failed
        said = one_line(end.stderr.strip().partition("\n")[0])[:200]
        return ConnectionClosed(
            f"git {verb} failed: the gateway {trust.endpoint} did not answer or closed the"
            f" connection{said and f' ({said})'}",
            hint="'git daytona doctor' tells a firewall from a wrong key and a sandbox that sleeps",
            details=result.complaint,
        )
    if problem := of_push(result.text, result.complaint):
        return problem
    problem = failure(result, f"git {verb} failed")
    if _NO_REF.search(result.complaint):
        return RefGone(problem.message, hint=problem.hint, details=problem.details)
    return problem


def _of_sandbox(result: Result) -> GitDaytonaError | None:
    for words, message, hint in _REMOTE:
        if re.search(rf"^remote: .*(?:{words})", result.complaint, re.MULTILINE):
            return TransferFailed(message, hint=hint, details=result.complaint)
    return None


def of_push(text: str, details: str) -> TransferFailed | None:
    """Read what git-push(1) has for a refused ref with --porcelain: a flag, the refs, the reason,
    tabs between."""
    rejected = re.search(r"^!(?:.*\t)?(.*)$", text, re.MULTILINE)
    if rejected is None:
        return None
    reason = one_line(rejected[1])
    behind = "fast-forward" in reason or "fetch first" in reason
    return TransferFailed(
        f"git push was rejected by the sandbox: {reason}",
        hint="fetch first: git daytona sync N" if behind else "the log has all that git said",
        details=details,
    )
