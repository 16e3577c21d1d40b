"""What a sandbox gets beside the repository: devcontainer.json with consent, daytona.copyFiles."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from git_daytona.local.server import LocalDaytona
from git_daytona.sessions import consent
from git_daytona.sessions.provision import DONE, FAILED, RUNNING, WAITING
from git_daytona.sessions.state import SetUp
from support.processes import until
from support.program import Told
from support.round_trip import Repo, Session, execute, stop

FILE = ".devcontainer/devcontainer.json"
PROJECT = """{
  // as people write it
  "image": "node:22", "features": {},
  "onCreateCommand": ["sh", "-c", "echo \\"$0 made\\" >made", "${containerWorkspaceFolder}"],
  "postCreateCommand": {"one": "echo one >one", "two": "sleep 0.1; echo two >two"},
  "postStartCommand": "echo started >>starts",
  "containerEnv": {"COLOUR": "deep 'blue'", "UP": "${containerEnv:HOME}/up"},
  "remoteEnv": {"TOKEN": "${localEnv:CANARY}", "PATH": "${containerEnv:PATH}:/tools",
    "KEY": "${localEnv:DAYTONA_API_KEY}",},
  "forwardPorts": [3000, "db:5432"],
}
"""


def allowed(session: Session) -> None:
    provision = session.coordinator.provision
    plan = provision.plan("HEAD")
    assert plan is not None
    consent.allow(session.coordinator.git_dir, plan)


def setup(session: Session) -> SetUp:
    return session.coordinator.find(session.name).setup


def ended(session: Session) -> bytes:
    """Wait for the end of the set-up; return its output."""
    shown: list[bytes] = []
    coordinator = session.coordinator
    coordinator.provision.follow(coordinator.find(session.name), shown.append)
    return b"".join(shown)


def test_consent_set_up_and_variables(
    repo: Repo,
    begin: Callable[..., Session],
    local: LocalDaytona,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CANARY", "canary-4711")
    repo.commit(".gitignore", "made\none\ntwo\nstarts\n")
    repo.commit(FILE, PROJECT)
    session = begin(repo)
    assert setup(session).state == WAITING
    assert "not allowed it" in execute(session.coordinator, session.name, "ls")[1]
    assert session.agent("ls").split() == ["README"]

    allowed(session)
    session.agent("true")
    ended(session)
    assert (setup(session).state, setup(session).run) == (DONE, 1)
    assert session.agent("cat made one two starts").splitlines() == [
        "/home/daytona/project made",
        "one",
        "two",
        "started",
    ]
