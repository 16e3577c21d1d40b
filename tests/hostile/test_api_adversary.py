"""The API as an adversary: what it answers is data, of bounded size and time, and the key goes to
no other host.

The bounds stand in git-daytona-security(7).
"""

import gc
import gzip
import json
import socket
import threading
import urllib.request
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from git_daytona.api import http
from git_daytona.api.account import Account
from git_daytona.api.cloud import Cloud
from git_daytona.base.endpoint import from_ssh_command, toolbox_base
from git_daytona.base.errors import ApiUnreachable, BadAnswer, GitDaytonaError, RateLimited
from git_daytona.settings.settings import load
from git_daytona.trust import published
from support.evil_api import EvilApi, response, serving

KEY = "dtn_adversary_0123456789"
LONG = 1000
"""The longest message or hint that a person is shown, characters."""


@pytest.fixture(scope="module")
def evil() -> Iterator[EvilApi]:
    with serving() as server:
        yield server


@pytest.fixture
def account(evil) -> Account:
    evil.requests.clear()
    evil.sent = 0
    return Account(load(None, {"DAYTONA_API_URL": evil.url, "DAYTONA_API_KEY": KEY}))


@pytest.fixture
def cloud(evil, account, genuine) -> Cloud:
    made = Cloud(account.settings)
    made.start_seconds = 0.1
    evil.answer = as_if_genuine(evil, genuine)
    made.get(genuine["id"])
    return made


