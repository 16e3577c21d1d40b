"""What is around a sync: other programs at the repository, sandboxes in transition, objects that do
not travel or must not come in."""

import contextlib
import subprocess
import threading

import pytest

from git_daytona.base.errors import GitDaytonaError, TransferFailed
from git_daytona.sessions import recovery
from support.round_trip import execute, stop


def in_background(work, *arguments):
    problems = []

    def run():
        try:
            work(*arguments)
        except Exception as problem:  # noqa: BLE001 — shown by the test
            problems.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, problems


def until(condition):
    pause = threading.Event()
    while not condition():
        pause.wait(0.02)


def test_case_41_an_editor_holds_the_configuration(local, repo, coordinate):
    """.git/config.lock is waited for, whatever is to be written; the user's own keys in the section
    stay as long as it is there."""
    lock = repo.path / ".git/config.lock"
    with (repo.path / ".git/config").open("a") as config:
        config.write(
            '[remote "sandbox-1"]\n\tmine = kept\n\tfetch = +refs/heads/*:refs/remotes/mine/*\n'
        )
    coordinator = coordinate(repo.path)
    token = "TokenOfAnEarlierTool"

    def settle() -> None:
        recovery.recover(coordinate(repo.path))

    def remade() -> None:
        repo.git(
            "remote",
            "set-url",
            "sandbox-1",
            f"ssh://{token}@127.0.0.1:{local.gateway_port}/home/daytona/project",
        )

    examples = {
        "start": (
            lambda: None,
            lambda: coordinator.start("ses_a"),
            lambda: local.counts["create"] == 1,
        ),
        "recovery of an earlier tool's remote": (remade, settle, lambda: True),
        "deletion": (
            lambda: None,
            lambda: coordinator.delete("ses_a"),
            lambda: local.counts["delete"] == 1,
        ),
    }
    for name, (before, work, underway) in examples.items():
        before()
        lock.touch()
        thread, problems = in_background(work)
        until(underway)
        lock.unlink()
        thread.join(60)
        assert problems == [], name
        if name != "deletion":
            assert repo.git("config", "remote.sandbox-1.mine") == "kept", name
            assert repo.git("config", "remote.sandbox-1.skipFetchAll") == "true", name
        assert token not in (repo.path / ".git/config").read_text(), name
    assert "sandbox-1" not in repo.git("remote")


@pytest.mark.parametrize("transition", ["stopping", "archiving", "starting", "restoring"])
def test_case_05_a_sandbox_in_transition_is_waited_for(local, repo, begin, transition):
    session = begin(repo)
    session.agent("echo x > x")
    stop(session.coordinator.cloud, session.sandbox_id)
    local.force_state(session.sandbox_id, transition)
    local.forget_calls()
    thread, problems = in_background(session.sync)
    until(lambda: local.counts["get"] > 1)
    assert thread.is_alive()
    local.force_state(session.sandbox_id, "stopped")
    thread.join(60)
    assert problems == []
    assert repo.show("opencode/1", "x") == "x"


def test_case_05_an_archived_sandbox(local, repo, begin):
    session = begin(repo)
    session.agent("echo x > x")
    cloud = session.coordinator.cloud
    stop(cloud, session.sandbox_id)
    cloud._ask("archive it", "POST", f"/sandbox/{session.sandbox_id}/archive")
    assert session.sync().changed


