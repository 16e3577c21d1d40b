"""Whoever accepts and then says nothing: every command ends within its documented limit
(git-daytona(7), TIME LIMITS) with its message, and leaves no token. The commands are called in this
process, where their limits can be made shorter; nothing else is changed."""

import contextlib
import threading

import keyring
import keyring.backend
import pytest

from git_daytona.api import account, cloud, http, toolbox
from git_daytona.base import files, paths
from git_daytona.doctor import daytona as doctor
from git_daytona.doctor import findings
from git_daytona.sandbox import report
from git_daytona.settings import keystore
from git_daytona.transfer import leases, transfer
from git_daytona.trust import presented
from support.processes import descendants

SHORTER = {
    (account.Account, "request_seconds"): 0.4,
    (http, "ANSWER_SECONDS"): 0.4,
    (cloud.Cloud, "start_seconds"): 1.0,
    (toolbox, "MARGIN_SECONDS"): 0.1,
    (report, "PREPARE_SECONDS"): 1,
    (report, "REPORT_SECONDS"): 1,
    (leases, "RETRY_SECONDS"): 0.4,
    (transfer, "IDLE_SECONDS"): 1.5,
    (presented, "KEYSCAN_SECONDS"): 1,
    (presented, "PROBE_SECONDS"): 0.5,
    (keystore, "LOOKUP_SECONDS"): 0.3,
    (keystore, "PATIENT_SECONDS"): 0.5,
    (doctor, "REQUEST_SECONDS"): 0.4,
    (doctor, "PROBE_SECONDS"): 0.5,
    (findings, "CHECK_SECONDS"): 0.6,
}


@pytest.fixture
def short(monkeypatch):
    for (where, name), seconds in SHORTER.items():
        assert getattr(where, name) > seconds
        monkeypatch.setattr(where, name, seconds)
    # Bound when the function was made.
    monkeypatch.setitem(presented.all_keys.__kwdefaults__, "seconds", 0.5)
    monkeypatch.setitem(files.lock.__wrapped__.__kwdefaults__, "seconds", 0.3)


@pytest.fixture
def session(repo, begin):
    made = begin(repo)
    made.agent("echo work > work")
    made.coordinator.close()
    return made


def ends(tell, repo, words, status, message):
    """The command ends with that status and says so in one line."""
    told = tell(*words, cwd=repo.path)
    assert told.status == status, (words, told)
    if message is not None:
        assert message in told.complaint[0], (words, told)


def test_an_api_that_says_nothing(local, repo, session, tell, short):
    number, sandbox_id = session.name, session.sandbox_id
    commands = [
        ("git-daytona", "start"),
        ("git-daytona", "sync", number),
        ("git-daytona", "exec", "--timeout", "1", number, "true"),
        ("git-daytona", "fetch", number),
        ("git-daytona", "push", number),
        ("git-daytona", "delete", number),
        ("git-daytona", "adopt", "another"),
        ("git-daytona", "prune", "-n"),
        ("daytona-token", "mint", sandbox_id),
        ("daytona-token", "revoke", "--all", sandbox_id),
        ("daytona-token", "exec", sandbox_id, "--", "true"),
        ("daytona-token", "whoami"),
    ]
    with local.faults.call(hang=True):
        for words in commands:
            ends(tell, repo, words, 4, None)
        ends(tell, repo, ("git-daytona", "doctor"), 1, None)
        ends(tell, repo, ("git-daytona", "status"), 0, None)
        told = tell("git-daytona", "recover", cwd=repo.path)
        assert told.status == 1 and "did not answer in time" in told.err
        assert tell("daytona-pin", "verify", cwd=repo.path).status in (0, 3, 4)
    assert tell("git-daytona", "sync", number, cwd=repo.path).status == 0, (
        "and afterwards it goes on"
    )


def test_a_gateway_that_says_nothing(
    local, repo, session, begin, tell, short, tmp_path, monkeypatch
):
    idle = begin(repo)
    idle.coordinator.close()
    repo.git(
        "update-ref",
        "refs/heads/opencode/2",
        repo.git("commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "mine"),
    )
    local.faults.gateway.hang = -1
    for verb, name in (
        ("sync", session.name),
        ("fetch", session.name),
        ("push", idle.name),
        ("delete", session.name),
    ):
        ends(tell, repo, ("git-daytona", verb, name), 18, "made no progress")
    ends(tell, repo, ("git-daytona", "start"), 18, "made no progress")
    ends(tell, repo, ("git-daytona", "doctor"), 1, None)
    ends(tell, repo, ("daytona-pin", "verify", "--live"), 4, None)
    # Somebody's own git has ssh's own limit: 30 seconds for a connection. On ssh's command line the
    # first value counts.
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nexec ssh -o ConnectTimeout=1 "$@"\n')
    ssh.chmod(0o700)
    monkeypatch.setenv("DAYTONA_SSH_BINARY", str(ssh))
    script = 'git ls-remote "ssh://$DAYTONA_SSH_GATEWAY/home/daytona/project"'
    assert (
        tell(
            "daytona-token", "exec", session.sandbox_id, "--", "sh", "-c", script, cwd=repo.path
        ).status
        == 128
    )
    assert local.live_tokens() == 0
    assert [
        each.words for each in descendants() if each.name in ("git", "ssh", "ssh-keyscan")
    ] == []


class Silent(keyring.backend.KeyringBackend):
    """A keyring whose prompt nobody sees."""

    priority = 1
    name = "silent"

    def __init__(self):
        super().__init__()
        self.released = threading.Event()

    def get_password(self, service, username):
        self.released.wait()

    def set_password(self, service, username, password):
        self.released.wait()

    def delete_password(self, service, username):
        self.released.wait()


def test_a_keyring_that_says_nothing(local, repo, session, tell, short, monkeypatch):
    monkeypatch.delenv("DAYTONA_API_KEY")
    silent, before = Silent(), keyring.get_keyring()
    with contextlib.ExitStack() as stack:
        stack.callback(keyring.set_keyring, before)
        stack.callback(silent.released.set)
        keyring.set_keyring(silent)
        for words in [
            ("git-daytona", "start"),
            ("git-daytona", "sync", session.name),
            ("git-daytona", "delete", session.name),
            ("daytona-token", "mint", session.sandbox_id),
            ("daytona-token", "whoami"),
            ("daytona-token", "logout"),
        ]:
            ends(tell, repo, words, 13, "the keyring did not answer within")
        told = tell("daytona-token", "login", cwd=repo.path, stdin=local.api_key.encode() + b"\n")
        assert told.status == 13 and "did not answer within" in told.complaint[0]
        ends(tell, repo, ("git-daytona", "status"), 0, None)


def test_another_process_that_does_not_let_go(local, repo, session, tell, short):
    """A lock that is held, as by a process that was stopped."""
    with files.lock(paths.locks() / f"state-{session.coordinator.state.path.stem}"):
        ends(
            tell,
            repo,
            ("git-daytona", "sync", session.name),
            18,
            "has been holding the lock on the state file",
        )
