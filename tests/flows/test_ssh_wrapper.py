"""daytona-ssh with the real OpenSSH client against the gateway: whatever a user's ssh configuration
and environment say (cases 17 to 23)."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import paramiko
import pytest

from git_daytona import ssh
from git_daytona.base.errors import BadSetting
from git_daytona.transfer import leases
from git_daytona.transfer.environment import inheritable
from support.processes import descendants, gone
from support.round_trip import BIN
from support.waiting import until
from support.wrapper import Wrapper, tiny

# -- what the user's configuration says ------------------------------------------------------------

HOSTILE = """
Host *
  ControlMaster auto
  ControlPath {d}/control
  ControlPersist 60
  RemoteCommand touch /home/daytona/remote-command
  RequestTTY force
  StdinNull yes
  PermitLocalCommand yes
  LocalCommand touch {d}/local-command
  LocalForward 127.0.0.1:{busy} 127.0.0.1:1
  RemoteForward 127.0.0.1:{busy} 127.0.0.1:1
  ExitOnForwardFailure yes
  ForwardAgent yes
  ForwardX11 yes
  SendEnv *
  SetEnv SETENV=leaked LC_ALL=ja_JP.UTF-8
  HostKeyAlias elsewhere
  KnownHostsCommand /usr/bin/touch {d}/known-hosts-command
  UserKnownHostsFile {d}/own-known-hosts
  GlobalKnownHostsFile {d}/own-known-hosts
  VerifyHostKeyDNS yes
  UpdateHostKeys yes
  CheckHostIP yes
  StrictHostKeyChecking no
  NoHostAuthenticationForLocalhost yes
  VisualHostKey yes
  LogLevel {level}
  LogVerbose *:*:*
  User intruder
  HostName host.invalid
  Port 1
  SessionType none
  ForkAfterAuthentication yes
  Tunnel yes
  EscapeChar x
  PKCS11Provider {d}/none.so
  IdentityFile ~/.ssh/id_ed25519
  AddKeysToAgent yes
  IdentityAgent SSH_AUTH_SOCK
  PreferredAuthentications publickey,password
  PubkeyAuthentication yes
  BatchMode no
  CanonicalizeHostname always
  CanonicalDomains invalid
  CanonicalizeFallbackLocal no
Match final
  User intruder
  HostKeyAlias again
  SendEnv *
  RequestTTY force
Match exec "env >{d}/match-environment; tr '\\\\0' ' ' </proc/$PPID/cmdline >{d}/match-arguments"
  User intruder
  LocalCommand touch {d}/local-command
