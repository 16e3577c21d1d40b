"""What watches all else."""

import pytest

from support.bystanders import Watched


@pytest.fixture
def watched(home, tmp_path, monkeypatch) -> Watched:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    return Watched(home, tmp_path / "repository", temporary)
