"""`git daytona doctor`: a chain that holds, each link that can fail and what it says then. Real
git, ssh and embedded Daytona; the one program that is played is `opencode`, which only has to tell
its version."""

import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from git_daytona.base import paths
from git_daytona.base.errors import BadSetting
from git_daytona.cli import checks as rendered
from git_daytona.doctor import Status, daytona, findings, machine
from git_daytona.doctor.findings import Check, ok
from git_daytona.local.server import LocalDaytona
from git_daytona.opencode import closing, registration
from support.program import Told
from support.proxy import Proxy, serving
from support.round_trip import Repo, Session, stop
from support.round_trip import program as executable

Tell = Callable[..., Told]
LINKS = [
    *(
        "python",
        "plugin file",
        "git",
        "repository",
        "opencode",
        "plugin",
        "confined",
        "ssh",
        "files",
        "settings",
        "key",
        "api",
        "key accepted",
    ),
    *("clock", "snapshot", "gateway", "leases", "sessions", "daytona-local"),
]


def program(folder: Path, name: str, script: str) -> Path:
    """An executable shell script."""
    return executable(folder / name, f"#!/bin/sh\n{script}\n")


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that comes first on PATH, with an `opencode` in it."""
    folder = tmp_path / "tools"
    program(folder, "opencode", "echo 1.18.33")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture(autouse=True)
def shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The plugin of this installation."""
    path = _plugin(tmp_path / "site-packages")
    monkeypatch.setattr(registration, "PLUGIN", path)
    return path


def _plugin(place: Path) -> Path:
    path = place / "git_daytona" / "opencode" / "plugin"
    path.mkdir(parents=True)
    (path / "index.js").write_text("export default {}\n")
    return path


@pytest.fixture
def healthy(local: LocalDaytona, tools: Path, repo: Repo, tell: Tell) -> Repo:
    """A repository where every link holds."""
    local.published.reset()
    assert tell("git-daytona", "install", "--project", cwd=repo.path).status == 0
    return repo


class Examined:
    """The findings of a run by their check, and its exit status."""

    def __init__(self, told: Told) -> None:
        self.status = told.status
        self.rows = {row["check"]: row for row in json.loads(told.out)}
        assert list(self.rows) == LINKS
        for row in self.rows.values():
            assert row.keys() == {"check", "status", "detail", "hint"}
            assert (row["hint"] is not None) == (row["status"] in ("warn", "fail")), row
            assert "\n" not in row["detail"]
        assert self.status == int("fail" in [row["status"] for row in self.rows.values()])

    def __getitem__(self, check: str) -> tuple[str, str, str]:
        row = self.rows[check]
        return row["status"], row["detail"], row["hint"] or ""

    def only(self, check: str, status: str) -> tuple[str, str]:
        """Detail and hint of the one finding that is not fine; what needs it is skipped."""
        assert {name for name, row in self.rows.items() if row["status"] in ("warn", "fail")} == {
            check
        }
        assert self.rows[check]["status"] == status
        return self[check][1:]


@pytest.fixture
def examine(tell: Tell) -> Callable[[Path], Examined]:
    return lambda place: Examined(tell("git-daytona", "doctor", "--json", cwd=place))


# -- a chain that holds ----------------------------------------------------------------------------


def test_all_is_well(healthy: Repo, tell: Tell, local: LocalDaytona, tools: Path) -> None:
    told = tell("git-daytona", "doctor", cwd=healthy.path)
    lines = told.out.splitlines()
    assert (told.status, told.err) == (0, "")
    assert [line[:23].rstrip() for line in lines] == [f"ok      {name}" for name in LINKS]
    text = {line[8:21].rstrip(): line[23:] for line in lines}
    assert text["opencode"] == f"1.18.33 ('{tools / 'opencode'}')"
    assert text["plugin"] == f"registered in '{healthy.path / 'opencode.json'}'"
    assert text["key"] == "from the environment variable DAYTONA_API_KEY"
    assert text["api"] == f"{local.api_url} answers"
    assert text["gateway"].endswith(", pinned, verified: published = presented")
    assert text["sessions"] == "none yet"
    assert not paths.pin_file().exists(), "it changes nothing"


