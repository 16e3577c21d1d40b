"""What may touch the host: nothing that the user did not allow."""

import re
import sys
from pathlib import Path

from support.opencode_hosts import each_major, every_release, mostly_opencode_2
from support.round_trip import program
from support.waiting import until

ARGUMENTS = {
    "command": "touch {host}/planted; echo x >> {host}/README",
    "description": "x",
    "filePath": "{host}/README",
    "path": "{host}",
    "pattern": "hello",
    "content": "planted\n",
    "oldString": "hello",
    "newString": "planted",
    "url": "file://{host}/README",
    "format": "text",
    "query": "x",
    "name": "x",
    "prompt": "nothing",
    "subagent_type": "nobody",
    "todos": [],
    "questions": [],
    "operation": "hover",
    "line": 1,
    "character": 1,
    "code": "await tools.bash({{command: 'touch {host}/planted'}})",
    "patchText": "*** Begin Patch\n*** Add File: {host}/planted\n+x\n*** End Patch",
    "edits": [{"filePath": "{host}/README", "oldString": "hello", "newString": "planted"}],
}


def fill(value, host):
    if isinstance(value, str):
        return value.format(host=host)
    if isinstance(value, list):
        return [fill(each, host) for each in value]
    return (
        {name: fill(each, host) for name, each in value.items()}
        if isinstance(value, dict)
        else value
    )


def fingerprint(folder):
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(folder).parts
    }


@every_release
def test_every_tool_against_the_host(opencode, model, repo, local):
    """Every tool that this OpenCode has, with those behind flags, called with what would change the
    host."""
    opencode.environment = {
        "OPENCODE_EXPERIMENTAL": "1",
        "OPENCODE_EXPERIMENTAL_LSP_TOOL": "1",
        "OPENCODE_EXPERIMENTAL_PLAN_MODE": "1",
        "OPENCODE_EXPERIMENTAL_CODE_MODE": "1",
    }
    # What would leave this machine, or wait for a person, is not called: the rest may do what it
    # can.
    opencode.config["permission"] = {
        "*": "allow",
        "question": "deny",
        "websearch": "deny",
        "codesearch": "deny",
    }
    before = fingerprint(repo.path)
    server = opencode.serve(repo.path)
    session = server.session()
    names = sorted(set(server.tools()) - {"question", "plan_exit"})
    usual = {opencode.named(each) for each in ("bash", "read", "edit", "write", "glob", "grep")}
    assert usual | {"skill", blocked := "lsp" if opencode.major == 1 else "execute"} <= set(names)
    arguments = fill(ARGUMENTS, str(repo.path)) | {"port": local.api_port}
    model.scripts["break out"] = [
        [(name, arguments)] for name in [*names, "batch", "patch", "unheard_of"]
    ]
    server.prompt(session, "break out")
    assert fingerprint(repo.path) == before
    said = "\n".join(model.results())
    assert f"'{blocked}' is blocked" in said
    assert repo.git("status", "--porcelain") == ""


@each_major
def test_permissions_are_opencodes(opencode, model, repo, sandboxes):
    opencode.config["permission"] = {"bash": {"*": "allow", "touch *": "deny"}, "edit": "ask"}
    model.scripts["please"] = [
        [("bash", {"command": "touch forbidden", "description": "x"})],
        [("bash", {"command": "ls", "description": "x"})],
        [("write", {"filePath": "asked", "content": "x"})],
        "ok",
    ]
    done = opencode.run("please", cwd=repo.path)
    forbidden, listed, *_ = model.results()
    assert (
        "prevents you from using this specific tool call" in forbidden
        or "a permission rule denies this: bash 'touch *'" in forbidden
    )
    assert "README" in listed
    assert re.search("auto-rejecting|rejected|dismissed this question", done.terminal)
    assert repo.git("ls-tree", "--name-only", "opencode/1") == "README"


@mostly_opencode_2
def test_the_users_mcp_servers_stay(opencode, model, repo):
    """They run where the user put them, and are offered directly (not in Code Mode alone)."""
    server = str(Path(__file__).parent / "mcp_server.py")
    opencode.config["mcp"] = {
        "side": {"type": "local", "command": [sys.executable, "-I", server], "enabled": True}
    }
    model.scripts["please"] = [[("side_ping", {})], "ok"]
    running = opencode.serve(repo.path)
    session = running.session()

    def is_offered():
        running.prompt(session, "look")
        return "side_ping" in {each["function"]["name"] for each in model.asked[-1]["tools"]}

    until(is_offered, seconds=30)  # OpenCode 2 goes on while it connects to them
    running.prompt(session, "please")
    assert model.results("please")[-1].startswith("pong of ")


@each_major
def test_without_the_service_nothing_runs(opencode, model, repo, tmp_path):
    text = "#!/bin/sh\necho 'launcher: error: no Python here' >&2\nexit 70\n"
    launcher = program(tmp_path / "launcher", text)
    opencode.environment = {"DAYTONA_SERVICE_BINARY": str(launcher)}
    model.scripts["please"] = [
        [("bash", {"command": "touch planted", "description": "x"})],
        [("write", {"filePath": str(repo.path / "planted"), "content": "x"})],
        [("read", {"filePath": str(repo.path / "README")})],
        "ok",
    ]
    done = opencode.run("please", cwd=repo.path)
    if opencode.major == 1:
        assert done.status == 0, done.terminal
        told = model.results()
        assert len(told) == 3
    else:  # the turn ends before the model is asked
        assert done.status == 1 and model.asked == []
        told = [done.terminal]
    for each in told:
        assert "nothing runs on this machine instead" in each
        assert "no Python here" in each
    assert sorted(each.name for each in repo.path.iterdir()) == [".git", "README"]
