"""The TypeScript SDK from npm against the embedded Daytona: one round trip in Node.js, and what it
saw."""

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from git_daytona.local.server import LocalDaytona
from support.lacking import ask_npm_for

pytestmark = [pytest.mark.npm, pytest.mark.timeout(300)]

SOURCE = Path(__file__).parent / "typescript"
CACHE = Path(__file__).parents[2] / ".npm" / "daytona-sdk"
"""Where the package is installed, once for all runs; not in version control."""


@pytest.fixture(scope="session")
def package() -> Path:
    """The folder with the SDK, installed when there is none yet or another version is asked for."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("npm is missing: install Node.js to test the TypeScript SDK")
    CACHE.mkdir(parents=True, exist_ok=True)
    wanted = (SOURCE / "package.json").read_bytes()
    with FileLock(CACHE / "lock"):
        installed = CACHE / "installed.json"
        if not installed.exists() or installed.read_bytes() != wanted:
            ask_npm_for("@daytona/sdk", npm)
            (CACHE / "package.json").write_bytes(wanted)
            subprocess.run(
                [
                    npm,
                    "install",
                    "--prefix",
                    CACHE,
                    "--cache",
                    CACHE / "cache",
                    "--no-audit",
                    "--no-fund",
                    "--loglevel=error",
                ],
                check=True,
                timeout=240,
            )
            installed.write_bytes(wanted)
    return CACHE


@pytest.fixture
def seen(package: Path, local: LocalDaytona, tmp_path: Path) -> dict[str, Any]:
    """What the round trip says it saw."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "DAYTONA_TEST_API_URL": local.api_url,
        "DAYTONA_TEST_API_KEY": local.api_key,
    }
    node = subprocess.run(
        ["node", SOURCE / "round_trip.mjs", package],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert node.returncode == 0, node.stderr
    result: dict[str, Any] = json.loads(node.stdout.splitlines()[-1])
    return result


def test_round_trip(seen: dict[str, Any], local: LocalDaytona) -> None:
    content = bytes(range(256)) * 64
    not_running = seen["stopped"][1].pop("message")
    assert "Is the Sandbox started?" in not_running
    for refusal in ("timedOut", "missing", "gone", "deleted", "validated", "wrongKey"):
        assert seen[refusal].pop("message")
    assert base64.b64decode(seen.pop("downloaded")) == content
    assert base64.b64decode(seen.pop("streamed")) == content * 2
    assert seen["created"]["labels"].pop("suite") == "typescript"
    assert seen == {
        "created": {
            "state": "started",
            "labels": {"code-toolbox-language": "python"},
            "autoStopInterval": 9,
        },
        "same": True,
        "listed": [True],
        "directories": ["/home/daytona", "/home/daytona"],
        "executed": {"exitCode": 3, "result": "hello world\n/tmp\nerr\n"},
        "timedOut": {"name": "DaytonaProcessExecutionTimeoutError", "status": 408},
        "several": [
            {
                "source": 'up/ünï "x".txt',
                "result": base64.b64encode("ä".encode()).decode(),
                "code": None,
            },
            {"source": "up/none", "result": None, "code": "FILE_NOT_FOUND"},
        ],
        "files": [
            {"name": "bytes.bin", "size": len(content), "isDir": False},
            {"name": "streamed.bin", "size": 2 * len(content), "isDir": False},
            {"name": 'ünï "x".txt', "size": 2, "isDir": False},
        ],
        "missing": {"name": "DaytonaFileNotFoundError", "status": 404},
        "moved": "0600",
        "found": ["made/bytes.bin", "up/streamed.bin"],
        "gone": {"name": "DaytonaFileNotFoundError", "status": 404},
        "session": {"exitCode": 0, "stdout": "out\n", "stderr": "err\n"},
        "kept": "/tmp\n",
        "followed": {"stdout": "got input\n", "stderr": "err\n"},
        "exitCode": 4,
        "logs": {"output": seen["logs"]["output"], "stdout": "got input\n", "stderr": "err\n"},
        "sessions": [],
        "ssh": True,
        "validated": {"name": "DaytonaAuthorizationError", "status": 403},
        "stopped": ["stopped", {"name": "DaytonaValidationError", "status": 400}],
        "started": ["started", "ä"],
        "deleted": {"name": "DaytonaNotFoundError", "status": 404},
        "wrongKey": {"name": "DaytonaAuthenticationError", "status": 401},
    }
    assert local.sandboxes == [] and local.live_tokens() == 0
