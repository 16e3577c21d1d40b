"""Sessions over OpenCode's HTTP API: sub-agents, deletions, turns, several at once."""

import subprocess
import threading

from support.opencode_hosts import each_major, service_decides
from support.plugin import state
from support.processes import until


@each_major
def test_case_43_and_case_57_a_sub_agent_shares_its_roots_sandbox(
    opencode, model, repo, local, sandboxes
):
    model.scripts["the whole"] = [
        [("bash", {"command": "echo root > root", "description": "make"})],
        [("task", {"description": "a part", "prompt": "a part of it", "subagent_type": "general"})],
        "all done",
    ]
    model.scripts["a part of it"] = [
        [("bash", {"command": "cat root; echo child > child", "description": "make"})],
        "part done",
    ]
    server = opencode.serve(repo.path)
    root = server.session()
    server.prompt(root, "the whole")
    opencode.toast("Changes synced")
    until(lambda: state(repo)["sessions"][root]["gitReturn"]["state"] == "synced")
    assert len(sandboxes()) == 1
    assert model.results("a part of it") == ["root"]
    assert list(state(repo)["sessions"]) == [root]
    [child] = [
        each["info"]["id"]
        for each in opencode.events("session.created")
        if each["info"].get("parentID") == root
    ]
    assert state(repo)["children"] == {child: root}
    assert repo.show("opencode/1", "child") == "child"

    server.delete(child)
    until(lambda: opencode.events("session.deleted"))
    model.scripts["once more"] = [
        [("bash", {"command": "ls; echo last > last", "description": "look"})],
        "ok",
    ]
    server.prompt(root, "once more")
    assert len(sandboxes()) == 1
    assert "child\n" in model.results("once more")[-1]

    server.delete(root)
    opencode.toast("Session deleted")
    assert sandboxes() == []
    assert repo.show("opencode/1", "last") == "last"
    assert state(repo)["sessions"] == {}
    assert local.live_tokens() == 0


@each_major
def test_case_43_one_turn_is_one_sync(opencode, model, repo, local, sandboxes):
    model.scripts["make"] = [[("bash", {"command": "echo a > a", "description": "make"})], "ok"]
    server = opencode.serve(repo.path)
    root = server.session()
    server.prompt(root, "make")
    until(lambda: state(repo)["sessions"][root]["gitReturn"]["state"] == "synced")
    until(lambda: local.counts["revoke"] == 2)
    local.forget_calls()
    model.scripts["talk"] = ["just words"]
    server.prompt(root, "talk")
    until(lambda: local.counts["process/execute"])
    server.prompt(root, "talk")  # the first turn's two events are behind us when this one's are
    until(lambda: local.counts["process/execute"] == 2)
    assert sum(local.counts.values()) == 2, local.calls


@each_major
def test_case_48_and_case_63_a_deletion_that_must_be_refused_leaves_the_sandbox(
    opencode, model, repo, local, sandboxes
):
    make = (
        "mkdir nested && cd nested && git init -q && echo x > x && git add x && git -c "
        "user.name=a -c user.email=a@b commit -qm x"
    )
    model.scripts["nest"] = [[("bash", {"command": make, "description": "nest"})], "ok"]
    server = opencode.serve(repo.path)
    root = server.session()
    server.prompt(root, "nest")
    server.delete(root)
    assert "nested" in opencode.toast("Delete failed")
    assert len(sandboxes()) == 1
    assert state(repo)["sessions"][root]["gitReturn"]["state"] == "failed"


@service_decides
def test_case_57_two_first_calls_at_once_make_one_sandbox(opencode, model, repo, local, sandboxes):
    call = ("bash", {"command": "echo $HOME; ls README", "description": "look"})
    model.scripts["both"] = [[call, call], "ok"]
    done = opencode.run("both", cwd=repo.path)
    assert done.status == 0, done.terminal
    assert model.results() == ["/home/daytona\nREADME"] * 2
    assert len(sandboxes()) == 1


@each_major
def test_case_57_a_chat_without_tools_makes_no_sandbox(opencode, model, repo, local, sandboxes):
    model.scripts["hello"] = ["good day"]
    done = opencode.run("hello", cwd=repo.path)
    assert "good day" in done.out
    assert sandboxes() == [] and local.calls == []
    assert repo.git("branch", "--list", "opencode/*") == ""


@service_decides
def test_two_opencodes_in_one_repository(opencode, model, repo, local, sandboxes):
    both = threading.Event()

    def make(name):
        return [("bash", {"command": f"echo {name} > {name}", "description": "make"})]

    model.scripts["make one"] = [lambda _: both.wait(60) and make("one"), "ok"]
    model.scripts["make two"] = [lambda _: both.set() or make("two"), "ok"]
    running = [opencode.begin("make one", cwd=repo.path)]
    # OpenCode itself fails ("database is locked") when two make its database at once
    until(lambda: model.asked)
    running.append(opencode.begin("make two", cwd=repo.path))
    for each in running:
        out, err = each.communicate(timeout=60)
        assert each.returncode == 0, out + err
    assert len(sandboxes()) == 2
    made = {repo.git("ls-tree", "--name-only", f"opencode/{number}") for number in (1, 2)}
    assert made == {"README\none", "README\ntwo"}
    assert sorted(each["branchNumber"] for each in state(repo)["sessions"].values()) == [1, 2]
    assert {each["gitReturn"]["state"] for each in state(repo)["sessions"].values()} == {"synced"}
    assert local.live_tokens() == 0


@service_decides
def test_a_directory_without_a_repository(opencode, model, tmp_path, local, sandboxes):
    place = tmp_path / "plain"
    place.mkdir()
    model.scripts["make"] = [
        [("bash", {"command": "echo a > a; pwd", "description": "make"})],
        "ok",
    ]
    done = opencode.run("make", cwd=place)
    assert done.status == 0, done.terminal
    assert model.results() == ["/home/daytona/project"]
    assert "not in a git repository" in opencode.toast("Git syncing disabled")
    assert list(place.iterdir()) == []
    assert subprocess.run(("git", "-C", place, "rev-parse"), capture_output=True).returncode != 0
