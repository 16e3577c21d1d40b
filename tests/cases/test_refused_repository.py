"""git refuses a repository: that is said, with git's own reason, by every command and tool, and is
never taken for a directory without one."""

import json
import subprocess

import pytest

from git_daytona.base.errors import NoRepository, RepositoryRefused
from git_daytona.git.repository import NotInRepository, discover


def broken_globally(repo, home, monkeypatch):
    (home / ".gitconfig").write_text("[user\n")
    return "bad config line 1"


def broken_here(repo, home, monkeypatch):
    with (repo.path / ".git/config").open("a") as file:
        file.write("\n[core\n")
    return "bad config line"


def broken_include(repo, home, monkeypatch):
    (home / "more").write_text("= nothing\n")
    repo.git("config", "include.path", str(home / "more"))
    return "bad config line 1"


def foreign_git_dir(repo, home, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(home / "gone.git"))
    return "not a git repository"


def another_repository(repo, home, monkeypatch):
    repo.git("init", "-q", str(home / "other"))
    monkeypatch.setenv("GIT_DIR", str(home / "other/.git"))
    return "is not the repository of the worktree"


def somebody_elses(repo, home, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    return "git does not trust the repository"


def from_the_future(repo, home, monkeypatch):
    repo.git("config", "core.repositoryFormatVersion", "9")
    return "found 9"


def without_head(repo, home, monkeypatch):
    (repo.path / ".git/HEAD").unlink()
    return "not a git repository"


REFUSALS = [
    broken_globally,
    broken_here,
    broken_include,
    foreign_git_dir,
    another_repository,
    somebody_elses,
    from_the_future,
    without_head,
]


@pytest.fixture
def nowhere(monkeypatch):
    """An API that cannot be reached: who asks it has not seen that git refuses."""
    monkeypatch.setenv("DAYTONA_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.setenv("DAYTONA_API_KEY", "key")


COMMANDS = (
    ("status",),
    ("status", "--porcelain"),
    ("start",),
    ("start", "--no-sync"),
    ("exec", "1", "--", "true"),
    ("shell", "1"),
    ("cp", "1:x", "y"),
    ("sync", "1"),
    ("delete", "1"),
    ("delete", "--force", "1"),
    ("recover",),
    ("prune", "--yes"),
    ("open", "1"),
    ("wait", "1"),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda each: each.__name__)
def test_case_108_git_refuses_the_repository(repo, home, nowhere, tell, monkeypatch, refusal):
    reason = refusal(repo, home, monkeypatch)
    for words in COMMANDS:
        told = tell("git-daytona", *words, cwd=repo.path)
        error, hint = told.complaint
        assert (told.status, told.out) == (NoRepository.status, ""), words
        assert reason in error and "no sessions here" not in told.err
        assert "git" in hint and "git init" not in hint


@pytest.mark.parametrize("refusal", REFUSALS[1:4], ids=lambda each: each.__name__)
def test_case_108_no_tool_runs_in_an_empty_project(
    repo, home, local, command, monkeypatch, refusal
):
    """Neither a hook's tool nor one of the service; the toolbox is not asked for anything."""
    reason = refusal(repo, home, monkeypatch)
    directory = str(repo.path)
    arguments = {"command": "true"}
    call = {"directory": directory, "sessionID": "ses_a", "tool": "bash", "arguments": arguments}
    hooked = command("git-daytona", "hook", "tool", stdin=json.dumps(call), cwd=home)
    assert hooked.status == NoRepository.status and reason in hooked.err
    lines = [
        {"id": 1, "method": "initialize", "params": {"directory": directory, "worktree": "/"}},
        {"id": 2, "method": "tool", "params": call | {"name": "bash"}},
        {"id": 3, "method": "shutdown", "params": {}},
    ]
    stdin = "".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines)
    served = command("git-daytona", "serve", stdin=stdin, cwd=home)
    answers = {each.get("id"): each for each in map(json.loads, served.out.splitlines())}
    assert reason in answers[2]["error"]["message"]
    assert local.counts == {}


def test_case_108_what_is_no_refusal(tmp_path, repo, monkeypatch):
    """A directory without a repository stays one, whatever lies around it."""
    empty = tmp_path / "empty"
    (empty / ".git").mkdir(parents=True)
    below = repo.path / "below"
    below.mkdir()
    examples = {"nothing": tmp_path, "an empty .git": empty, "hidden by a ceiling": below}
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(repo.path))
    for what, place in examples.items():
        with pytest.raises(NotInRepository):
            discover(place)
            raise AssertionError(what)


def test_git_cannot_tell_whether_there_are_commits(repo, home, nowhere, tell):
    """What looks like none would begin with an empty project."""
    repo.git("config", "core.abbrev", "many")
    told = tell("git-daytona", "start", cwd=repo.path)
    assert told.status != 0 and "core.abbrev" in told.err
    with pytest.raises(RepositoryRefused):
        subprocess.run(("git", "config", "core.bare", "perhaps"), cwd=repo.path, check=True)
        discover(repo.path)


def test_settings_are_shown_all_the_same(repo, home, nowhere, tell, monkeypatch):
    broken_here(repo, home, monkeypatch)
    told = tell("git-daytona", "config", cwd=repo.path)
    assert "DAYTONA_API_URL" in told.out and "bad config line" in told.err + told.out
    told = tell("daytona-token", "revoke", "--all", "box", cwd=repo.path)
    assert "its .env is not read" in told.err
