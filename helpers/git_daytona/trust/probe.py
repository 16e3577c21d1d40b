"""What host keys a gateway presents right now: a key exchange, and nothing after it. No user name, no authentication.

The answer proves nothing about who presents them; it is there to be compared.
"""

import contextlib
import logging
import socket
import time
from concurrent.futures import ThreadPoolExecutor

from git_daytona.endpoint import Endpoint
from git_daytona.errors import ApiUnreachable
from git_daytona.trust.hostkeys import HostKey, parse_blob
from git_daytona.trust.knownhosts import ALGORITHMS

PROBE_SECONDS = 20.0
_PROBED = tuple(name for name in ALGORITHMS if name != "rsa-sha2-256")
"""One algorithm for each type of key: a server shows one key per connection, of the type that the client asks for."""


class GatewayUnreachable(ApiUnreachable):
    meaning = ApiUnreachable.meaning


def presented(endpoint: Endpoint, *, seconds: float = PROBE_SECONDS) -> tuple[HostKey, ...]:
    """The gateway's host keys, one of each type that it has, in ssh's order of preference.

    Takes at most about ``seconds``. Goes there directly: a proxy of the user's ssh configuration is not used. Raises
    GatewayUnreachable when no key comes back.
    """
    deadline = time.monotonic() + seconds
    with ThreadPoolExecutor(len(_PROBED)) as pool:
        found = list(pool.map(lambda algorithm: _key(endpoint, algorithm, deadline), _PROBED))
    keys = tuple(each for each in found if isinstance(each, HostKey))
    if not keys:
        why = next((each for each in found if isinstance(each, str)), "it offers no host key of a known type")
        raise GatewayUnreachable(
            f"the gateway '{endpoint.known_hosts_name}' presents no host key: {why}",
            hint="check the network; a gateway behind a proxy of your ssh configuration cannot be probed",
        )
    return keys


def _key(endpoint: Endpoint, algorithm: str, deadline: float) -> HostKey | str | None:
    """The key of one type; None if the server has none; in words why there is no answer."""
    import paramiko  # type: ignore[import-untyped]  # here: it takes a while to load

    try:
        connection = socket.create_connection((endpoint.host, endpoint.port), timeout=max(0.1, deadline - time.monotonic()))
    except OSError as problem:
        return (problem.strerror or str(problem)).lower()
    with contextlib.closing(connection):
        transport = paramiko.Transport(connection)
        try:
            # A type of key that the server lacks is a traceback of thirty lines to it, and an answer to us: neither for the log nor, by
            # logging's last resort, for the terminal.
            transport.set_log_channel("git_daytona.trust.probe")
            logging.getLogger("git_daytona.trust.probe").setLevel(logging.CRITICAL + 1)
            transport.get_security_options().key_types = (algorithm,)
            left = max(0.1, deadline - time.monotonic())
            transport.banner_timeout = transport.handshake_timeout = left
            transport.start_client(timeout=left)
            return parse_blob(transport.get_remote_server_key().asbytes())
        except paramiko.ssh_exception.IncompatiblePeer:
            return None
        except (paramiko.SSHException, EOFError, OSError, ValueError) as problem:
            return str(problem).lower() or type(problem).__name__
        finally:
            transport.close()
