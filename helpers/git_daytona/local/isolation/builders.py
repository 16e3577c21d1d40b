"""The command that makes a sandbox's namespaces: with bubblewrap, or with util-linux and our own
mounts."""

import json
import os
import shutil
import sys
from pathlib import Path

from git_daytona.local.core.model import ApiError, Sandbox
from git_daytona.local.isolation.view import View

READY = "ready"

# Process 1 of a sandbox. A signal that is ignored stays so over exec, and a process that ignores
# SIGCHLD has its children reaped by the kernel (wait(2), NOTES), so plain `cat` is a complete init
# (the shell's own `trap '' CHLD` would not do: dash and bash keep their handler). It ends when the
# server's end of its input is closed, also when the server is killed, and with process 1 every
# process of the namespace ends (pid_namespaces(7)). PR_SET_PDEATHSIG would not do for that: it
# fires when the *thread* that started the child ends. `env --ignore-signal` is of coreutils 8.31
# (2019); without it, zombies stay until stop.
_REAPING = "env --ignore-signal=CHLD"
INIT = (
    "/bin/sh",
    "-c",
    f"trap '' HUP INT TERM; {_REAPING} true 2>/dev/null && set -- {_REAPING}; echo {READY}; "
    'exec "$@" cat >/dev/null 2>&1',
)


def _program(name: str) -> str:
    """Where it is on the server's PATH. Raises ApiError(500) when it is not installed."""
    found = shutil.which(name)
    if found is None:
        raise ApiError(500, f"{name} is not installed")
    return found


def bubblewrap(sandbox: Sandbox, view: View) -> list[str]:
    """The arguments of bwrap; its child is process 1 of the sandbox."""
    argv = [
        _program("bwrap"),
        "--unshare-pid",
        "--unshare-ipc",
        "--as-pid-1",
        "--new-session",
        "--cap-drop",
        "ALL",
    ]
    if os.geteuid() != 0:
        # User 0 inside: for any other, bwrap makes a second user namespace that nsenter could not
        # enter in one step.
        argv += ["--unshare-user", "--uid", "0", "--gid", "0"]
    argv += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for name in ("sys", "sysrq-trigger", "irq", "bus"):
        # The kernel lets user 0 write these without any capability; bwrap 0.8 leaves them open to a
        # real root.
        argv += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
    for place in view.hidden:
        argv += ["--tmpfs", place]
    for bind in view.binds:
        argv += ["--bind" if bind.writable else "--ro-bind", str(bind.source), bind.target]
    for place in view.hidden:
        argv += ["--remount-ro", place]
    return [*argv, "--chdir", "/", "--", *INIT]


def namespaces(sandbox: Sandbox, view: View) -> list[str]:
    """The arguments of unshare(1), whose child builds the mounts (mounts.py) and becomes process 1
    of the sandbox."""
    root = sandbox.directory / "mnt"
    root.mkdir(mode=0o700, exist_ok=True)
    spec = {
        "root": str(root.resolve()),
        "binds": [[str(bind.source), bind.target, bind.writable] for bind in view.binds],
        "hidden": list(view.hidden),
        "exec": INIT,
    }
    argv = [_program("unshare"), "--mount", "--pid", "--ipc", "--fork"]
    if os.geteuid() != 0:
        argv += ["--user", "--map-root-user"]
    return [
        *argv,
        "--",
        sys.executable,
        "-I",
        "-S",
        str(Path(__file__).with_name("mounts.py")),
        json.dumps(spec),
    ]


def child_of(pid: int) -> int:
    """The only child of ``pid``. Raises ApiError(500) when there is none."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    if len(children) != 1:
        raise ApiError(500, "the sandbox's first process is gone")
    return int(children[0])
