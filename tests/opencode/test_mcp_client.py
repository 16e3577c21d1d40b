"""OpenCode without our plugin, as one of the clients of ``git daytona mcp``."""

import json
import os
import subprocess

import pytest

from support.opencode_hosts import Release, install
from support.round_trip import BIN
from support.waiting import until


def test_its_agent_works_in_the_sandbox(opencode, model, repo, local):
    watcher = opencode.config["plugin"][1:]
    server = {"type": "local", "command": [str(BIN / "git-daytona"), "mcp"]}
    opencode.config |= {"plugin": watcher, "mcp": {"daytona": server}}
    model.scripts["please"] = [
        [("daytona_bash", {"command": "echo made >made; pwd"})],
        [("daytona_read", {"filePath": "made"})],
        [("daytona_sync", {})],
        [("daytona_write", {"filePath": "later", "content": "after the last sync"})],
        "that is all",
    ]
    done = opencode.run("please", cwd=repo.path)
    assert done.status == 0 and "that is all" in done.out, done.terminal
    pwd, read, sync, _ = model.results()
    assert pwd.endswith("/home/daytona/project")
    assert "made" in read and "opencode/1" in sync
    assert repo.show("opencode/1", "made") == "made"
    assert until(lambda: "later" in repo.git("ls-tree", "--name-only", "opencode/1"))
    assert repo.git("status", "--porcelain") == ""


INSPECTOR = Release(
    "2.12.0", "@modelcontextprotocol/inspector", ".bin/mcp-inspector", "", "inspector"
)


@pytest.fixture(scope="session")
def inspector():
    """The protocol's own client for people."""
    return install(INSPECTOR)


@pytest.mark.timeout(300)  # it may have to be installed
def test_the_inspector(inspector, repo, local, tmp_path):
    server = {"command": str(BIN / "git-daytona"), "args": ["mcp"], "env": dict(os.environ)}
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"daytona": server}}))
    chosen = ("--config", str(config), "--server", "daytona")

    def inspected(*words):
        argv = (str(inspector), "--cli", *chosen, "--method", *words)
        done = subprocess.run(argv, cwd=repo.path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    listed = inspected("tools/list")
    assert {"bash", "sync"} < {tool["name"] for tool in listed["tools"]}
    words = ("tools/call", "--tool-name", "bash", "--tool-arg", "command=pwd")
    [answer] = inspected(*words)["content"]
    assert answer["text"].endswith("/home/daytona/project")
