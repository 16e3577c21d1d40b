"""How the toolbox refuses, by profile; ports, and what is decided on values."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from git_daytona.local.core.model import ApiError
from git_daytona.local.toolbox import execute
from git_daytona.local.toolbox.search import name_expression
from support.toolbox_http import DAEMON_ENVELOPE, Box
from support.waiting import until


def test_messages_begin_with_their_kind(box: Box) -> None:
    answer = box.call("POST", "process/session", json={"sessionId": ""}).json()
    assert answer["message"] == "bad request: sessionId is required"
    box.call("POST", "process/session", json={"sessionId": "s"})
    assert (
        box.call("POST", "process/session", json={"sessionId": "s"})
        .json()["message"]
        .startswith("conflict: ")
    )


@pytest.mark.parametrize("body", [{"command": ""}, {}])
def test_no_command_is_an_invalid_body(box: Box, body: dict[str, str]) -> None:
    answer = box.call("POST", "process/execute", json=body).json()
    assert (answer["statusCode"], answer["code"]) == (400, "INVALID_REQUEST_BODY")
    assert answer["message"].startswith(
        "invalid body request: invalid request body: Key: 'ExecuteRequest.Command' Error:"
    )


@pytest.mark.parametrize("body", [{"command": ""}, {}])
def test_an_older_daemon_asks_for_a_command(old: Box, body: dict[str, str]) -> None:
    answer = old.call("POST", "process/execute", json=body).json()
    assert (answer["code"], answer["message"]) == (
        "BAD_REQUEST",
        "bad request: command is required",
    )


def test_json_has_no_blanks(box: Box) -> None:
    for answer in (
        box.client.get(f"sandbox/{box.id}"),
        box.client.get("sandbox/none"),
        box.call("GET", "files"),
        box.call("GET", "process/session/none"),
    ):
        assert answer.text == json.dumps(answer.json(), separators=(",", ":"))


def test_an_older_daemon_names_no_source_and_fewer_kinds(old: Box) -> None:
    for status, code, message, answer in (
        (
            408,
            "REQUEST_TIMEOUT",
            "request timeout: command execution timeout",
            old.execute("sleep 30", timeout=1),
        ),
        (404, "NOT_FOUND", "not found: session not found", old.call("GET", "process/session/none")),
    ):
        assert (answer.status_code, set(answer.json())) == (status, DAEMON_ENVELOPE - {"source"})
        assert (answer.json()["code"], answer.json()["message"]) == (code, message)


def test_an_older_daemon_has_errors_of_its_own_for_terminals(old: Box) -> None:
    # It knows no create-connect, and takes it for a terminal of that name.
    for path in ("none", "create-connect?id=x"):
        answer = old.call("GET", f"process/pty/{path}")
        assert (answer.status_code, answer.json()) == (404, {"error": "PTY session not found"})


@pytest.mark.parametrize(
    "method, path",
    [
        ("POST", "files/upload-v2?path=x"),
        ("GET", "system/metrics"),
        ("POST", "git/init"),
        ("GET", "nothing"),
    ],
)
def test_calls_that_an_older_daemon_does_not_know(old: Box, method: str, path: str) -> None:
    answer = old.call(method, path)
    assert (answer.status_code, answer.text, answer.headers["Content-Type"][:10]) == (
        404,
        "404 page not found",
        "text/plain",
    )


def test_calls_that_no_daemon_knows(box: Box) -> None:
    assert (box.call("GET", "nothing").status_code, box.call("GET", "nothing").text) == (
        404,
        "404 page not found",
    )
    assert box.call("GET", "project-dir").json() == {"dir": "/home/daytona"}


def test_a_terminals_environment_is_shown(box: Box) -> None:
    box.call("POST", "process/pty", json={"id": "t", "envs": {"A": "b"}})
    assert box.call("GET", "process/pty/t").json()["envs"] == {"TERM": "xterm-256color", "A": "b"}
    assert box.refused(400, "POST", "process/pty", json={"id": "u", "cols": 1001}) == "BAD_REQUEST"


def listening(family: socket.AddressFamily, address: str) -> socket.socket:
    """A listener on a port that Daytona looks at."""
    for port in range(9999, 3000, -1):
        listener = socket.socket(family)
        try:
            if family is socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((address, port))
            listener.listen()
            return listener
        except OSError:
            listener.close()
    raise AssertionError("no port is free")


def test_listeners_are_found_if_they_speak_ipv4(box: Box) -> None:
    with listening(socket.AF_INET, "127.0.0.1") as one, listening(socket.AF_INET6, "::1") as other:
        four, six = one.getsockname()[1], other.getsockname()[1]
        until(lambda: four in box.call("GET", "port").json()["ports"])
        assert six == four or six not in box.call("GET", "port").json()["ports"]
        assert box.call("GET", f"port/{four}/in-use").json() == {"isInUse": True}
    assert box.call("GET", f"port/{four}/in-use").json() == {"isInUse": False}
    for bad in ("2999", "10000", "x"):
        assert box.refused(400, "GET", f"port/{bad}/in-use") == "BAD_REQUEST"


def test_a_port_is_reached_through_the_daemon(box: Box) -> None:
    with listening(socket.AF_INET, "127.0.0.1") as listener:
        port = listener.getsockname()[1]
        listener.settimeout(10)

        def serve() -> bytes:
            connection, _ = listener.accept()
            with connection:
                asked = connection.recv(65536)
                connection.sendall(
                    b"HTTP/1.1 203 Odd\r\nX-A: b\r\nContent-Length: 5\r\nConnection: "
                    b"close\r\n\r\nhello"
                )
            return asked

        with ThreadPoolExecutor() as pool:
            asked = pool.submit(serve)
            answer = box.call("GET", f"proxy/{port}/a%2Fb?c=%20d")
            assert (answer.status_code, answer.text, answer.headers["X-A"]) == (203, "hello", "b")
            assert asked.result(10).startswith(b"GET /a%2Fb?c=%20d HTTP/1.1\r\n")
            assert box.local.api_key.encode() not in asked.result()
    assert box.call("GET", f"proxy/{port}/").status_code == 502


@pytest.mark.parametrize(
    "listed, found",
    [
        ("/bin/sh\n/bin/bash\n/usr/bin/bash\n", "/usr/bin/bash"),
        ("# none of ours\n/bin/sh\n", "/bin/sh"),
        ("", "/bin/sh"),
    ],
)
def test_the_shell_is_one_of_etc_shells(tmp_path: Path, listed: str, found: str) -> None:
    (tmp_path / "shells").write_text(listed)
    assert execute.shell(tmp_path / "shells") == found
    assert execute.shell(tmp_path / "missing") == "/bin/sh"


NAMES: list[tuple[str, list[str], list[str]]] = [
    ("*.py", ["a.py", ".py"], ["a.pyc", "a.PY"]),
    ("t?st", ["test", "täst"], ["tst"]),
    ("{a,b}", ["{a,b}"], ["a"]),
    ("[a-c]x", ["ax", "cx"], ["dx", "[a-c]x"]),
    ("[^a-c]x", ["dx"], ["ax"]),
    ("[!a]x", ["!x", "ax"], ["bx"]),
    ("a**b", ["ab", "axxb"], ["a"]),
    (r"\*", ["*"], ["a"]),
    (r"[\]&|~[]", ["]", "&", "|", "~", "["], ["a"]),
    ("a.b", ["a.b"], ["axb"]),
]


@pytest.mark.parametrize("pattern, matching, others", NAMES)
def test_patterns_of_names(pattern: str, matching: list[str], others: list[str]) -> None:
    expression = name_expression(pattern)
    assert [name for name in (*matching, *others) if expression.fullmatch(name)] == matching


@pytest.mark.parametrize("pattern", ["[", "[]a]", "[b-a]", "a\\"])
def test_broken_patterns(pattern: str) -> None:
    with pytest.raises(ApiError):
        name_expression(pattern)
