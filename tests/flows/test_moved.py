"""A repository is known wherever its folder goes, and a copy of it is another one."""

import json
import shutil

import pytest

from git_daytona.base.errors import NotFound, UsageError
from git_daytona.sandbox import lifecycle
from git_daytona.sessions import recovery
from support.round_trip import Repo, execute


def rename(place, target):
    place.rename(target)


def over_file_systems(place, target):
    """As mv does it there: a copy, and then the first one is removed."""
    shutil.copytree(place, target, symlinks=True)
    shutil.rmtree(place)


@pytest.mark.parametrize(
    ("move", "bare"), [(rename, False), (over_file_systems, False), (rename, True)]
)
def test_case_88_a_repository_that_is_moved_keeps_its_sessions(
    local, repo, coordinate, tmp_path, move, bare
):
    """And a start that was interrupted there can be finished."""
    place, target = repo.path, tmp_path / "deeper" / "renamed"
    if bare:
        place = tmp_path / "bare"
        repo.git("clone", "-q", "--bare", ".", str(place))
    first = coordinate(place)
    session = first.ensure("ses_a").session
    begun = first.mark("ses_b").write()
    target.parent.mkdir()
    move(place, target)
    moved = coordinate(target)
    (found,) = moved.sessions()
    assert (found.id, found.sandbox_id) == ("ses_a", session.sandbox_id)
    assert (found.git_dir, found.worktree) == (moved.git_dir, str(target))
    assert moved.state.warnings == []
    assert [mark.git_dir for mark in lifecycle.marks()] == [moved.git_dir]
    assert not begun.path.exists()
    execute(moved, "ses_a", "echo new >new")
    moved.delete("ses_a")
    assert moved.sessions() == []
    assert bare or Repo(target).show("opencode/1", "new") == "new"


def test_case_88_a_copy_does_not_share_sessions(local, repo, begin, coordinate, command, tmp_path):
    """It is told so once, numbers its own, and stays on its own also when the first one goes."""
    session = begin(repo)
    session.coordinator.close()
    shutil.copytree(repo.path, tmp_path / "copy", symlinks=True)
    told = command("git-daytona", "status", "--offline", cwd=tmp_path / "copy")
    assert f"is a copy of '{repo.path}/.git', which keeps its sessions" in told.err
    assert told.out == ""
    again = command("git-daytona", "status", "--offline", cwd=tmp_path / "copy")
    assert "copy" not in again.err
    copy = begin(Repo(tmp_path / "copy"))
    assert copy.number == 2 and copy.sandbox_id != session.sandbox_id
    assert [each.number for each in coordinate(repo.path).sessions()] == [1]
    repo.path.rename(tmp_path / "gone")
    assert [each.number for each in coordinate(tmp_path / "copy").sessions()] == [2]
    assert [each.number for each in coordinate(tmp_path / "gone").sessions()] == [1]
    assert recovery.recover(coordinate(tmp_path / "copy")).failed == []


def test_case_88_another_repository_at_the_old_place(local, repo, begin, coordinate, tmp_path):
    """Two that change places, and one made where another was: each has its own."""
    session = begin(repo)
    clone = tmp_path / "clone"
    repo.git("clone", "-q", ".", str(clone))
    other = begin(Repo(clone))
    repo.path.rename(tmp_path / "t")
    clone.rename(repo.path)
    (tmp_path / "t").rename(clone)
    for _ in range(2):
        assert [each.sandbox_id for each in coordinate(clone).sessions()] == [session.sandbox_id]
        assert [each.sandbox_id for each in coordinate(repo.path).sessions()] == [other.sandbox_id]
    clone.rename(tmp_path / "t")
    repo.git("clone", "-q", ".", str(clone))
    fresh = coordinate(clone)
    assert fresh.sessions() == []
    (line,) = fresh.state.warnings
    assert line.startswith("session 1 is of a repository that was here before")
    (kept,) = coordinate(tmp_path / "t").sessions()
    assert kept.sandbox_id == session.sandbox_id
    with pytest.raises(UsageError, match="belongs to session 1"):
        recovery.adopt(fresh, session.sandbox_id)
    shutil.rmtree(tmp_path / "t")
    adopted = recovery.adopt(fresh, session.sandbox_id).session
    assert (adopted.git_dir, adopted.number) == (fresh.git_dir, 1)
    assert fresh.git_dir and [each.id for each in fresh.sessions()] == [adopted.id]


def test_case_88_state_files_of_earlier_versions(local, repo, begin, coordinate, tmp_path):
    """A record without the identity goes by its path, and gets it when it is used."""
    session = begin(repo)
    path = session.coordinator.state.path
    document = json.loads(path.read_text())
    for record in document["sessions"].values():
        del record["repository"]
    path.write_text(json.dumps(document))
    (repo.path / ".git" / "git-daytona-id").unlink()
    clone = tmp_path / "clone"
    repo.git("clone", "-q", ".", str(clone))
    assert coordinate(clone).sessions() == []
    with pytest.raises(NotFound):
        coordinate(clone).find("1")
    assert coordinate(repo.path).find("1").sandbox_id == session.sandbox_id
    repo.path.rename(tmp_path / "moved")
    assert coordinate(tmp_path / "moved").find("1").sandbox_id == session.sandbox_id


def test_case_88_two_ways_to_one_repository(local, repo, begin, coordinate, tmp_path):
    """A link in front of it, a linked worktree, a path that a mount gives it: the same sessions,
    and nobody is a copy."""
    session = begin(repo)
    (tmp_path / "link").symlink_to(repo.path)
    repo.git("worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    for place in (tmp_path / "link", tmp_path / "linked", repo.path):
        coordinator = coordinate(place)
        assert [each.sandbox_id for each in coordinator.sessions()] == [session.sandbox_id]
        assert coordinator.state.warnings == []
    coordinator.state.edit(coordinator.find("1").id, git_dir=str(tmp_path / "link" / ".git"))
    assert coordinator.find("1").git_dir == coordinator.git_dir
    assert coordinator.state.warnings == []
