"""``daytona-ssh SANDBOX …``: ssh's arguments, of people and of programs that start an ssh. (Every
call begins in ssh.py, which becomes this one for a sandbox's name.)"""

import os
import re
from dataclasses import dataclass

import click

from git_daytona import ssh
from git_daytona.base import messages
from git_daytona.base.errors import UsageError
from git_daytona.cli import common
from git_daytona.sessions.connect import Wish, connect
from git_daytona.sessions.remote import destination

LOOPBACK = "127.0.0.1"

# The last four leave the connection as it is: no agent, no GSSAPI, no X11, protocol 2.
_WITHOUT_VALUE = "46nNstTakx2"
_LETTERS = {"q": "LogLevel=quiet", "C": "Compression=yes"}

_NUMBER, _SWITCH = "[0-9]{1,6}", "yes|no"
_PASSED = {
    "connecttimeout": _NUMBER,
    "serveraliveinterval": _NUMBER,
    "serveralivecountmax": _NUMBER,
    "connectionattempts": _NUMBER,
    "tcpkeepalive": _SWITCH,
    "compression": _SWITCH,
    "exitonforwardfailure": _SWITCH,
    "clearallforwardings": _SWITCH,
    "addressfamily": "any|inet6?",
    "ipqos": "[a-z0-9]+([ ,][a-z0-9]+)?",
    "loglevel": "quiet|fatal|error",
}
"""Names and values of ``-o`` that are passed on: the line's quality."""
_OFF = (
    *("permitlocalcommand", "forwardagent", "forwardx11", "forwardx11trusted", "tunnel"),
    *("controlmaster", "controlpersist", "gatewayports", "updatehostkeys"),
    *("passwordauthentication", "kbdinteractiveauthentication", "pubkeyauthentication"),
)
_HOLDS = {
    "batchmode": _SWITCH,  # nothing is asked anyway
    "sendenv": "git_protocol",
    "protocol": "2",
    "remotecommand": "none",
    "requesttty": "no|auto",
    "controlpath": "none",
    "stricthostkeychecking": "yes",
    **dict.fromkeys(_OFF, "no"),
}
"""Names and values of ``-o`` that say what holds anyway; programs that start an ssh pass some."""

_REFUSED = {
    "v": "it would print the token; see 'git daytona logs'",
    "g": f"ports here are those of {LOOPBACK}; leave it out",
    "R": "Daytona's gateway forwards no port of the sandbox to here",
    "A": "Daytona's gateway brings no agent there",
    "l": "who logs in is the token's business; leave the user out",
    "p": "a sandbox has no port of its own; leave it out",
}
_OURS = "how a sandbox is reached and trusted is not for options; see daytona-ssh(1)"

# [BIND:]PORT and, for -L, :HOST:PORT or a socket's path. What ssh would expand is in no value: %r,
# the user, is the token.
_PORT = re.compile(
    rf"(?:(?:localhost|{re.escape(LOOPBACK)}|(?P<six>\[::1\])):)?(?P<port>[0-9]{{1,5}})"
    r"(?P<rest>:(/.+|(\[[0-9A-Fa-f:.]+\]|[^:/\[\]]+):[0-9]{1,5}))?"
)
_PLAIN = re.compile(r"[^%$\s\x00-\x1f]+")


def _refuse(what: str, hint: str = _OURS) -> UsageError:
    return UsageError(f"daytona-ssh does not take '{what}' for a sandbox", hint=hint)


def on_loopback(spec: str, letter: str) -> tuple[str, str]:
    """Write the value of ``-L`` or ``-D`` with its end here on loopback. Raises UsageError."""
    if _PLAIN.fullmatch(spec) and letter == "L" and re.match("/[^:]*:.", spec):
        return f"-{letter}", spec
    found = _PORT.fullmatch(spec) if _PLAIN.fullmatch(spec) else None
    if found is None or (letter == "L") != bool(found["rest"]):
        form = f"[{LOOPBACK}:]PORT{':HOST:PORT' if letter == 'L' else ''}"
        raise _refuse(f"-{letter} {spec}", f"-{letter} {form}")
    return f"-{letter}", f"{found['six'] or LOOPBACK}:{found['port']}{found['rest'] or ''}"


