"""``git daytona log, diff, merge, apply``: the git command is printed and does what it says, in the
user's own git."""

import os
import shlex
import subprocess

import pytest

from git_daytona.git.refs import Names
from git_daytona.sessions import state
from support import tmux
from support.round_trip import BIN, Ran, Repo


@pytest.fixture
def worked(repo: Repo, coordinate):
    """Session 3 on record, with two commits over its base in a repository that went on; no sandbox
    is needed to look at them."""
    base = repo.git("rev-parse", "HEAD")
    repo.git("checkout", "-q", "-b", "opencode/3")
    repo.commit("new.txt", "made there\n")
    repo.commit("folder/README", "hello\nthere\n")
    repo.git("checkout", "-q", "main")
    repo.commit("own.txt", "made here\n")
    repo.git("update-ref", Names(3).base, base)
    coordinator = coordinate(repo.path)
    now = state.now()
    done = state.GitReturn(state.SYNCED, "done", now)
    coordinator.state.put(
        state.Session(
            "ses_3", "box-3", 3, str(repo.path), now - 9, now - 9, done, coordinator.git_dir
        )
    )
    return repo


def said(done: Ran) -> list[str]:
    """The commands that were printed."""
    return [line.removeprefix("+ ") for line in done.err.splitlines() if line.startswith("+ ")]


def test_log_and_diff_pass_everything_on(worked, command):
    done = command("git-daytona", "log", "3", "--format=%s", "-n", "5", cwd=worked.path)
    assert (done.status, done.out) == (0, "Add folder/README\nAdd new.txt\n")
    assert said(done) == ["git log refs/daytona/base/3..opencode/3 --format=%s -n 5"]
    for words in (
        ("log", "3", "--oneline", "-p", "--", "new.txt"),
        ("diff", "opencode/3", "--stat"),
        ("diff", "3", "--", "folder"),
    ):
        done = command("git-daytona", *words, cwd=worked.path)
        assert done.status == 0 and done.out
        (line,) = said(done)
        assert (
            subprocess.run(line, shell=True, cwd=worked.path, capture_output=True, text=True).stdout
            == done.out
        )
    # git's own status
    assert command("git-daytona", "diff", "3", "--quiet", cwd=worked.path).status == 1
    wrong = command("git-daytona", "log", "3", "--no-such-option", cwd=worked.path)
    assert wrong.status == 128 and "unrecognized argument: --no-such-option" in wrong.err


def test_merge(worked, command):
    done = command("git-daytona", "merge", "3", "--no-ff", "--no-edit", cwd=worked.path)
    assert done.status == 0 and said(done) == ["git merge --no-ff --no-edit opencode/3"]
    assert worked.git("log", "-1", "--format=%s") == "Merge branch 'opencode/3'"
    assert (worked.path / "new.txt").read_text() == "made there\n"


def test_apply_from_a_subdirectory(worked, command):
    below = worked.path / "a folder"
    below.mkdir()
    # what a user likes to see must not spoil the patch
    worked.git("config", "diff.noprefix", "true")
    worked.git("config", "diff.external", "false")
    done = command("git-daytona", "apply", "3", cwd=below)
    assert done.status == 0, done.err
    assert worked.git("status", "--porcelain").splitlines() == ["A  folder/README", "A  new.txt"]
    (line,) = said(done)
    worked.git("reset", "-q", "--hard")
    assert subprocess.run(line, shell=True, cwd=worked.path, capture_output=True).returncode == 0
    assert worked.git("status", "--porcelain").splitlines() == ["A  folder/README", "A  new.txt"]
    worked.git("reset", "-q", "--hard")
    worked.commit("new.txt", "another one\n")
    conflict = command("git-daytona", "apply", "3", cwd=worked.path)
    assert conflict.status == 1 and "AA new.txt" in worked.git("status", "--porcelain")


def test_names_mean_the_branch_and_are_no_options(worked, command):
    worked.git("tag", "opencode/3", "HEAD")
    done = command("git-daytona", "log", "3", "--format=%s", cwd=worked.path)
    assert done.out.splitlines() == ["Add folder/README", "Add new.txt"]
    assert said(done) == ["git log refs/daytona/base/3..heads/opencode/3 --format=%s"]
    for word in ("--output=planted", "-p"):
        refused = command("git-daytona", "log", word, "3", cwd=worked.path)
        assert refused.status == 2
        assert "hint: the session first: git daytona log 3 …" in refused.err
    assert not (worked.path / "planted").exists()


def test_what_is_missing(worked, command, coordinate):
    def refused(*words: str, status: int = 8) -> str:
        done = command("git-daytona", *words, cwd=worked.path)
        assert done.status == status and said(done) == [] and done.err.count("hint: ") == 1
        return done.err

    assert "there is no session '4'" in refused("merge", "4")
    base = worked.git("rev-parse", Names(3).base)
    worked.git("update-ref", "-d", Names(3).base)
    assert "not known from which commit session 3 started" in refused("diff", "3")
    worked.git("update-ref", Names(3).base, base)
    worked.git("branch", "-qD", "opencode/3")
    assert "hint: get it: git daytona sync 3" in refused("merge", "3")
    file = coordinate(worked.path).state
    file.put(
        state.Session(
            "ses_4",
            "box-4",
            None,
            str(worked.path),
            1,
            1,
            state.GitReturn(state.DISABLED, "no git", 1),
        )
    )
    refused("log", "ses_4", status=9)


def test_nothing_changed_and_newer_work_there(worked, command, coordinate):
    worked.git("update-ref", Names(3).base, "opencode/3")
    file = coordinate(worked.path).state
    file.touch("ses_3")
    done = command("git-daytona", "apply", "3", cwd=worked.path)
    assert done.status == 0 and done.err.splitlines() == [
        "not synced: there is no API key for https://app.daytona.io/api",
        "hint: session 3 was used since its last sync; to see that, too: git daytona sync 3",
        "opencode/3 has changed nothing since it started",
    ]


def test_git_gets_no_key_and_uses_the_users_pager(worked, tmp_path):
    pager = tmp_path / "pager"
    pager.write_text(
        f"#!/bin/sh\nenv > {shlex.quote(str(tmp_path / 'env'))}\necho 'in the pager'\ncat\n"
    )
    pager.chmod(0o755)
    worked.git("config", "core.pager", str(pager))
    env = {"DAYTONA_API_KEY": "dtn_canary0123456789"}
    with tmux.start(
        [str(BIN / "git-daytona"), "log", "3"], env, (100, 30), cwd=worked.path
    ) as screen:
        screen.wait_for("^in the pager$")
        screen.wait_for("Add folder/README")
    assert "canary" not in (tmp_path / "env").read_text(errors="replace")
    assert os.environ.get("DAYTONA_API_KEY") is None
