"""The fixtures of support/round_trip.py, and `evil`."""

from pathlib import Path

import pytest

from support.program import tell
from support.round_trip import begin, command, coordinate, local, program, repo, server

__all__ = ["begin", "command", "coordinate", "local", "repo", "server", "tell"]


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A program that must not run: it notes what it was called with in ``ran`` and fails."""
    return program(
        tmp_path / "evil program", f"#!/bin/sh\necho \"$0 $*\" >>'{tmp_path}/ran'\nexit 1\n"
    )
