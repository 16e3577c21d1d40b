"""Child processes: limits, streams, signals, and who is left behind. Real processes throughout."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from git_daytona.base import run as running
from git_daytona.base.errors import MissingProgram, TimedOut
from git_daytona.base.run import foreground, run
from support.processes import gone


def sh(script: str, *words: str, **how):
    return run(("sh", "-c", script, "sh", *words), **{"env": os.environ, "timeout": 60.0, **how})


def pids(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()]


def test_status_and_streams():
    result = sh("echo out; echo err >&2; exit 7")
    assert (result.status, result.text, result.complaint) == (7, "out", "err")
    assert sh("kill -9 $$").status == -9


def test_input_is_closed_or_fed():
    assert sh("cat").stdout == b""
    assert sh("cat", stdin=b"small").stdout == b"small"
    big = os.urandom(1 << 20) * 3
    assert sh("cat", stdin=big).stdout == big
    assert sh("exit 3", stdin=big).status == 3, "a child that does not read is no error"
    assert sh("exit 3", stdin=b"small").status == 3


def test_environment_is_what_is_given():
    assert sh("echo $A-$HOME", env={"A": "1"}).text == "1-"


def test_there_is_no_terminal_to_prompt_on():
    assert sh("if (: </dev/tty) 2>/dev/null; then echo terminal; fi").text == ""


def test_the_whole_group_ends_at_the_limit(tmp_path):
    """Also what ignores SIGTERM."""
    script = f"trap '' TERM; (trap '' TERM; sleep 1000 & echo $! $$ >{tmp_path}/pids; wait) & wait"
    with (
        pytest.raises(TimedOut, match="did not finish within 1 seconds"),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(running, "GRACE_SECONDS", 0.2)
        sh(script, timeout=1.0)
    assert gone(*pids(tmp_path / "pids"))


def test_a_silent_command_ends_and_a_talking_one_does_not(tmp_path):
    with pytest.raises(TimedOut, match="made no progress"):
        sh("echo begun; exec sleep 1000", idle=0.5)
    assert sh("for i in 1 2 3 4 5 6 7 8; do echo $i >&2; sleep 0.2; done", idle=1.4).status == 0


def test_the_limit_says_what_was_run_without_secrets():
    with pytest.raises(TimedOut) as ended:
        sh("echo 'Bearer dtn_abcdefgh12345' >&2; exec sleep 1000", "ssh://t0ken@host/x", idle=0.3)
    assert "dtn_" not in (ended.value.details or "")
    assert "t0ken" not in (ended.value.details or "")


def test_a_grandchild_that_keeps_the_pipe_does_not_keep_us(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "GRACE_SECONDS", 0.3)
    result = sh(f"setsid sleep 1000 & echo $! >{tmp_path}/pids; echo done")
    try:
        assert (result.status, result.text) == (0, "done")
    finally:
        os.kill(*pids(tmp_path / "pids"), signal.SIGKILL)


def test_output_is_bounded(monkeypatch):
    monkeypatch.setattr(running, "STDERR_BYTES", 1000)
    result = sh("yes error | head -c 500000 >&2; echo last >&2")
    assert len(result.stderr) == 1000
    assert result.complaint.endswith("last"), "the end of stderr is kept"
    monkeypatch.setattr(running, "STDOUT_BYTES", 1 << 20)
    with pytest.raises(TimedOut, match="printed more than 1 MiB"):
        sh("yes | head -c 5000000")


def test_progress_for_a_terminal_is_cleaned(capsys):
    result = sh(
        r"printf 'Receiving: 1%%\rReceiving: 100%%\n\033]0;title\007\033[2J\303\244 Bearer "
        r"abcdefgh\n' >&2",
        show=True,
    )
    shown = capsys.readouterr().err
    assert shown == "Receiving: 1%\rReceiving: 100%\n?]0;title??[2Jä Bearer [redacted]\n"
    assert result.complaint.splitlines()[0] == "Receiving: 100%"


def test_programs_and_directories_that_are_missing(tmp_path):
    with pytest.raises(MissingProgram, match="cannot run 'no-such-program'") as missing:
        run(("no-such-program",), env=os.environ, timeout=10)
    assert missing.value.hint
    with pytest.raises(MissingProgram, match="is gone"):
        run(("true",), env=os.environ, cwd=tmp_path / "none", timeout=10)
    (tmp_path / "plain").write_text("")
    with pytest.raises(MissingProgram, match="Permission denied"):
        run((str(tmp_path / "plain"),), env=os.environ, timeout=10)


def test_descriptors_are_passed_on_and_no_others(tmp_path):
    (tmp_path / "file").write_text("content")
    with (tmp_path / "file").open() as wanted, (tmp_path / "file").open() as unwanted:
        os.set_inheritable(unwanted.fileno(), True)
        seen = sh(
            "ls /proc/self/fd; cat /dev/fd/$1", str(wanted.fileno()), pass_fds=(wanted.fileno(),)
        ).text.split()
        assert seen[-1] == "content"
        assert str(unwanted.fileno()) not in seen


MAIN = """
import os, sys
from git_daytona.base.run import foreground, run
try:
    status = eval(sys.argv[1])
finally:
    print("cleaned up", flush=True)
sys.exit(getattr(status, "status", status))
"""


def interrupt(expression: str, number: int, ready: Path) -> subprocess.CompletedProcess[str]:
    """A process that runs the expression, gets a signal once its child has written to the fifo, and
    what became of it."""
    command = (sys.executable, "-c", MAIN, expression)
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        with ready.open() as fifo:
            fifo.readline()
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    return subprocess.CompletedProcess((), process.returncode, out)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_to_us_ends_the_child_and_unwinds(tmp_path, number):
    os.mkfifo(tmp_path / "ready")
    script = f"sleep 1000 & echo $! $$ >{tmp_path}/pids; echo ready >{tmp_path}/ready; wait"
    done = interrupt(
        f"run(('sh', '-c', {script!r}), env=os.environ, timeout=60)", number, tmp_path / "ready"
    )
    assert "cleaned up" in done.stdout
    assert done.returncode in (128 + number, -number)
    assert gone(*pids(tmp_path / "pids"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_in_the_foreground_signals_are_the_commands(tmp_path, number):
    os.mkfifo(tmp_path / "ready")
    program = f"""import signal, sys, time
signal.signal({int(number)}, lambda *_: sys.exit(42))
open({str(tmp_path / "ready")!r}, "w").write("ready")
while True: time.sleep(0.05)
"""
    command = (sys.executable, "-c", program)
    done = interrupt(f"foreground({command!r}, {{}})", number, tmp_path / "ready")
    assert (done.returncode, done.stdout) == (42, "cleaned up\n")


def test_foreground_statuses():
    assert foreground(("sh", "-c", "exit 9"), os.environ) == 9
    assert foreground(("sh", "-c", "kill -15 $$"), os.environ) == 143
    with pytest.raises(MissingProgram, match="no-such-program"):
        foreground(("no-such-program",), os.environ)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
