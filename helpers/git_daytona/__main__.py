"""``python -m git_daytona PROGRAM ARGUMENTS…``: what the launchers in bin/ run."""

import contextlib
import gc
import logging
import os
import sys
import threading
from importlib import import_module

from git_daytona.base import inherited, signals
from git_daytona.cli import boundary

PROGRAMS = (
    *("git-daytona", "git-remote-daytona"),
    *("daytona-token", "daytona-pin", "daytona-local", "daytona-ssh"),
)


def main(argv: list[str]) -> int:
    """Run one of the programs (``git-daytona`` under any other name) and return its exit status."""
    program = argv[0] if argv and argv[0] in PROGRAMS else "git-daytona"
    command = import_module(f"git_daytona.cli.{program.replace('-', '_')}").cli
    return boundary.run(command, program, argv[1:])


def leave(status: int) -> None:
    """End the process without the interpreter's own ending.

    That stops daemon threads (a keyring that does not answer) wherever they are, and aborts the
    process with SIGABRT where one is in compiled code. Other threads (revocations) are waited for.
    """
    for thread in threading.enumerate():
        # One without an identity is just being started, by a daemon thread, and cannot be joined.
        if not thread.daemon and thread.ident and thread is not threading.current_thread():
            thread.join()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):  # closed, or its reader is gone
                stream.flush()
    os._exit(status)


if __name__ == "__main__":
    # Loading makes many objects that stay: looking through them is a tenth of a command's time.
    gc.set_threshold(50_000)
    inherited.settle()
    signals.interrupt_waits()
    leave(main(sys.argv[1:]))
