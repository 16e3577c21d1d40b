"""What a sync or a deletion would overwrite is kept and named; what the agent is in the middle of
is not disturbed."""

import os
import subprocess

import pytest

from git_daytona.base.errors import GitDaytonaError, NoRepository, TransferFailed
from support.round_trip import execute, in_project


def files(repo, revision):
    return set(repo.git("ls-tree", "-r", "--name-only", revision).split())


def test_case_40_and_case_64_local_commits_on_the_branch_are_kept(local, repo, begin):
    session = begin(repo)
    session.agent("echo theirs > theirs")
    repo.git("switch", "-q", "opencode/1")
    mine = repo.commit("mine")
    outcome = session.sync()
    assert repo.git("rev-parse", "opencode/1") == outcome.head != mine
    assert mine in repo.kept().values()
    assert [kept.ref for kept in outcome.kept if repo.git("rev-parse", kept.ref) == mine]
    assert "kept as refs/daytona/kept/opencode-1/" in outcome.message
    assert not (repo.path / "mine").exists() and (repo.path / "theirs").exists()


def test_case_40_and_case_64_uncommitted_work_in_the_worktree_is_kept(local, repo, begin):
    repo.commit(".gitignore", "ignored\nprivate\n")
    session = begin(repo)
    session.agent(
        "echo theirs > theirs; echo agent > README; echo theirs > private; git add -f private"
    )
    repo.git("switch", "-q", "opencode/1")
    repo.write("README", "edited here\n")
    repo.write("staged", "staged here\n")
    repo.git("add", "staged")
    repo.write("staged", "edited after staging\n")
    repo.write("untracked", "untracked here\n")
    repo.write("private", "my secret\n")
    repo.write("ignored", "stays\n")
    outcome = session.sync()
    assert len(outcome.kept) == 1
    ref = outcome.kept[0].ref
    assert repo.show(ref, "README") == "edited here"
    assert repo.show(ref, "staged") == "edited after staging"
    assert repo.show(f"{ref}^2", "staged") == "staged here"
    assert repo.show(ref, "untracked") == "untracked here"
    assert repo.show(ref, "private") == "my secret"
    assert "ignored" not in files(repo, ref)
    assert repo.git("status", "--porcelain", "--untracked-files=no") == ""
    assert (repo.path / "README").read_text() == "agent\n"
    assert (repo.path / "ignored").read_text() == "stays\n"


def test_case_40_several_worktrees(local, repo, begin, tmp_path):
    """Checked out here and in two linked worktrees by force, each of them dirty in its own way: all
    follow, each one's work is kept."""
    session = begin(repo)
    session.agent("echo theirs > theirs; echo agent > README")
    repo.git("switch", "-q", "opencode/1")
    places = {
        "here": repo.path,
        "linked": tmp_path / "linked",
        "odd \n'name": tmp_path / "odd \n'name",
    }
    for name, path in places.items():
        if path != repo.path:
            repo.git("worktree", "add", "-q", "--force", str(path), "opencode/1")
        type(repo)(path).write("README", f"edited in {name}\n")
        type(repo)(path).write(f"new in {name}")
    outcome = session.sync()
    kept = {repo.show(each.ref, "README"): each.ref for each in outcome.kept}
    assert set(kept) == {f"edited in {name}" for name in places}
    for name, path in places.items():
        assert f"new in {name}" in repo.git(
            "ls-tree", "-z", "--name-only", kept[f"edited in {name}"]
        ).split("\0")
        assert kept[f"edited in {name}"] in outcome.message
        assert (path / "README").read_text() == "agent\n" and (path / "theirs").exists(), name
        assert type(repo)(path).git("status", "--porcelain", "--untracked-files=no") == "", name


def test_case_40_a_clean_worktree_keeps_nothing_and_follows(local, repo, begin, tmp_path):
    session = begin(repo)
    repo.git("worktree", "add", "-q", str(tmp_path / "watching"), "opencode/1")
    session.agent("echo new > new")
    outcome = session.sync()
    assert outcome.kept == ()
    assert (tmp_path / "watching" / "new").read_text() == "new\n"
    assert repo.kept() == {}


def test_case_62_the_agent_switches_to_another_history(local, repo, begin):
    session = begin(repo)
    session.agent("echo one > one")
    first = session.sync().head
    session.agent("git switch -q --orphan fresh; echo two > two")
    outcome = session.sync()
    assert repo.git("rev-parse", "opencode/1") == outcome.head
    assert files(repo, "opencode/1") == {"two"}
    # The old tip is still on the sandbox's own branch, so it needs no ref of its own.
    assert repo.git("rev-parse", "sandbox-1/opencode") == first


