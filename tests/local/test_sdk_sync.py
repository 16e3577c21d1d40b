"""The synchronous Python SDK against the embedded Daytona."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from daytona import Daytona, DaytonaConfig
from daytona.common.errors import DaytonaAuthenticationError, DaytonaError

from git_daytona.local.server import LocalDaytona
from support.sdk_scenarios import SCENARIOS, Blocking

# This client cannot be closed: the sockets of its pools and of its event channel last until they
# are collected.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Have the client's remains collected here, where their warnings are expected, and not in
    somebody else's test."""
    yield
    gc.collect()


def client(local: LocalDaytona, api_key: str | None = None) -> Daytona:
    return Daytona(
        DaytonaConfig(api_key=api_key or local.api_key, api_url=local.api_url, target="local")
    )


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_scenario(scenario: Callable[[Any], Awaitable[None]], local: LocalDaytona) -> None:
    asyncio.run(scenario(Blocking(client(local))))


def test_an_older_server_is_refused_by_the_sdk(root: Path) -> None:
    with LocalDaytona(root, like="0.190") as local:
        # This SDK insists on a member that the server's sandboxes do not have; the suite reads what
        # it needs itself.
        with pytest.raises(DaytonaError, match="kvm"):
            client(local).create()
        assert [sandbox.state for sandbox in local.sandboxes] != []


def test_wrong_key(local: LocalDaytona) -> None:
    with pytest.raises(DaytonaAuthenticationError):
        client(local, "wrong").create()