"""


@pytest.mark.parametrize("level", ["DEBUG3", "QUIET"])
def test_case_19_no_directive_has_an_effect(wrapper, config, agent, tmp_path, level):
    with socket.create_server(("127.0.0.1", 0)) as busy:
        config(HOSTILE.format(d=tmp_path, busy=busy.getsockname()[1], level=level))
        noise = bytes(range(256)) * 4096 + b"\n~.\nx.\n"
        done = wrapper(
            "cat; env >seen; tty >>seen; true",
            stdin=noise,
            env=agent | {"LC_SECRET": "leaked", "TZ": "Mars", "LC_ALL": "de_DE.UTF-8"},
        )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == noise, "stdout is the stream and nothing else"
    seen = wrapper("cat seen; rm seen; ls -a").stdout.decode()
    assert "not a tty" in seen
    assert not any(
        sign in seen
        for sign in (
            "LC_SECRET",
            "Mars",
            "SETENV",
            "SSH_AUTH_SOCK",
            "DISPLAY",
            "DAYTONA_SSH",
            "remote-command",
            "de_DE",
            "ja_JP",
        )
    )
    assert {path.name for path in tmp_path.iterdir()} == {
        "agent",
        "match-environment",
        "match-arguments",
    }
    # A command of the user's own configuration does run; the token is not where it could look.
    assert not any(
        wrapper.token in (tmp_path / name).read_text()
        for name in ("match-environment", "match-arguments")
    )
    assert "DAYTONA_" not in (tmp_path / "match-environment").read_text()
    assert "daytona-ssh" not in " ".join(
        each.name for each in descendants() if each.name == "ssh"
    ), "no connection was left open"


def test_case_19_a_transfer_of_git_under_that_configuration(
    local, repo, begin, config, agent, tmp_path, monkeypatch
):
    monkeypatch.setenv("SSH_AUTH_SOCK", agent["SSH_AUTH_SOCK"])
    config(HOSTILE.format(d=tmp_path, busy=local.api_port, level="DEBUG3"))
    session = begin(repo)
    session.agent("env >environment; echo x >x")
    session.sync()
    assert repo.show("opencode/1", "x") == "x"
    assert not any(
        (tmp_path / name).exists()
        for name in ("control", "local-command", "known-hosts-command", "own-known-hosts")
    )


def test_git_protocol_is_sent_and_nothing_else(wrapper, config):
    config("Host *\n  SendEnv *\n")
    environment = {"GIT_PROTOCOL": "version=2", "LC_OTHER": "x"}
    wrapper.program = (*wrapper.program, "-o", "SendEnv=GIT_PROTOCOL")
    sent = wrapper("env", env=environment).stdout
    assert b"GIT_PROTOCOL=version=2\n" in sent
    assert b"LC_OTHER" not in sent


def test_case_20_no_key_is_offered_to_anybody(local, agent, config, tmp_path, home):
    """A server that wants keys, and would take passwords, gets neither."""
    config(
        "Host *\n  PreferredAuthentications publickey,password,keyboard-interactive\n  "
        "PubkeyAuthentication yes\n  IdentityFile ~/.ssh/id_ed25519\n  IdentityAgent "
        "SSH_AUTH_SOCK\n"
    )
    with tiny(admits=False) as server:
        (tmp_path / "pins").write_text(
            f"[127.0.0.1]:{server.port} {server.key.get_name()} {server.key.get_base64()}\n"
        )
        environment = {
            "DAYTONA_SSH_GATEWAY": f"127.0.0.1:{server.port}",
            "DAYTONA_SSH_TRUST_FILE": str(tmp_path / "pins"),
            "DAYTONA_SSH_TRUST_NAME": f"[127.0.0.1]:{server.port}",
        }
        with Wrapper("TheToken1234", environment, server.port).popen("true", env=agent) as process:
            process.communicate(timeout=60)
        assert process.returncode == 255
        assert (server.users, server.offers) == (["TheToken1234"], [])
        # The same agent and file do offer a key to a plain ssh: the test would see it.
        plain = (
            "ssh",
            "-F",
            str(home / ".ssh/config"),
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            f"UserKnownHostsFile={tmp_path}/x",
            "-o",
            "BatchMode=yes",
        )
        subprocess.run(
            (*plain, "-p", str(server.port), "127.0.0.1", "true"),
            env=os.environ | agent,
            capture_output=True,
        )
        assert "publickey" in server.offers


RELAY = """#!{python} -IS
import os, socket, sys, threading
with open({log!r}, "a") as log:
    log.write(repr((sys.argv, dict(os.environ))))
there = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def back():
    while data := there.recv(65536):
        os.write(1, data)
    os._exit(0)
threading.Thread(target=back).start()
while data := os.read(0, 65536):
    there.sendall(data)
there.shutdown(socket.SHUT_WR)
"""


@pytest.mark.parametrize("final", ["", "Match final\n  User again\n"])
def test_case_19_a_proxy_command_works(wrapper, config, tmp_path, final):
    relay = tmp_path / "relay"
    relay.write_text(RELAY.format(python=sys.executable, log=str(tmp_path / "relayed")))
    relay.chmod(0o755)
    config(f"Host 127.0.0.1\n  User intruder\n  ProxyCommand {relay} %h %p\n{final}")
    assert wrapper("cat", stdin=b"through").stdout == b"through"
    used = (tmp_path / "relayed").read_text()
    assert str(wrapper.port) in used
    assert wrapper.token not in used
    assert "DAYTONA_" not in used


@pytest.mark.parametrize("user", ["", "jumper@"])
@pytest.mark.parametrize("final", ["", "Match final\n  User again\n"])
def test_case_19_a_jump_host_works_and_never_sees_the_token(wrapper, config, tmp_path, user, final):
    """Also one on the gateway's own host, whose ssh is given our configuration by the first ssh."""
    with tiny(admits=True) as jump:
        config(
            f'Match originalhost 127.0.0.1 exec "test %p = {jump.port}"\n'
            "  ProxyJump none\n  StrictHostKeyChecking no\n  UserKnownHostsFile "
            f"{tmp_path}/jump\n  LogLevel QUIET\n"
            f"Host 127.0.0.1\n  ProxyJump {user}127.0.0.1:{jump.port}\n{final}"
        )
        done = wrapper("cat", stdin=b"through")
        assert (done.returncode, done.stdout) == (0, b"through"), done.stderr
        assert jump.offers == [f"forward to {wrapper.port}"]
        assert len(jump.users) == 1
        assert wrapper.token not in jump.users
        if user:
            assert jump.users == ["jumper"]


