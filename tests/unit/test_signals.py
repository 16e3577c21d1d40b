"""Signals, and what they interrupt."""

import signal
import subprocess
import sys
from pathlib import Path

import git_daytona

WAITING = """
import select, signal, socket, threading
from git_daytona.base import signals
signals.interrupt_waits()
here, there = socket.socketpair()
def get_it():
    select.select([], [], [], 0.2)  # nothing tells that the main thread waits
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
threading.Thread(target=get_it).start()
here.recv(1)
"""


def test_a_signal_to_another_thread_ends_what_the_main_one_waits_for():
    done = subprocess.run((sys.executable, "-c", WAITING), stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == -signal.SIGINT and b"KeyboardInterrupt" in done.stderr


def test_no_event_loop_takes_that_away():
    """``add_signal_handler`` of asyncio sets another descriptor to be woken by, then none."""
    sources = Path(git_daytona.__file__).parent.rglob("*.py")
    assert [each for each in sources if "add_signal_handler" in each.read_text("utf-8")] == []
