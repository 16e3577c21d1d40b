"""Sandboxes in Linux namespaces: a holder process per sandbox, entered by `nsenter` for every
command."""

import os
import posixpath
import shutil
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from git_daytona.local.core.model import HOME, UMASK, ApiError, Program, Sandbox, Stream
from git_daytona.local.isolation.builders import READY, child_of
from git_daytona.local.isolation.environment import apart, environment
from git_daytona.local.isolation.terminal import open_pair
from git_daytona.local.isolation.view import View, build, resolve, write_passwd

Builder = Callable[[Sandbox, View], list[str]]

STOP_SECONDS = 10.0


@dataclass
class Running:
    """A started sandbox."""

    holder: "subprocess.Popen[bytes]"
    init: int
    """Host id of the sandbox's process 1."""
    space: str
    """Identity of the sandbox's PID namespace."""
    root: int
    """Descriptor of the sandbox's root folder: what is opened through it meets the sandbox's
    read-only mounts."""
    view: View
    commands: "weakref.WeakSet[subprocess.Popen[bytes]]" = field(default_factory=weakref.WeakSet)


class Enclosed:
    """Isolation by namespaces; ``builder`` gives the command that makes them."""

    isolates = True

    def __init__(self, name: str, builder: Builder, *, root: Path, home: Path | None):
        self.name = name
        self._builder = builder
        self._root = root
        self._home = home
        self._lock = threading.Lock()  # guards the two tables
        self._running: dict[str, Running] = {}
        self._locks: dict[str, threading.Lock] = {}  # one start or stop of a sandbox at a time
        self._nsenter, self._setpriv, self._env, self._setsid, self._limit, self._pin = (
            shutil.which(name) or name
            for name in ("nsenter", "setpriv", "env", "setsid", "prlimit", "taskset")
        )

    def start(self, sandbox: Sandbox) -> None:
        """See `Isolation.start`."""
        with self._lock_of(sandbox):
            running = self._find(sandbox)
            if running is not None:
                if running.holder.poll() is None:
                    return
                self._end(sandbox, running)
            sandbox.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            sandbox.home.mkdir(exist_ok=True)
            sandbox.tmp.mkdir(exist_ok=True)
            sandbox.tmp.chmod(0o1777)
            write_passwd(sandbox)
            view = build(sandbox, root=self._root, home=self._home)
            running = self._launch(sandbox, view)
            with self._lock:
                self._running[sandbox.id] = running

    def _launch(self, sandbox: Sandbox, view: View) -> Running:
        argv = self._builder(sandbox, view)
        try:
            holder = subprocess.Popen(
                argv,
                cwd="/",
                env=environment(sandbox, own=False),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                umask=UMASK,
                start_new_session=True,  # a Ctrl-C for the server is not for the sandboxes
            )
        except OSError as error:
            raise ApiError(500, f"cannot start a sandbox: {error}") from error
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stderr is not None
        with holder.stdout, holder.stderr:
            if holder.stdout.readline().strip() != READY.encode():
                holder.stdin.close()
                reason = holder.stderr.read().decode(errors="replace").strip().splitlines()
                holder.wait()
                raise ApiError(500, f"cannot start a sandbox: {reason[-1] if reason else argv[0]}")
        try:
            init = child_of(holder.pid)
            space = os.readlink(f"/proc/{init}/ns/pid")  # noqa: PTH115
            root = os.open(f"/proc/{init}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            return Running(holder, init, space, root, view)
        except (OSError, ApiError):
            holder.stdin.close()
            holder.wait()
            raise

    def stop(self, sandbox: Sandbox) -> None:
        """See `Isolation.stop`."""
        with self._lock_of(sandbox):
            running = self._find(sandbox)
            if running is not None:
                self._end(sandbox, running)

    def _end(self, sandbox: Sandbox, running: Running) -> None:
        with self._lock:
            self._running.pop(sandbox.id, None)
        assert running.holder.stdin is not None
        running.holder.stdin.close()
        if running.holder.poll() is None:
            try:
                os.kill(running.init, signal.SIGKILL)
            except ProcessLookupError:
                pass  # its input was closed just now
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline:
            commands = [command for command in list(running.commands) if command.poll() is None]
            for command in commands:
                # a stopped nsenter would not take its child's status
                _signal_group(command.pid, signal.SIGCONT)
            if running.holder.poll() is None:
                try:
                    running.holder.wait(0.1)
                except subprocess.TimeoutExpired:
                    # Process 1 stays until all others have been reaped. Those whose nsenter was
                    # killed are left to the host's init, and in a container that one may be slow or
                    # not reap at all; dead they are all the same.
                    if not commands and not _inhabited(running):
                        break
            elif commands:
                time.sleep(0.005)
            else:
                break
        running.holder.kill()
        running.holder.wait()
        os.close(running.root)

    def popen(self, sandbox: Sandbox, command: Program) -> "subprocess.Popen[bytes]":
        """See `Isolation.popen`. With a terminal as stdin the command is a session leader that has
        it as controlling terminal."""
        running = self._find(sandbox)
        if running is None or running.holder.poll() is not None:
            raise ApiError(409, f"sandbox '{sandbox.id}' is not running")
        enter = [self._nsenter, "--target", str(running.init), "--mount", "--pid", "--ipc"]
        drop = [
            self._setpriv,
            "--no-new-privs",
            "--bounding-set=-all",
            "--inh-caps=-all",
            "--pdeathsig=KILL",
        ]
        if os.geteuid() == 0:
            drop.append("--clear-groups")
        else:
            enter += ["--user", "--preserve-credentials"]
        terminal = [self._setsid, "--ctty"] if _is_terminal(command.stdin) else []
        variables, late = apart(environment(sandbox, command.env))
        directory = posixpath.join(HOME, command.cwd or HOME)
        process = subprocess.Popen(
            [
                *(*self._limits(sandbox), *enter, "--", *drop),
                *(self._env, f"--chdir={directory}", "--", *terminal, *late, *command.argv),
            ],
            cwd="/",
            env=variables,
            stdin=command.stdin,
            stdout=command.stdout,
            stderr=command.stderr,
            umask=UMASK,
            start_new_session=True,
        )
        running.commands.add(process)
        return process

    def _limits(self, sandbox: Sandbox) -> list[str]:
        """The command that limits another one, and all that it starts, to the sandbox's size, as
        far as a kernel does that for anybody: so many of our cores, and the memory of each process.
        """
        cores = sorted(os.sched_getaffinity(0))[: sandbox.cpu] if sandbox.cpu else []
        pinned = [self._pin, "--cpu-list", ",".join(map(str, cores))] if cores else []
        data = sandbox.memory * 1024**3
        return [*pinned, self._limit, f"--data={data}", "--"] if data else pinned

    def open_terminal(self, sandbox: Sandbox) -> tuple[int, int]:
        """See `Terminals`: a terminal of the sandbox's own /dev/pts."""
        running = self._find(sandbox)
        if running is None:
            raise ApiError(409, f"sandbox '{sandbox.id}' is not running")
        try:
            return open_pair(f"/proc/self/fd/{running.root}/dev/ptmx")
        except OSError:
            return os.openpty()  # works as well, but has no name in there

    def path(self, sandbox: Sandbox, path: str) -> Path:
        """See `Isolation.path`.

        Outside the sandbox's home and /tmp the result leads through the sandbox's own read-only
        mounts (do not `resolve()` it), and can be had only while it runs (else ApiError(409)).
        """
        running = self._find(sandbox)
        view = running.view if running else build(sandbox, root=self._root, home=self._home)

        def outside(place: str) -> Path:
            if running is None:
                raise ApiError(409, f"sandbox '{sandbox.id}' is not running")
            return Path(f"/proc/self/fd/{running.root}{place}")

        return resolve(path, view, outside=outside)

    def _find(self, sandbox: Sandbox) -> Running | None:
        with self._lock:
            return self._running.get(sandbox.id)

    def _lock_of(self, sandbox: Sandbox) -> threading.Lock:
        with self._lock:
            return self._locks.setdefault(sandbox.id, threading.Lock())


def _is_terminal(stream: Stream) -> bool:
    return isinstance(stream, int) and stream >= 0 and os.isatty(stream)


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass  # it has just ended


def _inhabited(running: Running) -> bool:
    """Whether the sandbox's PID namespace has a process that is neither a zombie nor its process
    1."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(folder / "ns/pid") != running.space or folder.name == str(running.init):  # noqa: PTH115
                continue
            # The state follows the name, which stands in parentheses and may hold anything
            # (proc_pid_stat(5)).
            if (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] != "Z":
                return True
        except OSError:
            pass  # another user's, or gone
    return False