def test_case_62_the_agent_rewrites_history(local, repo, begin):
    session = begin(repo)
    session.agent("echo one > one; git add .; git commit -qm one")
    first = session.sync().head
    session.agent("git commit -q --amend -m other; git branch gone; git switch -q --detach")
    session.sync()
    assert first in repo.kept().values()
    gone = repo.git("rev-parse", "sandbox-1/gone")
    session.agent("git switch -q -C opencode HEAD~1; git branch -qD gone; git branch gone/deeper")
    session.sync()
    assert gone in repo.kept().values(), "a branch that was deleted there is kept here"
    assert repo.git("rev-parse", "sandbox-1/gone/deeper")


def test_case_62_the_agent_deletes_dot_git(local, repo, begin):
    session = begin(repo)
    session.agent("echo one > one")
    first = session.sync().head
    session.agent("rm -rf .git; echo two > two; rm one")
    outcome = session.sync()
    assert repo.git("rev-parse", "opencode/1~1") == first
    assert files(repo, "opencode/1") == {"README", "two"}
    assert ".git was gone" in outcome.message


def test_case_62_the_agent_makes_a_new_repository(local, repo, begin):
    session = begin(repo)
    session.agent("echo one > one")
    first = session.sync().head
    session.agent(
        "rm -rf .git; git init -q; git add .; git -c user.name=a -c user.email=a@b commit -qm"
        " unrelated; echo two > two"
    )
    outcome = session.sync()
    assert first in repo.kept().values()
    assert repo.git("rev-parse", "opencode/1") == outcome.head
    assert files(repo, "opencode/1") == {"README", "one", "two"}


def test_case_62_the_project_directory_is_gone(local, repo, begin):
    session = begin(repo)
    session.agent("echo one > one")
    first = session.sync().head
    session.agent("cd ..; rm -rf project")
    session.sync()
    assert first in {repo.git("rev-parse", "opencode/1"), repo.git("rev-parse", "opencode/1~1")}
    assert session.agent("git rev-parse HEAD").strip() == repo.git("rev-parse", "opencode/1")


CONFLICT = """
echo base > f; git add f; git commit -qm base
git switch -qc other; echo other > f; git commit -qam other
git switch -q opencode; echo ours > f; git commit -qam ours
"""


@pytest.mark.parametrize(
    ("name", "script", "sign"),
    [
        ("merge", "git merge other", ".git/MERGE_HEAD"),
        ("rebase", "git rebase other", ".git/rebase-merge"),
        ("cherry-pick", "git cherry-pick other", ".git/CHERRY_PICK_HEAD"),
        (
            "revert",
            "echo more >> f; git commit -qam more; git revert --no-edit HEAD~1",
            ".git/REVERT_HEAD",
        ),
    ],
)
def test_case_50_and_case_63_an_operation_in_progress_is_not_disturbed(
    local, repo, begin, name, script, sign
):
    session = begin(repo)
    session.agent(
        CONFLICT + script + f" >/dev/null 2>&1; echo extra > extra; git add extra; test -e {sign}"
    )
    before = session.agent("git status --porcelain=v2; cat f")
    tip = session.agent("git rev-parse opencode").strip()
    outcome = session.sync()
    assert f"a {name} is in progress" in outcome.message
    assert repo.git("rev-parse", "opencode/1") == tip, "the branch is where its last commit is"
    assert session.agent(f"test -e {sign}; git status --porcelain=v2; cat f") == before
    kept = [each for each in outcome.kept if "in progress" in each.what]
    assert len(kept) == 1
    assert "<<<<<<<" in repo.show(kept[0].ref, "f")
    assert repo.show(kept[0].ref, "extra") == "extra"
    again = session.sync()
    assert not again.changed and again.kept == (), "the same state is kept once"
    session.agent(f"git {name} --abort")
    assert repo.git("rev-parse", "opencode/1") == session.sync().head


def test_case_50_a_bisect_in_progress(local, repo, begin):
    session = begin(repo)
    session.agent(
        "for n in 1 2 3 4; do echo $n > n; git add n; git commit -qm $n; done; git bisect "
        "start -q HEAD HEAD~4 >/dev/null; echo x > x"
    )
    tip = session.agent("git rev-parse opencode").strip()
    outcome = session.sync()
    assert repo.git("rev-parse", "opencode/1") == tip
    assert any("x" in files(repo, each.ref) for each in outcome.kept)
    assert session.agent("git bisect log | head -n 1").startswith("git bisect start")