def test_a_jump_host_on_port_22_of_the_same_name(wrapper, config, tmp_path):
    """Whatever answers there must not get the token: a port that the configuration names later does
    not count either."""
    with tiny(admits=True) as jump:
        config(
            "Host 127.0.0.1 jump\n"
            f"  StrictHostKeyChecking no\n  UserKnownHostsFile {tmp_path}/jump\n  LogLevel QUIET\n"
            f"Host jump\n  HostName 127.0.0.1\n  Port {jump.port}\n  ProxyJump none\nHost "
            "*\n  ProxyJump jump\n"
        )
        assert wrapper("cat", stdin=b"through").stdout == b"through"
        assert jump.users
        assert wrapper.token not in jump.users


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Host *\n  NoSuchDirective yes\n", 2),
        ("Port\n", 1),
        ("\n\nHost *\n  Port many\n", 4),
        ('User "open\n', 1),
        ("Host *\n  StrictHostKeyChecking perhaps\n", 2),
    ],
)
def test_case_21_a_syntax_error_names_file_and_line(local, repo, begin, config, text, line):
    session = begin(repo)
    path = config(text)
    session.coordinator.close()
    local.forget_calls()
    with pytest.raises(BadSetting) as refused:
        session.coordinator.fetch("1")
    assert str(path) in refused.value.message
    assert f"line {line}" in refused.value.message
    session.coordinator.close()
    assert local.counts["mint"] == local.counts["revoke"] == 1, "no second try changes it"


# -- the environment -------------------------------------------------------------------------------


