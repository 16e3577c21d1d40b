"""The host keys that a gateway presents right now, and what ssh writes about one that it refuses.
They prove nothing about who presents them.

Three ways to look, none of which authenticates: ``preferred_key`` quickly, before a token is minted
(ssh-keyscan takes a hundredth of a second where loading asyncssh takes a sixth of one);
``user_ssh_stderr`` by the user's own ssh, where only that can judge; ``all_keys`` for a report.
"""

import getpass
import logging
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from git_daytona import ssh
from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import ApiUnreachable, GitDaytonaError
from git_daytona.base.run import run
from git_daytona.base.secret import key_out_of_environment, printable
from git_daytona.git import environment
from git_daytona.trust import known_hosts
from git_daytona.trust.host_keys import HostKey, parse_blob
from git_daytona.trust.known_hosts import PREFERRED, Line

KEYSCAN_SECONDS = 3
CONNECT_SECONDS = 40.0
PROBE_SECONDS = 20.0
_START = (
    "import sys; sys.path.append(sys.argv.pop(1));"
    " from git_daytona.ssh import main; sys.exit(main(sys.argv[1:]))"
)
WRAPPER = (
    *(sys.executable, "-I", "-S", "-X", "utf8", "-c", _START),
    str(Path(ssh.__file__).parents[1]),
)
"""``daytona-ssh``: the interpreter that runs us and the wrapper's own file, imported, so that it is
compiled once; what PATH holds, or who installed what where, does not matter."""
NO_TOKEN = "there-is-no-token-yet"  # noqa: S105
"""The user name of a connection without a token; no token of Daytona's looks like it."""
_FAMILY = {"ssh-ed25519": "ed25519", "ssh-rsa": "rsa"}  # ssh-keyscan's names; the rest is "ecdsa"

# Lines of ssh 9.2 at LogLevel ERROR (sshconnect.c, sshconnect2.c, kex.c), which has no translations
_STRICT = "and you have requested strict checking"
_NAMED = re.compile(
    rf"^(?:No \S+ host key is known for (\S+) {_STRICT}"
    rf"|(?:\S+ host|Host) key for (\S+) (?:has changed|was revoked) {_STRICT}"
    r"|The \S+ host key for (\S+) is marked as revoked)",
    re.MULTILINE,
)
_NO_TYPE = "no matching host key type found"
_FAILED = re.compile(
    rf"^(?:Host key verification failed|Host key \S+ \S+ revoked by file|.*{_NO_TYPE})",
    re.MULTILINE,
)
_FINGERPRINT = re.compile(r"key sent by the remote host is\s+(SHA256:[A-Za-z0-9+/]{43})")


class GatewayUnreachable(ApiUnreachable):
    """No connection to the gateway, or none that came to its host key."""

    is_cut = False
    """Whether nothing answers at its port, or something refuses or cuts the connection."""


@dataclass(frozen=True)
class Complaint:
    """What ssh says of a key: the presented fingerprint, if named; whether the key is revoked;
    whether none is of a type that it accepts; the host if not the gateway (a jump host)."""

    fingerprint: str | None
    revoked: bool = False
    no_type: bool = False
    other_host: str | None = None


def complaint(stderr: str, endpoint: Endpoint) -> Complaint | None:
    """Read ssh's stderr; None when no host key was refused."""
    text = stderr.replace("\r", "")
    if not _FAILED.search(text):
        return None
    fingerprint = _FINGERPRINT.search(text)
    named = {name for match in _NAMED.finditer(text) for name in match.groups() if name}
    is_other = named and named.isdisjoint((endpoint.known_hosts_name, endpoint.host))
    return Complaint(
        fingerprint=fingerprint[1] if fingerprint else None,
        revoked=bool(re.search("is marked as revoked|revoked by file", text)),
        no_type=_NO_TYPE in text,
        other_host=printable(min(named)) if is_other else None,
    )


