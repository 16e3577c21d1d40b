"""The real Python SDK, sync and async, against the API: quick, and told of changes by its event
channel."""

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from daytona import (
    AsyncDaytona,
    CreateSandboxFromImageParams,
    CreateSandboxFromSnapshotParams,
    Daytona,
    DaytonaConfig,
    DaytonaError,
    DaytonaNotFoundError,
    ListSandboxesQuery,
)
from daytona.common.errors import (
    DaytonaAuthenticationError,
    DaytonaBadRequestError,
    DaytonaConflictError,
    DaytonaRateLimitError,
)

from git_daytona.local.server import LocalDaytona
from support.waiting import until


@pytest.fixture(scope="module", autouse=True)
def nothing_left_open() -> Iterator[None]:
    """The SDK closes its connections when its objects are collected: here, and not while some later
    test counts descriptors."""
    yield
    gc.collect()


def config(local: LocalDaytona, key: str | None = None) -> DaytonaConfig:
    return DaytonaConfig(api_key=key or local.api_key, api_url=local.api_url, target="local")


@contextmanager
def client(local: LocalDaytona, key: str | None = None) -> Iterator[Daytona]:
    """The sync client has no close; left alone, its event channel's socket is closed by the garbage
    collector, with a warning."""
    daytona = Daytona(config(local, key))
    try:
        yield daytona
    finally:
        if daytona._event_dispatcher._bg_thread is not None:
            daytona._event_dispatcher._bg_thread.join(10)
        daytona._event_dispatcher.disconnect()


@pytest.fixture
def daytona(local: LocalDaytona) -> Iterator[Daytona]:
    with client(local) as connected:
        yield connected


def test_a_whole_life(local: LocalDaytona, daytona: Daytona) -> None:
    sandbox = daytona.create(
        CreateSandboxFromSnapshotParams(name="life", labels={"a": "b"}, env_vars={"X": "y"})
    )
    assert sandbox.state == "started"
    access = sandbox.create_ssh_access(expires_in_minutes=10)
    assert local.live_tokens() == 1
    sandbox.revoke_ssh_access(access.token)
    assert local.live_tokens() == 0
    sandbox.stop()
    assert sandbox.state == "stopped"
    sandbox.start()
    sandbox.stop(force=True)
    sandbox.archive()
    assert sandbox.state == "archiving"
    until(lambda: daytona.get("life").state == "archived")
    sandbox.start()
    sandbox.set_labels({"c": "d"})
    sandbox.set_autostop_interval(5)
    sandbox.set_auto_archive_interval(6)
    sandbox.set_auto_delete_interval(7)
    sandbox.refresh_activity()
    sandbox.refresh_data()
    assert (
        sandbox.auto_stop_interval,
        sandbox.auto_archive_interval,
        sandbox.auto_delete_interval,
    ) == (5, 6, 7)
    assert daytona.get("life").id == sandbox.id
    daytona.delete(sandbox, wait=True)
    assert sandbox.state == "destroyed"
    with pytest.raises(DaytonaNotFoundError):
        daytona.get("life")


def test_lists_over_several_pages(local: LocalDaytona, daytona: Daytona) -> None:
    for number in range(5):
        daytona.create(
            CreateSandboxFromSnapshotParams(name=f"n{number}", labels={"odd": str(number % 2)})
        )
    found = daytona.list(ListSandboxesQuery(labels={"odd": "0"}, limit=2, sort="name", order="asc"))  # type: ignore[arg-type]
    assert [sandbox.name for sandbox in found] == ["n0", "n2", "n4"]
    assert local.counts["list"] == 2


def test_refusals_become_the_sdks_errors(local: LocalDaytona, daytona: Daytona) -> None:
    with pytest.raises(DaytonaBadRequestError, match="Snapshot mine not found"):
        daytona.create(CreateSandboxFromSnapshotParams(snapshot="mine"))
    with pytest.raises(DaytonaBadRequestError, match="builds nothing but"):
        daytona.create(CreateSandboxFromImageParams(image="debian:12"))
    daytona.create(CreateSandboxFromSnapshotParams(name="twice"))
    with pytest.raises(DaytonaConflictError):
        daytona.create(CreateSandboxFromSnapshotParams(name="twice"))
    with client(local, "wrong") as stranger, pytest.raises(DaytonaAuthenticationError):
        stranger.get("twice")
    with (
        local.faults.call(status=429, retry_after=0) as fault,
        pytest.raises(DaytonaRateLimitError) as refused,
    ):
        daytona.get("twice")
    assert refused.value.headers["Retry-After"] == "0"
    assert fault.seen == 4, "the sync client waits Retry-After out and tries again, three times"
    with local.faults.call(drop="before") as fault, pytest.raises(DaytonaError) as cut:
        daytona.get("twice")
    assert type(cut.value) is DaytonaError, (
        "urllib3's MaxRetryError is not in the SDK's table of connection errors"
    )
    assert fault.seen == 4


def test_a_slow_creation_is_waited_for(local: LocalDaytona, daytona: Daytona) -> None:
    daytona.create()  # by then the event channel is up
    local.faults.start_delay = 0.2

    def seconds() -> float:
        begun = time.monotonic()
        assert daytona.create().state == "started"
        return time.monotonic() - begun

    told = any(seconds() < 0.9 for _ in range(10))  # a busy machine may be slow
    assert told, "by an event, not by the poll after a second"
    local.faults.start_delay = 3
    with pytest.raises(DaytonaError, match="exceeded timeout"):
        daytona.create(timeout=1)
    local.faults.start_delay, local.faults.start_error = 0.1, "no room"
    with pytest.raises(DaytonaError, match="error state"):
        daytona.create()
    assert [sandbox.error_reason for sandbox in local.sandboxes if sandbox.state == "error"] == [
        "no room"
    ]


def test_the_async_client(local: LocalDaytona) -> None:
    async def life() -> None:
        async with AsyncDaytona(config(local)) as daytona:
            boxes = await asyncio.gather(*(daytona.create() for _ in range(5)))
            assert len([box async for box in daytona.list()]) == 5
            await boxes[0].create_ssh_access(5)
            assert local.live_tokens() == 1
            await boxes[0].stop()
            await boxes[0].start()
            await asyncio.gather(*(box.delete(wait=True) for box in boxes))
            assert [box async for box in daytona.list()] == []

    asyncio.run(life())
