"""What is around a sync: other programs at the repository, sandboxes in transition, objects that do not travel or must not come in."""

import threading

import pytest

from git_daytona.errors import TransferFailed


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
    """.git/config.lock is waited for; the user's own keys in the section stay (CASES 41)."""
    lock = repo.path / ".git/config.lock"
    lock.touch()
    with (repo.path / ".git/config").open("a") as config:
        config.write('[remote "sandbox-1"]\n\tmine = kept\n')
    thread, problems = in_background(coordinate(repo.path).start)
    until(lambda: local.counts["create"] == 1)
    lock.unlink()
    thread.join(60)
    assert problems == []
    assert repo.git("config", "remote.sandbox-1.mine") == "kept"
    assert repo.git("config", "remote.sandbox-1.skipFetchAll") == "true"


@pytest.mark.parametrize("transition", ["stopping", "archiving", "starting", "restoring"])
def test_case_05_a_sandbox_in_transition_is_waited_for(local, repo, begin, transition):
    session = begin(repo)
    session.agent("echo x > x")
    session.coordinator.cloud._client().get(session.sandbox_id).stop()
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
    handle = session.coordinator.cloud._client().get(session.sandbox_id)
    handle.stop()
    handle.archive()
    assert session.sync().changed


def test_case_52_objects_that_fsck_rejects(local, repo, begin):
    """Refused and reported; the branch stays where it is (CASES 52)."""
    session = begin(repo)
    before = repo.git("rev-parse", "opencode/1")
    session.agent(
        "tree=$(git rev-parse HEAD^{tree}); parent=$(git rev-parse HEAD);"
        " bad=$(printf 'tree %s\\nparent %s\\nauthor nobody 1 +0000\\ncommitter nobody 1 +0000\\n\\nbad\\n' $tree $parent"
        " | git hash-object -t commit -w --literally --stdin); git update-ref HEAD $bad"
    )
    with pytest.raises(TransferFailed, match=r"fsck|missingEmail|badEmail|index-pack"):
        session.sync()
    assert repo.git("rev-parse", "opencode/1") == before
    assert session.coordinator.sessions()[0].git_return.state == "failed"


def test_lfs_objects_are_named(local, repo, begin):
    session = begin(repo)
    session.agent("mkdir -p .git/lfs/objects/ab/cd; echo large > .git/lfs/objects/ab/cd/abcd; echo pointer > file")
    assert "1 LFS objects stay in the sandbox" in session.sync().message


def test_case_70_a_new_session_is_four_calls(local, repo, begin):
    """Besides /config, which is asked once per process."""
    session = begin(repo)
    session.coordinator.close()
    routes = [call.route for call in local.calls if call.route != "config"]
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
    """A fetch by the user or an editor changes nothing: no FETCH_HEAD is read or written (CASES 18, 61)."""
    session = begin(repo)
    session.agent("echo x > x")
    with local.faults.call(route="^mint$", hang=True) as held:
        thread, problems = in_background(session.sync)
        assert held.reached.wait(30)
        repo.git("fetch", "-q", "--all")
        repo.git("fetch", "-q", str(repo.path), "main")
        fetched = (repo.path / ".git/FETCH_HEAD").read_text()
        held.release()
        thread.join(60)
    assert problems == []
    assert (repo.path / ".git/FETCH_HEAD").read_text() == fetched
    assert repo.show("opencode/1", "x") == "x"


def test_sparse_and_submodules(local, repo, begin, tmp_path):
    inner = type(repo)(tmp_path / "inner")
    inner.path.mkdir()
    inner.git("init", "-q")
    inner.commit("inside")
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.path), "sub")
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
    assert repo.git("diff", "--shortstat", "main", "opencode/1") == "200 files changed, 200 insertions(+)"