def preferred_key(endpoint: Endpoint, lines: Sequence[Line]) -> HostKey | None:
    """The presented key of the type that ssh would ask for first, given the lines for the endpoint.

    None when that cannot be seen: no answer within 3 seconds, no key of that type, no ssh-keyscan,
    or a proxy in the user's ssh configuration, behind which this machine may see somebody else at
    the address. ssh enforces the verdict in every transfer anyway.
    """
    kind = known_hosts.first_known(lines)
    if kind is None:
        return None
    family = _FAMILY.get(kind, "ecdsa")
    scan = ("ssh-keyscan", "-T", str(KEYSCAN_SECONDS), "-t", family, *_where(endpoint))
    try:
        if has_proxy(endpoint):
            return None
        scanned = run(scan, env=_plain(), timeout=KEYSCAN_SECONDS + 1)
    except GitDaytonaError:  # missing or too slow: ssh itself will say so, or succeed
        return None
    keys = known_hosts.keys_of(known_hosts.parse(scanned.stdout[:65536]))
    return next((key for key in keys if key.type == kind), None)


def has_proxy(endpoint: Endpoint) -> bool:
    """Whether the user's ssh goes there by a proxy or jump host, or cannot tell. Raises
    MissingProgram, TimedOut."""
    shown = run(("ssh", "-G", *_where(endpoint)), env=_plain(), timeout=KEYSCAN_SECONDS)
    return shown.status != 0 or bool(re.search(rb"(?m)^proxy(?!usefdpass)", shown.stdout))


def _where(endpoint: Endpoint) -> tuple[str, ...]:
    return ("-p", str(endpoint.port), "--", endpoint.host)


def _plain() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name in ("HOME", "PATH", "LANG")}


def user_ssh_stderr(endpoint: Endpoint, binary: str | None) -> str:
    """What the user's own ssh writes about a gateway whose key only it can judge, connecting as in
    a transfer, but without a token; empty when it does not end in time."""
    env = environment.base() | {
        "DAYTONA_SSH_GATEWAY": endpoint.url_authority,
        "DAYTONA_SSH_TOKEN": NO_TOKEN,
    }
    if binary:
        env["DAYTONA_SSH_BINARY"] = binary
    argv = (*WRAPPER, "-p", str(endpoint.port), endpoint.host, "true")
    try:
        return run(argv, env=env, timeout=CONNECT_SECONDS).complaint
    except GitDaytonaError:  # too slow, say: the transfer will see
        return ""


def all_keys(endpoint: Endpoint, *, seconds: float = PROBE_SECONDS) -> tuple[HostKey, ...]:
    """The gateway's host keys, one of each type that it has, in ssh's order of preference.

    Takes at most about ``seconds``. Goes there directly: a proxy of the user's ssh configuration is
    not used. Raises GatewayUnreachable when no key comes back.
    """
    import asyncio  # here: they take a while to load

    with key_out_of_environment():
        import asyncssh

    try:
        getpass.getuser()
    except (KeyError, OSError):  # our user id has no name, and asyncssh wants one
        os.environ["LOGNAME"] = "nobody"
    # a type of key that the server lacks is an answer to us, and nothing for the log
    logging.getLogger("asyncssh").disabled = True

    async def ask(kind: str) -> HostKey | Exception | None:
        """Return the key of one type, of which a server shows one per connection; None if it has
        none, or why there is no answer."""
        algorithm = "rsa-sha2-512" if kind == "ssh-rsa" else kind
        try:
            async with asyncio.timeout(seconds):
                # no configuration: the user's ssh files are not for a look that goes directly
                key = await asyncssh.get_server_host_key(
                    endpoint.host, endpoint.port, server_host_key_algs=[algorithm], config=None
                )
                return parse_blob(key.public_data) if key else None
        except asyncssh.KeyExchangeFailed:
            return None
        except (asyncssh.Error, OSError, ValueError) as problem:
            return problem

    async def ask_all() -> list[HostKey | Exception | None]:
        return await asyncio.gather(*map(ask, PREFERRED))

    found = asyncio.run(ask_all())
    if keys := tuple(each for each in found if isinstance(each, HostKey)):
        return keys
    problems = [each for each in found if isinstance(each, Exception)]
    why = _reason(problems[0]) if problems else "it offers no host key of a known type"
    unreachable = GatewayUnreachable(
        f"the gateway '{endpoint.known_hosts_name}' presents no host key: {why}",
        hint="check the network; a gateway behind a proxy of your ssh configuration cannot be"
        " probed",
    )
    unreachable.is_cut = bool(problems) and all(isinstance(each, OSError) for each in problems)
    raise unreachable


def _reason(problem: Exception) -> str:
    number = getattr(problem, "errno", None) or 0
    if isinstance(problem, TimeoutError) and not number:
        return "timed out"
    return (os.strerror(number) if number > 0 else str(problem)).lower() or type(problem).__name__
