"""From the first line to the pull request: what a session begins with, what its commits say, and
how its work lands. One sandbox for as much as it can bear."""

import os
import shlex

import pytest

from git_daytona.sessions import state_file
from support.round_trip import Ran, Repo, program


@pytest.fixture
def git_daytona(local, repo: Repo, tell):
    """Run ``git daytona …`` in the repository; it must succeed unless a status is given."""

    def run(*words: str, status: int = 0, **how) -> Ran:
        done = tell("git-daytona", *words, cwd=how.pop("cwd", repo.path), **how)
        assert done.status == status, (words, done.out, done.err)
        return done

    return run


def test_a_commit_says_whose_work_it_is(repo, git_daytona):
    title = "Fix `it` $(touch planted); \n\nCo-authored-by: Eve <eve@x.invalid>"
    git_daytona("start", "--session", "ses_fix", "--title", title)
    sandbox = state_file.all_sessions()[0].sandbox_id

    def work(line: str) -> list[str]:
        git_daytona("exec", "1", line)
        git_daytona("sync", "1")
        form = "--format=%an <%ae>%n%cn%n%s%n%(trailers:only)"
        return repo.git("log", "-1", form, "opencode/1").splitlines()

    trailers = [f"Daytona-Session: ses_fix\nDaytona-Sandbox: {sandbox}"]
    user = "Co-authored-by: A Developer <dev@example.invalid>"
    subject = "Fix `it` $(touch planted); Co-authored-by: Eve <eve@x.invalid>"
    assert work("echo 1 > one") == [
        *("OpenCode <opencode@localhost>", "OpenCode", subject),
        *(*trailers[0].splitlines(), user),
    ]
    assert not (repo.path / "planted").exists() and git_daytona("exec", "1", "ls").out == (
        "README\none\n"
    )
    repo.git("config", "daytona.author", "A Bot <bot@x.invalid>")
    repo.git("config", "daytona.commitMessage", "[{number}] work\n\n{title} {else}")
    assert work("echo 2 > two")[:3] == ["A Bot <bot@x.invalid>", "OpenCode", "[1] work"]
    assert f"\n\n{subject} {{else}}\n\n" in repo.git("log", "-1", "--format=%B", "opencode/1")
    # the agent's own commits stay as they are
    assert work("echo 3 > three; git add .; git commit -qm mine")[1:3] == ["OpenCode", "mine"]
    repo.git("config", "daytona.author", "nobody")
    assert "daytona.author is 'nobody'" in git_daytona("sync", "1", status=13).err


@pytest.fixture
def edited(repo: Repo) -> Repo:
    """A repository in which the user is in the middle of something."""
    repo.write(".gitignore", "*.key\n")
    repo.commit("list", "".join(f"{number}\n" for number in range(9)))
    repo.git("add", ".gitignore")
    repo.git("commit", "-qm", "ignore")
    repo.write("list", "".join(f"{number}{'!' if number == 4 else ''}\n" for number in range(9)))
    repo.write("staged", "staged\n")
    repo.git("add", "staged")
    repo.write("staged", "staged, then edited\n")
    for name in ("new file", "a.key", ".env", "sub/.env"):
        repo.write(name, "mine\n")
    return repo


def test_uncommitted_work_goes_along_and_lands(edited: Repo, git_daytona):
    repo = edited
    before = repo.git("status", "--porcelain=v2"), repo.git("diff"), repo.git("diff", "--cached")
    told = git_daytona("start", "--dirty")
    assert told.err.splitlines()[-1] == "stays here: .env"
    after = repo.git("status", "--porcelain=v2"), repo.git("diff"), repo.git("diff", "--cached")
    assert after == before
    there = git_daytona("exec", "1", "git status -s; git ls-files; cat staged; sed -n 5p list").out
    names = [".gitignore", "README", "list", "new file", "staged"]
    assert there.splitlines() == [*names, "staged, then edited", "4!"]
    assert repo.git("log", "-1", "--format=%an %s", "opencode/1") == (
        "A Developer Uncommitted work in 'repository', taken along by git-daytona"
    )
    # it is not the session's own work
    assert git_daytona("diff", "1", "--stat").out == git_daytona("log", "1").out == ""
    git_daytona("exec", "1", "sed -i 's/4!/4?/; s/^8/eight/' list; echo theirs >> 'new file'")
    assert git_daytona("log", "1", "--format=%s").out == "Changes of the OpenCode session\n"
    # still uncommitted here: a merge would overwrite it, an apply fits on top
    refused = git_daytona("merge", "1", status=1)
    assert "session 1 took along is still uncommitted here" in refused.err
    assert "hint: take what was made on top of it: git daytona apply 1" in refused.err
    refused = git_daytona("merge", "--squash", "1", status=1)
    assert "still uncommitted here" in refused.err
    git_daytona("apply", "1", cwd=repo.path / "sub")
    assert (repo.path / "list").read_text() == "0\n1\n2\n3\n4?\n5\n6\n7\neight\n"
    assert (repo.path / "new file").read_text() == "mine\ntheirs\n"
    assert repo.git("diff", "--cached") == before[2]
    assert "git daytona" not in repo.git("stash", "list")
    # committed here, and gone on since: no conflict with what was taken along
    repo.write("list", "".join(f"{number}{'!' if number == 4 else ''}\n" for number in range(9)))
    repo.write("new file", "mine\n")
    repo.git("add", "list", "staged", "new file")
    repo.git("commit", "-qm", "own")
    repo.commit("list", "zero\n1\n2\n3\n4!\n5\n6\n7\n8\n")
    tip = repo.git("rev-parse", "HEAD")
    git_daytona("merge", "--squash", "1")
    assert (repo.path / "list").read_text() == "zero\n1\n2\n3\n4?\n5\n6\n7\neight\n"
    assert repo.git("log", "--format=%s", f"{tip}..") == "Changes of the OpenCode session"
    repo.git("reset", "-q", "--hard", tip)
    git_daytona("merge", "1", "--no-edit", "-q")
    assert (repo.path / "list").read_text() == "zero\n1\n2\n3\n4?\n5\n6\n7\neight\n"
    assert (repo.path / "new file").read_text() == "mine\ntheirs\n"