def test_no_secret_in_it(healthy: Repo, tell: Tell, local: LocalDaytona) -> None:
    (healthy.path / ".env").write_text(
        f"DAYTONA_API_URL=http://someone:{local.api_key}@127.0.0.1\n"
    )
    for words in (("doctor",), ("doctor", "--json")):
        told = tell("git-daytona", *words, cwd=healthy.path)
        assert local.api_key not in told.out + told.err
    # Of a chain that holds nothing is logged.
    assert not paths.log_file().exists() or local.api_key not in paths.log_file().read_text()


def test_outside_a_repository(
    healthy: Repo, tell: Tell, examine: Callable[[Path], Examined], tmp_path: Path
) -> None:
    assert tell("git-daytona", "install", "--global").status == 0
    (tmp_path / "nowhere").mkdir()
    found = examine(tmp_path / "nowhere")
    detail, _hint = found.only("repository", "warn")
    assert "is not in a git repository" in detail
    assert found["sessions"] == ("skipped", "there is no repository here", "")


def test_a_session_that_is_synced(
    healthy: Repo, examine: Callable[[Path], Examined], begin: Callable[..., Session]
) -> None:
    session = begin(healthy)
    found = examine(healthy.path)
    detail, hint = found.only("sessions", "warn")
    assert (detail, hint) == ("1 of 1 may hold work that is not here", "sync: git daytona sync 1")
    session.sync()
    found = examine(healthy.path)
    assert found["sessions"] == ("ok", "1, all of them synced", "")
    assert found["gateway"][1].endswith("verified: published = pinned = presented")
    session.coordinator.state.note(session.coordinator.find("1").id, "failed", "the disk is full")
    detail, hint = examine(healthy.path).only("sessions", "warn")
    assert (detail, hint) == (
        "session 1 was not synced: the disk is full",
        "try again: git daytona sync 1",
    )


# -- links on this machine -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "status", "says", "hint"),
    [
        ("echo 1.14.2", "warn", "1.14.2 ", "opencode upgrade"),
        (
            "echo opencode v3.0.0-beta1",
            "warn",
            "newer than any that was tested",
            "update git-daytona",
        ),
        ("echo hello; exit 3", "warn", "does not tell its version", "--version"),
        (
            "exec sleep 60",
            "fail",
            "does not tell its version within 1 seconds",
            "see what keeps it",
        ),
    ],
)
def test_opencode(
    healthy: Repo,
    examine: Callable[[Path], Examined],
    tools: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    status: str,
    says: str,
    hint: str,
) -> None:
    if "sleep" in script:
        monkeypatch.setattr(machine, "PROGRAM_SECONDS", 1.0)
    program(tools, "opencode", script)
    found = examine(healthy.path).only("opencode", status)
    assert says in found[0] and hint in found[1]


def test_opencode_is_told_no_key(
    healthy: Repo, examine: Callable[[Path], Examined], tools: Path, tmp_path: Path
) -> None:
    program(tools, "opencode", f"env >'{tmp_path}/seen'; echo 1.18.0")
    examine(healthy.path)
    assert "PATH=" in (tmp_path / "seen").read_text()
    assert "DAYTONA_" not in (tmp_path / "seen").read_text()


def test_no_opencode_but_one_in_the_working_directory(
    healthy: Repo, examine: Callable[[Path], Examined], tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tools / "opencode").rename(healthy.path / "opencode")
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.environ['PATH']}")
    detail, hint = examine(healthy.path).only("opencode", "fail")
    assert detail == "it is not on PATH"
    assert "https://opencode.ai" in hint


def test_the_plugin_is_missing(
    healthy: Repo, tell: Tell, examine: Callable[[Path], Examined], shim: Path
) -> None:
    tell("git-daytona", "uninstall", cwd=healthy.path)
    detail, hint = examine(healthy.path).only("plugin", "fail")
    assert (detail, hint) == (
        "OpenCode's configuration does not name it",
        "register it: git daytona install",
    )
    tell("git-daytona", "install", "--project", cwd=healthy.path)
    shutil.rmtree(shim)
    found = examine(healthy.path)
    assert found["plugin file"][0] == "fail"
    assert (
        found["plugin"][1]
        == f"'{healthy.path / 'opencode.json'}' names '{shim}', which does not exist"
    )


