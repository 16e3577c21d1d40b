"""What others may have put where we write: files 0600 and folders 0700 whatever the umask, no link
in a shared folder is followed, and what stands behind one stays as it is (case 55)."""

import os
import stat
from pathlib import Path

import pytest

from git_daytona.base import files, log, paths
from git_daytona.base.errors import BadSetting
from git_daytona.sessions.state_file import StateFile

STRANGER = 65534
root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can plant what belongs to another user"
)


def mode(path: Path) -> str:
    return oct(path.lstat().st_mode & 0o777)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o027, 0o077], ids=oct)
def test_everything_that_a_run_makes_is_private(
    umask, local, repo, tell, home, tmp_path, monkeypatch
):
    """A complete run: all that is new in HOME and TMPDIR, and what is ours in .git."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setenv("TMPDIR", str(shared))
    before = set(home.rglob("*"))
    was = os.umask(umask)
    try:
        for words in (
            ("start",),
            ("exec", "1", "echo work > work"),
            ("sync", "1"),
            ("delete", "1"),
        ):
            told = tell("git-daytona", *words, cwd=repo.path)
            assert told.status == 0, told.err
    finally:
        os.umask(was)
    new = [path for path in set(home.rglob("*")) - before if ".cache" not in path.parts]
    assert {path.name for path in new} >= {"daytona.log", "gateway_known_hosts", "locks", "leases"}
    assert {
        str(path): mode(path)
        for path in new
        if mode(path) != (oct(0o700) if path.is_dir() else oct(0o600))
    } == {}
    assert list(shared.iterdir()) == []
    left = [path for path in (repo.path / ".git").rglob("*daytona*") if path.is_file()]
    assert {path.name: mode(path) for path in left} == {"git-daytona-id": oct(0o600)}


@pytest.fixture
def others(tmp_path):
    """A folder that everybody may write to, and a file of the user's that nobody must touch."""
    place = tmp_path / "tmp"
    place.mkdir()
    place.chmod(0o1777)
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o755)
    (precious / "file").write_text("precious\n")
    (precious / "file").chmod(0o644)
    before = seen(precious)
    yield place, precious
    assert seen(precious) == before


def seen(folder: Path) -> dict[str, tuple[str, bytes]]:
    return {
        str(path): (mode(path), b"" if path.is_dir() else path.read_bytes())
        for path in (folder, *folder.rglob("*"))
    }


@root
@pytest.mark.parametrize("planted", ["a link", "a folder", "a link above", "a link to a link"])
def test_what_a_stranger_planted_in_a_shared_folder_is_refused(others, planted, monkeypatch):
    place, precious = others
    there = place / ("state" if planted == "a link above" else "git-daytona")
    if planted == "a folder":
        there.mkdir()
    elif planted == "a link to a link":
        (place / "more").symlink_to(precious)
        there.symlink_to(place / "more")
    else:
        there.symlink_to(precious)
    os.lchown(there, STRANGER, STRANGER)
    monkeypatch.setenv(
        "XDG_STATE_HOME", str(place / "state" if planted == "a link above" else place)
    )
    with (
        pytest.raises(BadSetting, match="belongs to another user") as refused,
        files.lock(paths.locks() / "one"),
    ):
        pass
    assert str(there) in refused.value.message and "\n" not in refused.value.message


def test_a_link_of_the_users_own_is_followed(tmp_path, monkeypatch):
    """Who moves ~/.local/state to another disk links it."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with files.lock(paths.locks() / "one"):
        pass
    assert (
        mode(tmp_path / "disk" / "git-daytona")
        == mode(tmp_path / "disk" / "git-daytona" / "locks")
        == oct(0o700)
    )


def test_links_in_place_of_our_files_are_not_followed(others, home):
    """A lock, the log, the state file, a journal: what the link names is neither written, emptied
    nor given another mode."""
    _, precious = others
    target = precious / "file"
    for path in (
        paths.locks() / "one",
        paths.log_file(),
        paths.state_file("p"),
        paths.leases() / "one.json",
    ):
        files.private_directory(path.parent)
        path.symlink_to(target)
    with pytest.raises(BadSetting, match="is a link"), files.lock(paths.locks() / "one"):
        pass
    log.to_file()
    try:
        log.logger.warning("not there")
    finally:
        for handler in [each for each in log.logger.handlers if type(each).__name__ == "_Handler"]:
            log.logger.removeHandler(handler)
    files.write_whole(paths.leases() / "one.json", b"mine")
    assert not (paths.leases() / "one.json").is_symlink()
    state = StateFile("p", "/repo")
    assert state.sessions() == []
    assert state.warnings, "it made no sense; the link was set aside, not what it names"


def test_names_that_were_guessed_are_in_nobodys_way(others, local, repo, begin, monkeypatch):
    """Whatever is in TMPDIR already, a transfer makes no file there."""
    place, precious = others
    for name in ("daytona-ssh", "daytona-token", "git-daytona", "daytona"):
        (place / name).symlink_to(precious / "file")
    before = sorted(place.iterdir())
    monkeypatch.setenv("TMPDIR", str(place))
    session = begin(repo)
    session.agent("echo work > work")
    assert session.sync().changed
    session.coordinator.close()
    assert sorted(place.iterdir()) == before
    assert all(stat.S_ISLNK(path.lstat().st_mode) for path in before)
