"""The toolbox's terminals over a websocket, its git calls and its ports."""

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import websocket

from support.account import Box, Server
from support.rows import By, Like, Row, Table
from support.waiting import until

TABLE = Table("terminals, git, ports")
SECONDS = 20.0
CLOSE = websocket.ABNF.OPCODE_CLOSE


def test_row(row: Row, hold: Any) -> None:
    hold(TABLE, row)


# Terminals.


class Screen:
    """What came of a terminal so far."""

    def __init__(self, box: Box, path: str):
        key = f"Authorization: Bearer {box.server.account.api_key}"
        url = re.sub("^http", "ws", box.toolbox_url) + path
        self._socket = websocket.create_connection(url, header=[key], timeout=SECONDS)
        self.shown = ""

    def close(self) -> None:
        self._socket.shutdown()

    def type(self, text: str) -> None:
        self._socket.send_binary(text.encode())

    def wait_for(self, pattern: str) -> str:
        while not (found := re.search(pattern, self.shown)):
            code, data = self._socket.recv_data(control_frame=True)
            assert code != CLOSE, f"closed before /{pattern}/ came"
            self.shown += data.decode(errors="replace")
        return found[1]

    def ask(self, command: str) -> str:
        # The mark is written in two parts, so that the echo of what is typed does not have it.
        self.shown = ""
        self.type(f"echo mar''k=$({command})=\r")
        return self.wait_for("mark=([^=]*)=")

    def end(self) -> tuple[int, dict[str, Any]]:
        """Code and reason of the close."""
        while True:
            kind, data = self._socket.recv_data(control_frame=True)
            if kind == CLOSE:
                return int.from_bytes(data[:2], "big"), json.loads(data[2:] or b"{}")


@contextmanager
def terminal(box: Box, **members: Any) -> Iterator[tuple[str, httpx.Response]]:
    """A terminal's address below the toolbox's, and the answer to its creation."""
    name = f"conf-{uuid.uuid4().hex[:8]}"
    answer = box.toolbox.post("/process/pty", json={"id": name, "cols": 90, "rows": 30, **members})
    try:
        yield f"/process/pty/{name}", answer
    finally:
        box.toolbox.delete(f"/process/pty/{name}")


@contextmanager
def screen(box: Box, path: str) -> Iterator[Screen]:
    one = Screen(box, path)
    try:
        yield one
    finally:
        one.close()


@TABLE.row("terminal: made with 201", {"status": 201, "members": ["sessionId"]})
def pty_made(on: Server) -> Any:
    with terminal(on.box) as (_, answer):
        return {"status": answer.status_code, "members": sorted(answer.json())}


@TABLE.row(
    "terminal: what is told of one",
    {"cols": 90, "rows": 30, "active": True, "envs": {"TERM": "xterm-256color"}},
)
def pty_info(on: Server) -> Any:
    with terminal(on.box) as (at, _):
        body = on.box.toolbox.get(at).json()
        return {name: body.get(name) for name in ("cols", "rows", "active", "envs")}


def shell_seen(on: Server) -> dict[str, Any]:
    """A shell on a terminal: how it was started, its size before and after a resize, and its
    end."""
    with terminal(on.box) as (at, _), screen(on.box, f"{at}/connect") as one:
        told = {
            "options": one.ask("tr '\\0' ' ' </proc/$$/cmdline | cut -d' ' -f2-").strip(),
            "size": one.ask("stty size"),
        }
        told["resize"] = on.box.toolbox.post(
            f"{at}/resize", json={"cols": 100, "rows": 40}
        ).status_code
        told["resized"] = one.ask("stty size")
        one.type("exit 3\r")
        told["close"], told["reason"] = one.end()
        # Nobody says when it is forgotten.
        told["afterwards"] = until(
            lambda: (now := on.box.toolbox.get(at).status_code) != 200 and now,
            "its end",
            seconds=10,
        )
    return told


@TABLE.row("terminal: the shell is interactive and a login shell", "-i -l")
def pty_shell(on: Server) -> Any:
    return on.once(shell_seen)["options"]


