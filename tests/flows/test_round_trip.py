"""The main job: HEAD into a sandbox, the agent's work back, with real git, OpenSSH and SDK at every
joint."""

import shutil
import subprocess
from pathlib import Path

import pytest

from git_daytona.base.errors import GitDaytonaError, NotFound, TransferFailed
from support.round_trip import execute, stop


def test_work_comes_back(local, repo, begin):
    session = begin(repo)
    assert session.agent("git log --format=%s; cat README") == "Add README\nhello\n"
    session.agent(
        "echo new > new.txt; echo more >> README; rm -f nothing; printf '#!/bin/sh\n' > "
        "run; chmod +x run; ln -s README link"
    )
    outcome = session.sync()
    assert outcome.changed
    assert repo.git("rev-parse", "opencode/1") == outcome.head
    assert repo.git("rev-parse", "opencode/1~1") == repo.git("rev-parse", "main")
    assert repo.show("opencode/1", "new.txt") == "new"
    assert repo.show("opencode/1", "README") == "hello\nmore"
    assert "100755" in repo.git("ls-tree", "opencode/1", "run")
    assert "120000" in repo.git("ls-tree", "opencode/1", "link")
    assert repo.git("status", "--porcelain") == ""
    assert repo.git("rev-parse", "HEAD") == repo.git("rev-parse", "main")


def test_case_62_agents_own_commits_and_branches_come_back(local, repo, begin):
    session = begin(repo)
    session.agent(
        "echo a > a; git add a; git commit -qm 'by the agent'; git branch aside; git switch "
        "-qc topic; echo b > b"
    )
    session.sync()
    assert (
        repo.git("log", "--format=%s", "-2", "opencode/1")
        == "Changes of the OpenCode session\nby the agent"
    )
    assert repo.git("rev-parse", "sandbox-1/topic") == repo.git("rev-parse", "opencode/1")
    assert repo.git("log", "--format=%s", "-1", "sandbox-1/aside") == "by the agent"


def test_case_70_sync_without_changes_is_one_call(local, repo, begin):
    session = begin(repo)
    session.sync()
    local.forget_calls()
    outcome = session.sync()
    assert not outcome.changed
    assert len(local.calls) == 1


def test_case_70_sync_with_changes_is_three_calls(local, repo, begin):
    session = begin(repo)
    session.agent("echo x > x")
    local.forget_calls()
    session.sync()
    session.coordinator.close()
    assert len(local.calls) == 3, local.calls
    assert local.counts["mint"] == local.counts["revoke"] == 1


def test_every_token_is_revoked_and_none_is_kept(local, repo, begin):
    session = begin(repo)
    session.agent("echo x > x")
    session.sync()
    session.coordinator.delete("1")
    session.coordinator.close()
    assert local.live_tokens() == 0
    assert local.counts["mint"] == local.counts["revoke"] == 2


def test_case_18_and_case_60_the_remote_is_quiet(local, repo, begin):
    begin(repo)
    assert (
        repo.git("remote", "get-url", "sandbox-1")
        == f"ssh://127.0.0.1:{local.gateway_port}/home/daytona/project"
    )
    repo.git("fetch", "--all")
    repo.git("remote", "update")


def test_fetch_leaves_the_branch(local, repo, begin):
    session = begin(repo)
    session.agent(
        "git switch -qc topic; echo x > x; git add x; git commit -qm x; echo pending > pending"
    )
    outcome = session.coordinator.fetch("sandbox-1")
    assert outcome.changed
    assert repo.git("rev-parse", "opencode/1") == repo.git("rev-parse", "main")
    assert repo.git("log", "--format=%s", "-1", "sandbox-1/topic") == "x"
    assert not session.coordinator.fetch("1").changed


