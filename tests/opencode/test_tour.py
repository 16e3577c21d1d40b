"""The README's three minutes as they stand there: the wheel installed, an empty HOME, the real
OpenCode, an embedded Daytona."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import tour
from support.installation import Installed
from support.opencode_hosts import host, mostly_opencode_2, only_opencode_2, packages
from support.plugin import state
from support.round_trip import Repo
from support.scripted_model import Model
from support.waiting import until


@pytest.fixture
def environment(
    installed: Installed,
    release: str,
    binary: Path,
    database: list[Path],
    model: Model,
    home: Path,
) -> Iterator[dict[str, str]]:
    """A user who has OpenCode with a model, git with colours, and this program from the wheel."""
    data = home / ".local/share/opencode"
    data.mkdir(parents=True)
    for path in database:
        shutil.copy(path, data)
    programs = home / "programs"
    programs.mkdir()
    (programs / "opencode").symlink_to(binary.resolve())
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
    packages(release, home / ".config/opencode")
    for name in {"opencode", binary.name}:
        folder = home / ".config" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "opencode.json").write_text(json.dumps(configuration))
    (home / "models.json").write_text("{}")
    with (home / ".gitconfig").open("a") as config:
        config.write("[color]\n\tui = always\n[core]\n\tpager = cat\n")
    made = {
        **os.environ,
        **installed.environment,
        "PATH": f"{installed.bin}:{programs}:{os.environ['PATH']}",
        "BUN_TMPDIR": str(home),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_MODELS_PATH": str(home / "models.json"),
        "COLUMNS": str(tour.COLUMNS),
    }
    yield made
    if host(release).major == 2:  # the tour leaves its background service
        stop = ("opencode", "service", "stop")
        subprocess.run(stop, env=made, cwd=home, check=True, capture_output=True, timeout=30)


@mostly_opencode_2
def test_the_tour_of_the_readme(
    environment: dict[str, str],
    model: Model,
    release: str,
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
    model.dialect = host(release).dialect

    def records():
        return state(repo)["sessions"].values()

    def came(command: str) -> None:
        """Wait as a person does who reads: OpenCode 2's command ends before the work is here."""
        if command.startswith("opencode run"):
            until(lambda: {it["gitReturn"]["state"] for it in records()} == {"synced"})

    steps = tour.take(environment, repo.path, came)
    said = {step.command: step.output for step in steps}
    assert {step.command: step.status for step in steps} == dict.fromkeys(said, 0), said
    assert "HELLO" in said["git daytona diff 1"]
    assert "Hello from the sandbox!" in (repo.path / "HELLO").read_text(), "merged"
    assert "opencode/1" in said["git daytona status"]
    assert repo.git("branch", "--list", "opencode/1"), "the branch stays"

    if release != "1.18.34":
        return  # the picture shows what that prints
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


@only_opencode_2
def test_a_background_service_of_another_environment(
    environment: dict[str, str], model: Model, repo: Repo
) -> None:
    """OpenCode 2's service keeps the Daytona of the shell that started it: that is said, by
    ``daytona-local exec`` at both ends, and by doctor."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        env = environment | {"PWD": str(repo.path)}
        return subprocess.run(
            words, cwd=repo.path, env=env, capture_output=True, text=True, timeout=90
        )

    assert run("git", "daytona", "install", "--project").returncode == 0
    first = run("daytona-local", "exec", "--", "opencode", "run", "hello")
    assert "background service" in first.stderr and "may still point" in first.stderr, first.stderr
    second = run("daytona-local", "exec", "--", "git", "daytona", "doctor", "--json")
    assert "does not see this Daytona" in second.stderr
    [row] = [row for row in json.loads(second.stdout) if row["check"] == "confined"]
    assert row["status"] == "warn" and "DAYTONA_API_URL" in row["detail"], row
    assert "--standalone" in row["hint"]

    model.dialect = host("2.0.14").dialect
    model.scripts["look"] = [[("bash", {"command": "ls"})], "ok"]
    assert run("opencode", "run", "look").returncode == 0
    [told] = model.results("look")
    assert "cannot reach Daytona at" in told and "opencode service stop" in told
