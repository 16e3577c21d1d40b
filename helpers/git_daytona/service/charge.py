"""Which OpenCode the plugin is in charge of, and which it is not.

The plugin tells its service once its tools are in the place of OpenCode's own; the service leaves a
stamp for as long as it lives. What runs without one acts on this machine.
"""

import dataclasses
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from git_daytona.base import files, paths
from git_daytona.base.errors import BadSetting, TimedOut, Unconfined

PROGRAMS = ("opencode", "opencode.exe", "shuvcode")
"""The program, npm's name for it, and that of a build of OpenCode 2 on npm."""
STARTING_SECONDS = 30.0
"""Age up to which an OpenCode may still be loading its plugins."""
STAMP_BYTES = 64 * 1024


@dataclass(frozen=True)
class Stamp:
    """An OpenCode with the plugin, where it works, and which tools are ours there."""

    version: str
    pid: int
    directory: str
    project: str
    tools: tuple[str, ...]


def _folder() -> Path:
    return paths.own_state() / "in-charge"


def leave(stamp: Stamp, until: ExitStack) -> None:
    """Leave a stamp until the exit stack is closed or this process ends. Raises BadSetting."""
    path = _folder() / f"{os.getpid()}.json"
    until.enter_context(files.lock(path.with_suffix(".lock"), holds="this service's stamp"))
    files.write_whole(path, json.dumps(dataclasses.asdict(stamp)).encode())
    until.callback(path.unlink, missing_ok=True)


def stamps() -> list[Stamp]:
    """The stamps of the services that live; what others have left is removed."""
    return [stamp for path in sorted(_folder().glob("*.json")) if (stamp := _read(path))]


def _read(path: Path) -> Stamp | None:
    try:
        with suppress(BadSetting), files.lock(path.with_suffix(".lock"), seconds=0):
            path.unlink(missing_ok=True)
    except TimedOut:  # its service holds it
        with suppress(OSError, ValueError, KeyError, TypeError):
            raw = json.loads(path.read_bytes()[:STAMP_BYTES])
            tools = tuple(str(each) for each in raw["tools"])
            texts = {name: str(raw[name]) for name in ("version", "directory", "project")}
            return Stamp(pid=int(raw["pid"]), tools=tools, **texts)
    return None


def unconfined(worktree: Path) -> list[int]:
    """The processes of OpenCode that work in a worktree without the plugin; Linux only: elsewhere
    nothing says where a process works. Not OpenCode 2's terminal, whose tools run in its background
    service (``doctor`` asks that)."""
    known = {stamp.pid for stamp in stamps()}
    served = background() is not None
    return [
        pid
        for pid, words in _processes(worktree)
        if pid not in known and (not served or "--standalone" in words or "serve" in words)
    ]


def _processes(worktree: Path) -> Iterator[tuple[int, list[str]]]:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            place = (process / "cwd").readlink()
            if (process / "exe").readlink().name not in PROGRAMS or not (
                place.is_relative_to(worktree) and _seconds(process) > STARTING_SECONDS
            ):
                continue
            yield int(process.name), (process / "cmdline").read_text().split("\0")
        except (OSError, ValueError, IndexError):  # it has ended, or is somebody else's
            continue


def _seconds(process: Path) -> float:
    """Tell how long a process has run, by a clock that nobody sets: field 22 of proc(5)'s stat."""
    begun = int((process / "stat").read_text(errors="replace").rpartition(") ")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - begun / os.sysconf("SC_CLK_TCK")


def check(worktree: Path) -> None:
    """Raise Unconfined for an OpenCode in a worktree whose tools act on this machine."""
    if pids := unconfined(worktree):
        numbers = ", ".join(map(str, pids))
        raise Unconfined(
            f"OpenCode runs here without the plugin (process {numbers}): its tools act on this "
            "machine",
            hint="end it, see that 'git daytona doctor' finds the plugin well, and start it again",
        )


@dataclass(frozen=True)
class Background:
    """OpenCode 2's background service: its port on loopback, password and process."""

    port: int
    password: str = dataclasses.field(repr=False)
    pid: int

    def __str__(self) -> str:
        return f"OpenCode's background service (process {self.pid})"

    def environment(self) -> dict[str, str]:
        """The variables of ours that it was started with; empty where the system does not tell."""
        try:
            raw = Path(f"/proc/{self.pid}/environ").read_bytes()
        except OSError:
            return {}
        pairs = (each.partition(b"=") for each in raw.split(b"\0"))
        return {
            name.decode(): value.decode(errors="replace")
            for name, _, value in pairs
            if name.startswith(b"DAYTONA_")
        }


def background() -> Background | None:
    """Return OpenCode 2's background service (``service.json`` in its state folder) if it runs."""
    base = paths.xdg("XDG_STATE_HOME", ".local/state")
    for name in PROGRAMS:
        try:
            raw = json.loads((base / name / "service.json").read_bytes()[:STAMP_BYTES])
            url = urlsplit(str(raw["url"]))
            found = Background(url.port or 0, str(raw["password"]), int(raw["pid"]))
            os.kill(found.pid, 0)
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            continue
        if found.pid > 1 and url.hostname == "127.0.0.1":
            return found
    return None