def test_push_is_fast_forward_only(local, repo, begin):
    session = begin(repo)
    session.agent("echo theirs > theirs")
    session.sync()
    repo.git("switch", "-q", "opencode/1")
    mine = repo.commit("mine")
    assert session.coordinator.push("opencode/1") == mine
    assert (
        session.agent("git log --format=%s -1; cat mine; git status --porcelain")
        == "Add mine\ncontent\n"
    )
    session.agent("echo ahead > ahead")
    repo.commit("second")
    with pytest.raises(TransferFailed, match="does not contain"):
        session.coordinator.push("1")
    assert session.agent("cat ahead") == "ahead\n"


def test_every_name_of_a_session(local, repo, begin):
    session = begin(repo, "ses_abc")
    for name in ("1", "sandbox-1", "opencode/1", "ses_abc", session.sandbox_id):
        assert session.coordinator.find(name).number == 1
    for name in ("2", "sandbox-2", "opencode/x", "main", "0", "01"):
        with pytest.raises(NotFound):
            session.coordinator.find(name)


def test_case_60_delete_keeps_the_branch_and_cleans_up(local, repo, begin):
    session = begin(repo)
    session.agent(
        "echo last > last; git stash -q -u; echo kept > kept; git branch side; git switch "
        "-qc other; git add .; git commit -qm o; git switch -q side"
    )
    session.coordinator.delete("1")
    assert "sandbox-1" not in repo.git("remote")
    assert repo.git("for-each-ref", "refs/remotes", "refs/daytona/incoming") == ""
    assert session.coordinator.sessions() == []
    contents = {repo.git("ls-tree", "-r", "--name-only", oid) for oid in repo.kept().values()}
    assert any("kept" in names for names in contents), "the other branch is kept"
    assert [
        each.id
        for each in local.sandboxes
        if each.id == session.sandbox_id and each.state != "destroyed"
    ] == []
    with pytest.raises(NotFound):
        session.coordinator.delete("1")


def test_case_05_a_stopped_sandbox_is_started(local, repo, begin):
    session = begin(repo)
    session.agent("echo x > x")
    stop(session.coordinator.cloud, session.sandbox_id)
    assert session.agent("cat x") == "x\n"
    stop(session.coordinator.cloud, session.sandbox_id)
    assert session.sync().changed


def test_starting_again_is_safe(local, repo, begin):
    first = begin(repo, "ses_one")
    first.agent("echo x > x")
    again = begin(repo, "ses_one")
    assert (again.number, again.sandbox_id) == (1, first.sandbox_id)
    assert again.agent("cat x") == "x\n"


def test_case_46_a_failed_setup_is_made_good(local, repo, coordinate):
    """Wherever it failed, the next start goes on with the same sandbox and number."""
    examples = {
        "no token": {"route": "^mint$", "status": 403},
        "the sandbox's repository cannot be prepared": {
            "route": "^process/execute$",
            "status": 400,
        },
        "no answer from the sandbox": {"route": "^process/execute$", "drop": "before"},
        "the gateway breaks in the push": {"route": "none"},
    }
    for number, (name, fault) in enumerate(examples.items(), 1):
        coordinator = coordinate(repo.path)
        local.faults.gateway.drop_after_bytes = 300 if fault["route"] == "none" else None
        with local.faults.call(**fault), pytest.raises(GitDaytonaError):
            coordinator.start(f"ses_{number}")
        local.faults.gateway.drop_after_bytes = None
        if number == 1:  # nor does a deletion that is refused make it look ready
            with local.faults.call(**fault), pytest.raises(GitDaytonaError):
                coordinator.delete(f"ses_{number}")
        assert coordinator.state.get(f"ses_{number}").git_return.state == "setup-failed", name
        started = coordinate(repo.path).start(f"ses_{number}")
        assert started.session.names.number == number, name
        assert (
            len(
                [
                    each
                    for each in local.sandboxes
                    if each.labels.get("git-daytona/session") == f"ses_{number}"
                ]
            )
            == 1
        ), name
        assert (
            execute(coordinator, str(number), "git log --format=%s")[0].output == "Add README\n"
        ), name
        assert coordinator.state.get(f"ses_{number}").git_return.state == "pending", name


