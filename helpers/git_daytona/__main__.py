"""``python -m git_daytona PROGRAM ARGUMENTS…``: what the launchers in bin/ call."""

import logging
import os
import sys
import threading
from typing import NoReturn


def main(argv: list[str]) -> int:
    """Run one of the click programs and return its exit status."""
    program, arguments = argv[0] if argv else "git-daytona", argv[1:]
    if program == "git-daytona" and arguments == ["serve"]:  # past click: OpenCode waits for its first answer
        from git_daytona.service import serve

        return serve()
    from git_daytona.cli import boundary

    if program == "daytona-pin":
        from git_daytona.cli.pin import cli
    elif program == "daytona-token":
        from git_daytona.cli.token import cli
    elif program == "daytona-local":
        from git_daytona.cli.local import cli
    else:
        from git_daytona.cli.coordinator import cli

        return boundary.run(cli, "git-daytona", arguments, display="git daytona")
    return boundary.run(cli, program, arguments)


def leave(status: int) -> NoReturn:
    """End the process without the interpreter's own ending.

    That stops daemon threads (a keyring that does not answer, the look at a running command's output) wherever they are, and in the
    middle of the SDK's compiled code this aborts the process with SIGABRT. Threads that are no daemons (revocations) are waited for.
    """
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):  # closed, or its reader is gone
            pass
    os._exit(status)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
