"""`git daytona install, uninstall, doctor --agent`: what people see, and what becomes of the
agents' configuration."""

import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from git_daytona.agents.table import AGENTS

PROJECT = [name for name in AGENTS if name != "goose"]


def tree(*roots: Path) -> dict[str, bytes]:
    """All files, and folders that are empty; git's and our own apart."""
    return {
        str(path): path.read_bytes() if path.is_file() else b""
        for root in roots
        for path in root.rglob("*")
        if not {".git", "opencode", ".local", ".cache"} & set(path.parts)
        and (path.is_file() or not any(path.iterdir()))
    }


def test_side_by_side_and_back(tell, repo, home):
    (repo.path / ".claude").mkdir()
    mine = '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]}} // x\n'
    (repo.path / ".claude" / "settings.local.json").write_text(mine)
    (repo.path / ".codex").mkdir()
    (repo.path / ".codex" / "config.toml").write_text('# mine\nmodel = "x" # yes')
    (home / ".config" / "goose").mkdir(parents=True)
    (home / ".config" / "goose" / "config.yaml").write_text("extensions:\n  a: {enabled: true}\n")
    before = tree(repo.path, home)
    for name in PROJECT:
        shown = tell("git-daytona", "install", "--agent", name, "--project", "-n", cwd=repo.path)
        assert shown.status == 0
        assert ("hook pre-tool --agent" in shown.out) or "agents/pi/index.js" in shown.out
        assert "would be written" in shown.err or "would be changed" in shown.err
        assert tree(repo.path, home) == before
    for name in PROJECT:
        done = tell("git-daytona", "install", "--agent", name, "--project", cwd=repo.path)
        assert done.status == 0 and "doctor --agent" in done.err
    for name in AGENTS:
        done = tell("git-daytona", "install", "--agent", name, "--global")
        assert done.status == 0, done.err
        again = tell("git-daytona", "install", "--agent", name, "--global")
        assert (again.status, again.out) == (0, "") and "nothing to do" in again.err
        checked = tell("git-daytona", "doctor", "--agent", name, cwd=repo.path)
        assert checked.status == 0, checked.out
        assert "ok      set up" in checked.out and "warn    not covered" in checked.out
        assert re.search(f"ok +tried +{re.escape(AGENTS[name].title)}", checked.out)
    assert "mine" in (repo.path / ".claude" / "settings.local.json").read_text()
    assert not (repo.path / "opencode.json").exists()
    for name in sorted(AGENTS):
        assert tell("git-daytona", "uninstall", "--agent", name, "--global").status == 0
    for name in sorted(PROJECT, reverse=True):
        words = ("uninstall", "--agent", name, "--project")
        assert tell("git-daytona", *words, cwd=repo.path).status == 0
        more = tell("git-daytona", *words, cwd=repo.path)
        assert more.status == 1 and "there is nothing of git-daytona" in more.err
    assert tree(repo.path, home) == before


def test_goose_has_no_configuration_of_a_project(tell, repo):
    told = tell("git-daytona", "install", "--agent", "goose", "--project", cwd=repo.path)
    assert told.status == 2 and "--global" in told.complaint[1]


def test_an_agent_that_nobody_knows(tell, repo):
    assert tell("git-daytona", "install", "--agent", "nobody", cwd=repo.path).status == 2


def test_where_an_agent_says_its_configuration_is(tell, tmp_path, monkeypatch):
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    for name in ("codex", "claude"):
        assert tell("git-daytona", "install", "--agent", name, "--global").status == 0
    server = tomllib.loads((tmp_path / "codex" / "config.toml").read_text())["mcp_servers"]
    assert "DAYTONA_API_KEY" in server["daytona"]["env_vars"]
    assert (tmp_path / "claude" / ".claude.json").exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("claude", b"{"),
        ("claude", b'{"hooks": 1}'),
        ("claude", b"\xff"),
        ("codex", b"a = "),
        ("codex", b"mcp_servers = {}"),
        ("goose", b"a: {"),
        ("goose", b"extensions: {a: {}}"),
    ],
)
def test_files_that_cannot_be_edited(tell, home, name, text):
    place = {
        "claude": home / ".claude" / "settings.json",
        "codex": home / ".codex" / "config.toml",
        "goose": home / ".config" / "goose" / "config.yaml",
    }[name]
    place.parent.mkdir(parents=True)
    place.write_bytes(text)
    before = tree(home)
    told = tell("git-daytona", "install", "--agent", name, "--global")
    assert told.status != 0 and str(place) in told.complaint[0]
    assert tree(home) == before
    assert tell("git-daytona", "doctor", "--agent", name).status == 1


