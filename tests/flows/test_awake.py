"""While a turn goes on its sandbox is kept awake and brought back, and what destroys itself is
brought back before: the service in this process, on a clock that a test moves."""

import queue
import threading
import time
from dataclasses import replace

import pytest

from git_daytona.base import run
from git_daytona.git import branches
from git_daytona.git.refs import Names
from git_daytona.git.repository import discover
from git_daytona.local.core.registry import Timings
from git_daytona.local.server import LocalDaytona
from git_daytona.service import awake, dispatcher
from git_daytona.service.dispatcher import Dispatcher
from git_daytona.service.jsonrpc import Request, SilentPeer
from git_daytona.sessions import ending
from git_daytona.tools.registry import TOOLS
from support.plain_http import Clock
from support.waiting import until

CLOCK = Clock(1_900_000_000.0)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LocalDaytona(tmp_path_factory.mktemp("daytona"), timings=Timings(clock=CLOCK)) as running:
        yield running


class Service(SilentPeer):
    """A client whose service is in this process, with a repository's sandboxes."""

    def __init__(self, repo, local):
        self.told, self.answers, self.repo, self.local = [], queue.Queue(), repo, local
        super().__init__(self.told.append)
        tools = {tool.name: tool for tool in TOOLS}
        self.dispatcher = Dispatcher(self, tools, repo.path, str(repo.path), None, {})
        self.awake = self.dispatcher._turns.awake

    def write(self, message):
        self.answers.put(message)

    def request(self, method, wanted=False, **params):
        return Request(self, 1, method, params, wants_answer=wanted)

    def event(self, kind, session="ses_a", **more):
        properties = {"sessionID": session, **more}
        self.dispatcher.event(self.request("event", type=kind, properties=properties))

    def busy(self, session="ses_a"):
        self.event("session.status", session, status={"type": "busy"})

    def idle(self, session="ses_a"):
        self.event("session.idle", session)
        self.settle(session)

    def bash(self, command, session="ses_a"):
        return self.tool("bash", session, command=command)

    def write_file(self):
        """Use a tool in one call: bash may look at its command once more, and later."""
        self.tool("write", filePath="a", content="a")

    def tool(self, name, session="ses_a", **arguments):
        words = {"name": name, "sessionID": session, "arguments": arguments}
        self.dispatcher.tool(self.request("tool", True, **words))
        return self.answers.get(timeout=40)["result"]["output"]

    def settle(self, session="ses_a"):
        """Wait for what runs behind the session."""
        assert self.dispatcher._turns._lane(session).wait(time.monotonic() + 40)

    def minutes(self, count):
        """Let so many minutes pass, and return the API calls that they took."""
        self.revoked()
        self.local.forget_calls()
        for _ in range(count):
            CLOCK.now += 60
            self.local.tick()
            self.awake.look()
            for lane in list(self.dispatcher._turns._lanes.values()):
                assert lane.wait(time.monotonic() + 40)
        self.revoked()
        return {each.route: self.local.counts[each.route] for each in self.local.calls}

    def revoked(self):
        until(lambda: self.local.counts["mint"] <= self.local.counts["revoke"], "revocations")

    @property
    def coordinator(self):
        return self.dispatcher.workspace.coordinator()

    def session(self, name="ses_a"):
        return self.coordinator.state.get(name)

    def state(self, name="ses_a"):
        return self.coordinator.cloud.get(self.session(name).sandbox_id).state


@pytest.fixture
def serve(local, repo, monkeypatch):
    made = []

    def start():
        made.append(Service(repo, local))
        return made[-1]

    monkeypatch.setattr(awake, "now", lambda: awake.Moment(CLOCK.now, CLOCK.now))
    monkeypatch.setattr(awake, "TICK_SECONDS", 3600.0)  # only a test looks
    yield start
    local.faults.clear()
    for each in made:
        each.dispatcher.close()


@pytest.fixture
def service(serve):
    return serve()


GIT = "sha256sum .git/index .git/HEAD; git status; git for-each-ref refs/heads; git log --oneline"


