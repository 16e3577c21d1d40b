"""`git daytona doctor --live`: the real OpenCode, as it is set up here, with the command's own
model and Daytona."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from git_daytona.doctor import live
from git_daytona.doctor.findings import Status
from git_daytona.doctor.live import Done, Plan
from git_daytona.opencode import registration
from support.opencode_hosts import mostly_opencode_2, only_opencode_2, packages
from support.program import Told
from support.round_trip import Repo
from support.round_trip import program as executable

pytestmark = pytest.mark.timeout(240)  # OpenCode's own limit here is two minutes
Tell = Callable[..., Told]
Look = Callable[[], tuple[str, str, str]]
IN_CHARGE = "acted in a sandbox, its work came back, and nothing happened here"


def program(folder: Path, script: str) -> Path:
    """An ``opencode`` that comes first on PATH."""
    return executable(folder / "opencode", f"#!/bin/sh\n{script}\n")


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    monkeypatch.setenv("TMPDIR", str(place))
    return place


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "tools"


def environments() -> Iterator[bytes]:
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield (process / "environ").read_bytes()


@pytest.fixture
def look(tell: Tell, repo: Repo, home: Path, scratch: Path) -> Look:
    """The command's row: status, detail and hint. Nothing is left, whatever it is."""

    def run() -> tuple[str, str, str]:
        before = repo.git("status", "--porcelain", "--ignored")
        told = tell("git-daytona", "doctor", "--live", "--json", cwd=repo.path)
        rows = json.loads(told.out)
        assert rows[-1]["check"] == "live"
        assert told.status == int(any(each["status"] == "fail" for each in rows))
        assert repo.git("status", "--porcelain", "--ignored") == before
        # of the run; what `opencode --version` unpacks, OpenCode itself leaves there
        assert [*scratch.glob("git-daytona*"), *scratch.glob(".bun-*.node")] == []
        assert not any(str(scratch).encode() in each for each in environments())
        assert not list(home.glob(".local/share/*/opencode.db")), "sessions of the user's"
        return rows[-1]["status"], rows[-1]["detail"], rows[-1]["hint"] or ""

    return run


@pytest.fixture
def opencode(release: str, binary: Path, tools: Path, home: Path) -> Path:
    """It is on PATH; its configuration for all projects. (The folder of the one from npm that
    stands for OpenCode 2 is named after its program.)"""
    program(tools, f"exec '{binary}' \"$@\"")
    config = home / ".config/opencode"
    config.mkdir(parents=True, exist_ok=True)
    if binary.name != "opencode":
        (home / ".config" / binary.name).symlink_to(config)
    packages(release, config)
    return config / "opencode.json"


@pytest.fixture
def installed(opencode: Path, tell: Tell) -> Path:
    """The same, as ``install --global`` leaves it."""
    assert tell("git-daytona", "install", "--global").status == 0
    return opencode


# -- in charge -------------------------------------------------------------------------------------


@mostly_opencode_2
def test_installed_for_all_projects(installed: Path, look: Look, release: str) -> None:
    status, detail, _ = look()
    assert status == "ok", detail
    assert release in detail and IN_CHARGE in detail


@only_opencode_2
def test_installed_for_this_project(opencode: Path, look: Look, tell: Tell, repo: Repo) -> None:
    assert tell("git-daytona", "install", "--project", cwd=repo.path).status == 0
    status, detail, _ = look()
    assert status == "ok", detail


# -- not in charge ---------------------------------------------------------------------------------


@mostly_opencode_2
def test_not_installed(opencode: Path, look: Look) -> None:
    status, detail, hint = look()
    assert status == "fail"
    assert "acted on this machine: its '" in detail and detail.endswith("made a file here")
    assert "run no agent here" in hint and "git daytona install" in hint


@only_opencode_2
def test_named_by_its_old_path(opencode: Path, look: Look) -> None:
    old = registration.PLUGIN.with_name("daytona.js").as_uri()
    opencode.write_text(json.dumps({"plugin": [old]}))
    status, detail, _ = look()
    assert status == "fail" and "acted on this machine" in detail


