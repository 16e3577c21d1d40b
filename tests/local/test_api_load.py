"""Fifty sandboxes and a hundred requests at once, on two cores."""

import asyncio
import time
from pathlib import Path

import aiohttp

from git_daytona.local.server import LocalDaytona


def test_fifty_sandboxes_and_a_hundred_parallel_requests(root: Path) -> None:
    async def load(local: LocalDaytona) -> None:
        connector = aiohttp.TCPConnector(limit=100)
        headers = {"Authorization": f"Bearer {local.api_key}"}
        async with aiohttp.ClientSession(headers=headers, connector=connector) as session:

            async def call(method: str, url: str, **options: object) -> dict[str, object]:
                async with session.request(method, url, **options) as answer:  # type: ignore[arg-type]
                    assert answer.status == 200, await answer.text()
                    body: dict[str, object] = await answer.json()
                    return body

            created = await asyncio.gather(
                *(
                    call("POST", f"{local.api_url}/sandbox", json={"labels": {"n": str(n)}})
                    for n in range(50)
                )
            )
            boxes = [str(box["id"]) for box in created]
            assert len(set(boxes)) == 50
            for box in boxes:
                while (await call("GET", f"{local.api_url}/sandbox/{box}"))["state"] != "started":
                    await asyncio.sleep(0.02)
            tokens = await asyncio.gather(
                *(call("POST", f"{local.api_url}/sandbox/{box}/ssh-access") for box in boxes)
            )
            assert local.live_tokens() == 50
            answers = await asyncio.gather(
                *(
                    call(
                        "POST",
                        f"{local.toolbox_url}/{box}/process/execute",
                        # a file of its own: two commands run in each sandbox at once
                        json={"command": f"echo {box} > {n}; cat {n}"},
                    )
                    for n, box in enumerate(boxes * 2)
                )
            )
            assert [answer["result"] for answer in answers] == [f"{box}\n" for box in boxes * 2]
            await asyncio.gather(
                *(call("GET", f"{local.api_url}/sandbox/{box}") for box in boxes * 10)
            )
            await asyncio.gather(
                *(
                    call(
                        "DELETE",
                        f"{local.api_url}/sandbox/{access['sandboxId']}/ssh-access",
                        params={"token": str(access["token"])},
                    )
                    for access in tokens
                )
            )
            assert local.live_tokens() == 0
            assert local.counts["mint"] == local.counts["revoke"] == 50
            await asyncio.gather(
                *(call("DELETE", f"{local.api_url}/sandbox/{box}") for box in boxes)
            )
            assert local.sandboxes == []

    with LocalDaytona(root) as local:
        begun = time.monotonic()
        asyncio.run(asyncio.wait_for(load(local), 60))
        print(f"{time.monotonic() - begun:.2f} s")
