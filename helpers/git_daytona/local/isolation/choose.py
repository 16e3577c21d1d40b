"""Which kind of isolation works on this machine."""

import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from git_daytona.local.core.model import ApiError, Isolation, Program, Sandbox
from git_daytona.local.isolation import builders
from git_daytona.local.isolation.enclosed import Enclosed
from git_daytona.local.isolation.plain import Plain

MODES = ("bubblewrap", "namespaces", "plain")
PROBE_SECONDS = 20.0


def choose(root: Path, *, mode: str = "auto", home: Path | None = None) -> Isolation:
    """The isolation for the sandboxes of a server whose own folder is ``root``.

    ``mode`` is ``auto`` (the first of `MODES` that works here) or one of them; ``home`` is one more
    folder to hide besides the homes of the host. Raises ApiError(500) when the mode asked for does
    not work here, ValueError for an unknown one. Says on stderr when the result does not isolate.
    """
    if mode not in ("auto", *MODES):
        raise ValueError(f"isolation '{mode}' is none of auto, {', '.join(MODES)}")
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    reasons: list[str] = []
    for name in MODES if mode == "auto" else (mode,):
        if name == "plain":
            break
        isolation = Enclosed(name, getattr(builders, name), root=root, home=home)
        try:
            probe(isolation, root)
            return isolation
        except ApiError as error:
            reasons.append(f"{name}: {error.message}")
    if mode not in ("auto", "plain"):
        raise ApiError(500, f"isolation does not work here: {reasons[0]}")
    print(  # noqa: T201
        "daytona-local: WARNING: sandboxes are NOT isolated: their commands run as you, "
        "with access to all your files"
        + "".join(f"\ndaytona-local: {reason}" for reason in reasons),
        file=sys.stderr,
        flush=True,
    )
    return Plain(root=root, home=home)


def probe(isolation: Isolation, root: Path) -> None:
    """Make a sandbox, run a command in it, end it. Raises ApiError(500) saying what does not
    work."""
    if platform.system() != "Linux":
        raise ApiError(500, "needs Linux")
    with tempfile.TemporaryDirectory(prefix="probe-", dir=root) as folder:
        sandbox = Sandbox(id="probe", name="probe", directory=Path(folder))
        try:
            isolation.start(sandbox)
            script = "test -w . && test ! -w /etc && git --version"
            command = isolation.popen(sandbox, Program(["sh", "-c", script]))
            try:
                _, said = command.communicate(timeout=PROBE_SECONDS)
            except subprocess.TimeoutExpired:
                command.kill()
                command.communicate()
                raise ApiError(500, "a command in it does not end") from None
        except OSError as error:
            raise ApiError(500, str(error)) from error
        finally:
            isolation.stop(sandbox)
        if command.returncode != 0:
            raise ApiError(
                500,
                said.decode(errors="replace").strip()
                or f"a command in it ends with {command.returncode}",
            )
