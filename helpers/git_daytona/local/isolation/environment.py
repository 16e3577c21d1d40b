"""The environment of a sandbox's commands: nothing of the host's goes in, and nothing that
Daytona's own lacks."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from git_daytona.local.core.model import HOME, Sandbox

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MARK = "DAYTONA_SANDBOX_ID"
LOCALE = "C.UTF-8"
"""The one that every machine has; Daytona's default image has en_US.UTF-8."""


LATE = "DAYTONA_LOCAL_LATE"
# What acts on a program before its first line: the variables that the C library takes away from
# programs that have more rights than who starts them (ld.so(8)), and the path to programs.
_ACTING = re.compile(
    "(LD|MALLOC)_.*|PATH|GCONV_PATH|GETCONF_DIR|GLIBC_TUNABLES|HOSTALIASES|LOCALDOMAIN|LOCPATH|"
    "NIS_PATH|NLSPATH|RESOLV_HOST_CONF|RES_OPTIONS|TMPDIR|TZDIR"
)


def apart(variables: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Keep what acts on a program from those that make the sandbox around a command, outside of it:
    return the variables for them, and the words in front of the command that set the others. No
    value is in the words."""
    acting = {name: value for name, value in variables.items() if _ACTING.fullmatch(name)}
    if acting.pop("PATH", PATH) == PATH and not acting:
        return dict(variables), []
    acting["PATH"] = variables.get("PATH", PATH)
    early = {name: value for name, value in variables.items() if name not in acting}
    text = "; ".join(f"export {name}={shlex.quote(value)}" for name, value in acting.items())
    words = ["/bin/sh", "-c", f'eval "${LATE}"; exec "$@"', "sh"]
    return {**early, "PATH": PATH, LATE: f"unset {LATE}; {text}"}, words


def environment(
    sandbox: Sandbox,
    more: Mapping[str, str] | None = None,
    *,
    home: str = HOME,
    own: bool = True,
) -> dict[str, str]:
    """The base, then the sandbox's ``own`` variables, then those of one command. There is no USER,
    LOGNAME, SHELL or TERM in it."""
    return {
        "HOME": home,
        "PATH": PATH,
        "LANG": LOCALE,
        "LC_ALL": LOCALE,
        "DAYTONA_SANDBOX_SNAPSHOT": sandbox.snapshot,
        "DAYTONA_SANDBOX_USER": sandbox.user,
        **(sandbox.env if own else {}),
        **(more or {}),
        MARK: sandbox.id,  # by which a sandbox's processes are found
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
