"""git inside the sandbox: preparing its repository, committing what is pending, and reading what it
reports.

The sandbox is untrusted: its report is data, checked line by line, and no string of it becomes an
option or a path here.
"""

import re
import secrets
import shlex
import sys
from dataclasses import dataclass, field

from git_daytona.api.cloud import Cloud, Execution
from git_daytona.base import log
from git_daytona.base.errors import (
    ApiUnreachable,
    BadAnswer,
    CutShort,
    SandboxBusy,
    SandboxCommandFailed,
)
from git_daytona.base.secret import printable
from git_daytona.git.refs import MOST, PROJECT, takeable
from git_daytona.sandbox import scripts
from git_daytona.transfer import leases

PREPARE_SECONDS = 60.0
REPORT_SECONDS = 300.0
"""Limits of the scripts in the sandbox: a commit of a large tree takes its time."""
NOTES = 20
"""How many nested repositories, notes and refused branches of one report are listed."""
PORTS = 1000
OPERATIONS = ("merge", "rebase", "cherry-pick", "revert", "bisect", "git")

_OID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PORT = re.compile(r"[0-9A-Fa-f]{4}")


@dataclass
class Report:
    """A sandbox's repository as it reports it; only object ids and names of refs are checked."""

    head: str | None = None
    """The commit for opencode/N: HEAD, or the branch's tip while it is rebased or bisected."""
    branch: str | None = None
    operation: str | None = None
    """One of OPERATIONS; ``git`` is a command that holds the index."""
    refs: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    """Branches that cannot be taken, by what can be shown of their names."""
    nested: list[str] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    lfs: int = 0
    notes: list[str] = field(default_factory=list)
    missing: str | None = None
    """``project`` or ``repository`` when it is not there."""


class Command:
    """A shell script that is run under ``sh -c``, with standard input closed, at most once: who
    asks again, because the answer got lost or the sandbox had to be started, gets what became of
    the first run."""

    def __init__(self, source: str, *arguments: str, timeout: float) -> None:
        self._id, self._timeout = secrets.token_hex(12), timeout
        words = ("sh", "-c", scripts.read("guard"), "sh", self._id, source, *arguments)
        self._line = shlex.join(words) + " </dev/null"
        self._sandbox = ""
        """Where it may have begun: a request's answer was lost, or said nothing of it."""

    def run(self, cloud: Cloud, sandbox_id: str) -> Execution:
        """Raises CutShort where it has begun, or may have in another sandbox, and did not end."""
        if self._sandbox not in ("", sandbox_id):
            raise CutShort("the sandbox was deleted while this ran, and a new one has been made")

        def ask() -> Execution:
            try:
                return cloud.execute(sandbox_id, self._line, timeout=self._timeout)
            except (ApiUnreachable, BadAnswer):  # all others are refusals
                self._sandbox = sandbox_id
                raise

        marked = re.compile(f"^{self._id}( cut short)?\n", re.MULTILINE)
        result = leases.patiently(ask)
        if (found := marked.search(result.output)) is None:
            self._sandbox = sandbox_id  # its guard has not come to its end: what became of it?
            result = leases.patiently(ask)
            if (found := marked.search(result.output)) is None:
                return result
        output = result.output[found.end() :]
        if found[1]:
            raise CutShort(
                "the sandbox stopped while this ran, or something in it ended it", output=output
            )
        return Execution(result.status, output)


def run_once(
    cloud: Cloud, sandbox_id: str, source: str, *arguments: str, timeout: float
) -> Execution:
    """Run a Command that nobody asks for again."""
    return Command(source, *arguments, timeout=timeout).run(cloud, sandbox_id)


def in_project(command: str, *, timeout: float) -> Command:
    """Make a command of a line of shell, for the project's directory (home without one)."""
    source = 'cd "$1" 2>/dev/null || cd || exit 125\nexec sh -c "$2"'
    return Command(source, PROJECT, command, timeout=timeout)


def _reported(
    cloud: Cloud, sandbox_id: str, source: str, *arguments: str, timeout: float
) -> Report:
    """Run a script that reports on the project. Raises SandboxCommandFailed, BadAnswer."""
    mark = secrets.token_hex(8)
    words = (source, PROJECT, mark, *arguments)
    return parse(run_once(cloud, sandbox_id, *words, timeout=timeout), mark)


