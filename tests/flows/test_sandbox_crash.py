"""Trouble of the sandbox's own git in the middle of a sync: it or its shell is killed, the disk is
full, the clock is wrong. The next sync has everything."""

import pytest

from git_daytona.base.errors import GitDaytonaError

GIT = r"""#!/bin/sh
# The Nth call of git, and for a full disk every later one, meets its trouble.
count=$(($(cat ~/count) + 1))
echo "$count" >~/count
read -r trouble at <~/trouble
if [ "$count" -eq "$at" ]; then
  case $trouble in
    git) kill -9 $$ ;;
    shell) kill -9 "$PPID"; exit 1 ;;
  esac
fi
if [ "$trouble" = disk ] && [ "$count" -ge "$at" ]; then
  trap '' XFSZ # then a write fails, as it does where no room is left
  ulimit -f 0
fi
exec /usr/bin/git "$@"
"""


TROUBLES = ("git", "shell", "disk")
REST = pytest.mark.complete("the other kinds of trouble at each call of git")


@pytest.fixture
def session(local, begin, repo):
    found = begin(repo)
    box = next(each for each in local.sandboxes if each.id == found.sandbox_id)
    box.env["PATH"] = "/home/daytona/bin:/usr/local/bin:/usr/bin:/bin"
    found.agent("mkdir ~/bin")
    found.coordinator.cloud.upload(found.sandbox_id, "/home/daytona/bin/git", GIT.encode())
    found.agent("chmod +x ~/bin/git; echo none 0 >~/trouble; echo 0 >~/count; git status")
    assert found.agent("cat ~/count") == "1\n", "its git is not called"
    return found


def work(session, name):
    """Do what a sync has all of its steps for."""
    session.agent(
        f"echo {name} >{name}; /usr/bin/git add {name}; /usr/bin/git commit -qm {name}; "
        f"/usr/bin/git branch b-{name}; echo stash >README; /usr/bin/git stash -q; "
        f"echo {name} >pending"
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "turn", [0, *(pytest.param(turn, marks=REST, id=f"turn {turn}") for turn in (1, 2))]
)
def test_trouble_at_each_call_of_git(local, repo, session, turn):
    """Another kind of trouble at each call, and in three turns each kind at each call."""

    def sync(at, trouble="none"):
        session.agent(f"echo {trouble} {at} >~/trouble; echo 0 >~/count")
        try:
            return session.sync()
        except GitDaytonaError as problem:
            print(f"{trouble} at {at}: {problem.message}")
            return None

    work(session, "first")
    assert sync(10_000) is not None
    calls = int(session.agent("cat ~/count"))
    assert calls > 8
    for at in range(1, calls + 1):
        name = f"n{at}"
        work(session, name)
        sync(at, TROUBLES[(at + turn) % len(TROUBLES)])
        assert sync(10_000) is not None
        assert repo.show("opencode/1", name) == repo.show("opencode/1", "pending") == name
        tip = repo.git("rev-parse", f"refs/remotes/sandbox-1/b-{name}")
        assert repo.git("merge-base", "--is-ancestor", tip, "opencode/1") == ""
        assert (
            session.agent("/usr/bin/git status --porcelain; /usr/bin/git fsck --no-dangling 2>&1")
            == ""
        )
        assert session.agent("ls -A .git | grep daytona-index || true") == ""
    assert local.live_tokens() == 0


@pytest.mark.parametrize("year", [1971, 2090])
def test_a_wrong_clock(repo, session, year):
    date = f"{year}-01-01T00:00:00Z"
    dates = f"2i export GIT_COMMITTER_DATE={date} GIT_AUTHOR_DATE={date}"
    session.agent(f"sed -i '{dates}' ~/bin/git")
    for name in ("one", "two"):
        session.agent(f"echo {name} >{name}")
        assert session.sync().changed
        assert repo.show("opencode/1", name) == name
    session.agent(f"touch -d {year}-06-06 one two; echo changed >one; touch -d {year}-06-06 one")
    assert session.sync().changed
    assert repo.show("opencode/1", "one") == "changed"
    assert str(year) in repo.git("log", "-1", "--format=%cd", "opencode/1")