def test_the_plugin_twice(
    healthy: Repo,
    tell: Tell,
    examine: Callable[[Path], Examined],
    home: Path,
    shim: Path,
    tmp_path: Path,
    monkeypatch,
) -> None:
    tell("git-daytona", "install", "--global")
    assert examine(healthy.path)["plugin"][0] == "ok", "the same in both files is loaded once"
    shared = home / ".config" / "opencode" / "opencode.json"
    other = _plugin(tmp_path / "other")
    shared.write_text(closing.add(json.dumps({"plugin": [str(other)]})))
    detail, hint = examine(healthy.path).only("plugin", "fail")
    assert detail.startswith("two of them would run")
    assert hint == "take one back: git daytona uninstall --project"
    tell("git-daytona", "uninstall", "--project", cwd=healthy.path)
    detail, hint = examine(healthy.path).only("plugin", "warn")
    assert f"that of another installation: '{other}'" in detail
    # An array in opencode.jsonc hides that one.
    shared.with_suffix(".jsonc").write_text('{"plugin": []}')
    assert examine(healthy.path)["plugin"][1] == "OpenCode's configuration does not name it"
    # Where OpenCode looks besides.
    named = json.dumps({"plugin": [registration.entry()]})
    (tmp_path / "named.json").write_text(closing.add(named))
    monkeypatch.setenv("OPENCODE_CONFIG", str(tmp_path / "named.json"))
    assert examine(healthy.path)["plugin"][1] == f"registered in '{tmp_path / 'named.json'}'"
    monkeypatch.delenv("OPENCODE_CONFIG")
    loose = healthy.path / ".opencode" / "plugins" / "git-daytona"
    loose.parent.mkdir(parents=True)
    loose.symlink_to(shim)
    assert examine(healthy.path)["plugin"] == ("ok", f"registered in '{loose}'", "")
    monkeypatch.setenv("OPENCODE_DISABLE_PROJECT_CONFIG", "1")
    assert examine(healthy.path)["plugin"][0] == "fail"


def test_a_plugin_that_only_opencode_1_loads(
    healthy: Repo, examine: Callable[[Path], Examined], shim: Path
) -> None:
    config = healthy.path / "opencode.json"
    former = shim.with_name("daytona.js")
    config.write_text(config.read_text().replace(registration.entry(), former.as_uri()))
    detail, hint = examine(healthy.path).only("plugin", "fail")
    assert detail == f"'{config}' names '{former}', which does not exist"
    former.write_text("export default async () => ({})\n")
    for named in (former, shim / "index.js"):
        config.write_text(closing.add(json.dumps({"plugin": [named.as_uri()]})))
        detail, hint = examine(healthy.path).only("plugin", "fail")
        assert detail == f"'{config}' names '{named}', which OpenCode 2 does not load"
        assert hint == "register it: git daytona install"


def test_rules_that_close_what_the_plugin_does_not_replace(
    healthy: Repo, tell: Tell, examine: Callable[[Path], Examined], home: Path
) -> None:
    config = healthy.path / "opencode.json"
    config.write_text(json.dumps({"plugin": [registration.entry()]}))
    detail, hint = examine(healthy.path).only("plugin", "warn")
    assert f"'{config}' does not forbid OpenCode's own bash, edit, " in detail
    assert hint == "register it: git daytona install"
    tell("git-daytona", "install", "--project", cwd=healthy.path)
    rules = json.loads(config.read_text())
    assert examine(healthy.path)["plugin"][0] == "ok"
    del rules["permission"]["bash"]["**"]
    config.write_text(json.dumps(rules))
    detail, _hint = examine(healthy.path).only("plugin", "warn")
    assert f"'{config}' does not forbid OpenCode's own bash where" in detail
    # A file that is read later has the last word.
    tell("git-daytona", "install", "--global")
    config.write_text('{"permission": {"bash": "deny", "edit": {"*.md": "allow"}}}')
    detail, hint = examine(healthy.path).only("plugin", "warn")
    assert f"'{config}' allows OpenCode's own edit where the plugin does not load" in detail
    assert hint.startswith("remove these rules there")
    config.write_text('{"permission": {"bash": "deny"}}')
    assert examine(healthy.path)["plugin"][0] == "ok"


