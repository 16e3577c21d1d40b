"""Plain HTTP to a `LocalDaytona`, for what the SDK cannot say, and a clock for it that a test moves."""

import httpx

from git_daytona.local.server import LocalDaytona


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now: float = 1_800_000_000.0):
        self.now = now

    def __call__(self) -> float:
        return self.now


def http(server: LocalDaytona, key: str | None = None) -> httpx.Client:
    """A client of the API with the server's key (or another one; empty: none)."""
    key = server.api_key if key is None else key
    return httpx.Client(
        base_url=server.api_url, headers={"Authorization": f"Bearer {key}"} if key else {}, timeout=10, trust_env=False
    )


def created(api: httpx.Client, **members: object) -> str:
    """The id of a new sandbox."""
    answer = api.post("/sandbox", json=members)
    assert answer.status_code == 200, answer.text
    identity: str = answer.json()["id"]
    return identity