@TABLE.row("terminal: size and resize", {"size": "30 90", "resize": 200, "resized": "40 100"})
def pty_size(on: Server) -> Any:
    told = on.once(shell_seen)
    return {name: told[name] for name in ("size", "resize", "resized")}


@TABLE.row("terminal: the exit code is in the reason of the close", 3)
def pty_code(on: Server) -> Any:
    return on.once(shell_seen)["reason"].get("exitCode")


@TABLE.row("terminal: gone after its shell's end", 404)
def pty_gone(on: Server) -> Any:
    return on.once(shell_seen)["afterwards"]


REFUSED = By(
    cloud=Like("error or message", lambda members: "error" in members or "message" in members),
    v0_190=["error"],
)


@TABLE.row("terminal: an unknown one", {"status": 404, "members": REFUSED})
def pty_unknown(on: Server) -> Any:
    answer = on.box.toolbox.get("/process/pty/none-such")
    return {"status": answer.status_code, "members": sorted(answer.json())}


@TABLE.row("terminal: a name that is taken", {"status": 409, "members": REFUSED})
def pty_taken(on: Server) -> Any:
    with terminal(on.box) as (at, _):
        answer = on.box.toolbox.post("/process/pty", json={"id": at.rpartition("/")[2]})
        return {"status": answer.status_code, "members": sorted(answer.json())}


@TABLE.row("terminal: no more than 1000 columns and rows", {"1000": 201, "1001": 400})
def pty_limits(on: Server) -> Any:
    seen = {}
    for size in (1000, 1001):
        with terminal(on.box, cols=size, rows=size) as (_, answer):
            seen[str(size)] = answer.status_code
    return seen


@TABLE.row("terminal: create-connect", By(cloud="a terminal", v0_190="refused"))
def create_connect(on: Server) -> Any:
    name = f"conf-{uuid.uuid4().hex[:8]}"
    try:
        with screen(on.box, f"/process/pty/create-connect?id={name}&cols=80&rows=24") as one:
            return "a terminal" if one.ask("echo yes") == "yes" else "something else"
    except websocket.WebSocketBadStatusException:
        return "refused"
    finally:
        on.box.toolbox.delete(f"/process/pty/{name}")


# Git.


def repository(on: Server) -> str:
    """A repository with a commit on main."""
    folder = on.box.folder()
    on.box.sh(
        f"cd {folder} && git init -q . && git symbolic-ref HEAD refs/heads/main && echo one "
        ">file && git add file"
        " && git -c user.name=a -c user.email=a@example.invalid commit -q -m one"
    )
    return folder


def git(on: Server, method: str, what: str, **members: Any) -> httpx.Response:
    if method == "GET":
        return on.box.toolbox.get(f"/git/{what}", params=members)
    return on.box.toolbox.request(method, f"/git/{what}", json=members)


@TABLE.row("git: status", {"branch": "main", "files": {"file": "Modified", "new": "Untracked"}})
def git_status(on: Server) -> Any:
    folder = repository(on)
    on.box.sh(f"cd {folder} && echo two >file && echo new >new")
    body = git(on, "GET", "status", path=folder).json()
    files = {one["name"]: one["worktree"] for one in body["fileStatus"]}
    return {"branch": body["currentBranch"], "files": files}


@TABLE.row(
    "git: add, commit and history",
    {"add": 200, "commit": 200, "hash": True, "messages": ["two", "one"]},
)
def git_commit(on: Server) -> Any:
    folder = repository(on)
    on.box.sh(f"echo two >{folder}/file")
    add = git(on, "POST", "add", path=folder, files=["."])
    commit = git(
        on, "POST", "commit", path=folder, message="two", author="A", email="a@example.invalid"
    )
    history = git(on, "GET", "history", path=folder).json()
    head = on.box.sh(f"git -C {folder} rev-parse HEAD").strip()
    return {
        "add": add.status_code,
        "commit": commit.status_code,
        "hash": commit.json().get("hash") == head,
        "messages": [one["message"].strip() for one in history],
    }


