"""The canary: complete runs of every executable with debug logging, every kind of tracing and every
failure, and then a search for each token and the API key wherever something could stand
(support/secret_search.py). The fault matrix has the canary, too (test_faults.py)."""

import base64
import json
import os
import subprocess
import sys
import threading
from urllib.parse import quote

import pytest
from test_service import Host

from git_daytona.base import log, paths
from git_daytona.base.errors import GitDaytonaError
from support.round_trip import BIN, Ran
from support.secret_search import Canary, forms, reprs, shown
from support.waiting import until

PLANTED = "Planted+Canary/0123456789"
WRONG = "dtn_AnotherKeyThatIsWrong"


@pytest.fixture
def keyless(local, monkeypatch) -> str:
    """The key is in nobody's environment but that of whom it is given to: it is returned. git is
    asked to trace it."""
    monkeypatch.delenv("DAYTONA_API_KEY")
    monkeypatch.setenv("GIT_TRACE2_ENV_VARS", "DAYTONA_SSH_TOKEN,DAYTONA_API_KEY")
    return local.api_key


@pytest.fixture
def executed(canary, repo, command, keyless):
    """Run an executable as a user does; what it says is searched later."""

    def run(
        *words: str,
        stdin: str = "",
        status: int | None = 0,
        key: str | None = keyless,
        secret: bool = False,
    ) -> Ran:
        told = command(
            *words, cwd=repo.path, stdin=stdin, env={} if key is None else {"DAYTONA_API_KEY": key}
        )
        assert status is None or told.status == status, told.err
        if not secret:
            canary.tell(f"stdout of {words}", told.out)
        canary.tell(f"stderr of {words}", told.err)
        return told

    return run


@pytest.mark.parametrize(
    "words",
    [("daytona-pin", "scan"), ("daytona-local", "exec", "--", "true")],
    ids=lambda words: words[0],
)
def test_programs_that_an_import_starts_do_not_have_the_key(
    local, command, keyless, tmp_path, monkeypatch, words
):
    """asyncssh has ctypes look for a library, which asks the compiler where it is."""
    seen = tmp_path / "environment"
    compiler = tmp_path / "bin" / "gcc"
    compiler.parent.mkdir()
    compiler.write_text(f"#!/bin/sh\nenv >>{seen}\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{compiler.parent}:{os.environ['PATH']}")
    told = command(*words, env={"DAYTONA_API_KEY": keyless})
    assert told.status == 0, told.err
    assert "PATH=" in seen.read_text(), "nothing looked: the test shows nothing"
    assert keyless not in seen.read_text()


def test_a_complete_run_leaves_no_secret_anywhere(
    local, repo, canary, executed, keyless, coordinate, home, tmp_path, monkeypatch
):
    """Each executable and each verb, the failures of the API and of the gateway, a server that
    repeats what it is told."""
    canary.keys.add(WRONG)
    before = set(home.rglob("*"))
    with canary.watching():
        executed("daytona-pin", "status", key=None, status=None)
        executed("git-daytona", "start")
        executed(
            "git-daytona",
            "exec",
            "1",
            "env; echo x >x; tr '\\0' '\\n' </proc/self/environ; cat .git/config; true",
        )
        executed("git-daytona", "sync", "1")
        for words in (("status",), ("doctor",), ("logs",), ("fetch", "1")):
            executed("git-daytona", *words, status=None)
        sandbox = local.sandboxes[-1].id
        minted = executed("daytona-token", "mint", sandbox, secret=True)
        assert minted.out == f"{canary.tokens[-1]}\n"
        executed("daytona-token", "revoke", sandbox, stdin=minted.out)
        executed(
            "daytona-token", "revoke", sandbox, stdin=f"{minted.out.strip()} {minted.out}", status=2
        )
        executed("daytona-token", "mint", sandbox, key=WRONG, status=6)
        executed("git-daytona", "sync", "1", key=WRONG, status=6)
        executed(
            "daytona-ssh",
            "-p",
            str(local.gateway_port),
            "127.0.0.1",
            "git-upload-pack 'x'",
            key=None,
            status=None,
        )
        executed("daytona-pin", "verify", key=None, status=None)
        executed("daytona-token", "reap")
        executed("daytona-token", "whoami", status=None)
        executed("daytona-token", "login", key=None, stdin=f"{keyless}\n", status=None)
        executed("daytona-token", "logout", key=None, status=None)
        host = Host(None)
        with pytest.MonkeyPatch.context() as own:
            own.setenv("DAYTONA_API_KEY", local.api_key)
            host.close()
            host = Host(repo.path)
        host.bash("echo y > y; env; cat /proc/self/environ", session="ses_served")
        with local.faults.call(
            route="mint",
            status=403,
            message=f"not you, {local.api_key} {quote(canary.tokens[-1], safe='')}",
        ):
            host.event("session.idle", session="ses_served")
            assert "may not mint" in host.toast("Sync failed")
        host.call("tool", name="gitSync", sessionID="ses_served", arguments={})
        host.call("guard", tool="lsp", builtin=["lsp"], servers=[])
        _, errors = host.close()
        canary.tell("what the service sent, toasts among it", json.dumps(host.lines))
        canary.tell("stderr of the service", errors)
        executed("git-daytona", "delete", "1")
        executed("git-daytona", "delete", "ses_served")
    # A person's own mistake, which nobody can undo, but it is not repeated.
    wrong = executed("daytona-token", "login", keyless, key=None, status=2)
    assert "takes no arguments" in wrong.err
    canary.texts = {name.replace(keyless, "KEY"): text for name, text in canary.texts.items()}
    assert local.live_tokens() == 0
    assert len(canary.tokens) >= 6
    assert {"git", "ssh"} <= set(canary.seen), "it did look"
    assert canary.leaks() == []
    log_file = paths.log_file().read_text()
    assert "token.mint" in log_file and "token.revoke" in log_file
    assert list((tmp_path / "tmp").iterdir()) == [], "nothing is left in TMPDIR"
    wrong = [
        path
        for path in set(home.rglob("*")) - before
        if path.stat().st_mode & 0o777 != (0o700 if path.is_dir() else 0o600)
    ]
    assert [path for path in wrong if ".cache" not in path.parts] == []