def test_case_05_only_a_404_replaces_a_sandbox(local, repo, begin):
    """Whatever else is wrong is reported, with the sandbox's state where it is known, and the
    session keeps its sandbox."""
    session = begin(repo, "ses_kept")
    session.agent("echo x > x")
    session.sync()
    examples = {
        "error": (
            {"state": "error", "reason": "the disk is full"},
            {},
            "'error': the disk is full",
        ),
        "build_failed": (
            {"state": "build_failed", "reason": "no such image"},
            {},
            "'build_failed': no such image",
        ),
        "GET answers 500": ({"state": "stopped"}, {"status": 500}, "HTTP 500"),
        "GET answers nothing": (
            {"state": "stopped"},
            {"drop": "before"},
            "cannot reach Daytona at",
        ),
        "GET answers 403": ({"state": "stopped"}, {"status": 403}, "may not"),
        "GET answers nonsense": (
            {"state": "stopped"},
            {"body": b"<html>Bad gateway</html>", "content_type": "text/html"},
            "",
        ),
    }
    for name, (state, fault, says) in examples.items():
        stop(session.coordinator.cloud, session.sandbox_id)
        local.force_state(
            session.sandbox_id, state["state"], reason=state.get("reason"), recoverable=False
        )
        local.forget_calls()
        injected = local.faults.call(route="^get$", **fault) if fault else contextlib.nullcontext()
        with injected, pytest.raises(GitDaytonaError) as failed:
            execute(session.coordinator, session.name, "true")
        assert says in failed.value.message, (name, failed.value.message)
        with (
            local.faults.call(route="^get$", **fault) if fault else contextlib.nullcontext(),
            pytest.raises(GitDaytonaError),
        ):
            session.coordinator.start("ses_kept")
        assert local.counts["create"] == 0, name
        assert [(each.id, each.sandbox_id) for each in session.coordinator.sessions()] == [
            ("ses_kept", session.sandbox_id)
        ], name
        local.force_state(session.sandbox_id, "stopped")
        assert session.agent("cat x") == "x\n", name


BAD = {
    "a commit without an e-mail address": "bad=$(printf 'tree %s\\nparent %s\\nauthor nobody 1 "
    "+0000\\ncommitter "
    "nobody "
    "1 "
    "+0000\\n\\nbad\\n'"
    " $tree $parent | git hash-object -t commit -w --literally --stdin)",
    "a tree that holds .git": "tree=$(git ls-tree HEAD | sed 's/README/.git/' | git mktree);"
    " bad=$(git commit-tree $tree -p $parent -m bad)",
    "a tree with one name twice": "tree=$(git ls-tree HEAD README | sed p | git mktree);"
    " bad=$(git commit-tree $tree -p $parent -m bad)",
    ".gitmodules whose URL is an option": 'printf \'[submodule "x"]\\n\\tpath = x\\n\\turl = '
    "-u./payload\\n' "
    "> "
    ".gitmodules;"
    " git add .gitmodules; bad=$(git commit-tree $(git write-tree) -p $parent -m bad)",
}
"""Shell that leaves a commit in $bad, given $tree and $parent."""


def test_case_52_objects_that_fsck_rejects(local, repo, begin):
    """Refused and reported; the branch stays where it is, and the next good commit comes."""
    session = begin(repo)
    before = repo.git("rev-parse", "opencode/1")
    examples = BAD
    for name, make in examples.items():
        session.agent(
            f"tree=$(git rev-parse HEAD^{{tree}}); parent=$(git rev-parse HEAD); {make}; "
            "git update-ref HEAD $bad"
        )
        with pytest.raises(
            TransferFailed,
            match=r"git fetch failed: .*(missingEmail|hasDotgit|duplicateEntries|gitmodulesUrl)",
        ) as refused:
            session.sync()
        assert "\n" not in refused.value.message, name
        assert repo.git("rev-parse", "opencode/1") == before, name
        assert session.coordinator.sessions()[0].git_return.state == "failed", name
        session.agent(f"git reset -q --hard {before}; git clean -qfd")
    session.agent("echo good > good")
    session.sync()
    assert repo.show("opencode/1", "good") == "good"


def test_lfs_objects_are_named(local, repo, begin):
    session = begin(repo)
    session.agent(
        "mkdir -p .git/lfs/objects/ab/cd; echo large > .git/lfs/objects/ab/cd/abcd; echo "
        "pointer > file"
    )
    assert "1 LFS objects stay in the sandbox" in session.sync().message


