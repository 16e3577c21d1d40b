"""Commits that travel through the API: by choice, and where SSH is blocked."""

import pytest

from git_daytona.base.errors import (
    BadSetting,
    ConnectionClosed,
    GitDaytonaError,
    TransferFailed,
)
from git_daytona.local.core.faults import CallFault


@pytest.fixture
def by_api(repo):
    repo.git("config", "daytona.transport", "api")


def test_a_whole_session(local, repo, begin, by_api):
    session = begin(repo)
    session.agent(
        "echo one >one; git add one; git commit -qm one; git branch other; echo stash >README; "
        "git stash -q; echo pending >pending"
    )
    assert session.sync().changed
    assert repo.show("opencode/1", "one") == "one"
    assert repo.show("opencode/1", "pending") == "pending"
    assert repo.git("rev-parse", "sandbox-1/other") == repo.git("rev-parse", "opencode/1~1")
    assert list(repo.kept()) != []  # the stash
    assert not session.sync().changed
    session.agent("git switch -q -c new; git branch -D other")  # nothing to pack
    session.sync()
    assert repo.git("branch", "-r", "--format=%(refname:short)") == (
        "sandbox-1/new\nsandbox-1/opencode"
    )
    tip = repo.git("commit-tree", "-p", "opencode/1", "-m", "mine", "opencode/1^{tree}")
    repo.git("update-ref", "refs/heads/opencode/1", tip)
    session.coordinator.push("1")
    assert session.agent("git rev-parse HEAD; cat pending") == f"{tip}\npending\n"
    session.agent("rm -rf .git; echo last >last")  # made again by a push
    session.sync()
    session.coordinator.delete("1")
    assert repo.show("opencode/1", "last") == "last"
    assert "mint" not in local.counts
    assert repo.git("fsck", "--connectivity-only", "--no-dangling") == ""


def test_a_push_over_work_is_refused(repo, begin, by_api):
    session = begin(repo)
    head = repo.git("rev-parse", "opencode/1")
    session.agent("echo x >x; git add x; git commit -qm x")
    with pytest.raises(TransferFailed, match="non-fast-forward"):
        transport = session.coordinator._branch(session.coordinator.find("1")).transport
        transport.push(session.sandbox_id, f"{head}:refs/heads/opencode")


def test_objects_are_checked(repo, begin, by_api):
    session = begin(repo)
    session.sync()
    session.agent(
        "tree=$(printf '040000 tree %s\\t.git\\n' $(git rev-parse HEAD^{tree}) | git mktree); "
        "git update-ref refs/heads/evil $(git commit-tree -m evil $tree)"
    )
    with pytest.raises(TransferFailed, match="hasDotgit"):
        session.sync()
    assert repo.git("for-each-ref", "refs/remotes/sandbox-1/evil", "refs/daytona/incoming") == ""


def test_a_pack_that_is_too_large(repo, begin, by_api):
    session = begin(repo)
    repo.git("config", "daytona.maxFetchSize", "100k")
    session.agent("head -c 300000 /dev/urandom >big")
    with pytest.raises(TransferFailed, match="more than 100 KiB at once"):
        session.sync()
    assert session.agent("ls -A /tmp | grep -c git-daytona || true") == "0\n"


@pytest.mark.parametrize("trouble", ["truncated", "no answer"])
def test_trouble_on_the_way(local, repo, begin, by_api, trouble):
    session = begin(repo)
    session.agent("echo one >one")
    if trouble == "truncated":
        fault = local.faults.add(CallFault(route="files/download", body=b"PACK"))
    else:
        fault = local.faults.add(CallFault(route="files/download", status=502, times=9))
    with pytest.raises(GitDaytonaError) as raised:
        session.sync()
    print(raised.value)
    local.faults.clear()
    assert fault
    assert session.sync().changed
    assert repo.show("opencode/1", "one") == "one"


def test_ssh_is_blocked(local, repo, begin, command, server):
    """Start, sync, push and delete work; it is said once, and SSH is not tried for an hour."""
    local.faults.gateway.drop_before_handshake = -1
    said = "SSH to the gateway is blocked: for an hour, commits go through the API"
    started = command("git-daytona", "start", cwd=repo.path)
    assert (started.status, started.err.count(said)) == (0, 1)
    local.forget_calls()
    for words in (("exec", "1", "echo x >x"), ("sync", "1"), ("push", "1"), ("delete", "1")):
        done = command("git-daytona", *words, cwd=repo.path)
        assert (done.status, said in done.err) == (0, False), done.err
    assert repo.show("opencode/1", "x") == "x"
    assert "mint" not in local.counts
    assert local.live_tokens() == 0


@pytest.mark.parametrize("how", ["ssh", "the gateway answers"])
def test_ssh_is_not_blocked(local, repo, begin, how):
    session = begin(repo)
    session.agent("echo x >x")
    if how == "ssh":
        repo.git("config", "daytona.transport", "ssh")
        local.faults.gateway.drop_before_handshake = -1
    else:
        local.faults.gateway.drop_after_handshake = -1
    with pytest.raises(ConnectionClosed):
        session.sync()
    local.faults.clear()
    assert session.sync().changed
    assert local.counts["mint"] == local.counts["revoke"] > 1


@pytest.mark.parametrize("value", ["API", "", "bundle"])
def test_an_invalid_setting(repo, begin, value):
    session = begin(repo)
    repo.git("config", "daytona.transport", value)
    session.agent("echo x >x")
    with pytest.raises(BadSetting, match=r"daytona.transport is .* neither auto, ssh nor api"):
        session.sync()
