"""The real OpenCode from npm, a scripted model, and the embedded Daytona: all of it on loopback,
all of it in a HOME of the test's."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from git_daytona.local.server import LocalDaytona
from support import opencode_hosts
from support.opencode_hosts import RELEASES, OpenCode, host, install, packages
from support.program import tell
from support.round_trip import local, repo, server
from support.scripted_model import Model, serve
from support.secret_search import canary, logged, traced

__all__ = ["canary", "local", "logged", "repo", "server", "tell", "traced"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.npm)


@pytest.fixture(scope="session", params=["1.18.34"])
def release(request: pytest.FixtureRequest) -> str:
    """The release of OpenCode; ``opencode_hosts.every_release`` makes a test one of all."""
    return str(request.param)


@pytest.fixture(scope="session")
def binary(release: str) -> Path:
    """OpenCode's program, installed once for all runs."""
    return install(RELEASES[release])


@pytest.fixture
def model() -> Iterator[Model]:
    scripted = Model()
    running = serve(scripted)
    yield scripted
    running.shutdown()
    running.server_close()


@pytest.fixture(scope="session")
def database(release: str, binary: Path) -> list[Path]:
    """The files of a database, where OpenCode would take a while to make it."""
    return opencode_hosts.database(release, binary)


@pytest.fixture
def opencode(
    release: str,
    binary: Path,
    database: list[Path],
    home: Path,
    model: Model,
    local: LocalDaytona,
    tmp_path: Path,
) -> Iterator[OpenCode]:
    data = home / ".local/share/opencode"
    data.mkdir(parents=True, exist_ok=True)
    for path in database:
        shutil.copy(path, data)
    made = host(release)(binary, home, model, tmp_path)
    packages(release, home / ".config/opencode")
    yield made
    made.close()


@pytest.fixture
def sandboxes(local: LocalDaytona) -> Callable[[], list[str]]:
    """The ids of the sandboxes that the test has made and that are still there."""
    before = {each.id for each in local.sandboxes}
    return lambda: [
        each.id for each in local.sandboxes if each.id not in before and each.state != "destroyed"
    ]
