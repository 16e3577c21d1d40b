"""What a process inherits from whoever started it, and should not: ignored and blocked signals,
closed streams, a stdout in another encoding."""

import contextlib
import io
import locale
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

from git_daytona import ssh

_IGNORABLE = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)


def settle() -> None:
    """Make this process, the programs that it starts and its streams independent of it."""
    _open_streams()
    _settle_signals()
    for stream in (sys.stdout, sys.stderr):
        _settle_encoding(stream)


def _open_streams() -> None:
    """Open what is closed of descriptors 0 to 2, and what Python has of them: it would be None."""
    ssh.open_standard_streams()
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))


def _settle_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # an ignored one makes each child's status 0 (wait(2))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in _IGNORABLE:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, ignore)


def _settle_encoding(stream: object) -> None:
    """Write what the stream cannot hold in some way, rather than fail; on a terminal, as that is
    set (LANG): elsewhere output is UTF-8."""
    if isinstance(stream, io.TextIOWrapper):
        encoding = locale.getencoding() if stream.isatty() else None
        stream.reconfigure(encoding=encoding, errors="backslashreplace")


def ignore(_number: int, _frame: FrameType | None) -> None:
    """Ignore a signal (nohup, ``&`` in a script) in a way that programs which we start do not
    inherit: Ctrl-C works in a sandbox's shell, whoever started its server."""


@contextlib.contextmanager
def passed_on() -> Iterator[None]:
    """Let a person's own command, started in the block, inherit what we were started with."""
    ignored = [number for number in _IGNORABLE if signal.getsignal(number) is ignore]
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, ignore)
