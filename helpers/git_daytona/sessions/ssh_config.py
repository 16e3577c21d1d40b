"""Entries for sandboxes in ~/.ssh/config: what a program gets that reads that and knows nothing of
us. A text in, a text out.

The block stands first, because of several values ssh takes the first (ssh_config(5)), and ends in
``Host *``, so that what stood first before is for all hosts again.
"""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from git_daytona import ssh
from git_daytona.base.errors import BadSetting

PREFIX = "sandbox-"
BEGIN = b"# >>> git-daytona >>>"
END = b"# <<< git-daytona <<<"
WHOLE = b"# nothing else was in this file"
"""In the block of a file that was made for it."""

# The host is ssh's to put into a shell's command: in quotes, and none that has one in it, which a
# hostile URL may name (CVE-2023-51385).
_DIRECTIVES = """\
Host {prefix}* "!*'*"
    HostName %h
    User daytona
    ProxyCommand {command} '%h'
    ProxyUseFdpass no
    HostKeyAlias {alias}
    UserKnownHostsFile {known_hosts}
    GlobalKnownHostsFile /dev/null
    KnownHostsCommand none
    StrictHostKeyChecking yes
    UpdateHostKeys no
    CheckHostIP no
    VerifyHostKeyDNS no
    CanonicalizeHostname no
    PreferredAuthentications none
    IdentityAgent none
    IdentitiesOnly yes
    ForwardAgent no
    ForwardX11 no
    Tunnel no
    GatewayPorts no
    PermitLocalCommand no
    RemoteCommand none
    ControlMaster no
    ControlPath none
"""
# Two repositories have a sandbox-1 each: hence no shared connection.


def directives(known_hosts: Path, alias: str) -> str:
    """Write the entries. Raises BadSetting for a path that cannot be in them."""
    # -P keeps the working directory out of it, -E what PYTHON* say
    start = (sys.executable, "-EPB", "-X", "utf8", "-m", "git_daytona", "git-daytona", "ssh-proxy")
    try:
        known = ssh.quoted(str(known_hosts))
    except ssh.Refusal as problem:
        raise BadSetting(
            f"'{known_hosts}' cannot be named in ssh's configuration",
            hint="point XDG_STATE_HOME to a plainer path",
        ) from problem
    return _DIRECTIVES.format(
        prefix=PREFIX, command=shlex.join(start).replace("%", "%%"), alias=alias, known_hosts=known
    )


def installed(before: bytes | None, entries: str) -> bytes:
    """Put the entries in front of a configuration, in place of earlier ones. Raises BadSetting."""
    rest, whole = _without(before or b"")
    newline = b"\r\n" if rest.partition(b"\n")[0].endswith(b"\r") else b"\n"
    lines = [BEGIN, *([WHOLE] if before is None or whole else []), *entries.encode().splitlines()]
    return newline.join((*lines, b"Host *", END, rest))


def uninstalled(before: bytes) -> bytes | None:
    """Take the entries out; None where the file was made for them. Raises BadSetting."""
    rest, whole = _without(before)
    return None if whole and not rest.strip() else rest


def is_in(content: bytes) -> bool:
    """Whether our entries are in a configuration."""
    return _without(content)[0] != content


def _without(content: bytes) -> tuple[bytes, bool]:
    """A configuration without our entries; whether it was made for them."""
    lines = content.splitlines(keepends=True)
    marks = [at for at, line in enumerate(lines) if line.strip() in (BEGIN, END)]
    if not marks:
        return content, False
    if [lines[at].strip() for at in marks] != [BEGIN, END]:
        raise BadSetting(
            "the marks of git-daytona's entries in ssh's configuration are not one beginning and"
            " one end",
            hint="remove those lines, and what is between them, by hand",
        )
    inside = {line.strip() for line in lines[marks[0] : marks[1]]}
    return b"".join(lines[: marks[0]] + lines[marks[1] + 1 :]), WHOLE in inside


def overruled(wanted: str, shown: str) -> list[str]:
    """Name the directives that do not count, by ``ssh -G`` of our entries and of the whole."""
    ours, all_of_it = _shown(wanted), _shown(shown)
    names = {line.split()[0].lower() for line in _DIRECTIVES.splitlines()} - {"host"}
    return sorted(name for name in names if ours.get(name) != all_of_it.get(name))


def _shown(text: str) -> Mapping[str, str]:
    return dict(line.partition(" ")[::2] for line in text.splitlines())
