"""Proxies and certificates of the environment, the words of what hinders a connection and of what a
server refuses, and errors that are raised twice."""

import asyncio
import contextlib
import datetime
import json
import os
import re
import socket
import ssl
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme

import git_daytona
from git_daytona.api import network
from git_daytona.api.account import Account
from git_daytona.api.failures import from_status, said
from git_daytona.base import errors, secret
from git_daytona.base.errors import (
    ApiUnreachable,
    BadSetting,
    CertificateRefused,
    Forbidden,
    GitDaytonaError,
    LimitReached,
    ProxyRefused,
    RateLimited,
)
from git_daytona.settings import settings
from git_daytona.trust.gateway import Policy
from git_daytona.trust.published import PublishedConfig
from support.evil_api import serving as answering
from support.proxy import Proxy, serving, to

API = "https://app.daytona.io/api"
KEY = "dtn_network_0123456789"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave even this machine's certificates to the system."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)


async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer TLS as a server without it does."""
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    await writer.drain()
    writer.close()


def at(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def ask(url: str, seconds: float = 10) -> dict:
    account = Account(settings.load(None, {"DAYTONA_API_URL": url, "DAYTONA_API_KEY": KEY}))
    account.request_seconds = seconds
    return account.config()


# -- which proxy -----------------------------------------------------------------------------------


def test_case_94_which_proxy_is_used(monkeypatch):
    examples = {
        # environment, URL → the proxy and the variable that names it
        "none": ({}, API, None),
        "https": ({"HTTPS_PROXY": "http://p:1"}, API, "http://p:1 HTTPS_PROXY"),
        "lower case first": (
            {"HTTPS_PROXY": "http://p:1", "https_proxy": "http://q:2"},
            API,
            "http://q:2 https_proxy",
        ),
        "an empty one is none": ({"HTTPS_PROXY": "http://p:1", "https_proxy": ""}, API, None),
        "the other scheme's": ({"HTTP_PROXY": "http://p:1"}, API, None),
        "http": ({"HTTP_PROXY": "http://p:1"}, "http://d.example/api", "http://p:1 HTTP_PROXY"),
        "all": ({"all_proxy": "http://p:1"}, API, "http://p:1 all_proxy"),
        "its own before all": (
            {"ALL_PROXY": "socks5://p:1", "HTTPS_PROXY": "http://q:2"},
            API,
            "http://q:2 HTTPS_PROXY",
        ),
        "without a scheme": ({"HTTPS_PROXY": "p:1"}, API, "http://p:1 HTTPS_PROXY"),
        "over TLS": ({"HTTPS_PROXY": "https://p/"}, API, "https://p HTTPS_PROXY"),
        "of IPv6": (
            {"HTTPS_PROXY": "http://[fd00::1]:3128"},
            API,
            "http://[fd00::1]:3128 HTTPS_PROXY",
        ),
        "with a password": ({"HTTPS_PROXY": "u:s3cr@t/x@p:1"}, API, "http://p:1 HTTPS_PROXY"),
        "exempt by name": ({"HTTPS_PROXY": "p:1", "NO_PROXY": "a, .daytona.io"}, API, None),
        "exempt with its port": (
            {"HTTPS_PROXY": "p:1", "no_proxy": "app.daytona.io:443"},
            API,
            None,
        ),
        "another port": (
            {"HTTPS_PROXY": "p:1", "no_proxy": "app.daytona.io:80"},
            API,
            "http://p:1 HTTPS_PROXY",
        ),
        "exempt by a pattern": ({"HTTPS_PROXY": "p:1", "NO_PROXY": "a,*.Daytona.io"}, API, None),
        "another pattern": (
            {"HTTPS_PROXY": "p:1", "NO_PROXY": "*.aytona.io"},
            API,
            "http://p:1 HTTPS_PROXY",
        ),
        "all are exempt, too": ({"HTTPS_PROXY": "p:1", "NO_PROXY": "a, *"}, API, None),
        "all are exempt": ({"HTTPS_PROXY": "p:1", "NO_PROXY": "*"}, API, None),
        "a network": ({"HTTP_PROXY": "p:1", "NO_PROXY": "10.0.0.0/8"}, "http://10.1.2.3/api", None),
        "another network": (
            {"HTTP_PROXY": "p:1", "NO_PROXY": "10.0.0.0/8,[fd00::]/8"},
            "http://11.1.2.3/api",
            "http://p:1 HTTP_PROXY",
        ),
        "a network of IPv6": (
            {"HTTP_PROXY": "p:1", "NO_PROXY": "fd00::/8"},
            "http://[fd12::1]:3000/api",
            None,
        ),
        "loopback": ({"HTTP_PROXY": "p:1", "ALL_PROXY": "p:1"}, "http://127.0.0.1:3000/api", None),
        "loopback by name": ({"HTTP_PROXY": "p:1"}, "http://localhost:3000/api", None),
        "loopback of IPv6": ({"HTTP_PROXY": "p:1"}, "http://[::1]:3000/api", None),
    }
    for name, (environment, url, wanted) in examples.items():
        with monkeypatch.context() as within:
            at(within, **environment)
            found = network.proxy_for(url)
        assert (found and f"{found.url} {found.variable}") == wanted, name


def test_case_94_a_proxy_that_cannot_be_used(monkeypatch):
    examples = {
        "socks5h://u:hunter2@p:1080": "HTTPS_PROXY names a proxy of kind 'socks5h'",
        "http://u:hunter2@": "HTTPS_PROXY is not the URL of a proxy",
        "http://u:hunter2@p:99999": "HTTPS_PROXY is not the URL of a proxy",
        "hunter2 hunter2": "HTTPS_PROXY is not the URL of a proxy",
        "u:hunter2@p:1\nX-Header: 1": "HTTPS_PROXY is not the URL of a proxy",
    }
    for value, message in examples.items():
        monkeypatch.setenv("HTTPS_PROXY", value)
        with pytest.raises(BadSetting) as raised:
            ask(API)
        assert raised.value.message.startswith(message), value
        assert "hunter2" not in f"{raised.value.message}{raised.value.hint}{raised.value.details}"


def test_case_94_a_repository_names_neither(tmp_path, monkeypatch):
    """`.env` of a repository may come from a stranger, who would be between us and the API."""
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        (tmp_path / ".env").write_text(f"{name}=http://stranger:1\nDAYTONA_SNAPSHOT=s\n")
        assert settings.load(tmp_path).snapshot == "s"
        assert network.proxy_for(API) is None
        assert network.way_to(API).tls is not None
        assert name not in os.environ


def test_a_password_is_redacted_in_all_forms(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://user:p%40ss%2Fw@p:1")
    proxy = network.proxy_for(API)
    header = proxy.authorization().reveal()
    text = secret.redact(f"p@ss/w p%40ss%2Fw {header}")
    assert text == " ".join([secret.REDACTED] * 3)
    assert "p@ss" not in repr(proxy) + str(proxy)


# -- what hinders a connection ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def told(url: str, kind: type[GitDaytonaError], seconds: float = 10) -> str:
    """The message and the hint of asking there."""
    with pytest.raises(kind) as raised:
        ask(url, seconds)
    assert type(raised.value) is kind
    problem = raised.value
    assert problem.message.isprintable() and problem.hint
    return f"{problem.message}\n{problem.hint}"


def test_case_94_a_certificate_that_is_not_trusted(authority, monkeypatch, tmp_path):
    bundle, other = tmp_path / "authority.pem", tmp_path / "other.pem"
    authority.cert_pem.write_to_path(str(bundle))
    trustme.CA().cert_pem.write_to_path(str(other))
    day = datetime.datetime(2001, 1, 1)
    good, past = authority.issue_cert("localhost"), authority.issue_cert("localhost", not_after=day)
    later = datetime.datetime.now() + datetime.timedelta(days=30)
    early = authority.issue_cert("localhost", not_before=later)
    misnamed = authority.issue_cert("other.example")
    examples = {
        # certificate, trusted → what is said, and what to do
        "unknown": (good, None, "is of an unknown authority", "the system's"),
        "another is trusted": (good, other, "is of an unknown authority", "SSL_CERT_FILE"),
        "expired": (past, bundle, "has expired", "clock"),
        "not yet": (early, bundle, "is not valid yet", "clock"),
        "of another": (misnamed, bundle, "is for another name", "DAYTONA_API_URL"),
        "self-signed": (None, None, "is self-signed", "SSL_CERT_FILE"),
    }
    with answering() as api, ExitStack() as open_:
        for name, (certificate, trusted, what, remedy) in examples.items():
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            if certificate is None:
                pem = tmp_path / "self.pem"
                pem.write_bytes(authority.private_key_pem.bytes() + authority.cert_pem.bytes())
                tls.load_cert_chain(pem)
            else:
                certificate.configure_cert(tls)
            port = open_.enter_context(serving(to(api.server_address[1]), tls=tls))
            with monkeypatch.context() as within:
                if trusted:
                    within.setenv("SSL_CERT_FILE", str(trusted))
                said = told(f"https://localhost:{port}/api", CertificateRefused)
            assert f"the certificate of Daytona at https://localhost:{port}/api {what}" in said, (
                name
            )
            assert remedy in said.split("\n")[1], name


def test_case_94_each_variable_names_the_authority(authority, monkeypatch, tmp_path):
    bundle = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(bundle))
    hashed = tmp_path / "hashed"
    hashed.mkdir()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(tls)
    examples = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    with answering() as api, serving(to(api.server_address[1]), tls=tls) as port:
        for name in examples:
            with monkeypatch.context() as within:
                within.setenv(name, str(bundle))
                assert ask(f"https://localhost:{port}") == {}
        at(monkeypatch, REQUESTS_CA_BUNDLE=str(hashed), SSL_CERT_FILE=str(bundle))
        assert "REQUESTS_CA_BUNDLE" in told(f"https://localhost:{port}", CertificateRefused)


def test_case_94_certificates_that_cannot_be_read(monkeypatch, tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("not a certificate")
    examples = [
        (name, place, why)
        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_DIR")
        for place, why in (
            ("missing", "No such file"),
            ("empty", "it holds no certificate"),
            ("text", "it holds no certificate"),
        )
    ]
    for name, place, why in examples:
        with monkeypatch.context() as within:
            within.setenv(name, str(tmp_path / place))
            with pytest.raises(BadSetting, match=f"'{tmp_path / place}' .{name}.: {why}"):
                ask(API)


def test_what_hinders_a_connection(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        refused = closed.getsockname()[1]
    assert "nothing listens there" in told(f"http://127.0.0.1:{refused}", ApiUnreachable)
    assert "does not resolve" in told("http://nowhere.invalid/api", ApiUnreachable)
    # a full queue answers no attempt to connect, as a firewall that drops does
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as waiting:
        for _ in range(4):
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        assert "nothing answers there" in told(url, ApiUnreachable, 0.3)
    with serving(plain) as port:
        assert "does not speak TLS" in told(f"https://127.0.0.1:{port}/api", ApiUnreachable)


def test_case_94_a_proxy_that_does_not_help(monkeypatch):
    with answering() as api:
        proxy = Proxy({"d.example": api.server_address[1]}, userinfo="u:right")
        with serving(proxy) as port, serving(plain) as no_tls:
            with socket.create_server(("127.0.0.1", 0)) as closed:
                refused = closed.getsockname()[1]
            examples = {
                # its address, its answer to CONNECT → the error
                (f"127.0.0.1:{port}", 200): (ProxyRefused, "asks for a user name"),
                (f"u:wrong@127.0.0.1:{port}", 200): (ProxyRefused, "does not accept its user name"),
                (f"u:right@127.0.0.1:{port}", 403): (ProxyRefused, "does not connect to"),
                (f"u:right@127.0.0.1:{port}", 503): (ApiUnreachable, "(HTTP 503)"),
                (f"127.0.0.1:{refused}", 200): (ApiUnreachable, "nothing listens there"),
                ("nowhere.invalid:1", 200): (ApiUnreachable, "does not resolve"),
                (f"https://127.0.0.1:{no_tls}", 200): (ApiUnreachable, "does not speak TLS"),
            }
            for (address, status), (kind, what) in examples.items():
                proxy.status = status
                monkeypatch.setenv("HTTPS_PROXY", address)
                said = told("https://d.example/api", kind)
                bare = address.rpartition("@")[2].removeprefix("https://")
                assert what in said and f"{bare}' (HTTPS_PROXY)" in said, address
                assert "wrong" not in said and "right" not in said
            monkeypatch.setenv("HTTP_PROXY", f"u:wrong@127.0.0.1:{port}")
            assert "does not accept" in told("http://d.example/api", ProxyRefused)
            assert not api.requests and not any(KEY in head for head in proxy.heads[:-1])


def test_a_proxy_over_tls_for_a_server_without(authority, monkeypatch, tmp_path):
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(tls)
    with answering() as api:
        proxy = Proxy({"d.example": api.server_address[1]}, userinfo="u:w\u00f6rd")
        with serving(proxy, tls=tls) as port:
            monkeypatch.setenv("HTTP_PROXY", f"https://u:w\u00f6rd@localhost:{port}")
            assert "unknown authority" in told("http://d.example/api", CertificateRefused)
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
            assert ask("http://d.example/api") == {}
    assert proxy.asked == ["GET http://d.example/api/config"]


def test_a_proxy_that_never_finishes_its_answer(monkeypatch):
    """A byte now and then begins a socket's own time limit anew."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nX: ")
        with contextlib.suppress(OSError):
            while not reader.at_eof() and not writer.is_closing():
                writer.write(b"x")
                await writer.drain()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(4096), 0.05)
        writer.close()

    with serving(drip) as port:
        monkeypatch.setenv("HTTPS_PROXY", f"127.0.0.1:{port}")
        assert "did not end within 0.5 seconds" in told("https://d.example", ApiUnreachable, 0.5)


