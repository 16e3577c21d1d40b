"""Which ports a server listens on."""

import socket
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LOOPBACK = "127.0.0.1"


def api_url(port: int) -> str:
    """Name the API on a port, as clients are told it."""
    return f"http://{LOOPBACK}:{port}/api"


def first_free(listen: Callable[[int], T], asked: int, last: int) -> T:
    """Listen on the port that was asked for or, when none was, on the last one or any: what was
    exported stays valid."""
    if asked == 0 and last != 0:
        try:
            return listen(last)
        except OSError:
            pass  # somebody else's by now
    return listen(asked)


def listen_on(port: int) -> socket.socket:
    """A listening socket. The API's port is known before the loop starts, and taken ones are
    reported where they were asked for."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((LOOPBACK, port))
        listening.listen(1024)
    except BaseException:
        listening.close()
        raise
    return listening