def test_case_35_repositories_without_commits(local, tmp_path, begin, repo):
    """The user's unborn branch and index are untouched; the first sync lands in opencode/1, later
    ones on top of it."""
    examples = {
        "something staged": ("main", "echo x > staged; git add staged"),
        "nothing at all": ("main", ""),
        "another branch, an untracked file": (
            "trunk",
            "echo x > untracked; git branch -m trunk 2>/dev/null || true",
        ),
        "intent to add, and a remote with commits": (
            "main",
            f"echo x > new; git add -N new; git fetch -q '{repo.path}' main:refs/remotes/o/main",
        ),
    }
    for number, (name, (branch, make)) in enumerate(examples.items()):
        fresh = type(repo)(tmp_path / f"fresh{number}")
        fresh.path.mkdir()
        fresh.git("init", "-q", "-b", branch)
        subprocess.run(("sh", "-c", make), cwd=fresh.path, check=True)
        before = fresh.git("status", "--porcelain=v2", "--branch"), fresh.git("ls-files", "-s")
        session = begin(fresh)
        assert session.number == 1, name
        session.agent("echo first > first")
        session.sync()
        assert fresh.show("opencode/1", "first") == "first", name
        session.agent("echo second > second")
        session.sync()
        assert fresh.git("ls-tree", "--name-only", "opencode/1").split() == ["first", "second"], (
            name
        )
        assert (
            fresh.git("status", "--porcelain=v2", "--branch"),
            fresh.git("ls-files", "-s"),
        ) == before, name
        assert fresh.git("symbolic-ref", "HEAD") == f"refs/heads/{branch}", name
    assert begin(fresh).number == 2


def test_case_36_detached_linked_or_gone(local, tmp_path, begin, repo):
    """Where a session begins, and what becomes of that place, does not matter to what comes
    back."""
    head = repo.git("rev-parse", "HEAD")

    def linked(name: str) -> Path:
        repo.git("worktree", "add", "-q", "--detach", str(tmp_path / name))
        return tmp_path / name

    def detached() -> Path:
        repo.git("switch", "-q", "--detach")
        return repo.path

    examples = {
        "detached": (detached, lambda: None),
        "linked worktree": (lambda: linked("linked"), lambda: None),
        "worktree removed by hand": (
            lambda: linked("gone"),
            lambda: shutil.rmtree(tmp_path / "gone"),
        ),
        "worktree removed by git": (
            lambda: linked("removed"),
            lambda: repo.git("worktree", "remove", str(tmp_path / "removed")),
        ),
    }
    for number, (name, (make, meanwhile)) in enumerate(examples.items(), 1):
        session = begin(type(repo)(make()))
        assert session.agent("git rev-parse HEAD").strip() == head, name
        session.agent("echo b > b")
        meanwhile()
        # A process of today, in what is left of the repository, and the one that had begun it.
        session.sync()
        assert repo.show(f"opencode/{number}", "b") == "b", name
        assert repo.git("rev-parse", "HEAD") == head, name


def test_case_37_sha256(local, tmp_path, begin, repo):
    fresh = type(repo)(tmp_path / "sha256")
    fresh.path.mkdir()
    fresh.git("init", "-q", "--object-format=sha256")
    fresh.commit("a")
    session = begin(fresh)
    session.agent("echo b > b")
    session.sync()
    assert len(fresh.git("rev-parse", "opencode/1")) == 64
    assert fresh.show("opencode/1", "b") == "b"


def test_case_37_and_case_36_shallow_clone_and_linked_worktree(local, tmp_path, begin, repo):
    repo.commit("second")
    shallow = type(repo)(tmp_path / "shallow")
    repo.git("clone", "-q", "--depth=1", f"file://{repo.path}", str(shallow.path))
    shallow.git("worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    linked = type(repo)(tmp_path / "linked")
    session = begin(linked)
    session.agent("echo b > b")
    session.sync()
    assert shallow.show("opencode/1", "b") == "b"