@pytest.mark.parametrize("spec", ["-git-daytona", "-*"])
def test_a_repository_that_switches_the_plugin_off(
    healthy: Repo, tell: Tell, examine: Callable[[Path], Examined], spec: str
) -> None:
    tell("git-daytona", "uninstall", cwd=healthy.path)
    tell("git-daytona", "install", "--global")
    assert examine(healthy.path)["plugin"][0] == "ok"
    config = healthy.path / "opencode.json"
    config.write_text(json.dumps({"plugin": [spec]}))
    detail, hint = examine(healthy.path).only("plugin", "fail")
    assert (detail, hint) == (f"'{config}' switches it off: \"{spec}\"", "remove that line")


def test_the_other_plugin_of_daytona(healthy: Repo, examine: Callable[[Path], Examined]) -> None:
    config = healthy.path / ".opencode" / "opencode.jsonc"
    config.parent.mkdir()
    config.write_text('{"plugin": ["@daytona/opencode",]}')
    detail, _hint = examine(healthy.path).only("plugin", "fail")
    assert f"'@daytona/opencode' in '{config}'" in detail
    config.write_text('{"plugin": ["@daytona/opencode"')
    detail, _hint = examine(healthy.path).only("plugin", "fail")
    assert f"'{config}' is not JSON with comments" in detail


def test_plugins_are_off(
    healthy: Repo, examine: Callable[[Path], Examined], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_PURE", "1")
    detail, hint = examine(healthy.path).only("plugin", "warn")
    assert "OpenCode loads no plugins" in detail and hint == "unset OPENCODE_PURE"


def test_git(healthy: Repo, examine: Callable[[Path], Examined], tools: Path) -> None:
    real = subprocess.run(
        ("sh", "-c", "command -v git"), capture_output=True, text=True, check=True
    ).stdout.strip()
    program(
        tools,
        "git",
        f'[ "$1" = --version ] && exec echo "git version 2.34.1 (Apple Git-1)"; exec {real} "$@"',
    )
    found = examine(healthy.path)
    assert found["git"] == ("fail", "2.34.1 (Apple Git-1) is older than 2.36", "update git")
    assert found["repository"] == ("skipped", "it needs 'git'", "")
    assert found["sessions"][0] == "skipped"


def test_no_git_and_no_ssh(
    healthy: Repo, examine: Callable[[Path], Examined], tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tools))
    found = examine(healthy.path)
    assert found["git"][:2] == ("fail", "it is not on PATH")
    assert found["ssh"][0] == "fail" and "apt install openssh-client" in found["ssh"][2]


@pytest.mark.parametrize(
    ("script", "status", "says"),
    [
        ("echo OpenSSH_8.2p1 Ubuntu-4ubuntu0.5, OpenSSL 1.1.1f >&2", "fail", "8.2p1 "),
        ("echo OpenSSH_10.0p2, OpenSSL 3.5 >&2", "ok", "10.0p2 "),
        ("echo 'Dropbear v2022.83' >&2", "warn", "is not OpenSSH: Dropbear v2022.83"),
    ],
)
def test_ssh(
    healthy: Repo,
    examine: Callable[[Path], Examined],
    tmp_path: Path,
    monkeypatch,
    script: str,
    status: str,
    says: str,
) -> None:
    monkeypatch.setenv("DAYTONA_SSH_BINARY", str(program(tmp_path / "ssh", "ssh", script)))
    found = examine(healthy.path)
    assert found["ssh"][0] == status and says in found["ssh"][1]
    monkeypatch.setenv("DAYTONA_SSH_BINARY", "ssh")
    assert examine(healthy.path)["ssh"][:2] == (
        "fail",
        "DAYTONA_SSH_BINARY is not an absolute path",
    )


