"""The plugin, and what its service wrote down."""

import json
import os
from pathlib import Path
from typing import Any

from support.round_trip import Repo

PLUGIN = Path(__file__).parents[2] / "helpers" / "git_daytona" / "opencode" / "plugin"


def states(repo: Repo) -> list[dict[str, Any]]:
    """The project's state files."""
    paths = (Path(os.environ["XDG_DATA_HOME"]) / "opencode/storage/daytona").glob("*.json")
    found = [json.loads(path.read_text()) for path in paths]
    return [each for each in found if each["worktree"] == str(repo.path)]


def state(repo: Repo) -> dict[str, Any]:
    """The project's one state file."""
    [found] = states(repo)
    return found
