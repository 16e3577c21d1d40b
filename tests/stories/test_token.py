"""daytona-token as people meet it."""

import json
import os
import signal
import subprocess
import sys

import httpx
import pytest

from support.processes import descendants, gone
from support.round_trip import BIN
from support.waiting import until

PROGRAM = "daytona-token"


@pytest.fixture(scope="module")
def sandbox(server) -> str:
    answer = httpx.post(
        f"{server.api_url}/sandbox",
        json={},
        headers={"Authorization": f"Bearer {server.api_key}"},
        timeout=60,
    )
    return str(answer.json()["id"])


@pytest.fixture
def tokens(local) -> list[str]:
    seen: list[str] = []
    local.watch_tokens(seen.append)
    return seen


def test_mint_and_revoke(local, sandbox, tell, tokens):
    told = tell(PROGRAM, "mint", sandbox)
    assert (told.status, told.out, told.err) == (0, f"{tokens[0]}\n", "")
    assert local.live_tokens() == 1
    told = tell(PROGRAM, "revoke", sandbox, stdin=told.out.encode())
    assert (told.status, told.out, told.err) == (0, "", "revoked\n")
    assert local.live_tokens() == 0
    assert tell(PROGRAM, "revoke", sandbox, stdin=tokens[0].encode()).status == 0, "again is fine"


def test_mint_as_json(local, sandbox, tell, tokens):
    told = tell(PROGRAM, "mint", "--json", sandbox, "--minutes", "3")
    answer = json.loads(told.out)
    assert answer == {
        "token": tokens[0],
        "expiresAt": answer["expiresAt"],
        "host": "127.0.0.1",
        "port": local.gateway_port,
    }
    tell(PROGRAM, "mint", sandbox)
    assert local.live_tokens() == 1, "minting ends the earlier token"
    assert tell(PROGRAM, "revoke", sandbox, "--all").err == "revoked\n"
    assert local.live_tokens() == 0


@pytest.mark.parametrize(
    "stdin", [b"", b" \n", b"one two\n", b"one\ntwo", b"\xff\xfe", "tökén".encode(), b"a\0b c"]
)
def test_revoke_wants_exactly_one_token(local, sandbox, tell, stdin):
    told = tell(PROGRAM, "revoke", sandbox, stdin=stdin)
    error, hint = told.complaint
    assert (told.status, told.out) == (2, "")
    assert "no token on standard input" in error
    assert "--all" in hint
    assert local.calls == [], "nothing is revoked that nobody asked for"


def test_revoke_from_a_terminal_or_nothing(local, sandbox, tmp_path):
    controller, terminal = os.openpty()
    examples = {
        "the token is read from standard input [usage]\nhint: printf": {"stdin": terminal},
        "there is no token on standard input": {"preexec_fn": lambda: os.close(0)},
    }
    for words, how in examples.items():
        done = subprocess.run(
            (BIN / PROGRAM, "revoke", sandbox), capture_output=True, text=True, timeout=60, **how
        )
        assert done.returncode == 2
        assert done.stderr.startswith(f"daytona-token: error: {words}")
    os.close(controller)
    os.close(terminal)
    assert local.calls == []


def test_exec_gives_the_token_to_the_command_alone(local, sandbox, tell, tokens, tmp_path):
    told = tell(PROGRAM, "exec", sandbox, "--", "sh", "-c", "env; exit 7")
    assert told.status == 7
    environment = dict(line.split("=", 1) for line in told.out.splitlines() if "=" in line)
    assert environment["DAYTONA_SSH_TOKEN"] == tokens[0]
    assert environment["DAYTONA_SSH_GATEWAY"] == f"127.0.0.1:{local.gateway_port}"
    assert "DAYTONA_API_KEY" not in environment
    assert "DAYTONA_SSH_TOKEN" not in os.environ
    assert local.live_tokens() == 0


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -KILL $$", 137)],
)
def test_exec_passes_the_status_on(local, sandbox, tell, script, status):
    assert tell(PROGRAM, "exec", sandbox, "--", "sh", "-c", script).status == status
    assert local.live_tokens() == 0


