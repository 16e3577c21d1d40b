"""What a repository's devcontainer.json asks for, as the commit that a sandbox begins with has it.

https://containers.dev/implementors/json_reference/ is the specification.
"""

import hashlib
import json
import os
import posixpath
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from git_daytona.base.errors import BadSetting
from git_daytona.base.secret import Secret, printable
from git_daytona.git.refs import PROJECT
from git_daytona.git.repository import Repository
from git_daytona.settings.order import OWN_OF_SANDBOX

FILES = (".devcontainer/devcontainer.json", ".devcontainer.json")
"""Where it may be; the first one counts."""
FILE_BYTES = 64 * 1024
MOST = 100
"""How many commands, variables or ports it may have."""
ONCE = ("onCreateCommand", "updateContentCommand", "postCreateCommand")
"""Commands that run once in a sandbox, in this order."""
AT_START = "postStartCommand"
VARIABLES = ("containerEnv", "remoteEnv")
UNSUPPORTED = frozenset(
    " ".join(
        (
            "image build dockerFile dockerComposeFile features mounts workspaceMount",
            "workspaceFolder runArgs initializeCommand postAttachCommand privileged capAdd",
            "securityOpt containerUser remoteUser",
        )
    ).split()
)
"""What would make another sandbox or act on this machine; the rest is for editors."""
OWN = "DAYTONA_"
"""How the names of our own variables begin, the API key's among them: they go nowhere."""
_PLAIN = frozenset(("HOME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "USER"))
"""Variables whose values are no secrets, but words of many messages."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(
    r"\$\{(?:(?P<kind>localEnv|env|containerEnv):(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"(?::(?P<default>[^}]*))?|(?P<folder>(?:container|local)WorkspaceFolder)(?P<base>Basename)?)\}"
)


@dataclass(frozen=True)
class Command:
    """A command as it is written: of its stage, under its name in an object; a line of shell, or a
    program with its arguments. Those of a stage run at the same time."""

    stage: str
    name: str
    words: str | tuple[str, ...]

    def line(self) -> str:
        """The line of shell that it is, with the values of this machine's variables in it."""
        if isinstance(self.words, str):
            return _resolved(self.words, lambda text: text)
        return " ".join(_word(each) for each in self.words)

    def __str__(self) -> str:
        line = self.words if isinstance(self.words, str) else shlex.join(self.words)
        return f"{self.stage}{self.name and f' ({self.name})'}: {line}"


@dataclass(frozen=True)
class Plan:
    """What a file asks for: ``wanted`` is what of it would run, or say how."""

    path: str
    wanted: Mapping[str, Any]
    ports: tuple[int, ...] = ()
    unsupported: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The hash of what would run. Whoever consents to it does so to all that is made of it."""
        text = json.dumps(self.wanted, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def commands(self) -> tuple[Command, ...]:
        stages = [stage for stage in (*ONCE, AT_START) if stage in self.wanted]
        return tuple(each for stage in stages for each in _commands(stage, self.wanted[stage]))

    @property
    def local_names(self) -> tuple[str, ...]:
        """The variables of this machine whose values would go along."""
        found = (
            match["name"]
            for text in _texts(self.wanted)
            for match in _REFERENCE.finditer(text)
            if match["kind"] in ("localEnv", "env") and not match["name"].startswith(OWN)
        )
        return tuple(dict.fromkeys(found))

    def held(self) -> tuple[Secret, ...]:
        """Hold those values, so that redact() finds them. Raises BadSetting for an odd one."""
        values = {name: os.environ.get(name, "") for name in self.local_names}
        if odd := [name for name, value in values.items() if _is_odd(value)]:
            raise BadSetting(
                f"the value of the variable {odd[0]} is no text",
                hint=f"'{self.path}' asks for it: set it to a text in UTF-8",
            )
        return tuple(Secret(value) for name, value in values.items() if name not in _PLAIN)

    def environment(self, but: Collection[str] = ()) -> str:
        """The variables, ``but`` the user's own, as a script that whatever we run there reads."""
        return "".join(
            f"unset {name}\n" if value is None else f"export {name}={_word(value)}\n"
            for _, name, value in self._variables()
            if name not in but
        )

    def _variables(self) -> Iterator[tuple[str, str, str | None]]:
        for kind in VARIABLES:
            for name, value in self.wanted.get(kind, {}).items():
                yield kind, name, value

    def container_env(self) -> dict[str, str]:
        """The variables that a sandbox can be created with: those that need nothing of it, and
        whose values cannot keep our own scripts from working."""
        variables = self.wanted.get("containerEnv", {}).items()
        return {
            name: _resolved(value, str)
            for name, value in variables
            if value and name not in OWN_OF_SANDBOX and "${containerEnv:" not in value
        }

    def described(self) -> Iterator[str]:
        """Say what would run, for people: control characters are visible, line breaks are kept."""
        yield from map(_shown, map(str, self.commands))
        for kind, name, value in self._variables():
            yield _shown(f"{kind}: {name} (unset)" if value is None else f"{kind}: {name}={value}")
        if self.local_names:
            yield f"takes from your environment: {', '.join(self.local_names)}"
        if self.ports:
            yield f"forwardPorts: {', '.join(map(str, self.ports))}"
        if self.unsupported:
            yield f"not supported, and left out: {', '.join(self.unsupported)}"


def read(repository: Repository, commit: str) -> Plan | None:
    """Read the plan of a commit; None for none. No link is followed there. Raises BadSetting."""
    listing = repository.git("ls-tree", "-z", "--full-tree", "-l", commit, "--", *FILES)
    entries = {}
    for entry in filter(None, listing.stdout.decode("utf-8", "replace").split("\0")):
        fields, _, name = entry.partition("\t")
        entries[name] = fields.split()
    path = next((each for each in FILES if each in entries), None)
    if path is None:
        return None
    mode, _, oid, size = entries[path]
    if not mode.startswith("100") or int(size) > FILE_BYTES:
        raise _malformed(path, f"it is no file of at most {FILE_BYTES >> 10} KiB")
    text = repository.git("cat-file", "blob", oid).stdout
    return parse(path, text)


def parse(path: str, data: bytes) -> Plan:
    """Read a file's content. Raises BadSetting."""
    import json5  # few sessions have one

    try:
        document = json5.loads(data.decode())
        if not isinstance(document, dict):
            raise ValueError("it is not an object")
        wanted = {
            key: check(document[key])
            for key, check in _CHECKS.items()
            if document.get(key) not in (None, {}, [], "")
        }
        ports, others = _ports(document.get("forwardPorts", []))
    except (ValueError, RecursionError) as problem:
        raise _malformed(path, re.sub(r"^<string>:(\d+)", r"line \1:", str(problem))) from None
    unsupported = sorted(UNSUPPORTED & document.keys())
    return Plan(path, wanted, ports, (*unsupported, *others))


def _shown(text: str) -> str:
    return printable(text).replace("\n", "\n      | ")


def _malformed(path: str, why: str) -> BadSetting:
    return BadSetting(
        f"'{path}' cannot be read: {printable(why)[:200]}",
        hint="mend and commit it; the session works without what it asks for",
    )


def _is_odd(text: str) -> bool:
    return bool(re.search("[\0\ud800-\udfff]", text))


def _text(value: object) -> str:
    if not isinstance(value, str) or _is_odd(value):
        raise ValueError("a text is expected")
    return value


def _command(value: object) -> str | list[str] | dict[str, str | list[str]]:
    """A command: a line of shell, a program with its arguments, or several by name."""
    if isinstance(value, dict):
        if len(value) > MOST:
            raise ValueError(f"it has more than {MOST} commands")
        return {_text(name): _simple(each) for name, each in value.items()}
    return _simple(value)


def _simple(value: object) -> str | list[str]:
    if isinstance(value, list):
        return [_text(each) for each in value]
    return _text(value)


def _variables(value: object) -> dict[str, str | None]:
    if not isinstance(value, dict) or len(value) > MOST:
        raise ValueError(f"an object of at most {MOST} variables is expected")
    for name in value:
        if not _NAME.fullmatch(name):
            raise ValueError(f"'{name[:80]}' is no variable's name")
    return {name: None if each is None else _text(each) for name, each in value.items()}


_CHECKS: Mapping[str, Callable[[object], Any]] = {
    **dict.fromkeys((*ONCE, AT_START), _command),
    **dict.fromkeys(VARIABLES, _variables),
}


def _ports(value: object) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The ports, and what of them is not of the sandbox itself (``db:5432``)."""
    if not isinstance(value, list) or len(value) > MOST:
        raise ValueError(f"forwardPorts: a list of at most {MOST} ports is expected")
    ports, others = [], []
    for each in value:
        found = re.fullmatch(r"(?:localhost:|127\.0\.0\.1:)?([0-9]{1,5})", str(each))
        if found and 0 < int(found[1]) < 65536:
            ports.append(int(found[1]))
        else:
            others.append(f"port {printable(str(each))[:80]}")
    return tuple(dict.fromkeys(ports)), tuple(others)


def _commands(stage: str, value: Any) -> Iterator[Command]:
    for name, each in (value if isinstance(value, dict) else {"": value}).items():
        yield Command(stage, name, tuple(each) if isinstance(each, list) else each)


def _texts(value: object) -> Iterator[str]:
    """All texts in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _resolved(
    text: str, literal: Callable[[str], str], variable: Callable[[str], str] = lambda name: name
) -> str:
    """Put values in the place of references; ``variable`` writes a sandbox's own for its shell."""
    parts, at = [], 0
    for found in _REFERENCE.finditer(text):
        parts.append(literal(text[at : found.start()]))
        at = found.end()
        if found["folder"]:
            parts.append(literal(posixpath.basename(PROJECT) if found["base"] else PROJECT))
        elif found["kind"] == "containerEnv":
            instead = re.sub(r'([\\"$`])', r"\\\1", found["default"] or "")
            name = f"{found['name']}:-{instead}" if instead else found["name"]
            parts.append(variable(f"${{{name}}}"))
        else:
            own = found["name"].startswith(OWN)
            given = "" if own else os.environ.get(found["name"], "")
            parts.append(literal(given or found["default"] or ""))
    return "".join(parts) + literal(text[at:])


def _word(text: str) -> str:
    """Write a text as one word of shell."""

    def quoted(part: str) -> str:
        return shlex.quote(part) if part else ""

    return _resolved(text, quoted, lambda name: f'"{name}"') or "''"
