"""A minimal SSH server that presents chosen host keys and refuses every user: enough for an ssh
client to judge the keys."""

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence

import paramiko


class _Nobody(paramiko.ServerInterface):
    def get_allowed_auths(self, username: str) -> str:
        return "publickey"


@contextlib.contextmanager
def gateway(keys: Sequence[paramiko.PKey]) -> Iterator[int]:
    """Serve on a loopback port, which is yielded, until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    transports: list[paramiko.Transport] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # closed: the test is over
                return
            transport = paramiko.Transport(connection)
            for key in keys:
                transport.add_server_key(key)
            transports[:] = [each for each in transports if each.is_active()] + [transport]
            with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
                transport.start_server(threading.Event(), _Nobody())

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for transport in transports:
            transport.close()
