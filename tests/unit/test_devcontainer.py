"""What devcontainer.json is read as, what of it needs consent, and what shells there get."""

import json
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from git_daytona.base.errors import BadSetting
from git_daytona.git import repository
from git_daytona.sessions import consent, devcontainer
from git_daytona.sessions.consent import Answer
from git_daytona.sessions.devcontainer import Plan
from support.round_trip import Repo

PROJECT = "/home/daytona/project"


def plan(**wanted: Any) -> Plan:
    return devcontainer.parse("file", json.dumps(wanted).encode())


def shell(script: str, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        ("/bin/sh", "-c", script), env=env, capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_comments_and_commas_are_read() -> None:
    text = b'\xef\xbb\xbf{ // one\n "postCreateCommand": "echo // \\"x\\"", /* two */ "a": [1,], }'
    found = devcontainer.parse("file", text)
    assert [str(each) for each in found.commands] == ['postCreateCommand: echo // "x"']


@pytest.mark.parametrize(
    "command, lines",
    [
        ("npm ci && echo $HOME", ["npm ci && echo $HOME"]),
        (["echo", "a b", "$HOME", ""], ["echo 'a b' '$HOME' ''"]),
        ({"one": "true", "two": ["a", "b"]}, ["true", "a b"]),
        ("cd ${containerWorkspaceFolder}", [f"cd {PROJECT}"]),
        ("${localWorkspaceFolderBasename}", ["project"]),
        (["${containerEnv:A}/b c"], ["\"${A}\"'/b c'"]),
        ("${localEnv:TEST_A} ${env:TEST_A:x} ${localEnv:NONE:x y}", ["here here x y"]),
        ("${localEnv:DAYTONA_API_KEY}${env:DAYTONA_TARGET:none}", ["none"]),
    ],
)
def test_commands(command: object, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_A", "here")
    monkeypatch.setenv("DAYTONA_API_KEY", "dtn_canary")
    assert [each.line() for each in plan(onCreateCommand=command).commands] == lines


def test_values_of_this_machine_are_held_while_they_are_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wants = plan(remoteEnv={"A": "<${localEnv:TEST_A}>", "B": "${localEnv:HOME}"})
    monkeypatch.setenv("TEST_A", "canary-0815")
    assert [each.reveal() for each in wants.held()] == ["canary-0815"]
    monkeypatch.setenv("TEST_A", "not text: \udcff")
    with pytest.raises(BadSetting, match="the value of the variable TEST_A is no text"):
        wants.held()


def test_variables_reach_the_shell_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_A", "$(echo no) `no` 'q' \"d\" \\")
    values = {
        "PLAIN": "a b",
        "QUOTED": 'it\'s; $(touch no) `x` \\ "d"\nline',
        "LOCAL": "<${localEnv:TEST_A}>",
        "PATH": "/first:${containerEnv:PATH}",
        "DEFAULT": '${containerEnv:NONE:$(echo no)"`}',
        "GONE": None,
        "EMPTY": "",
    }
    script = plan(containerEnv={"GONE": "x"}, remoteEnv=values).environment(but=["PLAIN"])
    names = ("PLAIN", "QUOTED", "LOCAL", "PATH", "DEFAULT", "GONE", "EMPTY")
    shown = "".join(f'printf "%s\\0" "${{{name}-unset}}"\n' for name in names)
    assert shell(script + shown, {"PATH": "/last"}).split("\0")[:-1] == [
        "unset",
        values["QUOTED"],
        "<$(echo no) `no` 'q' \"d\" \\>",
        "/first:/last",
        '$(echo no)"`',
        "unset",
        "",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        "[" * 9000,
        '{"postCreateCommand": 7}',
        '{"postCreateCommand": ["a", {}]}',
        '{"postCreateCommand": {"a": {"b": "c"}}}',
        '{"postCreateCommand": "a\\u0000b"}',
        '{"postCreateCommand": "\\ud800"}',
        '{"containerEnv": {"A;B": "x"}}',
        '{"remoteEnv": {"A": 1}}',
        '{"forwardPorts": "80"}',
    ],
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(BadSetting, match="'file' cannot be read"):
        devcontainer.parse("file", text.encode())


def test_ports_and_what_is_not_supported_are_named() -> None:
    found = plan(
        forwardPorts=[80, "3000", "db:5432", 70000, 80], image="x", features={}, customizations={}
    )
    assert found.ports == (80, 3000)
    assert found.unsupported == ("features", "image", "port db:5432", "port 70000")
    assert found.wanted == {}


def test_what_is_shown_hides_nothing() -> None:
    shown = list(
        plan(
            postCreateCommand="echo \x1b[8m\u202e\nrm -r ~\r", remoteEnv={"A": "\t", "B": None}
        ).described()
    )
    assert shown == [
        "postCreateCommand: echo \\x1b[8m\\u202e\n      | rm -r ~\\r",
        "remoteEnv: A=\t",
        "remoteEnv: B (unset)",
    ]


def test_the_hash() -> None:
    first = plan(postCreateCommand={"a": "1", "b": "2"}, containerEnv={"A": "1"}, name="x")
    same = plan(containerEnv={"A": "1"}, postCreateCommand={"b": "2", "a": "1"}, forwardPorts=[1])
    assert first.digest == same.digest
    others = [
        plan(postCreateCommand={"a": "1"}, containerEnv={"A": "1"}),
        plan(onCreateCommand={"a": "1", "b": "2"}, containerEnv={"A": "1"}),
        plan(postCreateCommand={"a": "1", "b": "2"}, remoteEnv={"A": "1"}),
        plan(postCreateCommand=["1", "2"], containerEnv={"A": "1"}),
        plan(postCreateCommand="1 2", containerEnv={"A": "1"}),
    ]
    assert len({first.digest, *(each.digest for each in others)}) == 6


@pytest.mark.parametrize(
    "setting, allowed, wanted, answer",
    [
        ("ask", False, "true", Answer.ASK),
        ("ask", True, "true", Answer.RUN),
        ("always", False, "true", Answer.RUN),
        ("always", False, "echo ${localEnv:TOKEN}", Answer.ASK),
        ("always", False, "echo ${localEnv:DAYTONA_API_KEY}", Answer.RUN),
        ("always", True, "echo ${localEnv:TOKEN}", Answer.RUN),
        ("never", True, "true", Answer.IGNORE),
        ("always", True, "", Answer.IGNORE),
    ],
)
def test_who_decides(setting: str, allowed: bool, wanted: str, answer: Answer) -> None:
    assert consent.decide(setting, plan(postCreateCommand=wanted), allowed=allowed) is answer


def test_consent_is_for_one_repository(home: object) -> None:
    first = plan(postCreateCommand="true")
    consent.allow("/a/.git", first)
    assert consent.is_allowed("/a/.git", first.digest)
    assert not consent.is_allowed("/b/.git", first.digest)
    assert not consent.is_allowed("/a/.git", plan(postCreateCommand="false").digest)
    assert (consent.revoke("/b/.git"), consent.revoke("/a/.git")) == (0, 1)
    assert not consent.is_allowed("/a/.git", first.digest)


def test_links_and_large_files_are_not_read(repo: Repo) -> None:
    outside = repo.path.parent / "outside.json"
    outside.write_text('{"postCreateCommand": "true"}')
    found = repository.discover(repo.path)
    assert devcontainer.read(found, "HEAD") is None
    (repo.path / ".devcontainer.json").symlink_to(outside)
    repo.git("add", ".")
    repo.git("commit", "-qm", "A link")
    with pytest.raises(BadSetting, match="it is no file of at most 64 KiB"):
        devcontainer.read(found, "HEAD")
    (repo.path / ".devcontainer").symlink_to(repo.path.parent)
    (repo.path / ".devcontainer.json").unlink()
    repo.git("add", ".")
    repo.git("commit", "-qm", "A linked folder")
    assert devcontainer.read(found, "HEAD") is None
    repo.commit(".devcontainer.json", '{"a": "' + "a" * 65536 + '"}')
    with pytest.raises(BadSetting, match="it is no file of at most 64 KiB"):
        devcontainer.read(found, "HEAD")
