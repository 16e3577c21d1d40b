"""The real OpenCode from npm, a scripted model, and the embedded Daytona: all of it on loopback,
all of it in a HOME of the test's."""

import json
import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from git_daytona.local.server import LocalDaytona
from support.plugin import SHIM
from support.processes import until
from support.round_trip import local, repo, server
from support.scripted_model import Model, serve
from support.secret_search import canary, logged, traced

__all__ = ["canary", "local", "logged", "repo", "server", "traced"]

VERSION = "1.18.33"
CACHE = Path(__file__).parents[2] / ".npm" / "opencode"
RUN_SECONDS = 60


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.npm)


def elsewhere(home: Path) -> dict[str, str]:
    """The environment with another HOME, but npm's own configuration: OpenCode is run once by its
    installation, and makes folders."""
    home.mkdir(exist_ok=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    user = os.environ.get("NPM_CONFIG_USERCONFIG", str(Path.home() / ".npmrc"))
    return env | {"HOME": str(home), "NPM_CONFIG_USERCONFIG": user}


@pytest.fixture(scope="session")
def binary() -> Path:
    """OpenCode's program, installed once for all runs."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is missing: install Node.js to test in OpenCode")
    CACHE.mkdir(parents=True, exist_ok=True)
    with FileLock(CACHE / "lock"):
        installed = CACHE / "installed"
        if not installed.exists() or installed.read_text() != VERSION:
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
                    f"opencode-ai@{VERSION}",
                ],
                check=True,
                timeout=280,
                env=elsewhere(CACHE / "home"),
            )
            installed.write_text(VERSION)
    return CACHE / "node_modules" / ".bin" / "opencode"


@pytest.fixture
def model() -> Iterator[Model]:
    scripted = Model()
    running = serve(scripted)
    yield scripted
    running.shutdown()
    running.server_close()


@dataclass
class Done:
    """What a run of OpenCode left."""

    status: int
    out: str
    err: str

    @property
    def terminal(self) -> str:
        return self.out + self.err


class OpenCode:
    """The user's OpenCode, with the plugin in its global configuration."""

    def __init__(self, binary: Path, home: Path, model: Model, scratch: Path) -> None:
        self.binary, self.home, self.model = binary, home, model
        self.watched = scratch / "events.jsonl"
        self.config: dict[str, Any] = {
            "plugin": [SHIM.as_uri(), (Path(__file__).parent / "watch.js").as_uri()],
            "provider": {
                "local": {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": {"baseURL": f"http://127.0.0.1:{model.port}/v1", "apiKey": "x"},
                    "models": {
                        name: {"tool_call": True, "limit": {"context": 100000, "output": 10000}}
                        for name in ("m", "gpt-5")
                    },
                }
            },
            "model": "local/m",
            "small_model": "local/m",
            "autoupdate": False,
            "share": "disabled",
            # Not ours, and each costs time at every start.
            "snapshot": False,
            "lsp": False,
            "formatter": False,
        }
        self.environment: dict[str, str] = {}
        self.running: list[subprocess.Popen[str]] = []

    def start(self, *words: str, cwd: Path) -> "subprocess.Popen[str]":
        path = self.home / "opencode.json"
        path.write_text(json.dumps(self.config))
        models = self.home / "models.json"
        models.write_text("{}")
        env = os.environ | {
            "OPENCODE_CONFIG": str(path),
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            # the list of the world's models costs a second at each start
            "OPENCODE_MODELS_PATH": str(models),
            "WATCHED": str(self.watched),
        }
        process = subprocess.Popen(
            (str(self.binary), *words),
            cwd=cwd,
            env=env | self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.running.append(process)
        return process

    def run(self, prompt: str, *options: str, cwd: Path) -> Done:
        process = self.start("run", *options, prompt, cwd=cwd)
        out, err = process.communicate(timeout=RUN_SECONDS)
        return Done(process.returncode, out, err)

    def serve(self, cwd: Path) -> "Server":
        return Server(
            self, self.start("serve", "--port", "0", "--hostname", "127.0.0.1", cwd=cwd), cwd
        )

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = self.watched.read_text().splitlines() if self.watched.exists() else []
        return [
            event["properties"] for line in lines if (event := json.loads(line))["type"] == kind
        ]

    def toasts(self) -> list[tuple[str, str]]:
        """Those of what happened; "Please wait" depends on how fast this machine is."""
        shown = [
            (each.get("title") or "", each["message"]) for each in self.events("tui.toast.show")
        ]
        return [each for each in shown if each[0] != "Please wait"]

    def toast(self, title: str, seconds: float = 30) -> str:
        """Wait for a toast; its message."""
        return until(lambda: next((m for t, m in self.toasts() if t == title), None), seconds)

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            with process:  # closes its pipes
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()


class Server:
    """``opencode serve`` and its HTTP API."""

    def __init__(self, opencode: OpenCode, process: "subprocess.Popen[str]", cwd: Path) -> None:
        self.opencode, self.process, self.cwd = opencode, process, cwd
        assert process.stdout is not None
        line = process.stdout.readline()
        while "listening" not in line:
            assert line, "it did not start"
            line = process.stdout.readline()
        self.url = line.split()[-1]

    def http(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json", "x-opencode-directory": str(self.cwd)},
        )
        with urllib.request.urlopen(request, timeout=RUN_SECONDS) as answer:
            raw = answer.read()
        return json.loads(raw) if raw else None

    def session(self) -> str:
        return str(self.http("POST", "/session", {})["id"])

    def prompt(self, session: str, words: str) -> Any:
        """Send a message and wait for the end of the turn."""
        return self.http(
            "POST", f"/session/{session}/message", {"parts": [{"type": "text", "text": words}]}
        )


@pytest.fixture(scope="session")
def database(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """OpenCode's database as its first start ever leaves it, which takes a second or two."""
    place = tmp_path_factory.mktemp("first-start")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(place),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
    }
    subprocess.run(
        (binary, "session", "list"),
        cwd=place,
        env=env,
        check=True,
        capture_output=True,
        timeout=RUN_SECONDS,
    )
    return sorted((place / ".local/share/opencode").glob("opencode.db*"))


@pytest.fixture
def opencode(
    binary: Path,
    database: list[Path],
    home: Path,
    model: Model,
    local: LocalDaytona,
    tmp_path: Path,
) -> Iterator[OpenCode]:
    data = home / ".local/share/opencode"
    data.mkdir(parents=True, exist_ok=True)
    for path in database:
        shutil.copy(path, data)
    made = OpenCode(binary, home, model, tmp_path)
    yield made
    made.close()


@pytest.fixture
def sandboxes(local: LocalDaytona) -> Callable[[], list[str]]:
    """The ids of the sandboxes that the test has made and that are still there."""
    before = {each.id for each in local.sandboxes}
    return lambda: [
        each.id for each in local.sandboxes if each.id not in before and each.state != "destroyed"
    ]
