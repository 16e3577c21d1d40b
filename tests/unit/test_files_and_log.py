"""Whole files, private folders, locks between processes and threads, and the log."""

import logging
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from git_daytona.base import files, log, messages, paths
from git_daytona.base.errors import BadSetting, GitDaytonaError, TimedOut, TransferFailed
from git_daytona.base.secret import Secret


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(top: Path) -> dict[str, str]:
    return {
        str(path.relative_to(top)): oct(path.stat().st_mode & 0o777)
        for path in sorted(top.rglob("*"))
    }


def test_everything_is_private_whatever_the_umask(tmp_path, umask):
    top = tmp_path / "top"
    assert files.write_whole(top / "a" / "b" / "file", b"x")
    assert files.write_whole(top / "a" / "b" / "once", b"x", replace=False)
    with files.lock(top / "locks" / "one"):
        seen = modes(top)
    folder, file = oct(0o700), oct(0o600)
    assert seen == {
        "a": folder,
        "a/b": folder,
        "a/b/file": file,
        "a/b/once": file,
        "locks": folder,
        "locks/one": file,
    }


@pytest.mark.parametrize("named", ["", "   ", "relative", "./here", "~/data", "../up", None])
@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_case_55_a_data_directory_that_is_none(named, system, monkeypatch):
    """~/.local/share on every system, where OpenCode and the existing plugin look, too; the same
    wherever one is called."""
    monkeypatch.setattr(sys, "platform", system)
    if named is None:
        monkeypatch.delenv("XDG_DATA_HOME")
    else:
        monkeypatch.setenv("XDG_DATA_HOME", named)
    place = Path.home() / ".local" / "share" / "opencode"
    assert (paths.opencode_data(), paths.storage()) == (place, place / "storage" / "daytona")
    assert paths.state_file("a/b").parent == paths.pin_file().parent == paths.storage()


def test_a_folder_that_is_there_keeps_its_mode(tmp_path):
    (tmp_path / "shared").mkdir(mode=0o755)
    (tmp_path / "shared").chmod(0o755)
    files.private_directory(tmp_path / "shared" / "mine")
    assert modes(tmp_path) == {"shared": oct(0o755), "shared/mine": oct(0o700)}


def test_folders_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    for path in (
        tmp_path / "file",
        tmp_path / "file" / "x",
        tmp_path / "dangling",
        Path("/proc/none/x"),
    ):
        with pytest.raises(BadSetting) as refused:
            files.private_directory(path)
        assert str(path) in refused.value.message
        assert refused.value.hint
    assert not (tmp_path / "none").exists()


def test_many_make_the_same_folder(tmp_path):
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: files.private_directory(tmp_path / "a" / "b" / "c"), range(64)))


def test_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    files.write_whole(path, b"0" * 100_000)
    seen = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for digit in b"123456789":
        files.write_whole(path, bytes([digit]) * 100_000)
    done.set()
    reader.join()
    assert all(len(content) == 100_000 and len(set(content)) == 1 for content in seen)
    assert [each.name for each in tmp_path.iterdir()] == ["file"], "no temporary file is left"


def test_create_only_has_one_winner(tmp_path):
    with ThreadPoolExecutor(16) as pool:
        won = list(
            pool.map(
                lambda number: files.write_whole(tmp_path / "file", b"%d" % number, replace=False),
                range(32),
            )
        )
    assert won.count(True) == 1
    assert (tmp_path / "file").read_bytes() == b"%d" % won.index(True)
    assert len(list(tmp_path.iterdir())) == 1


def test_links_are_not_followed(tmp_path):
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    assert files.write_whole(tmp_path / "dangling", b"x", replace=False) is False
    assert not (tmp_path / "none").exists()
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    files.write_whole(tmp_path / "link", b"mine")
    assert (tmp_path / "precious").read_text() == "precious"
    assert not (tmp_path / "link").is_symlink()


