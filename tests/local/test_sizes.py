"""What a sandbox of the embedded Daytona is ordered with: its size, and variables that would act on
the programs around it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from daytona import CreateSandboxFromImageParams, Daytona, DaytonaConfig, Resources

from git_daytona.local.core.model import Program, Sandbox
from git_daytona.local.isolation.choose import choose
from git_daytona.local.server import LocalDaytona


def test_the_sdk_orders_a_size(local: LocalDaytona) -> None:
    """Cores are the first ones of ours, memory is of each process; a start keeps both."""
    config = DaytonaConfig(api_key=local.api_key, api_url=local.api_url, target="local")
    image = CreateSandboxFromImageParams(
        image="daytona-local", resources=Resources(cpu=1, memory=2), auto_stop_interval=7
    )
    sandbox = Daytona(config).create(image)
    assert (sandbox.cpu, sandbox.memory, sandbox.auto_stop_interval) == (1, 2, 7)
    if local.isolation.isolates:
        assert sandbox.process.exec("nproc; ulimit -d").result.split() == ["1", str(2 << 20)]


@pytest.fixture
def enter(tmp_path: Path) -> Callable[[dict[str, str], str], str]:
    """Run a line in a sandbox that has these variables."""

    def run(variables: dict[str, str], line: str) -> str:
        isolation = choose(tmp_path)
        if not isolation.isolates:
            pytest.skip("nothing isolates sandboxes here")
        sandbox = Sandbox("s", "s", tmp_path / "s", state="started", env=variables)
        isolation.start(sandbox)
        try:
            out, err = isolation.popen(sandbox, Program(["sh", "-c", line])).communicate(timeout=20)
        finally:
            isolation.stop(sandbox)
        return (out + err).decode()

    return run


def test_variables_do_not_act_outside(enter, tmp_path):
    """The programs that make a sandbox around a command run with our rights: what they load, and
    which they are, is none of its business."""
    (tmp_path / "s" / "home").mkdir(parents=True)
    fake = tmp_path / "s" / "home" / "bin" / "setpriv"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho fake; touch /home/daytona/ran\n")
    fake.chmod(0o755)
    variables = {
        "PATH": "/home/daytona/bin:/usr/bin:/bin",
        "LD_DEBUG": "files",
        "LD_DEBUG_OUTPUT": str(tmp_path / "trace"),
        "TZDIR": "it's $HOME",
        "text": "kept",
    }
    told = enter(variables, 'echo "$TZDIR|$PATH|$text|$LD_DEBUG|${DAYTONA_LOCAL_LATE-none}"')
    assert "it's $HOME|/home/daytona/bin:/usr/bin:/bin|kept|files|none\n" in told
    assert not (tmp_path / "s" / "home" / "ran").exists()
    assert list(tmp_path.glob("trace*")) == []
