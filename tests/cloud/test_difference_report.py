"""The run against an account, with a twin of another profile as the account's server: what is
printed, written and left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from git_daytona.local.core.registry import Timings
from git_daytona.local.server import LocalDaytona
from support import account
from support.waiting import until

ROOT = Path(__file__).parents[2]
SECONDS = 90.0
pytestmark = pytest.mark.skipif(
    account.from_variables(os.environ) is not None, reason="about the run itself, not the account"
)


class Clock:
    """The server's time, which a test may put back."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> float:
        return time.time() + self.ahead.total_seconds()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def theirs(tmp_path: Path, clock: Clock) -> Iterator[LocalDaytona]:
    """A server like 0.190, with a key of its own and without faults."""
    with LocalDaytona(
        tmp_path / "daytona",
        like="0.190",
        api_key="dtn_" + "5ec4e7" * 10,
        timings=Timings(clock=clock),
    ) as server:
        server.faults.gateway.lost_statuses = 0
        yield server


def start(
    theirs: LocalDaytona, report: Path, *arguments: str, **variables: str
) -> "subprocess.Popen[str]":
    """`bin/test tests/cloud` for that server's account, as far as the rows that are named go."""
    names = {
        "API_URL": theirs.api_url,
        "API_KEY": theirs.api_key,
        "REPORT": str(report),
        **variables,
    }
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST")
    }
    environment |= {account.VARIABLES + name: value for name, value in names.items()}
    argv = [
        sys.executable,
        "-I",
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        # Otherwise the run tidies up what earlier whole runs left in the common folder: a minute.
        f"--basetemp={report.parent / 'basetemp'}",
        "tests/cloud",
        *arguments,
    ]
    return subprocess.Popen(
        argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def run(theirs: LocalDaytona, report: Path, rows: str, **variables: str) -> tuple[int, str]:
    with start(theirs, report, "-k", rows, **variables) as process:
        out, _ = process.communicate(timeout=SECONDS)
    return process.returncode, out


def leftovers(theirs: LocalDaytona) -> list[str]:
    return [sandbox.name for sandbox in theirs.sandboxes if sandbox.state != "destroying"]


def test_a_difference_is_a_failed_row_and_stands_in_the_report(
    theirs: LocalDaytona, tmp_path: Path
) -> None:
    report = tmp_path / "differences.json"
    status, out = run(theirs, report, "gateway and config or heredoc")
    assert status == 1, out
    (difference,) = json.loads(report.read_text())
    assert difference["row"] == "/config: the gateway"
    assert (
        "sshGatewayHostKeys" in difference["twin"]
        and "sshGatewayHostKeys" not in difference["server"]
    )
    assert (
        "differences from the twin of 'cloud': 1 of 3 rows" in out
        and "REST: /config: the gateway" in out
    )
    assert theirs.api_key not in out + report.read_text()
    until(lambda: not leftovers(theirs), "the deletions")


def test_a_server_like_the_twin_has_no_difference(theirs: LocalDaytona, tmp_path: Path) -> None:
    report = tmp_path / "differences.json"
    status, out = run(theirs, report, "gateway and config or heredoc", LIKE="0.190")
    assert status == 0 and "differences from the twin of '0.190': 0 of 3 rows" in out, out
    assert json.loads(report.read_text()) == []


def test_a_probe_that_breaks_off_is_a_difference_without_secrets(
    theirs: LocalDaytona, tmp_path: Path
) -> None:
    report = tmp_path / "differences.json"
    with theirs.faults.call(
        route="process/execute", status=502, message=f"bad gateway for {theirs.api_key}"
    ):
        status, out = run(theirs, report, "heredoc", LIKE="0.190")
    assert status == 1, out
    assert [difference["row"] for difference in json.loads(report.read_text())] == ["a heredoc"]
    assert theirs.api_key not in out + report.read_text()


@pytest.mark.parametrize("wrong", ["key", "address"])
def test_a_wrong_account_is_an_error_without_secrets(
    theirs: LocalDaytona, tmp_path: Path, wrong: str
) -> None:
    key = "dtn_" + "bad" * 20
    variables = (
        {"API_KEY": key}
        if wrong == "key"
        else {"API_KEY": key, "API_URL": "http://127.0.0.1:1/api"}
    )
    status, out = run(theirs, tmp_path / "report", "heredoc", **variables)
    assert status == 1, out
    assert ("Invalid credentials" if wrong == "key" else "Connection refused") in out
    assert key not in out


def test_an_interrupt_leaves_no_sandbox(theirs: LocalDaytona, tmp_path: Path) -> None:
    with (
        theirs.faults.call(route="process/execute", hang=True) as fault,
        start(theirs, tmp_path / "report", "-k", "heredoc") as run,
    ):
        assert fault.reached.wait(SECONDS)
        assert leftovers(theirs)
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=SECONDS)
    until(lambda: not leftovers(theirs), "the deletions")


def test_what_an_earlier_run_left_is_deleted_once_it_is_old(
    theirs: LocalDaytona, clock: Clock, tmp_path: Path
) -> None:
    headers = {"Authorization": f"Bearer {theirs.api_key}"}
    with httpx.Client(base_url=theirs.api_url, headers=headers, trust_env=False, timeout=20) as api:
        for name, hours, labels in (
            ("old", -2, {account.RUN: "earlier", **account.PURPOSE}),
            ("young", 0, {account.RUN: "another", **account.PURPOSE}),
            ("old-of-others", -2, {"some": "label"}),
        ):
            clock.ahead = timedelta(hours=hours)
            answer = api.post(
                "/sandbox", json={"name": name, "labels": labels, "autoStopInterval": 0}
            )
            assert answer.status_code == 200, answer.text
        clock.ahead = timedelta()
        run(theirs, tmp_path / "report", "heredoc", LIKE="0.190")
        until(lambda: sorted(leftovers(theirs)) == ["old-of-others", "young"], "the deletions")


def test_half_an_account_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="belong together"):
        account.from_variables({"DAYTONA_CONFORMANCE_API_URL": "http://127.0.0.1:1"})
    assert (
        account.from_variables(
            {"DAYTONA_API_KEY": "not for us", "DAYTONA_API_URL": "http://127.0.0.1:1"}
        )
        is None
    )