def test_case_23_python_cannot_be_confused(wrapper, tmp_path, monkeypatch):
    (tmp_path / "os.py").write_text("print('evil')")
    (tmp_path / "ssh").write_text(f"#!/bin/sh\ntouch {tmp_path}/evil\n")
    (tmp_path / "ssh").chmod(0o755)
    (tmp_path / "sitecustomize.py").write_text("print('evil')")
    monkeypatch.chdir(tmp_path)
    rubbish = {
        "PYTHONPATH": str(tmp_path),
        "PYTHONHOME": str(tmp_path),
        "PYTHONSTARTUP": str(tmp_path / "os.py"),
        "PYTHONWARNINGS": "always,nonsense",
        "PYTHONVERBOSE": "2",
        "PYTHONINSPECT": "1",
        "PYTHONIOENCODING": "nonsense",
        "PYTHONDEVMODE": "1",
        "PATH": f".:{tmp_path.name}:" + os.environ["PATH"],
    }
    done = wrapper("cat", stdin=b"clean", env=rubbish)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"clean", b"")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_any_umask_and_nothing_left_behind(wrapper, tmp_path, umask):
    done = wrapper("cat", stdin=b"x", env={"TMPDIR": str(tmp_path)}, umask=umask)
    assert (done.returncode, done.stdout) == (0, b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_gone(wrapper, tmp_path):
    (tmp_path / "gone").mkdir()
    line = f'cd {tmp_path}/gone && rmdir {tmp_path}/gone && exec "$0" "$@"'
    wrapper.program = ("sh", "-c", line, *wrapper.program)
    assert wrapper("cat", stdin=b"x").stdout == b"x"


@pytest.mark.parametrize("closing", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(wrapper, closing):
    wrapper.program = ("sh", "-c", f'exec "$0" "$@" {closing}', *wrapper.program)
    done = wrapper("echo out; exit 3")
    assert done.returncode == 3
    assert done.stdout == (b"" if ">&-" in closing.replace("2>&-", "") else b"out\n")


def test_status_is_passed_on(wrapper):
    for status in (0, 1, 127, 128, 254):
        assert wrapper(f"exit {status}").returncode == status
    assert wrapper("kill -9 $$").returncode in (137, 255)


def test_case_22_a_client_of_ones_own(wrapper, tmp_path):
    mine = tmp_path / "with blanks" / "it's my $ssh"
    mine.parent.mkdir()
    mine.write_text(
        f'#!/bin/sh\ntr "\\0" "\\n" </proc/$$/environ >"{tmp_path}/environment"\nprintf '
        f'"%s\\n" "$@" >"{tmp_path}/arguments"\nexec ssh "$@"\n'
    )
    mine.chmod(0o755)
    assert (
        wrapper(
            "cat", stdin=b"x", env={"DAYTONA_SSH_BINARY": str(mine), "DAYTONA_API_KEY": "dtn_key"}
        ).stdout
        == b"x"
    )
    for name in ("environment", "arguments"):
        text = (tmp_path / name).read_text()
        assert wrapper.token not in text
        assert "DAYTONA_" not in text
    done = wrapper("true", env={"DAYTONA_SSH_BINARY": "bin/ssh"})
    assert done.returncode == 12
    assert done.stderr.startswith(
        b"daytona-ssh: error: DAYTONA_SSH_BINARY is not an absolute path [missing-program]\nhint: "
    )
    assert wrapper("cat", stdin=b"x", env={"DAYTONA_SSH_BINARY": "  "}).stdout == b"x"


def test_case_56_the_token_is_in_no_argument_and_not_in_the_environment_of_ssh(wrapper, local):
    local.faults.gateway.hang = -1
    with wrapper.popen("true") as process:
        client = until(lambda: [each for each in descendants(process.pid) if each.name == "ssh"])
        for each in descendants(process.pid):
            assert wrapper.token.encode() not in each.arguments + each.environment
        assert wrapper.token.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert not any(b"DAYTONA_" in each.environment for each in client)
        local.faults.gateway.release()
        process.communicate(timeout=60)
        assert process.returncode == 0


def test_a_probe_neither_needs_nor_shows_a_token(wrapper, local):
    local.forget_calls()
    wrapper.program = (*wrapper.program, "-G")
    for token in (wrapper.token, ""):
        done = wrapper(env={"DAYTONA_SSH_TOKEN": token})
        assert done.returncode == 0
        assert b"hostname 127.0.0.1\n" in done.stdout
        assert wrapper.token.encode() not in done.stdout
    assert local.calls == []


@pytest.mark.parametrize(
    "token", ["", "-oProxyCommand=touch evil", "a b", "a\nProxyCommand touch evil", "a@b", "a%b"]
)
def test_case_03_a_malformed_token_runs_nothing(wrapper, token, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    marker = tmp_path / "ran"
    client = tmp_path / "client"
    client.write_text(f"#!/bin/sh\ntouch {marker}\n")
    client.chmod(0o755)
    done = wrapper("true", env={"DAYTONA_SSH_TOKEN": token, "DAYTONA_SSH_BINARY": str(client)})
    assert done.returncode == 13
    assert done.stdout == b""
    assert done.stderr.startswith(b"daytona-ssh: error: ")
    assert done.stderr.count(b"\n") == 2
    assert not marker.exists()
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("where", ["missing", "folder", 'quo"te', "dollar${HOME}"])
def test_a_pin_file_that_cannot_be_used(wrapper, tmp_path, where):
    (tmp_path / "folder").mkdir()
    done = wrapper("true", env={"DAYTONA_SSH_TRUST_FILE": str(tmp_path / where)})
    assert done.returncode == 13
    assert done.stderr.startswith(b"daytona-ssh: error: ")


def test_a_pin_file_with_an_odd_path(wrapper, tmp_path):
    odd = tmp_path / "with blanks, 100% %h $HOME 'quoted' \\back" / "pins"
    odd.parent.mkdir()
    shutil.copy(wrapper.environment["DAYTONA_SSH_TRUST_FILE"], odd)
    assert wrapper("cat", stdin=b"x", env={"DAYTONA_SSH_TRUST_FILE": str(odd)}).stdout == b"x"


def test_another_key_is_refused(wrapper, tmp_path):
    other = paramiko.ECDSAKey.generate()
    (tmp_path / "pins").write_text(
        f"[127.0.0.1]:{wrapper.port} {other.get_name()} {other.get_base64()}\n"
    )
    done = wrapper("echo connected", env={"DAYTONA_SSH_TRUST_FILE": str(tmp_path / "pins")})
    assert (done.returncode, done.stdout) == (255, b"")


# -- signals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL]
)
@pytest.mark.parametrize("moment", ["connecting", "running"])
def test_a_signal_ends_ssh_and_leaves_nothing(wrapper, local, tmp_path, number, moment):
    if moment == "connecting":
        local.faults.gateway.hang = -1
    with wrapper.popen("echo begun; exec sleep 1000", env={"TMPDIR": str(tmp_path)}) as process:
        if moment == "running":
            assert process.stdout.readline() == b"begun\n"
        below = until(lambda: [each.pid for each in descendants(process.pid) if each.name == "ssh"])
        process.send_signal(number)
        assert (
            process.wait(20) == (128 + number if number != signal.SIGKILL else -number)
            or process.returncode == 255
        )
        assert gone(*below)
    assert list(tmp_path.iterdir()) == []


def test_ssh_ends_when_git_lets_go(wrapper):
    with wrapper.popen("exec cat") as process:
        process.stdin.close()
        assert process.wait(20) == 0


# -- other destinations ----------------------------------------------------------------------------

SHIM = """#!/bin/sh
printf '%s\\n' "$@" >>{d}/arguments
env >>{d}/environment
ls -l /proc/$$/fd >>{d}/descriptors
exit 5
"""


@pytest.mark.parametrize("how", ["command", "program"])
def test_case_56_other_hosts_get_nothing_of_ours(wrapper, tmp_path, how):
    shim = tmp_path / "my ssh"
    shim.write_text(SHIM.format(d=tmp_path))
    shim.chmod(0o755)
    own = (
        {"DAYTONA_SSH_OTHER_COMMAND": f"'{shim}' -i mine"}
        if how == "command"
        else {"DAYTONA_SSH_OTHER_PROGRAM": str(shim)}
    )
    from git_daytona.base.secret import Secret

    with inheritable(Secret(wrapper.token)) as descriptor:
        environment = (
            os.environ
            | wrapper.environment
            | own
            | {"DAYTONA_API_KEY": "dtn_key", "DAYTONA_SSH_OTHER_VARIANT": "ssh"}
        )
        for token in (
            {"DAYTONA_SSH_TOKEN": wrapper.token},
            {"DAYTONA_SSH_TOKEN_FD": str(descriptor)},
        ):
            argv = (
                *wrapper.program,
                "-o",
                "SendEnv=GIT_PROTOCOL",
                "-p",
                "2200",
                "me@127.0.0.1",
                "git-upload-pack 'x'",
            )
            done = subprocess.run(
                argv, env=environment | token, pass_fds=(descriptor,), capture_output=True
            )
            assert (done.returncode, done.stdout, done.stderr) == (5, b"", b"")
    arguments = (tmp_path / "arguments").read_text().splitlines()
    expected = ["-o", "SendEnv=GIT_PROTOCOL", "-p", "2200", "me@127.0.0.1", "git-upload-pack 'x'"]
    assert (
        arguments
        == (["-i", "mine"] if how == "command" else [])
        + expected
        + (["-i", "mine"] if how == "command" else [])
        + expected
    )
    assert "DAYTONA_" not in (tmp_path / "environment").read_text()
    assert wrapper.token not in (tmp_path / "environment").read_text()
    assert (tmp_path / "descriptors").read_text().count("memfd") == 1, (
        "only the run that was told no number inherits one"
    )


def test_help_and_usage(command):
    assert command("daytona-ssh", "--help").out.startswith("Usage: daytona-ssh ")
    version = command("daytona-ssh", "--version")
    assert (version.status, "OpenSSH_" in version.err) == (0, True)
    for argv in ((), ("-p",), ("--",), ("-p", "22")):
        told = command("daytona-ssh", *argv)
        assert (told.status, told.out) == (2, "")
        assert told.err.startswith(
            "daytona-ssh: error: there is no host among the arguments [usage]\nhint: "
        )


def test_the_wrapper_through_a_link_and_from_path(wrapper, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "linked").symlink_to(BIN / "daytona-ssh")
    for program, path in (
        ((str(tmp_path / "bin" / "linked"),), ""),
        (("linked",), f"{tmp_path}/bin:"),
        (("daytona-ssh",), f"{BIN}:"),
    ):
        wrapper.program = ("env", f"PATH={path}{os.environ['PATH']}", *program)
        assert wrapper("cat", stdin=b"x").stdout == b"x"


def test_constants_agree():
    """The wrapper imports nothing of the package, so it repeats its exit statuses."""
    from git_daytona.base import errors

    assert (errors.UsageError.status, errors.MissingProgram.status, errors.BadSetting.status) == (
        ssh.EXIT_USAGE,
        ssh.EXIT_MISSING,
        ssh.EXIT_SETTING,
    )
    assert leases.MINUTES == 10
