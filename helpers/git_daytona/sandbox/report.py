"""git inside the sandbox: preparing its repository, committing what is pending, and reading what it
reports.

The sandbox is untrusted: its report is data, checked line by line, and no string of it becomes an
option or a path here.
"""

import re
import secrets
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from git_daytona.api.cloud import Cloud, Execution
from git_daytona.base import log
from git_daytona.base.errors import BadAnswer, SandboxBusy, SandboxCommandFailed
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

_OID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PORT = re.compile(r"[0-9A-Fa-f]{4}")


@dataclass
class Report:
    """A sandbox's repository as it reports it. Object ids and ref names are well-formed; everything
    else is text of its making.

    ``head`` is the commit that opencode/N shall be at: HEAD, or the branch's tip while it is being
    rebased or bisected. ``operation`` is merge, rebase, cherry-pick, revert, bisect, or git: a
    command that holds the index. ``refused`` are branches that cannot be taken, by what can be
    shown of their names; ``missing`` is ``project`` or ``repository`` when it is not there.
    """

    head: str | None = None
    branch: str | None = None
    operation: str | None = None
    refs: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    nested: list[str] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    lfs: int = 0
    notes: list[str] = field(default_factory=list)
    missing: str | None = None


def run_once(
    cloud: Cloud, sandbox_id: str, source: str, *arguments: str, timeout: float
) -> Execution:
    """Run a shell script in the sandbox under ``sh -c``, with standard input closed, at most once:
    a request that is repeated because its answer got lost gets the first run's output."""
    words = ("sh", "-c", scripts.read("guard"), "sh", secrets.token_hex(12), source, *arguments)
    command = shlex.join(words) + " </dev/null"
    return leases.patiently(lambda: cloud.execute(sandbox_id, command, timeout=timeout))


def execute(
    cloud: Cloud, sandbox_id: str, command: str, *, timeout: float, directory: str = PROJECT
) -> Execution:
    """Run a shell command in the project's directory (the home directory without one)."""
    source = 'cd "$1" 2>/dev/null || cd || exit 125\nexec sh -c "$2"'
    with log.event("sandbox.exec", sandbox=sandbox_id) as event:
        result = run_once(cloud, sandbox_id, source, directory, command, timeout=timeout)
        event["status"] = result.status
    return result


def prepare(cloud: Cloud, sandbox_id: str, object_format: str) -> str | None:
    """Make the sandbox's repository; returns its HEAD if it has one already.

    Raises SandboxCommandFailed.
    """
    mark = secrets.token_hex(8)
    arguments = (scripts.read("prepare"), PROJECT, mark, object_format)
    with log.event("sandbox.prepare", sandbox=sandbox_id):
        return parse(run_once(cloud, sandbox_id, *arguments, timeout=PREPARE_SECONDS), mark).head


def make_project(cloud: Cloud, sandbox_id: str) -> None:
    """Make an empty project directory for a session without sync. Raises SandboxCommandFailed."""
    result = run_once(cloud, sandbox_id, 'mkdir -p "$1"', PROJECT, timeout=PREPARE_SECONDS)
    if result.status != 0:
        raise SandboxCommandFailed(
            f"cannot make {PROJECT} in the sandbox: {printable(result.output)[:300]}",
            hint="try again, or use another snapshot",
        )


def report(cloud: Cloud, sandbox_id: str, message: str, *, adopt: bool = False) -> Report:
    """Commit what is pending in the sandbox and report what is there. One API call.

    Raises SandboxCommandFailed, BadAnswer.
    """
    mark = secrets.token_hex(8)
    source = scripts.read("ports") + scripts.read("report")
    arguments = (source, PROJECT, mark, message, *(["adopt"] if adopt else []))

    def attempt() -> Report:
        return parse(run_once(cloud, sandbox_id, *arguments, timeout=REPORT_SECONDS), mark)

    with log.event("sandbox.report", sandbox=sandbox_id) as event:
        found = leases.patiently(attempt, kinds=(SandboxBusy,))
        event.update(head=found.head, operation=found.operation)
        return found


