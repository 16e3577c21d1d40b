"""Finding the repository of a directory, by kinds of errors."""

import subprocess

import pytest

from git_daytona.base.errors import NoRepository
from git_daytona.git.repository import NotInRepository, discover


def test_only_a_directory_without_a_repository_is_not_in_one(tmp_path):
    with pytest.raises(NotInRepository):
        discover(tmp_path)
    subprocess.run(("git", "init", "--quiet", str(tmp_path)), check=True, timeout=60)
    assert discover(tmp_path).worktree == tmp_path
    with pytest.raises(NoRepository, match=r"inside a \.git directory") as refused:
        discover(tmp_path / ".git" / "objects")
    assert not isinstance(refused.value, NotInRepository)


@pytest.mark.parametrize("name", ["plain", "two\nlines", "a\nb\nc", "\r", "\u2028", "end\n"])
def test_names_of_folders_are_taken_as_they_are(tmp_path, name):
    place = tmp_path / name / "below"
    place.mkdir(parents=True)
    subprocess.run(("git", "init", "--quiet", "--bare", str(place / "x.git")), check=True)
    found = discover(place / "x.git")
    assert (found.git_dir, found.common_dir) == (place / "x.git", place / "x.git")
    subprocess.run(("git", "init", "--quiet", str(place)), check=True, timeout=60)
    found = discover(place)
    assert (found.git_dir, found.common_dir) == (place / ".git", place / ".git")
    assert found.worktree == place
