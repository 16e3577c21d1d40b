"""The Daytona that the rows are held against, the twin or the server of an account, and the
sandboxes that are made there."""

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from types import TracebackType
from typing import Any, TypeVar

import httpx

from git_daytona.local.server import LocalDaytona
from support import openssh
from support.waiting import until

T = TypeVar("T")

RUN = "git-daytona/conformance"
"""The label of everything that a run makes; its value is the run's id."""
PURPOSE = {"git-daytona/purpose": "conformance"}
"""The label by which the sandboxes of all runs are found: the list filters by whole labels only."""
OLD = timedelta(hours=1)
"""A run takes minutes; what has its label and is older was left behind."""
SECRET = "[secret]"
VARIABLES = "DAYTONA_CONFORMANCE_"
SECONDS = 60.0
LISTENER = """
import os, random, socket
listener = socket.socket(socket.{family})
where = {where!r}
if listener.family == socket.AF_UNIX:
    port = 0
    listener.bind(where)
else:
    for port in random.sample(range(3000, 10000), 100):
        try:
            listener.bind((where, port))
            break
        except OSError:
            pass
listener.listen()
with open("new", "w") as file:
    print(os.getpid(), port, file=file)
os.rename("new", "ready")
"""
"""A server's beginning; its port is one of those that the toolbox can be asked about."""

FIRST_SHELL = (
    "for s in /usr/bin/zsh /bin/zsh /usr/bin/bash /bin/bash; do grep -qx $s /etc/shells && "
    "readlink -f $s && break; done"
)
"""The first in /etc/shells of zsh and bash."""


@dataclass(frozen=True)
class Account:
    """Where to look, and with which key."""

    api_url: str
    api_key: str = field(repr=False)
    like: str = "cloud"
    target: str | None = None
    snapshot: str | None = None


def from_variables(environment: Mapping[str, str]) -> Account | None:
    """The account that the variables name; None when they name none. Raises ValueError when they
    name half of one."""
    names = ("API_URL", "API_KEY", "LIKE", "TARGET", "SNAPSHOT")
    given = {
        name.lower(): environment[VARIABLES + name]
        for name in names
        if environment.get(VARIABLES + name)
    }
    if not {"api_url", "api_key"} & given.keys():
        return None
    if not {"api_url", "api_key"} <= given.keys():
        raise ValueError(f"{VARIABLES}API_URL and {VARIABLES}API_KEY belong together")
    return Account(**given)


class Server:
    """A running Daytona; a `with` block that leaves nothing there. `twin` is None for an
    account."""

    def __init__(self, account: Account, twin: LocalDaytona | None = None):
        self.account, self.twin, self.like = account, twin, account.like
        self.run = str(uuid.uuid4())
        self.secrets = {account.api_key}
        self.api = self.http(account.api_url, account.api_key)
        self._seen: dict[Callable[[Server], Any], Future[Any]] = {}
        self._boxes: list[Box] = []

    def __enter__(self) -> "Server":
        self._clear(lambda sandbox: RUN in sandbox["labels"] and _age(sandbox) > OLD)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for box in self._boxes:
            box.close()
        # By the label and not by a list of our own: a creation that was interrupted may have
        # worked.
        self._clear(lambda sandbox: sandbox["labels"].get(RUN) == self.run)
        self.api.close()

    def http(
        self, url: str, key: str | None, headers: Mapping[str, str] | None = None
    ) -> httpx.Client:
        authorization = {} if key is None else {"Authorization": f"Bearer {key}"}
        # A proxy may be needed on the way to an account, never to the twin.
        return httpx.Client(
            base_url=url,
            headers={**authorization, **(headers or {})},
            timeout=SECONDS,
            trust_env=self.twin is None,
        )

    def scrubbed(self, text: str) -> str:
        """The text without the key and the tokens."""
        for secret in self.secrets:
            text = text.replace(secret, SECRET)
        return text

    def once(self, look: "Callable[[Server], T]") -> T:
        """What it sees, seen once: several rows may be about one story. A story that breaks off is
        not told again, either."""
        if look not in self._seen:
            self._seen[look] = Future()
            try:
                self._seen[look].set_result(look(self))
            except BaseException as error:
                self._seen[look].set_exception(error)
                raise
        seen: T = self._seen[look].result(timeout=0)
        return seen

    def post(self, **members: Any) -> httpx.Response:
        """Ask for a sandbox, labelled as ours. It stops after a few idle minutes and is deleted
        then, if all else fails."""
        labels = {**PURPOSE, RUN: self.run, **members.pop("labels", {})}
        asked = {
            "autoStopInterval": 15,
            "autoDeleteInterval": 60,
            "target": self.account.target,
            "snapshot": self.account.snapshot,
        }
        body = {name: value for name, value in asked.items() if value is not None} | members
        return self.api.post("/sandbox", json={**body, "labels": labels})

    def started(self, **members: Any) -> "Box":
        """A new sandbox that is started."""
        answer = self.post(**members)
        assert answer.status_code == 200, self.scrubbed(answer.text)
        box = Box(self, answer.json())
        self._boxes.append(box)
        until(
            lambda: box.state() not in ("creating", "starting", "pulling_snapshot"),
            "the start",
            every=0.05,
        )
        return box

    @cached_property
    def box(self) -> "Box":
        """The sandbox that most rows share. It is never stopped."""
        return self.started(env={"GREETING": "hello world"})

    def found(self, **labels: str) -> list[dict[str, Any]]:
        """The sandboxes with these labels; a page is enough."""
        answer = self.api.get("/sandbox", params={"labels": json.dumps(labels), "limit": 100})
        assert answer.status_code == 200, (
            f"the list of sandboxes: {answer.status_code} {self.scrubbed(answer.text)}"
        )
        body = answer.json()
        return body["items"] if isinstance(body, dict) else body

    def _clear(self, ours: Callable[[dict[str, Any]], bool]) -> None:
        """Delete sandboxes, and wait until the server takes the call: it does not while their state
        changes."""

        def delete(sandbox: dict[str, Any]) -> bool:
            return self.api.delete(f"/sandbox/{sandbox['id']}").status_code != 409 or gone(sandbox)

        def gone(sandbox: dict[str, Any]) -> bool:
            answer = self.api.get(f"/sandbox/{sandbox['id']}")
            return answer.status_code == 404 or answer.json().get("state") in (
                "destroying",
                "destroyed",
            )

        for sandbox in [one for one in self.found(**PURPOSE) if ours(one)]:
            until(lambda: delete(sandbox), "the deletion", every=0.2)  # noqa: B023 — called at once