def test_failures_show_no_secret(local, repo, canary, begin, monkeypatch, keyless):
    """Exceptions of a transfer with their frames' values, and the reprs of all that is alive, in
    this process."""
    monkeypatch.setenv("DAYTONA_API_KEY", keyless)
    monkeypatch.setattr("git_daytona.transfer.leases._wait", lambda state: 0.01)
    with (repo.path / ".git/config").open("a") as config:  # not by git, which is traced
        config.write("[daytona]\n\ttransport = ssh\n")
    session = begin(repo)
    session.agent("echo x > x")
    session.sync()
    coordinator = session.coordinator
    echo = f"no {canary.tokens[-1]} {local.api_key}"
    failures = [
        ({"route": "mint", "status": 500, "message": echo}, {}),
        ({"route": "mint", "status": 404, "message": f"Sandbox {echo}"}, {}),
        ({"route": "mint", "drop": "after"}, {}),
        (
            {
                "route": "mint",
                "body": json.dumps({"token": f"-{PLANTED} {echo}", "expiresAt": 7}).encode(),
            },
            {},
        ),
        ({"route": "mint", "body": json.dumps({"token": echo, "sandboxId": [echo]}).encode()}, {}),
        ({"route": "revoke", "status": 400, "message": echo}, {}),
        ({"route": "revoke", "drop": "after"}, {}),
        ({"route": "get", "status": 400, "message": echo}, {"drop_after_handshake": -1}),
        ({"route": "nothing"}, {"drop_before_handshake": -1}),
        ({"route": "nothing"}, {"drop_after_bytes": 1000}),
    ]
    met, coordinator.show = 0, True
    for number, (fault, gateway) in enumerate(failures):
        local.faults.gateway = type(local.faults.gateway)(**gateway)
        with local.faults.call(**fault):
            try:
                coordinator.fetch("1")
            except GitDaytonaError as problem:
                met += 1
                canary.tell(f"error {number}", shown(problem, frames=echo not in str(fault)))
            coordinator.close()
    for number, shape in enumerate(({}, {"token": f"-{local.api_key}"}, {"id": local.api_key})):
        with local.faults.call(
            route="^get$", body=json.dumps(shape | {"apiKey": local.api_key}).encode()
        ):
            try:
                coordinator.cloud.get(session.sandbox_id)
            except GitDaytonaError as problem:
                canary.tell(f"odd answer {number}", shown(problem, frames=False))
    assert met >= 7
    for name, text in reprs():
        canary.tell(name, text)
    assert any("Secret" in name for name in canary.texts) and any(
        "Coordinator" in name for name in canary.texts
    )
    assert canary.leaks() == []


HOLDS = {
    "before authentication": {"hang": -1},
    "after authentication": {"stall_after_bytes": 0},
    "in the pack": {"stall_after_bytes": 100_000},
}


