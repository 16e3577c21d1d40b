"""How soon the service answers: OpenCode waits for this at every start. ``bin/test -m bench -s tests/bench/test_initialize.py``."""

import json
import statistics
import subprocess
import time

import pytest

from rig import BIN

pytestmark = pytest.mark.bench

MILLISECONDS = 150
ROUNDS = 15


def test_initialize(tmp_path, monkeypatch):
    monkeypatch.setenv("DAYTONA_API_URL", "http://127.0.0.1:1/api")
    monkeypatch.setenv("DAYTONA_API_KEY", "a-key-that-opens-nothing")
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"directory": str(tmp_path)}})
    taken = []
    for _ in range(ROUNDS):
        begun = time.monotonic()
        with subprocess.Popen(
            (str(BIN / "git-daytona"), "serve"), cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as service:
            service.stdin.write(line.encode() + b"\n")
            service.stdin.flush()
            assert b'"tools"' in service.stdout.readline()
            taken.append((time.monotonic() - begun) * 1000)
            service.kill()
    print(
        f"\ninitialize answered after {statistics.median(taken):.0f} ms (median of {ROUNDS}; {min(taken):.0f} to {max(taken):.0f})"
    )
    assert statistics.median(taken) < MILLISECONDS
