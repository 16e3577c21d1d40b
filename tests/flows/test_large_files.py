"""Files of 50 MB in and out, on each kind of server: by ``cp`` and by the agent's tools."""

import hashlib
import random

import pytest

from git_daytona.local.core.profile import PROFILES
from git_daytona.local.server import LocalDaytona
from support.round_trip import trust_by_hand
from support.tool_context import RealContext, Toolbox

SIZE = 50 * 1024 * 1024


@pytest.fixture(scope="module", params=sorted(PROFILES))
def server(request, tmp_path_factory):
    with LocalDaytona(tmp_path_factory.mktemp("daytona"), like=request.param) as running:
        yield running


@pytest.fixture
def session(local, repo, begin, tmp_path, monkeypatch):
    trust_by_hand(local, tmp_path, monkeypatch)
    return begin(repo, "ses_large")


def digest(session, path: str) -> str:
    return session.agent(f"sha256sum <{path}").split()[0]


def test_cp_in_and_out(session, repo, command, tmp_path):
    large = tmp_path / "large"
    large.write_bytes(random.Random(1).randbytes(SIZE))
    said = hashlib.sha256(large.read_bytes()).hexdigest()
    done = command("git-daytona", "cp", str(large), "1:there", cwd=repo.path)
    assert done.status == 0, done.err
    assert digest(session, "there") == said
    done = command("git-daytona", "cp", "1:there", str(tmp_path / "back"), cwd=repo.path)
    assert done.status == 0, done.err
    assert hashlib.sha256((tmp_path / "back").read_bytes()).hexdigest() == said
    assert "git-daytona" not in session.agent("ls -A /tmp")


def test_write_and_apply_patch(session, repo):
    tools = Toolbox(RealContext(session.coordinator, "ses_large", str(repo.path)))
    line = "0123456789abcdef" * 16
    content = f"{line}\n" * (SIZE // (len(line) + 1))
    tools("write", filePath="written.txt", content=content)
    added = "".join(f"+{line}\n" for line in content.splitlines())
    tools(
        "apply_patch", patchText=f"*** Begin Patch\n*** Add File: patched.txt\n{added}*** End Patch"
    )
    said = hashlib.sha256(content.encode()).hexdigest()
    assert (digest(session, "written.txt"), digest(session, "patched.txt")) == (said, said)
