"""git inside the sandbox: preparing its repository, committing what is pending, and reading what it
reports.

The sandbox is untrusted: its report is data, checked record by record, and no string of it becomes
an option or a path here.
"""

import base64
import binascii
import re
import secrets
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from git_daytona.api.cloud import Cloud, Execution
from git_daytona.base import errors, log
from git_daytona.base.secret import one_line, printable
from git_daytona.git.refs import INVENTORY, MOST, PROJECT, is_ref, places
from git_daytona.sandbox import scripts
from git_daytona.transfer import leases

PREPARE_SECONDS = 60.0
REPORT_SECONDS = 300.0
"""Limits of the scripts in the sandbox: a commit of a large tree takes its time."""
NOTES = 20
"""How many nested repositories, files, notes and refused branches of one report are listed."""
KNOWN = 500
"""How many objects that are here an inventory is told of: they are arguments of a command."""
PORTS = 1000
CANNOT_WRITE = 125
"""Exit status of scripts/guard.sh where it cannot write down what a script printed."""
OPERATIONS = ("merge", "rebase", "cherry-pick", "revert", "bisect", "conflict", "git")

_OID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PORT = re.compile(r"[0-9A-Fa-f]{4}")
_NUMBER = re.compile(r"\s*[0-9]{1,9}\s*")
_FILTER = re.compile(r"[A-Za-z0-9_-]{1,50}")
_MARK = re.compile(r"^([0-9a-f]{24})( cut short)?\n", re.MULTILINE)
"""What scripts/guard.sh prints before a command's output: its id, and how it ended."""


@dataclass
class Inventory:
    """What a sandbox holds besides what a sync brings back."""

    held: dict[str, str] = field(default_factory=dict)
    """Objects below refs/daytona/inventory/, and what holds them there; empty for a reflog."""
    ignored: list[str] = field(default_factory=list)
    """Files and folders that git ignores."""
    unread: list[str] = field(default_factory=list)
    """What cannot be read, or is more than is looked at."""
    complete: bool = False


@dataclass
class Report:
    """A sandbox's repository as it reports it; only object ids and names of refs are checked."""

    head: str | None = None
    """The commit for opencode/N: HEAD, or the branch's tip while it is rebased or bisected."""
    branch: str | None = None
    operation: str | None = None
    """One of OPERATIONS; ``git`` holds the index, ``conflict`` has no name (of a stash)."""
    refs: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    """What each of ``refs`` is called here: the same where that is possible."""
    refused: dict[str, str] = field(default_factory=dict)
    """Branches that cannot be taken, by what can be shown of their names, and their commits."""
    nested: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """Files that could not be committed, and why."""
    left_count: int = 0
    filters: list[str] = field(default_factory=list)
    """Those of the sandbox's configuration whose program is missing (gitattributes(5))."""
    ports: list[int] = field(default_factory=list)
    lfs: int = 0
    has_lfs: bool = False
    """Whether git-lfs is there, as far as it was asked for."""
    notes: list[str] = field(default_factory=list)
    inventory: Inventory = field(default_factory=Inventory)
    """What else a deletion would destroy, if that was asked for."""
    conflicts: list[str] = field(default_factory=list)
    """Files that a merge could not join."""
    missing: str | None = None
    """``project`` or ``repository`` when it is not there."""


@dataclass(frozen=True)
class CommitText:
    """What a commit that is made in a sandbox says, and by whom it is: name and address, empty for
    the sandbox's own."""

    message: str = "Changes of the OpenCode session"
    author: tuple[str, str] = ("", "")


def script(source: str, *arguments: str) -> str:
    """Make a script with its arguments one text, which sh reads whole before it runs."""
    return f"{{ set -- {shlex.join(arguments)}\n{source}\n}} </dev/null\n"


def line(source: str, *arguments: str) -> str:
    """Make the line of shell that runs a script. It is piped to sh: no argument list in the sandbox
    has its text, or pkill(1) would take our own shells for what an agent wants to end."""
    return f"printf %s {shlex.quote(script(source, *arguments))} | sh"


