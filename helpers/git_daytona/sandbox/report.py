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
from functools import cache
from pathlib import Path

from git_daytona.api.cloud import Cloud, Execution
from git_daytona.base import log
from git_daytona.base.errors import BadAnswer, SandboxBusy, SandboxCommandFailed
from git_daytona.base.secret import printable
from git_daytona.git.refs import MOST, PROJECT, takeable
from git_daytona.transfer import leases

PREPARE_SECONDS = 60.0
REPORT_SECONDS = 300.0
"""Limits of the scripts in the sandbox: a commit of a large tree takes its time."""

NOTES = 20
"""How many nested repositories, notes and refused branches of one report are listed."""
PORTS = 1000

_OID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass
class Report:
    """What the sandbox says of its repository. Object ids and ref names are well-formed; everything
    else is text of its making."""

    head: str | None = None
    """The commit that opencode/N shall be at: HEAD, or the branch's tip while it is being rebased
    or bisected."""
    branch: str | None = None
    operation: str | None = None
    """merge, rebase, cherry-pick, revert, bisect, or git: a command that holds the index."""
    refs: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    """Branches that cannot be taken, by what can be shown of their names."""
    nested: list[str] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    lfs: int = 0
    notes: list[str] = field(default_factory=list)
    committed: str | None = None
    missing: str | None = None
    """``project`` or ``repository`` when it is not there any more."""


@cache
def script(name: str) -> str:
    """A script of the scripts folder."""
    return (Path(__file__).parent / "scripts" / f"{name}.sh").read_text()


def run_once(
    cloud: Cloud, sandbox_id: str, source: str, *arguments: str, timeout: float
) -> Execution:
    """Run a shell script in the sandbox under ``sh -c``, with standard input closed, at most once
    however often the request arrives.

    So it is safe to ask again when the answer got lost: that gives the first run's output.
    """
    words = ("sh", "-c", script("guard"), "sh", secrets.token_hex(12), source, *arguments)
    command = shlex.join(words) + " </dev/null"
    return leases.patiently(lambda: cloud.execute(sandbox_id, command, timeout=timeout))


def execute(
    cloud: Cloud, sandbox_id: str, command: str, *, timeout: float, directory: str = PROJECT
) -> Execution:
    """Run a person's or an agent's shell command in the project's directory (or the home directory
    where there is none)."""
    source = 'cd "$1" 2>/dev/null || cd || exit 125\nexec sh -c "$2"'
    with log.event("sandbox.exec", sandbox=sandbox_id) as event:
        result = run_once(cloud, sandbox_id, source, directory, command, timeout=timeout)
        event["status"] = result.status
    return result


def prepare(cloud: Cloud, sandbox_id: str, object_format: str) -> str | None:
    """Make the sandbox's repository; returns its HEAD if it has one already. Raises
    SandboxCommandFailed."""
    with log.event("sandbox.prepare", sandbox=sandbox_id):
        mark = secrets.token_hex(8)
        result = run_once(
            cloud,
            sandbox_id,
            script("prepare"),
            PROJECT,
            mark,
            object_format,
            timeout=PREPARE_SECONDS,
        )
        return parse(result, mark).head


def make_project(cloud: Cloud, sandbox_id: str) -> None:
    """Make an empty project directory, for a session that has no repository to sync with. Raises
    SandboxCommandFailed."""
    result = run_once(cloud, sandbox_id, 'mkdir -p "$1"', PROJECT, timeout=PREPARE_SECONDS)
    if result.status != 0:
        raise SandboxCommandFailed(
            f"cannot make {PROJECT} in the sandbox: {printable(result.output)[:300]}",
            hint="try again, or use another snapshot",
        )


def report(cloud: Cloud, sandbox_id: str, message: str, *, adopt: bool = False) -> Report:
    """Commit what is pending in the sandbox and say what is there. One API call. Raises
    SandboxCommandFailed, BadAnswer."""
    with log.event("sandbox.report", sandbox=sandbox_id) as event:
        mark = secrets.token_hex(8)
        arguments = (PROJECT, mark, message, *(["adopt"] if adopt else []))

        def attempt() -> Report:
            source = script("ports") + script("report")
            return parse(
                run_once(cloud, sandbox_id, source, *arguments, timeout=REPORT_SECONDS), mark
            )

        found = leases.patiently(attempt, kinds=(SandboxBusy,))
        event.update(head=found.head, operation=found.operation)
        return found


def refs(cloud: Cloud, sandbox_id: str) -> Report:
    """The sandbox's refs as they are, nothing committed. One API call. Raises SandboxCommandFailed,
    BadAnswer."""
    mark = secrets.token_hex(8)
    source = (
        'cd "$1" && git -c "safe.directory=*" for-each-ref --count="$3" --format="$2 ref %(objectname) %(refname)" refs/heads refs/daytona'
        ' && echo "$2 end ok"'
    )
    return parse(
        run_once(cloud, sandbox_id, source, PROJECT, mark, str(MOST + 1), timeout=PREPARE_SECONDS),
        mark,
    )


def ports(cloud: Cloud, sandbox_id: str) -> list[int]:
    """The TCP ports that the sandbox's own processes listen on. One API call."""
    result = run_once(cloud, sandbox_id, script("ports") + "listening", timeout=PREPARE_SECONDS)
    return [
        int(line, 16) for line in result.output.split() if re.fullmatch(r"[0-9A-Fa-f]{4}", line)
    ][:PORTS]


def parse(result: Execution, mark: str) -> Report:
    """Read ``MARK key value`` lines; everything else in the output is ignored (what git printed,
    what a shell profile says)."""
    found = Report()
    ended = False
    for line in result.output.splitlines():
        if not line.startswith(mark + " "):
            continue
        key, _, value = line[len(mark) + 1 :].partition(" ")
        if key == "error":
            raise SandboxCommandFailed(
                printable(value)[:500],
                hint="'git daytona exec N -- COMMAND' lets you look into the sandbox",
            )
        if key == "busy":
            raise SandboxBusy(
                "the agent's git changed the repository while it was being synced",
                hint="it is tried again; or sync once it is done",
            )
        if key in ("head", "committed") and value != "-":
            setattr(found, key, _oid(value))
        elif (
            key == "branch"
            and value.startswith("refs/heads/")
            and takeable([value], folding=False)[0]
        ):
            found.branch = value
        elif key == "operation" and value in (
            "merge",
            "rebase",
            "cherry-pick",
            "revert",
            "bisect",
            "git",
        ):
            found.operation = value
        elif key == "ref":
            oid, _, name = value.partition(" ")
            if len(found.refs) <= MOST:
                found.refs[name] = _oid(oid)
        elif key == "nested" and len(found.nested) < NOTES:
            found.nested.append(printable(value)[:200])
        elif key == "note" and len(found.notes) < NOTES:
            found.notes.append(printable(value)[:200])
        elif key == "port" and re.fullmatch(r"[0-9A-Fa-f]{4}", value) and len(found.ports) < PORTS:
            found.ports.append(int(value, 16))
        # not isdigit(): "²" is a digit to that
        elif key == "lfs" and re.fullmatch(r"\s*[0-9]+\s*", value):
            found.lfs = int(value.strip()[:9])
        elif key == "missing" and value in ("project", "repository"):
            found.missing = value
        elif key == "end":
            ended = True
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


def _oid(text: str) -> str:
    if not _OID.fullmatch(text):
        raise BadAnswer(
            "the sandbox reports something that is no commit id",
            hint="look into it: git daytona exec N -- git log",
        )
    return text
