"""Plain HTTP to a `LocalDaytona`, for what the SDK cannot say, and a clock for it that a test
moves."""

import time

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
        base_url=server.api_url,
        headers={"Authorization": f"Bearer {key}"} if key else {},
        timeout=60,
        trust_env=False,
    )


def created(api: httpx.Client, **members: object) -> str:
    """The id of a new sandbox, which is started."""
    answer = api.post("/sandbox", json=members)
    assert answer.status_code == 200, answer.text
    identity: str = answer.json()["id"]
    settled(api, identity)
    return identity


def settled(api: httpx.Client, sandbox: str, seconds: float = 20) -> str:
    """The state of a sandbox once no change is under way; `gone` when it is not there. Daytona
    tells nobody: clients look."""
    deadline = time.monotonic() + seconds
    while (state := _state(api, sandbox)).endswith("ing"):
        assert time.monotonic() < deadline, f"it is still {state}"
        time.sleep(0.01)
    return state


def change(api: httpx.Client, sandbox: str, what: str) -> str:
    """Ask for `start`, `stop`, `archive` or `delete`; the state that comes of it."""
    answer = (
        api.delete(f"/sandbox/{sandbox}")
        if what == "delete"
        else api.post(f"/sandbox/{sandbox}/{what}")
    )
    assert answer.status_code == 200, answer.text
    return settled(api, answer.json()["id"])


def _state(api: httpx.Client, sandbox: str) -> str:
    answer = api.get(f"/sandbox/{sandbox}")
    return "gone" if answer.status_code == 404 else str(answer.json()["state"])