def test_a_stash_comes_back(local, repo, begin):
    session = begin(repo)
    session.agent("echo stashed > README; git stash -q")
    outcome = session.sync()
    kept = [each for each in outcome.kept if "stash" in each.what]
    assert repo.show(kept[0].ref, "README") == "stashed"
    assert session.sync().kept == ()


def test_case_63_a_stale_index_lock(local, repo, begin):
    session = begin(repo)
    session.agent("echo x > x; touch .git/index.lock")
    outcome = session.sync()
    assert outcome.changed and "stale index.lock" in outcome.message
    assert repo.show("opencode/1", "x") == "x"


def test_case_50_and_case_63_hooks_signing_and_identity_of_the_sandbox(local, repo, begin):
    session = begin(repo)
    session.agent(
        "git config --unset user.name; git config --unset user.email; git config "
        "commit.gpgsign true; git config gpg.program false;"
        " printf '#!/bin/sh\\nexit 1\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit;"
        " printf '#!/bin/sh\\nsleep 60\\n' > .git/hooks/post-update; chmod +x "
        ".git/hooks/post-update; echo x > x"
        "; mkdir .husky; cp .git/hooks/pre-commit .husky; cp .git/hooks/pre-commit "
        ".husky/reference-transaction; git config core.hooksPath .husky"
    )
    session.sync()
    assert repo.git("log", "-1", "--format=%an", "opencode/1") == "OpenCode"


def test_case_48_nested_repositories_are_named_and_hold_up_a_deletion(local, repo, begin):
    session = begin(repo)
    commit = (
        "git -C '{0}' init -q; echo x > '{0}/x'; git -C '{0}' add x; git -C '{0}' -c "
        "user.name=a -c user.email=a@b commit -qm x"
    )
    examples = {
        "lib/in ner": "mkdir -p 'lib/in ner'; git -C 'lib/in ner' init -q; echo x > 'lib/in "
        "ner/x'; "
        "echo "
        "y > lib/y",
        "empty": "mkdir empty; git -C empty init -q",
        "committed": "mkdir committed; " + commit.format("committed"),
        "added": "mkdir added; "
        + commit.format("added")
        + "; git -c advice.addEmbeddedRepo=false add added",
        "tree": "git worktree add -q tree -b tree; echo pending > tree/pending",
        "näh/-x": "mkdir -p näh/-x; " + commit.format("näh/-x"),
    }
    for make in examples.values():
        session.agent(make)
    session.agent("echo around > around")
    outcome = session.sync()
    assert "nested repositories do not travel" in outcome.message
    for name in examples:
        shown = name if name.isascii() else "n\\303\\244h/-x"
        assert f"{shown}/" in outcome.message, (name, outcome.message)
    assert {"lib/y", "around"} <= files(repo, "opencode/1")
    with pytest.raises(TransferFailed, match="not deleted: nested repositories") as refused:
        session.coordinator.delete("1")
    assert "--force" in (refused.value.hint or "")
    assert session.agent("cat 'lib/in ner/x'") == "x\n"
    assert (
        session.coordinator.state.get(session.coordinator.sessions()[0].id).git_return.state
        == "failed"
    )
    session.coordinator.delete("1", force=True)


def test_case_37_odd_names(local, repo, begin):
    """There and back, byte for byte."""
    examples = (
        b"-dash",
        b"new\nline",
        b"latin\351",
        b'quo"te',
        b" blank /x ",
        b":(exclude)x",
        "ümläut".encode(),
        b"tab\there",
        b"back\\slash",
        b"\xff\xfe",
        b"*",
        b"esc\x1b[31m",
        b"--output=x",
        b"HEAD",
        b"~",
        b"a" * 250,
    )
    for number, name in enumerate(examples):
        repo.write(f"here/{os.fsdecode(name)}", str(number))
    repo.git("add", "-A")
    repo.git("commit", "-q", "-m", "Odd names")
    session = begin(repo)
    assert session.agent("git status --porcelain") == ""
    session.agent("cp -R here there")
    session.sync()
    for folder in (b"here", b"there"):
        listed = subprocess.run(
            ("git", "ls-tree", "-r", "-z", "--name-only", "opencode/1", folder),
            cwd=repo.path,
            capture_output=True,
            check=True,
        )
        names = {name.removeprefix(folder + b"/") for name in listed.stdout.split(b"\0") if name}
        assert names == set(examples), folder
    assert repo.git("rev-parse", "opencode/1:here") == repo.git("rev-parse", "opencode/1:there")