def test_a_link_stays_a_link(tell, home, tmp_path):
    real = tmp_path / "settings.json"
    real.write_text("{}\n")
    (home / ".claude").mkdir()
    (home / ".claude" / "settings.json").symlink_to(real)
    for verb in ("install", "uninstall"):
        assert tell("git-daytona", verb, "--agent", "claude", "--global").status == 0
    assert (home / ".claude" / "settings.json").is_symlink() and real.read_text() == "{}\n"


def findings(tell, name, place):
    told = tell("git-daytona", "doctor", "--agent", name, "--json", cwd=place)
    return told.status, {each["check"]: each for each in json.loads(told.out)}


def test_what_doctor_finds(tell, repo, home):
    status, found = findings(tell, "claude", repo.path)
    assert status == 1 and "not set up" in found["set up"]["detail"]
    assert found["shell"]["status"] == "skipped"
    assert tell("git-daytona", "install", "--agent", "claude", "--global").status == 0
    status, found = findings(tell, "claude", repo.path)
    assert status == 0 and found["shell"]["status"] == "ok" and "Bash" in found["shell"]["detail"]

    (home / ".claude.json").rename(home / "away")
    status, found = findings(tell, "claude", repo.path)
    assert status == 1 and ".claude.json' lacks" in found["set up"]["detail"], "half of it"
    (home / "away").rename(home / ".claude.json")

    settings = home / ".claude" / "settings.json"
    whole = settings.read_text()
    settings.write_text(whole.replace("{\n", '{\n  "disableAllHooks": true,\n', 1))
    status, found = findings(tell, "claude", repo.path)
    assert status == 1 and "disableAllHooks" in found["set up"]["detail"]
    settings.write_text(whole)
    (repo.path / ".claude").mkdir()
    (repo.path / ".claude" / "settings.json").write_text('{"disableAllHooks": true}')
    status, found = findings(tell, "claude", repo.path)
    assert status == 1 and "disableAllHooks" in found["set up"]["detail"], "a stranger's"
    words = ("--agent", "claude", "--project")
    assert tell("git-daytona", "install", *words, cwd=repo.path).status == 0
    assert findings(tell, "claude", repo.path)[0] == 0
    assert tell("git-daytona", "uninstall", *words, cwd=repo.path).status == 0
    (repo.path / ".claude" / "settings.json").unlink()
    (repo.path / ".claude").rmdir()
    settings.write_text(whole.replace("--agent claude ||", "--agent other ||"))
    status, found = findings(tell, "claude", repo.path)
    assert status == 1 and "another version" in found["set up"]["detail"]
    settings.write_text(whole)

    strange = {"mcpServers": {"daytona": {"command": "daytona", "args": ["mcp", "start"]}}}
    (repo.path / ".mcp.json").write_text(json.dumps(strange))
    status, found = findings(tell, "claude", repo.path)
    assert status == 1 and "another MCP server" in found["mcp server"]["detail"]
    told = tell("git-daytona", "install", "--agent", "claude", "--project", cwd=repo.path)
    assert told.status != 0 and "has another 'mcpServers.daytona'" in told.complaint[0]
    assert not (repo.path / ".claude").exists(), "nothing was changed"
    (repo.path / ".mcp.json").unlink()

    repo.git("config", "daytona.allowHostTools", "Read")
    status, found = findings(tell, "claude", repo.path)
    assert status == 0 and found["own tools"]["status"] == "warn"
    assert "Read" in found["own tools"]["detail"]


def test_an_agent_whose_shell_cannot_be_redirected_is_named(tell, repo):
    tell("git-daytona", "install", "--agent", "goose", "--global")
    status, found = findings(tell, "goose", repo.path)
    assert status == 0 and found["shell"]["status"] == "warn"
    assert "cannot redirect" in found["shell"]["detail"]


def test_a_strange_place(tell, home, tmp_path, monkeypatch):
    """Neither a HOME with odd characters nor no repository hinders it."""
    odd = tmp_path / 'it\'s "odd" \\ here'
    shutil.copytree(home, odd)
    monkeypatch.setenv("HOME", str(odd))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(odd / ".config"))
    assert tell("git-daytona", "install", "--agent", "codex", "--global").status == 0
    assert tell("git-daytona", "doctor", "--agent", "codex", cwd=tmp_path).status == 0
    assert [each.name for each in (odd / ".codex").iterdir()] == ["config.toml"]
