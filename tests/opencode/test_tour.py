"""The README's three minutes as they stand there: the wheel installed, an empty HOME, the real
OpenCode, an embedded Daytona."""

import json
import os
import shutil
from pathlib import Path

import pytest

from support import tour
from support.installation import Installed, installed
from support.round_trip import Repo
from support.scripted_model import Model

__all__ = ["installed"]


@pytest.fixture
def environment(
    installed: Installed, binary: Path, database: list[Path], model: Model, home: Path
) -> dict[str, str]:
    """A user who has OpenCode with a model, git with colours, and this program from the wheel."""
    data = home / ".local/share/opencode"
    data.mkdir(parents=True)
    for path in database:
        shutil.copy(path, data)
    (home / ".config/opencode").mkdir(parents=True)
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"http://127.0.0.1:{model.port}/v1", "apiKey": "x"},
        "models": {"m": {"tool_call": True, "limit": {"context": 100000, "output": 10000}}},
    }
    configuration = {
        "provider": {"local": provider},
        "model": "local/m",
        "small_model": "local/m",
        "autoupdate": False,
    }
    (home / ".config/opencode/opencode.json").write_text(json.dumps(configuration))
    (home / "models.json").write_text("{}")
    with (home / ".gitconfig").open("a") as config:
        config.write("[color]\n\tui = always\n[core]\n\tpager = cat\n")
    return {
        **os.environ,
        **installed.environment,
        "PATH": f"{installed.bin}:{binary.parent}:{os.environ['PATH']}",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_MODELS_PATH": str(home / "models.json"),
        "COLUMNS": str(tour.COLUMNS),
    }


def test_the_tour_of_the_readme(
    environment: dict[str, str],
    model: Model,
    repo: Repo,
    home: Path,
    request: pytest.FixtureRequest,
) -> None:
    repo.path = repo.path.rename(home / "project")
    model.title = "Add a greeting"
    model.scripts["add a file HELLO"] = [
        [("write", {"filePath": "HELLO", "content": "Hello from the sandbox!\n"})],
        "HELLO is there and greets you.",
    ]
    steps = tour.take(environment, repo.path)
    said = {step.command: step.output for step in steps}
    assert {step.command: step.status for step in steps} == dict.fromkeys(said, 0), said
    assert "HELLO" in said["git daytona diff 1"]
    assert "Hello from the sandbox!" in (repo.path / "HELLO").read_text(), "merged"
    assert "opencode/1" in said["git daytona status"]
    assert repo.git("branch", "--list", "opencode/1"), "the branch stays"

    new = tour.picture(steps)
    if request.config.getoption("--renew"):
        tour.PICTURE.write_text(new, "utf-8")
    elif tour.visible(tour.PICTURE.read_text("utf-8")) != tour.visible(new):
        other = request.config.rootpath / "build" / "tour.svg"
        other.parent.mkdir(exist_ok=True)
        other.write_text(new, "utf-8")
        pytest.fail(
            "man/tour.svg is not what the tour prints now: "
            "bin/test tests/opencode/test_tour.py --renew"
        )
