"""A command's output is in OpenCode's display while it runs, and its end in the tool's result."""

import json

from support.opencode_hosts import OpenCode, OpenCode2, Server, each_major
from support.processes import until

WAITS = "echo begun; until [ -e go ]; do sleep 0.1; done; echo ended"


def display(opencode: OpenCode, server: Server, session: str) -> str:
    """What is shown of the tool calls that run."""
    if isinstance(opencode, OpenCode2):
        return json.dumps(opencode.events("session.tool.progress"))
    messages = server.http("GET", f"/session/{session}/message")
    states = [part["state"] for each in messages for part in each["parts"] if "state" in part]
    return json.dumps([each.get("metadata") for each in states if each["status"] == "running"])


@each_major
def test_output_is_shown_while_the_command_runs(opencode, model, repo, tell):
    model.scripts["wait"] = [[("bash", {"command": WAITS, "description": "wait"})], "ok"]
    server = opencode.serve(repo.path)
    session = server.session()
    server.send(session, "wait")
    until(lambda: "begun" in display(opencode, server, session))
    assert "ended" not in display(opencode, server, session)
    assert tell("git-daytona", "exec", "1", "touch go", cwd=repo.path).status == 0
    until(lambda: model.results("wait") == ["begun\nended"])
