"""No isolation, for machines that offer none: /home/daytona is made to work by putting the real
folder in its place."""

import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

from git_daytona.local.core.model import HOME, UMASK, ApiError, Program, Sandbox
from git_daytona.local.isolation.environment import MARK, environment
from git_daytona.local.isolation.view import Bind, View, hidden_places, resolve

STOP_SECONDS = 10.0

# Ends the process groups that it was told of when its input ends: at stop, and also when the server
# is killed.
WATCHER = """
trap '' HUP INT TERM
groups=
while read -r verb group; do
    if [ "$verb" = add ]; then groups="$groups $group"; continue; fi
    rest=
    for one in $groups; do [ "$one" = "$group" ] || rest="$rest $one"; done
    groups=$rest
done
for one in $groups; do kill -9 -"$one" 2>/dev/null; done
"""


class Running:
    """A started sandbox: its watcher and the process groups that may still have members."""

    def __init__(self) -> None:
        self.watcher = subprocess.Popen(
            ["/bin/sh", "-c", WATCHER],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.commands: dict[int, subprocess.Popen[bytes]] = {}
        self.lock = threading.Lock()
        self.stopped = False

    def add(self, command: "subprocess.Popen[bytes]") -> None:
        """Watch a command's group; forget groups that are empty, for their numbers will be used
        again."""
        with self.lock:
            for group, known in list(self.commands.items()):
                if known.poll() is not None and not _alive(group):
                    del self.commands[group]
                    self._tell("drop", group)
            self.commands[command.pid] = command
            self._tell("add", command.pid)

    def _tell(self, verb: str, group: int) -> None:
        assert self.watcher.stdin is not None
        self.watcher.stdin.write(f"{verb} {group}\n".encode())
        self.watcher.stdin.flush()

    def end(self, sandbox: Sandbox) -> None:
        with self.lock:
            self.stopped = True
            deadline = time.monotonic() + STOP_SECONDS
            while True:
                left = [
                    pid
                    for pid, command in self.commands.items()
                    if command.poll() is None or _alive(pid)
                ]
                for group in left:
                    _kill_group(group)
                marked = _marked(sandbox)
                for pid in marked:
                    _kill(pid)
                if (not left and not marked) or time.monotonic() > deadline:
                    break
                time.sleep(0.01)
            for group in self.commands:
                self._tell("drop", group)
            assert self.watcher.stdin is not None
            self.watcher.stdin.close()
            self.watcher.wait()


class Plain:
    """See `Isolation`; keeps nothing apart."""

    name = "plain"
    isolates = False

    def __init__(self, *, root: Path, home: Path | None):
        self._hidden = tuple(hidden_places(root, home))
        self._lock = threading.Lock()
        self._running: dict[str, Running] = {}

    def start(self, sandbox: Sandbox) -> None:
        """See `Isolation.start`."""
        for folder in (sandbox.home, sandbox.tmp):
            folder.mkdir(parents=True, exist_ok=True)
        with self._lock:
            if sandbox.id not in self._running:
                self._running[sandbox.id] = Running()

    def stop(self, sandbox: Sandbox) -> None:
        """See `Isolation.stop`."""
        with self._lock:
            running = self._running.pop(sandbox.id, None)
        if running is not None:
            running.end(sandbox)

    def popen(self, sandbox: Sandbox, command: Program) -> "subprocess.Popen[bytes]":
        """See `Isolation.popen`; in arguments and variables, /home/daytona is replaced by the
        host's folder."""
        with self._lock:
            running = self._running.get(sandbox.id)
        if running is None:
            raise ApiError(409, f"sandbox '{sandbox.id}' is not running")
        home = str(sandbox.home.resolve())
        variables = {**sandbox.env, **(command.env or {})}
        variables = {name: replace_home(value, home) for name, value in variables.items()}
        argv, stdin = [replace_home(word, home) for word in command.argv], command.stdin
        if isinstance(stdin, int) and stdin >= 0 and os.isatty(stdin):
            # A session leader without a controlling terminal gets the one that it opens.
            argv = ["/bin/sh", "-c", 'exec "$@" <>"$0"', os.ttyname(stdin), *argv]
        directory = self.path(sandbox, command.cwd or HOME)
        if not directory.is_dir():
            raise ApiError(400, f"'{command.cwd}' is not a folder of the sandbox")
        with running.lock:
            if running.stopped:
                raise ApiError(409, f"sandbox '{sandbox.id}' is not running")
        child = subprocess.Popen(
            argv,
            cwd=directory,
            env=environment(sandbox, {**variables, "PATH": _path()}, home=home),
            stdin=command.stdin,
            stdout=command.stdout,
            stderr=command.stderr,
            umask=UMASK,
            start_new_session=True,
        )
        running.add(child)
        return child

    def path(self, sandbox: Sandbox, path: str) -> Path:
        """See `Isolation.path`."""
        home = sandbox.home.resolve()
        # What the processes know the folder as means the folder, too.
        binds = (Bind(home, HOME, writable=True), Bind(home, str(home), writable=True))
        temporary = Bind(Path(os.path.realpath("/tmp")), os.path.realpath("/tmp"), writable=True)  # noqa: S108
        view = View(binds=(*binds, temporary), hidden=self._hidden)
        return resolve(path, view, outside=Path)


def replace_home(text: str, home: str) -> str:
    """Put ``home`` for every /home/daytona that is a whole path or the beginning of one."""
    return re.sub(rf"(?<![\w.-]){re.escape(HOME)}(?![\w.-])", lambda _: home, text)


def _path() -> str:
    """The server's own PATH: on macOS git may be in /opt, and there is nothing to hide here."""
    return os.environ.get("PATH", os.defpath)


def _alive(group: int) -> bool:
    """Whether a process group has a member that is not a zombie; where /proc cannot tell, zombies
    count."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
        return False
    if not Path("/proc/self/stat").exists():
        return True
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            # State and group follow the name, which stands in parentheses and may hold anything
            # (proc_pid_stat(5)).
            state, _, member_of = file.read_text(errors="replace").rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue  # gone
        if int(member_of) == group and state != "Z":
            return True
    return False


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # it has just ended


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has just ended


def _marked(sandbox: Sandbox) -> list[int]:
    """Processes that left their group but carry the sandbox's mark in their environment (Linux
    only)."""
    mark = f"{MARK}={sandbox.id}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            pass  # another user's, or gone
    return found
