"""5. A long life: 500 turns of one session and 100 sessions made and deleted, by one service. What
stays of each is bounded."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path

import pytest

from support.measure import memory
from support.plugin_calls import Api
from support.round_trip import Repo
from support.separate_server import Apart
from support.service import Service
from support.suite import coordinator

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]

TURNS = (100, 500)
SESSIONS = (20, 100)
MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Kept:
    """What there is after so many turns or sessions."""

    refs: int
    packs: int
    files: int
    """In .git, objects apart."""
    state_bytes: int
    records: int
    """Files of the suite's own: locks, leases, marks, stamps, pins."""
    temporary: int
    memory: float
    """MB of the service."""
    sandbox_files: int
    """In the sandbox's .git, loose objects apart, and its /tmp."""
    sandbox_loose: int = 0
    """Loose objects there."""


def look(
    repo: Repo, service: Service, tmp: Path, sandbox_files: int, sandbox_loose: int = 0
) -> Kept:
    git = repo.path / ".git"
    own = Path(os.environ["XDG_STATE_HOME"])
    return Kept(
        refs=len(repo.git("for-each-ref").splitlines()),
        packs=len(list(git.glob("objects/pack/*.pack"))),
        files=sum(each.is_file() and "objects" not in each.parts for each in git.rglob("*")),
        state_bytes=state_file(repo).stat().st_size,
        records=sum(1 for each in own.rglob("*") if each.is_file()),
        temporary=sum(1 for _ in tmp.iterdir()),
        memory=memory(service.process.pid, "VmRSS") / MEGABYTE,
        sandbox_files=sandbox_files,
        sandbox_loose=sandbox_loose,
    )


def state_file(repo: Repo) -> Path:
    return coordinator(repo).state.path


def show(part, unit: str, counts: tuple[int, int], first: Kept, last: Kept, bounds: Kept) -> None:
    names = Kept.__dataclass_fields__
    for name, before, after, bound in zip(
        names, astuple(first), astuple(last), astuple(bounds), strict=True
    ):
        part.count(
            f"{name} more after {counts[1]} {unit} than after {counts[0]}",
            after - before,
            at_most=bound,
            detail=f"{before:g} : {after:g}",
        )


@pytest.fixture
def tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """TMPDIR, empty."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    return place


@pytest.fixture
def serving(daytona: Apart, make_repo, tmp: Path):
    repo = make_repo("repository", files=3)
    service = Service(repo)
    yield repo, service
    service.close()


def test_many_turns(daytona: Apart, serving, tmp: Path, table) -> None:
    repo, service = serving
    seen = []
    for number in range(1, max(TURNS) + 1):
        service.tool("ses_a", "bash", command=f"echo {number} >changed.txt", description="change")
        answer = service.tool("ses_a", "gitSync")
        assert "opencode/1 is at" in json.dumps(answer), answer
        if number in TURNS:
            there = service.tool(
                "ses_a",
                "bash",
                command="find .git /tmp -type f | grep -vc '/objects/../';"
                " find .git -type f | grep -c '/objects/../'",
                description="count",
            )
            seen.append(look(repo, service, tmp, *map(int, there["output"].split())))
    part = table.part("5. a long life: turns of one session")
    bounds = Kept(
        refs=0,
        packs=50,
        files=5,
        state_bytes=100,
        records=2,
        temporary=0,
        memory=5,
        sandbox_files=80,
        sandbox_loose=28 * 256,  # then git packs them
    )
    show(part, "turns", TURNS, *seen, bounds)


def test_many_sessions(daytona: Apart, serving, tmp: Path, table) -> None:
    repo, service = serving
    api, sessions, seen = Api(daytona), state_file(repo), []
    for number in range(1, max(SESSIONS) + 1):
        name = f"ses_{number}"
        service.tool(name, "bash", command="echo 1 >changed.txt", description="change")
        service.event("session.deleted", info={"id": name})
        until(lambda: not json.loads(sessions.read_bytes())["sessions"])
        if number in SESSIONS:
            seen.append(look(repo, service, tmp, len(api.call("GET", "/sandbox")["items"])))
    assert len(repo.git("branch", "--list", "opencode/*").splitlines()) == max(SESSIONS)
    part = table.part("5. a long life: sessions made and deleted")
    more = max(SESSIONS) - min(SESSIONS)
    bounds = Kept(
        refs=more,  # the branches
        packs=50,
        files=2 * more,  # and their logs
        state_bytes=100,
        records=2,
        temporary=0,
        memory=5,
        sandbox_files=0,
    )
    show(part, "sessions", SESSIONS, *seen, bounds)


def until(condition: Callable[[], bool]) -> None:
    """Wait for what no event tells of: another process's file."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
