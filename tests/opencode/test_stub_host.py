"""The plugin in a host such as OpenCode 2 that does, on demand, what the real one does rarely; the
service is the real one, where one is needed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.plugin import PLUGIN, state
from support.processes import gone, services
from support.round_trip import BIN, Repo, program
from support.waiting import until

OURS = {"shell", "read", "write", "edit", "patch", "glob", "grep", "gitSync", "getPreviewURL"}
REFUSED = "Daytona is not available, and nothing runs on this machine instead: "
HUNG = "#!{python}\nimport time\ntime.sleep(600)\n"


class Failed(Exception):
    """The host's answer to a command that failed."""


class Host:
    """The stub host with the plugin, in a process of its own."""

    def __init__(self, plugin, service):
        node = shutil.which("node")
        if node is None:
            pytest.skip("Node.js is missing")
        self.process = subprocess.Popen(
            (node, Path(__file__).with_name("stub_host.mjs"), plugin),
            env=os.environ | {"DAYTONA_SERVICE_BINARY": str(service)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, command, **options):
        self.process.stdin.write(json.dumps({"command": command} | options) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["value"]

    def services(self):
        return services(self.process.pid)

    def close(self):
        with self.process:
            self.process.stdin.close()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()


class Place:
    """A Location of the host: a repository."""

    def __init__(self, host, repo, **options):
        self.host, self.directory = host, str(repo.path)
        project = {"id": f"p{repo.path.name}", "directory": self.directory}
        self.opened = self.tell("open", project=project, **options)

    def tell(self, command, **options):
        return self.host.tell(command, directory=self.directory, **options)

    def session(self, name, parent=None):
        self.tell("session", id=name, parentID=parent)
        return name

    def call(self, tool, session="s", **arguments):
        """The result's text; the first one of a sandbox begins with a line that says so."""
        text = self.tell("call", tool=tool, sessionID=session, input=arguments)
        return re.sub(r"\A(Sandbox created|Connected): .*\n\n", "", text)

    def refused(self):
        """Why the turn ends before it begins; no tool of the host's runs, either."""
        with pytest.raises(Failed) as turn:
            self.tell("turn", sessionID="s")
        for tool in ("shell", "brand_new", "execute"):
            with pytest.raises(Failed):
                self.call(tool, command="true")
        assert str(turn.value).startswith(REFUSED)
        return str(turn.value).removeprefix(REFUSED)


@pytest.fixture
def start(tmp_path):
    """Start the host; with other limits in the plugin, or another service, where they are given."""
    started = []

    def make(service=BIN / "git-daytona", **limits):
        text = (PLUGIN / "index.js").read_text()
        for name, value in limits.items():
            line = re.compile(rf"^const {name} = [\d_]+", re.MULTILINE)
            text, count = line.subn(f"const {name} = {value}", text)
            assert count == 1, name
        place = tmp_path / "plugin"
        place.mkdir(exist_ok=True)
        (place / "index.js").write_text(text)
        (place / "package.json").write_text('{"type": "module"}')
        started.append(Host(place, service))
        return started[-1]

    yield make
    for each in started:
        each.close()


# -- the tools -------------------------------------------------------------------------------------


def test_each_tool_of_ours_is_in_the_place_of_the_hosts(start, repo, local):
    place = Place(start(), repo)
    assert place.opened["state"] == "active" and place.opened["log"] == []
    listed = place.tell("tools")
    assert set(listed) >= OURS
    assert {name for name in listed if listed[name] == "the host's own"} == {
        *("question", "skill", "subagent", "webfetch", "websearch")
    }
    deny = {"action": "execute", "resource": "*", "effect": "deny"}
    assert place.opened["agent"]["permissions"] == [deny]
    place.session("s")
    assert "Daytona sandbox" in place.tell("turn", sessionID="s")
    assert place.call("write", path="made", content="made\n").startswith("Wrote")
    assert place.call("shell", command="pwd; cat made") == "/home/daytona/project\nmade"
    assert "made" in place.call("read", path="made")
    assert not (repo.path / "made").exists()
    for name in ("brand_new", "browser_tabs_list", "execute", "unheard_of"):
        with pytest.raises(Failed, match=f"'{name}' is blocked"):
            place.call(name)
    place.tell("set", late=["brand_new"])  # another plugin brings it back
    with pytest.raises(Failed, match="'brand_new' is blocked"):
        place.call("brand_new")
    assert place.call("question") == "HOST question"


@pytest.mark.parametrize("tool", sorted(OURS))
def test_a_tool_that_is_not_registered(start, repo, local, tool):
    """The host skips it with a line in its log, and its own stays."""
    place = Place(start(), repo, skips=[tool])
    assert f"ERROR skipped {tool}" in place.opened["log"]
    assert place.refused() == f"'{tool}' is not ours"


def test_another_plugin_takes_the_place_of_a_tool(start, repo, local):
    place = Place(start(), repo)
    place.session("s")
    place.tell("turn", sessionID="s")
    place.tell("set", late=["shell"])
    assert place.refused() == "'shell' is not ours"
    place.tell("set", late=[])
    place.tell("turn", sessionID="s")


@pytest.mark.parametrize(
    "api",
    ["tool.transform", "agent.transform", "tool.list"],
)
def test_the_hosts_api_fails(start, repo, local, api):
    place = Place(start(), repo, fails=[api])
    assert place.opened["state"] == "active", "setup does not throw"
    assert place.refused() == f"{api} is broken"


@pytest.mark.parametrize("api", ["session.hook", "tool.hook"])
def test_no_hook_can_be_registered(start, repo, local, api):
    """Nothing can be refused by a hook, and so nothing that acts is left."""
    place = Place(start(), repo, fails=[api])
    assert place.opened["state"] == "active"
    place.session("s")
    with pytest.raises(Failed, match=r"is broken|there is no tool shell"):
        place.call("shell", command="true")
    own = {name for name, words in place.tell("tools").items() if words == "the host's own"}
    assert not own & {*OURS, "brand_new"}, "the host's own tools are gone"


def test_the_hosts_events_end(start, repo, local):
    place = Place(start(), repo, fails=["event.subscribe"])
    told = place.tell("turn", sessionID="s")
    assert "OpenCode's events ended: event.subscribe is broken" in told


def test_a_transform_is_pure_and_does_not_throw_at_the_end(start, repo, local):
    place = Place(start(), repo)
    first, second = place.tell("tools"), place.tell("tools")
    assert first == second
    closed = place.tell("close")
    assert closed["state"] == "active" and closed["aborted"] == 1 and closed["replays"] >= 3
    assert place.tell("tools") == first


def test_the_context_of_opencode_1(start, local):
    assert start(service="/nowhere").tell("older") is True


# -- the service -----------------------------------------------------------------------------------


def test_the_service_is_missing(start, repo, tmp_path):
    place = Place(start(service=tmp_path / "nowhere"), repo)
    assert place.opened["state"] == "active"
    assert place.refused().startswith("the Daytona service is gone: cannot run")


def test_the_service_hangs(start, repo, tmp_path):
    service = program(tmp_path / "service", HUNG.format(python=sys.executable))
    place = Place(start(service=service, START_MS=1_000), repo)
    assert place.opened["state"] == "active"
    assert place.refused() == "it does not answer"


def test_the_service_dies_twice(start, repo, local):
    host = start()
    place = Place(host, repo)
    place.session("s")
    assert place.call("shell", command="echo made > made; pwd") == "/home/daytona/project"
    first = until(host.services)
    os.kill(first[0], signal.SIGKILL)
    second = until(lambda: [each for each in host.services() if each not in first])
    told = until(lambda: told_of("Daytona service restarted", place))
    assert "Tell the user, from Daytona:" in told
    assert place.call("shell", command="cat made") == "made", "the same sandbox"
    os.kill(second[0], signal.SIGKILL)
    assert gone(second[0])
    until(lambda: told_of(f"{REFUSED}the Daytona service ended twice", place))
    assert place.refused().startswith("the Daytona service ended twice: it ended (SIGKILL)")


def told_of(words, place):
    """What a turn is told, if it has the words."""
    try:
        told = place.tell("turn", sessionID="s")
    except Failed as failed:
        told = str(failed)
    return told if words in told else None


# -- two Locations ---------------------------------------------------------------------------------


def event(kind, session, directory=None, **data):
    place = {"location": {"directory": directory}} if directory else {}
    return {"type": kind, "data": {"sessionID": session, **data}} | place


def test_two_locations_in_one_process(start, repo, local, sandboxes, tmp_path):
    """Two services; each is told of its own sessions, and of no others."""
    listens = f"#!/bin/sh\ntee {tmp_path}/said.$$ | {BIN}/git-daytona serve\n"
    host = start(service=program(tmp_path / "service", listens))
    other = Repo(tmp_path / "other")
    other.path.mkdir()
    other.git("init", "-q")
    other.commit("README", "hello\n")
    here, there = Place(host, repo), Place(host, other)
    here.session("ses_here")
    there.session("ses_there")
    host.tell("emit", event=event("session.created", "ses_here", here.directory))
    assert here.call("shell", "ses_here", command="echo a > a; ls") == "README\na"
    assert there.call("shell", "ses_there", command="echo b > b; ls") == "README\nb"

    host.tell("emit", event=event("session.deleted", "ses_unheard_of"))
    for name in ("ses_here", "ses_there"):
        host.tell("emit", event=event("session.execution.started", name))
        host.tell("emit", event=event("session.renamed", name, title=f"title of {name}"))
        host.tell("emit", event=event("session.execution.succeeded", name))
    for each, name in ((repo, "a"), (other, "b")):
        until(lambda each=each: each.git("branch", "--list", "opencode/1"))
        until(lambda each=each, name=name: name in each.git("ls-tree", "--name-only", "opencode/1"))
        assert each.git("branch", "--list", "opencode/2") == ""

    host.tell("emit", event=event("session.deleted", "ses_there"))
    until(lambda: len(sandboxes()) == 1)
    assert here.call("shell", "ses_here", command="cat a") == "a"
    with pytest.raises(Failed, match="this session was deleted"):
        there.call("shell", "ses_there", command="true")
    said = [path.read_text() for path in tmp_path.glob("said.*")]
    assert sorted(("ses_here" in each, "ses_there" in each) for each in said) == [
        (False, True),
        (True, False),
    ]


# -- the end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [False, True])
def test_the_end_in_mid_sync(start, repo, local, cut):
    """The host waits 3 seconds and kills itself; the service goes on without it."""
    host = start(CLEANUP_MS=60_000) if cut else start()
    place = Place(host, repo)
    place.session("s")
    place.call("shell", command="echo made > made")
    mine = until(host.services)
    with local.faults.call(route="mint", nth=1, hang=True) as fault:
        host.tell("emit", event=event("session.execution.succeeded", "s"))
        assert fault.reached.wait(40)
        if cut:
            with pytest.raises((ValueError, BrokenPipeError)):
                place.tell("close")
            assert host.process.wait(20) == -signal.SIGKILL
        else:
            assert place.tell("close")["state"] == "active"
    assert gone(*mine, seconds=60)
    assert repo.show("opencode/1", "made") == "made"
    assert state(repo)["sessions"]["s"]["gitReturn"]["state"] == "synced"
    assert local.live_tokens() == 0
