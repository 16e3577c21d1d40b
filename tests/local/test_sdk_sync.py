"""The synchronous Python SDK against the embedded Daytona."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from daytona import Daytona, DaytonaConfig
from daytona.common.errors import DaytonaAuthenticationError
from sdk_conformance import SCENARIOS, Blocking

from git_daytona.local.server import LocalDaytona


def client(local: LocalDaytona, api_key: str | None = None) -> Daytona:
    return Daytona(DaytonaConfig(api_key=api_key or local.api_key, api_url=local.api_url, target="local"))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_scenario(scenario: Callable[[Any], Awaitable[None]], local: LocalDaytona) -> None:
    asyncio.run(scenario(Blocking(client(local))))


def test_wrong_key(local: LocalDaytona) -> None:
    with pytest.raises(DaytonaAuthenticationError):
        client(local, "wrong").create()
