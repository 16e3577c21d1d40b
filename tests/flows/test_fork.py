"""``git daytona fork``: sessions from the state of another one, by a copy of its sandbox or by what
came back of it."""

import json
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest

from git_daytona.base.errors import (
    BadAnswer,
    Forbidden,
    LimitReached,
    SandboxCommandFailed,
    UsageError,
)
from git_daytona.sandbox import ownership, report
from git_daytona.sessions import recovery
from git_daytona.settings.order import Order
from support import crashes
from support.round_trip import Session, execute, stop

VM, CONTAINER = "daytona-vm-small", "daytona-local"
PENDING = """
mkdir node_modules && echo dependency >node_modules/one
echo committed >committed && git add committed && git commit -qm own
echo staged >staged && git add staged && echo more >>staged
echo unstaged >>README && echo untracked >untracked
"""
FILES = "cat committed staged README untracked; cat node_modules/one 2>&- || echo nothing"


@pytest.fixture
def snapshot():
    return VM


@pytest.fixture
def worked(snapshot, repo, begin, monkeypatch):
    """A session with work of each kind pending, in a sandbox that Daytona can copy."""
    monkeypatch.setenv("DAYTONA_SNAPSHOT", snapshot)
    repo.commit(".gitignore", "node_modules\n")
    session = begin(repo, "ses_1")
    session.agent(PENDING)
    return session


def fork(session) -> Session:
    """Fork a session as the command does."""
    coordinator = session.coordinator
    made = coordinator.start(origin=coordinator.find(session.name).id).session
    return Session(coordinator, made.number, made.sandbox_id)


@pytest.mark.parametrize("snapshot", [VM, CONTAINER])
def test_branches_from_one_state_have_the_pending_work(repo, worked, command, snapshot):
    copied = snapshot == VM
    numbers, options = ((2, 3), ("--count", "2")) if copied else ((2,), ())
    repo.commit(".devcontainer.json", '{"postStartCommand": "echo started"}')
    worked.coordinator.update("1")
    ran = command("git-daytona", "fork", *options, cwd=repo.path)
    assert ran.status == 0, ran.err
    if not copied:
        assert "hint: see it, and allow it: git daytona allow" in ran.err
    said = [line.split(":")[0] for line in ran.out.splitlines()]
    assert said == [f"session {each} started" for each in numbers]
    words = "its sandbox is a copy of that one's" if copied else "with what is on opencode/1 ("
    assert ran.err.count(words) == len(numbers)
    state = worked.agent(FILES)
    for number in numbers:
        there = f"{FILES}; git status --short; echo {number} >attempt"
        found = execute(worked.coordinator, str(number), there)[0].output
        assert copied is ("dependency" in found)
        assert found.splitlines()[:-1] == state.splitlines()[:-1]
        worked.coordinator.sync(str(number))
        parent = repo.git("rev-parse", f"opencode/{number}^")
        assert parent == repo.git("rev-parse", "opencode/1")
        assert repo.show(f"opencode/{number}", "attempt") == str(number)
    assert repo.git("ls-tree", "opencode/1", "attempt") == ""
    log = command("git-daytona", "log", "--no-sync", "2", "--format=%s", cwd=repo.path)
    assert len(log.out.splitlines()) == 1, "what came before the fork is not its own"


def test_a_copy_is_its_own(local, repo, worked):
    """Its labels, name and tokens, for a fork by the agent's client, too; neither session's
    deletion touches the other's work."""
    coordinator = worked.coordinator
    made = coordinator.within("ses_2", lambda _: None, origin="ses_1")
    assert "a fork of session 1: its sandbox is a copy of that one's" in made[2]
    second = Session(coordinator, made[1].number, made[1].sandbox_id)
    labels = [coordinator.cloud.get(each.sandbox_id).labels for each in (worked, second)]
    assert [each[ownership.SESSION] for each in labels] == [
        coordinator.find(name).id for name in ("1", "2")
    ]
    assert labels[0][ownership.CREATION] != labels[1][ownership.CREATION]
    assert not recovery.leftovers(coordinator)
    assert coordinator.sandboxes.made(second.sandbox_id).path.exists()
    second.agent("echo second >second")
    worked.agent("echo first >first")
    with pytest.raises(BadAnswer, match="active fork children"):
        coordinator.delete("1")
    assert repo.show("opencode/1", "first") == "first", "it came back all the same"
    coordinator.delete("2")
    assert repo.show("opencode/2", "second") == "second"
    assert recovery.recover(coordinator).done == ["session 1: it was deleted, as wished"]
    assert local.live_tokens() == 0


