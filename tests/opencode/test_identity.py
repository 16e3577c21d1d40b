"""One session is one record, whoever looks: OpenCode 1 or 2, a terminal beside it, and whatever id
each has for the project."""

import json
import os
from pathlib import Path

import pytest

from support.opencode_hosts import each_major
from support.processes import until

pytestmark = each_major
ORIGIN = "git@example.com:some/Project.git"


def records() -> list[dict[str, object]]:
    """All sessions on record, in whatever file."""
    folder = Path(os.environ["XDG_DATA_HOME"]) / "opencode/storage/daytona"
    files = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    return [record for each in files for record in each["sessions"].values()]


def synced() -> bool:
    return [it["gitReturn"]["state"] for it in records()] == ["synced"]


@pytest.mark.parametrize("origin", ["before", "later"])
def test_a_terminal_beside_opencode(opencode, model, repo, tell, sandboxes, origin):
    if origin == "before":
        repo.git("remote", "add", "origin", ORIGIN)
    model.scripts["first"] = [[("bash", {"command": "echo a >a"})], "ok"]
    model.scripts["second"] = [[("bash", {"command": "cat a b >c; cat c"})], "ok"]
    server = opencode.serve(repo.path)
    session = server.session()
    server.prompt(session, "first")
    until(synced)
    if origin == "later":
        repo.git("remote", "add", "origin", ORIGIN)

    assert "opencode/1" in tell("git-daytona", "status", cwd=repo.path).out
    made = tell("git-daytona", "exec", "1", "--", "echo b >b", cwd=repo.path)
    assert made.status == 0, made.err
    assert tell("git-daytona", "sync", "1", cwd=repo.path).status == 0
    assert repo.show("opencode/1", "b") == "b"
    assert tell("git-daytona", "start", "--session", session, cwd=repo.path).status == 0

    server.prompt(session, "second")
    assert model.results("second")[-1] == "a\nb"
    until(lambda: "c" in repo.git("ls-tree", "--name-only", "opencode/1").split())
    assert len(sandboxes()) == 1
    assert len(records()) == 1


def test_a_session_that_a_terminal_began(opencode, model, repo, tell, sandboxes):
    """OpenCode's first session after one of a terminal's has the number 2, in the same file."""
    repo.git("remote", "add", "origin", ORIGIN)
    assert tell("git-daytona", "start", cwd=repo.path).status == 0
    model.scripts["first"] = [[("bash", {"command": "echo a >a"})], "ok"]
    server = opencode.serve(repo.path)
    server.prompt(server.session(), "first")
    until(lambda: len(records()) == 2)
    assert {it["branchNumber"] for it in records()} == {1, 2}
    folder = Path(os.environ["XDG_DATA_HOME"]) / "opencode/storage/daytona"
    assert len(list(folder.glob("*.json"))) == 1
    assert len(sandboxes()) == 2
