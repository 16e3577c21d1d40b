"""What a sandbox sees of the file system: the host's, with places of its own and places that are
hidden.

Both kinds of isolation build their mounts from one `View`, and `resolve` follows a path through the
same one, so that the toolbox, which works from outside, and a process inside agree on what a path
means.
"""

import contextlib
import os
import pwd
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from git_daytona.local.core.model import HOME, ApiError, Sandbox

MAX_LINKS = 40  # as in the kernel (path_resolution(7))


@dataclass(frozen=True)
class Bind:
    """A host file or folder that the sandbox sees at another place."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True)
class View:
    """Places are absolute and without symbolic links. Where binds and hidden places nest, the
    longer one holds."""

    binds: tuple[Bind, ...]
    hidden: tuple[str, ...]
    """Folders that are empty in the sandbox."""
    foreign: tuple[str, ...] = ("/proc", "/dev")
    """File systems that are the sandbox's own and mean something else outside."""

    def find(self, place: str) -> Bind | None:
        """The bind that holds ``place``, None for the host's own file. Raises ApiError(403) for
        hidden and foreign places."""
        best: Bind | None = None
        length = -1
        for bind in self.binds:
            if within(place, bind.target) and len(bind.target) > length:
                best, length = bind, len(bind.target)
        for hidden in (*self.hidden, *self.foreign):
            # A folder above a bind (/home above /home/daytona) may be walked through, but nothing
            # beside the bind is there.
            if (
                within(place, hidden)
                and len(hidden) > length
                and not any(within(b.target, place) for b in self.binds)
            ):
                raise ApiError(
                    403, f"'{place}' is not visible in the sandbox", code="FILE_ACCESS_DENIED"
                )
        return best


def within(place: str, folder: str) -> bool:
    """Whether ``place`` is ``folder`` or lies in it; both without links."""
    return place == folder or place.startswith(folder.rstrip("/") + "/")


def build(sandbox: Sandbox, *, root: Path, home: Path | None) -> View:
    """The view of one sandbox; ``root`` is daytona-local's own folder, ``home`` the host user's
    (None: look it up)."""
    own_home = os.path.join(os.path.realpath(os.path.dirname(HOME)), os.path.basename(HOME))  # noqa: PTH118, PTH120, PTH119
    binds = [
        Bind(sandbox.home.resolve(), own_home, writable=True),
        Bind(sandbox.tmp.resolve(), os.path.realpath("/tmp"), writable=True),  # noqa: S108
        Bind(sandbox.tmp.resolve(), os.path.realpath("/var/tmp"), writable=True),  # noqa: S108
    ]
    passwd = sandbox.directory / "passwd"
    if passwd.exists():
        binds.append(Bind(passwd.resolve(), "/etc/passwd"))
    resolver = os.path.realpath("/etc/resolv.conf")
    # /run holds other programs' sockets (a container engine's opens the whole machine), and, on
    # many hosts, the resolver's file.
    hidden = hidden_places(root, home)
    if any(within(resolver, place) for place in hidden) and Path(resolver).is_file():
        binds.append(Bind(Path(resolver), resolver))
    null = Path(os.devnull)
    # A server that runs as root could read these, and so could its sandboxes.
    secrets = [Path("/etc/shadow"), Path("/etc/gshadow"), *Path("/etc/ssh").glob("ssh_host_*_key")]
    binds += [
        Bind(null, str(path)) for path in secrets if os.access(path, os.R_OK) and path.is_file()
    ]
    targets = [bind.target for bind in binds]
    return View(
        binds=tuple(binds),
        hidden=tuple(
            place for place in hidden if not any(within(place, target) for target in targets)
        ),
    )


def hidden_places(root: Path, home: Path | None) -> list[str]:
    """Folders of the host that no sandbox may see: homes, runtime folders and daytona-local's
    own."""
    wanted = ["/home", "/root", "/run", "/var/run", str(root)]
    with contextlib.suppress(KeyError):  # a user id without a name
        wanted.append(pwd.getpwuid(os.getuid()).pw_dir)
    if home is not None:
        wanted.append(str(home))
    wanted += [os.environ.get(name, "") for name in ("HOME", "XDG_RUNTIME_DIR")]
    real = sorted(
        {
            os.path.realpath(place)
            for place in wanted
            if place.startswith("/") and Path(place).is_dir()
        },
        key=len,
    )
    kept: list[str] = []
    for place in real:
        if place != "/" and not any(within(place, outer) for outer in kept):
            kept.append(place)
    return kept


def write_passwd(sandbox: Sandbox) -> None:
    """Give the sandbox an /etc/passwd in which its user is ``daytona``: ssh and git take the home
    folder from there."""
    uid = 0
    lines = [f"daytona:x:{uid}:0:daytona:{HOME}:/bin/bash"]
    host = Path("/etc/passwd").read_text("utf-8", "surrogateescape").splitlines()
    lines += [
        line
        for line in host
        if line.split(":")[2:3] != [str(uid)] and not line.startswith("daytona:")
    ]
    (sandbox.directory / "passwd").write_text("\n".join([*lines, ""]), "utf-8", "surrogateescape")


def resolve(path: str, view: View, *, outside: Callable[[str], Path]) -> Path:
    """The host path of a path of the sandbox; every link is followed as the sandbox would, a
    missing tail is kept.

    ``outside`` maps a place that is the host's own. Raises ApiError(403) for what the sandbox
    cannot see or the server may not look into, ApiError(400) for a loop of links or a path that no
    file system takes.
    """
    if "\0" in path:
        raise ApiError(400, "a path cannot hold a NUL character")
    todo = [part for part in PurePosixPath(HOME, path).parts[::-1] if part != "/"]
    place, links = "/", 0
    while todo:
        part = todo.pop()
        if part == "..":
            place = str(PurePosixPath(place).parent)
            continue
        ahead = f"{place.rstrip('/')}/{part}"
        try:
            link = _link(_host(ahead, view, Path))
        except OSError as error:
            raise ApiError(
                403, f"cannot look at '{path}': {error.strerror}", code="FILE_ACCESS_DENIED"
            ) from None
        if link is None:
            place = ahead
            continue
        links += 1
        if links > MAX_LINKS:
            raise ApiError(400, f"too many levels of symbolic links in '{path}'")
        if link.startswith("/"):
            place = "/"
        todo += [part for part in PurePosixPath(link).parts[::-1] if part != "/"]
    return _host(place, view, outside)


def _host(place: str, view: View, outside: Callable[[str], Path]) -> Path:
    bind = view.find(place)
    if bind is None or not bind.writable:
        return outside(place)
    return (
        bind.source if place == bind.target else bind.source / place[len(bind.target) :].lstrip("/")
    )


def _link(path: Path) -> str | None:
    """The target of a symbolic link; None for everything else, missing files included."""
    try:
        return str(path.readlink()) if stat.S_ISLNK(path.lstat().st_mode) else None
    except (FileNotFoundError, NotADirectoryError):
        return None
