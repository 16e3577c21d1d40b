"""Sessions over OpenCode's HTTP API: sub-agents, forks, deletions, turns, several at once, and a
terminal beside them, for which one session is one record. All in one OpenCode."""

import json
import subprocess
import threading
from typing import Any

import pytest

from support.opencode_hosts import (
    OpenCode,
    OpenCode2,
    Server,
    each_major,
    mostly_opencode_2,
    service_decides,
)
from support.plugin import state, states
from support.processes import descendants
from support.round_trip import Repo
from support.shared_opencode import home_folder, model, opencode
from support.waiting import until

__all__ = ["home_folder", "model", "opencode"]


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
    server = opencode.serve(repo.path)
    server.prompt(server.session(), "both")
    assert model.results() == ["/home/daytona\nREADME"] * 2
    assert len(sandboxes()) == 1


@mostly_opencode_2
def test_case_57_a_chat_without_tools_makes_no_sandbox(opencode, model, repo, local, sandboxes):
    others = {each.id for each in local.sandboxes}
    model.scripts["hello"] = ["good day"]
    server = opencode.serve(repo.path)
    server.prompt(server.session(), "hello")
    assert len(model.asked) == 1
    assert sandboxes() == [] and {each.sandbox for each in local.calls} <= others
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
        out, err = each.communicate(timeout=100)
        assert each.returncode == 0, out + err
    assert len(sandboxes()) == 2
    made = {repo.git("ls-tree", "--name-only", f"opencode/{number}") for number in (1, 2)}
    assert made == {"README\none", "README\ntwo"}
    assert sorted(each["branchNumber"] for each in state(repo)["sessions"].values()) == [1, 2]
    assert {each["gitReturn"]["state"] for each in state(repo)["sessions"].values()} == {"synced"}
    until(lambda: local.live_tokens() == 0)  # the service ends after its OpenCode


@service_decides
def test_a_directory_without_a_repository(opencode, model, tmp_path, local, sandboxes):
    place = tmp_path / "plain"
    place.mkdir()
    model.scripts["make"] = [
        [("bash", {"command": "echo a > a; pwd", "description": "make"})],
        "ok",
    ]
    server = opencode.serve(place)
    server.prompt(server.session(), "make")
    assert model.results() == ["/home/daytona/project"]
    assert "not in a git repository" in opencode.toast("Git syncing disabled")
    assert list(place.iterdir()) == []
    assert subprocess.run(("git", "-C", place, "rev-parse"), capture_output=True).returncode != 0


@mostly_opencode_2
def test_case_116_a_fork_begins_with_the_work_of_its_session(
    opencode, model, repo, local, sandboxes
):
    """A fork of it, a fork of a fork that did nothing, and one of a session that was deleted."""
    make = {"command": "echo there > there; echo ignored > .hidden", "description": "make"}
    look = {"command": "cat there; echo more >> there; ls -a", "description": "look"}
    model.scripts["make"] = [[("bash", make)], "ok"]
    model.scripts["look"] = [[("bash", look)], "ok"]
    repo.commit(".gitignore", ".hidden\n")
    server = opencode.serve(repo.path)
    root = server.session()
    server.prompt(root, "make")
    first = server.fork(root)
    second = server.fork(server.fork(root))
    for number, fork in enumerate((first, second), 2):
        server.prompt(fork, "look")
        said = model.results("look")[-1]
        assert "this session is a fork of session 1: its sandbox is a new one" in said
        assert "opencode/1" in said and "\nthere\n" in said and ".hidden" not in said
        assert state(repo)["sessions"][fork]["branchNumber"] == number
    assert len(sandboxes()) == 3
    third = server.fork(root)
    server.delete(root)
    opencode.toast("Session deleted")
    server.prompt(third, "look")
    assert "a fork of one whose work is not known here" in model.results("look")[-1]
    assert repo.show("opencode/1", "there") == "there"


# -- a command that runs ---------------------------------------------------------------------------


@mostly_opencode_2
def test_a_question_is_answered_by_the_user(opencode, model, repo):
    repo.commit("opencode.json", json.dumps({"permission": {"bash": "ask"}}))
    server = opencode.serve(repo.path)
    answers = {"once": ("one", "two"), "always": ("three", "two")}
    for number, (how, names) in enumerate(answers.items(), 1):
        model.scripts[f"please {how}"] = [
            [("bash", {"command": f"touch {name}", "description": "x"})] for name in names
        ]
        session = server.session()
        server.send(session, f"please {how}")
        for name in names if how == "once" else names[:1]:
            question, words = server.question(session)
            assert "bash" in words and f"touch {name}" in words
            server.answer(session, question, how)
        branch = ("ls-tree", "--name-only", f"opencode/{number}")
        until(
            lambda branch=branch, names=names: (
                set(repo.git(*branch, check=False).split()) == {"README", "opencode.json", *names}
            )
        )