def _age(sandbox: dict[str, Any]) -> timedelta:
    return datetime.now(UTC) - datetime.fromisoformat(sandbox["createdAt"])


class Box:
    """One sandbox."""

    def __init__(self, server: Server, made: dict[str, Any]):
        self.server = server
        self.made = made
        self.id: str = made["id"]
        self.name: str = made["name"]
        self._closing = contextlib.ExitStack()
        self._folders = 0

    def close(self) -> None:
        self._closing.close()

    def seen(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.server.api.get(f"/sandbox/{self.id}").json()
        return answer

    def state(self) -> str:
        """Its state; `gone` when the server does not know it any more."""
        answer = self.server.api.get(f"/sandbox/{self.id}")
        return "gone" if answer.status_code == 404 else answer.json()["state"]

    @cached_property
    def toolbox_url(self) -> str:
        return f"{self.made['toolboxProxyUrl'].rstrip('/')}/{self.id}"

    @cached_property
    def toolbox(self) -> httpx.Client:
        """A plain client, which is no SDK."""
        return self._closing.enter_context(
            self.server.http(self.toolbox_url, self.server.account.api_key)
        )

    @cached_property
    def sdk(self) -> httpx.Client:
        """A client that says that it is a recent SDK: some answers depend on it."""
        headers = {"X-Daytona-SDK-Version": "0.226.0", "X-Daytona-Source": "python-sdk"}
        return self._closing.enter_context(
            self.server.http(self.toolbox_url, self.server.account.api_key, headers)
        )

    def execute(self, command: str, **members: Any) -> httpx.Response:
        return self.toolbox.post("/process/execute", json={"command": command, **members})

    def sh(self, script: str, **members: Any) -> str:
        """The output of a script that sh runs."""
        answer = self.execute(f"sh -c {_quoted(script)}", **members)
        assert answer.status_code == 200, answer.text
        result: str = answer.json()["result"]
        return result

    @cached_property
    def home(self) -> str:
        return self.sh("printf %s ~")

    def folder(self) -> str:
        """A new folder in its home."""
        self._folders += 1
        path = f"{self.home}/rows/{uuid.uuid4().hex[:8]}-{self._folders}"
        self.sh(f"mkdir -p {path}")
        return path

    def mint(self, **query: Any) -> dict[str, Any]:
        answer = self.server.api.post(
            f"/sandbox/{self.id}/ssh-access", params={"expiresInMinutes": 60, **query}
        )
        assert answer.status_code == 200, self.server.scrubbed(answer.text)
        access: dict[str, Any] = answer.json()
        self.server.secrets.add(access["token"])
        return access

    def client(self, access: dict[str, Any], token: str | None = None) -> openssh.Client:
        """An SSH client for a token that was minted, or for another one at the same gateway."""
        config = self.server.api.get("/config").json()
        host, port = openssh.endpoint(access["sshCommand"])
        client = openssh.Client(
            host, port, token or access["token"], config.get("sshGatewayHostKeys") or []
        )
        self._closing.callback(client.close)
        return client

    @cached_property
    def ssh(self) -> openssh.Client:
        return self.client(self.mint())

    @contextlib.contextmanager
    def listening(self, code: str, address: str) -> Iterator[str]:
        """A server in the sandbox: Python code in which `listener` accepts at the address; yields
        its port."""
        folder = self.folder()
        family = (
            "AF_UNIX" if address.startswith("/") else "AF_INET6" if ":" in address else "AF_INET"
        )
        source = LISTENER.format(family=family, where=address) + code
        self.sh(
            f"cd {folder} && printf %s {_quoted(source)} >server.py && (setsid python3 "
            "server.py >log 2>&1 </dev/null &)"
        )
        ready = until(
            lambda: self.sh(f"cat {folder}/ready 2>/dev/null"),
            "a server in the sandbox",
            every=0.05,
        )
        pid, port = ready.split()
        try:
            yield port
        finally:
            self.sh(f"kill -9 {pid}")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