def test_the_original_may_sleep_or_be_at_work(worked):
    coordinator = worked.coordinator
    worked.sync()
    stop(coordinator.cloud, worked.sandbox_id)
    assert "dependency" in fork(worked).agent(FILES)

    worked.agent("(while :; do date >>turn; done) >/dev/null 2>&1 & sleep 0.05")
    with ThreadPoolExecutor() as pool:
        both = list(pool.map(fork, [worked, worked]))
    for each in both:
        assert "untracked" in each.agent(FILES) and each.agent("cat turn")
        still = "size=$(wc -c <turn); sleep 0.2; [ $size = $(wc -c <turn) ]"
        assert each.agent(still) == "", "programs do not travel"
        each.sync()


def test_a_limit_is_told_in_the_servers_words(local, worked):
    """And no other sandbox is tried instead: it would meet the same limit."""
    for status, message, kind in (
        (403, "Total CPU limit exceeded. Maximum allowed: 10.", Forbidden),
        (429, "Sandbox resource limit reached", LimitReached),
    ):
        local.forget_calls()
        with (
            local.faults.call(route="^fork$", status=status, message=message),
            pytest.raises(kind, match=message),
        ):
            fork(worked)
        assert "create" not in [call.route for call in local.calls]
    assert [each.name for each in worked.coordinator.sessions()] == ["1"]
    recovery.recover(worked.coordinator)
    assert fork(worked).name == "2"


def test_a_copy_is_as_shut_as_the_original(local, worked):
    """Daytona copies not all limits of the network; where they cannot be set, no copy stays."""
    cloud, shut = worked.coordinator.cloud, {"domainAllowList": "example.com"}
    known = cloud._ask("look", "GET", f"/sandbox/{worked.sandbox_id}").body
    answer = json.dumps(json.loads(known) | shut).encode()
    local.forget_calls()
    with local.faults.call(route="^get$", sandbox=worked.sandbox_id, body=answer):
        with pytest.raises(BadAnswer, match="cannot restrict the network"):
            fork(worked)
        assert "delete" in [call.route for call in local.calls]
        with local.faults.call(route="^network$", body=b"{}") as set_:
            assert "dependency" in fork(worked).agent(FILES)
    assert set_.seen == 1
    with local.faults.call(route="^network$", body=b"{}") as set_:  # the original is gone
        worked.coordinator.sandboxes._own(cloud.get(worked.sandbox_id), {}, "", Order(shut))
    assert set_.seen == 1


def test_where_there_is_no_copy_the_commit_is_taken(local, worked):
    """An older server, a sandbox of another class, one that is gone."""
    forks = []
    for status in (404, 405, 422):
        with local.faults.call(route="^fork$", status=status):
            forks.append(fork(worked))
    worked.coordinator.cloud.delete(worked.sandbox_id)
    for each in (*forks, fork(worked)):
        assert "untracked" in each.agent(FILES) and "nothing" in each.agent(FILES)


def test_a_lost_answer_makes_no_second_copy(local, worked):
    before = len(local.sandboxes)
    with local.faults.call(route="^fork$", drop="after", times=1):
        assert "dependency" in fork(worked).agent(FILES)
    with local.faults.call(route="^labels$", drop="before", times=1):
        assert "dependency" in fork(worked).agent(FILES)
    assert len(local.sandboxes) == before + 2


def test_a_fork_that_was_killed_is_finished_from_the_same_point(local, repo, worked, coordinate):
    with crashes.worker() as worker:
        steps = worker.steps(repo.path, "fork", "ses_1")
        for before in ("api label", "git update-ref"):
            worked.coordinator.delete("ses_1_fork")
            at = steps.index(before, steps.index("api fork")) + 1
            worker.kill(repo.path, "fork", "ses_1", step=str(at))
            point = repo.git("rev-parse", "opencode/1")
            worked.agent(f"echo later >'later {before}'")
            worked.sync()
            coordinator = coordinate(repo.path)
            (copy,) = (each.id for each in local.sandboxes if each.parent == worked.sandbox_id)
            assert copy not in [each.id for each in recovery.leftovers(coordinator).others]
            assert recovery.recover(coordinator).failed == []
            made = coordinator.find("ses_1_fork")
            found = execute(coordinator, made.name, f"{FILES}; ls")[0].output
            assert "dependency" in found and f"later {before}" not in found
            assert (made.sandbox_id, repo.git("rev-parse", made.branch)) == (copy, point)
            labels = coordinator.cloud.get(copy).labels
            assert labels[ownership.SESSION] == "ses_1_fork"