def test_a_turn_keeps_its_sandbox_and_an_idle_one_is_let_go(service):
    service.busy()
    service.write_file()
    taken = service.minutes(20)
    assert service.state() == "started"
    assert taken == {"activity": 4, "process/execute": 1, "mint": 1, "revoke": 1}, "and one sync"
    service.idle()
    assert service.minutes(14) == {}, "no calls without a turn"
    assert service.state() == "started"
    assert service.minutes(1) == {}
    until(lambda: service.state() == "stopped", "it is let go")
    service.busy()  # a turn without tools does not wake it up
    service.minutes(3)
    assert service.state() == "stopped"


def test_a_long_turn_is_brought_back_and_the_agent_does_not_notice(service, repo):
    service.busy()
    service.bash("echo a > a; git add a; echo b > b; echo more >> README; echo b >> a")
    before = service.bash(GIT)
    service.minutes(5)
    assert service.bash(GIT) == before
    assert repo.show("refs/daytona/turn/1", "a") == "a\nb"
    assert repo.show("refs/daytona/turn/1", "b") == "b"
    assert repo.git("rev-parse", "opencode/1") == repo.git("rev-parse", "HEAD"), "no commit is ours"
    session = service.session()
    assert session.needs_sync and "refs/daytona/turn/1" in session.git_return.message
    assert not [line for line in service.told if "synced" in line], "nobody is told"

    service.bash("git commit -qam own; echo c > c")
    service.minutes(5)
    assert repo.git("log", "-1", "--format=%s", "opencode/1") == "own"
    assert repo.show("refs/daytona/turn/1", "c") == "c"
    taken = service.minutes(20)
    assert "mint" not in taken, "nothing was done since"
    service.bash("rm b")
    service.idle()
    assert repo.git("for-each-ref", "refs/daytona/turn", "refs/daytona/kept") == "", "superseded"
    assert repo.git("ls-tree", "--name-only", "opencode/1").split() == ["README", "a", "c"]
    assert not service.session().needs_sync


def test_what_a_lost_sandbox_had_during_its_turn_is_in_the_next(service, repo, local):
    service.busy()
    service.bash("git checkout -qb mine; echo a > a; git add a; git commit -qm own; echo b > b")
    service.minutes(5)
    service.coordinator.cloud.delete(service.session().sandbox_id)
    said = service.bash("cat a b")
    assert said.startswith("the sandbox was gone") and said.endswith("\na\nb")
    assert "brought during its last turn" in said
    assert repo.git("for-each-ref", "refs/daytona/turn") == ""
    service.idle()
    assert repo.show("opencode/1", "b") == "b"

    service.busy()
    service.bash("echo c > c")
    service.minutes(5)
    service.coordinator.cloud.delete(service.session().sandbox_id)
    service.coordinator.delete("ses_a")
    assert repo.show("opencode/1", "c") == "c", "or nobody has it any more"


