"""The user's own fetch, pull, push and clone of a sandbox, through git-remote-daytona."""

import os
import subprocess
from dataclasses import dataclass

import pytest

from support.round_trip import BIN, Repo, stop


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")


@pytest.fixture
def session(begin, repo):
    found = begin(repo)
    found.agent("echo one >one; git add one; git commit -qm one; git branch other")
    return found


@dataclass
class Git:
    status: int
    out: str
    err: str


def git(repo: Repo, *words: str) -> Git:
    done = subprocess.run(
        ("git", *words), cwd=repo.path, capture_output=True, text=True, timeout=60
    )
    print(done.stderr)
    return Git(done.returncode, done.stdout, done.stderr)


def test_fetch_and_what_looks(local, repo, session):
    head = session.agent("git rev-parse HEAD").strip()
    assert git(repo, "fetch", "sandbox-1").status == 0
    assert repo.git("rev-parse", "sandbox-1/opencode") == head
    assert repo.git("rev-parse", "sandbox-1/other") == head
    assert f"{head}\trefs/heads/other" in git(repo, "ls-remote", "sandbox-1").out
    assert "HEAD branch: opencode" in git(repo, "remote", "show", "sandbox-1").out
    assert "ssh://" in git(repo, "remote", "-v").out
    assert git(repo, "archive", "--remote=sandbox-1", "HEAD", "one").out.count("one") > 0
    assert local.live_tokens() == 0
    assert local.counts["mint"] == local.counts["revoke"]


def test_pull_and_push(local, repo, session):
    repo.git("switch", "-q", "opencode/1")
    assert git(repo, "pull").status == 0
    assert git(repo, "pull", "sandbox-1").status == 0
    assert repo.git("log", "-1", "--format=%s") == "one"
    mine = repo.commit("mine")
    session.agent("echo pending >pending")
    refused = git(repo, "push", "sandbox-1")
    assert refused.status != 0
    assert "work that is not here" in refused.err and "hint: bring it here" in refused.err
    assert "rejected" in refused.err
    assert git(repo, "pull", "-q", "--no-rebase", "--no-edit", "sandbox-1").status == 0
    assert git(repo, "push", "sandbox-1").status == 0
    assert session.agent("git rev-parse HEAD; ls") == (
        f"{repo.git('rev-parse', 'opencode/1')}\nREADME\nmine\none\npending\n"
    )
    assert git(repo, "push", "-f", "sandbox-1", f"{mine}:opencode").status != 0
    assert session.agent("cat pending") == "pending\n"
    assert local.counts["mint"] == local.counts["revoke"]


def test_push_into_an_operation(repo, session):
    session.agent("git bisect start")
    refused = git(repo, "push", "sandbox-1")
    assert refused.status != 0
    assert "error: nothing was pushed: a bisect is in progress in the sandbox" in refused.err


def test_clone_without_our_state(local, session, tmp_path, monkeypatch):
    """On another machine, with the key alone; then it is adopted there."""
    head = session.agent("git rev-parse HEAD").strip()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(elsewhere / name))
    assert git(Repo(elsewhere), "clone", "-q", f"daytona::{session.sandbox_id}", "c").status == 0
    clone = Repo(elsewhere / "c")
    assert clone.git("rev-parse", "HEAD", "refs/remotes/origin/other") == f"{head}\n{head}"
    assert git(clone, "fetch").status == 0
    assert local.live_tokens() == 0


@pytest.mark.parametrize("name", ["1", "sandbox-1", "opencode/1"])
def test_urls(repo, session, name):
    head = session.agent("git rev-parse HEAD").strip()
    assert f"{head}\tHEAD" in git(repo, "ls-remote", f"daytona::{name}").out
    assert f"{head}\tHEAD" in git(repo, "ls-remote", f"daytona://{name}").out


def test_a_sandbox_that_is_stopped(repo, session):
    stop(session.coordinator.cloud, session.sandbox_id)
    done = git(repo, "fetch", "sandbox-1")
    assert done.status == 0
    assert "starting the sandbox" in done.err


def test_fetch_all_stays_quiet(local, repo, session):
    local.forget_calls()
    for words in (("fetch", "--all"), ("remote", "update")):
        assert git(repo, *words).err.count("sandbox-1") == 0
    assert local.calls == []


def test_what_cannot_be(local, repo, session, monkeypatch):
    """Each says what to do, in our words; nothing hangs, no token is left."""
    unknown = git(repo, "fetch", "daytona::99")
    assert "error: there is no session '99' in this repository" in unknown.err
    with monkeypatch.context() as patch:
        patch.delenv("DAYTONA_API_KEY")
        assert "[no-key]" in git(repo, "fetch", "sandbox-1").err
    with monkeypatch.context() as patch:
        patch.setenv("DAYTONA_API_KEY", "wrong")
        assert "[key-refused]" in git(repo, "fetch", "sandbox-1").err
    with monkeypatch.context() as patch:
        known = repo.path.parent / "known_hosts"
        known.write_text("")
        patch.setenv("DAYTONA_SSH_KNOWN_HOSTS", str(known))
        assert "host key" in git(repo, "fetch", "sandbox-1").err
    assert "'git daytona" in git(repo, "remote", "show", "daytona::99").err
    assert local.live_tokens() == 0


def test_the_helper_by_hand(command, repo):
    assert "git runs this" in command("git-remote-daytona", "-h").out
    assert command("git-remote-daytona").status == 2
    wrong = command("git-remote-daytona", "sandbox-1", stdin="list\n", cwd=repo.path)
    assert (wrong.status, "try: git fetch sandbox-1" in wrong.err) == (2, True)
    asked = command("git-remote-daytona", "sandbox-1", stdin="capabilities\n\n", cwd=repo.path)
    assert (asked.status, asked.out) == (0, "connect\n\n")
