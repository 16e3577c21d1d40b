"""One sandbox and its toolbox over plain HTTP: what the SDKs cannot say or would not show."""

from pathlib import Path
from typing import Any

import httpx

from git_daytona.local.server import LocalDaytona

DAEMON_ENVELOPE = {"statusCode", "source", "code", "message", "timestamp", "path", "method"}


class Box:
    """One sandbox, its toolbox and its directory on the host."""

    def __init__(self, local: LocalDaytona, client: httpx.Client, identity: str):
        self.local = local
        self.client = client
        self.id = identity
        self.sandbox = next(one for one in local.sandboxes if one.id == identity)
        self.home: Path = self.sandbox.home

    def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.client.request(method, f"{self.local.toolbox_url}/{self.id}/{path}", **options)

    def execute(self, command: str, **members: Any) -> httpx.Response:
        return self.call("POST", "process/execute", json={"command": command, **members})

    def output(self, command: str, **members: Any) -> str:
        answer = self.execute(command, **members)
        assert answer.status_code == 200, answer.text
        text: str = answer.json()["result"]
        return text

    def refused(self, status: int, method: str, path: str, **options: Any) -> str:
        """The code of a call that is refused with this status in the daemon's envelope."""
        answer = self.call(method, path, **options)
        assert (answer.status_code, set(answer.json())) == (status, DAEMON_ENVELOPE), answer.text
        assert answer.json()["source"] == "DAYTONA_DAEMON"
        assert answer.json()["path"] == "/" + path.partition("?")[0]
        assert str(self.home.parent) not in answer.text
        return str(answer.json()["code"])
