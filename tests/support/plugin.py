"""The plugin, and what its service wrote down."""

import json
import os
from pathlib import Path
from typing import Any

from support.round_trip import Repo

PLUGIN = Path(__file__).parents[2] / "helpers" / "git_daytona" / "opencode" / "plugin"


def state(repo: Repo) -> dict[str, Any]:
    """The project's one state file."""
    [path] = (Path(os.environ["XDG_DATA_HOME"]) / "opencode/storage/daytona").glob("*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found