def test_case_69_a_sandbox_deleted_elsewhere(local, repo, begin, coordinate):
    session = begin(repo, "ses_a")
    session.agent("echo x > x")
    tip = session.sync().head
    session.coordinator.cloud.delete(session.sandbox_id)
    with pytest.raises(GitDaytonaError, match="does not exist"):
        session.sync()
    coordinator = coordinate(repo.path)
    started = coordinator.start("ses_a")
    assert (
        started.replaced
        and started.session.names.number == 1
        and started.session.sandbox_id != session.sandbox_id
    )
    result, notice = execute(coordinator, "1", "git rev-parse HEAD")
    assert result.output.strip() == tip
    assert "was replaced" in notice, "the agent is told, whoever started the new sandbox"
    assert execute(coordinator, "1", "true")[1] == ""


def test_case_39_numbers_are_not_used_again(local, repo, begin):
    begin(repo)
    session = begin(repo)
    assert session.number == 2
    session.coordinator.delete("2")
    repo.git("branch", "-D", "opencode/2")
    repo.git("branch", "opencode/3")
    assert begin(repo).number == 4


def test_case_38_and_case_58_a_branch_named_opencode(local, repo, coordinate):
    """Named before anything is made; tools work on the project all the same, told once that nothing
    comes back, and nothing of it is lost: not with a deletion, and with the branch renamed all of
    it comes."""
    says = "the local branch 'opencode' is in the way of 'opencode/N'"
    examples = {
        "loose": ("branch", "opencode"),
        "checked out": ("switch", "-q", "-c", "opencode"),
        "packed": ("pack-refs", "--all"),
    }
    for number, (name, make) in enumerate(examples.items(), 1):
        if name == "packed":
            repo.git("branch", "opencode")
        repo.git(*make)
        coordinator, id_ = coordinate(repo.path), f"ses_{number}"
        before = local.counts["create"]
        with pytest.raises(NoRepository, match=says) as refused:
            coordinator.start(id_)
        assert "git branch -m opencode" in refused.value.hint, name
        assert local.counts["create"] == before, name

        def tool(script, session_id=id_):
            once = in_project(script, timeout=60)
            output, _, notice = coordinator.within(  # noqa: B023
                session_id,
                lambda place: once.run(coordinator.cloud, place).output,  # noqa: B023
            )
            return output, notice

        output, notice = tool("cat README; echo x > x")
        assert output == "hello\n" and says in notice, name
        recorded = coordinator.state.get(id_).git_return
        assert (recorded.state, recorded.message) == ("setup-failed", says), name
        local.forget_calls()
        assert tool("cat x") == ("x\n", ""), name
        assert len(local.calls) == 1, name
        for work in (coordinator.sync, coordinator.delete):
            with pytest.raises(NoRepository, match=says):
                work(id_)
        repo.git("branch", "-m", "opencode", f"mine-{number}")
        assert tool("cat x") == ("x\n", ""), name
        assert coordinator.state.get(id_).git_return.state == "pending", name
        coordinator.delete(id_)
        assert repo.show(f"opencode/{number}", "x") == "x", name
        assert repo.git("rev-parse", f"opencode/{number}~1") == repo.git("rev-parse", "HEAD"), name
        # the next one needs the name
        repo.git("branch", "-m", f"opencode/{number}", f"came-back-{number}")


def test_case_38_names_that_are_only_like_it(local, repo, begin):
    """A tag or a remote's branch of that name stands in nobody's way; a branch below opencode/N
    costs that number only."""
    examples = {
        "tag": (("tag", "opencode"), 1),
        "a remote's branch": (("update-ref", "refs/remotes/origin/opencode", "HEAD"), 2),
        "a branch below the next number": (("branch", "opencode/3/mine"), 4),
        "another one beside it": (("branch", "opencode-mine"), 5),
    }
    for name, (make, number) in examples.items():
        repo.git(*make)
        session = begin(repo)
        assert session.number == number, name
        session.agent(f"echo '{number}' > what")
        session.sync()
        assert repo.show(f"refs/heads/opencode/{number}", "what") == str(number), name