# -- what a server refuses -------------------------------------------------------------------------


def test_case_95_refusals_in_the_servers_words():
    limits, keys = "/limits", "permission to write sandboxes"
    examples = {
        # status, words, headers → kind, hint
        (402, "Depleted credits", None): (LimitReached, limits),
        (402, "", None): (LimitReached, "/billing"),
        (429, "Sandbox resource limit reached", None): (LimitReached, limits),
        (403, "Total CPU limit exceeded. Maximum allowed: 10", None): (Forbidden, limits),
        (403, "Organization is suspended: Depleted credits", None): (Forbidden, "owner"),
        (403, "Access denied", None): (Forbidden, keys),
        (429, "ThrottlerException: Too Many Requests", None): (RateLimited, "wait a minute"),
        (429, "Rate limit reached", "7"): (RateLimited, "wait a minute"),
        (405, "Method gone", None): (errors.NotOffered, "update"),
        (408, "request timeout", None): (errors.TimedOut, "more time"),
        (413, "Payload too large", None): (errors.BadAnswer, "DAYTONA_API_URL"),
        (451, "Not in your country", None): (errors.BadAnswer, "DAYTONA_API_URL"),
        (401, "The key has expired", None): (errors.KeyRefused, "make a new one"),
    }
    for (status, words, wait), (kind, hint) in examples.items():
        headers = {"Retry-After": wait} if wait else {}
        problem = from_status(status, words, "create a sandbox", settings.Settings(), headers)
        assert type(problem) is kind, words
        assert words in problem.message and hint in problem.hint, words
        assert problem.transient == (kind is RateLimited)
    foreign = {"message": f"\x1b[31mDepleted\ncredits {KEY} " + "x" * 9000}
    assert len(said(json.dumps(foreign))) <= 500
    assert said(json.dumps(foreign)).startswith("\\x1b[31mDepleted credits [redacted] xx")