@only_opencode_2
def test_old_path_and_closed(installed: Path, look: Look) -> None:
    """The rules that ``install`` writes hold without the plugin."""
    old = registration.PLUGIN.with_name("daytona.js").as_uri()
    installed.write_text(installed.read_text().replace(registration.entry(), old))
    status, detail, hint = look()
    assert status == "fail", detail
    assert "neither in a sandbox nor here" in detail
    assert hint == live.AGAIN


@only_opencode_2
def test_switched_off_by_the_repository(installed: Path, look: Look, repo: Repo) -> None:
    repo.write("opencode.json", json.dumps({"plugin": ["-git-daytona"]}))
    status, detail, _ = look()
    assert status == "fail" and "neither in a sandbox nor here" in detail


@only_opencode_2
def test_no_service(installed: Path, look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAYTONA_SERVICE_BINARY", "/nowhere/git-daytona")
    status, detail, _ = look()
    assert status == "fail", detail
    assert "acted on this machine" not in detail and "Daytona is not available" in detail


# -- an OpenCode that does not run -----------------------------------------------------------------


def test_no_opencode(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = os.environ["PATH"].split(os.pathsep)
    without = [it for it in folders if not (Path(it) / "opencode").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join(without))
    assert look()[:2] == ("fail", "OpenCode is not on PATH")


def test_one_that_hangs(look: Look, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "RUN_SECONDS", 1.0)
    script = "[ \"$1\" = --version ] && echo 1.18.33 && exit\ntrap '' TERM\nsleep 300 & wait; wait"
    program(tools, script)
    begin = time.monotonic()
    status, detail, hint = look()
    assert time.monotonic() - begin < 60
    assert (status, detail) == ("fail", "OpenCode 1.18.33 did not finish within 1 seconds")
    assert "opencode run hello" in hint


def test_one_that_breaks(look: Look, tools: Path) -> None:
    program(tools, '[ "$1" = --version ] && echo 1.18.33 && exit\necho it is broken >&2; exit 3')
    status, detail, _ = look()
    assert status == "fail"
    assert detail.endswith("ended without asking the model (status 3: it is broken)")


# -- what no OpenCode does on demand ---------------------------------------------------------------


@pytest.fixture
def plan(repo: Repo) -> Plan:
    """All was well."""
    return Plan(repo.path, offered={"shell", "read", "gitSync", "webfetch"}, results=["", ""])


def test_a_tool_that_nobody_knows(plan: Plan, repo: Repo) -> None:
    done = Done("2.9.0", sandboxes=1, returned=True)
    assert live.verdict(plan, done).status is Status.OK
    plan.offered |= {"browser_open", "notes_add"}
    seen = live.verdict(plan, done)
    assert seen.status is Status.FAIL and "offers 'browser_open'" in seen.detail
    repo.git("config", "daytona.allowHostTools", "browser_open")
    assert "offers 'notes_add'" in live.verdict(plan, done).detail
    config = registration.global_files()[1]
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('{"mcp": {"notes": {"type": "local", "command": ["notes"]}}}')
    assert live.verdict(plan, done).status is Status.OK
    plan.offered = {"bash", "read", "lsp"}  # OpenCode 1, where the call is refused
    assert live.verdict(plan, done).status is Status.OK


def test_the_canary_reached_the_model(plan: Plan) -> None:
    done = Done("2.9.0", sandboxes=1, returned=True)
    message = {"role": "tool", "content": f"1: {plan.canary}"}
    plan.answer(json.dumps({"messages": [message], "tools": []}).encode())
    seen = live.verdict(plan, done)
    assert seen.status is Status.FAIL and "it read a file for the model" in seen.detail


def test_work_that_does_not_come_back(plan: Plan) -> None:
    seen = live.verdict(plan, Done("2.9.0", sandboxes=1))
    assert seen.status is Status.FAIL and "did not come back on 'opencode/1'" in seen.detail
