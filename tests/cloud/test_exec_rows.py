"""The toolbox's way to run one command: POST process/execute."""

import threading
from typing import Any

import httpx

from support.account import FIRST_SHELL, Box, Server
from support.rows import TEXT, By, Like, Row, Table, beginning, containing
from support.waiting import until

TABLE = Table("exec")


def test_row(row: Row, hold: Any) -> None:
    hold(TABLE, row)


def ran(box: Box, command: str, **members: Any) -> dict[str, Any]:
    """Exit code and output; of a refusal, the status."""
    answer = box.execute(command, **members)
    if answer.status_code != 200:
        return {"status": answer.status_code}
    return {"exitCode": answer.json()["exitCode"], "result": answer.json()["result"]}


def refused(answer: httpx.Response, *names: str) -> dict[str, Any]:
    """Status and some members of an envelope."""
    body = answer.json()
    return {"status": answer.status_code, **{name: body.get(name) for name in names}}


# The shell.


@TABLE.row("the shell is the first of zsh, bash in /etc/shells", True)
def shell(on: Server) -> Any:
    shell, first = (
        on.box.execute(f"readlink /proc/$$/exe\n{FIRST_SHELL}").json()["result"].splitlines()
    )
    return shell == first


@TABLE.row(
    "the script comes on its standard input, so that a command can eat the rest", "echo eaten"
)
def script(on: Server) -> Any:
    return on.box.execute("cat\necho eaten").json()["result"].strip()


@TABLE.row(
    "a process group of its own, not a session",
    {"group": True, "session": False},
    twin="a command is entered into the sandbox from outside, where its group's leader is",
)
def group(on: Server) -> Any:
    shell, group, session = (
        on.box.execute("read -r _ _ _ _ g s _ </proc/$$/stat; echo $$ $g $s")
        .json()["result"]
        .split()
    )
    return {"group": group == shell, "session": session == shell}


@TABLE.row(
    "output is that of the command, exit code 0 and another",
    [{"exitCode": 0, "result": "a\n"}, {"exitCode": 42, "result": ""}],
)
def codes(on: Server) -> Any:
    return [ran(on.box, "echo a"), ran(on.box, "sh -c 'exit 42'")]


@TABLE.row("killed by a signal: exit code -1", -1)
def killed(on: Server) -> Any:
    return on.box.execute("kill -9 $$").json()["exitCode"]


# Environment and directory.


@TABLE.row(
    "environment: Daytona's names and the sandbox's own",
    ["DAYTONA_SANDBOX_ID", "DAYTONA_SANDBOX_SNAPSHOT", "DAYTONA_SANDBOX_USER", "GREETING"],
)
def environment(on: Server) -> Any:
    return sorted(
        names(on)
        & {"DAYTONA_SANDBOX_ID", "DAYTONA_SANDBOX_SNAPSHOT", "DAYTONA_SANDBOX_USER", "GREETING"}
    )


@TABLE.row("environment: no USER, SHELL or TERM", [])
def poor_environment(on: Server) -> Any:
    return sorted(names(on) & {"USER", "SHELL", "TERM"})


def names(on: Server) -> set[str]:
    return {line.partition("=")[0] for line in on.box.execute("env").json()["result"].splitlines()}


@TABLE.row(
    "DAYTONA_SANDBOX_ID is the sandbox's id, DAYTONA_SANDBOX_USER its user",
    {"id": True, "user": True},
)
def identity(on: Server) -> Any:
    identity, user = (
        on.box.execute('echo "$DAYTONA_SANDBOX_ID|$DAYTONA_SANDBOX_USER"')
        .json()["result"]
        .strip()
        .split("|")
    )
    return {"id": identity == on.box.id, "user": user == on.box.seen()["user"]}


@TABLE.row("no credentials of Daytona in the environment", [])
def no_key(on: Server) -> Any:
    return sorted(name for name in names(on) if "API_KEY" in name or "TOKEN" in name)


@TABLE.row("directory: the home by default", {"exitCode": 0, "result": "/home/daytona\n"})
def default_directory(on: Server) -> Any:
    return ran(on.box, "pwd")


@TABLE.row("directory: a relative one is taken from the default", "below")
def relative_directory(on: Server) -> Any:
    folder = on.box.folder()
    on.box.sh(f"mkdir {folder}/below")
    relative = f"{folder}/below".removeprefix(f"{on.box.home}/")
    return on.box.execute("pwd", cwd=relative).json()["result"].strip().rpartition("/")[2]