@pytest.fixture
def genuine(local) -> dict:
    """A sandbox as daytona-local describes it."""
    request = urllib.request.Request(f"{local.api_url}/sandbox", method="POST", data=b"{}")
    request.add_header("Authorization", f"Bearer {local.api_key}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def as_if_genuine(evil, genuine, **other):
    """The sandbox for what asks for it; ``other`` for what a path ends with."""
    body = json.dumps(
        genuine | {"state": "started", "toolboxProxyUrl": f"{evil.url}/toolbox"}
    ).encode()

    def answer(method, path):
        place = path.split("?")[0].rsplit("/", 1)[-1].replace("-", "_")
        return other.get(place, response(body)) if place in other else response(body)

    return answer


def calls(account: Account):
    return {
        "config": account.config,
        "key_info": account.key_info,
        "snapshot_state": lambda: account.snapshot_state("s"),
        "mint": lambda: account.mint("sandbox", 10),
        "revoke": lambda: account.revoke("sandbox", None),
    }


def sandbox_calls(cloud: Cloud, sandbox_id: str):
    return {
        "get": lambda: cloud.get(sandbox_id),
        "find": lambda: cloud.find({"a": "b"}),
        "create": lambda: cloud.create({"a": "b"}),
        "execute": lambda: cloud.execute(sandbox_id, "true", timeout=5),
        "preview": lambda: cloud.preview(sandbox_id, 3000, seconds=60),
        "delete": lambda: cloud.delete(sandbox_id),
    }


def fit(problem: GitDaytonaError) -> None:
    """What people are told of it is one line, short, and moves no cursor."""
    for text in (problem.message, problem.hint or ""):
        assert text.isprintable() and len(text) <= LONG, repr(text[:2000])
        assert KEY not in text
    assert KEY not in (problem.details or "")


# -- size and time ---------------------------------------------------------------------------------


def pieces(evil: EvilApi, head: bytes, piece: bytes) -> Iterator[bytes]:
    yield head
    while True:
        yield piece


def slowly(evil: EvilApi, head: bytes, piece: bytes) -> Iterator[bytes]:
    yield head
    while not evil.over.wait(0.02):
        yield piece


def connections(evil: EvilApi) -> list[socket.socket]:
    """Ours to the server, as far as they are open."""
    evil.over.set()
    evil.over = threading.Event()
    return [
        each
        for each in gc.get_objects()
        if isinstance(each, socket.socket) and _peer(each) == evil.server_address
    ]


def _peer(each: socket.socket) -> object:
    try:
        return each.getpeername()
    except OSError:  # closed, or one that listens
        return None


def endless(evil: EvilApi):
    ok = b"HTTP/1.1 200 OK\r\n"
    chunked = ok + b"Transfer-Encoding: chunked\r\n\r\n"
    return {
        "a long body": lambda m, p: pieces(
            evil, ok + b"Content-Length: 9999999999\r\n\r\n{", b" " * 65536
        ),
        "endless chunks": lambda m, p: pieces(evil, chunked, b"10000\r\n" + b" " * 65536 + b"\r\n"),
        "no length": lambda m, p: pieces(evil, ok + b"\r\n", b" " * 65536),
        "endless header": lambda m, p: pieces(evil, ok, b"X: " + b"x" * 60000),
        "endless headers": lambda m, p: pieces(evil, ok, b"X: x\r\n" * 1000),
        "endless chunk size": lambda m, p: pieces(evil, chunked, b"0" * 65536),
        "endless trailer": lambda m, p: pieces(
            evil, chunked + b"2\r\n{}\r\n0\r\n", b"X: x\r\n" * 1000
        ),
        "endless 100": lambda m, p: pieces(evil, b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
        "slow body": lambda m, p: slowly(evil, ok + b"Content-Length: 9999999999\r\n\r\n", b" "),
        "slow chunks": lambda m, p: slowly(evil, chunked, b"1\r\n \r\n"),
        "slow header": lambda m, p: slowly(evil, ok, b"x"),
        "slow status": lambda m, p: slowly(evil, b"H", b"T"),
        "slow 100": lambda m, p: slowly(evil, b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    }


def test_an_answer_that_does_not_end(evil, account, monkeypatch):
    monkeypatch.setattr(http, "ANSWER_BYTES", 1024 * 1024)
    account.request_seconds = 0.5
    for how, answer in endless(evil).items():
        evil.answer, evil.sent = answer, 0
        with pytest.raises((BadAnswer, ApiUnreachable)) as raised:
            account.config()
        fit(raised.value)
        assert connections(evil) == [], f"{how}: the connection was left open"
        if not how.endswith(("trailer", "100")):  # of these nothing is kept while they are read
            assert evil.sent < 16 * 1024 * 1024, how


def test_an_answer_of_the_sandbox_that_does_not_end(evil, cloud, genuine, monkeypatch):
    """The toolbox, to which commands go, lies with the sandbox: it is bounded, too, and asked
    once."""
    monkeypatch.setattr(http, "ANSWER_BYTES", 1024 * 1024)
    ways, before = endless(evil), connections(evil)
    for how in ("a long body", "endless chunks", "slow chunks"):
        evil.requests.clear()
        evil.sent = 0
        evil.answer = as_if_genuine(evil, genuine, execute=ways[how]("", ""))
        monkeypatch.setattr("git_daytona.api.toolbox.MARGIN_SECONDS", 0)
        with pytest.raises((BadAnswer, ApiUnreachable)) as raised:
            cloud.execute(genuine["id"], "true", timeout=1)
        fit(raised.value)
        assert not [each for each in connections(evil) if each not in before], how
        assert (
            len([each for each in evil.requests if b"/execute" in each.split(b"\r\n")[0]]) == 1
        ), how


def test_a_compressed_answer(evil, account):
    """A kilobyte may unpack to a gigabyte, and nothing compressed was asked for."""
    bomb = gzip.compress(b"{" + b" " * 10_000_000)
    evil.answer = lambda method, path: response(bomb, "Content-Encoding: gzip")
    for call in calls(account).values():
        with pytest.raises(BadAnswer, match="compressed"):
            call()
    assert all(b"Accept-Encoding: identity" in each for each in evil.requests)


def test_a_large_answer_that_is_allowed(evil, account):
    body = json.dumps({"sshGatewayHost": "h", "x": "y" * 1_000_000}).encode()
    evil.answer = lambda method, path: response(body)
    assert account.config()["sshGatewayHost"] == "h"
    assert account.config()["sshGatewayHost"] == "h"
    evil.answer = lambda method, path: response(json.dumps({"x": "y" * 2_000_000}).encode())
    with pytest.raises(BadAnswer):
        account.config()


def test_connections_are_used_again(evil, account):
    evil.answer = lambda method, path: response(b'{"name": "n"}')
    before = evil.connections
    for _ in range(20):
        account.key_info()
    assert evil.connections == before + 1
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(5)
            assert not thread.is_alive()


# -- other hosts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "status",
    ["301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"],
)
def test_a_redirect(evil, cloud, genuine, status):
    with serving() as other:
        for location in (f"{other.url}/api/x", f"//127.0.0.1:{other.server_address[1]}/x"):
            away = response(b"", f"Location: {location}", status=status)
            for name, call in (calls(cloud) | sandbox_calls(cloud, genuine["id"])).items():
                evil.answer = lambda method, path, away=away: away
                with pytest.raises(GitDaytonaError) as raised:
                    call()
                fit(raised.value)
                assert other.requests == [], f"{name} followed {status} to another host"


def test_the_key_goes_where_it_belongs(evil, account):
    """Into the one header, never into a URL, a cookie or a body; /config needs none."""
    for call in calls(account).values():
        with pytest.raises(GitDaytonaError):
            evil.answer = lambda method, path: response(b"", "Set-Cookie: a=b", status="500 No")
            call()
    for each in evil.requests:
        head = each.split(b"\r\n")
        lines = [line for line in head if KEY.encode() in line]
        wanted = [] if b"/config" in head[0] else [f"Authorization: Bearer {KEY}".encode()]
        assert lines == wanted, head[0]
        assert b"Cookie" not in each


# -- answers that make no sense --------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["\x1b[2J", "a\nb", "-oProxyCommand=x"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=8,
)
FIELDS = [
    *(
        "token",
        "sshCommand",
        "expiresAt",
        "id",
        "sandboxId",
        "name",
        "permissions",
        "state",
        "labels",
        "items",
        "url",
        "public",
    ),
    *(
        "exitCode",
        "result",
        "message",
        "error",
        "statusCode",
        "sshGatewayHost",
        "sshGatewayPort",
        "sshGatewayHostKeys",
    ),
    *(
        "sshGatewayHostKeyFingerprints",
        "sshGatewayCommand",
        "errorReason",
        "recoverable",
        "toolboxProxyUrl",
        "createdAt",
        "nextCursor",
    ),
]
OBJECTS = st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6)
FEW = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)


