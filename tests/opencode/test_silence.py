"""A service that accepts and then says nothing: OpenCode waits for its documented limits and no
longer. The plugin is loaded by Node.js as it is, with shorter limits, against services that fall
silent at one point or another."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.plugin import PLUGIN
from support.processes import descendants
from support.waiting import until

SHORTER = {
    "START_MS": 4_000,
    "PING_MS": 200,
    "ANSWER_MS": 1_000,
    "SHUTDOWN_MS": 2_500,
    "READ_MS": 10,
}
SERVICE = """#!{python}
import json, os, signal, sys, time
mode = {mode!r}
for line in sys.stdin:
    request = json.loads(line)
    method, id_ = request["method"], request.get("id")
    result = {{}}
    if mode == "deaf":
        time.sleep(1000)
    if method == "initialize":
        tools = [{{"name": "bash", "description": "x", "parameters": {{"properties": {{}}}}}}]
        result = {{"tools": tools, "allowed": ["bash"], "events": ["session.idle"], "system": ""}}
    elif mode == "stopped" and method != "shutdown":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif mode == "slow" and method == "tool":
        late, result = id_, None
    elif mode == "slow" and method == "ping":
        # The call takes four pings, which is longer than a silent service would be let live.
        pings = globals().get("pings", 0) + 1
        if pings == 6:
            print(json.dumps({{"jsonrpc": "2.0", "id": late, "result": "late"}}), flush=True)
    elif mode == "never ends" and method == "shutdown":
        result = None
    if id_ is not None and result is not None:
        print(json.dumps({{"jsonrpc": "2.0", "id": id_, "result": result}}), flush=True)
time.sleep(1000 if mode == "never ends" else 0)
"""
GONE = "the Daytona service is gone: it does not answer"


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is missing")
    text = (PLUGIN / "index.js").read_text()
    for name, value in SHORTER.items():
        text, count = re.subn(
            rf"^const {name} = [\d_]+", f"const {name} = {value}", text, flags=re.MULTILINE
        )
        assert count == 1, name
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "index.js").write_text(text)

    def run(mode, *names):
        service = tmp_path / "service"
        service.write_text(SERVICE.format(python=sys.executable, mode=mode))
        service.chmod(0o700)
        words = (
            node,
            str(Path(__file__).parent / "silence.mjs"),
            str(tmp_path / "index.js"),
            *names,
        )
        done = subprocess.run(
            words,
            env=os.environ | {"DAYTONA_SERVICE_BINARY": str(service)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        # none is left behind
        until(lambda: not [each for each in descendants(1) if str(service) in each.words])
        return json.loads(done.stdout)

    return run


def test_a_service_that_never_answers(plugin):
    """No tools, nothing runs on the machine instead, and OpenCode goes on and ends."""
    seen = plugin("deaf", "guard", "event", "dispose")
    assert (
        seen["said"]["guard"]
        == "Daytona is not available, and nothing runs on this machine instead: it does not answer"
    )
    assert seen["said"]["event"] == seen["said"]["dispose"] == "done"
    assert seen["toasts"] == ["it does not answer; tools are blocked"]


@pytest.mark.parametrize("what", ["tool", "guard"])
def test_a_service_that_stands_still(plugin, what):
    """It is ended and replaced, and at the second time given up."""
    seen = plugin("stopped", what, what, what, "dispose")
    assert seen["said"][what].startswith(
        "Daytona is not available, and nothing runs on this machine instead: "
    )
    assert seen["said"]["dispose"] == "done"
    assert "it does not answer" in seen["toasts"][0]
    assert (
        seen["toasts"][1] == "the Daytona service ended twice: it does not answer; restart OpenCode"
    )
    assert plugin("stopped", what)["said"][what] == GONE


def test_a_call_that_takes_its_time(plugin):
    assert plugin("slow", "tool", "dispose")["said"] == {"tool": '"late"', "dispose": "done"}


def test_a_service_that_does_not_end(plugin):
    assert plugin("never ends", "tool", "dispose")["said"]["dispose"] == "done"
