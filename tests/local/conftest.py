"""A running `LocalDaytona` for each test, and ways to talk to it: the real SDK, and plain HTTP for what the SDK cannot say."""

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from git_daytona.local.registry import Timings
from git_daytona.local.server import LocalDaytona


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now: float = 1_800_000_000.0):
        self.now = now

    def __call__(self) -> float:
        return self.now


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
    left = [t.name for t in set(threading.enumerate()) - before if t.name.startswith("daytona-local")]
    assert left == []


@pytest.fixture
def timed(root: Path, clock: Clock) -> Iterator[LocalDaytona]:
    """A server whose time is the fixture `clock`; after moving it, call `timed.tick()`."""
    with LocalDaytona(root, timings=Timings(clock=clock)) as server:
        yield server


def http(server: LocalDaytona, key: str | None = None) -> httpx.Client:
    """A client of the API with the server's key (or another one; empty: none)."""
    key = server.api_key if key is None else key
    return httpx.Client(
        base_url=server.api_url, headers={"Authorization": f"Bearer {key}"} if key else {}, timeout=10, trust_env=False
    )


@pytest.fixture
def api(local: LocalDaytona) -> Iterator[httpx.Client]:
    with http(local) as client:
        yield client


def created(api: httpx.Client, **members: object) -> str:
    """The id of a new sandbox."""
    answer = api.post("/sandbox", json=members)
    assert answer.status_code == 200, answer.text
    identity: str = answer.json()["id"]
    return identity
