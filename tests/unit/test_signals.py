"""Signals, and what they interrupt."""

import signal
import subprocess
import sys

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
