"""Between the suite and Daytona as companies have it: a proxy, certificates of their own, addresses
of IPv6 alone; the suite, its git and ssh are real."""

import datetime
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from git_daytona.base import paths
from git_daytona.base.errors import Forbidden, LimitReached
from git_daytona.local.server import LocalDaytona
from git_daytona.transfer import leases
from support import tmux
from support.proxy import Proxy, serving, to
from support.round_trip import BIN

NAME = "api.daytona.test"
PASSWORD = "p@ss/wörd"
ENCODED = "p%40ss%2Fw%C3%B6rd"


class Named(LocalDaytona):
    """A server that names its toolboxes and its gateway as clients see them."""

    origin = ""
    shown_gateway: tuple[str, int] | None = None

    @property
    def toolbox_url(self) -> str:
        return f"{self.origin}/toolbox"

    @property
    def gateway_host(self) -> str:
        return self.shown_gateway[0] if self.shown_gateway else super().gateway_host

    @property
    def gateway_port(self) -> int:
        return self.shown_gateway[1] if self.shown_gateway else super().gateway_port


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
    server, proxied, repo, begin, bundle, monkeypatch, scheme, variable, by
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


def test_case_94_without_the_certificate_one_line(
    server, proxied, repo, begin, bundle, command, monkeypatch
):
    """A person's commands, first and later ones: what it is, what to do, and nothing else."""
    use(proxied, server, monkeypatch, "https", "HTTPS_PROXY", "http")
    with monkeypatch.context() as within:
        within.setenv("SSL_CERT_FILE", str(bundle))
        begin(repo)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    examples = (("exec", "1", "--", "true"), ("sync", "1"), ("delete", "1"))
    for words in examples:
        told = command("git-daytona", *words, cwd=repo.path)
        errors = [line for line in told.err.splitlines() if "error:" in line]
        assert told.status == 4 and len(errors) == 1, told.err
        assert errors[0].endswith("is of an unknown authority (session 1) [certificate-refused]")
        assert f"the certificate of Daytona at https://{NAME}" in errors[0]
        assert "SSL_CERT_FILE" in told.err.splitlines()[-1]
        assert told.err.count("unknown authority") == 1
        log = paths.log_file().read_text()
        assert not any(each in told.err + log for each in (PASSWORD, ENCODED))


def test_addresses_of_ipv6_alone(server, local, repo, begin, command, monkeypatch, home):
    """API and gateway; known_hosts, URLs and the pin name them in brackets."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no loopback of IPv6")
    with (
        serving(to(server.api_port), host="::1") as api,
        serving(to(server.gateway.port), host="::1") as gateway,
    ):
        monkeypatch.setattr(server, "origin", f"http://[::1]:{api}", raising=False)
        monkeypatch.setattr(server, "shown_gateway", ("::1", gateway), raising=False)
        monkeypatch.setenv("DAYTONA_API_URL", f"http://[::1]:{api}/api")
        session = begin(repo)
        session.agent("echo six >six.txt")
        assert session.sync().changed
        assert repo.show("opencode/1", "six.txt") == "six"
        assert repo.git("remote", "get-url", "sandbox-1").startswith(f"ssh://[::1]:{gateway}/")
        pins = next(home.rglob("*known_hosts*")).read_text()
        assert f"[::1]:{gateway} ssh-" in pins
        told = command("daytona-pin", "verify", "--live", cwd=repo.path)
        assert told.status == 0 and f"[::1]:{gateway}" in told.out, told
        session.coordinator.delete("1")


def test_case_95_what_the_organisation_may_not(server, local, repo, begin, coordinate, monkeypatch):
    """The server's sentence comes to people, what cannot help is not tried again, and nothing of a
    refused mint stays."""
    monkeypatch.setattr(server, "origin", f"http://127.0.0.1:{server.api_port}")
    session = begin(repo)
    examples = (
        (402, "Depleted credits", LimitReached),
        (429, "Sandbox resource limit reached", LimitReached),
        (403, "Organization is suspended", Forbidden),
    )
    for number, (status, words, kind) in enumerate(examples):
        session.agent(f"echo {number} >file.txt")
        for route, act in (("mint", session.sync), ("create", coordinate(repo.path).start)):
            server.forget_calls()
            with (
                server.faults.call(route=f"^{route}$", status=status, message=words),
                pytest.raises(kind, match=words) as raised,
            ):
                act()
            assert "dashboard" in raised.value.hint
            assert [call.route for call in server.calls].count(route) == 1, (words, route)
        assert leases.stale(server.api_url) == []
    assert session.sync().changed