@pytest.mark.parametrize("who", ["this process", "git-daytona", "daytona-token exec"])
def test_a_held_transfer_shows_no_secret(local, repo, canary, begin, monkeypatch, keyless, who):
    """Every process, every file and every object is looked at while the transfer stands still."""
    monkeypatch.setenv("DAYTONA_API_KEY", keyless)
    session = begin(repo)
    coordinator = session.coordinator
    session.agent("git log >/dev/null")
    monkeypatch.delenv("DAYTONA_API_KEY")
    if who == "daytona-token exec":
        # The command gets the token in its environment, as asked, and git with it; ssh does not.
        canary.may_have_token = lambda each: (
            each.name in ("sh", "git", "git-remote-ssh") or "git_daytona" in each.arguments.decode()
        )
    with canary.watching():
        for hold, fault in HOLDS.items():
            session.agent("head -c 300000 /dev/urandom >big")
            local.faults.gateway = type(local.faults.gateway)(**fault)
            before, process, thread = canary.seen.get("ssh", 0), None, None
            if who == "this process":
                thread = threading.Thread(target=session.sync)
                thread.start()
            else:
                words = ("git-daytona", "sync", "1")
                if who == "daytona-token exec":
                    session.agent("git add big; git commit -q -m big")
                    # Whoever asks git to trace that variable gets it.
                    script = (
                        "unset GIT_TRACE2_ENV_VARS; export GIT_CONFIG_GLOBAL=/dev/null;"
                        ' git clone -q --bare "ssh://$DAYTONA_SSH_GATEWAY/home/daytona/'
                        'project" "$1"'
                    )
                    words = (
                        "daytona-token",
                        "exec",
                        session.sandbox_id,
                        "--",
                        "sh",
                        "-c",
                        script,
                        "sh",
                        f"clone {hold}",
                    )
                env = os.environ | {"DAYTONA_API_KEY": keyless}
                process = subprocess.Popen(
                    (str(BIN / words[0]), *words[1:]),
                    cwd=repo.path,
                    env=env,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            held = local.faults.gateway.held.wait(30)
            until(lambda: canary.seen.get("ssh", 0) > before)  # noqa: B023
            canary.look()
            meanwhile = Canary(keys=canary.keys, tokens=canary.tokens, places=canary.places)
            if thread is not None:
                meanwhile.texts.update(reprs())
            leaks = meanwhile.leaks()
            local.faults.gateway.release()
            if thread is not None:
                thread.join()
            else:
                out, err = process.communicate(timeout=60)
                assert process.returncode == 0, err
                canary.tell(f"stdout {hold}", out)
                canary.tell(f"stderr {hold}", err)
            assert held, hold
            assert leaks == [], hold
    coordinator.close()
    assert local.live_tokens() == 0
    assert canary.leaks() == []


def test_a_key_of_the_project_is_in_no_environment(local, repo, canary, executed, keyless):
    """Nobody exports it: not even the coordinator's own environment has it."""
    canary.may_have_key = lambda each: False
    canary.places = [path for path in canary.places if path not in repo.path.parents] + [
        repo.path / ".git"
    ]
    repo.write(".env", f"DAYTONA_API_KEY={keyless}\n")
    with canary.watching():
        executed("git-daytona", "start", key=None)
        executed("git-daytona", "delete", "1", key=None)
    assert canary.leaks() == []


LOCALLY = """
printf %s "$DAYTONA_API_KEY" >"$SECRETS/key"
git-daytona start && git-daytona exec 1 -- 'echo x > x; env' && git-daytona sync 1 || exit
id=$(git-daytona status --json | tr -d ' \\n' | sed 's/.*"sandboxId":"\\([^"]*\\)".*/\\1/')
daytona-token mint "$id" >"$SECRETS/token" && daytona-token revoke "$id" <"$SECRETS/token" &&
git-daytona delete 1
"""


def test_the_embedded_daytona_keeps_its_secrets(
    repo, canary, command, tmp_path_factory, monkeypatch
):
    """Its key and its tokens are worth something while it runs; its command has the key, as
    asked."""
    secrets = tmp_path_factory.mktemp("secrets")
    for name in ("DAYTONA_API_KEY", "DAYTONA_API_URL"):
        monkeypatch.delenv(name)
    env = {"SECRETS": str(secrets), "PATH": f"{BIN}:{os.environ['PATH']}"}
    told = command("daytona-local", "exec", "--", "sh", "-c", LOCALLY, cwd=repo.path, env=env)
    assert told.status == 0, told.err
    canary.tell("stdout", told.out)
    canary.tell("stderr", told.err)
    canary.keys.add((secrets / "key").read_text())
    canary.tokens.append((secrets / "token").read_text().strip())
    assert all(len(each) > 20 for each in (*canary.keys, *canary.tokens))
    assert canary.leaks() == []


def running(environment, *words):
    script = "import sys; print('ready', flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        (sys.executable, "-c", script, *words),
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    process.stdout.readline()
    return process


def planted_environment(canary, repo, tmp_path):
    with running({"T": PLANTED}) as process:
        canary.look()
        process.stdin.close()


def planted_argument(canary, repo, tmp_path):
    with running({}, f"--token={PLANTED}") as process:
        canary.look()
        process.stdin.close()


def planted_file(canary, repo, tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "file").write_text(f"before {PLANTED} after")


def planted_name(canary, repo, tmp_path):
    (tmp_path / quote(PLANTED, safe="")).mkdir()


def planted_object(canary, repo, tmp_path):
    repo.commit("committed", f"x {PLANTED} y\n")
    (repo.path / "committed").unlink()


def planted_pack(canary, repo, tmp_path):
    planted_object(canary, repo, tmp_path)
    repo.git("gc", "-q")
    assert not list(repo.path.glob(".git/objects/??"))


def planted_log(canary, repo, tmp_path):
    log.logger.warning("%s", PLANTED)


def planted_stdout(canary, repo, tmp_path):
    done = subprocess.run(("echo", PLANTED[:5], PLANTED), capture_output=True, text=True)
    canary.tell("stdout", done.stdout)


def planted_toast(canary, repo, tmp_path):
    canary.tell(
        "toasts", json.dumps([{"method": "toast", "params": {"message": f"failed: {PLANTED}"}}])
    )


class Chatty(GitDaytonaError):
    """An error that knows too much."""


Chatty.__module__ = "git_daytona.chatty"


def planted_exception(canary, repo, tmp_path):
    for where in ({"hint": PLANTED}, {"details": PLANTED}):
        canary.tell("exception", shown(Chatty("it failed", **where)))


def planted_cause(canary, repo, tmp_path):
    try:
        try:
            raise ValueError(f"bad token {PLANTED}")
        except ValueError as problem:
            raise Chatty("it failed") from problem
    except Chatty as problem:
        canary.tell("exception", shown(problem))


def planted_local(canary, repo, tmp_path):
    code = "def mint(answer):\n    raise Chatty('it failed')\nmint(planted)"
    try:
        exec(
            code,
            {"__name__": "git_daytona.planted", "Chatty": Chatty, "planted": {"token": PLANTED}},
        )
    except Chatty as problem:
        canary.tell("exception", shown(problem))


def planted_repr(canary, repo, tmp_path):
    alive = Chatty(f"token {PLANTED}")
    canary.texts.update(reprs())
    assert alive


def planted_form(number):
    def plant(canary, repo, tmp_path):
        (tmp_path / "form").write_bytes(b"before " + sorted(forms(PLANTED))[number] + b" after")

    return plant


def planted_header(canary, repo, tmp_path):
    (tmp_path / "header").write_bytes(base64.b64encode(f"user:{PLANTED}:password".encode()))


PLANTS = {
    name.removeprefix("planted_"): plant
    for name, plant in sorted(globals().items())
    if name.startswith("planted_") and name != "planted_form"
} | {f"form {number}": planted_form(number) for number in range(len(forms(PLANTED)))}


@pytest.mark.parametrize("kind", PLANTS)
def test_the_search_finds_what_is_planted(kind, repo, tmp_path, home, monkeypatch):
    """One leak of each kind; without it nothing is found."""
    log.to_file()
    canary = Canary(tokens=[PLANTED], places=[home, tmp_path])
    canary.look()
    assert canary.leaks() == []
    monkeypatch.setattr(log, "redact", lambda text: text)  # which would not let it pass
    PLANTS[kind](canary, repo, tmp_path)
    assert canary.leaks(), kind


def test_an_executable_may_have_the_key_and_nothing_below_it():
    """The exception from the rule is as narrow as it sounds."""
    canary = Canary(keys={PLANTED})
    with running({"DAYTONA_API_KEY": PLANTED}, "-m", "git_daytona", "git-daytona") as process:
        canary.look()
        process.stdin.close()
    assert canary.leaks() == []
    with running({"DAYTONA_API_KEY": PLANTED}, "git-daytona") as process:
        canary.look()
        process.stdin.close()
    assert canary.leaks()
