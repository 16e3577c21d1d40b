"""Between the suite and Daytona as companies have it: a proxy, certificates of their own, addresses
of IPv6 alone; the suite, its git and ssh are real."""

import datetime
import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from git_daytona.local.server import LocalDaytona
from support import tmux
from support.proxy import Proxy, serving, to
from support.round_trip import BIN

NAME = "api.daytona.test"
PASSWORD = "p@ss/wörd"
ENCODED = "p%40ss%2Fw%C3%B6rd"


class Named(LocalDaytona):
    """A server whose toolboxes have an address that differs from where it listens."""

    origin = ""

    @property
    def toolbox_url(self) -> str:
        return f"{self.origin}/toolbox"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Named]:
    with Named(tmp_path_factory.mktemp("daytona")) as running:
        yield running


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_tls(authority: trustme.CA, *names: str, **more: datetime.datetime) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names, **more).configure_cert(context)
    return context


@pytest.fixture(scope="module")
def front(server: Named, authority: trustme.CA) -> Iterator[int]:
    """The port of the server over TLS."""
    with serving(to(server.api_port), tls=server_tls(authority, NAME)) as port:
        yield port


@pytest.fixture
def bundle(authority: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture
def proxied(server, local, front, authority, monkeypatch) -> Iterator[Proxy]:
    """The server by a name that a proxy alone knows; set HTTP(S)_PROXY to use it."""
    proxy = Proxy({NAME: server.api_port}, userinfo=f"user:{PASSWORD}")
    tls = server_tls(authority, "127.0.0.1", "localhost")
    with serving(proxy) as port, serving(proxy, tls=tls) as tls_port:
        proxy.port, proxy.tls_port, proxy.front = port, tls_port, front
        yield proxy


def use(proxied: Proxy, server: Named, monkeypatch, scheme: str, variable: str, by: str) -> None:
    """Reach the server at an http or https URL, by a proxy that is itself http or https."""
    server.origin = f"{scheme}://{NAME}"
    proxied.ports = {NAME: server.api_port if scheme == "http" else proxied.front}
    port = proxied.port if by == "http" else proxied.tls_port
    monkeypatch.setenv("DAYTONA_API_URL", f"{server.origin}/api")
    monkeypatch.setenv(variable, f"{by}://user:{ENCODED}@127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("scheme", "variable", "by"),
    [
        ("http", "HTTP_PROXY", "http"),
        ("https", "https_proxy", "http"),
        ("https", "ALL_PROXY", "http"),
        ("https", "HTTPS_PROXY", "https"),
    ],
)
def test_case_94_a_round_trip_by_a_proxy(
    server, proxied, repo, begin, bundle, command, monkeypatch, scheme, variable, by, home
):
    use(proxied, server, monkeypatch, scheme, variable, by)
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    session = begin(repo)
    session.agent("echo work >work.txt")
    assert session.sync().changed
    assert repo.show("opencode/1", "work.txt") == "work"
    server.forget_calls()
    assert not session.sync().changed
    assert len(server.calls) == 1
    session.coordinator.delete("1")
    assert server.sandboxes == []
    method = "CONNECT" if scheme == "https" else "GET|POST|DELETE"
    assert proxied.asked and all(re.match(f"({method}) ", each) for each in proxied.asked)
    if scheme == "https":  # connections are kept, and what is said in them is not the proxy's
        assert len(proxied.asked) < 8
        assert not any(server.api_key in head for head in proxied.heads)
    told = command("git-daytona", "status", cwd=repo.path, env={"DAYTONA_API_KEY": "wrong"})
    logs = "".join(each.read_text() for each in (home / ".local/state").rglob("*.log"))
    for secret in (PASSWORD, ENCODED):
        assert secret not in told.out + told.err + logs


def test_case_94_a_terminal_by_a_proxy(server, proxied, repo, begin, bundle, monkeypatch):
    use(proxied, server, monkeypatch, "https", "HTTPS_PROXY", "http")
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    begin(repo)
    proxied.asked.clear()
    with tmux.start([str(BIN / "git-daytona"), "shell", "1"], cwd=repo.path) as screen:
        screen.type("echo $((40 + 2)) there; exit 7\n")
        screen.wait_for(r"^42 there$")
        assert screen.status() == 7
    assert len(proxied.asked) == 2, "the calls' and the terminal's"