def test_exec_leaves_the_commands_words_alone(local, sandbox, tell):
    for words in (("--",), ()):
        told = tell(
            PROGRAM,
            "exec",
            sandbox,
            *words,
            "printf",
            "%s|",
            "--json",
            "-h",
            "--",
            "",
            "a b",
            "--help",
        )
        assert (told.status, told.out) == (0, "--json|-h|--||a b|--help|")
    assert tell(PROGRAM, "exec", sandbox, "--", "cat", stdin=b"").status == 0


def test_exec_of_what_is_not_there(local, sandbox, tell):
    told = tell(PROGRAM, "exec", sandbox, "--", "no-such-command", "x")
    error, _ = told.complaint
    assert told.status == 12
    assert (
        error == "daytona-token: error: cannot run 'no-such-command': No such file or directory "
        "[missing-program]"
    )
    assert local.live_tokens() == 0
    assert local.counts["mint"] == local.counts["revoke"] == 1


def test_plain_git_and_ssh_work_in_it(local, sandbox, tell, repo, tmp_path):
    """As the help says; the token is in no argument list and in no environment of ssh, while git
    and its own keep theirs."""
    script = f'"{BIN}/daytona-ssh" -p {local.gateway_port} 127.0.0.1 "git init -q -b main project"'
    assert tell(PROGRAM, "exec", sandbox, "--", "sh", "-c", script).status == 0
    script = (
        'git push -q "ssh://$DAYTONA_SSH_GATEWAY/home/daytona/project" HEAD:refs/heads/there && '
        'git ls-remote "ssh://$DAYTONA_SSH_GATEWAY/home/daytona/project"'
    )
    told = tell(PROGRAM, "exec", sandbox, "--", "sh", "-c", script, cwd=repo.path)
    assert (told.status, told.out) == (0, f"{repo.git('rev-parse', 'HEAD')}\trefs/heads/there\n")
    shim = tmp_path / "own"
    shim.write_text(
        f'#!/bin/sh\nenv >"{tmp_path}/environment"\nprintf "%s\\n" "$@" '
        f'>"{tmp_path}/arguments"\nexit 1\n'
    )
    shim.chmod(0o755)
    repo.git("config", "core.sshCommand", str(shim))
    repo.git("config", "ssh.variant", "ssh")
    tell(PROGRAM, "exec", sandbox, "--", "git", "fetch", "ssh://me@other.invalid/x", cwd=repo.path)
    assert "me@other.invalid" in (tmp_path / "arguments").read_text()
    assert "DAYTONA_" not in (tmp_path / "environment").read_text()


def test_exec_while_it_is_held_open(local, sandbox, tokens):
    local.faults.gateway.hang = -1
    command = (
        BIN / PROGRAM,
        "exec",
        sandbox,
        "--",
        "git",
        "ls-remote",
        f"ssh://127.0.0.1:{local.gateway_port}/x",
    )
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        # before the token is minted, another ssh looks at the gateway's key
        client = until(
            lambda: tokens and [each for each in descendants(process.pid) if each.name == "ssh"]
        )
        below = descendants(process.pid)
        assert not any(tokens[0].encode() in each.arguments for each in below)
        assert not any(
            b"DAYTONA_" in each.environment or tokens[0].encode() in each.environment
            for each in client
        )
        assert not any(local.api_key.encode() in each.environment for each in below)
        process.terminate()
        assert process.wait(30) != 0
        # git has ended; ssh would wait for the gateway as long as its own limits say
        local.faults.gateway.release()
        assert gone(*(each.pid for each in below))
    assert local.live_tokens() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_signals_during_exec(local, sandbox, tell, number, tmp_path):
    """They are the command's; the token is revoked when that has ended, or by reap."""
    os.mkfifo(tmp_path / "ready")
    program = f"""import signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT): signal.signal(number, lambda *_: sys.exit(42))
open({str(tmp_path / "ready")!r}, "w").write("ready")
while True: time.sleep(0.05)
"""
    with subprocess.Popen(
        (BIN / PROGRAM, "exec", sandbox, "--", sys.executable, "-c", program),
        stdin=subprocess.DEVNULL,
    ) as process:
        (tmp_path / "ready").read_text()
        below = [each.pid for each in descendants(process.pid)]
        process.send_signal(number)
        status = process.wait(30)
        if number == signal.SIGKILL:
            for each in below:
                os.kill(each, signal.SIGTERM)
    assert gone(*below)
    if number == signal.SIGKILL:
        assert local.live_tokens() == 1
        assert tell(PROGRAM, "reap").out == "1 of 1 stale leases revoked\n"
    else:
        assert status == 42
    assert local.live_tokens() == 0
    assert tell(PROGRAM, "reap").out == "no stale leases\n"