def harmless(call, name: str, note: object) -> None:
    """It gives a value or one of our errors, fit to be shown, and nothing else."""
    try:
        call()
    except GitDaytonaError as problem:
        fit(problem)
    except Exception as problem:
        raise AssertionError(f"{name} of {note!r} raised {problem!r}") from problem


@FEW
@given(
    answer=JSON | OBJECTS,
    status=st.sampled_from(
        ["200 OK", "201 Created", "204 No Content", "400 Bad", "404 No", "500 Oh"]
    ),
)
def test_any_json(evil, account, answer, status):
    evil.answer = lambda method, path: response(json.dumps(answer).encode(), status=status)
    for name, call in calls(account).items():
        harmless(call, name, answer)
    try:
        published.read(account.config())
    except GitDaytonaError as problem:
        fit(problem)


@FEW
@given(
    change=OBJECTS,
    whole=st.booleans(),
    status=st.sampled_from(["200 OK", "201 Created", "400 Bad", "404 No"]),
)
def test_any_sandbox(evil, cloud, genuine, change, whole, status):
    change.pop("toolboxProxyUrl", None)  # of another host's name; see the next test
    body = json.dumps(change if whole else genuine | change).encode()
    evil.answer = lambda method, path: response(body, status=status)
    for name, call in sandbox_calls(cloud, genuine["id"]).items():
        harmless(call, name, change)


BODIES = [
    b"",
    b"null",
    b"[]",
    b"7",
    b'"x"',
    b"<html><body>Sign in</body></html>",
    b"{",
    b"\xff\xfe{\x00}\x00",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b'{"token": 1e999}',
    b"9" * 10_000,
    b'{"token": "\\ud800"}',
    b'{"token": ["x"]}',
    b"\x00" * 1000,
    b'{"message": "\\u001b[2J\\u009b1m\\nx"}',
]


def test_answers_that_are_no_answers(evil, cloud, genuine):
    for status in ("200 OK", "400 Bad Request", "500 Internal"):
        for kind in ("application/json", "text/html", "nonsense"):
            for body in BODIES:
                evil.answer = lambda method, path, body=body, kind=kind, status=status: response(
                    body, status=status, kind=kind
                )
                for name, call in (calls(cloud) | sandbox_calls(cloud, genuine["id"])).items():
                    harmless(call, name, (status, kind, body[:40]))


def test_what_is_no_http(evil, account):
    for answer in (
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}",
        b"\0" * 100,
        b"\r\n",
    ):
        evil.answer = lambda method, path, answer=answer: [answer, *_end()]
        for name, call in calls(account).items():
            harmless(call, name, answer)


def _end() -> Iterator[bytes]:
    raise BrokenPipeError
    yield b""


def test_headers(evil, account):
    """Of a refusal to answer, what it says of when to ask again; of any answer, its date."""
    for text in (
        "\xb2",
        "9" * 5000,
        "-1",
        "1e999",
        "nan",
        "inf",
        "\x1b[2J",
        "Thu, 99 Foo 9999",
        "",
        "0x1",
    ):
        evil.answer = lambda method, path, text=text: response(
            b"{}", f"Retry-After: {text}", f"Date: {text}", status="429 Wait"
        )
        with pytest.raises(RateLimited) as raised:
            account.key_info()
        assert raised.value.retry_after is None, text
        evil.answer = lambda method, path, text=text: response(b'{"name": "n"}', f"Date: {text}")
        assert account.key_info().name == "n"