@pytest.mark.parametrize("snapshot", [CONTAINER])
def test_a_snapshot_has_packages_and_no_work_of_its_session(local, repo, worked, command):
    for words in ((), ("1",)):
        ran = command("git-daytona", "snapshot", *words, cwd=repo.path)
        assert (ran.status, "the snapshot needs a name" in ran.err) == (2, True)
    ran = command("git-daytona", "snapshot", "1", "with/packages", cwd=repo.path)
    assert (ran.status, ran.out) == (0, "snapshot with/packages made of session 1\n"), ran.err
    assert "what is secret" in ran.err and "daytona.snapshot with/packages" in ran.err
    with pytest.raises(UsageError, match="already"):
        worked.coordinator.snapshot("1", "with/packages")
    base = repo.commit("newer", "newer\n")
    options = ("--snapshot", "with/packages", "--auto-stop", "0", "--ttl", "600")
    for number, words in ((2, options), (3, ("--like", "2")), (4, ("--like", "2", "--ttl", "0"))):
        started = command("git-daytona", "start", *words, cwd=repo.path)
        assert started.status == 0, started.err
        found = execute(worked.coordinator, str(number), "git log -1 --format=%H; ls -A")[0].output
        assert found.split() == [base, ".git", ".gitignore", "README", "newer", "node_modules"]
        info = worked.coordinator.cloud.get(worked.coordinator.find(str(number)).sandbox_id)
        assert (info.ordered["snapshot"], info.destroyed_at is None) == (options[1], number == 4)
    for answer, kind, words in (
        ({"status": 400, "message": "snapshots want it stopped"}, BadAnswer, "want it stopped"),
        ({"body": b"{}"}, SandboxCommandFailed, "'other' is not there"),
    ):
        with (
            local.faults.call(route="^snapshot$", **answer),
            pytest.raises(kind, match=words),
        ):
            worked.coordinator.snapshot("2", "other")


SET_UP = {"onCreateCommand": "echo made >>set-up", "postStartCommand": "echo started >>set-up"}


def finished(session) -> list[str]:
    """Wait for a session's set-up; return what it has left."""
    coordinator = session.coordinator
    coordinator.provision.follow(coordinator.find(session.name), lambda _: None)
    return session.agent("cat set-up .env").split()


@pytest.mark.parametrize("snapshot", [VM, CONTAINER])
def test_the_set_up_of_a_copy_and_of_a_new_sandbox(repo, begin, snapshot, monkeypatch):
    """What there is runs once in each sandbox, whatever is in the way, but for what is of each
    start; in a copy the agent's ignored files stay as it left them."""
    monkeypatch.setenv("DAYTONA_SNAPSHOT", snapshot)
    repo.commit(".gitignore", "set-up\n.env\n")
    repo.commit(".devcontainer.json", json.dumps(SET_UP))
    repo.write(".env", "mine\n")
    repo.git("config", "daytona.setup", "always")
    repo.git("config", "daytona.copyFiles", ".env")
    first = begin(repo)
    coordinator = first.coordinator
    assert finished(first) == ["made", "started", "mine"]
    first.agent("echo agent >.env")
    first.sync()
    stop(coordinator.cloud, first.sandbox_id)
    with monkeypatch.context() as patch, pytest.raises(BadAnswer):
        patch.setattr(report, "prepare", Mock(side_effect=BadAnswer("a bad moment")))
        fork(first)
    coordinator.sync("2")
    second = Session(coordinator, 2, coordinator.find("2").sandbox_id)
    found, is_copy = finished(second), snapshot == VM
    assert [*dict.fromkeys(found)] == ["made", "started", "agent" if is_copy else "mine"]
    assert found.count("made") == 1
    assert coordinator.find("2").setup.run == (3 if is_copy else 1), "waking the original was one"