def test_reap_that_fails(local, sandbox, tell, tokens):
    with local.faults.call(route="mint", drop="after"):
        assert tell(PROGRAM, "exec", sandbox, "--", "true").status == 4
    with local.faults.call(route="revoke", status=500):
        told = tell(PROGRAM, "reap")
    assert told.out == "0 of 1 stale leases revoked\n"
    assert tell(PROGRAM, "reap").out == "1 of 1 stale leases revoked\n"
    assert local.live_tokens() == 0


def test_a_key_of_the_project(local, sandbox, tell, repo, monkeypatch):
    monkeypatch.delenv("DAYTONA_API_KEY")
    (repo.path / ".env").write_text(
        f"export DAYTONA_API_KEY='{local.api_key}'\nDAYTONA_API_URL=https://evil.invalid\n"
    )
    told = tell(PROGRAM, "revoke", "--all", sandbox, cwd=repo.path)
    assert (told.status, told.err.count("\n")) == (0, 2)
    assert told.err.startswith("daytona-token: warning: DAYTONA_API_URL in '.env' ignored")
    assert tell(PROGRAM, "revoke", "--all", sandbox).status == 5, "elsewhere there is none"


def test_without_git_and_in_a_directory_that_is_gone(local, sandbox, tell, monkeypatch, tmp_path):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert tell(PROGRAM, "revoke", "--all", sandbox).status == 0
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tell(PROGRAM, "revoke", "--all", sandbox).status == 0


LOADED = """
import sys
from git_daytona.__main__ import main
status = main(sys.argv[1:])
heavy = ("daytona", "keyring", "asyncssh", "aiohttp", "pydantic")
loaded = sorted(name for name in sys.modules if name.partition(".")[0] in heavy)
print(*loaded, file=sys.stderr)
sys.exit(status)
"""


@pytest.mark.parametrize(
    "words",
    [
        ("mint", "{}"),
        ("exec", "{}", "--", "true"),
        ("revoke", "--all", "{}"),
        ("reap",),
        ("--version",),
    ],
)
def test_the_full_sdk_is_not_loaded(local, sandbox, words):
    argv = (sys.executable, "-c", LOADED, PROGRAM, *(word.format(sandbox) for word in words))
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.splitlines()[-1].split())
    assert not any(
        name.partition(".")[0] in ("daytona", "keyring", "asyncssh", "aiohttp") for name in loaded
    )
    if words == ("--version",):
        assert loaded == set()


def test_the_executable_itself(local, sandbox, command, tokens):
    told = command(PROGRAM, "mint", sandbox)
    assert (told.status, told.out, told.err) == (0, f"{tokens[0]}\n", "")
    assert command(PROGRAM, "revoke", sandbox, stdin=told.out).status == 0
    assert local.live_tokens() == 0


def test_a_key_in_a_command_s_place_is_not_repeated(tell) -> None:
    for word in ("AbC-123_secretkeyXYZ", "0123456789abcdef0123456789abcdef", "dtn_0123"):
        told = tell("daytona-token", word)
        assert told.status == 2
        assert word not in told.err + told.out
        assert told.complaint[0] == "daytona-token: error: no such command [usage]"
