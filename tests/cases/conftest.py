"""`evil`, a program that must not run."""

from pathlib import Path

import pytest

from support.round_trip import program


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A program that must not run: it notes what it was called with in ``ran`` and fails."""
    return program(
        tmp_path / "evil program", f"#!/bin/sh\necho \"$0 $*\" >>'{tmp_path}/ran'\nexit 1\n"
    )
