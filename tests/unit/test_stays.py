"""What of a worktree stays here when a session begins, in one line."""

from pathlib import Path

from git_daytona.git import stays
from git_daytona.git.repository import discover
from support.round_trip import Repo


def test_what_stays_is_said(repo: Repo, tmp_path: Path) -> None:
    def line(taken: str | None = None) -> str:
        return stays.described(stays.look(discover(repo.path), taken))

    assert line() == ""
    inner = Repo(tmp_path / "inner")
    inner.path.mkdir()
    inner.git("init", "-q")
    inner.commit("x")
    allowed = ("-c", "protocol.file.allow=always")
    repo.git(*allowed, "submodule", "--quiet", "add", str(inner.path), "library")
    repo.write(".gitattributes", "*.bin filter=lfs\n")
    repo.write(".gitignore", ".env*\n")
    for name in ("a.bin", "b.bin"):
        repo.write(name)
    repo.git("add", ".")
    repo.git("commit", "-qm", "all")
    repo.write(".env", "KEY=1\n")
    said = "1 submodule (library); 2 files' LFS content (a.bin, b.bin); .env"
    assert line() == f"stays here: {said}"
    repo.write("README", "changed\n")
    for number in range(4):
        repo.write(f"new\x1b[31m{number}\nline")
    shown = "README, new\\x1b[31m0?line, new\\x1b[31m1?line, …"
    assert line() == f"stays here: 5 uncommitted files ({shown}); {said}"
    assert line(taken="0" * 40) == f"stays here: {said}"
