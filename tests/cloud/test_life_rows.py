"""What changes a sandbox's state: one is created, stopped, started and deleted, and all is noted on
the way."""

import subprocess
from typing import Any

import httpx

from support import openssh
from support.account import Box, Server
from support.rows import Row, Table, containing, one_of
from support.waiting import until

TABLE = Table("life")
BUSY = {"status": 409, "message": containing("state change in progress")}


def test_row(row: Row, hold: Any) -> None:
    hold(TABLE, row)


def told(answer: httpx.Response) -> dict[str, Any]:
    """Status and state; of a refusal, the message."""
    body = answer.json() if answer.content else {}
    return {
        "status": answer.status_code,
        **{name: body[name] for name in ("state", "message") if name in body},
    }


def life(on: Server) -> dict[str, Any]:
    """The whole story of one sandbox."""
    box = on.started(name=f"conf-{on.run}")
    call = f"/sandbox/{box.id}"
    box.sh("echo kept >kept")
    access = box.mint()
    client = box.client(access)
    seen: dict[str, Any] = {}
    with client.start("echo in; exec sleep 600", stdin=subprocess.PIPE) as connected:
        assert connected.stdout is not None
        assert connected.stdout.readline() == b"in\n"
        seen["stop"] = told(on.api.post(f"{call}/stop"))
        seen["start while stopping"] = told(on.api.post(f"{call}/start"))
        seen["stop while stopping"] = told(on.api.post(f"{call}/stop"))
        until(lambda: box.state() == "stopped", "the stop", every=0.05)
        seen["connected"] = connected.wait(openssh.SECONDS)
    seen["stop again"] = told(on.api.post(f"{call}/stop"))
    seen["toolbox"] = told(box.toolbox.get("/work-dir"))
    ran = client.run("echo in", "-o", "LogLevel=INFO")
    seen["ssh"] = {
        "status": ran.status,
        "closed": "closed by remote host" in ran.err,
        "denied": "Permission denied" in ran.err,
    }
    another = on.api.post(f"{call}/ssh-access")
    seen["mint"] = another.status_code
    on.secrets.add(another.json()["token"])
    seen["start"] = told(on.api.post(f"{call}/start"))
    seen["stop while starting"] = told(on.api.post(f"{call}/stop"))
    until(lambda: box.state() == "started", "the start", every=0.05)
    seen["first connection"] = box.client(another.json()).out("cat kept")
    seen.update(deleted(on, box))
    return seen


def deleted(on: Server, box: Box) -> dict[str, Any]:
    call = f"/sandbox/{box.id}"
    seen: dict[str, Any] = {"delete": told(on.api.delete(call))}
    after = on.api.get(call)
    seen["found by id"] = {
        "status": after.status_code,
        "state": after.json().get("state"),
        "name": after.json().get("name"),
    }
    seen["delete again"] = on.api.delete(call).status_code
    until(lambda: box.state() == "gone", "the end", every=0.1)
    seen["found by name"] = on.api.get(f"/sandbox/{box.name}").status_code
    seen["toolbox of the deleted"] = box.toolbox.get("/work-dir").status_code
    seen["name"] = box.name
    return seen


@TABLE.row("a stop answers at once, and is not there yet", {"status": 200, "state": "stopping"})
def stop(on: Server) -> Any:
    return on.once(life)["stop"]


@TABLE.row("start and stop while it stops: 409", {"start": BUSY, "stop": BUSY})
def while_stopping(on: Server) -> Any:
    seen = on.once(life)
    return {"start": seen["start while stopping"], "stop": seen["stop while stopping"]}


@TABLE.row("a stop while connected ends the connection: 255", 255)
def connected(on: Server) -> Any:
    return on.once(life)["connected"]


@TABLE.row("a stop of a stopped sandbox is refused", 400)
def stop_again(on: Server) -> Any:
    return on.once(life)["stop again"]["status"]


@TABLE.row(
    "the toolbox of a stopped sandbox: 400",
    {"status": 400, "message": containing("Is the Sandbox started?")},
)
def stopped_toolbox(on: Server) -> Any:
    return on.once(life)["toolbox"]


@TABLE.row(
    "SSH to a stopped sandbox: in, then closed", {"status": 255, "closed": True, "denied": False}
)
def stopped_ssh(on: Server) -> Any:
    return on.once(life)["ssh"]


@TABLE.row("minting for a stopped sandbox works", 200)
def stopped_mint(on: Server) -> Any:
    return on.once(life)["mint"]


@TABLE.row(
    "a start answers at once, and is not there yet",
    {"status": 200, "state": one_of("starting", "stopped")},
)
def start(on: Server) -> Any:
    return on.once(life)["start"]


@TABLE.row("a stop while it starts: 409", BUSY)
def while_starting(on: Server) -> Any:
    return on.once(life)["stop while starting"]


@TABLE.row("the first connection after a start works, and files are kept", "kept\n")
def first_connection(on: Server) -> Any:
    return on.once(life)["first connection"]


@TABLE.row(
    "a deletion answers with the sandbox", {"status": 200, "state": one_of("destroying", "started")}
)
def delete(on: Server) -> Any:
    return on.once(life)["delete"]


@TABLE.row(
    "while it is deleted: found by id, under another name",
    {"status": 200, "state": "destroying", "name": "DESTROYED_NAME_TIME"},
)
def destroying(on: Server) -> Any:
    seen = on.once(life)
    name = seen["found by id"]["name"] or ""
    head = f"DESTROYED_{seen['name']}_"
    return {
        **seen["found by id"],
        "name": "DESTROYED_NAME_TIME" if name.startswith(head) and name != head else name,
    }


@TABLE.row("a second deletion: 409", 409)
def delete_again(on: Server) -> Any:
    return on.once(life)["delete again"]


@TABLE.row("after the deletion: 404 by id and by name", 404)
def by_name(on: Server) -> Any:
    return on.once(life)["found by name"]


@TABLE.row("the toolbox of a deleted sandbox that was asked for before: 404 for a while", 404)
def deleted_toolbox(on: Server) -> Any:
    return on.once(life)["toolbox of the deleted"]
