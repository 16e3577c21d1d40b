"""The environment of a sandbox's commands: nothing of the host's goes in, and nothing that
Daytona's own lacks."""

from collections.abc import Mapping
from pathlib import Path

from git_daytona.local.core.model import HOME, Sandbox

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MARK = "DAYTONA_SANDBOX_ID"
LOCALE = "C.UTF-8"
"""The one that every machine has; Daytona's default image has en_US.UTF-8."""


def environment(
    sandbox: Sandbox, more: Mapping[str, str] | None = None, *, home: str = HOME
) -> dict[str, str]:
    """The base, then the sandbox's own variables, then those of one command. There is no USER,
    LOGNAME, SHELL or TERM in it."""
    return {
        "HOME": home,
        "PATH": PATH,
        "LANG": LOCALE,
        "LC_ALL": LOCALE,
        MARK: sandbox.id,
        "DAYTONA_SANDBOX_SNAPSHOT": sandbox.snapshot,
        "DAYTONA_SANDBOX_USER": sandbox.user,
        **sandbox.env,
        **(more or {}),
    }


def terminal_shell() -> str:
    """The shell of a terminal, as Daytona's daemon chooses it: by what stands in /etc/shells, which
    sandboxes share with the host."""
    try:
        known = Path("/etc/shells").read_text().splitlines()
    except OSError:
        known = []
    return next(
        (
            f"{folder}/{name}"
            for name in ("zsh", "bash")
            for folder in ("/usr/bin", "/bin")
            if f"{folder}/{name}" in known
        ),
        "/bin/sh",
    )
