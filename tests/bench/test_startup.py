"""3. How soon the executables answer, beside an interpreter that does nothing, and how many modules
they load for it."""

import functools
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.measure import in_turns, launch, median, run
from support.population import populate
from support.round_trip import BIN, Repo
from support.separate_server import Apart

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

PROGRAMS = ("git-daytona", "daytona-token", "daytona-pin", "daytona-local", "daytona-ssh")
INITIALIZE = 150
"""Milliseconds from the service's start to its first answer, which OpenCode waits for."""


def nothing(*flags: str) -> float:
    return run((sys.executable, *flags, "-c", "pass")).wall


@dataclass(frozen=True)
class Checkout:
    """The launchers with an interpreter that notes its imports."""

    path: Path
    noted: Path

    def program(self, name: str) -> str:
        """A launcher, or ``python``, to be started next."""
        self.noted.unlink(missing_ok=True)
        return str(self.path / ".venv/bin/python" if name == "python" else self.path / "bin" / name)

    @property
    def modules(self) -> int:
        """How many modules what was started has loaded, the interpreter's own ones among them."""
        return (
            sum(line.startswith("import time:") for line in self.noted.read_text().splitlines()) - 1
        )

    def count(self, *words: str, cwd: Path | None = None) -> int:
        assert run((self.program(words[0]), *words[1:]), cwd=cwd).status == 0, words
        return self.modules


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    made = Checkout(tmp_path / "checkout", tmp_path / "imports")
    interpreter = made.path / ".venv/bin/python"
    interpreter.parent.mkdir(parents=True)
    notes = f'-X importtime "$@" 2>{shlex.quote(str(made.noted))}'
    interpreter.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} {notes}\n")
    interpreter.chmod(0o755)
    shutil.copytree(BIN, made.path / "bin", symlinks=True)
    (made.path / "helpers").symlink_to(BIN.parent / "helpers")
    return made


def test_help_and_version(checkout: Checkout, table) -> None:
    works = {
        "python": functools.partial(nothing, "-I"),
        "python for daytona-ssh": functools.partial(nothing, "-I", "-S", "-B"),
    }
    words = {
        f"{program} {option}": (program, option)
        for program in PROGRAMS
        for option in ("--help", "--version")
    }
    works |= {name: functools.partial(launch, *each) for name, each in words.items()}
    for work in works.values():
        work()  # compiles
    spent = in_turns(works)
    part = table.part("3. start-up : python -c pass")
    for name, (program, _) in words.items():
        part.ratio(
            name,
            spent[name],
            spent["python for daytona-ssh" if program == "daytona-ssh" else "python"],
        )
    part = table.part("3. start-up: modules loaded")
    part.count("python -c pass", checkout.count("python", "-I", "-c", "pass"))
    for name, each in words.items():
        part.count(name, checkout.count(*each))


def test_commands_that_only_look(daytona: Apart, make_repo, checkout: Checkout, table) -> None:
    """Without the network, besides the last one."""
    repos = {count: make_repo(f"with-{count}") for count in (1, 100, 2000)}
    for count, repo in repos.items():
        populate(repo, count).transfers.check()  # pins the gateway's key
    offline = ("git-daytona", "status", "--offline")
    works = {"python": functools.partial(nothing, "-I")}
    works["daytona-pin verify --offline"] = functools.partial(
        launch, "daytona-pin", "verify", "--offline"
    )
    for count, repo in repos.items():
        works[f"git daytona status --offline with {count}"] = functools.partial(
            launch, *offline, cwd=repo.path
        )
    works["git daytona status with 1, asking the API"] = functools.partial(
        launch, *offline[:2], cwd=repos[1].path
    )
    for work in works.values():
        work()
    spent = in_turns(works)
    part = table.part("3. start-up of commands that only look : python -c pass")
    for name in list(works)[1:]:
        part.ratio(name, spent[name], spent["python"], 15 if "asking" in name else None)
    part = table.part("3. git daytona status : the same with 1 session")
    one = spent["git daytona status --offline with 1"]
    for count, bound in ((100, None), (2000, 3)):
        part.ratio(
            f"with {count} sessions",
            spent[f"git daytona status --offline with {count}"],
            one,
            bound,
        )
    part = table.part("3. start-up of commands that only look: modules loaded")
    part.count("daytona-pin verify --offline", checkout.count("daytona-pin", "verify", "--offline"))
    part.count("git daytona status --offline", checkout.count(*offline, cwd=repos[1].path))
    part.count("git daytona status", checkout.count(*offline[:2], cwd=repos[1].path))


def test_initialize(make_repo, monkeypatch: pytest.MonkeyPatch, checkout: Checkout, table) -> None:
    """How soon the service answers: OpenCode waits for this at every start."""
    monkeypatch.setenv("DAYTONA_API_URL", "http://127.0.0.1:1/api")
    monkeypatch.setenv("DAYTONA_API_KEY", "a-key-that-opens-nothing")
    repo: Repo = make_repo("repository")
    line = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"directory": str(repo.path)}}
    )

    def initialize(program: str = str(BIN / "git-daytona")) -> float:
        begun = time.perf_counter()
        with subprocess.Popen(
            (program, "serve"),
            cwd="/",
            env=os.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as service:
            service.stdin.write(line.encode() + b"\n")
            service.stdin.flush()
            assert b'"tools"' in service.stdout.readline()
            spent = time.perf_counter() - begun
            service.kill()
        return spent

    initialize()
    spent = in_turns({"python": functools.partial(nothing, "-I"), "initialize": initialize})
    part = table.part("3. start-up of the service")
    part.ratio("its first answer : python -c pass", spent["initialize"], spent["python"])
    initialize(checkout.program("git-daytona"))
    part.count("modules loaded by then, and while it is ended", checkout.modules)
    part.count(
        "milliseconds from its start to its first answer",
        median(spent["initialize"]) * 1000,
        at_most=INITIALIZE,
    )


def test_a_hook_before_a_tool(make_repo, monkeypatch: pytest.MonkeyPatch, table) -> None:
    """An agent waits for it before each call; Daytona is not asked."""
    monkeypatch.setenv("DAYTONA_API_URL", "http://127.0.0.1:1/api")
    repo: Repo = make_repo("repository")
    words = ("hook", "pre-tool", "--agent", "claude")
    call = {"tool_name": "Bash", "tool_input": {"command": "make test"}}
    payload = json.dumps({"session_id": "s1", "cwd": str(repo.path), **call}).encode()

    def hook() -> float:
        begun = time.perf_counter()
        done = subprocess.run(
            (str(BIN / "git-daytona"), *words), input=payload, capture_output=True, timeout=60
        )
        assert done.returncode == 0 and b"exec --for-agent" in done.stdout
        return time.perf_counter() - begun

    hook()
    spent = in_turns({"python": functools.partial(nothing, "-I"), "hook": hook})
    part = table.part("3. start-up of git daytona hook pre-tool : python -c pass")
    part.ratio("a shell's command, rewritten", spent["hook"], spent["python"], 20)
