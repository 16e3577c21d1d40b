"""Host keys in whole transfers: real git, the real ssh client, the embedded Daytona publishing one
thing and presenting another."""

import base64
import hashlib
import hmac
import subprocess
from pathlib import Path

import pytest

from git_daytona.base import paths
from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import HostKeyRefused
from git_daytona.local.server import LocalDaytona
from git_daytona.trust import known_hosts
from git_daytona.trust.host_keys import parse_line
from git_daytona.trust.presented import preferred_key

OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"


@pytest.fixture(autouse=True)
def truth(local):
    """The server publishes what it presents, until a test says otherwise."""
    local.published.reset()
    yield
    local.published.reset()


def presented(local) -> str:
    return local.gateway.presented_keys()[0]


def name_of(local) -> str:
    return f"[127.0.0.1]:{local.gateway_port}"


def fingerprint(line: str) -> str:
    return parse_line(line).fingerprint


def work(session, text: str) -> None:
    """Something to bring back, so that a sync has to connect."""
    session.agent(f"echo {text} >> work.txt")


def entries() -> list[str]:
    return [line for line in paths.pin_file().read_text().splitlines() if not line.startswith("#")]


# -- the outcomes of a decision --------------------------------------------------------------------


def test_the_first_start_pins_and_everything_is_verified(local, repo, begin, command):
    session = begin(repo)
    work(session, "one")
    session.sync()
    assert entries() == [f"{name_of(local)} {presented(local)}"]
    assert command("daytona-pin", "verify", "--live").status == 0


def test_case_27_and_case_07_an_unpublished_change_is_refused_before_and_after_a_process_has_looked(
    local, repo, begin, command
):
    session = begin(repo)
    first = presented(local)
    local.published.host_keys = [first]
    before = paths.pin_file().read_bytes()
    local.gateway.rotate()
    second = presented(local)
    work(session, "one")

    assert command("daytona-pin", "verify", "--live").status == 1
    # A new process looks before it mints.
    minted = local.counts["mint"]
    ran = command("git-daytona", "sync", "1", cwd=repo.path)
    assert ran.status == HostKeyRefused.status, ran.err
    assert "which Daytona does not publish" in ran.err
    assert fingerprint(first) in ran.err and fingerprint(second) in ran.err
    assert local.counts["mint"] == minted
    # A process that has looked already is held by ssh itself; it tries once, and looks from then
    # on.
    for _ in range(3):
        with pytest.raises(HostKeyRefused) as caught:
            session.sync()
        assert (
            fingerprint(first) in caught.value.message
            and fingerprint(second) in caught.value.message
        )
    session.coordinator.close()
    assert local.counts["mint"] == minted + 1
    assert local.live_tokens() == 0
    assert paths.pin_file().read_bytes() == before
    assert repo.git("rev-parse", "-q", "--verify", "opencode/1") == repo.git("rev-parse", "main")


def test_case_24_and_case_65_a_published_rotation_is_followed_by_running_and_new_processes(
    local, repo, begin, command
):
    session = begin(repo)
    first = presented(local)
    local.gateway.rotate()
    second = presented(local)
    local.published.host_keys = [first, second]
    work(session, "one")
    assert session.sync().changed, "the running process goes on without a restart"
    assert entries() == [f"{name_of(local)} {first}", f"{name_of(local)} {second}"]
    work(session, "two")
    assert command("git-daytona", "sync", "1", cwd=repo.path).status == 0
    local.published.host_keys = [second]
    work(session, "three")
    assert session.sync().changed
    work(session, "four")
    assert command("git-daytona", "sync", "1", cwd=repo.path).status == 0
    assert command("daytona-pin", "verify", "--live").status == 0


def test_case_24_and_case_65_a_key_replaced_without_rotation_is_refused_until_it_is_forgotten(
    local, repo, begin, command
):
    session = begin(repo)
    first = presented(local)
    before = paths.pin_file().read_bytes()
    local.gateway.rotate()
    work(session, "one")
    minted = local.counts["mint"]
    ran = command("git-daytona", "sync", "1", cwd=repo.path)
    assert ran.status == HostKeyRefused.status
    for part in (
        str(paths.pin_file()),
        fingerprint(first),
        fingerprint(presented(local)),
    ):
        assert part in ran.err
    assert local.counts["mint"] == minted
    with pytest.raises(HostKeyRefused):
        session.sync()
    session.coordinator.close()
    assert paths.pin_file().read_bytes() == before
    assert command("daytona-pin", "forget", "--yes").status == 0
    assert session.sync().changed, "no restart is needed"
    assert entries() == [f"{name_of(local)} {presented(local)}"]


