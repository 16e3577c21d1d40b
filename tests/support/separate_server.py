"""The embedded Daytona in a process of its own, as the cloud is one: what it computes is not on the
account of what is measured."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from git_daytona.local.core.faults import CallFault
from git_daytona.local.server import LocalDaytona


class Apart:
    """A ``with`` block around it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __enter__(self) -> "Apart":
        argv = (sys.executable, "-I", __file__, str(self._root))
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.api_url, self.toolbox_url, self.api_key, self.port = json.loads(self._read())
        return self

    def __exit__(self, *_: object) -> None:
        with self._process as process:
            process.stdin.close()
            process.wait(60)

    @property
    def cpu(self) -> float:
        """Seconds of CPU time that it has used so far, with the processes in its sandboxes that
        have ended."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[-1].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def _read(self) -> str:
        line = self._process.stdout.readline()
        assert line, "the embedded Daytona ended"
        return line

    def _do(self, **what: Any) -> Any:
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return json.loads(self._read())

    def latency(self, milliseconds: float) -> None:
        """Of each API call and each SSH connection from now on."""
        self._do(latency=milliseconds / 1000)

    def calls(self) -> list[str]:
        """The routes of the calls since this was asked last, without ``config``, which a process
        asks for once."""
        return [route for route in self._do(calls=True) if route != "config"]

    def answer(self, route: str, body: bytes) -> None:
        """Answer the calls of a route with this from now on, without doing anything."""
        self._do(route=route, body=body.decode())

    def forget(self) -> None:
        """No faults any more."""
        self._do(forget=True)

    def live_tokens(self) -> int:
        return int(self._do(tokens=True))


def main(root: str) -> None:
    with LocalDaytona(Path(root)) as local:
        # Plain git and the existing plugin, which ours is measured beside, cannot live with what
        # the gateways lose.
        local.faults.gateway.lost_statuses = 0
        print(
            json.dumps([local.api_url, local.toolbox_url, local.api_key, local.gateway_port]),
            flush=True,
        )
        for line in sys.stdin:
            answer: Any = None
            match json.loads(line):
                case {"latency": seconds}:
                    local.faults.latency = seconds
                case {"calls": _}:
                    answer = [call.route for call in local.calls]
                    local.forget_calls()
                case {"route": route, "body": body}:
                    local.faults.add(CallFault(route=route, body=body.encode()))
                case {"forget": _}:
                    local.faults.clear()
                    local.faults.gateway.lost_statuses = 0
                case {"tokens": _}:
                    answer = local.live_tokens()
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
