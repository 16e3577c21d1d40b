"""What is shown while something takes its time: plain lines, and none over another program's."""

import io
import sys
import threading

from git_daytona.base import progress
from git_daytona.base.progress import Patience, Progress
from support.waiting import until


def test_a_step_that_lasts_is_repeated_with_its_time(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    with Progress(seconds=0.02) as step:
        step("creating a sandbox")
        until(lambda: out.getvalue().count("creating a sandbox: 0 s\n") > 2)
        step.quietly("syncing")
        until(lambda: "syncing: 0 s\n" in out.getvalue())
    text = out.getvalue()
    assert text.startswith("creating a sandbox\ncreating a sandbox: 0 s\n")
    assert "syncing\n" not in text


def test_another_program_has_the_terminal_for_itself(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    with Progress(seconds=0.02) as step:
        step("starting the shell")
        progress.give_way()
        before = out.getvalue()
        threading.Event().wait(0.1)
        assert out.getvalue() == before
        step("syncing")
        until(lambda: "syncing: 0 s\n" in out.getvalue())


def test_patience_ends_after_so_long_and_not_otherwise():
    told = []
    slow = Patience(told.append, seconds=0.01)
    with slow.waiting("a long time"):
        until(lambda: told == ["a long time"])
    quick = Patience(told.append, seconds=0.2)
    with quick.waiting("first"):
        quick.step("second")
        others = threading.Thread(target=lambda: quick.step("of another thread"))
        others.start()
        others.join()
    until(lambda: len(told) > 1)
    assert told == ["a long time", "of another thread"]