def test_what_cannot_be_the_branch_is_kept(repo):
    work = repo.git("commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "work")
    repo.git("update-ref", "refs/daytona/turn/7", work)
    repo.git("branch", "opencode")
    assert not branches.finish_turn(discover(repo.path), Names(7))
    assert [*repo.kept().values()] == [work]
    repo.git("update-ref", "refs/daytona/turn/7", work)
    repo.git("branch", "-D", "opencode")
    assert branches.finish_turn(discover(repo.path), Names(7))
    assert repo.git("rev-parse", "opencode/7") == work
    assert "turn" not in repo.git("for-each-ref") and not branches.finish_turn(
        discover(repo.path), Names(7)
    )


STATES = {
    "rebase": "git checkout -qb side; echo x > README; git commit -qam x; git checkout -q opencode;"
    " echo y > README; git commit -qam y; ! git rebase side >/dev/null 2>&1",
    "a lock": "touch .git/index.lock",
    "detached": "git checkout -q --detach",
    "without a commit": "git checkout -q --orphan new",
    "staged and stashed": "echo x > README; git stash -q; echo x > s; git add s; echo y > s;"
    " git rm -q --cached README",
}


def test_a_state_of_gits_is_left_as_it_is(repo, begin):
    """In the middle of a turn, whatever the agent is about to do."""
    session = begin(repo)
    clean = (
        "rm -rf .git/index.lock .git/rebase-*; git merge --abort 2>&1; git checkout -qfB opencode"
    )
    base = repo.git("rev-parse", "HEAD")
    wrong = {}
    look = f"{GIT}; ls -A .git/*.lock; git stash list"
    for what, script in STATES.items():
        made = f"{clean} {base}; git clean -qfdx; {script}; echo '{what}' > new"
        before = session.agent(f"({made}) >/dev/null 2>&1; {look}; true")
        session.coordinator.sync_aside(session.name)
        after = session.agent(f"{look}; true")
        listed = repo.git("for-each-ref", "--format=%(refname)", "refs/daytona").splitlines()
        shown = [repo.git("show", f"{ref}:new", check=False) for ref in listed]
        if before != after or what not in shown:
            wrong[what] = before, after, shown
    assert wrong == {}


FAULTS = {
    "offline": ({"drop": "before"}, 40),
    "busy": ({"status": 429, "retry_after": 600}, 4),
    "failing": ({"status": 503}, 40),
    "an older server": ({"status": 404, "message": "Cannot POST /last-activity"}, 1),
    "no such method": ({"status": 405, "body": b""}, 1),
    "not allowed": ({"status": 403}, 1),
}


def test_nobody_is_told_that_a_sandbox_cannot_be_kept_awake(service, local):
    """And it is not tried without end; where there is no such call, a command says the same."""
    service.busy()
    service.write_file()
    service.minutes(6)
    told, found = len(service.told), {}
    for what, (fault, most) in FAULTS.items():
        service.coordinator.cloud._notes_activity = True
        with local.faults.call(route="activity", **fault) as met:
            service.minutes(20)
        found[what] = 0 < met.seen <= most, service.state()
        assert [line for line in service.told[told:] if "Restoring" not in line] == [], what
        service.write_file()
    awake_only_there = {what: most == 1 for what, (_, most) in FAULTS.items()}
    assert {what: state == "started" for what, (_, state) in found.items()} == awake_only_there
    assert all(bounded for bounded, _ in found.values()), found
    service.coordinator.cloud._notes_activity = True
    service.minutes(20)
    assert service.state() == "started", "it goes on when it can"


def test_a_turn_whose_end_got_lost_does_not_keep_its_sandbox(service):
    service.busy()
    service.write_file()
    service.minutes(119)
    assert service.state() == "started"
    service.minutes(2)
    assert service.minutes(15) == {}
    until(lambda: service.state() == "stopped", "it is let go")


def test_what_has_passed_is_the_longer_of_both_clocks():
    then = awake.Moment(100.0, 1000.0)
    assert awake.Moment(160.0, 1060.0).since(then) == 60
    assert awake.Moment(101.0, 9000.0).since(then) == 8000, "it slept"
    assert awake.Moment(160.0, 10.0).since(then) == 60, "the clock was set back"


def test_a_session_deleted_in_its_turn_is_asked_for_nothing(service):
    service.busy()
    service.bash("echo a > a")
    service.event("session.deleted", info={"id": "ses_a"})
    service.settle()
    assert service.session() is None
    assert service.minutes(20) == {}


def test_a_turn_that_ends_while_its_sandbox_is_kept_awake(service, local):
    service.busy()
    service.write_file()
    service.minutes(1)
    with local.faults.call(route="activity", hang=True) as held:
        CLOCK.now += 300
        looking = threading.Thread(target=service.awake.look)
        looking.start()
        assert held.reached.wait(40)
        service.idle()
        held.release()
        looking.join()
    assert service.minutes(12) == {}


def test_two_services_in_one_session(serve, repo):
    one, other = serve(), serve()
    for each in (one, other):
        each.busy()
        each.bash("date >> a")
    one.minutes(5)
    turn = repo.git("rev-parse", "refs/daytona/turn/1")
    other.awake.look()
    other.settle()
    assert repo.git("rev-parse", "refs/daytona/turn/1") == turn
    other.idle()
    assert repo.git("for-each-ref", "refs/daytona/turn") == ""
    one.bash("date >> b")
    one.minutes(5)
    assert repo.show("refs/daytona/turn/1", "b")
    one.idle()
    assert repo.show("opencode/1", "b") and repo.git("for-each-ref", "refs/daytona/turn") == ""


def test_an_end_does_not_wait_for_a_turn_that_is_being_brought_back(
    service, repo, local, monkeypatch
):
    monkeypatch.setattr(dispatcher, "DRAIN_SECONDS", 1.0)
    monkeypatch.setattr(run, "_ending", threading.Event())
    service.busy()
    service.bash("echo a > a")
    until(lambda: local.live_tokens() == 0, "revocations")
    local.faults.gateway.hang = -1
    CLOCK.now += 300
    service.awake.look()
    assert local.faults.gateway.held.wait(40)
    assert not service.dispatcher.finish()
    until(lambda: local.live_tokens() == 0, "revocations")
    assert service.session().git_return.message == "not finished at shutdown"
    local.faults.clear()
    run._ending.clear()
    assert service.coordinator.sync("ses_a").changed and repo.show("opencode/1", "a") == "a"


def test_case_93_what_destroys_itself_is_brought_back_before(service, repo, local):
    """Whether a turn goes on or not, all of it, and it is said."""
    repo.git("config", "daytona.syncEvery", "never")
    repo.git("config", "daytona.syncOnIdle", "false")
    local.faults.created_with = {"ttlMinutes": 30}
    for session in ("ses_a", "ses_b"):
        service.busy(session)
        service.bash(
            f"git checkout -q --detach; git commit -q --allow-empty -m 'aside of {session}';"
            " git tag wip; git checkout -q opencode; echo a > a",
            session,
        )
    local.faults.created_with = {}
    service.idle("ses_b")
    assert repo.show("opencode/2", "a") == "a", "whatever syncOnIdle says"
    service.minutes(24)
    assert repo.git("for-each-ref", "refs/daytona/turn") == ""
    told = len(service.told)
    service.minutes(2)
    said = [line for line in service.told[told:] if "destroys itself" in line]
    said.sort(key=lambda line: "session 2" in line)
    assert "session 1" in said[0] and "refs/daytona/turn/1" in said[0], said
    assert "session 2" in said[1] and len(said) == 2, said
    assert repo.show("refs/daytona/turn/1", "a") == "a"
    assert len([ref for ref in repo.kept() if "inventory" in ref]) == 2, "the tags, too"
    assert "activity" not in service.minutes(2), "the clock"
    service.bash("echo later > later")
    service.minutes(1)
    assert repo.show("refs/daytona/turn/1", "later") == "later", "more often near its end"
    service.minutes(3)
    until(lambda: not [each for each in local.sandboxes if each.state == "started"], "the end")
    assert service.bash("cat a later").endswith("a\nlater")
    service.idle()


def test_a_spot_sandbox_is_brought_back_each_minute(service, repo, local):
    service.busy()
    service.bash("echo a > a")
    reached = service.coordinator.cloud._reached
    for id_, (base, info) in reached.items():
        reached[id_] = base, replace(info, is_spot=True)
    service.minutes(1)
    assert repo.show("refs/daytona/turn/1", "a") == "a"
    assert service.minutes(3) == {}, "and only if something was done"


def test_what_destroys_itself_is_brought_back_before_while_a_command_runs(
    repo, local, begin, monkeypatch, capsys
):
    local.faults.created_with = {"ttlMinutes": 30}
    session = begin(repo)
    session.agent("echo a > a")
    found = session.coordinator.find(session.name)
    with ending.brought_before(session.coordinator, found):
        pass
    assert repo.git("for-each-ref", "refs/daytona/turn") == "", "it is not near"
    monkeypatch.setattr(ending, "BEFORE_SECONDS", 1e10)
    with ending.brought_before(session.coordinator, found):
        until(lambda: repo.git("for-each-ref", "refs/daytona/turn"), "the work")
    assert "session 1: its sandbox destroys itself on " in capsys.readouterr().err


def test_somebody_looks_at_the_clock(service, local, monkeypatch):
    """One thread, as long as there is something to look at."""
    monkeypatch.setattr(awake, "TICK_SECONDS", 0.01)
    service.busy()
    service.write_file()
    local.forget_calls()
    CLOCK.now += 600
    until(lambda: local.counts["activity"], "the sandbox is kept awake")
    service.idle()
    until(lambda: not service.awake._running, "the thread's end")
    service.busy()
    assert service.awake._running
