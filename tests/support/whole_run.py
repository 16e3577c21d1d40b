"""A run of the tests, as a pytest plugin: on how many processes, how long it takes, what it does
not inherit from whoever started it, and what must not be left of it."""

import gc
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

CORE_MINUTES = 25
"""What all tests take on one core, waits included; said before a run begins."""
ENDING_SECONDS = 10.0
"""How long what the last test has started may take to end."""
_LEFT = pytest.StashKey[list[str]]()
_BASE = pytest.StashKey[Path]()


def cores() -> int:
    """Count the cores that we may use."""
    available = getattr(os, "sched_getaffinity", None)
    return len(available(0)) if available else os.cpu_count() or 1


def is_whole(config: pytest.Config) -> bool:
    """Tell whether every test is to run."""
    option = config.option
    chosen = option.keyword or option.collectonly or option.markexpr != "not bench and not fuzz"
    return not chosen and config.args == config.getini("testpaths")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Choose the number of processes for ``-n auto``, as bin/test has it.

    Two for each core, since most tests wait for other programs. None where that would only delay or
    hide something: a file, what prints (-s) or measures (-m).
    """
    option = config.option
    files = any(".py" in word for word in config.args)
    alone = option.collectonly or option.capture == "no" or not option.markexpr.startswith("not")
    return 0 if files or alone else 2 * cores()


def pytest_report_header(config: pytest.Config) -> str | None:
    if not is_whole(config):
        return None
    return f"all tests: about {max(1, CORE_MINUTES // cores())} minutes on {cores()} cores"


def pytest_configure(config: pytest.Config) -> None:
    """Undo that signals are ignored by whoever started us (nohup, ``&`` in a script): programs that
    tests start would ignore them, too."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            # of no effect here, and reset to the default in a program that is started (execve(2))
            signal.signal(number, lambda *_: None)


def pytest_collection_finish() -> None:
    """Leave what is loaded by now, and stays, to itself when garbage is looked for."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _own_garbage() -> Iterator[None]:
    """Have what a file's tests left open fail one of them, not one of a later file."""
    yield
    gc.collect()


@pytest.fixture(autouse=True, scope="session")
def _noted_base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    request.config.stash[_BASE] = tmp_path_factory.getbasetemp()


def _of(base: Path) -> Iterator[str]:
    """Describe each process, other than this one, that knows of a run's folder by its arguments,
    environment or working directory: by its test where it has that in its environment."""
    inside = re.compile(re.escape(os.fsencode(base)) + rb"(?![^/:])")
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if int(entry.name) == os.getpid() or entry.stat().st_uid != os.getuid():
                continue
            environment = (entry / "environ").read_bytes().split(b"\0")
            words = (entry / "cmdline").read_bytes().split(b"\0")
            known = [*environment, *words, os.fsencode((entry / "cwd").readlink())]
        except OSError:  # it has ended
            continue
        if words != [b""] and any(inside.search(each) for each in known):
            test = [each[20:] for each in environment if each.startswith(b"PYTEST_CURRENT_TEST=")]
            yield b" ".join([*test, b"left", entry.name.encode(), *words]).decode(errors="replace")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Look for processes that tests have left; one is a failure of the run."""
    config = session.config
    if base := config.stash.get(_BASE, None):
        end = time.monotonic() + ENDING_SECONDS
        while (found := list(_of(base))) and time.monotonic() < end:
            time.sleep(0.1)
        config.stash.setdefault(_LEFT, []).extend(found)
        if hasattr(config, "workeroutput"):
            config.workeroutput["left"] = found
    if config.stash.get(_LEFT, []) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    found = getattr(node, "workeroutput", {}).get("left", [])
    node.config.stash.setdefault(_LEFT, []).extend(found)  # type: ignore[attr-defined]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if found := config.stash.get(_LEFT, []):
        terminalreporter.section("processes that tests left behind", red=True)
        for line in found:
            terminalreporter.line(line[:500])
