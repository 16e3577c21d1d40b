"""OpenSSH clients of other versions and builds (case 98): each is given only options that it knows,
which it is asked once."""

import os
import shlex
import shutil
from pathlib import Path

import pytest

from git_daytona import ssh
from git_daytona.base import paths

examples = {
    "without GSSAPI": ([], ["GSSAPIAuthentication"]),
    "without PKCS#11 and GSSAPI": ([], ["PKCS11Provider", "GSSAPIAuthentication"]),
    "with options that are gone": (["Tunnel", "LogVerbose", "VisualHostKey"], []),
    "with none of the defaults": ([each.partition("=")[0] for each in ssh._DEFAULTS], []),
    "the one at hand": ([], []),
}
"""What a client refuses, and what it complains about (readconf.c: oBadOption, oUnsupported)."""

_CLIENT = """\
#!/bin/sh
printf x >>{calls}
for word do
  shift
  case $word in {cases}
  esac
  set -- "$@" "$word"
done
{more}
exec {ssh} "$@"
"""


class Client:
    """A client that plays one; how often it was started."""

    def __init__(self, place: Path, gone=(), unsupported=(), more: str = "") -> None:
        self.path, self._calls = place / "ssh", place / "calls"
        cases = [
            f"{name}=*) echo 'command-line line 0: Unsupported option \"{name.lower()}\"' >&2;"
            " word=LogLevel=ERROR ;;"
            for name in unsupported
        ] + [
            f"{name}=*) echo 'command-line: line 0: Bad configuration option: {name.lower()}' >&2;"
            " exit 255 ;;"
            for name in gone
        ]
        real = shlex.quote(shutil.which("ssh") or "")
        where = {"calls": self._calls, "ssh": real, "more": more}
        self.path.write_text(_CLIENT.format(cases="\n".join(cases), **where))
        self.path.chmod(0o755)

    def calls(self) -> int:
        count = len(self._calls.read_text())
        self._calls.write_text("")
        return count


KNOWN_CALLS = 2
"""One for what the user's configuration says, one for the connection."""


