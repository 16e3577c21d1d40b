"""Pseudo-terminals for the sandboxes' shells."""

import fcntl
import os
import struct
from typing import Protocol, runtime_checkable

from git_daytona.local.core.model import Sandbox

TIOCSPTLCK = 0x40045431  # ioctl_tty(2)
TIOCGPTPEER = 0x5441


@runtime_checkable
class Terminals(Protocol):
    """An isolation that makes terminals which its sandboxes know by name."""

    def open_terminal(self, sandbox: Sandbox) -> tuple[int, int]:
        """Descriptors of master and slave. Raises OSError when none can be had."""


def open_pair(ptmx: str) -> tuple[int, int]:
    """Master and slave of a new terminal of the devpts that ``ptmx`` belongs to, though it be
    mounted in another namespace."""
    flags = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC
    master = os.open(ptmx, flags)
    try:
        fcntl.ioctl(master, TIOCSPTLCK, struct.pack("i", 0))
        return master, fcntl.ioctl(master, TIOCGPTPEER, flags)
    except OSError:
        os.close(master)
        raise