@dataclass(frozen=True)
class Arguments:
    """What ssh's arguments ask for: the sandbox, what of it, and whether with our input."""

    name: str
    wish: Wish
    without_input: bool


def parse(words: list[str]) -> Arguments:
    """Check ssh's arguments. Raises UsageError."""
    options, rest = ssh.options_and_operands(words)
    name, *rest = rest[rest[:1] == ["--"] :] or [""]
    # as ssh does; sshfs writes: HOST -s sftp
    behind, rest = ssh.options_and_operands(rest)
    options += behind
    line = " ".join(rest[rest[:1] == ["--"] :])
    if "@" in name:
        raise _refuse(f"{name.rpartition('@')[0]}@", _REFUSED["l"])
    more = _more(options)
    letters = {letter for letter, _ in options}
    session = _session(options, line)
    family = [f"-{letter}" for letter, _ in options if letter in "46"][-1:]
    terminal = ["-t"] if _wants_terminal(letters) and not (line or session) else []
    return Arguments(name, Wish(line, session, (*family, *terminal), more), "n" in letters)


def _wants_terminal(letters: set[str]) -> bool:
    return "T" not in letters and ("t" in letters or os.isatty(0))


def _session(options: list[tuple[str, str]], command: str) -> tuple[str, ...]:
    asked = dict(options)
    for letter in "WNs":
        if letter in asked:
            if (letter == "s") != bool(command):
                raise _refuse(f"-{letter}", "-s takes a subsystem's name, -N and -W no command")
            return (f"-{letter}", asked[letter]) if letter == "W" else (f"-{letter}",)
    if command and "t" in asked:
        messages.note("hint: the gateway gives a command no terminal; try: git daytona shell N")
    return ()


def _more(options: list[tuple[str, str]]) -> tuple[str, ...]:
    """The options that ssh gets of these. Raises UsageError for one that it must not get."""
    more: list[str] = []
    settings: dict[str, str] = {}
    for letter, value in options:
        if letter in _LETTERS or letter == "o":
            key, setting = _setting(_LETTERS.get(letter, value))
            settings.setdefault(key, setting)
        else:
            more += _words(letter, value)
    if "GatewayPorts=no" in more:
        settings.setdefault("clearallforwardings", "no")
    passed = (f"{key}={value}" for key, value in settings.items() if key in _PASSED)
    return (*more, *(word for each in passed for word in ("-o", each)))


def _words(letter: str, value: str) -> tuple[str, ...]:
    if letter in "LD":
        return *on_loopback(value, letter), "-o", "GatewayPorts=no"
    place = letter == "W" and re.fullmatch(r"[A-Za-z0-9_.:\[\]-]+", value)  # see _session
    if not place and letter not in _WITHOUT_VALUE:
        raise _refuse(f"-{letter}", _REFUSED.get(letter, _OURS))
    return ()


def _setting(text: str) -> tuple[str, str]:
    """Take ``-o Key=value`` or ``-o "Key value"`` apart."""
    key, _, value = re.sub(r"\s*=\s*|\s+", "=", text.strip(), count=1).lower().partition("=")
    rule = {**_PASSED, **_HOLDS}.get(key)
    if rule is None or not re.fullmatch(rule, value):
        raise _refuse(f"-o {text}")
    return key, value


class _AsSsh(click.Command):
    """A command whose words are all ssh's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params["words"] = list(args)
        return []


@click.command("daytona-ssh", cls=_AsSsh)
def cli(words: list[str]) -> int:
    """Connect with a sandbox as ssh does."""
    given = parse(words)
    if given.without_input:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    name = common.go_to(given.name)
    with common.coordinator(anywhere=True) as coordinator:
        found = destination(coordinator, name)
        if found.session is not None:  # what is done there is not here yet
            coordinator.state.touch(found.session.id)
        try:
            options = {"GIT_PROTOCOL": os.environ.get("GIT_PROTOCOL", "")}
            return connect(coordinator, found.sandbox_id, given.wish, options=options)
        finally:
            if found.session is not None:
                coordinator.state.touch(found.session.id)
