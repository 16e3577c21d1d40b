"""What whoever starts a program leaves to it, and what of that reaches others."""

import io
import locale
import os
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from git_daytona import ssh
from git_daytona.base import inherited, paths
from git_daytona.base.errors import BadSetting

IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD)
CHILD = """
import signal, subprocess, sys
from git_daytona.base import inherited
inherited.settle()
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
    signal.raise_signal(number)
shown = ("sh", "-c", "grep SigIgn /proc/self/status; grep SigBlk /proc/self/status; exit 3")
print(subprocess.run(shown).returncode, flush=True)
with inherited.passed_on():
    subprocess.run(shown)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc")
def test_ignored_signals_stay_ignored_here_alone():
    def ignore() -> None:
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})

    done = subprocess.run(
        (sys.executable, "-c", CHILD), capture_output=True, text=True, preexec_fn=ignore
    )
    assert done.returncode == 0, done.stderr
    nothing = f"{0:016x}"
    terminals = f"{sum(1 << (each - 1) for each in IGNORED[:4]):016x}"
    # the C library's own are left out: posix_spawn(3), as of Python 3.13 used here, ignores one
    known = sum(1 << (each - 1) for each in signal.valid_signals())
    words = done.stdout.split()
    assert [f"{int(each, 16) & known:016x}" if len(each) == 16 else each for each in words] == [
        *("SigIgn:", nothing, "SigBlk:", nothing, "3"),
        *("SigIgn:", terminals, "SigBlk:", nothing),
    ]


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("kind", "charset", "written"),
    [
        (io.TextIOWrapper, "iso8859-1", "é 😀 \udcff".encode("utf-8", "backslashreplace")),
        (Terminal, "iso8859-1", b"\xe9 \\U0001f600 \\udcff"),
        (Terminal, "utf-8", "é 😀 \\udcff".encode()),
        (Terminal, "ascii", b"\\xe9 \\U0001f600 \\udcff"),
    ],
)
def test_output_is_utf_8_and_on_a_terminal_as_that_is_set(monkeypatch, kind, charset, written):
    monkeypatch.setattr(locale, "getencoding", lambda: charset)
    stream = kind(io.BytesIO(), encoding="utf-8")
    inherited._settle_encoding(stream)
    stream.write("é 😀 \udcff")
    stream.flush()
    assert stream.buffer.getvalue() == written
    inherited._settle_encoding(None)


@pytest.mark.parametrize("home", ["", "relative", "./x"])
def test_no_home_directory(monkeypatch, home):
    monkeypatch.setenv("HOME", home)
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for place in (paths.home, paths.log_file, paths.daytona_cli_config):
        with pytest.raises(BadSetting, match="there is no home directory"):
            place()


def test_where_windows_programs_are_is_no_place_to_look(monkeypatch):
    """WSL appends Windows' PATH; relative entries are left out everywhere."""
    system = namedtuple("system", "release")
    path = "/usr/bin:.:/mnt/c/Program Files/nodejs:/mnt/wsl/bin:/mnt/d:bin:/mnt/data/bin"
    monkeypatch.setattr(os, "uname", lambda: system("5.15.167.4-microsoft-standard-WSL2"))
    assert ssh.search_path(path) == "/usr/bin:/mnt/wsl/bin:/mnt/data/bin"
    monkeypatch.setattr(os, "uname", lambda: system("6.1.0-amd64"))
    assert ssh.search_path(path) == path.replace(":.:", ":").replace(":bin:", ":")
    assert ssh.search_path("") == os.defpath
