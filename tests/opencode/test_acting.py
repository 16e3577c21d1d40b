"""``opencode run``: the agent works in the sandbox, and its work is here when the command has
ended."""

import json
import os
from pathlib import Path

from support.opencode_hosts import each_major, every_release, mostly_opencode_2
from support.processes import services
from support.scripted_model import content
from support.waiting import until


@every_release
def test_the_agent_works_in_the_sandbox(canary, opencode, model, repo, local, home):
    del opencode.config["snapshot"], opencode.config["lsp"], opencode.config["formatter"]
    repo.commit("code.py", "def old():\n    return 1\n")
    host = str(repo.path)
    model.scripts["please"] = [
        [("bash", {"command": "echo made > made; pwd", "description": "make"})],
        [("write", {"filePath": f"{host}/written.txt", "content": "written\n"})],
        [("read", {"filePath": f"{host}/code.py"})],
        [("edit", {"filePath": f"{host}/code.py", "oldString": "old", "newString": "new"})],
        [("grep", {"pattern": "new"}), ("glob", {"pattern": "**/*.txt"})],
        [("gitSync", {})],
        "that is all",
    ]
    before = (
        repo.git("status", "--porcelain"),
        (repo.path / "code.py").read_text(),
        sorted(repo.path.iterdir()),
    )
    done = opencode.run("please", cwd=repo.path)
    assert done.status == 0, done.terminal
    assert "that is all" in done.out
    look = "look at it: git daytona diff 1"
    if opencode.major == 1:  # what run prints in the end; then the tools' titles
        assert f"\nopencode/1: 1 commit, code.py, made and 1 more; {look}\n" in done.err
        assert "gitSync opencode/1 is at " in done.err
    else:  # which has no toasts
        line = f"Sandbox created: session 1, work comes back to opencode/1; {look}"
        assert line in done.terminal
    pwd, _, read, _, grep, glob, sync = model.results()
    assert pwd == "/home/daytona/project"
    assert "def old():" in read
    assert "code.py" in grep and "def new()" in grep
    assert "written.txt" in glob
    assert "opencode/1 is at" in sync

    assert (
        repo.git("status", "--porcelain"),
        (repo.path / "code.py").read_text(),
        sorted(repo.path.iterdir()),
    ) == before
    assert repo.show("opencode/1", "made") == "made"
    assert repo.show("opencode/1", "written.txt") == "written"
    assert repo.show("opencode/1", "code.py") == "def new():\n    return 1"
    [state] = home.rglob("storage/daytona/*.json")
    titles = [record.get("title") for record in json.loads(state.read_text())["sessions"].values()]
    assert titles == ["a title"], "what OpenCode calls the session is on record"
    assert local.live_tokens() == 0
    assert [title for title, _ in opencode.toasts()] == ["Sandbox created", "Changes synced"]
    silent(done)

    [tools] = [{each["function"]["name"]: each["function"] for each in model.asked[0]["tools"]}]
    assert tools[opencode.named("bash")]["parameters"]["required"] == ["command"], (
        "what is optional is optional to the model"
    )
    assert tools["read"]["parameters"]["required"] == [
        "filePath" if opencode.major == 1 else "path"
    ]
    system = [content(each) for each in model.asked[0]["messages"] if each["role"] == "system"]
    assert "runs in a Daytona sandbox" in "".join(system)

    # With debug logging and tracing on, neither a token nor the key is in what the model, the user,
    # OpenCode or a log got.
    canary.tell("what the model was told", json.dumps(model.asked))
    canary.tell("toasts", json.dumps(opencode.toasts()))
    canary.tell("the terminal", done.terminal)
    assert len(canary.tokens) >= 2
    assert canary.leaks() == []


def silent(done):
    """Nothing of ours on the terminal: OpenCode's own lines only, in which results of tools may be
    quoted."""
    for word in (
        "Traceback",
        "git-daytona",
        "daytona-ssh",
        "Changes synced",
        "toast",
        "WARNING",
        "INFO",
    ):
        assert word not in done.terminal, done.terminal


@mostly_opencode_2
def test_models_that_patch(opencode, model, repo):
    patch = "*** Begin Patch\n*** Add File: patched.txt\n+patched\n*** End Patch"
    opencode.config["model"] = "local/gpt-5"
    model.scripts["please"] = [[("apply_patch", {"patchText": patch})], "ok"]
    done = opencode.run("please", cwd=repo.path)
    assert done.status == 0, done.terminal
    names = {each["function"]["name"] for each in model.asked[0]["tools"]}
    assert opencode.named("apply_patch") in names and not {"edit", "write"} & names
    assert repo.show("opencode/1", "patched.txt") == "patched"
    assert not (repo.path / "patched.txt").exists()


@each_major
def test_the_service_has_no_way_to_the_terminal(opencode, model, repo):
    server = opencode.serve(repo.path)
    server.prompt(server.session(), "hello")
    # its launcher becomes it a moment after it was started
    (service,) = until(lambda: services(server.process.pid))
    theirs, mine = (
        {Path(f"/proc/{pid}/fd/{n}").readlink() for n in (0, 1, 2)}
        for pid in (server.process.pid, service)
    )
    assert theirs & mine <= {Path("/dev/null")}
    assert os.getsid(service) == service, "no controlling terminal either"
