"""The toolbox's sessions: shells that keep their state."""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from support.account import Box, Server
from support.rows import TEXT, By, Like, Row, Table, beginning, containing
from support.waiting import until

TABLE = Table("sessions")
OUT, ERR = "\x01\x01\x01", "\x02\x02\x02"
"""What lines of stdout and of stderr are marked with."""


def test_row(row: Row, hold: Any) -> None:
    hold(TABLE, row)


@contextmanager
def session(box: Box) -> Iterator[str]:
    """A session's address below the toolbox's."""
    name = f"conf-{uuid.uuid4().hex[:8]}"
    box.toolbox.post("/process/session", json={"sessionId": name}).raise_for_status()
    try:
        yield f"/process/session/{name}"
    finally:
        box.toolbox.delete(f"/process/session/{name}")


def run(client: httpx.Client, at: str, command: str, **members: Any) -> httpx.Response:
    return client.post(f"{at}/exec", json={"command": command, **members})


def command_id(answer: httpx.Response) -> str:
    body = answer.json()
    name: str = body.get("cmdId") or body["commandId"]
    return name


@TABLE.row("a session keeps its directory and variables", "/tmp kept\n")
def state(on: Server) -> Any:
    with session(on.box) as at:
        run(on.box.toolbox, at, "cd /tmp; export WORD=kept")
        return run(on.box.toolbox, at, "echo $(pwd) $WORD").json()["output"]


@TABLE.row(
    "async is 202 with all members, sync 200",
    {
        "async": 202,
        "sync": 200,
        "members": Like(
            "cmdId and the four of a result", lambda m: {"cmdId", "exitCode", "output"} <= {*m}
        ),
    },
)
def statuses(on: Server) -> Any:
    with session(on.box) as at:
        later = run(on.box.sdk, at, "true", runAsync=True)
        now = run(on.box.sdk, at, "true")
        return {
            "async": later.status_code,
            "sync": now.status_code,
            "members": sorted(later.json()),
        }


@TABLE.row("an async command's exit code is null until it ends", {"at once": None, "later": 5})
def later(on: Server) -> Any:
    with session(on.box) as at:
        command = command_id(run(on.box.toolbox, at, "read line; sh -c 'exit 5'", runAsync=True))

        def code() -> Any:
            return on.box.toolbox.get(f"{at}/command/{command}").json().get("exitCode")

        at_once = code()
        on.box.toolbox.post(f"{at}/command/{command}/input", json={"data": "x\n"})
        until(lambda: code() is not None, "the command's end")
        return {"at once": at_once, "later": code()}


@TABLE.row("output for an SDK: each line is marked", sorted([f"{OUT}one", f"{ERR}two"]))
def marked(on: Server) -> Any:
    with session(on.box) as at:
        output = run(on.box.sdk, at, "echo one; echo two >&2").json()["output"]
    # The order of the two streams is not kept.
    return sorted(output.splitlines())


@TABLE.row("output for others: no marks", ["one", "two"])
def unmarked(on: Server) -> Any:
    with session(on.box) as at:
        return sorted(
            run(on.box.toolbox, at, "echo one; echo two >&2").json()["output"].splitlines()
        )


@TABLE.row(
    "stdout and stderr: texts for an SDK, null for others",
    {"sdk": ["one\n", "two\n"], "others": [None, None]},
)
def streams(on: Server) -> Any:
    with session(on.box) as at:
        answers = [
            run(client, at, "echo one; echo two >&2").json()
            for client in (on.box.sdk, on.box.toolbox)
        ]
        return dict(
            zip(
                ("sdk", "others"),
                ([one.get("stdout"), one.get("stderr")] for one in answers),
                strict=True,
            )
        )


@TABLE.row("a last line without a newline gets one", "end\n")
def last_line(on: Server) -> Any:
    with session(on.box) as at:
        return run(on.box.toolbox, at, "printf end").json()["output"]


@TABLE.row(
    "a command is sourced from a file under ~/.daytona/sessions, with its log and exit code "
    "beside it",
    {"name": "cmd.sh", "text": True, "exit code": "7"},
)
def files(on: Server) -> Any:
    with session(on.box) as at:
        answer = run(on.box.toolbox, at, "(exit 7) # wonderful")
        name, command = at.rpartition("/")[2], command_id(answer)
        folder = f"{on.box.home}/.daytona/sessions/{name}/{command}"
        listed = on.box.sh(f"ls {folder}").split()
        text = on.box.sh(f"cat {folder}/cmd.sh")
        codes = [on.box.sh(f"cat {folder}/{one}").strip() for one in listed if "exit" in one]
    return {
        "name": next((one for one in listed if one == "cmd.sh"), f"only {listed}"),
        "text": "(exit 7) # wonderful" in text,
        "exit code": codes[0] if codes else None,
    }


@TABLE.row("input: at its end for a sync command", "end\n")
def sync_input(on: Server) -> Any:
    with session(on.box) as at:
        return run(on.box.toolbox, at, "cat; echo end").json()["output"]


