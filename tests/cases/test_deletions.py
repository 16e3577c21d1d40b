"""Deletions that do not succeed at once: that a session shall go is kept on record, that its work
may be lost is not."""

import json

import pytest

from git_daytona.base.errors import GitDaytonaError
from git_daytona.sessions import recovery
from support.round_trip import stop


def there(local, session):
    return any(
        each.id == session.sandbox_id and each.state not in ("destroyed", "destroying")
        for each in local.sandboxes
    )


def api_down(local, session):
    return local.faults.call(status=503)


def refused(local, session):
    return local.faults.call(route="^(mint|delete)$", status=403)


def asleep_and_out_of_reach(local, session):
    stop(session.coordinator.cloud, session.sandbox_id)
    return local.faults.call(route="^(start|delete)$", drop="before")


@pytest.mark.parametrize(
    "trouble", [api_down, refused, asleep_and_out_of_reach], ids=lambda each: each.__name__
)
def test_case_78_force_holds_for_its_moment(local, repo, begin, coordinate, tell, trouble):
    """What is retried brings the work back first."""
    session = begin(repo)
    session.agent("echo work >work")
    with trouble(local, session):
        told = tell("git-daytona", "delete", "--force", "1", cwd=repo.path)
    assert told.status != 0 and "git daytona delete --cancel 1" in told.complaint[1]
    assert there(local, session)
    found = recovery.recover(coordinate(repo.path))
    assert found.failed == [] and "session 1: it was deleted, as wished" in found.done[-1]
    assert not there(local, session) and coordinate(repo.path).sessions() == []
    assert repo.show("opencode/1", "work") == "work"


def test_case_78_what_cannot_come_back_stays(local, repo, begin, coordinate, tell):
    """It is shown, tried again, and ended by whoever wishes it."""
    session = begin(repo)
    session.agent("git init -q inner; echo x >inner/x; git -C inner add x")
    with local.faults.call(route="^delete$", status=503):
        assert tell("git-daytona", "delete", "--force", "1", cwd=repo.path).status != 0
    for _ in range(2):
        found = recovery.recover(coordinate(repo.path))
        assert found.done == [] and "nested repositories" in found.failed[0]
    assert there(local, session)
    shown = tell("git-daytona", "status", "--offline", cwd=repo.path)
    assert "deletion begun" in shown.out and "session 1: not deleted yet: " in shown.err
    assert "hint: delete it: git daytona delete 1; or keep it: " in shown.err
    (row,) = json.loads(tell("git-daytona", "status", "--json", "--offline", cwd=repo.path).out)
    assert row["deleting"] > 0
    kept = tell("git-daytona", "delete", "--cancel", "1", cwd=repo.path)
    assert (kept.status, kept.out) == (0, "kept\n")
    again = tell("git-daytona", "delete", "--cancel", "1", cwd=repo.path)
    assert "no deletion to take back" in again.out
    assert tell("git-daytona", "delete", "--cancel", "--force", "1", cwd=repo.path).status == 2
    assert "deletion" not in tell("git-daytona", "status", "--offline", cwd=repo.path).out
    session.agent("rm -rf inner/.git")
    recovery.recover(coordinate(repo.path))
    assert there(local, session), "nobody wishes it any more"
    assert tell("git-daytona", "delete", "1", cwd=repo.path).status == 0
    assert not there(local, session)


@pytest.mark.parametrize("use", ["exec", "start", "sync"])
def test_case_78_what_ends_the_wish(local, repo, begin, coordinate, use):
    """Using the session does; bringing its work back does not."""
    session = begin(repo, "ses_a")
    with local.faults.call(route="^delete$", status=403), pytest.raises(GitDaytonaError):
        session.coordinator.delete("1")
    if use == "exec":
        session.agent("true")
    elif use == "start":
        assert not coordinate(repo.path).start("ses_a").new
    else:
        session.sync()
    wished = coordinate(repo.path).find("1").deleting > 0
    assert wished == (use == "sync")
    recovery.recover(coordinate(repo.path))
    assert there(local, session) != wished
