"""What the tools return passes through the real OpenCode as it is, and its permission rules see
what they need."""


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
    done = opencode.run("please", cwd=repo.path)
    assert done.status == 0, done.terminal
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


def test_permission_rules_see_the_commands_within_a_command(opencode, model, repo):
    opencode.config["permission"] = {
        "bash": {"*": "allow", "git push *": "deny"},
        "edit": {"*": "allow", "secret/*": "deny"},
    }
    model.scripts["please"] = [
        [("bash", {"command": "touch one && git push origin main"})],
        [("bash", {"command": "touch two; echo git push"})],
        [("write", {"filePath": "secret/key", "content": "x"})],
        [("write", {"filePath": str(repo.path / "open.txt"), "content": "x\n"})],
        "ok",
    ]
    done = opencode.run("please", cwd=repo.path)
    assert done.status == 0, done.terminal
    pushed, echoed, secret, opened = model.results()
    assert "git push *" in pushed
    assert echoed == "git push"
    assert "Wrote file" not in secret
    assert opened == "Wrote file successfully."
    assert repo.git("ls-tree", "-r", "--name-only", "opencode/1").split() == [
        "README",
        "open.txt",
        "two",
    ]