@TABLE.row("input: open for an async command, and echoed into the log", ["got word", "word"])
def async_input(on: Server) -> Any:
    with session(on.box) as at:
        command = command_id(run(on.box.toolbox, at, "read line; echo got $line", runAsync=True))
        on.box.toolbox.post(f"{at}/command/{command}/input", json={"data": "word\n"})

        def log() -> str:
            return on.box.toolbox.get(f"{at}/command/{command}/logs").text

        until(lambda: "got word" in log(), "the command")
        return sorted(line.strip("\x01\x02") for line in log().splitlines() if line)


@TABLE.row("logs: plain text without an SDK", {"type": beginning("text/plain"), "text": "one\n"})
def logs(on: Server) -> Any:
    with session(on.box) as at:
        command = command_id(run(on.box.toolbox, at, "echo one"))
        answer = on.box.toolbox.get(f"{at}/command/{command}/logs")
        return {"type": answer.headers["content-type"], "text": answer.text}


@TABLE.row(
    "an unknown session: exec 500, else 404",
    {"exec": 500, "message": containing("not found"), "get": 404, "delete": 404, "command": 404},
)
def unknown(on: Server) -> Any:
    at = "/process/session/none-such"
    answer = run(on.box.toolbox, at, "true")
    return {
        "exec": answer.status_code,
        "message": answer.json().get("message"),
        "get": on.box.toolbox.get(at).status_code,
        "delete": on.box.toolbox.delete(at).status_code,
        "command": on.box.toolbox.get(f"{at}/command/none").status_code,
    }


@TABLE.row("a name that is taken: 409", 409)
def taken(on: Server) -> Any:
    with session(on.box) as at:
        return on.box.toolbox.post(
            "/process/session", json={"sessionId": at.rpartition("/")[2]}
        ).status_code


@TABLE.row("entrypoint is reserved: 400", 400)
def entrypoint(on: Server) -> Any:
    return on.box.toolbox.post("/process/session", json={"sessionId": "entrypoint"}).status_code


@TABLE.row(
    "a command after the session's shell has ended",
    By(
        cloud={"hangs": False, "status": 410, "message": TEXT},
        v0_190={"hangs": True, "status": 500, "message": containing("session cancelled")},
    ),
)
def after_exit(on: Server) -> Any:
    told: dict[str, Any] = {}
    with session(on.box) as at, on.http(on.box.toolbox_url, on.account.api_key) as client:
        shell = run(client, at, "echo $$").json()["output"].strip()
        run(client, at, "exit 3", runAsync=True)
        until(
            lambda: on.box.sh(f"kill -0 {shell} 2>&1 || echo ended"), "the shell's end", every=0.05
        )

        def ask() -> None:
            answer = run(client, at, "true")
            told.update(status=answer.status_code, message=answer.json().get("message", ""))

        asking = threading.Thread(target=ask)
        asking.start()
        asking.join(2)
        hangs = asking.is_alive()
        on.box.toolbox.delete(at)
        asking.join(30)
    return {"hangs": hangs, **told}


@TABLE.row(
    "deleted: SIGTERM to the tree, SIGKILL to who stays; a setsid grandchild lives on",
    {"told": "TERM", "stubborn": False, "setsid grandchild": True},
)
def deleted(on: Server) -> Any:
    folder = on.box.folder()
    wait = "while :; do sleep 0.05; done"
    scripts = {
        "told": f"trap 'echo TERM >{folder}/said; exit' TERM; touch {folder}/told; {wait}",
        "stubborn": f"trap '' TERM; echo $$ >{folder}/stubborn; {wait}",
        "leader": f"echo $$ >{folder}/leader; exec sleep 600",
    }
    for name, script in scripts.items():
        on.box.toolbox.post(
            "/files/upload", params={"path": f"{folder}/{name}.sh"}, files={"file": script.encode()}
        )
    with session(on.box) as at:
        lines = (
            f"sh {folder}/told.sh &",
            f"sh {folder}/stubborn.sh &",
            f"(setsid sh {folder}/leader.sh >/dev/null 2>&1 </dev/null &)",
            "wait",
        )
        run(on.box.toolbox, at, "\n".join(lines), runAsync=True)
        names = ("told", "stubborn", "leader")
        until(lambda: {*names} <= {*on.box.sh(f"ls {folder}").split()}, "the processes", every=0.05)
        on.box.toolbox.delete(at)
    alive = (
        "kill -0 $(cat {0}) 2>/dev/null && ! grep -q '^State:.Z' /proc/$(cat {0})/status && "
        "echo alive; true"
    )
    told = {
        "told": on.box.sh(f"cat {folder}/said 2>/dev/null").strip(),
        "stubborn": "alive" in on.box.sh(f"cd {folder}; {alive.format('stubborn')}"),
        "setsid grandchild": "alive" in on.box.sh(f"cd {folder}; {alive.format('leader')}"),
    }
    on.box.sh(f"kill -9 $(cat {folder}/leader) $(cat {folder}/stubborn) 2>/dev/null; true")
    return told
