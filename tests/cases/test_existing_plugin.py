"""What the existing TypeScript plugin gets wrong, where no test elsewhere shows it (cases 58,
66)."""

import pytest

from git_daytona.transfer import leases
from support.round_trip import program
from support.tool_context import RealContext, Toolbox


@pytest.fixture
def call(local, coordinate):
    """Call a tool in a repository as an agent does: the session begins with it."""

    def run(repository, command: str) -> str:
        box = Toolbox(
            RealContext(
                coordinate(repository.path), f"ses_{repository.path.name}", str(repository.path)
            )
        )
        return box("bash", command=command).output

    return run


def test_case_58_an_agent_never_gets_an_empty_project_for_a_full_one(
    local, repo, begin, call, coordinate, tmp_path
):
    """Its first tool call shows the project, and what comes back has the project's history. (A
    branch in the way, and setups that fail: flows/test_nothing_is_lost.py and
    test_round_trip.py.)"""
    repo.commit("second")

    def clone(name: str, *options: str):
        repo.git("clone", "-q", *options, f"file://{repo.path}", str(tmp_path / name))
        return type(repo)(tmp_path / name)

    def hooked():
        made = clone("hooked")
        program(made.path / ".git/hooks/pre-push", "#!/bin/sh\nexit 1\n")
        return made

    def detached():
        made = clone("detached")
        made.git("switch", "-q", "--detach")
        return made

    def configured():
        made = clone("configured")
        made.git("config", "push.default", "nothing")
        made.git("config", "remote.pushDefault", "nowhere")
        made.git("config", "transfer.hideRefs", "refs/heads/opencode")
        return made

    examples = {
        "shallow clone": lambda: clone("shallow", "--depth=1"),
        "failing pre-push hook": hooked,
        "detached HEAD": detached,
        "a configuration that pushes nothing": configured,
        "single branch, no tags": lambda: clone("single", "--single-branch", "--no-tags"),
    }
    for name, make in examples.items():
        project = make()
        head = project.git("rev-parse", "HEAD")
        assert call(project, "ls; echo x > x") == "README\nsecond", name
        coordinate(project.path).sync(f"ses_{project.path.name}")
        branch = project.git("branch", "--list", "--format=%(refname:short)", "opencode/*")
        assert project.git("rev-parse", f"{branch}~1") == head, name
        assert project.git("ls-tree", "--name-only", branch).split() == ["README", "second", "x"], (
            name
        )

    empty = type(repo)(tmp_path / "empty")
    empty.path.mkdir()
    empty.git("init", "-q")
    assert call(empty, "ls; echo x > x") == "(no output)", "that project is empty"
    coordinate(empty.path).sync("1")
    assert empty.git("ls-tree", "--name-only", "opencode/1") == "x"


def test_case_66_one_bad_answer_fails_nothing(local, repo, begin, monkeypatch):
    """Of any call of a start, a sync or a deletion; and no token that nobody knows stays alive."""
    monkeypatch.setattr(leases, "_wait", lambda _state: 0.01)
    examples = {
        "429": {"status": 429, "retry_after": 0.01},
        "500": {"status": 500},
        "a connection that drops": {"drop": "before"},
        "a lost answer": {"drop": "after"},
    }

    def there() -> int:
        return len([each for each in local.sandboxes if each.state != "destroyed"])

    before = there()
    session = begin(repo)
    for name, fault in examples.items():
        for call in ("process/execute", "mint", "revoke"):
            session.agent(f"echo '{name}' > '{call.replace('/', '-')}'")
            with local.faults.call(route=f"^{call}$", times=1, **fault) as met:
                assert session.sync().changed, (name, call)
                session.coordinator.close()
            assert met.reached.is_set(), (name, call)
            assert local.live_tokens() == 0, (name, call)
            assert repo.show("opencode/1", call.replace("/", "-")) == name
    for number, name in enumerate(("500", "a lost answer"), 2):
        with local.faults.call(route="^create$", times=1, **examples[name]) as met:
            session = begin(repo)
        assert (met.reached.is_set(), session.number, there()) == (True, number, before + 2), name
        with local.faults.call(route="^delete$", times=1, **examples[name]) as met:
            session.coordinator.delete(session.name)
        assert (met.reached.is_set(), there()) == (True, before + 1), name
