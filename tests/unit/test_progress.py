"""What is shown while something takes its time: nothing of a spinner in a file, nothing of it left
on a terminal."""

import io
import sys
import threading
from collections.abc import Callable

import pytest

from git_daytona.base import progress
from git_daytona.base.progress import Patience, Progress
from support.processes import until


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def begin(monkeypatch) -> Callable[[], Terminal]:
    """Both streams become a terminal; in the test itself, because pytest sets them anew for it."""
    made = Terminal()
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(progress, "TURN_SECONDS", 0.01)
    monkeypatch.setenv("TERM", "xterm")

    def install() -> Terminal:
        monkeypatch.setattr(sys, "stderr", made)
        monkeypatch.setattr(sys, "stdout", made)
        return made

    return install


def seen(text: str) -> list[str]:
    """The lines as a terminal would show them."""
    return [line.rpartition("\r\x1b[K")[2] for line in text.split("\n")]


def test_a_spinner_turns_below_its_step_and_leaves_nothing(begin):
    terminal = begin()
    with Progress() as told:
        told("creating a sandbox")
        until(lambda: terminal.getvalue().count("\x1b[K") > 5)
        assert set("|/-\\") <= set(terminal.getvalue())
        print("on stdout")  # erases it first, and ends the step
        told("pushing")
        until(lambda: " 0 s" in terminal.getvalue().rpartition("pushing\n")[2])
        sys.stderr.write("Enumerating objects: 3\n")
    assert seen(terminal.getvalue()) == [
        "creating a sandbox",
        "on stdout",
        "pushing",
        "Enumerating objects: 3",
        "",
    ]
    assert sys.stderr is terminal and sys.stdout is terminal


def test_a_program_that_gets_the_terminal_finds_it_clean(begin):
    terminal = begin()
    with Progress() as told:
        told.quietly("starting")
        until(lambda: terminal.getvalue().count("\x1b[K") > 2)
        sys.stderr.flush()
        length = len(terminal.getvalue())
        assert seen(terminal.getvalue()) == [""]
        told._changed.acquire()  # the thread would have drawn again by now if it could
        told._changed.release()
        assert len(terminal.getvalue()) == length


@pytest.mark.parametrize("dumb", [True, False])
def test_lines_where_there_is_no_terminal(monkeypatch, dumb):
    out = Terminal() if dumb else io.StringIO()
    monkeypatch.setenv("TERM", "dumb" if dumb else "xterm")
    monkeypatch.setattr(sys, "stderr", out)
    with Progress(seconds=0.02) as told:
        told("creating a sandbox")
        until(lambda: out.getvalue().count("creating a sandbox: 0 s\n") > 2)
        told.quietly("syncing")
        until(lambda: "syncing: 0 s\n" in out.getvalue())
    text = out.getvalue()
    assert (
        "\x1b" not in text
        and "\r" not in text
        and text.startswith("creating a sandbox\ncreating a sandbox: 0 s\n")
    )
    assert "syncing\n" not in text


def test_patience_ends_after_so_long_and_not_otherwise():
    told = []
    slow = Patience(told.append, seconds=0.01)
    with slow.waiting("a long time"):
        until(lambda: told == ["a long time"])
    never = Patience(told.append, seconds=600)
    with never.waiting("first"):
        never.step("second")
        others = threading.Thread(target=lambda: never.step("of another thread"))
        others.start()
        others.join()
        assert len(never._timers) == 2
    assert len(never._timers) == 1 and told == ["a long time"]
    for timer in never._timers.values():
        timer.cancel()