@TABLE.row("git: a commit without changes is 500", 500)
def git_empty(on: Server) -> Any:
    return git(
        on,
        "POST",
        "commit",
        path=repository(on),
        message="none",
        author="A",
        email="a@example.invalid",
    ).status_code


@TABLE.row("git: not a repository is 404", {"status": 404, "history": 404, "branches": 404})
def git_none(on: Server) -> Any:
    folder = on.box.folder()
    return {
        what: git(on, "GET", what, path=folder).status_code
        for what in ("status", "history", "branches")
    }


@TABLE.row(
    "git: a branch that is made is checked out; a missing one is deleted with 204",
    {"make": 201, "head": "next", "branches": ["main", "next"], "delete missing": 204},
)
def git_branches(on: Server) -> Any:
    folder = repository(on)
    make = git(on, "POST", "branches", path=folder, name="next")
    head = on.box.sh(f"git -C {folder} symbolic-ref --short HEAD").strip()
    branches = git(on, "GET", "branches", path=folder).json()["branches"]
    delete = git(on, "DELETE", "branches", path=folder, name="none-such")
    return {
        "make": make.status_code,
        "head": head,
        "branches": sorted(branches),
        "delete missing": delete.status_code,
    }


@TABLE.row("git: checkout", {"status": 200, "head": "main"})
def git_checkout(on: Server) -> Any:
    folder = repository(on)
    on.box.sh(f"git -C {folder} checkout -q -b other")
    status = git(on, "POST", "checkout", path=folder, branch="main").status_code
    return {
        "status": status,
        "head": on.box.sh(f"git -C {folder} symbolic-ref --short HEAD").strip(),
    }


# Ports.

IDLE = "\nwhile True:\n    one, _ = listener.accept()\n    one.close()\n"
ANSWER = """
while True:
    one, _ = listener.accept()
    asked = one.recv(65536)
    one.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\nConnection: close\\r\\n\\r\\nhello")
    one.close()
"""


def listed(on: Server) -> list[int]:
    return on.box.toolbox.get("/port").json().get("ports") or []


@TABLE.row(
    "ports: IPv4 listeners are listed, those on IPv6 alone are not", {"IPv4": True, "IPv6": False}
)
def ports(on: Server) -> Any:
    with on.box.listening(IDLE, "::1") as newer, on.box.listening(IDLE, "127.0.0.1") as older:
        # The list is a second old at most, and the one on IPv6 came first.
        until(lambda: int(older) in listed(on), "the port", seconds=10, every=0.2)
        return {"IPv4": True, "IPv6": int(newer) in listed(on)}


@TABLE.row(
    "ports: 3000 to 9999 can be asked about",
    {"open": {"isInUse": True}, "2999": 400, "10000": 400, "x": 400},
)
def port_in_use(on: Server) -> Any:
    with on.box.listening(IDLE, "127.0.0.1") as port:
        answer = on.box.toolbox.get(f"/port/{port}/in-use").json()
    return {
        "open": answer,
        **{
            word: on.box.toolbox.get(f"/port/{word}/in-use").status_code
            for word in ("2999", "10000", "x")
        },
    }


@TABLE.row("ports: /proxy/PORT/ reaches a server of the sandbox", {"status": 200, "text": "hello"})
def proxy(on: Server) -> Any:
    with on.box.listening(ANSWER, "127.0.0.1") as port:
        answer = on.box.toolbox.get(f"/proxy/{port}/")
    return {"status": answer.status_code, "text": answer.text}


@TABLE.row(
    "ports: the daemon itself listens in the sandbox",
    [2280, 22220, 22222, 33333],
    twin="its toolbox is outside the sandbox and needs no port there",
)
def daemon_ports(on: Server) -> Any:
    lines = on.box.sh("cat /proc/net/tcp /proc/net/tcp6 2>/dev/null").splitlines()
    listening = {
        int(words[1].rpartition(":")[2], 16) for words in map(str.split, lines) if words[3] == "0A"
    }
    return sorted(listening & {2280, 22220, 22222, 33333})