def test_case_65_removing_the_pin_file_helps_a_running_process_too(local, repo, begin):
    session = begin(repo)
    local.gateway.rotate()
    work(session, "one")
    with pytest.raises(HostKeyRefused):
        session.sync()
    paths.pin_file().unlink()
    assert session.sync().changed


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 503},
        {"drop": "before"},
        {"body": b"<html></html>", "content_type": "text/html"},
        {"redirect": "http://127.0.0.1:9/"},
    ],
    ids=["5xx", "dropped", "html", "redirect"],
)
def test_case_33_with_the_api_failing_and_a_pin_transfers_go_on(local, repo, begin, command, fault):
    session = begin(repo)
    work(session, "one")
    with local.faults.call(route="config", **fault) as met:
        ran = command(
            "git-daytona", "sync", "1", cwd=repo.path, env={"DAYTONA_API_URL": f"{local.api_url}/"}
        )
        assert met.seen > 0
    assert ran.status == 0, ran.err
    assert f"using the pin of '{name_of(local)}'" in ran.err
    assert repo.show("opencode/1", "work.txt") == "one"


def test_with_nothing_published_and_a_pin_transfers_go_on(local, repo, begin, command):
    session = begin(repo)
    local.published.nothing()
    work(session, "one")
    assert command("git-daytona", "sync", "1", cwd=repo.path).status == 0


@pytest.mark.parametrize("old", [False, True], ids=["publishes nothing", "old server"])
def test_case_26_with_nothing_published_and_no_pin_the_users_ssh_decides(
    local, repo, command, home, old
):
    if old:
        local.published.old_server("127.0.0.1", local.gateway_port)
    else:
        local.published.nothing()
    known = home / "known"
    known.write_text("")
    (home / ".ssh").mkdir(mode=0o700)
    (home / ".ssh" / "config").write_text(
        f"Host *\n  UserKnownHostsFile {known}\n  StrictHostKeyChecking no\n  LogLevel QUIET\n"
    )
    ran = command("git-daytona", "start", cwd=repo.path)
    assert ran.status == HostKeyRefused.status, ran.err
    assert "publishes no host keys, none is pinned, and your ssh does not trust one" in ran.err
    assert "daytona-pin import FILE" in ran.err and "warning: " not in ran.err
    assert known.read_text() == ""
    assert not {"create", "mint"} & {call.route for call in local.calls}, (
        "said before anything was made"
    )
    # What the user's own ssh trusts is taken, with a warning.
    (home / ".ssh" / "config").write_text(f"Host *\n  UserKnownHostsFile {known}\n")
    known.write_text(f"[127.0.0.1]:{local.gateway_port} {local.gateway.presented_keys()[0]}\n")
    ran = command("git-daytona", "start", cwd=repo.path)
    assert (ran.status, "left to your own ssh" in ran.err) == (0, True), ran.err
    known.write_text(f"{name_of(local)} {presented(local)}\n")
    assert command("git-daytona", "start", cwd=repo.path).status == 0
    assert not paths.pin_file().exists()


@pytest.mark.parametrize(
    "content", [b"", b"\0\0\0\0", b"[127.0.0.1]:22 ssh-ed25519 AAAAC3Nz", b"# nothing\n"]
)
def test_case_32_an_unusable_pin_file_stops_everything_before_a_sandbox_is_made(
    local, repo, command, content
):
    paths.pin_file().parent.mkdir(parents=True)
    paths.pin_file().write_bytes(content)
    ran = command("git-daytona", "start", cwd=repo.path)
    assert ran.status == HostKeyRefused.status
    assert str(paths.pin_file()) in ran.err
    assert local.counts["mint"] == 0
    assert not [call for call in local.calls if call.route in ("create", "mint")]
    assert paths.pin_file().read_bytes() == content


def test_case_25_something_unreadable_published_is_not_left_to_ssh(local, repo, command):
    local.published.members["sshGatewayHostKeys"] = ["not a key"]
    ran = command("git-daytona", "start", cwd=repo.path)
    assert ran.status == HostKeyRefused.status
    assert "unreadable" in ran.err
    assert local.counts["mint"] == 0


# -- gateways and APIs (cases 28, 29) --------------------------------------------------------------


def test_case_28_another_gateway_than_the_published_one_is_refused_by_name_until_it_is_pinned(
    local, repo, command, tmp_path
):
    local.published.members["sshGatewayHost"] = "localhost"  # the mint's sshCommand says 127.0.0.1
    ran = command("git-daytona", "start", cwd=repo.path)
    assert ran.status == HostKeyRefused.status, ran.err
    assert f"'{name_of(local)}'" in ran.err
    assert f"--host '{name_of(local)}'" in ran.err
    assert local.live_tokens() == 0
    file = tmp_path / "key"
    file.write_text(f"{name_of(local)} {presented(local)}\n")
    assert command("daytona-pin", "import", str(file), "--host", name_of(local)).status == 0
    assert command("git-daytona", "start", cwd=repo.path).status == 0


def test_case_29_two_apis_in_turn(local, repo, command, tmp_path):
    with LocalDaytona(tmp_path / "second") as second:
        for _ in range(2):
            for server in (local, second):
                env = {"DAYTONA_API_URL": server.api_url, "DAYTONA_API_KEY": server.api_key}
                ran = command("git-daytona", "start", cwd=repo.path, env=env)
                assert ran.status == 0, ran.err
        assert entries() == [f"{name_of(each)} {presented(each)}" for each in (local, second)]


# -- manual mode (cases 30, 31, 34) ----------------------------------------------------------------


