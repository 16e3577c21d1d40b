"""OpenCode 1 and 2, the real programs from npm, behind one face: started in a HOME of the test's,
with the plugin in their configuration and a scripted model."""

import base64
import contextlib
import copy
import json
import os
import shutil
import signal
import socket
import subprocess
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from filelock import FileLock

from support.lacking import ask_npm_for
from support.plugin import PLUGIN
from support.scripted_model import Call, Model, content
from support.waiting import until

CACHE = (Path(__file__).parents[2] / ".npm").resolve()
TESTS = Path(__file__).parents[1] / "opencode"
RUN_SECONDS = 60
VARIABLE = "DAYTONA_TEST_OPENCODE2"
"""Names a program of OpenCode 2 that is tested in place of the one from npm."""


@dataclass(frozen=True)
class Release:
    """A release of a program: the npm package, and the SHA-512 of its archive."""

    version: str
    package: str
    program: str
    integrity: str
    name: str = "opencode"


V1 = Release("1.18.33", "opencode-ai", ".bin/opencode", "")
V1_LAST = Release(
    "1.18.34",
    "opencode-linux-x64",
    "opencode-linux-x64/bin/opencode",
    "sha512-RTAMjCve4euxP2QKLuvRmdoW5J5DQK1DiZqt+7slfixyjAEi79QC2Df2oYKogibaAI4IEU8uzenoJeEl3k+UEw==",
)
# Upstream's own packages are not on npm's registry: a build of the same sources (MIT) stands in.
V2 = Release(
    "2.0.14-shuv.1",
    "shuvcode-linux-x64-baseline",
    "shuvcode-linux-x64-baseline/bin/shuvcode",
    "sha512-YVv74S1eiUZKCi97/m8wovJxRiJ6WHNs6i8ZRXsHHgDmEFchPusqZ0WBawtGweqxihfH4Vbg+Lt6vDr9ZgY0dA==",
)
RELEASES = {"1.18.33": V1, "1.18.34": V1_LAST, "2.0.14": V2}
QUICK = {"BUN_JSC_useDFGJIT": "0", "BUN_JSC_useConcurrentGC": "0", "BUN_JSC_numberOfGCMarkers": "1"}
"""An OpenCode of a test lives for seconds: what its engine compiles and collects beside takes a
fifth more than it gives."""
OLDER = pytest.mark.complete("an older OpenCode than the newest 1 and 2")
every_release = pytest.mark.parametrize(
    "release",
    [pytest.param("1.18.33", marks=OLDER), "1.18.34", "2.0.14"],
    indirect=True,
    scope="session",
)
"""The story of an agent that works, and the tools there are."""
each_major = pytest.mark.parametrize(
    "release", ["1.18.34", "2.0.14"], indirect=True, scope="session"
)
"""All others: the newest of OpenCode 1, and OpenCode 2."""
AGAIN = pytest.mark.complete("OpenCode 1, too, what is shown on OpenCode 2")
mostly_opencode_2 = pytest.mark.parametrize(
    "release",
    [pytest.param("1.18.34", marks=AGAIN), "2.0.14"],
    indirect=True,
    scope="session",
)
"""Variants of what another test shows on both: a start of OpenCode 1 takes twice as long."""
service_decides = pytest.mark.parametrize("release", ["2.0.14"], indirect=True, scope="session")
"""What only our service decides, whoever calls it: in the OpenCode that starts in half the time."""
only_opencode_2 = pytest.mark.parametrize("release", ["2.0.14"], indirect=True, scope="session")


