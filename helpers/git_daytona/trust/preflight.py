"""A quick look at the key that the gateway presents, before a token is minted for it.

ssh enforces the verdict in every transfer, but only once there is a token. This look, once per
process, refuses a gateway that plainly presents another key before anything is minted. It is no
verification: whatever it cannot see is left to ssh. ssh-keyscan takes a hundredth of a second where
loading asyncssh takes a sixth of one.
"""

import os
import sys
from collections.abc import Sequence

from git_daytona import ssh
from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import GitDaytonaError
from git_daytona.base.run import run
from git_daytona.git import environment
from git_daytona.trust import known_hosts
from git_daytona.trust.host_keys import HostKey
from git_daytona.trust.known_hosts import Line, Marker

GLANCE_SECONDS = 3
CONNECT_SECONDS = 40.0
NO_TOKEN = "there-is-no-token-yet"  # noqa: S105
"""The user name of a connection that is made for its host key only; no token of Daytona's looks
like it."""
_FAMILY = {"ssh-ed25519": "ed25519", "ssh-rsa": "rsa"}  # ssh-keyscan's names; the rest is "ecdsa"


def presented(endpoint: Endpoint, lines: Sequence[Line]) -> HostKey | None:
    """The key that the gateway presents, of the type that ssh would ask for first, given the lines
    that serve the endpoint.

    None when that cannot be seen: no answer within 3 seconds, no key of that type, no ssh-keyscan,
    or a proxy in the user's ssh configuration, behind which this machine may see somebody else at
    the address.
    """
    known = {line.key.type for line in lines if line.marker is Marker.NONE and line.key}
    kind = next(
        (
            each
            for each in map(known_hosts.key_type, known_hosts.preference(lines))
            if each in known
        ),
        None,
    )
    if kind is None:
        return None
    env = {name: value for name, value in os.environ.items() if name in ("HOME", "PATH", "LANG")}
    port = str(endpoint.port)
    scan = (
        "ssh-keyscan",
        "-T",
        str(GLANCE_SECONDS),
        "-p",
        port,
        "-t",
        _FAMILY.get(kind, "ecdsa"),
        "--",
        endpoint.host,
    )
    try:
        configured = run(
            ("ssh", "-G", "-p", port, "--", endpoint.host), env=env, timeout=GLANCE_SECONDS
        )
        if configured.status != 0 or any(
            line.startswith(b"proxy") and b"usefdpass" not in line
            for line in configured.stdout.splitlines()
        ):
            return None
        scanned = run(scan, env=env, timeout=GLANCE_SECONDS + 1)
    except GitDaytonaError:  # missing or too slow: ssh itself will say so, or succeed
        return None
    found = (line.key for line in known_hosts.parse(scanned.stdout[:65536]))
    return next((key for key in found if key is not None and key.type == kind), None)


def complaint_of_ssh(endpoint: Endpoint, binary: str | None) -> str:
    """What the user's own ssh has to say about a gateway whose key only it can judge: its stderr,
    from a connection like that of a transfer, but without a token; empty when it does not say
    anything in time.

    So a key that it does not know is found out before a sandbox is made or a token minted.
    """
    env = environment.base() | {
        "DAYTONA_SSH_GATEWAY": endpoint.url_authority,
        "DAYTONA_SSH_TOKEN": NO_TOKEN,
    }
    if binary:
        env["DAYTONA_SSH_BINARY"] = binary
    argv = (
        sys.executable,
        "-I",
        "-S",
        "-B",
        str(ssh.__file__),
        "-p",
        str(endpoint.port),
        endpoint.host,
        "true",
    )
    try:
        return run(argv, env=env, timeout=CONNECT_SECONDS).complaint
    except GitDaytonaError:  # too slow, say: the transfer will see
        return ""