class Command:
    """A shell script for sh, with standard input closed, at most once: who asks again (an answer
    got lost, the sandbox had to be started) gets what became of the first run."""

    def __init__(self, source: str, *arguments: str, timeout: float) -> None:
        self._id, self._timeout = secrets.token_hex(12), timeout
        self._line = line(scripts.read("guard"), self._id, script(source, *arguments))
        self._sandbox = ""
        """Where it may have begun: a request's answer was lost, or said nothing of it."""

    def run(self, cloud: Cloud, sandbox_id: str) -> Execution:
        """Raises CutShort where it has begun, or may have in another sandbox, and did not end."""
        if self._sandbox not in ("", sandbox_id):
            raise errors.CutShort(
                "the sandbox was deleted while this ran, and a new one has been made"
            )

        def ask() -> Execution:
            try:
                return cloud.execute(sandbox_id, self._line, timeout=self._timeout)
            except (errors.ApiUnreachable, errors.BadAnswer):  # all others are refusals
                self._sandbox = sandbox_id
                raise

        result = leases.patiently(ask)
        if (found := self._mark(result.output)) is None:
            self._sandbox = sandbox_id  # its guard has not come to its end: what became of it?
            result = leases.patiently(ask)
            if (found := self._mark(result.output)) is None:
                return result
        output = result.output[found.end() :]
        if found[2]:
            raise errors.CutShort(
                "the sandbox stopped while this ran, or something in it ended it", output=output
            )
        return Execution(result.status, output)

    def _mark(self, output: str) -> re.Match[str] | None:
        return next((found for found in _MARK.finditer(output) if found[1] == self._id), None)


def in_directory(source: str, *arguments: str, timeout: float) -> Command:
    """Make a command of a script, for the project's directory (home without one)."""
    go = 'cd -- "$1" 2>/dev/null || cd || exit 125\nshift\n'
    return Command(go + source, PROJECT, *arguments, timeout=timeout)


def _reported(
    cloud: Cloud, sandbox_id: str, place: str, source: str, *arguments: str, timeout: float
) -> Report:
    """Run a script that reports on a repository. Raises SandboxCommandFailed, BadAnswer."""
    mark, source = secrets.token_hex(8), scripts.read("reset") + scripts.read("repository") + source
    words = (scripts.read("records"), source, mark, place, *arguments)
    return parse(Command(*words, timeout=timeout).run(cloud, sandbox_id), mark)


def prepare(
    cloud: Cloud, sandbox_id: str, object_format: str, how: str = "", place: str = PROJECT
) -> Report:
    """Make the sandbox's repository; report its HEAD, if it has one, and filters. ``restore`` keeps
    its HEAD until what is to be restored is; ``fresh`` is a sandbox that nobody has used: what
    repository it has came with its snapshot. Raises SandboxCommandFailed."""
    words = (scripts.read("prepare"), object_format, how)
    with log.event("sandbox.prepare", sandbox=sandbox_id):
        return _reported(cloud, sandbox_id, place, *words, timeout=PREPARE_SECONDS)


def make_project(cloud: Cloud, sandbox_id: str) -> None:
    """Make an empty project directory for a session without sync. Raises SandboxCommandFailed."""
    command = Command('mkdir -p "$1"', PROJECT, timeout=PREPARE_SECONDS)
    result = command.run(cloud, sandbox_id)
    if result.status != 0:
        raise errors.SandboxCommandFailed(
            f"cannot make {PROJECT} in the sandbox: {one_line(result.output)[:300]}",
            hint="try again, or use another snapshot",
        )


