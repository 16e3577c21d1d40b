"""While a turn goes on its sandbox is kept awake and brought back, and what destroys itself is
brought back before: the service in this process, on a clock that a test moves."""

import queue
import time

import pytest

from git_daytona.git.refs import PROJECT
from git_daytona.local.core.registry import Timings
from git_daytona.local.server import LocalDaytona
from git_daytona.service import awake
from git_daytona.service.dispatcher import Dispatcher
from git_daytona.service.jsonrpc import Request, SilentPeer
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
        words = {"name": "bash", "sessionID": session, "arguments": {"command": command}}
        self.dispatcher.tool(self.request("tool", True, **words))
        return self.answers.get(timeout=40)["result"]["output"]

    def settle(self, session="ses_a"):
        """Wait for what runs behind the session."""
        assert self.dispatcher._turns._lane(session).wait(time.monotonic() + 40)

    def minutes(self, count):
        """Let so many minutes pass, and return the API calls that they took."""
        until(lambda: self.local.live_tokens() == 0, "revocations")
        self.local.forget_calls()
        for _ in range(count):
            CLOCK.now += 60
            self.local.tick()
            self.awake.look()
            for lane in list(self.dispatcher._turns._lanes.values()):
                assert lane.wait(time.monotonic() + 40)
        return {each.route: self.local.counts[each.route] for each in self.local.calls}

    def session(self, name="ses_a"):
        return self.dispatcher.workspace.coordinator().state.get(name)

    def state(self, name="ses_a"):
        return (
            self.dispatcher.workspace.coordinator().cloud.get(self.session(name).sandbox_id).state
        )


@pytest.fixture
def service(local, repo, monkeypatch):
    monkeypatch.setattr(awake, "now", lambda: awake.Moment(CLOCK.now, CLOCK.now))
    made = Service(repo, local)
    yield made
    local.faults.clear()
    made.dispatcher.close()


GIT = "sha256sum .git/index .git/HEAD; git status; git for-each-ref refs/heads; git log --oneline"


def test_a_turn_keeps_its_sandbox_and_an_idle_one_is_let_go(service):
    service.busy()
    service.bash("true")
    taken = service.minutes(20)
    assert service.state() == "started"
    assert taken == {"activity": 4, "process/execute": 1}, "the latter to see what was done"
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
    service.dispatcher.workspace.coordinator().cloud.delete(service.session().sandbox_id)
    said = service.bash("cat a b")
    assert said.startswith("the sandbox was gone") and said.endswith("\na\nb")
    assert "brought during its last turn" in said
    assert repo.git("for-each-ref", "refs/daytona/turn") == ""
    service.idle()
    assert repo.show("opencode/1", "b") == "b"
