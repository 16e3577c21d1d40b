"""The toolbox's calls on repositories, with local ones."""

from typing import Any

from support.toolbox_http import Box

SEED = """
git init -q --bare origin && git init -q seed && cd seed && git checkout -q -b main &&
echo x > f && git add f &&
git -c user.name=a -c user.email=a@b commit -qm first && git push -q ../origin main &&
git -C ../origin symbolic-ref HEAD refs/heads/main
"""


def test_a_repository_from_clone_to_push(box: Box) -> None:
    assert box.output(SEED) == ""

    def call(method: str, path: str, status: int = 200, **body: Any) -> Any:
        options: dict[str, Any] = (
            {"json": {"path": "r", **body}} if method != "GET" else {"params": {"path": "r"}}
        )
        answer = box.call(method, f"git/{path}", **options)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    call("POST", "clone", url="/home/daytona/origin")
    clean = call("GET", "status")
    assert (clean["currentBranch"], clean["fileStatus"], clean["branchPublished"]) == (
        "main",
        [],
        True,
    )
    call("POST", "branches", 201, name="work")
    assert call("GET", "branches")["branches"] == ["main", "work"]
    assert call("GET", "status")["currentBranch"] == "work"
    box.output("echo y > r/new; echo z > r/f")
    shown = {
        one["name"]: (one["staging"], one["worktree"])
        for one in call("GET", "status")["fileStatus"]
    }
    assert shown == {"f": ("Unmodified", "Modified"), "new": ("Untracked", "Untracked")}
    who = {"message": "second", "author": "A B", "email": "a@b.c"}
    assert "clean" in call("POST", "commit", 500, **who)["message"]
    call("POST", "add", files=["."])
    commit = call("POST", "commit", **who)["hash"]
    newest = call("GET", "history")[0]
    assert (newest["hash"], newest["author"], newest["message"].strip()) == (
        commit,
        "A B",
        "second",
    )
    call("POST", "push")
    assert box.output("git -C origin rev-parse work").strip() == commit
    call("POST", "pull")
    call("POST", "checkout", branch="main")
    call("DELETE", "branches", 204, name="work")
    call("DELETE", "branches", 204, name="work")
    assert call("POST", "checkout", 404, branch="work")["code"] == "GIT_BRANCH_NOT_FOUND"


def test_what_is_no_repository_is_not_found(box: Box) -> None:
    box.output("git init -q r; mkdir r/below")
    for path in ("none", ".", "r/below"):
        assert box.refused(404, "GET", f"git/status?path={path}") == "GIT_REPO_NOT_FOUND"


def test_an_older_daemon_has_one_kind_of_not_found(old: Box) -> None:
    answer = old.call("GET", "git/status?path=none").json()
    assert (answer["code"], answer["message"]) == (
        "NOT_FOUND",
        "not found: repository does not exist",
    )


def test_names_are_no_options(box: Box) -> None:
    box.output("git init -q r")
    for call in ("checkout", "branches"):
        assert (
            box.refused(
                400, "POST", f"git/{call}", json={"path": "r", "branch": "--help", "name": "--help"}
            )
            == "BAD_REQUEST"
        )
    answer = box.call("POST", "git/clone", json={"path": "x", "url": "--upload-pack=touch never"})
    assert answer.status_code in (400, 404)
    assert not (box.home / "never").exists()


def test_newer_calls(box: Box) -> None:
    for call, body in (
        ("init", {"initial_branch": "trunk"}),
        ("remotes", {"name": "up", "url": "https://example.org/x"}),
    ):
        assert box.call("POST", f"git/{call}", json={"path": "n", **body}).status_code == 201
    assert box.call("GET", "git/remotes?path=n").json() == {
        "remotes": [{"name": "up", "url": "https://example.org/x"}]
    }
    local = {"path": "n", "scope": "local"}
    assert (
        box.call("POST", "git/config", json={**local, "key": "a.b", "value": "c"}).status_code
        == 200
    )
    assert box.call("GET", "git/config", params={**local, "key": "a.b"}).json()["value"] == "c"
    assert (
        box.call("POST", "git/config/user", json={**local, "name": "A", "email": "a@b"}).status_code
        == 200
    )
    box.output("cd n; echo x > f; git add f; git commit -qm one; echo y > f")
    assert box.call("POST", "git/restore", json={"path": "n", "files": ["f"]}).status_code == 200
    assert box.output("cat n/f; echo z > n/f") == "x\n"
    assert box.call("POST", "git/reset", json={"path": "n", "mode": "hard"}).status_code == 200
    assert box.output("cat n/f") == "x\n"
