"""What a failed fetch left half-written, and how long others' files are safe from its removal."""

import subprocess
from pathlib import Path

import pytest

from git_daytona.git.repository import discover
from git_daytona.transfer.transfer import leftovers, remove_leftovers


def test_only_what_nobody_writes_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may end while those that have files open are looked through."""
    subprocess.run(("git", "init", "-q", str(tmp_path)), check=True)
    repository, pack = discover(tmp_path), tmp_path / ".git" / "objects" / "pack"
    (pack / "tmp_pack_before").touch()
    before = leftovers(repository)
    (pack / "tmp_pack_half").write_bytes(b"12345")
    listed = Path.glob

    def and_one_that_ended(folder: Path, pattern: str) -> list[Path]:
        ended = [folder / "0"] if folder == Path("/proc") else []
        return [*ended, *listed(folder, pattern)]

    monkeypatch.setattr(Path, "glob", and_one_that_ended)
    with (pack / "tmp_pack_open").open("wb"):
        assert remove_leftovers(repository, before) == 5
    assert {each.name for each in pack.iterdir()} == {"tmp_pack_before", "tmp_pack_open"}
