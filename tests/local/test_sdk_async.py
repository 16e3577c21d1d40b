"""The asynchronous Python SDK against the embedded Daytona."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from daytona import AsyncDaytona, DaytonaConfig
from daytona.common.errors import DaytonaAuthenticationError
from sdk_conformance import SCENARIOS, sandbox

from git_daytona.local.server import LocalDaytona


def play(local: LocalDaytona, scenario: Callable[[Any], Awaitable[None]], api_key: str | None = None) -> None:
    async def run() -> None:
        config = DaytonaConfig(api_key=api_key or local.api_key, api_url=local.api_url, target="local")
        async with AsyncDaytona(config) as daytona:
            await scenario(daytona)

    asyncio.run(run())


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_scenario(scenario: Callable[[Any], Awaitable[None]], local: LocalDaytona) -> None:
    play(local, scenario)


def test_wrong_key(local: LocalDaytona) -> None:
    async def create(daytona: Any) -> None:
        await daytona.create()

    with pytest.raises(DaytonaAuthenticationError):
        play(local, create, "wrong")


def test_thirty_sandboxes_at_once(local: LocalDaytona) -> None:
    async def at_once(daytona: Any) -> None:
        async def one(number: int) -> str:
            async with sandbox(daytona) as made:
                return (await made.process.exec(f"echo {number}")).result

        assert await asyncio.gather(*map(one, range(30))) == [f"{number}\n" for number in range(30)]

    play(local, at_once)
