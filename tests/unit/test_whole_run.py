"""What a run of the tests is like, whoever starts it: tests/support/whole_run.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
RUN = (sys.executable, "-m", "pytest", "-q", "-p", "support.whole_run", "-p", "no:cacheprovider")
IGNORING = "trap '' INT HUP; exec \"$@\""
"""As ``nohup`` and ``&`` in a script start a program."""


def run(folder: Path, text: str, *options: str) -> tuple[int, str]:
    (folder / "test_it.py").write_text(text)
    done = subprocess.run(
        ("sh", "-c", IGNORING, "sh", *RUN, *options, "--basetemp", str(folder / "base"), folder),
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


LEAVE = """
import subprocess
from support import whole_run
whole_run.ENDING_SECONDS = 0.0
def test_guilty(tmp_path):
    cleared = {} if %r else None
    left = subprocess.Popen(("sleep", "60"), cwd=tmp_path, env=cleared, start_new_session=True)
    left.returncode = 0  # no warning
    open(%r, "w").write(str(left.pid))
def test_innocent(): pass
"""


@pytest.mark.parametrize(("processes", "cleared"), [("0", True), ("2", False)])
def test_a_process_that_is_left_fails_the_run(tmp_path, processes, cleared):
    note = tmp_path / "pid"
    try:
        status, told = run(tmp_path, LEAVE % (cleared, str(note)), "-n", processes)
    finally:
        os.kill(int(note.read_text()), 9)
    assert status == 1 and "2 passed" in told
    name = "left" if cleared else "test_it.py::test_guilty (call) left"
    assert f"{name} {note.read_text()} sleep 60" in told, told
    assert "innocent" not in told


INHERIT = """
import signal, subprocess, pytest
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_it(number):
    with subprocess.Popen(("sleep", "60")) as process:
        process.send_signal(number)
        assert process.wait(10) == -number
"""


def test_programs_that_tests_start_heed_signals_that_we_ignore(tmp_path):
    status, told = run(tmp_path, INHERIT, "-n", "1")
    assert (status, "2 passed" in told) == (0, True), told