def report(
    cloud: Cloud,
    sandbox_id: str,
    commit: CommitText,
    purpose: str = "",
    *,
    known: Sequence[str] | None = None,
    place: str = PROJECT,
    submodules: Sequence[str] = (),
) -> Report:
    """Commit what is pending and report what is there, in one call. Raises what ``refs`` does.
    ``purpose`` is ``adopt``, ``new``, ``push``, ``aside`` or nothing; what they do is in
    scripts/report.sh. ``known`` asks for an inventory, too, without what these objects hold, which
    are here already. Of ``submodules``, paths, there has been a report already: what they hold is
    not named again."""
    inventory = "" if known is None else scripts.read("inventory")
    source = f"known='{' '.join((known or ())[:KNOWN])}'\n{_beside(place, submodules)}" + "".join(
        (scripts.read("ports"), scripts.read("look"), inventory, scripts.read("report"))
    )
    words = (source, commit.message, purpose, *commit.author)
    with log.event("sandbox.report", sandbox=sandbox_id) as event:
        found = leases.patiently(
            lambda: _reported(cloud, sandbox_id, place, *words, timeout=REPORT_SECONDS),
            kinds=(errors.SandboxBusy,),
        )
        event.update(head=found.head, operation=found.operation)
        if known is not None and not (found.inventory.complete or found.missing):
            raise errors.SandboxCommandFailed(
                "the sandbox did not say what it holds besides its branches",
                hint="'git daytona exec N -- git status' shows what its git says",
            )
        return found


def _beside(place: str, submodules: Sequence[str]) -> str:
    """Tell a report which repositories there are besides its own."""
    patterns = "|".join(shlex.quote(f"{path}/") for path in submodules)
    travels = f"case $1 in {patterns}) ;; *) return 1 ;; esac" if patterns else "false"
    return f"submodule={'' if place == PROJECT else 'yes'}\ntravels() {{ {travels}; }}\n"


def refs(cloud: Cloud, sandbox_id: str, place: str = PROJECT) -> Report:
    """Read the sandbox's refs as they are, in one API call. Raises what ``report`` does."""
    words = (scripts.read("refs"), str(MOST + 1))
    return _reported(cloud, sandbox_id, place, *words, timeout=PREPARE_SECONDS)


def merge(cloud: Cloud, sandbox_id: str, commit: str, message: str, place: str = PROJECT) -> Report:
    """Merge a commit that was pushed below UPDATES into what the sandbox has checked out; a merge
    with conflicts is left as it is. Raises SandboxCommandFailed."""
    words = (scripts.read("merge"), commit, message)
    with log.event("sandbox.merge", sandbox=sandbox_id, commit=commit):
        return _reported(cloud, sandbox_id, place, *words, timeout=REPORT_SECONDS)


def ports(cloud: Cloud, sandbox_id: str) -> list[int]:
    """List the TCP ports that the sandbox's own processes listen on, in one API call."""
    command = Command(scripts.read("ports") + "listening", timeout=PREPARE_SECONDS)
    words = command.run(cloud, sandbox_id).output.split()
    return [int(word, 16) for word in words if _PORT.fullmatch(word)][:PORTS]


def parse(result: Execution, mark: str) -> Report:
    """Read the records that a script said (scripts/records.sh): ``KEY VALUE``."""
    found, ended = Report(), False
    listed = {
        "conflicted": found.conflicts,
        "nested": found.nested,
        "note": found.notes,
        "ignored": found.inventory.ignored,
        "unread": found.inventory.unread,
    }
    for record in _records(result.output, mark):
        key, _, value = record.partition(" ")
        ended |= key == "end"
        if key in listed and len(listed[key]) < NOTES:
            listed[key].append(_shown(value))
        _read(found, key, value)
    _forget_earlier_inventory(found)
    # What is only there comes first, should there be too many.
    ordered = sorted(found.refs, key=lambda name: not name.startswith(INVENTORY))
    found.places = places(ordered, folding=sys.platform == "darwin")
    refused = [name for name in found.refs if name not in found.places]
    found.refused = {printable(name)[:100]: found.refs.pop(name) for name in refused}
    if ended or found.missing is not None:
        return found
    if result.status == CANNOT_WRITE:  # what it said got lost
        raise errors.SandboxCommandFailed(
            "nothing can be written in the sandbox: its disk is full",
            hint="make room there: git daytona exec N -- df -h; its work is still in it",
            details=printable(result.output[-2000:]),
        )
    raise errors.SandboxCommandFailed(
        f"the sandbox's git did not finish (exit status {result.status})",
        hint="'git daytona exec N -- git status' shows what it says",
        details=printable(result.output[-2000:]),
    )


