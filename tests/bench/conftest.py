"""The benchmarks' fixtures, and the table at the end of their run."""

import secrets
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from support.bench_table import Row, Table
from support.round_trip import Repo
from support.separate_server import Apart

TABLE = Table()


@pytest.fixture
def table() -> Table:
    return TABLE


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """A test measures all of its figures, and fails at its end if one of them missed its bound."""
    before = len(TABLE.rows)
    given = yield
    if missed := [row for row in TABLE.rows[before:] if not row.holds]:
        pytest.fail("not reached:\n" + "\n".join(map(str, missed)), pytrace=False)
    return given


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, ()):  # of tests in other folders
            TABLE.rows += [
                Row(*fields) for name, fields in report.user_properties if name == "bench"
            ]
    if TABLE.rows:
        terminalreporter.section("benchmarks")
        for line in TABLE.lines():
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"\nwritten to {TABLE.write()}")


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apart]:
    with Apart(tmp_path_factory.mktemp("daytona")) as apart:
        yield apart


@pytest.fixture
def daytona(running: Apart, monkeypatch: pytest.MonkeyPatch) -> Iterator[Apart]:
    """The run's one server, without latency; the environment points to it."""
    running.forget()
    running.calls()
    monkeypatch.setenv("DAYTONA_API_URL", running.api_url)
    monkeypatch.setenv("DAYTONA_API_KEY", running.api_key)
    yield running
    running.forget()


@pytest.fixture
def make_repo(tmp_path: Path):
    """Make a repository with some files, and a root commit (so, a project and a state file) of its
    own."""

    def make(name: str, files: int = 50, size: int = 2000) -> Repo:
        path = tmp_path / name
        path.mkdir()
        made = Repo(path)
        made.git("init", "-q")
        made.git("config", "core.compression", "0")
        for place in range(files):
            target = path / f"d{place // 100}" / f"f{place}"
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(secrets.token_bytes(size))
        made.git("add", ".")
        made.git("commit", "-q", "-m", name)
        # Packed, so that a push sends what is there and does not compress it first.
        made.git("-c", "pack.window=0", "repack", "-q", "-a", "-d")
        return made

    return make
