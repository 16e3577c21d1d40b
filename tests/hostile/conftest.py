"""The fixtures of support/round_trip.py and wrapper.py, and what watches all else."""

import pytest

from support.bystanders import Watched
from support.round_trip import begin, command, coordinate, local, repo, server
from support.wrapper import agent, config, sandbox, wrapper

__all__ = [
    "agent",
    "begin",
    "command",
    "config",
    "coordinate",
    "local",
    "repo",
    "sandbox",
    "server",
    "wrapper",
]


@pytest.fixture
def watched(home, tmp_path, monkeypatch) -> Watched:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    return Watched(home, tmp_path / "repository", temporary)