# -- an error that is raised twice -----------------------------------------------------------------


def test_case_100_no_error_is_changed():
    """Not even by who raised it: it may be kept, and raised to others, and what is put before or
    behind its message is there once more each time."""
    change = re.compile(
        r"^ *(?!self\.)\S+\.(?:message|hint|details) \+?= .*|.*\.add_note\(.*", re.M
    )
    sources = [path.read_text() for path in Path(git_daytona.__file__).parent.rglob("*.py")]
    assert [line for source in sources for line in change.findall(source)] == []
    examples = ("problem.hint = hint", "    a.b.message += 'x'", "problem.add_note(text)")
    assert all(map(change.search, examples))


def test_case_100_an_error_that_is_kept(tmp_path):
    """The answer of /config is kept, a failure, too, and each transfer gets it."""

    def fail() -> dict:
        raise ApiUnreachable("down", hint="wait")

    kept = PublishedConfig(fail)
    policy = Policy(settings.Settings(), fail)
    examples = (
        kept.answer,
        lambda: _raised(policy.default),
        lambda: _raised(policy.default).but(hint="other"),
    )
    for example in examples:
        first, *rest = [str(example()) for _ in range(3)]
        assert rest == [first, first]
    original = policy.answer()
    other = original.but(message="more", hint="else")
    assert (original.message, original.hint, str(original)) == ("down", "wait", "down")
    assert (other.message, other.hint, str(other)) == ("more", "else", "more")
    assert type(other) is ApiUnreachable
    limited = RateLimited("m", retry_after=3.0).but(hint="h")
    assert (limited.retry_after, limited.hint) == (3.0, "h")


def _raised(call) -> GitDaytonaError:
    with pytest.raises(GitDaytonaError) as raised:
        call()
    depth, trace = 0, raised.value.__traceback__
    while trace:
        depth, trace = depth + 1, trace.tb_next
    assert depth < 10
    return raised.value
