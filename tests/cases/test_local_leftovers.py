"""What `daytona-local exec` leaves: the work, on its branches, and nothing else of the Daytona that
is gone."""

import os
import sys

import pytest

from git_daytona.base import paths
from git_daytona.sessions import state_file
from support.round_trip import BIN


@pytest.fixture
def locally(command, monkeypatch):
    """Run lines of shell with a Daytona of their own."""
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")

    def run(script, cwd, *options):
        done = command("daytona-local", "exec", *options, "--", "sh", "-ec", script, cwd=cwd)
        assert done.status == 0, done.err
        return done

    return run


def seen(repo):
    """All that a person, or git, sees of a repository."""
    refs = repo.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return dict(line.split() for line in refs), (repo.path / ".git/config").read_text().strip()


USES = {
    "sessions that did nothing": """
        git-daytona start
        git-daytona start
        git-daytona start --no-sync
        git-daytona sync 2
        daytona-pin verify --live
    """,
    "one that was deleted": "git-daytona start; git-daytona delete 1",
    "one that was stopped": f"""
        git-daytona start
        {sys.executable} -c '
import os, sys, urllib.request
stop = os.environ["DAYTONA_API_URL"] + "/sandbox/" + sys.argv[1] + "/stop"
key = {{"Authorization": "Bearer " + os.environ["DAYTONA_API_KEY"]}}
urllib.request.urlopen(urllib.request.Request(stop, b"", key))
        ' "$(git-daytona status --porcelain | cut -f9)"
    """,
}


@pytest.mark.parametrize("script", USES.values(), ids=USES)
def test_it_leaves_nothing(repo, locally, script):
    before = seen(repo)
    locally(script, repo.path)
    refs, config = seen(repo)
    if "delete" not in script:  # that leaves the branch, as always
        assert refs == before[0]
    assert config == before[1]
    assert state_file.all_sessions() == [] and not paths.pin_file().exists()


def test_work_comes_back_and_what_cannot_is_named(repo, locally):
    before, config = seen(repo)
    done = locally(
        """
        git-daytona start; git-daytona start; git-daytona start
        git-daytona exec 1 'echo work >work'
        git-daytona exec 2 'git init -q inner; echo lost >inner/x; git -C inner add x; echo 2 >two'
        """,
        repo.path,
    )
    refs, now = seen(repo)
    assert repo.show("opencode/1", "work") == "work" and repo.show("opencode/2", "two") == "2"
    assert set(refs) - set(before) == {
        "refs/heads/opencode/1",
        "refs/heads/opencode/2",
        "refs/daytona/counter",
    }
    assert repo.git("cat-file", "blob", "refs/daytona/counter") == "2", "the third gave it back"
    assert now == config and state_file.all_sessions() == []
    assert f"daytona-local: session 1 of '{repo.path}': opencode/1 is at" in done.err
    assert "what had not come back is lost: not deleted: nested repositories" in done.err


def test_what_is_somebody_elses_stays(repo, local, begin, locally, tmp_path):
    """Sessions on another Daytona, their pins; and with --root all, which is still there then."""
    session = begin(repo)
    session.sync()
    before, pins = seen(repo), paths.pin_file().read_text()
    locally("git-daytona start --no-sync --session ses_b; daytona-pin verify --live", repo.path)
    assert seen(repo) == before and paths.pin_file().read_text() == pins
    assert [each.sandbox_id for each in state_file.all_sessions()] == [session.sandbox_id]
    locally("git-daytona start --session ses_c", repo.path, "--root", str(tmp_path / "root"))
    assert {each.id for each in state_file.all_sessions()} > {"ses_c"}
    assert "sandbox-2" in repo.git("remote")


def test_the_repository_is_gone(tmp_path, repo, locally):
    done = locally(f"git-daytona start; cd /; rm -rf '{repo.path}'", repo.path)
    assert state_file.all_sessions() == [] and "is not there any more" in done.err
