"""Keys that are added to .git/config, as git reads them back."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_daytona.git import new_keys
from git_daytona.git.repository import Repository, discover
from support.round_trip import program
from support.waiting import until

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    place = tmp_path_factory.mktemp("repository")
    subprocess.run(("git", "init", "--quiet", str(place)), check=True, timeout=60)
    return discover(place)


@given(st.lists(TEXTS, min_size=1, max_size=5), TEXTS.map(lambda text: text.replace("\n", "")))
def test_git_reads_what_was_written(repository: Repository, texts: list[str], name: str) -> None:
    path = repository.common_dir / "config"
    mine = "# mine\n[core]\n\tbare = false ; a comment\n\trepositoryformatversion = 0"
    path.write_text(mine)
    wanted = {f"key{number}": text for number, text in enumerate(texts)}
    new_keys.add(repository, {f"remote.{name}": wanted})
    assert path.read_bytes().startswith(mine.encode() + b"\n[")
    listed = repository.git("config", "--local", "--list", "-z").stdout.decode()
    found = dict(entry.split("\n", 1) for entry in listed.split("\0")[:-1])
    assert {key: found[f"remote.{name}.{key}"] for key in wanted} == wanted


def test_the_file_is_the_one_that_git_writes(repository: Repository, tmp_path: Path) -> None:
    """Behind a link, with its mode; whose lock another program holds, it is left alone."""
    path = repository.common_dir / "config"
    theirs = path.rename(tmp_path / "theirs")
    theirs.chmod(0o640)
    path.symlink_to(theirs)
    new_keys.add(repository, {"branch.a.b": {"remote": "x"}})
    assert path.is_symlink() and theirs.stat().st_mode & 0o777 == 0o640
    assert repository.section("branch.a.b") == {"remote": "x"}
    assert {each.name for each in tmp_path.iterdir()} == {"theirs"}


def test_a_lock_that_nobody_takes_away(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = (repository.common_dir / "config").resolve()
    lock, before = path.with_name(path.name + ".lock"), path.read_bytes()
    lock.write_text("another's")
    monkeypatch.setattr("git_daytona.git.repository.LOCK_SECONDS", 0)
    with pytest.raises(FileExistsError):
        new_keys.add(repository, {"branch.c": {"remote": "x"}})
    assert (lock.read_text(), path.read_bytes()) == ("another's", before)
    lock.unlink()


def test_a_disk_that_is_full(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = (repository.common_dir / "config").resolve()
    before = path.read_bytes()
    full = '#!/bin/sh\nhead -c 5 "$1"; echo "cat: No space left on device" >&2; exit 1\n'
    program(tmp_path / "cat", full)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(OSError, match="No space left"):
        new_keys.add(repository, {"branch.c": {"remote": "x"}})
    assert path.read_bytes() == before and not path.with_name(path.name + ".lock").exists()


def test_who_is_killed_leaves_no_lock(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SIGKILL while the keys are written: they are written to the end."""
    path = (repository.common_dir / "config").resolve()
    for name in ("there", "go"):
        os.mkfifo(tmp_path / name)
    waiting = f"echo >'{tmp_path}/there'; read -r _ <'{tmp_path}/go'"
    program(tmp_path / "cat", f'#!/bin/sh\n{waiting}; exec /bin/cat "$1"\n')
    script = (
        "import sys; from pathlib import Path; from git_daytona.git import new_keys, repository;"
        "new_keys.add(repository.discover(Path(sys.argv[1])), {'branch.k': {'remote': 'x'}})"
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    argv = (sys.executable, "-c", script, str(repository.directory))
    with subprocess.Popen(argv) as adding:
        (tmp_path / "there").read_text()
        adding.kill()
    assert path.with_name(path.name + ".lock").exists()
    (tmp_path / "go").write_text("\n")
    until(lambda: not path.with_name(path.name + ".lock").exists())
    assert repository.section("branch.k") == {"remote": "x"}