MISSING = Like(
    "fork/exec SHELL: no such file or directory",
    lambda text: (
        text.startswith("fork/exec /") and text.strip().endswith("sh: no such file or directory")
    ),
)


@TABLE.row(
    "directory: a missing one is 200 with -1, and the text names the shell",
    {"exitCode": -1, "result": MISSING},
)
def missing_directory(on: Server) -> Any:
    return ran(on.box, "pwd", cwd="/no/such/folder")


@TABLE.row("directory: ~ is not expanded", {"exitCode": -1, "result": MISSING})
def tilde(on: Server) -> Any:
    return ran(on.box, "pwd", cwd="~")


@TABLE.row("variables are given as they are", {"exitCode": 0, "result": "a b|$A 'x'\n"})
def given(on: Server) -> Any:
    return ran(on.box, 'echo "$A|$B"', envs={"A": "a b", "B": "$A 'x'"})


@TABLE.row("variables: other names are 400", {"1A": 400, "A-B": 400, "": 400, "A B": 400})
def names_refused(on: Server) -> Any:
    return {
        name: on.box.execute("true", envs={name: "x"}).status_code
        for name in ("1A", "A-B", "", "A B")
    }


@TABLE.row(
    "variables: other values than texts are 400",
    {"number": 400, "null": Like("200 or 400", lambda s: s in (200, 400))},
)
def values_refused(on: Server) -> Any:
    return {
        kind: on.box.execute("true", envs={"A": value}).status_code
        for kind, value in (("number", 1), ("null", None))
    }


# Time.


@TABLE.row(
    "time-out: 408, the output is lost",
    By(
        cloud={
            "status": 408,
            "code": "PROCESS_EXECUTION_TIMEOUT",
            "message": TEXT,
            "with the output": False,
        },
        v0_190={
            "status": 408,
            "code": "REQUEST_TIMEOUT",
            "message": "request timeout: command execution timeout",
            "with the output": False,
        },
    ),
)
def timeout(on: Server) -> Any:
    answer = on.box.execute("echo before; sleep 60", timeout=1)
    return {**refused(answer, "code", "message"), "with the output": "before" in answer.text}


@TABLE.row(
    "time-out: the process group is killed, children too; a setsid child lives on",
    {"child": False, "setsid child": True},
)
def timeout_children(on: Server) -> Any:
    folder = on.box.folder()
    # bash and zsh alike: the first child is a group member, the second leads a session.
    lines = (
        f"cd {folder}",
        "sh -c 'echo $$ >child; exec sleep 600' &",
        "setsid sh -c 'echo $$ >leader; exec sleep 600' >/dev/null 2>&1 </dev/null &",
        "while ! [ -s child ] || ! [ -s leader ]; do sleep 0.05; done",
        "sleep 600",
    )
    on.box.execute("\n".join(lines), timeout=2)
    alive = (
        "kill -0 $(cat {0}) 2>/dev/null && ! grep -q '^State:.Z' /proc/$(cat {0})/status && "
        "echo alive; true"
    )
    until(
        lambda: not on.box.sh(f"cd {folder}; {alive.format('child')}"),
        "the child's end",
        seconds=10,
        every=0.1,
    )
    told = {
        "child": False,
        "setsid child": "alive" in on.box.sh(f"cd {folder}; {alive.format('leader')}"),
    }
    on.box.sh(f"kill -9 $(cat {folder}/leader) 2>/dev/null; true")
    return told


@TABLE.row(
    "time-out 0 is none; negative, with a fraction or as a text it is 400",
    {"0": 200, "-1": 400, "1.5": 400, "text": 400},
)
def timeouts(on: Server) -> Any:
    asked: dict[str, Any] = {"0": 0, "-1": -1, "1.5": 1.5, "text": "5"}
    return {
        name: on.box.execute("true", timeout=value).status_code for name, value in asked.items()
    }


@TABLE.row("the client goes away: the command runs on", "done\n")
def client_leaves(on: Server) -> Any:
    folder = on.box.folder()
    script = f"cd {folder}; touch begun; while ! [ -e go ]; do sleep 0.05; done; echo done >end"
    with on.http(on.box.toolbox_url, on.account.api_key) as leaving:

        def ask() -> None:
            try:
                leaving.post("/process/execute", json={"command": script}, timeout=2)
            except httpx.TransportError:
                pass  # it left, as it should

        asking = threading.Thread(target=ask)
        asking.start()
        until(lambda: on.box.sh(f"ls {folder}"), "the command", every=0.05)
        asking.join()
    on.box.sh(f"touch {folder}/go")
    return until(
        lambda: on.box.sh(f"cat {folder}/end 2>/dev/null"), "the command's end", every=0.05
    )


