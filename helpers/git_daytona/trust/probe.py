"""What host keys a gateway presents right now: a key exchange, and nothing after it. No user name,
no authentication.

The answer proves nothing about who presents them; it is there to be compared.
"""

import asyncio
import contextlib
import logging
import socket
import time
from concurrent.futures import ThreadPoolExecutor

from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import ApiUnreachable
from git_daytona.trust.host_keys import HostKey, parse_blob
from git_daytona.trust.known_hosts import ALGORITHMS

PROBE_SECONDS = 20.0
_PROBED = tuple(name for name in ALGORITHMS if name != "rsa-sha2-256")
"""One algorithm for each type of key: a server shows one key per connection, of the type that the
client asks for."""


class GatewayUnreachable(ApiUnreachable):
    meaning = ApiUnreachable.meaning


def presented(endpoint: Endpoint, *, seconds: float = PROBE_SECONDS) -> tuple[HostKey, ...]:
    """The gateway's host keys, one of each type that it has, in ssh's order of preference.

    Takes at most about ``seconds``. Goes there directly: a proxy of the user's ssh configuration is
    not used. Raises GatewayUnreachable when no key comes back.
    """
    deadline = time.monotonic() + seconds
    with ThreadPoolExecutor(len(_PROBED)) as pool:
        found = list(pool.map(lambda algorithm: _key(endpoint, algorithm, deadline), _PROBED))
    keys = tuple(each for each in found if isinstance(each, HostKey))
    if not keys:
        why = next(
            (each for each in found if isinstance(each, str)),
            "it offers no host key of a known type",
        )
        raise GatewayUnreachable(
            f"the gateway '{endpoint.known_hosts_name}' presents no host key: {why}",
            hint="check the network; a gateway behind a proxy of your ssh configuration cannot be probed",
        )
    return keys


def _key(endpoint: Endpoint, algorithm: str, deadline: float) -> HostKey | str | None:
    """The key of one type; None if the server has none; in words why there is no answer."""
    import asyncssh  # here: it takes a while to load

    # a type of key that the server lacks is an answer to us, and nothing for the log
    logging.getLogger("asyncssh").disabled = True
    try:
        connection = socket.create_connection(
            (endpoint.host, endpoint.port), timeout=max(0.1, deadline - time.monotonic())
        )
    except OSError as problem:
        return (problem.strerror or str(problem)).lower()

    async def ask() -> asyncssh.SSHKey | None:
        async with asyncio.timeout(max(0.1, deadline - time.monotonic())):
            # No configuration: ssh's files of this user are not for a look that goes there
            # directly.
            return await asyncssh.get_server_host_key(
                sock=connection, server_host_key_algs=[algorithm], config=None
            )

    with contextlib.closing(connection):
        try:
            key = asyncio.run(ask())
            return None if key is None else parse_blob(key.public_data)
        except asyncssh.KeyExchangeFailed:
            return None
        except TimeoutError:
            return "timed out"
        except (asyncssh.Error, OSError, ValueError) as problem:
            return str(problem).lower() or type(problem).__name__