def test_case_36_a_bare_repository(local, repo, coordinate, tmp_path):
    """Nothing is synced, and that is said; tools work."""
    repo.git("clone", "-q", "--bare", str(repo.path), str(tmp_path / "bare.git"))
    repo.git("clone", "-q", "--mirror", str(repo.path), str(tmp_path / "mirror"))
    examples = {
        "bare": tmp_path / "bare.git",
        "mirror": tmp_path / "mirror",
        "inside": tmp_path / "bare.git" / "refs",
    }
    for name, path in examples.items():
        coordinator = coordinate(path)
        with pytest.raises(NoRepository, match="bare"):
            coordinator.start()
        once = in_project("pwd; ls", timeout=60)
        output = coordinator.within(
            f"ses_{name}",
            lambda place: once.run(coordinator.cloud, place).output,  # noqa: B023
        )[0]
        assert output == "/home/daytona/project\n", name
        recorded = coordinator.state.get(f"ses_{name}").git_return
        assert (recorded.state, recorded.message) == (
            "disabled",
            "this is a bare repository, so nothing is synced",
        ), name
        with pytest.raises(NoRepository, match="bare repository"):
            coordinator.sync(f"ses_{name}")
        coordinator.delete(f"ses_{name}")


@pytest.mark.parametrize("edited", [False, True])
def test_a_reset_that_a_crash_interrupted_is_finished(local, repo, begin, edited):
    """The branch moved, but the worktree did not follow: as after a SIGKILL between the two. Edits
    made since then are kept."""
    session = begin(repo)
    old = repo.git("rev-parse", "opencode/1")
    session.agent("echo new > new")
    session.sync()
    repo.git("checkout", "-q", "--detach", "main")
    repo.git("symbolic-ref", "HEAD", "refs/heads/opencode/1")
    repo.git("update-ref", "refs/daytona/resetting/1", old)
    assert not (repo.path / "new").exists()
    if edited:
        repo.write("README", "edited meanwhile\n")
    outcome = session.sync()
    assert (repo.path / "new").exists()
    assert repo.git("status", "--porcelain") == ""
    assert len(outcome.kept) == int(edited)
    if edited:
        assert repo.show(outcome.kept[0].ref, "README") == "edited meanwhile"
        assert outcome.kept[0].ref in outcome.message


def test_the_agents_git_during_a_sync(local, repo, begin):
    """A git command that runs meanwhile holds the index: what is there is captured beside it, and
    committed by a later sync."""
    session = begin(repo)
    session.agent(
        'echo x > x; cp "$(command -v sleep)" /tmp/git; touch .git/index.lock; /tmp/git '
        "1000 & echo $! > /tmp/pid"
    )
    outcome = session.sync()
    assert any("git command" in each.what and "x" in files(repo, each.ref) for each in outcome.kept)
    assert session.agent("ls .git/index.lock").strip() == ".git/index.lock"
    session.agent("kill $(cat /tmp/pid); rm .git/index.lock")
    assert session.sync().changed
    assert repo.show("opencode/1", "x") == "x"


def test_the_agent_commits_during_a_sync(local, repo, begin):
    """HEAD moves between our look and our commit: looked at again, nothing of either is lost."""
    session = begin(repo)
    session.agent(
        "echo x > x; git config filter.slow.clean 'sh /tmp/once'; echo '* filter=slow' > "
        ".git/info/attributes;"
        " printf 'if mkdir /tmp/ran 2>/dev/null; then (unset GIT_INDEX_FILE; git commit -q "
        "--allow-empty -m meanwhile) >/dev/null 2>&1; fi; cat' > /tmp/once"
    )
    session.sync()
    assert (
        repo.git("log", "--format=%s", "-2", "opencode/1")
        == "Changes of the OpenCode session\nmeanwhile"
    )
    assert repo.show("opencode/1", "x") == "x"


RACY = (
    "touch -d '2020-01-01' README; git add README; printf 'jello\\n' > README; touch -d "
    "'2020-01-01' README .git/index"
)
"""A change that keeps a file's size and time: git notices it only because the index is no younger
than the file ("racy git")."""


def test_a_change_within_the_second_of_the_checkout(local, repo, begin):
    session = begin(repo)
    session.agent(f"git config core.trustctime false; {RACY}")
    session.sync()
    assert repo.show("opencode/1", "README") == "jello"


def test_case_40_and_case_64_an_edit_here_within_the_second_of_the_checkout(local, repo, begin):
    session = begin(repo)
    repo.git("switch", "-q", "opencode/1")
    repo.git("config", "core.trustctime", "false")
    subprocess.run(("sh", "-c", RACY), cwd=repo.path, check=True)
    session.agent("echo theirs > theirs")
    outcome = session.sync()
    assert repo.show(outcome.kept[0].ref, "README") == "jello"
