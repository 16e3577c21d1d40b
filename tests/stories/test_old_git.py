"""A git that is too old: every program that needs one says so, before anything else."""

import pytest

from git_daytona.base.errors import MissingProgram
from git_daytona.git import version

COMMANDS = {
    "git-daytona": (
        ("start",),
        ("status",),
        ("sync", "1"),
        ("push", "1"),
        ("delete", "1"),
        ("recover",),
        ("prune",),
        ("shell", "1"),
        ("exec", "1", "--", "true"),
        ("install",),
    ),
    "daytona-token": (("exec", "SANDBOX", "--", "git", "fetch"),),
}


@pytest.fixture
def git(tmp_path, monkeypatch):
    """Put a git of a version on PATH that does nothing but say it."""

    def make(said: str) -> None:
        (tmp_path / "bin").mkdir(exist_ok=True)
        program = tmp_path / "bin" / "git"
        program.write_text(f"#!/bin/sh\n[ \"$*\" = version ] || exit 99\necho '{said}'\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
        version.check.cache_clear()

    yield make
    version.check.cache_clear()


@pytest.mark.parametrize(
    "words", [(p, *c) for p, all_ in COMMANDS.items() for c in all_], ids=" ".join
)
def test_an_old_git_is_all_that_is_said(tell, git, words):
    git("git version 2.35.8")
    told = tell(*words)
    error = f"{words[0]}: error: git 2.35.8 is older than 2.36 [missing-program]"
    assert (told.status, told.out, told.err) == (12, "", f"{error}\nhint: update git\n")


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("git version 1.8.3.1", "1.8.3.1"),
        ("git version 2.30.2", "2.30.2"),
        ("git version 2.34.1 (Apple Git-1)", "2.34.1"),
        ("git version 2.36.0", None),
        ("git version 2.55.0.windows.1", None),
        ("git version 3.0.rc1", None),
        ("git version of ours", None),
    ],
)
def test_versions(git, said, name):
    git(said)
    if name is None:
        version.check()
        return
    with pytest.raises(MissingProgram, match=f"^git {name} is older than 2.36$"):
        version.check()
