"""A running `LocalDaytona` for each test, and ways to talk to it: the real SDK, and plain HTTP for
what the SDK cannot say."""

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from git_daytona.local.core.registry import Timings
from git_daytona.local.server import LocalDaytona
from support.plain_http import Clock, created, http
from support.toolbox_http import Box


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "daytona"


@pytest.fixture
def local(root: Path) -> Iterator[LocalDaytona]:
    before = set(threading.enumerate())
    with LocalDaytona(root) as server:
        yield server
    left = [
        t.name for t in set(threading.enumerate()) - before if t.name.startswith("daytona-local")
    ]
    assert left == []


@pytest.fixture
def timed(root: Path, clock: Clock) -> Iterator[LocalDaytona]:
    """A server whose time is the fixture `clock`; after moving it, call `timed.tick()`."""
    with LocalDaytona(root, timings=Timings(clock=clock)) as server:
        yield server


@pytest.fixture
def api(local: LocalDaytona) -> Iterator[httpx.Client]:
    with http(local) as client:
        yield client


@pytest.fixture
def old(root: Path) -> Iterator[Box]:
    """A sandbox of the last server with published source."""
    with LocalDaytona(root, like="0.190") as local, http(local) as client:
        yield Box(local, client, created(client))


@pytest.fixture(params=["auto", "plain"])
def box(
    request: pytest.FixtureRequest, root: Path, capfd: pytest.CaptureFixture[str]
) -> Iterator[Box]:
    with LocalDaytona(root, isolation=request.param) as local, http(local) as client:
        client.timeout = httpx.Timeout(30)
        yield Box(local, client, created(client))