def test_what_is_not_taken_along(edited: Repo, git_daytona):
    repo = edited
    assert git_daytona("start").err.splitlines()[-1] == (
        "stays here: 4 uncommitted files (list, staged, new file, …); .env"
    )
    repo.git("config", "daytona.startDirty", "true")
    repo.git("update-index", "--assume-unchanged", "README")
    repo.write("README", "a password\n")
    nested = Repo(repo.path / "nested")
    nested.path.mkdir()
    nested.git("init", "-q")
    nested.commit("inner")
    repo.git("add", "--force", "--", ".env")
    git_daytona("start")
    listed = repo.git("ls-tree", "-r", "--name-only", "opencode/2").splitlines()
    assert listed == [".gitignore", "README", "list", "new file", "staged"]
    assert repo.show("opencode/2", "README") == "hello"
    assert ".env" in repo.git("diff", "--cached", "--name-only")
    git_daytona("start", "--no-dirty")
    assert repo.git("rev-parse", "opencode/3") == repo.git("rev-parse", "HEAD")
    refused = git_daytona("start", "--dirty", "HEAD~1", status=2)
    assert "nor REF with --dirty" in refused.err
    repo.git("checkout", "-q", "-b", "other", "HEAD~1", "-f")
    repo.commit("list", "other\n")
    repo.git("merge", "-q", "--no-commit", "--no-ff", "main")
    assert "a merge is in progress" in git_daytona("start", status=2).err


def test_a_ref_and_a_part_of_the_history(repo, git_daytona):
    for number in range(5):
        repo.commit(f"file{number}", f"{number}\n")
    git_daytona("start", "--depth", "2", "HEAD~1")
    assert (
        "session 1 is there already"
        in git_daytona("start", "--session", state_file.all_sessions()[0].id, "HEAD", status=2).err
    )
    assert git_daytona("exec", "1", "git rev-list --count HEAD; ls").out.split() == [
        *("2", "README", "file0", "file1", "file2", "file3"),
    ]
    git_daytona("exec", "1", "echo a > a; git add a; git commit -qm a; echo b > b")
    assert git_daytona("log", "1", "--format=%s").out.split("\n")[1] == "a"
    assert git_daytona("update", "1", "main").out.startswith("opencode/1 is at ")
    assert git_daytona("exec", "1", "ls").out.split()[0:3] == ["README", "a", "b"]
    assert "file4" in git_daytona("exec", "1", "ls").out
    assert git_daytona("update", "1").out == "the session has all of it already\n"
    # mine are not the session's
    assert git_daytona("diff", "1", "--name-only").out == "a\nb\n"
    git_daytona("merge", "1", "--no-edit", "-q")
    assert not (repo.path / ".git/shallow").exists()
    assert repo.git("fsck", "--full", "--strict", "--no-dangling") == ""
    assert repo.git("rev-list", "--count", "HEAD") == "9"
    assert git_daytona("exec", "1", "git rev-list --count HEAD").out.split() == ["6"]
    git_daytona("delete", "1")
    assert repo.git("fsck", "--full", "--no-dangling") == ""
    assert "there is no commit 'no-such'" in git_daytona("start", "no-such", status=8).err


