"""daytona-pin as people meet it: arguments in; exit status, stdout, stderr and files out; against
the embedded Daytona."""

import http.server
import json
import os
import pty
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from git_daytona.base import paths
from git_daytona.local.server import LocalDaytona
from git_daytona.trust.host_keys import parse_line

PROGRAM = Path(__file__).resolve().parents[2] / "bin" / "daytona-pin"


@dataclass(frozen=True)
class Told:
    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, object]:
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value


def tell(*arguments: str, **environment: str) -> Told:
    """Run the executable, without a terminal."""
    done = subprocess.run(
        (str(PROGRAM), *arguments),
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    return Told(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalDaytona]:
    with LocalDaytona(tmp_path_factory.mktemp("daytona")) as running:
        yield running


@pytest.fixture
def local(server: LocalDaytona, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalDaytona]:
    """The server, telling the truth; the executable under test asks it."""
    monkeypatch.setenv("DAYTONA_API_URL", server.api_url)
    server.published.reset()
    yield server
    server.published.reset()


def name_of(local: LocalDaytona) -> str:
    return f"[{local.gateway_host}]:{local.gateway_port}"


def presented(local: LocalDaytona) -> str:
    """The gateway's key of now, as a line."""
    return local.gateway.presented_keys()[0]


def fingerprint(line: str) -> str:
    return parse_line(line).fingerprint


def dead_api() -> str:
    """The URL of an API that nobody serves."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}/api"


# -- verify ----------------------------------------------------------------------------------------


def test_a_key_from_first_sight_to_the_end_of_its_rotation(local: LocalDaytona) -> None:
    assert tell("pin").status == 0
    first = presented(local)
    told = tell("verify", "--live")
    assert (told.status, told.err) == (0, "")
    assert told.out.splitlines() == [
        "mode:     pinned",
        f"gateway:  {name_of(local)}",
        f"file:     {paths.pin_file()}",
        f"key:      ssh-ed25519 {fingerprint(first)}  published, pinned, presented",
        "verdict:  verified: published = pinned = presented",
    ]
    # The gateway gets another key that nobody publishes.
    local.published.host_keys = [first]
    local.gateway.rotate()
    second = presented(local)
    told = tell("verify", "--live")
    assert told.status == 1
    assert "which Daytona does not publish" in told.out
    for line in (first, second):
        assert fingerprint(line) in told.out.splitlines()[-1]
    assert "hint: " in told.err
    # It is published, beside the old one: a rotation.
    local.published.host_keys = [first, second]
    told = tell("verify", "--live")
    assert told.status == 0
    assert "a rotation is under way" in told.out
    assert tell("pin").status == 0
    assert tell("verify", "--live").status == 0
    # Only the new one is left.
    local.published.host_keys = [second]
    told = tell("verify", "--live")
    assert told.status == 0
    assert f"{fingerprint(first)}  pinned\n" in told.out


def test_a_published_key_that_replaces_the_pinned_one_is_a_mismatch(local: LocalDaytona) -> None:
    tell("pin")
    first = presented(local)
    local.gateway.rotate()
    told = tell("verify")
    assert told.status == 1
    assert "are not the trusted ones" in told.out
    assert "30 days, in which old and new keys are published together" in told.err
    assert f"daytona-pin forget '{name_of(local)}'" in told.err
    assert "API and gateway have both changed" in tell("verify", "--live").out
    told = tell("pin")
    assert told.status == 11
    for part in (fingerprint(first), fingerprint(presented(local)), str(paths.pin_file())):
        assert part in told.err
    assert first in paths.pin_file().read_text()


def test_an_api_that_lies_while_the_gateway_is_the_old_one(local: LocalDaytona) -> None:
    tell("pin")
    other = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
    local.published.host_keys = [other]
    told = tell("verify", "--live")
    assert told.status == 1
    assert "it is the API's answer that changed" in told.out


def test_verify_before_anything_is_pinned(local: LocalDaytona) -> None:
    told = tell("verify")
    assert told.status == 3
    assert "nothing is pinned yet" in told.out
    told = tell("verify", "--live")
    assert (told.status, "verified: published = presented" in told.out) == (0, True)
    told = tell("verify", "--offline")
    assert (told.status, told.out) == (3, "")
    assert not paths.pin_file().exists(), "verify changes nothing"


def test_verify_where_nothing_is_published(local: LocalDaytona) -> None:
    local.published.nothing()
    told = tell("verify", "--live")
    assert told.status == 3
    assert "mode:     inherited" in told.out
    local.published.old_server(local.gateway_host, local.gateway_port)
    told = tell("verify")
    assert told.status == 3
    assert "sshGatewayPublicKey" in told.err


def test_verify_when_nobody_can_be_asked(local: LocalDaytona) -> None:
    assert tell("verify", DAYTONA_API_URL=dead_api()).status == 4
    tell("pin")
    with local.faults.call(route="config", status=503):
        told = tell("verify", "--live")
        assert told.status == 4
        assert "pinned, presented" in told.out, "what is known is shown all the same"
        assert tell("verify", "--offline").status == 0
        assert tell("verify", "--offline", "--live").status == 0


@pytest.mark.parametrize(
    "fault",
    [
        {"body": b"<html>hello</html>", "content_type": "text/html"},
        {"redirect": "http://127.0.0.1:9/api/config"},
        {"status": 502},
        {"drop": "before"},
        {"body": b'{"sshGatewayHost": "-oProxyCommand=touch /tmp/x"}'},
        {"body": b"[]"},
    ],
    ids=lambda fault: next(iter(fault)),
)
def test_case_33_an_api_that_answers_nonsense_leaves_the_pin_in_force(
    local: LocalDaytona, fault: dict[str, object]
) -> None:
    tell("pin")
    before = paths.pin_file().read_bytes()
    with local.faults.call(route="config", **fault):
        assert tell("verify", DAYTONA_API_URL=local.api_url + "/").status == 4
        assert tell("verify", "--offline").status == 0
    assert paths.pin_file().read_bytes() == before


def test_the_key_goes_to_no_redirected_host(local: LocalDaytona) -> None:
    asked: list[str] = []

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

    with http.server.HTTPServer(("127.0.0.1", 0), Elsewhere) as elsewhere:
        thread = threading.Thread(target=elsewhere.serve_forever)
        thread.start()
        try:
            with local.faults.call(
                route="config", redirect=f"http://127.0.0.1:{elsewhere.server_port}/config"
            ):
                assert tell("verify").status == 4
        finally:
            elsewhere.shutdown()
            thread.join()
    assert asked == []


def test_published_fingerprints_that_do_not_fit(local: LocalDaytona) -> None:
    local.published.members["sshGatewayHostKeyFingerprints"] = ["SHA256:" + "A" * 43]
    told = tell("verify")
    assert told.status == 1
    assert "do not belong together" in told.out


def test_unreadable_keys_are_a_mismatch_not_nothing(local: LocalDaytona) -> None:
    local.published.members["sshGatewayHostKeys"] = ["gar\x1b[31mbage"]
    told = tell("verify")
    assert told.status == 1
    assert "\x1b" not in told.out + told.err


def test_verify_as_json(local: LocalDaytona) -> None:
    tell("pin")
    told = tell("verify", "--live", "--json")
    line = presented(local)
    assert told.json == {
        "mode": "pinned",
        "gateway": {"host": "127.0.0.1", "port": local.gateway_port, "name": name_of(local)},
        "file": str(paths.pin_file()),
        "keys": [
            {
                "type": "ssh-ed25519",
                "fingerprint": fingerprint(line),
                "key": line,
                "seen": ["published", "pinned", "presented"],
            }
        ],
        "verdict": "verified: published = pinned = presented",
        "status": 0,
        "advice": None,
        "notes": [],
    }


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not there")
def test_fingerprints_are_as_ssh_keygen_prints_them(local: LocalDaytona, tmp_path: Path) -> None:
    file = tmp_path / "key.pub"
    file.write_text(presented(local) + "\n")
    listed = subprocess.run(
        ("ssh-keygen", "-lf", str(file)), check=True, capture_output=True, text=True, timeout=30
    ).stdout
    assert listed.split()[1] in tell("verify", "--live").out


def test_an_unusable_pin_file_is_a_mismatch(local: LocalDaytona) -> None:
    paths.pin_file().parent.mkdir(parents=True)
    paths.pin_file().write_text("")
    told = tell("verify")
    assert (told.status, told.out) == (1, "")
    assert (
        f"daytona-pin: error: the pin file '{paths.pin_file()}' cannot be used: it holds no key"
        in told.err
    )
    assert tell("verify", "--json").json["status"] == 1
    assert tell("pin").status == 11
    assert paths.pin_file().read_text() == ""


# -- manual and inherited mode ---------------------------------------------------------------------


def test_verify_a_manual_file(local: LocalDaytona, tmp_path: Path) -> None:
    file = tmp_path / "known hosts"
    file.write_text(f"oops\n{name_of(local)} {presented(local)} mine\n")
    told = tell("verify", "--live", DAYTONA_SSH_KNOWN_HOSTS=str(file))
    assert told.status == 0
    assert "mode:     manual" in told.out
    assert "verified: published = manual = presented" in told.out
    assert (
        f"note: line 1 of '{file}' is skipped by ssh: there is no key after the host name"
        in told.err
    )
    assert not paths.pin_file().exists()


def test_a_manual_line_for_the_bare_host_is_explained(local: LocalDaytona, tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"{local.gateway_host} {presented(local)}\n")
    told = tell("verify", "--live", DAYTONA_SSH_KNOWN_HOSTS=str(file))
    assert told.status == 1
    assert (
        f"line 1 is for '127.0.0.1' on port 22 and does not serve port {local.gateway_port}"
        in told.out
    )


def test_a_missing_manual_file_is_named(local: LocalDaytona, tmp_path: Path) -> None:
    told = tell("verify", DAYTONA_SSH_KNOWN_HOSTS=str(tmp_path / "none"))
    assert (told.status, told.out) == (13, "")
    assert "DAYTONA_SSH_KNOWN_HOSTS names" in told.err


def test_inherited_by_choice(local: LocalDaytona) -> None:
    told = tell("verify", DAYTONA_SSH_AUTO_PIN="false")
    assert told.status == 3
    assert "mode:     inherited" in told.out
    assert "file:     (that of your own ssh)" in told.out
    assert tell("pin", DAYTONA_SSH_AUTO_PIN="false").status == 13


# -- show, pin, forget, import, path, scan ---------------------------------------------------------


def test_show_asks_nobody(local: LocalDaytona) -> None:
    told = tell("show")
    assert told.status == 0
    assert "(there is none yet)" in told.out
    tell("pin")
    told = tell("show", DAYTONA_API_URL=dead_api())
    assert (
        f"{name_of(local)}  ssh-ed25519 {fingerprint(presented(local))}  (from "
        f"{local.api_url} on 20" in told.out
    )
    keys = tell("show", "--json").json["keys"]
    assert isinstance(keys, list)
    assert keys[0]["source"] == local.api_url


def test_pin_says_what_changed(local: LocalDaytona) -> None:
    line = f"key:      ssh-ed25519 {fingerprint(presented(local))}"
    assert tell("pin").out.splitlines() == [f"gateway:  {name_of(local)}", f"{line}  added"]
    assert tell("pin").out.splitlines()[1] == f"{line}  kept"
    local.published.nothing()
    paths.pin_file().unlink()
    told = tell("pin")
    assert (told.status, told.out) == (3, "")
    assert tell("pin", DAYTONA_API_URL=dead_api()).status == 4


def test_forget_does_not_drop_a_key_unasked(local: LocalDaytona) -> None:
    tell("pin")
    told = tell("forget")
    assert told.status == 2
    assert "--yes" in told.err
    assert paths.pin_file().exists()
    for host in (name_of(local), name_of(local).replace("[", "").replace("]", "")):
        told = tell("forget", host, "--yes", "--json")
        assert told.status == 0
        assert told.json["keys"] == [
            {
                "type": "ssh-ed25519",
                "fingerprint": fingerprint(presented(local)),
                "key": presented(local),
                "change": "dropped",
            }
        ]
        assert not paths.pin_file().exists()
        tell("pin")
    assert tell("forget", "elsewhere.example.org", "--yes").status == 3
    assert tell("forget", "a b", "--yes").status == 2


@pytest.mark.parametrize(
    ("answer", "status", "left"), [("y", 0, False), ("n", 130, True), ("", 130, True)]
)
def test_forget_asks_on_a_terminal(
    local: LocalDaytona, answer: str, status: int, left: bool
) -> None:
    tell("pin")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        (str(PROGRAM), "forget"),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    os.write(ours, f"{answer}\n".encode())
    out, err = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == status, err
    assert fingerprint(presented(local)) in err, "the key that would go is shown"
    assert paths.pin_file().exists() is left
    assert ("dropped" in out) is not left


def test_import_replaces_only_when_told(local: LocalDaytona, tmp_path: Path) -> None:
    tell("pin")
    other = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
    file = tmp_path / "keys"
    file.write_text(f"github.com {other}\n{name_of(local)} {presented(local)}\n")
    assert tell("import", str(file)).out.splitlines()[1].endswith("kept")
    assert "github.com" not in paths.pin_file().read_text()
    file.write_text(f"{name_of(local)} {other}\n")
    assert tell("import", str(file)).status == 2
    assert presented(local) in paths.pin_file().read_text()
    told = tell("import", str(file), "--yes")
    assert [line.rsplit(None, 1)[1] for line in told.out.splitlines()[1:]] == ["added", "dropped"]
    assert tell("verify", "--live").status == 1
    assert presented(local) not in paths.pin_file().read_text()


def test_import_a_gateway_that_the_api_does_not_know(local: LocalDaytona, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"[second.example.org]:2200 {presented(local)}\n")
    told = tell("import", str(file))
    assert told.status == 11
    assert f"has no host key for '{name_of(local)}'" in told.err
    assert tell("import", str(file), "--host", "second.example.org:2200").status == 0
    assert f"[second.example.org]:2200 {presented(local)}\n" in paths.pin_file().read_text()
    told = tell("import", str(tmp_path / "none"))
    assert told.status == 13
    assert "no such file" in told.err


def test_path(local: LocalDaytona, tmp_path: Path) -> None:
    assert tell("path").out == f"{paths.pin_file()}\n"
    assert tell("path", DAYTONA_SSH_KNOWN_HOSTS=str(tmp_path / "x")).out == f"{tmp_path / 'x'}\n"
    assert tell("path", "--json").json == {"file": str(paths.pin_file()), "exists": False}
    for relative in ("", "relative"):
        told = tell("path", XDG_DATA_HOME=relative)
        assert (
            told.out == f"{Path.home()}/.local/share/opencode/storage/daytona/gateway_known_hosts\n"
        )


def test_scan_warns_that_it_proves_nothing(local: LocalDaytona) -> None:
    told = tell("scan")
    assert (told.status, told.out) == (0, f"{name_of(local)} {presented(local)}\n")
    assert "proves nothing" in told.err
    assert fingerprint(presented(local)) in told.err
    assert tell("scan", "--json", "--host", name_of(local)).json["keys"] == [
        {
            "type": "ssh-ed25519",
            "fingerprint": fingerprint(presented(local)),
            "key": presented(local),
        }
    ]
    assert local.live_tokens() == 0


def test_known_hosts_for_a_plain_ssh(local: LocalDaytona, tmp_path: Path) -> None:
    """ssh itself asks for the lines, and takes or refuses the gateway by them."""

    def ssh() -> str:
        own = (f"KnownHostsCommand={PROGRAM} known-hosts %H", "UserKnownHostsFile=none")
        strict = ("GlobalKnownHostsFile=none", "StrictHostKeyChecking=yes", "BatchMode=yes")
        options = [word for each in (*own, *strict) for word in ("-o", each)]
        place = ("-p", str(local.gateway_port), f"nobody@{local.gateway_host}")
        argv = ("ssh", "-F", "none", *options, *place, "true")
        return subprocess.run(argv, capture_output=True, text=True, timeout=60).stderr

    assert tell("known-hosts").out == ""
    assert "Host key verification failed" in ssh()
    assert tell("pin").status == 0
    assert tell("known-hosts", name_of(local)).out == f"{name_of(local)} {presented(local)}\n"
    assert tell("known-hosts").out.endswith(f" {presented(local)}\n")
    assert tell("known-hosts", "example.org").out == ""
    assert "closed by remote host" in ssh()  # which refuses the user, not we the gateway
    with paths.pin_file().open("a") as file:
        file.write(f"@revoked * {presented(local)}\n")
    assert "REVOKED" in ssh()


def test_scan_of_what_does_not_answer(local: LocalDaytona) -> None:
    port = dead_api().rsplit(":", 1)[1].split("/")[0]
    told = tell("scan", "--host", f"127.0.0.1:{port}")
    assert (told.status, told.out) == (4, "")
    assert "presents no host key: connection refused" in told.err


def test_scan_of_what_is_no_ssh_server(local: LocalDaytona) -> None:
    told = tell("scan", "--host", f"127.0.0.1:{local.api_port}")
    assert (told.status, told.out) == (4, "")


# -- the program itself ----------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [("--help",), ("verify", "--offline"), ("show",), ("path",)])
def test_what_needs_no_api_loads_neither_the_sdk_nor_keyring(arguments: tuple[str, ...]) -> None:
    paths.pin_file().parent.mkdir(parents=True)
    paths.pin_file().write_text(
        "gw ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n"
    )
    script = (
        "import sys\nfrom git_daytona.__main__ import main\n"
        f"status = main(['daytona-pin', *{arguments!r}])\n"
        "heavy = {'daytona', 'daytona_api_client', 'keyring', 'asyncssh', 'httpx', "
        "'pydantic', 'aiohttp'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {sorted(heavy)}' if heavy else status)"
    )
    done = subprocess.run(
        (sys.executable, "-I", "-c", script), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_wrong_arguments() -> None:
    for arguments in (("verify", "--lively"), ("nonsense",), ("import",), ("verify", "host")):
        told = tell(*arguments)
        assert (told.status, told.out) == (2, "")
        assert told.err.startswith("daytona-pin: error: ")


def test_a_repository_decides_nothing(
    local: LocalDaytona, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text(
        f"DAYTONA_SSH_KNOWN_HOSTS={tmp_path}/evil\nDAYTONA_API_URL=http://127.0.0.1:9/api\n"
    )
    (tmp_path / "evil").write_text(
        "* ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n"
    )
    monkeypatch.chdir(tmp_path)
    assert tell("path").out == f"{paths.pin_file()}\n"
    assert tell("verify", "--live").status == 0
