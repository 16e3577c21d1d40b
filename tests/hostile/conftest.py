"""The fixtures of rig.py and wrapping.py, and what watches that nothing else has changed."""

import pytest
from unchanged import Watched

from rig import begin, command, coordinate, local, repo, server
from wrapping import agent, config, sandbox, wrapper

__all__ = ["agent", "begin", "command", "config", "coordinate", "local", "repo", "sandbox", "server", "wrapper"]


@pytest.fixture
def watched(home, tmp_path, monkeypatch) -> Watched:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    return Watched(home, tmp_path / "repository", temporary)
