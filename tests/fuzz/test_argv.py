"""The wrapper's reading of git's command lines: never an exception but Refusal, and what git itself
has written."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from git_daytona import ssh
from support.foreign_values import text

words = st.sampled_from(
    [
        "-4",
        "-6",
        "-p",
        "-p22",
        "-o",
        "SendEnv=GIT_PROTOCOL",
        "-oX=y",
        "--",
        "-",
        "host",
        "u@host",
        "-G",
        "-46p",
        "2222",
        "",
    ]
)


@given(
    st.lists(words | text, max_size=8),
    st.sampled_from(["host", "host:2222", "[::1]:22", "", "[", "::1"]) | text,
)
@example(argv=["--", "-o"], gateway="host")
@example(argv=["-", "-p"], gateway="host")
def fuzz_argv(argv, gateway):
    call = ssh.CommandLine(list(argv))
    assert call.argv == list(argv) and isinstance(call.is_for(gateway), bool)
    assert "@" not in call.host
    assert len(call.rest) <= len(argv) and call.family in ([], ["-4"], ["-6"])
    if call.is_for(gateway):
        assert call.host
    if not call.host:
        return  # main() has refused it
    for variant in ("ssh", "plink", "simple", "tortoiseplink", "putty"):
        try:
            translated = ssh.variant_arguments(call, variant)
            assert translated[len(translated) - len(call.operands) :] == call.operands
        except ssh.Refusal as problem:
            assert "\n" not in problem.message


test_argv = fuzz_argv


@given(text | st.binary(max_size=60).map(lambda raw: raw.decode("utf-8", "surrogateescape")))
def fuzz_token(value):
    """What is taken for a token is one word of ssh_config."""
    try:
        token = ssh.take_token({"DAYTONA_SSH_TOKEN": value})
    except ssh.Refusal as problem:
        assert "\n" not in problem.message and (len(value) < 4 or value not in problem.message)
        return
    assert token == value.strip() and token.isascii() and not set(token) & set(" \t\n\"'\\%#")


test_token = fuzz_token

NAMES = st.text("abz019", min_size=1, max_size=8)
hosts = st.lists(NAMES, min_size=1, max_size=3).map(".".join) | st.sampled_from(
    ["[::1]", "127.0.0.1", "Host.EXAMPLE", "a-b"]
)


@pytest.fixture(scope="module")
def recorder(tmp_path_factory):
    """A program that git takes for ssh, and that notes what it is called with."""
    place = tmp_path_factory.mktemp("recorder")
    program = place / "ssh"
    program.write_text(
        f"#!{sys.executable} -IS\nimport json, sys\njson.dump(sys.argv[1:], "
        f"open({str(place / 'argv')!r}, 'w'))\nsys.exit(1)\n"
    )
    program.chmod(0o700)
    return program


@settings(max_examples=25)
@given(
    hosts,
    st.none() | st.integers(1, 65535),
    st.none() | NAMES,
    st.sampled_from(["", "-4", "-6"]),
    st.sampled_from([0, 1, 2]),
)
def test_gits_own_command_lines(recorder, host, port, user, family, protocol):
    url = (
        f"ssh://{f'{user}@' if user else ''}{host}{f':{port}' if port else ''}/home/daytona/project"
    )
    env = os.environ | {"GIT_SSH_COMMAND": str(recorder), "GIT_SSH_VARIANT": "ssh"}
    family_option = [f"--ipv{family[1]}"] if family else []
    subprocess.run(
        ("git", "-c", f"protocol.version={protocol}", "fetch", "-q", *family_option, url),
        cwd=recorder.parent,
        env=env | {"GIT_DIR": str(made(recorder.parent))},
        capture_output=True,
        timeout=20,
    )
    call = ssh.CommandLine(json.loads((recorder.parent / "argv").read_text()))
    assert call.host.strip("[]") == host.strip("[]")
    assert call.port == str(port or 22)
    assert call.family == ([family] if family else [])
    assert call.sends_protocol == (protocol > 0)
    assert call.rest == ["git-upload-pack '/home/daytona/project'"]
    assert (
        call.is_for(f"{host}:{port or 22}")
        and not call.is_for(f"other.example:{port or 22}")
        and not call.is_for(f"{host}:7")
    )


def made(folder):
    if not (folder / "repository").exists():
        subprocess.run(
            ("git", "init", "-q", "--bare", str(folder / "repository")), check=True, timeout=20
        )
    return folder / "repository"