def _records(output: str, mark: str) -> list[str]:
    """Take the records out of the line after the mark, and ignore all else: what git or a shell
    profile printed. Bytes that are not UTF-8 survive as surrogates."""
    lines = [line for line in output.split("\n") if line.startswith(f"{mark} ")]
    try:
        data = base64.b64decode("".join(lines[:1])[len(mark) + 1 :].strip(), validate=True)
    except (binascii.Error, ValueError):  # cut short, or it is no base64
        return []
    texts = data.decode("utf-8", "surrogateescape").split("\0")
    return [text.removeprefix("\n") for text in texts]


def _forget_earlier_inventory(found: Report) -> None:
    """Leave out the refs of an inventory before this one: what it found is here."""
    held = found.inventory.held if found.inventory.complete else {}
    found.refs = {
        ref: oid for ref, oid in found.refs.items() if not ref.startswith(INVENTORY) or oid in held
    }


def _shown(text: str, length: int = 200) -> str:
    """Write a sandbox's word on one line."""
    return printable(text).replace("\n", "\\n").replace("\t", " ")[:length]


def _read(found: Report, key: str, value: str) -> None:
    if key in ("error", "refused", "moved", "busy"):
        raise _failed(key, value)
    match key:
        case "head" if value != "-":
            found.head = _oid(value)
        case "branch" if value.startswith("refs/heads/") and is_ref(value):
            found.branch = value
        case "operation" if value in OPERATIONS:
            found.operation = value
        case "ref" if len(found.refs) <= 2 * MOST:  # branches, and an inventory
            oid, _, name = value.partition(" ")
            found.refs[name] = _oid(oid)
        case "left" if len(found.left) < NOTES:
            reason, _, name = value.partition("\t")
            found.left.append(f"{_shown(name)} ({_shown(reason.strip())})")
        case "left-count" if _NUMBER.fullmatch(value):
            found.left_count = int(value)
        case "filter" if _FILTER.fullmatch(value) and len(found.filters) < NOTES:
            found.filters.append(value)
        case "port" if _PORT.fullmatch(value) and len(found.ports) < PORTS:
            found.ports.append(int(value, 16))
        case "lfs" if _NUMBER.fullmatch(value):
            found.lfs = int(value)
        case "git-lfs":
            found.has_lfs = True
        case "missing" if value in ("project", "repository"):
            found.missing = value
        case "held" if len(found.inventory.held) <= MOST:
            oid, _, name = value.partition(" ")
            found.inventory.held[_oid(oid)] = _shown(name)
        case "inventory":
            found.inventory.complete = True


def _failed(key: str, value: str) -> errors.SandboxCommandFailed:
    text = _shown(value, 500)
    match key:
        case "busy":
            return errors.SandboxBusy(
                "the agent's git changed the repository while it was being synced",
                hint="it is tried again; or sync once it is done",
            )
        case "refused":
            return errors.SandboxCommandFailed(
                f"the sandbox's git refuses its repository: {text}",
                hint="mend it there: git daytona exec N -- git status; or remove its .git, and the"
                " next sync makes it again from what is here",
            )
        case "moved":
            return errors.SandboxCommandFailed(
                f"the project was moved in the sandbox, to {text}",
                hint=f"move it back: git daytona exec N -- mv {shlex.quote(text)} {PROJECT}",
            )
    return errors.SandboxCommandFailed(
        text, hint="'git daytona exec N -- COMMAND' lets you look into the sandbox"
    )


def _oid(text: str) -> str:
    if not _OID.fullmatch(text):
        hint = "look into it: git daytona exec N -- git log"
        raise errors.BadAnswer("the sandbox reported an invalid commit id", hint=hint)
    return text
