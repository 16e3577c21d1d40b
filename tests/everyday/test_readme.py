"""The README's commands do what it says. (Its three minutes with OpenCode:
tests/opencode/test_tour.py.)"""

import os
import subprocess

import pytest

from support import tour
from support.installation import Installed
from support.round_trip import Repo

RUN_HERE = ("git daytona start", "daytona-token login")
RUN_ELSEWHERE = ("bin/demo", "git daytona install")
"""test_commands.py and .ci/run; test_tour.py."""


def typed(
    block: str, repo: Repo, env: dict[str, str], *, stdin: str = "", around: tuple[str, ...] = ()
) -> str:
    """Run a block in a shell that ends at the first command that fails; what was said."""
    argv = (*around, "bash", "-e", "-c", block)
    done = subprocess.run(
        argv,
        cwd=repo.path,
        env=os.environ | env,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_every_block_of_commands_is_run() -> None:
    assert sorted(
        next(word for word in (*RUN_HERE, *RUN_ELSEWHERE) if each.startswith(word))
        for each in tour.blocks()
    ) == sorted((*RUN_HERE, *RUN_ELSEWHERE))


def test_without_opencode(installed: Installed, repo: Repo) -> None:
    said = typed(
        tour.block("git daytona start"),
        repo,
        installed.environment,
        around=("daytona-local", "exec", "--"),
    )
    assert "session 1 started: sandbox " in said
    assert repo.show("opencode/1", "new.txt") == "made there"
    assert (repo.path / "new.txt").read_text() == "made there\n", "cp"


def test_with_a_key_of_ones_own(
    installed: Installed, repo: Repo, local, keyrings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAYTONA_API_KEY")
    said = typed(
        tour.block("daytona-token login"), repo, installed.environment, stdin=f"{local.api_key}\n"
    )
    assert local.api_key not in said
    assert "session 1 started: sandbox " in said