@TABLE.row("ten at once wait for each other", ["10\n"])
def at_once(on: Server) -> Any:
    folder = on.box.folder()
    script = (
        f'cd {folder}; mktemp -p . XXXXXX >/dev/null; while [ "$(ls | wc -l)" -lt 10 ]; do '
        "sleep 0.05; done; echo 10"
    )
    results: list[str] = []
    threads = [
        threading.Thread(target=lambda: results.append(on.box.sh(script, timeout=30)))
        for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 10
    return sorted(set(results))


# Texts.


@TABLE.row(
    "output: stdout and stderr in one text, in order", {"exitCode": 3, "result": "1\n2\n3\n"}
)
def order(on: Server) -> Any:
    return ran(on.box, "echo 1; echo 2 >&2; echo 3; exit 3")


@TABLE.row(
    "output: what is not UTF-8 becomes U+FFFD; NUL and carriage return stay", "ä \ufffd \0 \r end"
)
def odd_bytes(on: Server) -> Any:
    return on.box.execute(r"printf '\303\244 \377 \000 \r end'").json()["result"]


@TABLE.row("output: 12 MB come whole", {"length": 12_000_000, "end": "xend"})
def long_output(on: Server) -> Any:
    result = on.box.execute("head -c 11999997 /dev/zero | tr '\\0' x; printf end").json()["result"]
    return {"length": len(result), "end": result[-4:]}


@TABLE.row("a command of 3 MB", {"exitCode": 0, "result": "3000000\n"})
def long_command(on: Server) -> Any:
    return ran(on.box, f"wc -c <<'END' | tr -d ' '\n{'x' * 2_999_999}\nEND")


@TABLE.row("a heredoc", {"exitCode": 0, "result": "$x `y`\n"})
def heredoc(on: Server) -> Any:
    return ran(on.box, "cat <<'EOF'\n$x `y`\nEOF")


# Refusals.


@TABLE.row(
    "the envelope of a refusal",
    By(
        cloud={
            "status": 400,
            "content": containing("application/json"),
            "members": Like(
                "source, and what 0.190 has",
                lambda m: {"source", "statusCode", "message", "code"} <= {*m},
            ),
            "path": containing("/process/execute"),
            "message": TEXT,
        },
        v0_190={
            "status": 400,
            "content": containing("application/json"),
            "members": ["code", "message", "method", "path", "statusCode", "timestamp"],
            "path": "/process/execute",
            "message": TEXT,
        },
    ),
)
def envelope(on: Server) -> Any:
    answer = on.box.execute("true", timeout="x")
    body = answer.json()
    return {
        "status": answer.status_code,
        "content": answer.headers["content-type"],
        "members": sorted(body),
        "path": body.get("path"),
        "message": body.get("message"),
    }


@TABLE.row(
    "messages begin with their kind",
    By(
        cloud=dict.fromkeys(("400", "404", "409"), TEXT),
        v0_190={
            "400": beginning("bad request: "),
            "404": beginning("not found: "),
            "409": beginning("conflict: "),
        },
    ),
)
def messages(on: Server) -> Any:
    def session() -> httpx.Response:
        return on.box.toolbox.post("/process/session", json={"sessionId": "conf-messages"})

    session()
    answers = [
        on.box.execute("true", envs={"1A": "x"}),
        on.box.toolbox.get("/process/session/none-such"),
        session(),
    ]
    on.box.toolbox.delete("/process/session/conf-messages")
    return {str(answer.status_code): answer.json().get("message") for answer in answers}


@TABLE.row(
    "an unknown route is a plain 404",
    {"status": 404, "text": "404 page not found", "content": beginning("text/plain")},
)
def unknown_route(on: Server) -> Any:
    answer = on.box.toolbox.get("/no/such/route")
    return {
        "status": answer.status_code,
        "text": answer.text.strip(),
        "content": answer.headers["content-type"],
    }


# Code.


@TABLE.row("code-run runs Python", {"exitCode": 0, "result": "42\n"})
def code(on: Server) -> Any:
    answer = on.box.toolbox.post(
        "/process/code-run", json={"code": "print(6 * 7)", "language": "python"}
    ).json()
    return {"exitCode": answer["exitCode"], "result": answer["result"]}