def refs(cloud: Cloud, sandbox_id: str) -> Report:
    """Read the sandbox's refs as they are, nothing committed. One API call.

    Raises SandboxCommandFailed, BadAnswer.
    """
    mark = secrets.token_hex(8)
    arguments = (scripts.read("refs"), PROJECT, mark, str(MOST + 1))
    return parse(run_once(cloud, sandbox_id, *arguments, timeout=PREPARE_SECONDS), mark)


def ports(cloud: Cloud, sandbox_id: str) -> list[int]:
    """List the TCP ports that the sandbox's own processes listen on. One API call."""
    source = scripts.read("ports") + "listening"
    words = run_once(cloud, sandbox_id, source, timeout=PREPARE_SECONDS).output.split()
    return [int(word, 16) for word in words if _PORT.fullmatch(word)][:PORTS]


def parse(result: Execution, mark: str) -> Report:
    """Read ``MARK key value`` lines; everything else in the output is ignored (what git printed,
    what a shell profile prints)."""
    found = Report()
    ended = False
    for line in result.output.splitlines():
        if line.startswith(mark + " "):
            key, _, value = line[len(mark) + 1 :].partition(" ")
            ended |= key == "end"
            if key in _READERS:
                _READERS[key](found, value)
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


def _read_error(_found: Report, value: str) -> None:
    raise SandboxCommandFailed(
        printable(value)[:500],
        hint="'git daytona exec N -- COMMAND' lets you look into the sandbox",
    )


def _read_busy(_found: Report, _value: str) -> None:
    raise SandboxBusy(
        "the agent's git changed the repository while it was being synced",
        hint="it is tried again; or sync once it is done",
    )


def _read_head(found: Report, value: str) -> None:
    found.head = _oid(value) if value != "-" else found.head


def _read_branch(found: Report, value: str) -> None:
    if value.startswith("refs/heads/") and takeable([value], folding=False)[0]:
        found.branch = value


def _read_ref(found: Report, value: str) -> None:
    oid, _, name = value.partition(" ")
    if len(found.refs) <= MOST:
        found.refs[name] = _oid(oid)


def _read_port(found: Report, value: str) -> None:
    if _PORT.fullmatch(value) and len(found.ports) < PORTS:
        found.ports.append(int(value, 16))


def _read_lfs(found: Report, value: str) -> None:
    # not isdigit(): "²" is a digit to that
    if re.fullmatch(r"\s*[0-9]+\s*", value):
        found.lfs = int(value.strip()[:9])


def _one_of(name: str, *words: str) -> Callable[[Report, str], None]:
    """Make a reader of a field that can be one of these words."""
    return lambda found, value: setattr(found, name, value) if value in words else None


def _list_of(texts: Callable[[Report], list[str]]) -> Callable[[Report, str], None]:
    """Make a reader that adds to a list of texts for people."""

    def read(found: Report, value: str) -> None:
        if len(texts(found)) < NOTES:
            texts(found).append(printable(value)[:200])

    return read


_READERS: dict[str, Callable[[Report, str], None]] = {
    "error": _read_error,
    "busy": _read_busy,
    "head": _read_head,
    "branch": _read_branch,
    "operation": _one_of("operation", "merge", "rebase", "cherry-pick", "revert", "bisect", "git"),
    "ref": _read_ref,
    "nested": _list_of(lambda found: found.nested),
    "note": _list_of(lambda found: found.notes),
    "port": _read_port,
    "lfs": _read_lfs,
    "missing": _one_of("missing", "project", "repository"),
}
"""What becomes of a line, by its key (scripts/report.sh)."""


def _oid(text: str) -> str:
    if not _OID.fullmatch(text):
        raise BadAnswer(
            "the sandbox reports something that is no commit id",
            hint="look into it: git daytona exec N -- git log",
        )
    return text
