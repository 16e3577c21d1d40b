"""``opencode run``: the agent works in the sandbox, and its work is here when the command has ended."""


def test_the_agent_works_in_the_sandbox(opencode, model, repo, local):
    model.scripts["please"] = [[("bash", {"command": "echo made > made; uname -n; pwd", "description": "make"})], "that is all"]
    done = opencode.run("please", cwd=repo.path)
    assert done.status == 0, done.terminal
    assert "that is all" in done.out
    assert repo.show("opencode/1", "made") == "made"
    assert not (repo.path / "made").exists()
    assert local.live_tokens() == 0
    print(model.results())
    print(opencode.toasts())
    print(done)
