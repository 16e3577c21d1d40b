"""Which session a command is for: none named, several, all, those that are merged."""

import pytest

from git_daytona.git.refs import Names
from git_daytona.sessions import state
from support.round_trip import Repo


@pytest.fixture
def record(repo: Repo, coordinate):
    """Put sessions on record that need no sandbox: their numbers and titles."""

    def put(*sessions: tuple[int, str], place: Repo = repo) -> None:
        coordinator = coordinate(place.path)
        head = place.git("rev-parse", "HEAD")
        for number, title in sessions:
            done = state.GitReturn(state.SYNCED, "done", 1)
            names = Names(number)
            place.git("update-ref", names.ref, head)
            place.git("update-ref", names.base, head)
            session = state.Session(
                f"ses_{number}", f"box-{number}", number, str(place.path), 1, 1, done
            )
            coordinator.state.put(session)
            coordinator.state.edit(session.id, title=title, git_dir=coordinator.git_dir)

    return put


def test_none_is_named(repo, record, tell, tmp_path):
    """The only one; of several the one whose branch is checked out, here or in a worktree."""

    def wait(place=repo.path):
        return tell("git-daytona", "wait", "--timeout", "0", cwd=place)

    error, hint = wait().complaint
    assert "error: no sessions here yet [not-found]" in error and "git daytona start" in hint
    record((1, "fix the readme"))
    assert (wait().status, wait().out) == (0, "done\n")
    record((2, "add tests"), (3, ""))
    asked = wait()
    assert asked.status == 2
    error, hint = asked.complaint
    assert "error: which session? 1 (fix the readme), 2 (add tests), 3 [usage]" in error
    assert "git daytona status" in hint
    repo.git("worktree", "add", "-q", str(tmp_path / "tree"), "opencode/3")
    assert wait(tmp_path / "tree").status == 0
    repo.git("checkout", "-q", "opencode/2")
    (repo.path / "below").mkdir()
    assert wait(repo.path / "below").status == 0
    coordinate = tell("git-daytona", "log", "--format=%s", cwd=repo.path)
    assert "git log refs/daytona/base/2..opencode/2 --format=%s" in coordinate.err