@mostly_opencode_2
def test_an_abort_ends_the_command(opencode, model, repo, local):
    model.scripts["please"] = [
        [("bash", {"command": "echo $$ > /tmp/pid; exec sleep 600", "description": "x"})],
        "ok",
    ]
    server = opencode.serve(repo.path)
    session = server.session()
    server.send(session, "please")
    until(lambda: local.counts["process/execute"] >= 1)
    until(sleeping)
    server.abort(session)
    until(lambda: not sleeping(), seconds=20)


def sleeping():
    return [each.pid for each in descendants() if each.words[-2:] == ["sleep", "600"]]


WAITS = "echo begun; until [ -e go ]; do sleep 0.1; done; echo ended"


def display(opencode: OpenCode, server: Server, session: str) -> str:
    """What is shown of the tool calls that run."""
    if isinstance(opencode, OpenCode2):
        return json.dumps(opencode.events("session.tool.progress"))
    messages = server.http("GET", f"/session/{session}/message")
    states = [part["state"] for each in messages for part in each["parts"] if "state" in part]
    return json.dumps([each.get("metadata") for each in states if each["status"] == "running"])


@mostly_opencode_2
def test_output_is_shown_while_the_command_runs(opencode, model, repo, tell):
    model.scripts["wait"] = [[("bash", {"command": WAITS, "description": "wait"})], "ok"]
    server = opencode.serve(repo.path)
    session = server.session()
    server.send(session, "wait")
    until(lambda: "begun" in display(opencode, server, session))
    assert "ended" not in display(opencode, server, session)
    assert tell("git-daytona", "exec", "1", "touch go", cwd=repo.path).status == 0
    until(lambda: model.results("wait") == ["begun\nended"])


# -- a terminal beside it --------------------------------------------------------------------------


def add_origin(repo: Repo) -> None:
    """Give the repository a remote of its own: OpenCode may tell projects by that."""
    repo.git("remote", "add", "origin", f"git@example.com:{repo.path.parent.name}/Project.git")


def records(repo: Repo) -> list[dict[str, Any]]:
    """All sessions of a repository on record, in whatever file."""
    return [record for each in states(repo) for record in each["sessions"].values()]


@mostly_opencode_2
@pytest.mark.parametrize("origin", ["before", "later"])
def test_a_terminal_beside_opencode(opencode, model, repo, tell, sandboxes, origin):
    if origin == "before":
        add_origin(repo)
    model.scripts["first"] = [[("bash", {"command": "echo a >a"})], "ok"]
    model.scripts["second"] = [[("bash", {"command": "cat a b >c; cat c"})], "ok"]
    server = opencode.serve(repo.path)
    session = server.session()
    server.prompt(session, "first")
    until(lambda: [it["gitReturn"]["state"] for it in records(repo)] == ["synced"])
    if origin == "later":
        add_origin(repo)

    assert "opencode/1" in tell("git-daytona", "status", cwd=repo.path).out
    made = tell("git-daytona", "exec", "1", "--", "echo b >b", cwd=repo.path)
    assert made.status == 0, made.err
    assert tell("git-daytona", "sync", "1", cwd=repo.path).status == 0
    assert repo.show("opencode/1", "b") == "b"
    assert tell("git-daytona", "start", "--session", session, cwd=repo.path).status == 0

    server.prompt(session, "second")
    assert model.results("second")[-1] == "a\nb"
    until(lambda: "c" in repo.git("ls-tree", "--name-only", "opencode/1").split())
    assert len(sandboxes()) == 1
    assert len(records(repo)) == 1


@mostly_opencode_2
def test_a_session_that_a_terminal_began(opencode, model, repo, tell, sandboxes):
    """OpenCode's first session after one of a terminal's has the number 2, in the same file."""
    add_origin(repo)
    assert tell("git-daytona", "start", cwd=repo.path).status == 0
    model.scripts["first"] = [[("bash", {"command": "echo a >a"})], "ok"]
    server = opencode.serve(repo.path)
    server.prompt(server.session(), "first")
    until(lambda: len(records(repo)) == 2)
    assert {it["branchNumber"] for it in records(repo)} == {1, 2}
    assert len(states(repo)) == 1
    assert len(sandboxes()) == 2
