"""Forks of sessions: a copy of the conversation begins with the work that it speaks of."""

from support.opencode_hosts import each_major
from support.plugin import state

pytestmark = each_major


def test_case_116_a_fork_begins_with_the_work_of_its_session(
    opencode, model, repo, local, sandboxes
):
    """A fork of it, a fork of a fork that did nothing, and one of a session that was deleted."""
    make = {"command": "echo there > there; echo ignored > .hidden", "description": "make"}
    look = {"command": "cat there; echo more >> there; ls -a", "description": "look"}
    model.scripts["make"] = [[("bash", make)], "ok"]
    model.scripts["look"] = [[("bash", look)], "ok"]
    repo.commit(".gitignore", ".hidden\n")
    server = opencode.serve(repo.path)
    root = server.session()
    server.prompt(root, "make")
    first = server.fork(root)
    second = server.fork(server.fork(root))
    for number, fork in enumerate((first, second), 2):
        server.prompt(fork, "look")
        said = model.results("look")[-1]
        assert "this session is a fork of session 1: its sandbox is a new one" in said
        assert "opencode/1" in said and "\nthere\n" in said and ".hidden" not in said
        assert state(repo)["sessions"][fork]["branchNumber"] == number
    assert len(sandboxes()) == 3
    third = server.fork(root)
    server.delete(root)
    opencode.toast("Session deleted")
    server.prompt(third, "look")
    assert "a fork of one whose work is not known here" in model.results("look")[-1]
    assert repo.show("opencode/1", "there") == "there"
