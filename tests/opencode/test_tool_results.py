"""What the tools return passes through the real OpenCode as it is, and its permission rules see
what they need."""

import json

from support.opencode_hosts import mostly_opencode_2, only_opencode_2
from support.shared_opencode import home_folder, model, opencode
from support.waiting import until

__all__ = ["home_folder", "model", "opencode"]


@mostly_opencode_2
def test_bounded_results_are_not_cut_again(opencode, model, repo):
    model.scripts["please"] = [
        [
            (
                "bash",
                {
                    "command": "seq 1 5000 | tee lines; head -c 300000 /dev/zero | tr '\\0' 'x' | "
                    "fold "
                    "-w 90 >wide"
                },
            )
        ],
        [("read", {"filePath": "lines"}), ("read", {"filePath": "wide"})],
        [("grep", {"pattern": "x", "path": "wide"})],
        "ok",
    ]
    server = opencode.serve(repo.path)
    server.prompt(server.session(), "please")
    bash, lines, wide, grep = model.results()
    # OpenCode would name a file on the host, which no tool can read.
    assert bash.startswith(
        "...output truncated...\n\nFull output saved to: /home/daytona/"
    ) and bash.endswith("\n5000")
    assert "(Showing lines 1-1990 of 5000. Use offset=1991 to continue.)" in lines
    assert "(Output capped at 50 KB." in wide
    assert "Found 100 matches (more matches available)" in grep
    for each in (bash, lines, wide, grep):
        assert (
            "truncated..." not in each.removeprefix("...output truncated...")
            and str(opencode.home) not in each
        )


@mostly_opencode_2
def test_permission_rules_see_the_commands_within_a_command(opencode, model, repo):
    rules = {
        "bash": {"*": "allow", "git push *": "deny"},
        "edit": {"*": "allow", "secret/*": "deny"},
    }
    repo.commit("opencode.json", json.dumps({"permission": rules}))
    model.scripts["please"] = [
        [("bash", {"command": "touch one && git push origin main"})],
        [("bash", {"command": "touch two; echo git push"})],
        [("write", {"filePath": "secret/key", "content": "x"})],
        [("write", {"filePath": str(repo.path / "open.txt"), "content": "x\n"})],
        "ok",
    ]
    server = opencode.serve(repo.path)
    server.prompt(server.session(), "please")
    pushed, echoed, secret, opened = model.results()
    assert "git push *" in pushed
    assert echoed == "git push"
    assert "Wrote file" not in secret
    assert opened == "Wrote file successfully."
    listing = ("ls-tree", "-r", "--name-only", "opencode/1")
    until(lambda: repo.git(*listing).split() == ["README", "open.txt", "opencode.json", "two"])


DOT = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A PNG of one point."""


@only_opencode_2
def test_what_opencode_2_shows(opencode, model, repo):
    """An image reaches the model; a change is a diff, an exit status words, as of the built-ins."""
    model.scripts["please"] = [
        [("bash", {"command": f"echo {DOT} | base64 -d >dot.png; exit 3"})],
        [("edit", {"filePath": "README", "oldString": "hello", "newString": "bye"})],
        [("read", {"filePath": "dot.png"})],
        "ok",
    ]
    server = opencode.serve(repo.path)
    session = server.session()
    server.prompt(session, "please")
    patch = "*** Begin Patch\n*** Delete File: README\n*** Add File: new\n+x\n*** End Patch"
    model.scripts["patch"] = [[("apply_patch", {"patchText": patch})], "ok"]
    other = server.session("gpt-5")
    server.prompt(other, "patch")
    assert "exit status 3" in model.results("please")[0]
    images = [
        part["image_url"]["url"]
        for body in model.asked
        for message in body["messages"]
        if isinstance(message["content"], list)
        for part in message["content"]
        if part["type"] == "image_url"
    ]
    assert images[:1] == [f"data:image/png;base64,{DOT}"]
    parts = [
        part["state"]
        for each in (session, other)
        for message in server.http("GET", f"/api/session/{each}/message?order=asc")["data"]
        for part in message.get("content", [])
        if part["type"] == "tool"
    ]
    shown = [
        [(each["file"], each["status"], each["additions"], each["deletions"]) for each in files]
        for state in parts
        if (files := state.get("metadata", {}).get("files"))
    ]
    assert shown == [
        [("README", "modified", 1, 1)],
        [("README", "deleted", 0, 1), ("new", "added", 1, 0)],
    ]
