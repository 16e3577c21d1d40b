"""The executable `daytona-local`: arguments in; status, stdout, stderr and files out."""

import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from git_daytona.local.server import LocalDaytona
from support.plain_http import change, created, http

LOCAL = (sys.executable, "-m", "git_daytona", "daytona-local")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    home = tmp_path / "home"
    home.mkdir()
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "HOME": str(home), "DAYTONA_JWT_TOKEN": "jwt", "DAYTONA_API_KEY": "dtn_cloud"}


def run(env: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run((*LOCAL, *arguments), env=env, capture_output=True, text=True, timeout=30)


def start(env: dict[str, str], *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        (*LOCAL, *arguments), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def exported(process: "subprocess.Popen[str]") -> dict[str, str]:
    assert process.stdout is not None
    lines = [process.stdout.readline(), process.stdout.readline()]
    found = [
        re.fullmatch(r"export (DAYTONA_API_URL|DAYTONA_API_KEY)=(\S+)\n", line) for line in lines
    ]
    assert all(found), lines
    return {match[1]: match[2] for match in found if match}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_serve_says_what_to_export_and_ends_cleanly(
    env: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    import httpx

    root, file = tmp_path / "root", tmp_path / "env"
    with start(env, "serve", "--root", str(root), "--env-file", str(file)) as process:
        variables = exported(process)
        headers = {"Authorization": f"Bearer {variables['DAYTONA_API_KEY']}"}
        assert process.stderr is not None
        talk = [process.stderr.readline(), process.stderr.readline()]
        assert variables["DAYTONA_API_URL"] in talk[0]
        assert "isolation: " in talk[0]
        assert str(root) in talk[1]
        with httpx.Client(
            base_url=variables["DAYTONA_API_URL"], headers=headers, trust_env=False
        ) as api:
            created(api)
        assert (
            "".join(f"export {name}={value}\n" for name, value in variables.items())
            == file.read_text()
        )
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        process.send_signal(number)
        rest, complaints = process.communicate(timeout=20)
    assert (process.returncode, rest, complaints) == (0, "", "")
    assert not file.exists()


def test_a_killed_server_leaves_no_process_and_a_root_to_go_on_with(
    env: dict[str, str], tmp_path: Path
) -> None:
    import httpx

    arguments = ("serve", "--root", str(tmp_path / "root"), "--isolation", "auto")
    with start(env, *arguments) as process:
        variables = exported(process)
        headers = {"Authorization": f"Bearer {variables['DAYTONA_API_KEY']}"}
        with httpx.Client(
            base_url=variables["DAYTONA_API_URL"], headers=headers, trust_env=False
        ) as api:
            box = api.get(f"/sandbox/{created(api)}").json()
        script = (
            "(while :; do date >beat; sleep 0.05; done) >/dev/null 2>&1 & until test -e beat; "
            "do sleep 0.05; done; echo work >file"
        )
        url = f"{box['toolboxProxyUrl']}/{box['id']}/process/execute"
        assert (
            httpx.post(url, json={"command": script}, headers=headers, trust_env=False).json()[
                "exitCode"
            ]
            == 0
        )
        process.kill()
        process.communicate(timeout=20)
    home = tmp_path / "root/sandboxes" / box["id"] / "home"
    with start(env, *arguments) as process:
        url = exported(process)["DAYTONA_API_URL"]
        found = httpx.get(f"{url}/sandbox/{box['id']}", headers=headers, trust_env=False).json()
        assert found["state"] == "stopped"
        (home / "beat").unlink(missing_ok=True)
        with httpx.Client(base_url=url, headers=headers, trust_env=False) as api:
            assert change(api, box["id"], "start") == "started"
        assert (home / "file").read_text() == "work\n"
        if "isolation: plain" not in (process.stderr.readline() if process.stderr else ""):
            time.sleep(0.2)
            assert not (home / "beat").exists()
        process.terminate()
        process.communicate(timeout=20)


def test_the_default_root_is_xdg_state(env: dict[str, str], tmp_path: Path) -> None:
    for variables, root in (
        ({}, tmp_path / "home/.local/state"),
        ({"XDG_STATE_HOME": str(tmp_path / "xdg")}, tmp_path / "xdg"),
    ):
        with start(env | variables, "serve") as process:
            key = exported(process)["DAYTONA_API_KEY"]
            process.terminate()
            process.communicate(timeout=20)
        if sys.platform == "linux":
            assert (root / "git-daytona/local/api-key").read_text().strip() == key


def test_exec_runs_a_command_with_a_daytona_of_its_own(env: dict[str, str]) -> None:
    script = (
        "import os, sys; from daytona import Daytona; d = Daytona(); s = d.create();"
        "print(s.process.exec('echo from $HOME').result, end=''); d.delete(s);"
        "assert 'DAYTONA_JWT_TOKEN' not in os.environ; sys.exit(7)"
    )
    done = run(env, "exec", "--", sys.executable, "-c", script)
    assert (done.returncode, done.stdout) == (7, "from /home/daytona\n"), done.stderr


def test_exec_needs_no_dashes_and_passes_options_on(env: dict[str, str]) -> None:
    done = run(env, "exec", "printf", "%s|", "--root", "-x", "a b", "--", "--help")
    assert (done.returncode, done.stdout, done.stderr) == (0, "--root|-x|a b|--|--help|", "")


def test_exec_with_a_root_keeps_its_sandboxes_and_key(env: dict[str, str], tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    keys = [
        run(env, "exec", "--root", root, "--", "sh", "-c", "echo $DAYTONA_API_KEY").stdout
        for _ in range(2)
    ]
    assert keys[0] == keys[1] != "dtn_cloud\n"
    other = run(env, "exec", "--", "sh", "-c", "echo $DAYTONA_API_KEY").stdout
    assert other not in (keys[0], "dtn_cloud\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_exec_passes_signals_on_and_reports_them(
    env: dict[str, str], number: signal.Signals
) -> None:
    with start(env, "exec", "--", "sh", "-c", "echo up; exec sleep 30") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        _, complaints = process.communicate(timeout=20)
    assert (process.returncode, complaints) == (128 + number, "")


def test_exec_lets_the_command_decide_about_a_signal(env: dict[str, str]) -> None:
    with start(
        env,
        "exec",
        "--",
        "sh",
        "-c",
        "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done",
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.terminate()
        rest, _ = process.communicate(timeout=20)
    assert (process.returncode, rest) == (5, "bye\n")


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (
            ["exec", "--", "no-such-command"],
            127,
            "cannot run 'no-such-command': No such file or directory",
        ),
        (["exec", "--", "/etc/passwd"], 126, "cannot run '/etc/passwd': Permission denied"),
        (["exec"], 2, "missing argument"),
        (["serve", "--port", "70000"], 2, "70000"),
        (["serve", "--isolation", "none"], 2, "none"),
        (["serve", "more"], 2, "more"),
        (["serve", "--like", "0.1"], 2, "0.1"),
        (["nothing"], 2, "no such command 'nothing'"),
        (["serve", "--root", "/proc/none"], 13, "cannot start on '/proc/none'"),
        (
            ["serve", "--root", "ROOT", "--env-file", "/proc/none/x"],
            13,
            "cannot write '/proc/none/x'",
        ),
    ],
)
def test_errors_are_one_line_one_hint_and_a_status(
    env: dict[str, str], tmp_path: Path, arguments: Sequence[str], status: int, says: str
) -> None:
    done = run(
        env, *(str(tmp_path / "root") if argument == "ROOT" else argument for argument in arguments)
    )
    lines = [
        line
        for line in done.stderr.splitlines()
        if not line.startswith("daytona-local: API") and "Ctrl-C" not in line
    ]
    assert done.returncode == status, done.stderr
    assert len(lines) == 2, done.stderr
    assert lines[0].startswith("daytona-local: error: ")
    assert says.lower() in lines[0].lower()
    assert not lines[0].endswith(".")
    assert lines[1].startswith("hint: ")


def test_a_root_or_a_port_in_use_is_refused(
    env: dict[str, str], local: LocalDaytona, tmp_path: Path
) -> None:
    done = run(env, "serve", "--root", str(local.root))
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"daytona-local: error: another daytona-local runs on '{local.root}' [failed]\nhint: "
    )
    for option, port in (("--port", local.api_port), ("--gateway-port", local.gateway_port)):
        done = run(env, "serve", "--root", str(tmp_path / "other"), option, str(port))
        assert done.returncode == 13
        assert "in use" in done.stderr
    with http(local) as api:
        assert api.get("/health").status_code == 200


@pytest.mark.parametrize("like", ["cloud", "0.190"])
def test_it_behaves_like_the_server_that_is_asked_for(env: dict[str, str], like: str) -> None:
    script = (
        "import os, urllib.request; print(urllib.request.urlopen(os.environ['DAYTONA_API_URL'] "
        "+ '/config').read().decode())"
    )
    done = run(env, "exec", "--like", like, "--", sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    assert ("sshGatewayHostKeys" in done.stdout) == (like == "cloud")


def test_plain_says_once_and_loudly_that_it_does_not_isolate(env: dict[str, str]) -> None:
    done = run(env, "exec", "--isolation", "plain", "--", "true")
    assert done.returncode == 0
    assert done.stderr.count("WARNING") == 1
    assert "NOT isolated" in done.stderr


def test_help_is_quick_and_an_import_of_the_server_is_not_part_of_it(env: dict[str, str]) -> None:
    heavy = ("aiohttp", "asyncssh", "daytona", "asyncio")
    script = (
        "import sys; from git_daytona.__main__ import main\n"
        "for words in (['--help'], ['serve', '--help'], ['exec', '--help']):\n"
        "    assert main(['daytona-local', *words]) == 0\n"
        f"assert not set({heavy!r}) & set(sys.modules), sorted(set({heavy!r}) & set(sys.modules))"
    )
    done = subprocess.run(
        (sys.executable, "-c", script), env=env, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    for option in ("--root", "--port", "--gateway-port", "--isolation", "--like", "--env-file"):
        assert option in done.stdout
