"""``git-daytona serve`` and ``git daytona hook`` as a host meets them: lines of JSON, a real
sandbox, and what is told."""

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from urllib.parse import quote

import httpx
import pytest

from git_daytona.local.core.registry import Timings
from git_daytona.local.server import LocalDaytona
from git_daytona.service import host_tools
from git_daytona.transfer import leases
from support.round_trip import BIN, execute, stop, trust_by_hand
from support.waiting import until


class Host:
    """A program that starts the service and speaks its protocol."""

    def __init__(self, directory, **params):
        self.process = subprocess.Popen(
            (str(BIN / "git-daytona"), "serve"),
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.answers, self.told, self.asked = {}, [], []
        self.lines = []
        self.reply = lambda method, params: {"parentID": None}
        self.changed = threading.Condition()
        self.ids = iter(range(1, 1000))
        threading.Thread(target=self._read, daemon=True).start()
        if directory is not None:
            self.hello = self.call(
                "initialize", directory=str(directory), worktree=str(directory), **params
            )

    def _read(self):
        for line in self.process.stdout:
            message = json.loads(line)
            assert message.pop("jsonrpc") == "2.0"
            with self.changed:
                self.lines.append(message)
                if "method" not in message:
                    self.answers[message["id"]] = message
                elif "id" in message:
                    self.asked.append(message)
                    self.send(id=message["id"], **self._answer(message))
                else:
                    self.told.append(message)
                self.changed.notify_all()

    def _answer(self, message):
        try:
            return {"result": self.reply(message["method"], message["params"])}
        except PermissionError as problem:
            return {"error": {"code": 1, "message": str(problem)}}

    def send(self, **message):
        self.raw(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def raw(self, line):
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def begin(self, method, **params):
        number = next(self.ids)
        self.send(id=number, method=method, params=params)
        return number

    def result(self, number, seconds=40):
        with self.changed:
            assert self.changed.wait_for(lambda: number in self.answers, seconds), "no answer"
            return self.answers[number]

    def call(self, method, **params):
        answer = self.result(self.begin(method, **params))
        assert "error" not in answer, answer
        return answer["result"]

    def bash(self, command, session="ses_a", **more):
        return self.call(
            "tool", name="bash", sessionID=session, arguments={"command": command, **more}
        )["output"]

    def event(self, kind, session="ses_a", **properties):
        self.send(
            method="event",
            params={"type": kind, "properties": {"sessionID": session, **properties}},
        )

    def toasts(self):
        """Those of what happened; "Please wait" depends on how fast this machine is."""
        shown = [
            (each["params"]["title"], each["params"]["message"])
            for each in self.told
            if each["method"] == "toast"
        ]
        return [each for each in shown if each[0] != "Please wait"]

    def toast(self, title):
        return until(
            lambda: next((message for name, message in self.toasts() if name == title), None)
        )

    def close(self):
        self.process.stdin.close()
        status = self.process.wait(90)
        errors = self.process.stderr.read().decode()
        self.process.stdout.close()
        self.process.stderr.close()
        return status, errors


@pytest.fixture
def host(local):
    made = []

    def start(directory, **params):
        made.append(Host(directory, **params))
        return made[-1]

    yield start
    for each in made:
        if each.process.poll() is None:
            assert each.close() == (0, "")


# -- the protocol ----------------------------------------------------------------------------------


def test_what_initialize_tells(host, repo):
    hello = host(repo.path, projectID="p1").hello
    by_name = {each["name"]: each for each in hello["tools"]}
    assert {
        "bash",
        "read",
        "write",
        "edit",
        "multiedit",
        "apply_patch",
        "list",
        "ls",
        "glob",
        "grep",
    } <= set(by_name)
    assert {"getPreviewURL", "gitSync"} <= set(by_name)
    assert all(
        each["parameters"]["type"] == "object" and each["description"] for each in hello["tools"]
    )
    assert by_name["bash"]["parameters"]["required"] == ["command"]
    assert (
        set(by_name) <= set(hello["allowed"])
        and "task" in hello["allowed"]
        and "lsp" not in hello["allowed"]
    )
    assert "session.idle" in hello["events"]
    assert str(repo.path) in hello["system"]


def test_lines_that_make_no_sense(host, repo):
    here = host(repo.path)
    for line, code in [
        (b"{", -32700),
        (b"[" * 100000, -32700),
        (b"\xff\xfe", -32700),
        (b"[]", -32600),
        (b"7", -32600),
        (b'{"id": 901, "method": "tool"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 902, "method": 7}', -32600),
        (b'{"jsonrpc": "2.0", "id": 903, "method": "tool", "params": [1]}', -32602),
        (b'{"jsonrpc": "2.0", "id": 904, "method": "tool", "params": {}}', -32602),
        (
            b'{"jsonrpc": "2.0", "id": 905, "method": "tool", "params": {"name": "bash", '
            b'"sessionID": "s", "arguments": 1}}',
            -32602,
        ),
        (
            b'{"jsonrpc": "2.0", "id": 906, "method": "tool", "params": {"name": "x", '
            b'"sessionID": "s", "arguments": {}}}',
            -32602,
        ),
        (b'{"jsonrpc": "2.0", "id": 907, "method": "nothing"}', -32601),
        (
            b'{"jsonrpc": "2.0", "id": 908, "method": "initialize", "params": {"directory": "/"}}',
            -32602,
        ),
        (b'{"jsonrpc": "2.0", "id": {"a": 1}, "method": "nothing"}', -32601),
    ]:
        before = len(here.lines)
        here.raw(line)
        until(lambda: [each for each in here.lines[before:] if "error" in each])  # noqa: B023
        [answer] = [each for each in here.lines[before:] if "error" in each]
        assert answer["error"]["code"] == code, line[:80]
    for line in (
        b"",
        b'{"jsonrpc": "2.0", "method": "nothing"}',
        b'{"jsonrpc": "2.0", "id": "s77", "result": 1}',
    ):
        here.raw(line)
    here.event("session.idle", session=7)
    here.event("session.unheard_of")
    assert here.bash("echo still here") == "still here"


def test_before_initialize(host):
    here = host(None)
    answer = here.result(here.begin("tool", name="bash", sessionID="s", arguments={}))
    assert "initialize" in answer["error"]["message"]


@pytest.mark.parametrize("background", [False, True])
def test_errors_say_what_to_do(host, repo, monkeypatch, background):
    monkeypatch.delenv("DAYTONA_API_KEY")
    here = host(repo.path, client={"background": background})
    error = here.result(
        here.begin("tool", name="bash", sessionID="s", arguments={"command": "ls"})
    )["error"]
    assert error["code"] == -32000 and error["data"]["kind"] == "NoKey"
    assert error["data"]["hint"] in error["message"]
    assert ("opencode service stop" in error["message"]) == background


def test_case_70_a_key_that_comes_later(host, repo, local, monkeypatch):
    monkeypatch.delenv("DAYTONA_API_KEY")
    here = host(repo.path)
    assert "error" in here.result(
        here.begin("tool", name="bash", sessionID="ses_a", arguments={"command": "ls"})
    )
    repo.write(".env", f"DAYTONA_API_KEY={local.api_key}\n")
    assert here.bash("ls") == "README"


# -- sessions --------------------------------------------------------------------------------------


def test_case_70_a_warm_call_is_one_api_call(host, repo, local):
    here = host(repo.path)
    here.bash("true")
    until(lambda: local.counts["revoke"] == 1)
    taken = []
    # on a busy machine one may take so long that its output is looked at meanwhile
    for _ in range(5):
        local.forget_calls()
        here.bash("true")
        taken.append(sum(local.counts.values()))
    assert min(taken) == 1, taken


def test_what_is_told_of_a_session(host, repo, local, coordinate):
    here = host(repo.path)
    here.bash("echo a > a")
    look = "look at it: git daytona diff 1"
    created = here.toast("Sandbox created")
    assert created == f"session 1, work comes back to opencode/1; {look}", "and no id"
    here.event("session.status", status={"type": "busy"})
    here.event("session.status", status={"type": "idle"})
    here.event("session.idle")
    assert here.toast("Changes synced") == "opencode/1: 1 commit, a"
    assert here.close() == (0, "")
    assert [title for title, _ in here.toasts()] == ["Sandbox created", "Changes synced"]

    again = host(repo.path)
    assert again.bash("cat a") == "a"
    assert again.toast("Connected") == f"session 1, branch opencode/1; {look}"
    session = coordinate(repo.path).state.get("ses_a")
    stop(coordinate(repo.path).cloud, session.sandbox_id)
    assert again.bash("cat a") == "a"
    assert "stopped" in again.toast("Restoring")
    again.event("session.deleted", info={"id": "ses_a"})
    again.toast("Session deleted")
    error = again.result(
        again.begin("tool", name="bash", sessionID="ses_a", arguments={"command": "ls"})
    )["error"]
    assert "deleted" in error["message"]


def test_case_69_a_sandbox_that_is_gone_is_replaced_and_the_agent_told(host, repo, coordinate):
    here = host(repo.path)
    here.bash("echo a > a")
    here.call("tool", name="gitSync", sessionID="ses_a", arguments={})
    coordinator = coordinate(repo.path)
    coordinator.cloud.delete(coordinator.state.get("ses_a").sandbox_id)
    said = here.bash("cat a")
    assert said.startswith("the sandbox was gone and was replaced") and said.endswith("\na")
    assert here.bash("cat a") == "a"


@pytest.mark.parametrize(
    ("like", "minutes"), [("cloud", 1), ("cloud", 10), ("0.190", 1), ("0.190", 10)]
)
def test_a_sandbox_deleted_elsewhere_some_minutes_ago_is_replaced(
    host, repo, tmp_path, monkeypatch, like, minutes
):
    """For two minutes the proxy remembers that the key may see the sandbox, and says 404; then it
    says 401, as for a wrong key."""
    moved = [0.0]
    with LocalDaytona(
        tmp_path / "daytona", like=like, timings=Timings(clock=lambda: time.time() + moved[0])
    ) as server:
        trust_by_hand(server, tmp_path, monkeypatch)
        monkeypatch.setenv("DAYTONA_API_URL", server.api_url)
        monkeypatch.setenv("DAYTONA_API_KEY", server.api_key)
        here = host(repo.path)
        here.bash("echo a > a")
        here.call("tool", name="gitSync", sessionID="ses_a", arguments={})
        (sandbox,) = server.sandboxes
        headers = {"Authorization": f"Bearer {server.api_key}"}
        httpx.delete(
            f"{server.api_url}/sandbox/{sandbox.id}", headers=headers, timeout=30
        ).raise_for_status()
        until(
            lambda: (
                httpx.get(
                    f"{server.api_url}/sandbox/{sandbox.id}", headers=headers, timeout=30
                ).status_code
                == 404
            )
        )
        moved[0] = minutes * 60.0
        server.forget_calls()
        said = here.bash("cat a")
        refusals = {call.status for call in server.calls if call.route == "process/execute"} & {
            401,
            404,
        }
        assert refusals == {404 if minutes < 2 else 401}
        assert said.startswith("the sandbox was gone and was replaced") and said.endswith("\na")
        assert not any("key" in json.dumps(line).lower() for line in here.told)
        assert here.close() == (0, "")


def test_case_04_a_failed_sync_is_told_and_reported_later(host, repo, local, coordinate):
    tokens = []
    local.watch_tokens(tokens.append)
    here = host(repo.path)
    here.bash("echo a > a")
    with local.faults.call(route="mint", status=403):
        here.event("session.idle")
        assert "may not mint" in here.toast("Sync failed")
    # Revocation fails, by a server that repeats what it was sent: no reason to fail, and none to
    # say more than that.
    with local.faults.call(
        route="revoke",
        status=400,
        message=f"no such token {tokens[0]}, {quote(tokens[0], safe='')}",
    ) as revoking:
        sync = here.call("tool", name="gitSync", sessionID="ses_a", arguments={})["output"]
        until(lambda: revoking.seen)
    assert sync.startswith("opencode/1 is at") and "fail" not in sync, "that is over"
    status, errors = here.close()
    heard = json.dumps(here.lines) + errors
    assert (status, len(tokens)) == (0, 2)
    assert not any(form in heard for token in tokens for form in (token, quote(token, safe="")))
    assert leases.reap(coordinate(repo.path).cloud) == 1
    assert local.live_tokens() == 0


def test_case_43_sub_agents(host, repo, coordinate):
    here = host(repo.path)
    here.event("session.created", session="root", info={"id": "root"})
    here.event("session.created", session="child", info={"id": "child", "parentID": "root"})
    here.event(
        "session.created", session="grandchild", info={"id": "grandchild", "parentID": "child"}
    )
    here.bash("echo a > a", session="grandchild")
    assert here.bash("cat a", session="root") == "a"
    assert here.asked == [each for each in here.asked if each["method"] != "parent"], (
        "nobody was asked for what events had told"
    )
    assert [each.id for each in coordinate(repo.path).sessions()] == ["root"]
    until(lambda: coordinate(repo.path).state.root_of("grandchild") == "root")
    here.event("session.deleted", session="child", info={"id": "child", "parentID": "root"})
    assert here.bash("cat a", session="root") == "a"
    here.close()

    again = host(repo.path)
    assert again.bash("cat a", session="grandchild") == "a", (
        "a restarted service knows from the state file"
    )
    again.reply = lambda method, params: {
        "parentID": "root" if params.get("sessionID") == "unheard of" else None
    }
    assert again.bash("cat a", session="unheard of") == "a", "and else it asks"


def test_case_59_one_session_does_not_wait_for_another(host, repo, local):
    here = host(repo.path)
    here.bash("true", session="busy")
    here.bash("true", session="quick")
    slow = [
        here.begin("tool", name="bash", sessionID="busy", arguments={"command": "sleep 600"})
        for _ in range(10)
    ]
    assert here.bash("echo quick", session="quick") == "quick"
    for number in slow:
        here.send(method="cancel", params={"id": number})
    for number in slow:
        here.result(number)


def test_permissions(host, repo):
    here = host(repo.path)

    def refuse(method, params):
        if method == "ask":
            raise PermissionError("the user said no")
        return {"parentID": None}

    here.reply = refuse
    error = here.result(
        here.begin("tool", name="bash", sessionID="ses_a", arguments={"command": "touch x"})
    )["error"]
    assert error["data"]["kind"] == "Denied" and "the user said no" in error["message"]
    [asked] = [each["params"] for each in here.asked if each["method"] == "ask"]
    assert asked["permission"] == "bash" and asked["patterns"] == ["touch x"]


def test_servers_are_shown_once(host, repo):
    here = host(repo.path)
    port = free_port()
    here.bash(f"exec python3 -m http.server {port} --bind 127.0.0.1", background=True)
    link = here.toast(f"Server on port {port}")
    browser = urllib.request.build_opener(
        urllib.request.HTTPCookieProcessor(), urllib.request.ProxyHandler({})
    )
    with browser.open(link, timeout=20) as answer:
        assert b"Directory listing" in answer.read()
    assert f"A server listens on port {port}" in here.bash("true")
    assert f"port {port}" not in here.bash("true")
    here.event("session.idle")
    here.bash("echo x > x")
    here.event("session.idle")
    here.toast("Changes synced")
    assert [title for title, _ in here.toasts()].count(f"Server on port {port}") == 1


def free_port():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# -- the end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["end of input", signal.SIGTERM, signal.SIGINT, "shutdown"])
def test_case_67_every_end_brings_the_work_back(host, repo, local, how):
    here = host(repo.path)
    here.bash("echo a > a")
    if how == "shutdown":
        said = "opencode/1: 1 commit, a; look at it: git daytona diff 1"
        assert here.call("shutdown") == {"finished": True, "said": [said]}
    elif how == "end of input":
        here.process.stdin.close()
    else:
        here.process.send_signal(how)
    assert here.process.wait(60) == 0
    assert repo.show("opencode/1", "a") == "a"
    assert local.live_tokens() == 0
    for stream in (here.process.stdin, here.process.stdout, here.process.stderr):
        stream.close()


def test_case_59_and_case_67_what_does_not_finish_is_on_record(
    repo, local, monkeypatch, coordinate
):
    """The drain's time over, with a transfer that stalls: ended, recorded, its token revoked."""
    script = (
        "import sys; from git_daytona.service import dispatcher, serve; "
        "dispatcher.DRAIN_SECONDS = 2.0; sys.exit(serve.serve())"
    )
    here = Host.__new__(Host)
    original = subprocess.Popen

    def popen(argv, **options):
        return original((sys.executable, "-I", "-c", script), **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    here.__init__(repo.path)
    monkeypatch.setattr(subprocess, "Popen", original)
    here.bash("echo a > a")
    local.faults.gateway.hang = -1
    here.event("session.idle")
    until(lambda: local.live_tokens() == 1)
    status, errors = here.close()
    assert (status, errors) == (0, "")
    assert local.live_tokens() == 0
    recorded = coordinate(repo.path).state.get("ses_a").git_return
    assert (recorded.state, recorded.message) == ("failed", "not finished at shutdown")
    local.faults.clear()
    assert coordinate(repo.path).sync("ses_a").changed


# -- host tools ------------------------------------------------------------------------------------


def test_which_tools_may_touch_the_host():
    names = {"builtin": ["bash", "lsp", "jira_search"], "servers": ["jira", "my server"]}

    def refused(tool, allowed=frozenset()):
        return bool(host_tools.refusal(tool, **names, allowed=allowed))

    assert (
        refused("lsp")
        and refused("batch")
        and refused("jira_search")
        and refused("jira")
        and refused("unheard; of")
    )
    assert not refused("todowrite") and not refused("jira_create") and not refused("my_server_x")
    assert (
        not refused("lsp", None)
        and not refused("lsp", frozenset({"lsp"}))
        and refused("batch", frozenset({"lsp"}))
    )


def test_how_a_user_opts_in(repo):
    assert host_tools.opted_in(repo.path, {}) == frozenset()
    assert host_tools.opted_in(repo.path, {host_tools.VARIABLE: "true"}) is None
    assert host_tools.opted_in(repo.path, {host_tools.VARIABLE: "lsp, batch"}) == {"lsp", "batch"}
    repo.git("config", host_tools.KEY, "lsp")
    assert host_tools.opted_in(repo.path, {}) == {"lsp"}
    assert host_tools.opted_in(repo.path, {host_tools.VARIABLE: "no"}) == frozenset()
    repo.write(".env", "DAYTONA_ALLOW_HOST_TOOLS=true\n")
    assert host_tools.opted_in(repo.path, {}) == {"lsp"}


# -- hook ------------------------------------------------------------------------------------------


def test_hooks(command, repo, local, coordinate):
    def hook(event, **payload):
        return command(
            "git-daytona",
            "hook",
            event,
            cwd=repo.path,
            stdin=json.dumps({"session_id": "s1", **payload}),
        )

    assert hook("session.created").status == 0
    assert hook("session.idle").status == 0
    assert local.calls == []
    done = hook("tool", tool="bash", arguments={"command": "echo a > a; ls"})
    assert done.status == 0, done.err
    assert json.loads(done.out)["output"] == "README\na"
    assert (
        command(
            "git-daytona",
            "hook",
            "session.created",
            cwd="/",
            stdin=json.dumps({"cwd": str(repo.path), "session_id": "c", "parent_id": "s1"}),
        ).status
        == 0
    )
    assert (
        json.loads(hook("tool", session_id="c", tool="bash", arguments={"command": "cat a"}).out)[
            "output"
        ]
        == "a"
    )
    assert hook("session.deleted", session_id="c").status == 0
    done = hook("session.idle")
    assert (done.status, done.out) == (0, "") and "opencode/1 is at" in done.err
    assert repo.show("opencode/1", "a") == "a"
    hook("tool", tool="bash", arguments={"command": "echo b > b"})
    assert hook("shutdown").status == 0
    assert repo.show("opencode/1", "b") == "b"
    assert hook("session.deleted").status == 0
    assert coordinate(repo.path).sessions() == [] and local.live_tokens() == 0
    assert hook("session.deleted").status == 0, "there is nothing to delete any more"


@pytest.mark.parametrize(
    ("event", "stdin"),
    [
        ("session.idle", "{}"),
        ("session.idle", "["),
        ("session.idle", "[]"),
        ("tool", '{"session_id": "s1", "tool": "nothing"}'),
        ("tool", '{"session_id": "s1", "tool": "bash", "arguments": 1}'),
        ("session.created", '{"cwd": "relative"}'),
        ("nothing", "{}"),
    ],
)
def test_hooks_that_make_no_sense(command, repo, local, event, stdin):
    done = command("git-daytona", "hook", event, cwd=repo.path, stdin=stdin)
    assert done.status == 2 and "error:" in done.err and "hint:" in done.err
    assert local.calls == []


@pytest.mark.parametrize("how", ["deleted", "deleted there", "stopped"])
def test_case_92_and_case_106_a_tool_that_runs_meanwhile(host, repo, local, coordinate, how):
    """The agent is told, and neither its command nor a look at it makes another sandbox of a
    session that was deleted."""
    here = host(repo.path)
    here.bash("true")
    command = "echo once >>~/ran; touch begun; sleep 60"
    arguments = {"command": command}
    number = here.begin("tool", name="bash", sessionID="ses_a", arguments=arguments)
    coordinator = coordinate(repo.path)
    until(lambda: execute(coordinator, "1", "ls begun 2>/dev/null; true")[0].output)
    sandbox_id = coordinator.sessions()[0].sandbox_id
    if how == "deleted":
        coordinator.delete("1")
    elif how == "deleted there":
        coordinator.cloud.delete(sandbox_id)
    else:
        stop(coordinator.cloud, sandbox_id)
    said = here.result(number)["error"]
    assert said["data"]["kind"] == "CutShort" and "while this ran" in said["message"]
    if how == "deleted":
        assert "session 1 was deleted" in said["message"]
        assert local.counts["create"] == 1 and coordinator.sessions() == []
    elif how == "deleted there":
        assert here.bash("cat ~/ran; true").endswith("No such file or directory")
    else:
        assert here.bash("cat ~/ran") == "once"


def test_case_116_a_fork_is_told_where_it_begins(host, repo, local, coordinate):
    """What the client says of it, however little that is, and with the origin's work not here yet,
    or not to be had."""
    here = host(repo.path)
    here.bash("echo first >first", session="ses_a")
    known = "this session is a fork of session 1: its sandbox is a new one, with what is on"
    unknown = "this session is a fork of one whose work is not known here"
    examples = {
        "of a session": (["ses_a"], known, "first"),
        "of a sub-agent's copy": (["child"], known, "first"),
        "through one without a sandbox": (["nothing"], known, "first"),
        "of one that is gone": (["gone"], unknown, "README"),
        "nonsense": ("ses_a", "", "README"),
    }
    here.event("session.created", session="child", info={"id": "child", "parentID": "ses_a"})
    here.bash("true", session="child")
    forks = {f"ses_{n}": ids for n, (ids, *_) in enumerate(examples.values())}
    forks |= {"nothing": ["ses_a"]}
    here.reply = lambda method, params: {
        "parentID": None,
        "sessionIDs": forks.get(params.get("sessionID"), []),
    }
    for number, (what, (_, notice, file)) in enumerate(examples.items()):
        said = here.bash("ls", session=f"ses_{number}")
        assert said.startswith(notice) and (not notice or "fork" in said), what
        assert file in said and ("first" in said) == (file == "first"), what
    assert "fork" not in here.bash("ls", session="ses_0"), "it is told once"
    sandbox = coordinate(repo.path).find("1").sandbox_id
    here.bash("echo second >second", session="ses_a")
    with local.faults.call(route="process/execute", sandbox=sandbox, status=403):
        forks["late"] = ["ses_a"]
        said = here.bash("ls", session="late")
    assert known in said and "without what could not be brought there" in said
    assert "first" in said and "second" not in said
