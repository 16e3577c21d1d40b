"""One OpenCode for all tests of a file, which imports these fixtures: for what its HTTP API does,
since a start costs seconds. A test's own configuration is its repository's."""

from pathlib import Path

import pytest

from git_daytona.local.server import LocalDaytona
from support.opencode_hosts import OpenCode
from support.scripted_model import Model
from support.waiting import until


@pytest.fixture(scope="module")
def home_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def opencode(kept: OpenCode, local: LocalDaytona) -> OpenCode:
    until(lambda: local.live_tokens() == 0, "the end of what the test before has begun")
    local.forget_calls()
    kept.forget()
    return kept


@pytest.fixture
def model(opencode: OpenCode) -> Model:
    return opencode.model
