"""``python -m git_daytona PROGRAM ARGUMENTS…``, for people; the launchers in bin/ call ``run``,
which spares them runpy's time."""

import os
import sys

from git_daytona.cli import help as helping


def main(argv: list[str]) -> int:
    """Run one of the click programs and return its exit status."""
    program, arguments = argv[0] if argv else "git-daytona", argv[1:]
    # past click: OpenCode waits for its first answer
    if program == "git-daytona" and arguments == ["serve"]:
        from git_daytona.service.serve import serve

        return serve()
    text = helping.text(program, arguments)
    if text is not None and _told(text):
        return 0
    from git_daytona.cli import boundary

    if program == "daytona-pin":
        from git_daytona.cli.daytona_pin import cli
    elif program == "daytona-token":
        from git_daytona.cli.daytona_token import cli
    elif program == "daytona-local":
        from git_daytona.cli.daytona_local import cli
    else:
        from git_daytona.cli.git_daytona import cli

        return boundary.run(cli, "git-daytona", arguments, display="git daytona")
    return boundary.run(cli, program, arguments)


def _told(text: str) -> bool:
    """Print it; False where stdout does not take it: the boundary then says so. A stdout that was
    closed on purpose wants nothing."""
    try:
        if sys.stdout is not None:
            sys.stdout.write(text)
            sys.stdout.flush()
    except (OSError, ValueError):
        return False
    return True


def leave(status: int) -> None:
    """End the process without the interpreter's own ending.

    That stops daemon threads (a keyring that does not answer, the look at a running command's
    output) wherever they are, and in the middle of compiled code (of the clients, say) this aborts
    the process with SIGABRT. Threads that are no daemons (revocations) are waited for.
    """
    # Not imported here: who has not loaded them has no threads and no log.
    if threading := sys.modules.get("threading"):
        for thread in threading.enumerate():
            if not thread.daemon and thread is not threading.current_thread():
                thread.join()
    if logging := sys.modules.get("logging"):
        logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):  # closed, or its reader is gone
            pass
    os._exit(status)


def run() -> None:
    """Run the program that the process's arguments name, and end the process."""
    leave(main(sys.argv[1:]))


if __name__ == "__main__":
    run()