def test_a_full_disk_keeps_the_old_content(tmp_path):
    with pytest.raises(BadSetting, match="cannot write"):
        files.write_whole(Path("/proc/self/oom"), b"x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadSetting):
        files.write_whole(tmp_path / "folder", b"x")
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


HOLDER = """
import sys
from pathlib import Path
from git_daytona.base import files
with files.lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_holds_between_processes_and_dies_with_its_holder(tmp_path):
    lock = tmp_path / "lock"
    holder = subprocess.Popen(
        (sys.executable, "-c", HOLDER, str(lock)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(TimedOut, match="the lock on sandbox x") as busy,
            files.lock(lock, seconds=0.1, holds="sandbox x"),
        ):
            pass
        assert busy.value.hint
        holder.kill()
    with files.lock(lock, seconds=20):
        pass


def test_a_lock_holds_between_threads_and_is_let_go_after_an_error(tmp_path):
    inside, most = 0, 0

    def enter(_: int) -> None:
        nonlocal inside, most
        with pytest.raises(ZeroDivisionError), files.lock(tmp_path / "lock"):
            inside += 1
            most = max(most, inside)
            threading.Event().wait(0.001)
            inside -= 1
            raise ZeroDivisionError

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(enter, range(40)))
    assert (inside, most) == (0, 1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_lock_in_a_folder_that_is_read_only(tmp_path):
    (tmp_path / "locks").mkdir(mode=0o500)
    with pytest.raises(BadSetting, match="cannot lock"), files.lock(tmp_path / "locks" / "x"):
        pass


@pytest.fixture
def logfile():
    """The log, open for this test only."""
    log.to_file()
    return paths.log_file()


def test_a_line_per_event(logfile):
    with log.event("git.push", sandbox="abc") as event:
        event["attempt"] = 2
    problem = TransferFailed("it failed", details="fatal: first\nsecond")
    with pytest.raises(TransferFailed), log.event("git.fetch"):
        raise problem
    first, second, *rest = logfile.read_text().splitlines()
    assert first.endswith(" ok")
    assert " INFO [" in first
    assert "git.push sandbox=abc attempt=2 ms=" in first
    assert second.endswith("TransferFailed: it failed")
    assert rest == ["    fatal: first", "    second"]


def test_the_log_tells_no_secret_and_moves_no_cursor(logfile):
    token = Secret("a/b+c=d~e")
    log.logger.info(
        "%s %s ssh://token@host/ Bearer dtn_x0123456789 ?token=abc&x=1 \x1b[2J\x07",
        token,
        token.reveal(),
    )
    log.logger.info("percent a%2Fb%2Bc%3Dd~e and a/b%2Bc%3Dd~e")
    text = logfile.read_text()
    assert not any(
        leak in text
        for leak in ("a/b+c", "a%2Fb", "a/b%2B", "token@", "dtn_", "token=abc", "\x1b", "\x07")
    )
    assert text.count("[redacted]") >= 7
    assert r"\x1b[2J" in text


def test_a_log_that_cannot_be_written_fails_nothing(logfile):
    logfile.unlink(missing_ok=True)
    (logfile.parent / "elsewhere").write_text("precious\n")
    logfile.symlink_to(logfile.parent / "elsewhere")
    log.logger.info("x")
    assert (logfile.parent / "elsewhere").read_text() == "precious\n", "a link is not followed"
    logfile.unlink()
    logfile.mkdir()
    log.logger.info("x")


def test_a_long_log_is_trimmed_to_whole_lines(logfile, monkeypatch):
    monkeypatch.setattr(log, "TRIM_ABOVE", 20_000)
    monkeypatch.setattr(log, "TRIM_TO", 5_000)
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(lambda number: log.logger.info("line %06d %s", number, "x" * 100), range(600))
        )
    log.logger.info("last")
    lines = logfile.read_text().splitlines()
    assert logfile.stat().st_size <= 20_400
    assert all(line.endswith("x" * 100) for line in lines[:-1])
    assert lines[-1].endswith("last")


def test_the_log_is_private(umask, logfile):
    log.logger.info("x")
    log.logger.info("y")
    assert oct(logfile.stat().st_mode & 0o777) == oct(0o600)
    assert len(logfile.read_text().splitlines()) == 2


def test_debug(logfile, monkeypatch):
    assert log.logger.level == logging.INFO
    for handler in list(log.logger.handlers):
        log.logger.removeHandler(handler)
    monkeypatch.setenv("DAYTONA_DEBUG", " Yes ")
    log.to_file()
    assert log.logger.level == logging.DEBUG


def test_what_is_said_is_one_clean_line(capsys):
    secret = Secret("verysecrettoken")
    problem = GitDaytonaError(f"a\nb {secret.reveal()} \x1b[31m", hint="do\r\nthis")
    messages.error("prog", problem)
    messages.warning("prog", "w\nw")
    messages.note("note")
    assert capsys.readouterr().err == (
        "prog: error: a b [redacted] \\x1b[31m [failed]\nhint: do this\nprog: warning: w w\nnote\n"
    )


@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full"])
def test_a_stderr_that_cannot_be_written_is_no_reason_to_fail(where):
    code = "from git_daytona.base.messages import note; note('x'); note('y'); print('fine')"
    done = subprocess.run(
        ("sh", "-c", f'exec "$0" -c "$1" {where}', sys.executable, code),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "fine\n")
