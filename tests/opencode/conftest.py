"""The real OpenCode from npm, a scripted model, and the embedded Daytona: all of it on loopback,
all of it in a HOME of the test's, or of the file's where its tests share one (`kept`)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from git_daytona.local.server import LocalDaytona
from support import opencode_hosts
from support.opencode_hosts import RELEASES, OpenCode, install, installed_in
from support.scripted_model import Model, scripted


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
    with scripted() as found:
        yield found


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
    with installed_in(home, release, binary, database, model, tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def kept(
    release: str,
    binary: Path,
    database: list[Path],
    server: LocalDaytona,
    home_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OpenCode]:
    """An OpenCode that all tests of a file share. The file has a ``home_folder`` of its own, and
    takes this for its ``opencode``, with ``forget()`` before each test."""
    scratch = tmp_path_factory.mktemp("opencode")
    with (
        scripted() as model,
        installed_in(home_folder, release, binary, database, model, scratch) as found,
    ):
        found.is_kept = True
        yield found


@pytest.fixture
def sandboxes(local: LocalDaytona) -> Callable[[], list[str]]:
    """The ids of the sandboxes that the test has made and that are still there."""
    before = {each.id for each in local.sandboxes}
    return lambda: [
        each.id for each in local.sandboxes if each.id not in before and each.state != "destroyed"
    ]