def test_case_30_every_kind_of_line_that_ssh_takes(
    local, repo, begin, coordinate, tmp_path, monkeypatch
):
    session = begin(repo)
    paths.pin_file().unlink()
    name, key = name_of(local), presented(local)
    salt = b"0123456789abcdefghij"
    digest = base64.b64encode(hmac.new(salt, name.encode(), hashlib.sha1).digest()).decode()
    good = {
        "hashed": f"|1|{base64.b64encode(salt).decode()}|{digest} {key}\n",
        "wrong first": f"{name} {OTHER}\n{name} {key}\n",
        "authority and key": f"@cert-authority {name} {OTHER}\n{name} {key}\n",
        "another one revoked": f"@revoked * {OTHER}\n{name} {key}\n",
        "pattern": f"!x,[127.0.0.?]:* {key}\n",
        "list in upper case": f"EXAMPLE.ORG,{name} {key}\n",
        "CRLF, no last newline": f"# x\r\n{name} {key}\r",
        "Latin-1": f"{name} {key} caf\xe9\n",
        "truncated before": f"{name} {key[:50]}\n{name} {key}\n",
    }
    bad = {
        "another key": f"{name} {OTHER}\n",
        "revoked": f"{name} {key}\n@revoked {name} {key}\n",
        "bare host": f"127.0.0.1 {key}\n",
        "negated": f"*,!{name} {key}\n",
        "authority alone": f"@cert-authority {name} {key}\n",
        "truncated": f"x {OTHER}\n{name} {key[:50]}\n",
    }
    for title, content in {**good, **bad}.items():
        file = tmp_path / f"100% {title}'s $file"
        file.write_bytes(content.encode("latin-1"))
        work(session, f"'{title}'")
        monkeypatch.setenv("DAYTONA_SSH_KNOWN_HOSTS", str(file))
        fresh = coordinate(repo.path)  # as a process of its own, that has looked at nothing yet
        if title in good:
            assert fresh.sync("1").changed, title
        else:
            with pytest.raises(HostKeyRefused):
                fresh.sync("1")
        assert file.read_bytes() == content.encode("latin-1")
    assert not paths.pin_file().exists()


@pytest.mark.parametrize("content", [None, "", "garbage\n"])
def test_case_31_an_unusable_manual_file_stops_everything_before_a_sandbox_is_made(
    local, repo, command, tmp_path, content
):
    file = tmp_path / "hosts"
    if content is not None:
        file.write_text(content)
    ran = command("git-daytona", "start", cwd=repo.path, env={"DAYTONA_SSH_KNOWN_HOSTS": str(file)})
    assert ran.status == 13
    assert "DAYTONA_SSH_KNOWN_HOSTS" in ran.err and str(file) in ran.err
    assert not [call for call in local.calls if call.route in ("create", "mint")]
    assert not paths.pin_file().exists()


# -- told apart under any configuration of ssh -----------------------------------------------------


@pytest.mark.parametrize("level", ["QUIET", "DEBUG3"])
def test_case_27_a_refusal_is_known_for_what_it_is_under_any_log_level(
    local, repo, begin, home, level
):
    (home / ".ssh").mkdir(mode=0o700)
    (home / ".ssh" / "config").write_text(
        f"Host *\n  LogLevel {level}\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n"
    )
    session = begin(repo)
    local.published.host_keys = [presented(local)]
    local.gateway.rotate()
    work(session, "one")
    with pytest.raises(HostKeyRefused) as caught:
        session.sync()
    assert fingerprint(presented(local)) in caught.value.message


# -- the look before ssh ---------------------------------------------------------------------------


def test_the_look_before_ssh_sees_the_key_and_nothing_through_a_proxy(local, home):
    endpoint = Endpoint("127.0.0.1", local.gateway_port)
    lines = known_hosts.parse(f"{name_of(local)} {OTHER}\n".encode())
    assert preferred_key(endpoint, lines) == parse_line(presented(local))
    assert preferred_key(endpoint, ()) is None
    with local.faults.call(route="none"):
        local.faults.gateway.drop_before_handshake = -1
        assert preferred_key(endpoint, lines) is None
        local.faults.gateway.drop_before_handshake = 0


def test_a_proxy_of_the_users_configuration_is_left_to_ssh(local, tmp_path, monkeypatch):
    """ssh reads the configuration of the account's home, not of $HOME; so a wrapper named ssh
    stands for it here."""
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "ssh").write_text("#!/bin/sh\necho proxyjump jump.example.org\n")
    (fake / "ssh").chmod(0o755)
    real = subprocess.run(
        ("sh", "-c", "command -v ssh-keyscan"),
        check=True,
        capture_output=True,
        text=True,
        timeout=10,
    ).stdout.strip()
    (fake / "ssh-keyscan").symlink_to(real)
    monkeypatch.setenv("PATH", str(fake))
    lines = known_hosts.parse(f"{name_of(local)} {OTHER}\n".encode())
    assert preferred_key(Endpoint("127.0.0.1", local.gateway_port), lines) is None
    assert Path(real).is_file()