def elsewhere(home: Path) -> dict[str, str]:
    """The environment with another HOME, but npm's own configuration: OpenCode is run once by its
    installation, and makes folders."""
    home.mkdir(exist_ok=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    user = os.environ.get("NPM_CONFIG_USERCONFIG", str(Path.home() / ".npmrc"))
    return env | {"HOME": str(home), "NPM_CONFIG_USERCONFIG": user}


def install(release: Release) -> Path:
    """A release's program, installed once for all runs. Skips where npm is missing."""
    if release is V2 and (named := os.environ.get(VARIABLE)):
        return Path(named)
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is missing: install Node.js to test in OpenCode")
    place = CACHE / ("opencode" if release is V1 else f"{release.name}-{release.version}")
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place / "lock"):
        installed = place / "installed"
        if not installed.exists() or installed.read_text() != release.version:
            name = f"{release.package}@{release.version}"
            ask_npm_for(name, npm)
            quiet = ("--no-audit", "--no-fund", "--loglevel=error")
            subprocess.run(
                (npm, "install", "--prefix", place, "--cache", place / "cache", *quiet, name),
                check=True,
                timeout=280,
                env=elsewhere(place / "home"),
            )
            lock = json.loads((place / "package-lock.json").read_text())
            found = lock["packages"][f"node_modules/{release.package}"]["integrity"]
            assert found == (release.integrity or found), f"{name} is another archive: {found}"
            installed.write_text(release.version)
    if release is not V2:
        _kept(f"packages-{release.version}", partial(_install_packages, release, npm))
    return place / "node_modules" / release.program


NAMING = (
    *("package.json", "package-lock.json", "node_modules/.package-lock.json"),
    *(f"node_modules/@opencode-ai/{name}/package.json" for name in ("plugin", "sdk")),
)
"""The files of OpenCode 1's packages in which their version stands."""


def packages(release: str, config: Path) -> None:
    """Put what OpenCode 1 installs beside its configuration when it first loads a plugin there:
    that takes two thirds of a test's time, and the network."""
    if host(release) is OpenCode1:
        kept = CACHE / f"packages-{release}"
        shutil.copytree(kept, config, copy_function=os.link, symlinks=True, dirs_exist_ok=True)


def _install_packages(release: Release, npm: str, place: Path) -> None:
    name = f"@opencode-ai/plugin@{V1.version}"
    ask_npm_for(name, npm)
    quiet = ("--no-audit", "--no-fund", "--loglevel=error", "--ignore-scripts", "--save-exact")
    subprocess.run(
        (npm, "install", "--prefix", place, *quiet, name),
        check=True,
        timeout=280,
        env=elsewhere(CACHE / "home"),
    )
    # npm's registry has no newer ones; OpenCode looks at the number alone, and our plugin uses
    # nothing of them.
    for path in (place / name for name in NAMING):
        path.write_text(path.read_text().replace(V1.version, release.version))


def database(release: str, binary: Path) -> list[Path]:
    """OpenCode 1's database as its first start ever leaves it, which takes a second or two."""
    if host(release) is OpenCode2:
        return []
    return sorted(_kept(f"database-{release}", partial(_first_start, binary)).glob("opencode.db*"))


def _first_start(binary: Path, place: Path) -> None:
    home = place / "home"
    home.mkdir()
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "BUN_TMPDIR": str(home),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
    }
    words = (binary, "session", "list")
    subprocess.run(words, cwd=home, env=env, check=True, capture_output=True, timeout=RUN_SECONDS)
    for path in (home / ".local/share/opencode").glob("opencode.db*"):
        path.rename(place / path.name)
    shutil.rmtree(home)


def _kept(name: str, make: Callable[[Path], None]) -> Path:
    """A folder that is made once for all runs."""
    kept = CACHE / name
    CACHE.mkdir(exist_ok=True)
    with FileLock(CACHE / f"{name}.lock"):
        if not kept.exists():
            made = CACHE / f"{name}-unfinished"
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            make(made)
            made.rename(kept)
    return kept


@dataclass
class Done:
    """What a run of OpenCode left."""

    status: int
    out: str
    err: str

    @property
    def terminal(self) -> str:
        return self.out + self.err