def test_repositories(healthy: Repo, examine: Callable[[Path], Examined], tmp_path: Path) -> None:
    healthy.git("branch", "opencode")
    _detail, hint = examine(healthy.path).only("repository", "fail")
    assert hint == "rename it: git branch -m opencode other-name"
    (tmp_path / "empty").mkdir()
    Repo(tmp_path / "empty").git("init", "-q")
    found = examine(tmp_path / "empty")
    assert found["repository"][0] == "warn" and "has no commits" in found["repository"][1]
    healthy.git("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    assert "it is bare" in examine(tmp_path / "bare.git")["repository"][1]


def test_files(
    healthy: Repo,
    examine: Callable[[Path], Examined],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paths.storage().mkdir(parents=True)
    (paths.storage() / "abc.json.corrupt-1").write_text("{")
    detail, _hint = examine(healthy.path).only("files", "warn")
    assert "was set aside" in detail
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    found = examine(healthy.path)
    assert found["files"] == (
        "fail",
        f"'{tmp_path / 'file'}' is not a directory",
        "move it out of the way",
    )
    assert found["leases"][0] == "skipped"


def test_isolation(
    healthy: Repo, examine: Callable[[Path], Examined], tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert examine(healthy.path)["daytona-local"][1] in (
        "bubblewrap works here",
        "namespaces works here",
    )
    program(tools, "bwrap", "exit 1")
    monkeypatch.setattr("platform.system", lambda: "Linux")
    for path, hint in (("/nowhere", "apt install bubblewrap"), (str(tools), "says why")):
        monkeypatch.setenv("PATH", path)
        plain = machine.isolation(lambda: "plain", matters=True)
        assert plain.status is Status.WARN and hint in (plain.hint or "")
    assert machine.isolation(lambda: "plain", matters=False).status is Status.OK


# -- links to Daytona ------------------------------------------------------------------------------


def test_settings(
    healthy: Repo, examine: Callable[[Path], Examined], monkeypatch: pytest.MonkeyPatch
) -> None:
    (healthy.path / ".env").write_text("DAYTONA_SSH_BINARY=/tmp/evil\n")
    detail, _hint = examine(healthy.path).only("settings", "warn")
    assert "DAYTONA_SSH_BINARY in '.env' ignored" in detail
    monkeypatch.setenv("DAYTONA_API_URL", "ftp://x")
    found = examine(healthy.path)
    assert found["settings"][:2] == ("fail", "DAYTONA_API_URL is not an http(s) URL")
    for check in ("key", "api", "key accepted", "gateway", "leases", "sessions"):
        assert found[check][0] == "skipped"


def test_keys(
    healthy: Repo,
    examine: Callable[[Path], Examined],
    local: LocalDaytona,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DAYTONA_API_KEY")
    found = examine(healthy.path)
    detail, hint = found.only("key", "fail")
    assert "there is no API key" in detail and "set DAYTONA_API_KEY" in hint
    assert found["key accepted"] == ("skipped", "it needs 'key'", "")
    assert found["gateway"][0] == "ok", "needs no key"
    (healthy.path / ".env").write_text("DAYTONA_API_KEY=dtn_wrongwrongwrong\n")
    found = examine(healthy.path)
    assert found["key"][1] == f"from '.env' of '{healthy.path}'"
    detail, hint = found.only("key accepted", "fail")
    assert f"does not accept the API key from '.env' of '{healthy.path}'" in detail
    (healthy.path / ".env").unlink()
    profile = paths.daytona_cli_config()
    profile.parent.mkdir(parents=True)
    api = {"url": local.api_url, "key": local.api_key}
    profile.write_text(
        json.dumps({"activeProfile": "1", "profiles": [{"id": "1", "name": "mine", "api": api}]})
    )
    profile.chmod(0o644)  # as the Daytona CLI leaves it
    found = examine(healthy.path)
    detail, hint = found.only("key", "warn")
    assert detail == f"from profile 'mine' of the Daytona CLI in '{profile}'"
    assert "chmod 600" in hint


@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [
        (
            {"name": "ci", "permissions": ["read:volumes"]},
            "fail",
            "it lacks the permission write:sandboxes and delete:sandboxes",
        ),
        (
            {"name": "ci", "expiresAt": "2020-01-01T00:00:00.000Z"},
            "warn",
            "named 'ci', but it expires in 0 days",
        ),
        ({"expiresAt": "soon", "permissions": "all"}, "ok", "accepted"),
    ],
)
def test_what_a_key_may(
    healthy: Repo,
    examine: Callable[[Path], Examined],
    local: LocalDaytona,
    answer: dict[str, object],
    status: str,
    says: str,
) -> None:
    with local.faults.call(
        route="key", body=json.dumps(answer).encode(), content_type="application/json", times=1
    ):
        found = examine(healthy.path)["key accepted"]
    assert found[0] == status and says in found[1]


def test_an_api_that_is_down(
    healthy: Repo, examine: Callable[[Path], Examined], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    monkeypatch.setenv("DAYTONA_API_URL", f"http://127.0.0.1:{port}/api")
    found = examine(healthy.path)
    detail, _hint = found.only("api", "fail")
    assert "cannot reach Daytona at" in detail
    assert found["gateway"] == ("skipped", "it needs 'api'", "")


def test_an_api_that_never_answers(
    healthy: Repo, examine: Callable[[Path], Examined], local: LocalDaytona, monkeypatch
) -> None:
    monkeypatch.setattr(daytona, "REQUEST_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("DAYTONA_API_URL", f"http://127.0.0.1:{silent.getsockname()[1]}/api")
        found = examine(healthy.path)
    assert "did not answer in time" in found.only("api", "fail")[0]


def test_a_clock_that_is_wrong(
    healthy: Repo, examine: Callable[[Path], Examined], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daytona, "SKEW_SECONDS", -1.0)
    detail, hint = examine(healthy.path).only("clock", "warn")
    assert "seconds" in detail and "set the clock" in hint


def test_snapshots(
    healthy: Repo,
    examine: Callable[[Path], Examined],
    local: LocalDaytona,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DAYTONA_SNAPSHOT", "no/such")
    detail, hint = examine(healthy.path).only("snapshot", "fail")
    assert detail == "there is no snapshot 'no/such'"
    assert "correct DAYTONA_SNAPSHOT" in hint
    for state, status in (("active", "ok"), ("pulling", "warn"), ("build_failed", "fail")):
        body = json.dumps({"state": state}).encode()
        with local.faults.call(
            route="snapshot-get", body=body, content_type="application/json", times=1
        ):
            assert examine(healthy.path)["snapshot"][0] == status


def test_a_gateway_with_another_key(
    healthy: Repo, tell: Tell, examine: Callable[[Path], Examined], local: LocalDaytona
) -> None:
    assert tell("daytona-pin", "pin").status == 0
    local.published.host_keys = local.gateway.presented_keys()
    local.gateway.rotate()
    detail, hint = examine(healthy.path).only("gateway", "fail")
    assert " presents SHA256:" in detail
    assert "nothing was sent" in hint and "ask who runs" in hint
    local.published.nothing()
    tell("daytona-pin", "forget", "--yes")
    detail, hint = examine(healthy.path).only("gateway", "warn")
    assert "inherited, nothing to verify against" in detail


def test_stale_leases(
    healthy: Repo, examine: Callable[[Path], Examined], local: LocalDaytona
) -> None:
    paths.leases().mkdir(parents=True)
    entry = {
        "sandboxId": "x",
        "apiUrl": local.api_url,
        "pid": 1,
        "started": "1",
        "at": 0,
        "state": "lost",
    }
    (paths.leases() / "0.json").write_text(json.dumps(entry))
    detail, hint = examine(healthy.path).only("leases", "warn")
    assert (
        detail.startswith("1 left by killed processes")
        and hint == "revoke them: git daytona recover"
    )


# -- how checks are run ----------------------------------------------------------------------------


def test_checks_are_bounded_and_independent() -> None:
    release = threading.Event()

    def hang() -> findings.Finding:
        release.wait(60)
        return ok("late")

    def break_() -> findings.Finding:
        raise RuntimeError("a bug")

    def refuse() -> findings.Finding:
        raise BadSetting("it is\nwrong \x1b[31m")

    checks = [
        Check("hangs", hang),
        Check("needs it", lambda: ok("never"), ("hangs",)),
        Check("needs that", lambda: ok("never"), ("needs it",)),
        Check("breaks", break_),
        Check("refuses", refuse),
        Check("holds", lambda: ok("fine")),
    ]
    found = {each.check: each for each in findings.run(checks, seconds=0.2)}
    release.set()
    assert [each.status.value for each in found.values()] == [
        "fail",
        "skipped",
        "skipped",
        "fail",
        "fail",
        "ok",
    ]
    assert found["hangs"].detail == "no answer within 0 seconds"
    assert found["needs that"].detail == "it needs 'needs it'"
    assert found["breaks"].detail == "the check itself failed"
    assert rendered.text(found["refuses"]) == (
        "FAIL    refuses        it is wrong \\x1b[31m\n"
        "                       hint: the log may say more: git daytona logs"
    )


def test_on_a_terminal_it_is_coloured_and_wrapped_in_its_column() -> None:
    """And what cannot be broken, a path or a command, stays whole."""
    path = "/a/very/long/path-with-hyphens/that/nobody/would/like/to/have/in/two/halves"
    found = findings.Finding("ssh", Status.FAIL, f"cannot run '{path}' here", "name another one")
    assert rendered.text(found, columns=50, colour=True).splitlines() == [
        "\x1b[31m\x1b[22mFAIL   \x1b[0m ssh            cannot run",
        f"{' ' * 23}'{path}'",
        f"{' ' * 23}here",
        f"{' ' * 23}hint: name another one",
    ]
    assert all(len(name) <= rendered.NAME_COLUMNS for name in LINKS)


def test_without_opencode_nothing_fails(
    local: LocalDaytona,
    repo: Repo,
    tell: Tell,
    examine: Callable[[Path], Examined],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its checks are left out until a configuration names the plugin."""
    local.published.reset()
    monkeypatch.setattr(machine, "find_opencode", lambda: None)
    found = examine(repo.path)
    assert found.status == 0
    assert found["opencode"][0] == found["plugin"][0] == "skipped"
    tell("git-daytona", "install", "--project", cwd=repo.path)
    assert examine(repo.path).only("opencode", "fail")[0] == "it is not on PATH"


def test_a_preference_that_makes_no_sense(
    healthy: Repo, examine: Callable[[Path], Examined]
) -> None:
    healthy.git("config", "daytona.keptAge", "soonish")
    detail, hint = examine(healthy.path).only("settings", "warn")
    assert "daytona.keptAge is 'soonish'" in detail and "git config --local daytona.keptAge" in hint


# -- HTTPS comes through, and SSH does not ---------------------------------------------------------


def test_what_keeps_ssh_away(
    healthy: Repo,
    examine: Callable[[Path], Examined],
    local: LocalDaytona,
    tools: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(daytona, "PROBE_SECONDS", 0.5)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        socket.create_server(("127.0.0.1", 0)) as closed,
        serving(Proxy({"api.daytona.test": local.api_port})) as proxy,
    ):
        refused = closed.getsockname()[1]
        closed.close()
        for port, why in ((silent.getsockname()[1], "timed out"), (refused, "refused")):
            local.published.members["sshGatewayPort"] = port
            detail, hint = examine(healthy.path).only("gateway", "fail")
            assert why in detail and detail.endswith("the API answers, so a firewall may block SSH")
            assert "have that port opened" in hint
        monkeypatch.setenv("DAYTONA_API_URL", "http://api.daytona.test/api")
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy}")
        found = examine(healthy.path)
        detail, hint = found.only("gateway", "fail")
        assert f"through the proxy 'http://127.0.0.1:{proxy}' (HTTP_PROXY)" in found["api"][1]
        assert "is not for ssh" in detail and f"nc -X connect -x 127.0.0.1:{proxy}" in hint
        ssh = shutil.which("ssh")  # it finds its configuration by the account, not by HOME
        (tools / "config").write_text("Host 127.0.0.1\n  ProxyCommand true\n")
        program(tools, "ssh", f'exec {ssh} -F {tools}/config "$@"')
        detail, _ = examine(healthy.path).only("gateway", "warn")
        assert "behind a proxy of your ssh configuration" in detail


def test_a_sandbox_that_sleeps_or_is_gone(
    healthy: Repo, examine: Callable[[Path], Examined], begin: Callable[..., Session]
) -> None:
    session = begin(healthy)
    session.coordinator.state.note(session.coordinator.find("1").id, "failed", "closed")
    cloud = session.coordinator.cloud
    for end, word in ((stop, "stopped"), (lambda cloud, id_: cloud.delete(id_), "gone")):
        end(cloud, session.sandbox_id)
        detail, _ = examine(healthy.path).only("sessions", "warn")
        assert detail == f"session 1 was not synced: closed; its sandbox is {word}"
