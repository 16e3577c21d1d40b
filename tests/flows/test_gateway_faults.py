"""The SSH gateway breaks before, during and after the pack: what is recorded, how often it is
tried, and that it goes on afterwards."""

import os

import pytest

from git_daytona.base.errors import GitDaytonaError
from git_daytona.transfer import transfer
from support.processes import descendants
from support.round_trip import execute, stop
from support.waiting import until


def attempts(local):
    return local.counts["mint"]


@pytest.mark.parametrize("operation", ["start", "sync"])
@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("drop_before_handshake", -1),
        ("drop_after_handshake", -1),
        ("drop_after_bytes", 300),
        ("drop_after_bytes", 4000),
    ],
    ids=["before-handshake", "after-handshake", "early", "in-the-pack"],
)
def test_case_07_a_gateway_that_breaks(local, repo, begin, coordinate, operation, place, value):
    repo.git("config", "daytona.transport", "ssh")
    session_id = f"ses_{operation}_{place}_{value}"
    if operation == "sync":
        begun = begin(repo, session_id)
        begun.agent("head -c 20000 /dev/urandom > work")
        begun.coordinator.close()
    else:
        (repo.path / "more").write_bytes(os.urandom(20000))
        repo.git("add", "more")
        repo.git("commit", "-q", "-m", "Add more")
    local.forget_calls()
    coordinator = coordinate(repo.path)
    setattr(local.faults.gateway, place, value)
    with pytest.raises(GitDaytonaError) as failed:
        coordinator.start(session_id) if operation == "start" else coordinator.sync(session_id)
    coordinator.close()
    assert "the gateway 127.0.0.1" in failed.value.message
    assert attempts(local) == 3, "tried again, each time with a fresh token"
    assert local.counts["revoke"] == 3 and local.live_tokens() == 0
    recorded = coordinator.state.get(session_id)
    assert recorded.git_return.state == ("setup-failed" if operation == "start" else "failed")
    assert recorded.git_return.message == failed.value.message
    local.faults.clear()
    after = coordinate(repo.path)
    after.start(session_id) if operation == "start" else after.sync(session_id)
    after.close()
    if operation == "sync":
        assert repo.git("cat-file", "-s", "opencode/1:work") == "20000"
    else:
        assert execute(after, session_id, "git log --format=%s -1")[0].output == "Add more\n"


def test_case_08_a_gateway_that_stalls(local, repo, begin, coordinate, monkeypatch):
    """Before its banner, after the handshake or in the pack: git's whole process group ends at the
    limit, the token is revoked, the state says so, and no connection keeps the sandbox awake."""
    (repo.path / "big").write_bytes(os.urandom(200_000))
    repo.git("add", "big")
    repo.git("commit", "-q", "-m", "Add big")
    examples = {
        "fetch, no banner": ("sync", {"hang": -1}),
        "push, nothing after the handshake": ("start", {"stall_after_bytes": 0}),
        "push, in the pack": ("start", {"stall_after_bytes": 20_000}),
    }
    for name, (operation, fault) in examples.items():
        session = begin(repo, name) if operation == "sync" else None
        if session:
            session.agent("head -c 200000 /dev/urandom > work")
        coordinator = coordinate(repo.path)
        for key, value in fault.items():
            setattr(local.faults.gateway, key, value)
        with (
            monkeypatch.context() as impatient,
            pytest.raises(GitDaytonaError, match="made no progress"),
        ):
            impatient.setattr(transfer, "IDLE_SECONDS", 0.7)
            getattr(coordinator, operation)(name)
        coordinator.close()
        ours = [
            each for each in descendants() if each.name == "ssh" or str(repo.path) in each.words
        ]
        assert [each.words for each in ours] == [], name
        assert local.live_tokens() == 0, name
        recorded = coordinator.state.get(name).git_return
        assert recorded.state == ("failed" if operation == "sync" else "setup-failed"), name
        assert "no progress" in recorded.message, name
        local.faults.clear()
        until(lambda: not local.gateway._connections)
        assert coordinator.sync(name), name


def test_case_07_the_first_connections_after_a_start_are_closed(local, repo, begin):
    session = begin(repo)
    session.agent("echo work > work")
    local.faults.gateway.refuse_after_start = 2
    stop(session.coordinator.cloud, session.sandbox_id)
    local.forget_calls()
    assert session.sync().changed
    session.coordinator.close()
    assert local.counts["mint"] == 3 and local.live_tokens() == 0


def test_case_52b_a_dropped_answer_does_not_run_a_command_twice(local, repo, begin):
    session = begin(repo)
    with local.faults.call(route="process/execute", drop="after", times=2):
        output = session.agent("echo once >> /home/daytona/count; cat /home/daytona/count")
    assert output == "once\n"
    assert session.agent("cat /home/daytona/count") == "once\n"


def test_case_52b_a_command_that_reads_standard_input(local, repo, begin):
    session = begin(repo)
    assert session.agent("cat; echo after; read -r line; echo end") == "after\nend\n"


def test_case_51_a_server_in_the_background_does_not_hold_the_call(local, repo, begin):
    session = begin(repo)
    assert session.agent("sleep 1000 & echo started") == "started\n"