class OpenCode(ABC):
    """The user's OpenCode, with the plugin in its global configuration."""

    watcher: ClassVar[str]
    major: ClassVar[int]
    dialect: ClassVar[Callable[[Call], Call]] = staticmethod(lambda call: call)

    def __init__(self, binary: Path, home: Path, model: Model, scratch: Path) -> None:
        self.binary, self.home, self.model = binary, home, model
        model.dialect = self.dialect
        self.watched = scratch / "events.jsonl"
        self.log = home / ".local/share/opencode/log/daytona.log"
        self.unpacked = scratch / "unpacked"
        self.unpacked.mkdir()
        self.config: dict[str, Any] = {
            "plugin": [PLUGIN.as_uri(), (TESTS / self.watcher).as_uri()],
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
        self.is_kept = False
        """Whether the tests of a file share it, and its one server."""
        self._server: Server | None = None

    def named(self, tool: str) -> str:
        """What it calls a tool of OpenCode 1."""
        return self.model.dialect((tool, {}))[0]

    @abstractmethod
    def configured(self) -> dict[str, str]:
        """Write the configuration; the environment that makes OpenCode read it."""

    def start(self, *words: str, cwd: Path) -> "subprocess.Popen[str]":
        env = os.environ | self.configured()
        process = subprocess.Popen(
            (str(self.binary), *words),
            cwd=cwd,
            env=env
            | QUICK
            # it leaves a library of 5 MB in the folder for temporary files, at each start
            | {"BUN_TMPDIR": str(self.unpacked)}
            | {"PWD": str(cwd), "WATCHED": str(self.watched)}
            | self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.running.append(process)
        return process

    @abstractmethod
    def begin(self, prompt: str, *options: str, cwd: Path) -> "subprocess.Popen[str]":
        """Start ``opencode run``."""

    def run(self, prompt: str, *options: str, cwd: Path) -> Done:
        process = self.begin(prompt, *options, cwd=cwd)
        out, err = process.communicate(timeout=RUN_SECONDS)
        return Done(process.returncode, out, err)

    def serve(self, cwd: Path) -> "Server":
        """Start ``opencode serve``; where it is kept, once."""
        if not (self.is_kept and self._server):
            self._server = self._serve(cwd)
        return self._server.at(cwd)

    @abstractmethod
    def _serve(self, cwd: Path) -> "Server": ...

    def forget(self) -> None:
        """Forget what was said and seen, between two tests that share it."""
        self.model.scripts.clear()
        self.model.asked.clear()
        self.watched.write_bytes(b"")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_bytes(b"")

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The events of a kind so far, as OpenCode 1 has them."""
        lines = self.watched.read_text().splitlines() if self.watched.exists() else []
        return [
            event["properties"] for line in lines if (event := json.loads(line))["type"] == kind
        ]

    @abstractmethod
    def toasts(self) -> list[tuple[str, str]]:
        """What was shown of what happened: title and message."""

    def toast(self, title: str, seconds: float = 30) -> str:
        """Wait for a toast; its message."""
        return until(
            lambda: next((m for t, m in self.toasts() if t == title), None), seconds=seconds
        )

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            with process:  # closes its pipes
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
        shutil.rmtree(self.unpacked, ignore_errors=True)


class Server(ABC):
    """``opencode serve`` and its HTTP API."""

    headers: ClassVar[dict[str, str]]

    def __init__(self, opencode: OpenCode, process: "subprocess.Popen[str]", cwd: Path) -> None:
        self.opencode, self.process, self.cwd = opencode, process, cwd
        assert process.stdout is not None
        line = process.stdout.readline()
        while "listening" not in line:
            assert line, ("it did not start", process.stderr and process.stderr.read())
            line = process.stdout.readline()
        self.url = line.split()[-1]

    def http(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "content-type": "application/json",
                "x-opencode-directory": str(self.cwd),
                **self.headers,
            },
        )
        with urllib.request.urlopen(request, timeout=RUN_SECONDS) as answer:
            raw = answer.read()
        return json.loads(raw) if raw else None

    def at(self, cwd: Path) -> "Server":
        """The same server, for another directory."""
        other = copy.copy(self)
        other.cwd = cwd
        return other

    @abstractmethod
    def session(self, model: str = "") -> str:
        """Begin a session, in OpenCode 2 with another model than the configured one; its id."""

    @abstractmethod
    def sessions(self) -> list[str]:
        """The ids of all sessions."""

    @abstractmethod
    def send(self, session: str, words: str) -> None:
        """Send a message."""

    @abstractmethod
    def prompt(self, session: str, words: str) -> Any:
        """Send a message and wait for the end of the turn."""

    @abstractmethod
    def delete(self, session: str) -> None: ...

    @abstractmethod
    def fork(self, session: str) -> str:
        """Fork a session; the fork's id."""

    @abstractmethod
    def abort(self, session: str) -> None: ...

    @abstractmethod
    def question(self, session: str) -> tuple[str, str]:
        """Wait for a question about a permission: its id, and what it is about."""

    @abstractmethod
    def answer(self, session: str, question: str, how: str) -> None:
        """Answer it: "once" or "always"."""

    @abstractmethod
    def tools(self) -> list[str]:
        """The names of all tools there are."""


# -- OpenCode 1 ------------------------------------------------------------------------------------


class OpenCode1(OpenCode):
    watcher, major = "watch.js", 1

    def configured(self) -> dict[str, str]:
        path, models = self.home / "opencode.json", self.home / "models.json"
        path.write_text(json.dumps(self.config))
        models.write_text("{}")
        return {
            "OPENCODE_CONFIG": str(path),
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            # the list of the world's models costs a second at each start
            "OPENCODE_MODELS_PATH": str(models),
        }

    def begin(self, prompt: str, *options: str, cwd: Path) -> "subprocess.Popen[str]":
        return self.start("run", *options, prompt, cwd=cwd)

    def _serve(self, cwd: Path) -> "Server1":
        words = ("serve", "--port", "0", "--hostname", "127.0.0.1")
        return Server1(self, self.start(*words, cwd=cwd), cwd)

    def toasts(self) -> list[tuple[str, str]]:
        """Those of what happened; "Please wait" depends on how fast this machine is."""
        shown = [
            (each.get("title") or "", each["message"]) for each in self.events("tui.toast.show")
        ]
        return [each for each in shown if each[0] != "Please wait"]


class Server1(Server):
    headers: ClassVar[dict[str, str]] = {}

    def session(self, model: str = "") -> str:
        return str(self.http("POST", "/session", {})["id"])

    def sessions(self) -> list[str]:
        return [each["id"] for each in self.http("GET", "/session")]

    def send(self, session: str, words: str) -> None:
        parts = {"parts": [{"type": "text", "text": words}]}
        self.http("POST", f"/session/{session}/prompt_async", parts)

    def prompt(self, session: str, words: str) -> Any:
        parts = {"parts": [{"type": "text", "text": words}]}
        return self.http("POST", f"/session/{session}/message", parts)

    def delete(self, session: str) -> None:
        self.http("DELETE", f"/session/{session}")

    def fork(self, session: str) -> str:
        return str(self.http("POST", f"/session/{session}/fork", {})["id"])

    def abort(self, session: str) -> None:
        self.http("POST", f"/session/{session}/abort")

    def question(self, session: str) -> tuple[str, str]:
        [asked] = until(lambda: self.http("GET", "/permission"))
        return asked["id"], f"{asked['permission']}: {', '.join(asked['patterns'])}"

    def answer(self, session: str, question: str, how: str) -> None:
        self.http("POST", f"/permission/{question}/reply", {"reply": how})

    def tools(self) -> list[str]:
        return list(self.http("GET", "/experimental/tool/ids"))


# -- OpenCode 2 ------------------------------------------------------------------------------------

NAMES = {
    "bash": "shell",
    "apply_patch": "patch",
    "task": "subagent",
    "filePath": "path",
    "subagent_type": "agent",
}


def dialect(call: Call) -> Call:
    """A call as a model makes it in OpenCode 2."""
    name, arguments = call
    return NAMES.get(name, name), {NAMES.get(key, key): value for key, value in arguments.items()}


class OpenCode2(OpenCode):
    watcher, major, dialect = "watch2", 2, staticmethod(dialect)

    def configured(self) -> dict[str, str]:
        for name in ("opencode", self.binary.name):
            folder = self.home / ".config" / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "opencode.json").write_text(json.dumps(self.config))
        return {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_PASSWORD": Server2.PASSWORD}

    def begin(self, prompt: str, *options: str, cwd: Path) -> "subprocess.Popen[str]":
        return self.start("run", "--standalone", *options, prompt, cwd=cwd)

    def _serve(self, cwd: Path) -> "Server2":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        words = ("serve", "--hostname", "127.0.0.1", "--port", str(port))
        return Server2(self, self.start(*words, cwd=cwd), cwd)

    def toasts(self) -> list[tuple[str, str]]:
        """It shows none: what the service would have shown is in its log, and what went wrong is
        told to the model."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        texts = [line.partition(" toast: ")[2] for line in lines]
        for body in self.model.asked:
            for message in body["messages"]:
                if message["role"] == "system":
                    told = content(message).partition("Tell the user, from Daytona:\n")[2]
                    texts += told.partition("\n\n")[0].splitlines()
        shown = [tuple(text.split(": ", 1)) for text in dict.fromkeys(texts) if ": " in text]
        return [(each[0], each[1]) for each in shown if each[0] != "Please wait"]


class Server2(Server):
    PASSWORD: ClassVar[str] = "of the tests"
    headers: ClassVar[dict[str, str]] = {
        "authorization": "Basic " + base64.b64encode(b"opencode:" + PASSWORD.encode()).decode()
    }

    def session(self, model: str = "") -> str:
        name = model or self.opencode.config["model"].partition("/")[2]
        place = {"directory": str(self.cwd)}
        body = {"location": place, "model": {"providerID": "local", "id": name}}
        return str(self.http("POST", "/api/session", body)["data"]["id"])

    def sessions(self) -> list[str]:
        return [each["id"] for each in self.http("GET", "/api/session")["data"]]

    def send(self, session: str, words: str) -> None:
        self.http("POST", f"/api/session/{session}/prompt", {"text": words})

    def prompt(self, session: str, words: str) -> Any:
        self.send(session, words)
        self.http("POST", f"/api/experimental/session/{session}/wait")

    def delete(self, session: str) -> None:
        self.http("DELETE", f"/api/session/{session}")

    def fork(self, session: str) -> str:
        return str(self.http("POST", f"/api/session/{session}/fork", {})["data"]["id"])

    def abort(self, session: str) -> None:
        self.http("POST", f"/api/session/{session}/interrupt")

    def question(self, session: str) -> tuple[str, str]:
        [form] = until(lambda: self.http("GET", f"/api/session/{session}/form")["data"])
        return form["id"], json.dumps(form)

    def answer(self, session: str, question: str, how: str) -> None:
        body = {"answer": {"q0": f"Allow {how}"}}
        self.http("POST", f"/api/session/{session}/form/{question}/reply", body)

    def tools(self) -> list[str]:
        """Those that OpenCode 2.0.14 has, Code Mode's `execute` included."""
        return [
            *("edit", "glob", "grep", "patch", "question", "read", "shell", "skill", "subagent"),
            *("webfetch", "websearch", "write", "execute", "browser_tabs_list"),
        ]


def host(release: str) -> type[OpenCode]:
    """The class for a release."""
    return OpenCode2 if release.startswith("2") else OpenCode1


@contextlib.contextmanager
def installed_in(
    home: Path, release: str, binary: Path, files: Sequence[Path], model: Model, scratch: Path
) -> Iterator[OpenCode]:
    """An OpenCode of a HOME, with the files of its database; what it started ends with the
    block."""
    data = home / ".local/share/opencode"
    data.mkdir(parents=True, exist_ok=True)
    for path in files:
        shutil.copy(path, data)
    made = host(release)(binary, home, model, scratch)
    packages(release, home / ".config/opencode")
    yield made
    made.close()
