"""The environment of a sandbox's commands: nothing of the host's goes in."""

from collections.abc import Mapping

from .model import HOME, Sandbox

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MARK = "DAYTONA_SANDBOX_ID"


def environment(sandbox: Sandbox, more: Mapping[str, str] | None = None, *, home: str = HOME) -> dict[str, str]:
    """The base, then the sandbox's own variables, then those of one command."""
    return {
        "HOME": home,
        "USER": sandbox.user,
        "LOGNAME": sandbox.user,
        "SHELL": "/bin/bash",
        "PATH": PATH,
        "LANG": "C.UTF-8",
        "TERM": "xterm",
        MARK: sandbox.id,
        **sandbox.env,
        **(more or {}),
    }