def prepare(cloud: Cloud, sandbox_id: str, object_format: str) -> str | None:
    """Make the sandbox's repository; return its HEAD if it has one. Raises SandboxCommandFailed."""
    words = (scripts.read("prepare"), object_format)
    with log.event("sandbox.prepare", sandbox=sandbox_id):
        return _reported(cloud, sandbox_id, *words, timeout=PREPARE_SECONDS).head


def make_project(cloud: Cloud, sandbox_id: str) -> None:
    """Make an empty project directory for a session without sync. Raises SandboxCommandFailed."""
    result = run_once(cloud, sandbox_id, 'mkdir -p "$1"', PROJECT, timeout=PREPARE_SECONDS)
    if result.status != 0:
        raise SandboxCommandFailed(
            f"cannot make {PROJECT} in the sandbox: {printable(result.output)[:300]}",
            hint="try again, or use another snapshot",
        )


def report(cloud: Cloud, sandbox_id: str, message: str, *, adopt: bool = False) -> Report:
    """Commit what is pending and report what is there, in one call. Raises what ``refs`` does."""
    source = scripts.read("ports") + scripts.read("report")
    words = (source, message, *(["adopt"] if adopt else []))
    with log.event("sandbox.report", sandbox=sandbox_id) as event:
        found = leases.patiently(
            lambda: _reported(cloud, sandbox_id, *words, timeout=REPORT_SECONDS),
            kinds=(SandboxBusy,),
        )
        event.update(head=found.head, operation=found.operation)
        return found


def refs(cloud: Cloud, sandbox_id: str) -> Report:
    """Read the sandbox's refs as they are, in one API call. Raises what ``report`` does."""
    words = (scripts.read("refs"), str(MOST + 1))
    return _reported(cloud, sandbox_id, *words, timeout=PREPARE_SECONDS)


def ports(cloud: Cloud, sandbox_id: str) -> list[int]:
    """List the TCP ports that the sandbox's own processes listen on, in one API call."""
    source = scripts.read("ports") + "listening"
    words = run_once(cloud, sandbox_id, source, timeout=PREPARE_SECONDS).output.split()
    return [int(word, 16) for word in words if _PORT.fullmatch(word)][:PORTS]


def parse(result: Execution, mark: str) -> Report:
    """Read ``MARK key value`` lines (scripts/report.sh) and ignore all others: what git or a shell
    profile printed."""
    found, ended = Report(), False
    for line in result.output.splitlines():
        if line.startswith(mark + " "):
            key, _, value = line[len(mark) + 1 :].partition(" ")
            ended |= key == "end"
            _read(found, key, value)
    taken, refused = takeable(found.refs, folding=sys.platform == "darwin")
    found.refs = {name: found.refs[name] for name in taken}
    found.refused = [printable(name)[:100] for name in refused[:NOTES]]
    if not ended and found.missing is None:
        raise SandboxCommandFailed(
            f"the sandbox's git did not finish (exit status {result.status})",
            hint="'git daytona exec N -- git status' shows what it says",
            details=printable(result.output[-2000:]),
        )
    return found


def _read(found: Report, key: str, value: str) -> None:
    match key:
        case "error":
            raise SandboxCommandFailed(
                printable(value)[:500],
                hint="'git daytona exec N -- COMMAND' lets you look into the sandbox",
            )
        case "busy":
            raise SandboxBusy(
                "the agent's git changed the repository while it was being synced",
                hint="it is tried again; or sync once it is done",
            )
        case "head" if value != "-":
            found.head = _oid(value)
        case "branch" if value.startswith("refs/heads/") and takeable([value], folding=False)[0]:
            found.branch = value
        case "operation" if value in OPERATIONS:
            found.operation = value
        case "ref" if len(found.refs) <= MOST:
            oid, _, name = value.partition(" ")
            found.refs[name] = _oid(oid)
        case "nested" if len(found.nested) < NOTES:
            found.nested.append(printable(value)[:200])
        case "note" if len(found.notes) < NOTES:
            found.notes.append(printable(value)[:200])
        case "port" if _PORT.fullmatch(value) and len(found.ports) < PORTS:
            found.ports.append(int(value, 16))
        case "lfs" if re.fullmatch(r"\s*[0-9]+\s*", value):  # isdigit() would take "²", too
            found.lfs = int(value.strip()[:9])
        case "missing" if value in ("project", "repository"):
            found.missing = value


def _oid(text: str) -> str:
    if not _OID.fullmatch(text):
        raise BadAnswer(
            "the sandbox reports something that is no commit id",
            hint="look into it: git daytona exec N -- git log",
        )
    return text
