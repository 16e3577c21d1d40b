"""Token lifetimes: one live token per sandbox, revoked on every way out, also by whoever comes
after a crash (cases 1 to 9, 66)."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, wait
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from git_daytona.api.cloud import Cloud
from git_daytona.base import log, paths
from git_daytona.base.errors import (
    ApiUnreachable,
    BadAnswer,
    ConnectionClosed,
    Forbidden,
    GitDaytonaError,
    KeyRefused,
    NotFound,
    RateLimited,
    ServerError,
    TimedOut,
)
from git_daytona.base.secret import Secret
from git_daytona.settings import settings
from git_daytona.transfer import leases, transfer
from support.processes import descendants, gone
from support.waiting import until


@pytest.fixture(scope="module")
def sandbox(server) -> str:
    """A sandbox for the tests of this module that need no session."""
    answer = httpx.post(
        f"{server.api_url}/sandbox",
        json={},
        headers={"Authorization": f"Bearer {server.api_key}"},
        timeout=60,
    )
    return str(answer.json()["id"])


@pytest.fixture
def account(local) -> Cloud:
    return Cloud(settings.load(None))


@pytest.fixture
def tokens(local) -> list[str]:
    """Every token that is minted from now on."""
    seen: list[str] = []
    local.watch_tokens(seen.append)
    return seen


@pytest.fixture
def logged():
    """The log as text, once it is asked for."""
    log.to_file()
    return lambda: paths.log_file().read_text()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Back-off in no time; what a server asks for is waited for."""
    real = leases._wait

    def wait(state):
        return (
            real(state)
            if getattr(state.outcome.exception(), "retry_after", None) is not None
            else 0.01
        )

    monkeypatch.setattr(leases, "_wait", wait)


def journals() -> list[dict[str, object]]:
    return [json.loads(path.read_bytes()) for path in paths.leases().glob("*.json")]


def calls(local, route: str) -> list[int]:
    """The statuses of the calls of a route; 0: cut off."""
    return [call.status for call in local.calls if call.route == route]


def test_a_lease(local, account, sandbox, tokens):
    with leases.lease(account, sandbox) as access:
        assert [access.token.reveal()] == tokens
        assert local.live_tokens() == 1
        (entry,) = journals()
        assert (entry["sandboxId"], entry["apiUrl"], entry["pid"]) == (
            sandbox,
            local.api_url,
            os.getpid(),
        )
        assert tokens[0] not in json.dumps(entry)
        assert leases.stale(local.api_url) == [], "its holder is alive"
    assert local.live_tokens() == 0
    assert journals() == []


