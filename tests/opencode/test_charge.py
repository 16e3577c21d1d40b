"""Which OpenCode the plugin is in charge of: what the plugin, ``doctor`` and ``status`` say of one
that runs."""

import json
import os
from pathlib import Path

import pytest

from git_daytona.service import charge
from support.opencode_hosts import mostly_opencode_2
from support.waiting import until


def confined(tell, place: Path) -> tuple[str, str]:
    """What doctor says of it."""
    told = tell("git-daytona", "doctor", "--json", cwd=place)
    [row] = [row for row in json.loads(told.out) if row["check"] == "confined"]
    return row["status"], row["detail"]


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """A process of any age counts."""
    monkeypatch.setattr(charge, "STARTING_SECONDS", 0.0)


@mostly_opencode_2
def test_an_opencode_with_the_plugin(opencode, model, repo, tell):
    server = opencode.serve(repo.path)
    server.prompt(server.session(), "hello")
    [stamp] = until(charge.stamps)
    assert stamp.pid == server.process.pid
    assert stamp.version.startswith(str(opencode.major))
    assert Path(stamp.directory) == repo.path and stamp.project
    assert {opencode.named("bash"), "read", "gitSync"} <= set(stamp.tools)
    status, detail = confined(tell, repo.path)
    assert status == "ok" and f"(process {stamp.pid})" in detail, detail
    assert tell("git-daytona", "status", "--offline", cwd=repo.path).status == 0
    opencode.close()
    until(lambda: not charge.stamps())
    assert confined(tell, repo.path) == ("ok", "no OpenCode runs here now")
    assert list((Path(os.environ["XDG_STATE_HOME"]) / "git-daytona/in-charge").glob("*.json")) == []


@mostly_opencode_2
def test_an_opencode_without_it(opencode, model, repo, tell):
    del opencode.config["plugin"][0]
    server = opencode.serve(repo.path)
    server.prompt(server.session(), "hello")
    status, detail = confined(tell, repo.path)
    assert status == "fail" and f"process {server.process.pid}" in detail, detail
    told = tell("git-daytona", "status", "--offline", cwd=repo.path)
    assert told.status == 20 and "[unconfined]" in told.err