@pytest.fixture
def client_file() -> Path:
    """Where it is kept what a client does not know."""
    file = paths.own_state() / "ssh-client"
    file.unlink(missing_ok=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


@pytest.mark.parametrize(("gone", "unsupported"), examples.values(), ids=examples.keys())
def test_case_98_a_client_is_given_what_it_knows(wrapper, client_file, tmp_path, gone, unsupported):
    client = Client(tmp_path, gone, unsupported)
    for number in range(2):
        env = {"DAYTONA_SSH_BINARY": str(client.path)}
        done = wrapper("echo to stdout; echo to stderr >&2; exit 3", env=env)
        assert (done.returncode, done.stdout, done.stderr) == (3, b"to stdout\n", b"to stderr\n")
        assert (client.calls() == KNOWN_CALLS) is (number > 0), "it is asked once"
    assert client_file.stat().st_mode & 0o777 == 0o600
    assert client_file.stat().st_size < 2048


def test_case_98_a_session_under_such_a_client_is_silent(begin, repo, monkeypatch, tmp_path, capfd):
    client = Client(tmp_path, ["LogVerbose"], ["GSSAPIAuthentication"])
    monkeypatch.setenv("DAYTONA_SSH_BINARY", str(client.path))
    session = begin(repo)
    session.agent("echo x >new")
    session.sync()
    session.coordinator.push(session.name)
    session.coordinator.delete(session.name)
    assert capfd.readouterr() == ("", "")


def test_case_98_a_complaint_about_the_users_configuration_is_left_to_his_own_ssh(
    wrapper, client_file, tmp_path
):
    """Debian's /etc/ssh/ssh_config named GSSAPI for years."""
    more = 'case " $* " in *" -F /proc/"*" -G "*) echo "line 1: Unsupported option" >&2 ;; esac'
    client = Client(tmp_path, [], ["GSSAPIAuthentication"], more)
    done = wrapper("true", env={"DAYTONA_SSH_BINARY": str(client.path)})
    assert (done.returncode, done.stderr) == (0, b"")
    client.calls()
    done = wrapper("true", env={"DAYTONA_SSH_BINARY": str(client.path)})
    assert (done.returncode, done.stderr) == (0, b"")
    assert client.calls() == KNOWN_CALLS + 2, "whether it is that, after all"


def test_a_client_that_always_says_something_works(wrapper, client_file, tmp_path):
    client = Client(tmp_path, [], ["GSSAPIAuthentication"], "echo $$ >&2")
    done = wrapper("echo out", env={"DAYTONA_SSH_BINARY": str(client.path)})
    assert (done.returncode, done.stdout) == (0, b"out\n")


def spoiled(kind: str, file: Path, true: str) -> None:
    asked, _, key = true.split("\n")
    everything = " ".join(ssh._DEFAULTS)
    if kind == "nothing is unknown":
        file.write_text(f"{asked}\n\n{key}")
    elif kind == "everything is unknown":
        names = "StrictHostKeyChecking=yes PreferredAuthentications=none"
        file.write_text(f"{asked}\n{everything} {names}\n{key}")
    elif kind == "another client's":
        file.write_text(f"{asked}\n\n{key}1")
    elif kind == "of other options":
        file.write_text(f"{asked} New=yes\n\n{key}")
    elif kind == "half":
        file.write_text(true[: len(asked) + 5])
    elif kind == "not ASCII":
        file.write_bytes(b"\xff\x00\n\n\n")
    elif kind == "long":
        file.write_bytes(b"x" * 1_000_000)
    else:
        file.unlink()
        if kind == "a folder":
            file.mkdir()
        elif kind == "a pipe":
            os.mkfifo(file)
        elif kind == "a link to nowhere":
            file.symlink_to("nowhere")
        elif kind == "no folder":
            file.parent.rename(file.parent.with_name("elsewhere"))


@pytest.mark.parametrize(
    "kind",
    [
        "nothing is unknown",
        "everything is unknown",
        "another client's",
        "of other options",
        "half",
        "not ASCII",
        "long",
        "none",
        "a folder",
        "a pipe",
        "a link to nowhere",
        "no folder",
    ],
)
def test_what_is_kept_of_a_client_may_lie(wrapper, client_file, tmp_path, kind):
    """It works, in silence; and the gateway's key is looked at all the same."""
    client = Client(tmp_path, [], ["GSSAPIAuthentication"])
    env = {"DAYTONA_SSH_BINARY": str(client.path)}
    wrapper("true", env=env)
    spoiled(kind, client_file, client_file.read_text())
    done = wrapper("true", env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert not (client_file.parent / "nowhere").exists()
    if kind != "everything is unknown":
        return
    (tmp_path / "none").write_text("")
    refused = wrapper("true", env=env | {"DAYTONA_SSH_TRUST_FILE": str(tmp_path / "none")})
    assert refused.returncode == 255
    assert b"Host key verification failed" in refused.stderr


def test_a_client_that_was_replaced_is_asked_anew(wrapper, client_file, tmp_path):
    """An update, and a script whose program behind it was updated."""
    old = Client(tmp_path)
    env = {"DAYTONA_SSH_BINARY": str(old.path)}
    wrapper("true", env=env)
    new = Client(tmp_path, ["LogVerbose"], ["GSSAPIAuthentication"])
    assert wrapper("true", env=env).stderr == b""
    new.calls()
    behind = tmp_path / "front"
    behind.write_text(f'#!/bin/sh\nexec {shlex.quote(str(new.path))} "$@"\n')
    behind.chmod(0o755)
    env = {"DAYTONA_SSH_BINARY": str(behind)}
    wrapper("true", env=env)
    Client(tmp_path, ["Tunnel"], ["PKCS11Provider"])
    assert wrapper("true", env=env).stderr == b""
