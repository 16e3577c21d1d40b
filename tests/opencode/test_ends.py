"""How it ends: OpenCode killed, terminated, and the service with it or alone."""

import os
import shutil
import signal

import pytest

from support.opencode_hosts import mostly_opencode_2
from support.plugin import state
from support.processes import descendants, gone
from support.waiting import until

MAKE = [[("bash", {"command": "echo made > made", "description": "make"})], "ok"]


def service(process):
    """The pid of the service below an OpenCode (its own children look the same until they have
    become git)."""
    found = (
        each.pid
        for each in descendants(process.pid)
        if each.words[-1] == "serve" and any("git_daytona" in word for word in each.words)
    )
    return next(found, None)


@mostly_opencode_2
def test_case_44_killed_in_mid_sync(opencode, model, repo, local):
    """Everything dies at once, as when the machine does."""
    model.scripts["make"] = MAKE
    with local.faults.call(route="mint", nth=2, hang=True) as fault:
        running = opencode.begin("make", cwd=repo.path)
        assert fault.reached.wait(40)
        mine = service(running)
        os.kill(mine, signal.SIGKILL)
        os.killpg(running.pid, signal.SIGKILL)
        assert gone(mine, running.pid)
    assert "made" not in repo.git("ls-tree", "--name-only", "opencode/1")
    # 1.18.34 installs its packages meanwhile; for the lock of that the next one waits a minute.
    shutil.rmtree(opencode.home / ".local/state/opencode/locks", ignore_errors=True)
    model.scripts["hello"] = ["good day"]
    done = opencode.run("hello", cwd=repo.path)
    assert done.status == 0, done.terminal
    assert "session 1: opencode/1 is at" in opencode.toast("Work of an earlier run recovered")
    assert repo.show("opencode/1", "made") == "made"
    until(lambda: local.live_tokens() == 0)  # the service ends after its OpenCode


@pytest.mark.parametrize(
    ("release", "number"),
    [
        ("1.18.34", signal.SIGTERM),
        ("2.0.14", signal.SIGTERM),
        # what is killed does nothing more, whichever it is
        ("2.0.14", signal.SIGKILL),
    ],
    indirect=["release"],
    scope="session",
)
def test_case_44_and_case_59_and_case_67_opencode_ended_in_mid_sync(
    opencode, model, repo, local, number
):
    """``opencode serve`` dies, or ends without a word to its plugins: the service sees the end of
    input and finishes."""
    model.scripts["make"] = MAKE
    server = opencode.serve(repo.path)
    with local.faults.call(route="mint", nth=2, hang=True) as fault:
        session = server.session()
        server.prompt(session, "make")
        assert fault.reached.wait(40)
        # A transfer stands still, and OpenCode goes on: another session begins, and has its answer
        # (case 59).
        model.scripts["hello"] = ["good day"]
        server.prompt(server.session(), "hello")
        assert len(server.sessions()) == 2
        mine = service(server.process)
        server.process.send_signal(number)
        assert gone(server.process.pid)
    assert gone(mine, seconds=60)
    assert repo.show("opencode/1", "made") == "made"
    assert state(repo)["sessions"][session]["gitReturn"]["state"] == "synced"
    assert local.live_tokens() == 0


@mostly_opencode_2
def test_the_service_killed(opencode, model, repo, local, sandboxes):
    model.scripts["first"] = [[("bash", {"command": "echo a > a", "description": "make"})], "ok"]
    model.scripts["second"] = [[("bash", {"command": "cat a", "description": "look"})], "ok"]
    model.scripts["third"] = [[("bash", {"command": "touch host", "description": "look"})], "ok"]
    server = opencode.serve(repo.path)
    session = server.session()
    server.prompt(session, "first")
    until(lambda: state(repo)["sessions"][session]["gitReturn"]["state"] == "synced")
    mine = service(server.process)
    os.kill(mine, signal.SIGKILL)
    assert gone(mine)
    again = until(lambda: service(server.process))
    server.prompt(session, "second")
    opencode.toast("Daytona service restarted")
    assert model.results("second")[-1] == "a"
    assert len(sandboxes()) == 1
    os.kill(again, signal.SIGKILL)
    assert gone(again)
    if opencode.major == 1:
        opencode.toast("Daytona service ended")
    server.prompt(session, "third")

    def told():
        """The tool call failed or, in OpenCode 2, the turn before the model was asked."""
        failed = opencode.events("session.execution.failed")
        return " ".join([*model.results("third"), *(each["error"]["message"] for each in failed)])

    until(lambda: "nothing runs on this machine instead" in told())
    assert not (repo.path / "host").exists()
