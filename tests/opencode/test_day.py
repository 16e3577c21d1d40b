"""A day's work, in the real OpenCode: three sessions in parallel, one conflict, one pull request,
one stop and resume."""

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.opencode_hosts import OpenCode
from support.plugin import state
from support.program import Told
from support.round_trip import Repo, program
from support.scripted_model import Model
from support.waiting import until


@pytest.mark.parametrize("release", ["1.18.34"], indirect=True, scope="session")
def test_a_day(
    opencode: OpenCode,
    model: Model,
    repo: Repo,
    tell: Callable[..., Told],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def git_daytona(*words: str, status: int = 0) -> Told:
        done = tell("git-daytona", *words, cwd=repo.path)
        assert done.status == status, (words, done.out, done.err)
        return done

    def is_synced(session: str) -> bool:
        record = state(repo)["sessions"].get(session, {})
        if record.get("gitReturn", {}).get("state") != "synced":
            return False
        return bool(record["syncedAt"] >= record["lastAccessed"])

    def synced(*ids: str) -> None:
        """Wait until what the sessions did is here."""
        until(lambda: all(map(is_synced, ids)))

    def says(words: str, line: str) -> None:
        model.scripts[words] = [
            [("bash", {"command": line, "description": "work"})],
            "It is done.",
        ]

    origin = Repo(tmp_path / "origin.git")
    origin.path.mkdir()
    origin.git("init", "-q", "--bare")
    repo.git("remote", "add", "origin", str(origin.path))
    program(tmp_path / "bin/gh", f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path / "gh"}\n')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    model.title = "Improve the greeting"
    says("add a farewell", "echo bye > BYE")
    says("shout", "echo HELLO > README")
    says("translate", "echo bonjour > README")

    server = opencode.serve(repo.path)
    prompts = ("add a farewell", "shout", "translate")
    sessions = {words: server.session() for words in prompts}
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda words: server.prompt(sessions[words], words), prompts))
    synced(*sessions.values())
    numbers = {
        words: str(state(repo)["sessions"][id_]["branchNumber"]) for words, id_ in sessions.items()
    }
    farewell, shout, translate = (numbers[words] for words in prompts)
    assert set(numbers.values()) == {"1", "2", "3"}
    assert git_daytona("status", "--porcelain").out.count("\tsynced\t") == 3
    assert repo.git("log", "-1", "--format=%s", "opencode/1") == "Improve the greeting"

    # one is merged, one becomes a pull request
    git_daytona("merge", shout, "--no-edit")
    git_daytona("pr", farewell, "--draft")
    assert "--title\nImprove the greeting\n" in (tmp_path / "gh").read_text()
    assert origin.git("show", f"opencode/{farewell}-improve-the-greeting:BYE") == "bye"

    # the third one does not fit any more: its agent is to see to that
    assert "conflicts in the sandbox: README" in git_daytona("update", translate, status=10).err
    says("resolve it", "echo 'HELLO, bonjour' > README; git commit -qam 'Resolve it'")
    server.prompt(sessions["translate"], "resolve it")
    synced(sessions["translate"])
    git_daytona("merge", translate, "--no-edit")
    assert (repo.path / "README").read_text() == "HELLO, bonjour\n"

    # a break: asleep, and awake again by the next word
    assert git_daytona("stop", farewell).out.endswith("stopped\n")
    assert git_daytona("resume", farewell).out == "started\n"
    git_daytona("stop", farewell)
    says("once more", "echo 'bye bye' > BYE")
    server.prompt(sessions["add a farewell"], "once more")
    synced(sessions["add a farewell"])
    git_daytona("merge", "--squash", farewell)
    assert (repo.path / "BYE").read_text() == "bye bye\n"
    assert repo.git("log", "-1", "--format=%an %s") == "A Developer Improve the greeting"
    rows = json.loads(git_daytona("status", "--json").out)
    merged = {str(row["number"]): row["merged"] for row in rows}
    assert merged == {farewell: False, shout: True, translate: True}