# -- what becomes an argument, a configuration line or a link --------------------------------------

TOKENS = [
    "",
    "-",
    "-oProxyCommand=touch /tmp/x",
    "a b c d e f g",
    "abcdefgh\nProxyCommand x",
    "abcdefgh\r",
    "abcdefgh\0",
    "abcd@efgh",
    "abcd/efgh",
    "abcd%hefgh",
    "abcd${HOME}",
    'abcd"efgh',
    "abcd'efgh",
    "abcdefgh\x1b[2J",
    "abcdefgh\u202e",
    "\u0430bcdefgh",
    "x" * 600,
    12345678,
    None,
    ["abcdefgh"],
]


def test_tokens(evil, account):
    good = {
        "id": "1",
        "sandboxId": "s",
        "token": "abcdefgh12",
        "expiresAt": "2030-01-01T00:00:00Z",
        "createdAt": "2030-01-01T00:00:00Z",
    }
    good |= {"updatedAt": "2030-01-01T00:00:00Z", "sshCommand": "ssh -p 2222 abcdefgh12@gateway"}
    evil.answer = lambda method, path: response(json.dumps(good).encode())
    assert account.mint("s", 10).token.reveal() == "abcdefgh12"
    for token in TOKENS:
        evil.answer = lambda method, path, token=token: response(
            json.dumps(good | {"token": token}).encode()
        )
        with pytest.raises(BadAnswer) as raised:
            account.mint("s", 10)
        fit(raised.value)


HOSTS = [
    "-oProxyCommand=x",
    "a b",
    "a\nb",
    "a\rb",
    "a\0b",
    "a/b",
    "a@b@-x",
    "$(x)",
    "`x`",
    "a;b",
    "a|b",
    "%h",
    "a\u202eb",
    "\u0430",
    ".",
    "-",
    "a" * 300,
    "gateway\x1b[2J",
    "*",
    "?",
    "!x",
    "a,b",
    "a'b",
    'a"b',
    "a\\b",
    "a#b",
    "ext::sh -c x",
    "file:///etc",
    "a=b",
]


def test_hosts_and_ports():
    for host in HOSTS:
        with pytest.raises(BadAnswer) as raised:
            published.read({"sshGatewayHost": host, "sshGatewayPort": 22})
        fit(raised.value)
    for port in (0, -1, 65536, "22", "-oX", 1e300, float("inf"), float("nan"), 2.5, True, [], {}):
        with pytest.raises(BadAnswer):
            published.read({"sshGatewayHost": "gateway", "sshGatewayPort": port})
    for command in (
        "ssh",
        "ssh -p x h",
        "sh -c x",
        "ssh '",
        "ssh -oProxyCommand=x",
        "ssh -p 22 user@-oX",
        "x" * 5000,
        7,
    ):
        with pytest.raises(BadAnswer):
            from_ssh_command(command)


LINKS = [
    "javascript:alert(1)",
    "file:///etc/passwd",
    "data:text/html,x",
    "//evil/",
    "http://",
    "https:///x",
    "http://u:p@h/",
    "http://h:99999/",
    "",
    "http://h/\nSet-Cookie: x",
    "http://h/\x1b[2J",
    "http://h /",
    "ftp://h/",
    "vscode://x",
    "HTTP",
    "http://h/" + "x" * 5000,
    "http://[::1",
    "http://h/\u202e",
]


def test_where_commands_go():
    """The key goes along: to a web address, and over TLS if the API is reached so."""
    for link in (*LINKS, "http://h/?a=b", "http://h/#x", "https://u@h/", 7, None, ["http://h/"]):
        with pytest.raises(BadAnswer) as raised:
            toolbox_base(link, "http://127.0.0.1:1/api")
        fit(raised.value)
    with pytest.raises(BadAnswer, match="without TLS"):
        toolbox_base("http://proxy.example/toolbox", "https://app.example/api")
    assert (
        toolbox_base("https://proxy.example/toolbox/", "https://app.example/api")
        == "https://proxy.example/toolbox"
    )


def test_preview_links(evil, cloud, genuine):
    signed = {"sandboxId": genuine["id"], "port": 3000, "token": "t"}
    for link in LINKS:
        evil.answer = lambda method, path, link=link: response(
            json.dumps(signed | {"url": link}).encode()
        )
        with pytest.raises(BadAnswer) as raised:
            cloud.preview(genuine["id"], 3000, seconds=60)
        fit(raised.value)
    good = "https://3000-token.proxy.example:8443/path?a=b#c"
    evil.answer = lambda method, path: response(json.dumps(signed | {"url": good}).encode())
    assert cloud.preview(genuine["id"], 3000, seconds=60) == good