def test_case_70_a_new_session_is_four_calls(local, repo, begin):
    """Besides /config, which is asked once per process, and looks at whether the sandbox has
    started."""
    session = begin(repo)
    session.coordinator.close()
    routes = [call.route for call in local.calls if call.route not in ("config", "get")]
    assert sorted(routes) == ["create", "mint", "process/execute", "revoke"]


def test_case_70_a_first_turn_without_changes_is_one_call(local, repo, begin):
    session = begin(repo)
    local.forget_calls()
    assert not session.sync().changed
    assert len(local.calls) == 1


def test_case_70_a_tool_call_is_one_call(local, repo, begin):
    session = begin(repo)
    local.forget_calls()
    session.agent("true")
    assert [call.route for call in local.calls] == ["process/execute"]


def test_case_18_and_case_61_the_users_fetch_at_the_same_moment(local, repo, begin):
    """A fetch by the user or an editor changes nothing: no FETCH_HEAD is read or written, and it
    says nothing of the remote."""
    session = begin(repo)
    repo.git("remote", "add", "origin", str(repo.path))
    examples = {
        "all remotes": ("fetch", "--all"),
        "autofetch of an editor": ("fetch", "--all", "--prune", "--tags"),
        "another history into FETCH_HEAD": ("fetch", "-q", str(repo.path), "main"),
        "git remote update": ("remote", "update", "--prune"),
        "background maintenance": ("maintenance", "run", "--task=prefetch"),
    }
    for name, words in examples.items():
        session.agent(f"echo '{name}' > what")
        with local.faults.call(route="^mint$", hang=True) as held:
            thread, problems = in_background(session.sync)
            assert held.reached.wait(30)
            done = subprocess.run(
                ("git", *words), cwd=repo.path, capture_output=True, text=True, timeout=60
            )
            assert (done.returncode, "sandbox-1" in done.stdout + done.stderr) == (0, False), (
                name,
                done.stderr,
            )
            fetched = repo.path / ".git/FETCH_HEAD"
            before = fetched.read_bytes() if fetched.exists() else None
            held.release()
            thread.join(60)
        assert problems == [], name
        assert (fetched.read_bytes() if fetched.exists() else None) == before, name
        assert repo.show("opencode/1", "what") == name


def test_sparse_and_submodules(local, repo, begin, tmp_path):
    inner = type(repo)(tmp_path / "inner")
    inner.path.mkdir()
    inner.git("init", "-q")
    inner.commit("inside")
    repo.git(
        "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.path), "sub"
    )
    repo.commit("dir/a")
    repo.commit("other/b")
    repo.git("config", "fetch.recurseSubmodules", "on-demand")
    repo.git("config", "submodule.recurse", "true")
    repo.git("sparse-checkout", "set", "dir")
    session = begin(repo)
    session.agent("echo x > dir/x; echo y > other/y")
    session.sync()
    assert repo.show("opencode/1", "other/y") == "y"
    repo.git("switch", "-q", "opencode/1")
    session.agent("echo again > dir/x")
    session.sync()
    assert (repo.path / "dir/x").read_text() == "again\n" and not (repo.path / "other").exists()


def test_case_37_two_hundred_megabytes(local, repo, begin):
    session = begin(repo)
    session.agent("head -c 200000000 /dev/zero > large")
    session.sync()
    assert repo.git("cat-file", "-s", "opencode/1:large") == "200000000"


def test_case_37_twenty_thousand_files(local, repo, begin):
    for folder in range(200):
        place = repo.path / f"d{folder}"
        place.mkdir()
        for name in range(100):
            (place / str(name)).write_text(f"{folder} {name}\n")
    repo.git("add", ".")
    repo.git("commit", "-q", "-m", "many")
    session = begin(repo)
    assert session.agent("git ls-files | wc -l").strip() == "20001"
    session.agent("for d in d*; do echo new > $d/new; done")
    session.sync()
    assert (
        repo.git("diff", "--shortstat", "main", "opencode/1")
        == "200 files changed, 200 insertions(+)"
    )
