"""`git daytona doctor --live`: the real OpenCode, as it is set up here, with the command's own model
and Daytona."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from git_daytona.doctor import live
from support.opencode_hosts import every_release
from support.program import Told, tell
from support.round_trip import Repo

__all__ = ["tell"]
Tell = Callable[..., Told]


def program(folder: Path, script: str) -> Path:
    """An ``opencode`` that comes first on PATH."""
    folder.mkdir(exist_ok=True)
    path = folder / "opencode"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "tools"


@pytest.fixture
def look(tell: Tell, repo: Repo, scratch: Path) -> Callable[[], tuple[str, str, str]]:
    """The command's row: status, detail and hint. Nothing is left, whatever it is."""

    def run() -> tuple[str, str, str]:
        before = repo.git("status", "--porcelain", "--ignored")
        told = tell("git-daytona", "doctor", "--live", "--json", cwd=repo.path)
        rows = json.loads(told.out)
        row = rows[-1]
        assert row["check"] == "live"
        assert told.status == int(any(each["status"] == "fail" for each in rows))
        assert repo.git("status", "--porcelain", "--ignored") == before
        assert list(scratch.iterdir()) == []
        running = subprocess.run(("ps", "-Aww", "-o", "args="), capture_output=True, text=True)
        assert str(scratch) not in running.stdout
        return row["status"], row["detail"], row["hint"] or ""

    return run


@pytest.fixture
def installed(release: str, binary: Path, tools: Path, home: Path, tell: Tell) -> Path:
    """The global configuration, as ``install`` leaves it."""
    program(tools, f"exec '{binary}' \"$@\"")
    assert tell("git-daytona", "install", "--global").status == 0
    return spread(home)


def spread(home: Path) -> Path:
    """The fork's folder is named after its program."""
    config = home / ".config/opencode/opencode.json"
    fork = home / ".config/shuvcode"
    fork.mkdir(exist_ok=True)
    if config.exists():
        shutil.copy(config, fork)
    else:
        (fork / config.name).unlink()
    return config


@every_release
def test_installed_for_all_projects(installed, look, release):
    begin = time.monotonic()
    status, detail, _ = look()
    print(time.monotonic() - begin, detail)
    assert status == "ok", detail
    assert release in detail and "came back, and nothing happened here" in detail
