"""``git daytona serve``, asked as OpenCode's plugin asks it."""

import json
import os
import queue
import subprocess
import threading

from support.round_trip import BIN, Repo


class Service:
    """A service for one repository; ``close()`` it."""

    def __init__(self, repo: Repo) -> None:
        argv = (str(BIN / "git-daytona"), "serve")
        self.process = subprocess.Popen(
            argv, cwd="/", env=os.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.answers: queue.SimpleQueue[dict[str, object]] = queue.SimpleQueue()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()
        self.send(0, "initialize", directory=str(repo.path))
        self.answers.get(timeout=60)

    def _read(self) -> None:
        for line in self.process.stdout:
            message = json.loads(line)
            if "method" not in message:
                self.answers.put(message)
            elif "id" in message:  # "ask": yes; "parent" and "fork": none
                self._write(id=message["id"], result=None)

    def _write(self, **message: object) -> None:
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")
        self.process.stdin.flush()

    def send(self, number: int, method: str, **params: object) -> None:
        self._write(id=number, method=method, params=params)

    def calls(self, count: int) -> None:
        """So many tool calls, a few at a time."""
        for number in range(count + 4):
            if number < count:
                self.send(
                    number, "tool", name="glob", sessionID="ses_a", arguments={"pattern": "*"}
                )
            if number >= 4:
                answer = self.answers.get(timeout=60)
                assert "result" in answer, answer

    def tool(self, session: str, name: str, **arguments: object) -> dict[str, object]:
        """A tool's result."""
        self.send(1, "tool", name=name, sessionID=session, arguments=arguments)
        answer = self.answers.get(timeout=60)
        assert "result" in answer, answer
        return answer["result"]

    def event(self, kind: str, **properties: object) -> None:
        self.send(2, "event", type=kind, properties=properties)
        assert self.answers.get(timeout=60)["id"] == 2

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(60)
        self.reader.join()
        self.process.stdout.close()
