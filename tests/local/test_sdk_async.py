"""The asynchronous Python SDK against the embedded Daytona."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from daytona import AsyncDaytona, DaytonaConfig
from daytona.common.errors import DaytonaAuthenticationError

from git_daytona.local.server import LocalDaytona
from support.sdk_scenarios import SCENARIOS, sandbox


def play(local: LocalDaytona, scenario: Callable[[Any], Awaitable[None]], **config: Any) -> None:
    async def run() -> None:
        given = {"api_key": local.api_key, "api_url": local.api_url, "target": "local", **config}
        async with AsyncDaytona(DaytonaConfig(**given)) as daytona:
            await scenario(daytona)

    asyncio.run(run())


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_scenario(scenario: Callable[[Any], Awaitable[None]], local: LocalDaytona) -> None:
    play(local, scenario)


def test_wrong_key(local: LocalDaytona) -> None:
    async def create(daytona: Any) -> None:
        await daytona.create()

    # Without its event channel, which, refused for the same key, may hold the client's end up for
    # half a minute.
    with (
        pytest.warns(DeprecationWarning, match="use_deprecated_polling"),
        pytest.raises(DaytonaAuthenticationError),
    ):
        play(local, create, api_key="wrong", use_deprecated_polling=True)


def test_thirty_sandboxes_at_once(local: LocalDaytona) -> None:
    async def at_once(daytona: Any) -> None:
        async def one(number: int) -> str:
            async with sandbox(daytona) as made:
                return (await made.process.exec(f"echo {number}")).result

        # one that fails ends the others before the client closes
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(number)) for number in range(30)]
        assert [task.result() for task in tasks] == [f"{number}\n" for number in range(30)]

    play(local, at_once)