@pytest.mark.parametrize("way", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("background", [False, True])
def test_it_ends_on_every_way_out(local, account, sandbox, way, background):
    threads: list[Future[None]] = []
    with (
        pytest.raises(way),
        leases.lease(account, sandbox, background=threads if background else None),
    ):
        raise way
    wait(list(threads))
    assert local.live_tokens() == 0
    assert journals() == []


HOLDER = """
import sys
from git_daytona.transfer import leases
from git_daytona.settings import settings
from git_daytona.api.cloud import Cloud
with leases.lease(Cloud(settings.load(None)), sys.argv[1]):
    print("held", flush=True)
    sys.stdin.readline()
"""


def holder(sandbox: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        (sys.executable, "-c", HOLDER, sandbox),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_case_01_leases_of_one_sandbox_exclude_each_other_across_processes(
    local, account, sandbox, monkeypatch
):
    with holder(sandbox) as process:
        monkeypatch.setattr(leases, "LOCK_SECONDS", 0.1)
        with (
            pytest.raises(TimedOut, match="holding the lock on the sandbox"),
            leases.lease(account, sandbox),
        ):
            pass
        assert calls(local, "mint") == [200], (
            "nothing was minted meanwhile: it would have ended the other's token"
        )
        monkeypatch.setattr(leases, "LOCK_SECONDS", 60.0)
        process.stdin.write("\n")
        process.stdin.flush()
        with leases.lease(account, sandbox):
            assert [call.route for call in local.calls] == ["mint", "revoke", "mint"]
        assert process.wait(20) == 0
    assert local.live_tokens() == 0


def test_reaping_leaves_a_live_lease_alone(local, account, sandbox):
    with holder(sandbox) as process:
        assert leases.reap(account) == 0
        assert local.live_tokens() == 1
        process.stdin.write("\n")
        process.stdin.flush()
        process.wait(20)


def test_a_killed_holder_is_reaped(local, account, sandbox):
    with holder(sandbox) as process:
        process.kill()
        process.wait(20)
    assert local.live_tokens() == 1
    assert [entry.sandbox_id for entry in leases.stale(local.api_url)] == [sandbox]
    assert leases.stale("http://other.invalid/api") == []
    assert leases.reap(account) == 1
    assert (local.live_tokens(), journals()) == (0, [])
    assert leases.reap(account) == 0


def test_case_09_a_killed_holder_is_reaped_by_the_next_start(local, sandbox, repo, begin):
    with holder(sandbox) as process:
        process.kill()
        process.wait(20)
    begin(repo).coordinator.close()
    assert (local.live_tokens(), journals()) == (0, [])


def test_a_number_used_again_is_no_live_holder(local, account, sandbox):
    """The journal of a dead process whose pid somebody else has by now."""
    with holder(sandbox) as process:
        process.kill()
        process.wait(20)
    (journal,) = paths.leases().glob("*.json")
    entry = json.loads(journal.read_bytes())
    journal.write_text(json.dumps(entry | {"pid": os.getpid()}))
    assert leases.reap(account) == 1
    assert local.live_tokens() == 0


def test_an_unreadable_journal_is_left_alone(local, account, sandbox):
    with leases.lease(account, sandbox):
        pass
    for name, content in {
        "a.json": "{",
        "b.json": "[]",
        "c.json": '{"sandboxId": 1}',
        "d.json": "\xff",
    }.items():
        (paths.leases() / name).write_bytes(content.encode("latin-1"))
    (paths.leases() / "e.json").mkdir()
    assert leases.stale(local.api_url) == []
    assert leases.reap(account) == 0


# -- minting ---------------------------------------------------------------------------------------


def answer(token: object) -> bytes:
    fields = {
        "id": "x",
        "sandboxId": "x",
        "token": token,
        "sshCommand": "",
        "expiresAt": "2030-01-01T00:00:00Z",
    }
    return json.dumps(
        fields | {"createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-01-01T00:00:00Z"}
    ).encode()


@pytest.mark.parametrize(
    "body",
    [
        b'{"token": ""}',
        b"{}",
        b"[]",
        b"<html>hello</html>",
        b"\xff\xfe",
        answer(None),
        answer(7),
        *map(
            answer,
            (
                "",
                "-oProxyCommand=x",
                "a b c d e f",
                "TokenToken\n",
                "Tok\nenToken",
                "user@hosthost",
                "token/token",
                "token%20token",
                "short",
                "x" * 600,
                "täkentäken",
                "to\0kento",
                "${HOME}xx",
            ),
        ),
    ],
)
def test_case_02_and_case_03_a_malformed_token_is_not_used(
    local, repo, begin, monkeypatch, tmp_path, body
):
    session = begin(repo)
    session.coordinator.close()
    local.forget_calls()
    client = tmp_path / "client"
    client.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    client.chmod(0o755)
    object.__setattr__(session.coordinator.transfers.settings, "ssh_binary", str(client))
    with local.faults.call(route="mint", body=body), pytest.raises(BadAnswer):
        session.coordinator.fetch("1")
    session.coordinator.close()
    assert calls(local, "revoke") == [], (
        "a revoke call without a token would end what others minted"
    )
    assert not (tmp_path / "ran").exists()
    assert leases.reap(session.coordinator.cloud) == 1, "a token that nobody knows may be alive"


def test_case_02_an_empty_token_is_never_sent_for_revocation(local, account, sandbox):
    with pytest.raises(BadAnswer, match="empty token"):
        account.revoke(sandbox, Secret(""))
    assert local.calls == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_case_66_a_lost_answer_is_asked_for_again(local, account, sandbox, tokens, when):
    with (
        local.faults.call(route="mint", drop=when, times=1),
        leases.lease(account, sandbox) as access,
    ):
        assert tokens[-1] == access.token.reveal()
        assert local.live_tokens() == 1, "minting again has ended the one that got lost"
    assert local.live_tokens() == 0
    assert len(tokens) == (2 if when == "after" else 1)


def test_case_66_answers_that_are_all_lost_are_reaped(local, account, sandbox):
    with (
        local.faults.call(route="mint", drop="after"),
        pytest.raises(ApiUnreachable),
        leases.lease(account, sandbox),
    ):
        pass
    assert local.live_tokens() == 1
    assert leases.reap(account) == 1
    assert local.live_tokens() == 0


def test_case_66_a_lost_answer_and_then_a_refusal(local, account, sandbox):
    """The refusal minted nothing, but the try before it did."""
    with (
        local.faults.call(route="mint", drop="after", times=1),
        local.faults.call(route="mint", status=403, nth=2),
        pytest.raises(Forbidden),
        leases.lease(account, sandbox),
    ):
        pass
    assert local.live_tokens() == 1
    assert leases.reap(account) == 1
    assert local.live_tokens() == 0


@pytest.mark.parametrize(
    ("status", "kind", "says", "hint"),
    [
        (
            401,
            KeyRefused,
            "does not accept the API key from the environment",
            "set DAYTONA_API_KEY",
        ),
        (403, Forbidden, "may not mint an SSH token", "use a key with the permission"),
        (404, BadAnswer, "this server mints no SSH tokens", "update the Daytona server"),
        (405, BadAnswer, "this server mints no SSH tokens", "update the Daytona server"),
        (400, BadAnswer, "could not mint", ""),
    ],
)
def test_case_06_refusals_to_mint_are_told_once(local, account, sandbox, status, kind, says, hint):
    with (
        local.faults.call(route="mint", status=status, message="fault") as fault,
        pytest.raises(kind, match=says) as refused,
        leases.lease(account, sandbox),
    ):
        pass
    assert hint in refused.value.hint
    assert fault.seen == 1
    assert calls(local, "revoke") == []


def test_case_06_no_refusal_to_mint_lets_anything_run(local, repo, begin, monkeypatch, tmp_path):
    """No other user name is tried in place of the token, the API key least of all: nothing
    connects."""
    session = begin(repo)
    session.agent("echo x >x")
    session.coordinator.close()
    client = tmp_path / "client"
    client.write_text(f'#!/bin/sh\ntouch {tmp_path}/ran\nexec ssh "$@"\n')
    client.chmod(0o755)
    object.__setattr__(session.coordinator.transfers.settings, "ssh_binary", str(client))
    examples = {
        401: "does not accept the API key",
        403: "may not mint",
        404: "mints no SSH tokens",
        405: "mints no SSH tokens",
    }
    for status, says in examples.items():
        with (
            local.faults.call(route="mint", status=status, message="fault"),
            pytest.raises(GitDaytonaError) as refused,
        ):
            session.sync()
        assert says in refused.value.message, status
        assert local.api_key not in f"{refused.value.message} {refused.value.hint}", status
        assert not (tmp_path / "ran").exists(), status
    session.sync()
    assert (tmp_path / "ran").exists(), "the test would see it"


def test_a_sandbox_that_is_gone(local, account):
    with pytest.raises(NotFound), leases.lease(account, "0123-gone"):
        pass
    assert (calls(local, "mint"), journals()) == ([404], [])
    account.revoke("0123-gone", Secret("whatever1"))


@pytest.mark.parametrize("status", [429, 500, 502, 503, 409])
def test_case_06_what_passes_is_waited_for(local, account, sandbox, status):
    with (
        local.faults.call(route="mint", status=status, times=2) as fault,
        leases.lease(account, sandbox),
    ):
        assert fault.seen == 3
    with (
        local.faults.call(route="mint", status=status) as fault,
        pytest.raises(GitDaytonaError) as failed,
        leases.lease(account, sandbox),
    ):
        pass
    assert (failed.value.transient, fault.seen) == (True, 3)


def test_case_06_the_server_says_how_long_to_wait(local, account, sandbox):
    with local.faults.call(route="mint", status=429, times=1, retry_after=1):
        begun = time.monotonic()
        with leases.lease(account, sandbox):
            assert time.monotonic() - begun >= 1.0, "not before"


def test_case_06_nobody_waits_for_ever(monkeypatch):
    """A server that asks for an hour gets half a minute, in small steps for this test."""
    monkeypatch.setattr(leases, "MAX_WAIT", 0.01)
    tries = []

    def call():
        tries.append(1)
        raise RateLimited("too many", retry_after=3600.0)

    with pytest.raises(RateLimited):
        leases.patiently(call)
    assert len(tries) == leases.TRIES


# -- revoking --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [{"status": 500}, {"drop": "before"}, {"drop": "after"}, {"hang": True}, {"status": 401}],
)
def test_case_04_a_failed_revocation_fails_nothing_and_is_made_good(
    local, repo, begin, tokens, logged, monkeypatch, fault
):
    session = begin(repo)
    session.agent("echo x >x")
    session.coordinator.close()
    monkeypatch.setattr(session.coordinator.cloud, "request_seconds", 0.5)
    with local.faults.call(route="revoke", **fault) as revoking:
        assert session.sync().changed
        session.coordinator.close()
    assert repo.show("opencode/1", "x") == "x"
    assert session.coordinator.sessions()[0].git_return.state == "synced"
    assert revoking.seen == (1 if fault == {"status": 401} else 3)
    assert "left to the next start" in logged()
    assert leases.reap(session.coordinator.cloud) == 1
    assert local.live_tokens() == 0
    text = logged() + session.coordinator.state.path.read_text()
    assert not any(form in text for token in tokens for form in (token, quote(token, safe="")))


def test_a_failed_reaping_is_tried_again_by_the_next(local, account, sandbox):
    with holder(sandbox) as process:
        process.kill()
        process.wait(20)
    with local.faults.call(route="revoke", status=500):
        assert leases.reap(account) == 0
    assert len(journals()) == 1
    assert leases.reap(account) == 1
    assert local.live_tokens() == 0


# -- transfers -------------------------------------------------------------------------------------


def test_case_07_a_gateway_that_has_just_started_is_tried_again_with_a_fresh_token_each(
    local, repo, begin, tokens
):
    session = begin(repo)
    session.agent("echo x >x")
    session.coordinator.close()
    tokens.clear()
    local.faults.gateway.drop_after_handshake = 2
    session.sync()
    session.coordinator.close()
    assert len(set(tokens)) == 3
    assert local.live_tokens() == 0
    assert repo.show("opencode/1", "x") == "x"


@pytest.mark.parametrize("fault", ["drop_after_handshake", "drop_before_handshake"])
def test_case_07_a_gateway_that_closes_every_connection(local, repo, begin, tokens, fault):
    session = begin(repo)
    repo.git("config", "daytona.transport", "ssh")
    session.agent("echo x >x")
    session.coordinator.close()
    tokens.clear()
    setattr(local.faults.gateway, fault, -1)
    with pytest.raises(ConnectionClosed, match="did not answer or closed the connection"):
        session.sync()
    session.coordinator.close()
    assert len(tokens) == 3
    assert local.live_tokens() == 0
    assert session.coordinator.sessions()[0].git_return.state == "failed"


def test_a_connection_that_breaks_in_the_middle(local, repo, begin):
    session = begin(repo)
    session.agent("head -c 3000000 /dev/urandom >big")
    local.faults.gateway.drop_after_bytes = 100_000
    with pytest.raises(ConnectionClosed):
        session.sync()
    local.faults.gateway.drop_after_bytes = None
    session.sync()
    session.coordinator.close()
    assert local.live_tokens() == 0
    assert len(repo.git("cat-file", "-s", "opencode/1:big")) == 7


def test_case_08_a_gateway_that_stalls(local, repo, begin, monkeypatch):
    """git and all below it end at the limit, the token with them, and the reason is recorded."""
    session = begin(repo)
    session.agent("echo x >x")
    monkeypatch.setattr(transfer, "IDLE_SECONDS", 1.0)
    local.faults.gateway.hang = -1
    with pytest.raises(TimedOut, match="made no progress"):
        session.sync()
    session.coordinator.close()
    assert [each.name for each in descendants() if each.name in ("git", "ssh")] == []
    assert local.live_tokens() == 0
    assert "made no progress" in session.coordinator.sessions()[0].git_return.message


FETCH = """
import sys
from pathlib import Path
from git_daytona.git.repository import discover
from git_daytona.settings import settings
from git_daytona.sessions.coordinator import Coordinator
repository = discover(Path.cwd())
coordinator = Coordinator(repository, settings.load(repository.worktree))
try:
    coordinator.transfers.fetch(repository, sys.argv[1], ["+refs/heads/*:refs/there/*"])
finally:
    coordinator.close()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_case_09_a_signal_during_a_transfer(local, repo, begin, number):
    """No child survives, and no token stays valid: past the process if it could act, else past
    recovery (cases 9, 67)."""
    session = begin(repo)
    session.coordinator.close()
    local.faults.gateway.hang = -1
    with subprocess.Popen(
        (sys.executable, "-c", FETCH, session.sandbox_id), cwd=repo.path, stderr=subprocess.PIPE
    ) as process:

        def connecting() -> bool:
            assert process.poll() is None, process.stderr.read()
            is_up = any(each.name == "ssh" for each in descendants(process.pid))
            return is_up and local.live_tokens() == 1

        until(connecting)
        below = [each.pid for each in descendants(process.pid)]
        process.send_signal(number)
        process.communicate(timeout=30)
    assert process.returncode != 0
    assert gone(*below)
    if number == signal.SIGKILL:
        assert local.live_tokens() == 1
        assert leases.reap(session.coordinator.cloud) == 1
    assert local.live_tokens() == 0
    local.faults.gateway.hang = 0
    session.coordinator.fetch("1")


# -- who sees it -----------------------------------------------------------------------------------


def test_case_56_a_token_is_in_no_argument_and_no_environment(
    local, repo, begin, tokens, monkeypatch
):
    """Of any process of a push and of a fetch, at many moments, while each is held open and while
    it moves (case 56)."""
    session = begin(repo)
    session.agent("head -c 20000000 /dev/urandom >big")
    # the coordinator has it; the git commands of this test would inherit it
    monkeypatch.delenv("DAYTONA_API_KEY")
    seen: dict[str, int] = {}
    leaks: list[str] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            for each in descendants():
                seen[each.name] = seen.get(each.name, 0) + 1
                for what in (*tokens, local.api_key):
                    if what.encode() in each.arguments + each.environment:
                        leaks.append(f"{each.name}: {each.words}")

    def held_open(work) -> None:
        local.faults.gateway.hang = 1
        thread = threading.Thread(target=work)
        thread.start()
        until(lambda: any(each.name == "ssh" for each in descendants()))
        before = seen.get("ssh", 0)
        until(lambda: seen.get("ssh", 0) >= before + 5)
        local.faults.gateway.release()
        thread.join()
        local.faults.gateway.hang = 0

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        held_open(session.sync)
        local.faults.gateway = type(local.faults.gateway)()
        repo.git("switch", "-q", "opencode/1")
        (repo.path / "more").write_bytes(os.urandom(5_000_000))
        repo.git("add", "more")
        repo.git("commit", "-q", "-m", "More")
        held_open(lambda: session.coordinator.push("1"))
    finally:
        done.set()
        watcher.join()
    assert len(tokens) == 3
    assert leaks == []
    assert {"git", "ssh"} <= set(seen), "it did look at the right processes"
    assert any(name.startswith("python") for name in seen), "and at the wrapper"
    assert seen["ssh"] > 10
    assert session.agent("git log -1 --format=%s") == "More\n"


def test_that_look_would_find_a_leak(tmp_path):
    token = "LeakedToken0123456789"
    script = "import time, sys; print('ready', flush=True); time.sleep(1000)"
    for words, environment in (((token,), {}), ((), {"T": token})):
        process = subprocess.Popen(
            (sys.executable, "-c", script, *words),
            env=os.environ | environment,
            stdout=subprocess.PIPE,
        )
        with process:
            process.stdout.readline()
            assert any(
                token.encode() in each.arguments + each.environment for each in descendants()
            )
            process.kill()


def test_case_04_every_error_of_the_api_is_free_of_tokens(local, account, sandbox):
    """A server that repeats what it was sent, in its message and in its headers."""
    secret = Secret("Echoed+To/ken=~1")
    for status in (400, 401, 403, 404, 405, 409, 418, 422, 429, 500, 503):
        message = (
            f"bad token {secret.reveal()} {quote(secret.reveal(), safe='')} for {local.api_key}"
        )
        with local.faults.call(route="revoke", status=status, message=message):
            try:
                account.revoke(sandbox, secret)
            except GitDaytonaError as problem:
                text = (
                    f"{problem!r} {problem} {problem.hint} {problem.details} "
                    f"{problem.__cause__!r} {problem.__suppress_context__}"
                )
                assert not any(
                    leak in text
                    for leak in (secret.reveal(), quote(secret.reveal(), safe=""), local.api_key)
                ), status
    assert isinstance(ServerError("x"), BadAnswer)
    assert Path.home().exists()