def test_review(repo, git_daytona, tmp_path, monkeypatch):
    git_daytona("start", "--title", "--fill 'x'; touch planted")
    git_daytona("exec", "1", "echo theirs > README; echo new > new")
    # a worktree that follows
    place = git_daytona("checkout", "1").out.strip()
    assert place == f"{repo.path}-opencode-1"
    tree = Repo(repo.path.parent / place)
    assert (tree.path / "new").read_text() == "new\n", "it was synced first"
    assert git_daytona("checkout", "1", place).out.strip() == place
    assert "is checked out in" in git_daytona("checkout", "1", "elsewhere", status=2).err
    git_daytona("exec", "1", "echo more >> new")
    assert "+more" in git_daytona("diff", "1").out
    assert (tree.path / "new").read_text() == "new\nmore\n" and not tree.git("status", "-s")
    tree.write("new", "an edit of mine\n")
    git_daytona("exec", "1", "echo third >> new")
    assert git_daytona("log", "1", "--no-sync", "--oneline").out.count("\n") == 2
    assert "an edit of mine" in tree.git("show", f"{self_kept(git_daytona, repo)}:new")
    # mine, there: a conflict is said, and left to the agent
    repo.commit("README", "mine\n")
    conflict = git_daytona("update", "1", status=10)
    assert "conflicts in the sandbox: README" in conflict.err
    assert "UU README" in git_daytona("exec", "1", "git status -s").out
    git_daytona("exec", "1", "echo both > README; git commit -qam resolved; git status -s")
    # squashed, and as a pull request
    assert "something is staged" in staged(
        repo, lambda: git_daytona("merge", "1", "--squash", status=2)
    )
    git_daytona("merge", "1", "--squash")
    assert repo.git("log", "-1", "--format=%s%n%an") == "--fill 'x'; touch planted\nA Developer"
    assert (repo.path / "README").read_text() == "both\n"
    assert len(repo.git("log", "-1", "--format=%p").split()) == 1

    origin = Repo(tmp_path / "origin.git")
    origin.path.mkdir()
    origin.git("init", "-q", "--bare")
    assert "there is no remote 'origin'" in git_daytona("pr", "1", status=8).err
    repo.git("remote", "add", "origin", str(origin.path))
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    printed = git_daytona("pr", "1")
    words = shlex.split(printed.out)
    assert words[:7] == [
        *("gh", "pr", "create", "--head", "opencode/1-fill-x-touch-planted", "--title"),
        "--fill 'x'; touch planted",
    ]
    assert origin.git("rev-parse", words[4]) == repo.git("rev-parse", "opencode/1")
    log = tmp_path / "gh"
    program(tmp_path / "bin/gh", f"#!/bin/sh\nprintf '%s\\0' \"$@\" >{log}\nenv >>{log}\nexit 3\n")
    monkeypatch.setenv("DAYTONA_API_KEY", os.environ["DAYTONA_API_KEY"])
    git_daytona("pr", "--title", "Mine", "1", "--draft", status=3)
    asked = log.read_text().split("\0")
    assert asked[:6] == ["pr", "create", "--head", words[4], "--title", "Mine"]
    assert asked[-2] == "--draft" and "DAYTONA_" not in asked[-1]
    assert not (repo.path / "planted").exists()
    assert "no name of a branch" in git_daytona("pr", "--branch", "a..b", "1", status=2).err


def self_kept(git_daytona, repo: Repo) -> str:
    git_daytona("sync", "1")
    return list(repo.kept())[-1]


def staged(repo: Repo, do) -> str:
    repo.write("own", "x\n")
    repo.git("add", "own")
    said = do().err
    repo.git("reset", "-q")
    (repo.path / "own").unlink()
    return said


def test_sleep_and_the_list_of_all(repo, git_daytona, local, tmp_path):
    other = Repo(tmp_path / "other")
    other.path.mkdir()
    other.git("init", "-q")
    other.commit("x")
    git_daytona("start", "--title", "first")
    git_daytona("start", "--title", "elsewhere", cwd=other.path)
    git_daytona("exec", "1", "echo a > a; sleep 600 & echo")
    stopped = git_daytona("stop", "1").out.splitlines()
    assert stopped[0].startswith("opencode/1 is at ") and stopped[1] == "stopped"
    assert git_daytona("stop", "1").out == "stopped\n"
    # asleep, it is not woken up in order to look
    [session] = [each for each in state_file.all_sessions() if each.title == "first"]
    state_file.StateFile(state_file.all_files()[0].project_id, str(repo.path)).touch(session.id)
    local.forget_calls()
    assert git_daytona("log", "1", "--format=%s").out == "first\n"
    assert [call for call in local.calls if "start" in str(call)] == []
    assert git_daytona("resume", "1").out == "started\n"
    assert git_daytona("resume", "--all").out == "it runs already\n"
    assert git_daytona("exec", "1", "cat a").out == "a\n"
    git_daytona("sync", "1")
    local.forget_calls()
    git_daytona("merge", "1", "-q")
    assert local.calls == [], "nothing was to be synced"
    shown = git_daytona("status").out.splitlines()
    assert shown[0].split()[:2] == ["N", "AGE"] and "+1 merged" in shown[1] and len(shown) == 2
    both = git_daytona("status", "--all").out
    assert "first" in both and "elsewhere" in both and str(other.path)[-16:] in both
    assert len(git_daytona("status", "--all", "--offline", "--porcelain").out.splitlines()) == 2
