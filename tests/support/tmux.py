"""A program on a terminal of its own, in tmux: what a person would see, type and resize. Nothing of
the user's tmux is touched."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

SECONDS = 30.0
"""How long a screen may take to show something."""
CALL_SECONDS = 20.0
CONFIGURATION = """\
set -g status off
set -g remain-on-exit on
set -g escape-time 0
set -g history-limit 20000
set -g default-terminal screen-256color
"""


class Terminal:
    """Made by start(); ``end()`` it, or use it as a ``with`` block."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], size: tuple[int, int], cwd: Path | None
    ):
        # A server for each terminal: its environment is what the program gets, and nothing of it
        # stands in an argument list. The folder's path is short, because a socket's may have no
        # more than about a hundred bytes.
        self._folder = Path(tempfile.mkdtemp(prefix="tmux-"))
        (self._folder / "tmux.conf").write_text(CONFIGURATION)
        self._env = {
            name: value for name, value in env.items() if name not in ("TMUX", "TMUX_TMPDIR")
        }
        self._env |= {"LC_ALL": "C.UTF-8", "SHELL": "/bin/sh"}
        columns, rows = size
        try:
            self._tmux(
                "new-session",
                "-d",
                "-x",
                str(columns),
                "-y",
                str(rows),
                f"exec {shlex.join(argv)}",
                cwd=cwd,
            )
        except BaseException:
            self.end()
            raise

    def send(self, *keys: str) -> None:
        """Press keys by tmux's names for them: ``C-c``, ``Enter``, ``Tab``, ``Up``."""
        self._tmux("send-keys", "-t", ":", *keys)

    def type(self, text: str) -> None:
        """Type text as it is; an Enter is a key of its own."""
        self._tmux("send-keys", "-t", ":", "-l", "--", text)

    def screen(self) -> str:
        """What is on the screen now: its lines, without blanks at their ends."""
        return self._tmux("capture-pane", "-p", "-t", ":")

    def everything(self) -> str:
        """What was ever on it: the lines that were scrolled away, and the screen."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-", "-t", ":")

    def wait_for(self, pattern: str, timeout: float = SECONDS) -> re.Match[str]:
        """Wait until the screen shows the pattern (``^`` and ``$`` match at each line)."""
        return self._wait(
            lambda: re.search(pattern, self.screen(), re.MULTILINE), f"/{pattern}/", timeout
        )

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-t", ":", "-x", str(columns), "-y", str(rows))

    def status(self, timeout: float = SECONDS) -> int:
        """Wait for the program's end, and return its exit status; 128+N for signal N."""

        def ended() -> re.Match[str] | None:
            told = self._tmux(
                "display-message",
                "-p",
                "-t",
                ":",
                "#{pane_dead}|#{pane_dead_status}|#{pane_dead_signal}",
            )
            # It is dead a moment before its status is known. tmux 3.3 may miss the end of a child;
            # that of another one makes it look.
            if told.strip() == "1||":
                self._tmux("run-shell", "true")
            return re.fullmatch(r"1\|(?:(\d+)\||\|(\d+))", told.strip())

        found = self._wait(ended, "the program's end", timeout)
        return int(found[1]) if found[1] else 128 + int(found[2])

    @property
    def pid(self) -> int:
        """Of the program."""
        return int(self._tmux("display-message", "-p", "-t", ":", "#{pane_pid}"))

    def end(self) -> None:
        """End the program by hanging up, and the server. May be called twice."""
        if self._folder.exists():
            self._tmux("kill-server", check=False)
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _tmux(self, *words: str, cwd: Path | None = None, check: bool = True) -> str:
        argv = (
            "tmux",
            "-S",
            str(self._folder / "socket"),
            "-f",
            str(self._folder / "tmux.conf"),
            *words,
        )
        done = subprocess.run(
            argv, env=self._env, cwd=cwd, capture_output=True, text=True, timeout=CALL_SECONDS
        )
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout

    def _wait(self, look, what: str, timeout: float) -> re.Match[str]:
        end = time.monotonic() + timeout
        while not (found := look()):
            if time.monotonic() > end:
                pytest.fail(
                    f"{what} was not seen within {timeout:.0f} seconds on:\n{self.everything()}"
                )
            time.sleep(0.05)
        return found


def start(
    argv: Sequence[str],
    env: Mapping[str, str] | None = None,
    size: tuple[int, int] = (80, 24),
    *,
    cwd: Path | None = None,
) -> Terminal:
    """Start a program on a terminal of ``size`` (columns, rows) with ``env`` laid over this
    process's environment. Skips the test where there is no tmux."""
    if not shutil.which("tmux"):
        pytest.skip("tmux is not there")
    return Terminal(argv, os.environ | dict(env or {}), size, cwd)


def use_shell(screen: Terminal, while_open: Callable[[], object]) -> None:
    """Use a shell in a sandbox, on a terminal of (90, 20), and leave it."""
    screen.type("PS1='READY> '; tty -s && echo on a terminal\n")
    screen.wait_for(r"^on a terminal$")
    while_open()
    screen.type("stty size\n")
    screen.wait_for(r"^20 90$")
    screen.type("sh -c 'echo asleep; exec sleep 1000'\n")
    screen.wait_for(r"^asleep$")
    screen.send("C-c")
    screen.type("echo it goes on\n")
    screen.wait_for(r"^it goes on$")
    screen.type("exit\n")
    screen.status()
