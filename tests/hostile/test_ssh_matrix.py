"""Every directive of ssh_config(5) in the user's configuration, wherever it can stand there: it has
no effect on a connection to the gateway, or it is honoured on purpose, as daytona-ssh(1) says. No
command that the user names ever sees the token."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from git_daytona import ssh
from support.lacking import needs_man
from support.wrapper import tiny

# What would redirect, multiplex, prompt, forward, log, weaken trust, write to stdout, offer a key,
# or merely fail. {d} is a folder for marks and files, {busy} a port that is taken.
WITHOUT_EFFECT = {
    "AddKeysToAgent": "yes",
    "BatchMode": "no",
    "CanonicalDomains": "invalid",
    "CanonicalizeFallbackLocal": "no",
    "CanonicalizeHostname": "always",
    "CanonicalizeMaxDots": "9",
    "CanonicalizePermittedCNAMEs": "*:*",
    "CertificateFile": "{d}/certificate-%r",
    "ChallengeResponseAuthentication": "yes",
    "CheckHostIP": "yes",
    "ClearAllForwardings": "no",
    "ConnectTimeout": "1",
    "ConnectionAttempts": "9",
    "ControlMaster": "auto",
    "ControlPath": "{d}/control",
    "ControlPersist": "60",
    "DynamicForward": "127.0.0.1:{busy}",
    "EnableEscapeCommandline": "yes",
    "EnableSSHKeysign": "yes",
    "EscapeChar": "x",
    "ExitOnForwardFailure": "yes",
    "FingerprintHash": "md5",
    "ForkAfterAuthentication": "yes",
    "ForwardAgent": "yes",
    "ForwardX11": "yes",
    "ForwardX11Timeout": "1",
    "ForwardX11Trusted": "yes",
    "GSSAPIAuthentication": "yes",
    "GSSAPIClientIdentity": "intruder",
    "GSSAPIDelegateCredentials": "yes",
    "GSSAPIKexAlgorithms": "gss-group14-sha256-",
    "GSSAPIKeyExchange": "yes",
    "GSSAPIRenewalForcesRekey": "yes",
    "GSSAPIServerIdentity": "intruder",
    "GSSAPITrustDNS": "yes",
    "GatewayPorts": "yes",
    "GlobalKnownHostsFile": "{d}/own-known-hosts",
    "HashKnownHosts": "yes",
    "HostKeyAlgorithms": "ssh-rsa",
    "HostKeyAlias": "elsewhere",
    "HostName": "host.invalid",
    "HostbasedAcceptedAlgorithms": "ssh-rsa",
    "HostbasedAuthentication": "yes",
    "IdentitiesOnly": "no",
    "IdentityAgent": "SSH_AUTH_SOCK",
    "IdentityFile": "~/.ssh/id_ed25519",
    "IgnoreUnknown": "*",
    "KbdInteractiveAuthentication": "yes",
    "KbdInteractiveDevices": "pam",
    "KnownHostsCommand": "/usr/bin/touch {d}/known-hosts-command",
    "LocalCommand": "touch {d}/local-command",
    "LocalForward": "127.0.0.1:{busy} 127.0.0.1:1",
    "LogLevel": "DEBUG3",
    "LogVerbose": "*:*:*",
    "NoHostAuthenticationForLocalhost": "yes",
    "NumberOfPasswordPrompts": "9",
    "PKCS11Provider": "{d}/none.so",
    "PasswordAuthentication": "yes",
    "PermitLocalCommand": "yes",
    "PermitRemoteOpen": "none",
    "Port": "1",
    "PreferredAuthentications": "publickey,password,keyboard-interactive",
    "PubkeyAcceptedAlgorithms": "ssh-rsa",
    "PubkeyAuthentication": "yes",
    "RemoteCommand": "touch remote-command",
    "RemoteForward": "127.0.0.1:{busy} 127.0.0.1:1",
    "RequestTTY": "force",
    "SecurityKeyProvider": "{d}/none.so",
    "SendEnv": "*",
    "ServerAliveCountMax": "1",
    "ServerAliveInterval": "1",
    "SessionType": "none",
    "SetEnv": "SETENV=leaked LC_ALL=ja_JP.UTF-8",
    "StdinNull": "yes",
    "StreamLocalBindMask": "0000",
    "StreamLocalBindUnlink": "yes",
    "StrictHostKeyChecking": "no",
    "SyslogFacility": "AUTH",
    "Tunnel": "yes",
    "TunnelDevice": "9:9",
    "UpdateHostKeys": "yes",
    "User": "intruder",
    "UserKnownHostsFile": "{d}/own-known-hosts",
    "VerifyHostKeyDNS": "yes",
    "VisualHostKey": "yes",
    "XAuthLocation": "{d}/xauth",
    # Of later versions than 9.2, or of Apple's: here IgnoreUnknown passes them over.
    "ChannelTimeout": "*=1",
    "ObscureKeystrokeTiming": "yes",
    "Tag": "tagged",
    "UseKeychain": "yes",
    "VersionAddendum": "intruder",
    "WarnWeakCrypto": "yes",
}

# name: what it says, and what ssh then shows.
HONOURED = {
    "AddressFamily": ("inet", "inet"),
    "BindAddress": ("127.0.0.1", "127.0.0.1"),
    "BindInterface": ("lo", "lo"),
    "CASignatureAlgorithms": ("ssh-ed25519", "ssh-ed25519"),
    "Ciphers": ("aes256-gcm@openssh.com", "aes256-gcm@openssh.com"),
    "Compression": ("yes", "yes"),
    "IPQoS": ("cs1 none", "cs1 none"),
    "KexAlgorithms": ("ecdh-sha2-nistp256", "ecdh-sha2-nistp256"),
    "MACs": ("hmac-sha2-512", "hmac-sha2-512"),
    "ProxyCommand": ("/bin/relay %%r %h %p", "/bin/relay %%r %h %p"),
    "ProxyUseFdpass": ("yes", "yes"),
    "RekeyLimit": ("1M 30", "1048576 30"),
    "RequiredRSASize": ("3072", "3072"),
    "RevokedHostKeys": ('"{d}/revoked keys"', "{d}/revoked keys"),
    "TCPKeepAlive": ("no", "no"),
}
"""And ProxyJump, which becomes a ProxyCommand, and RefuseConnection, which ends it."""

ELSEWHERE = ("ProxyJump", "RefuseConnection")

ON_OR_OFF = {"true": "yes", "false": "no"}
"""As OpenSSH 10 shows some that 9 shows like the others."""

PLACES = {
    "at the top": "{}",
    "Host": "Host *\n{}",
    "Host, by name": "Host nothing 127.0.0.?\n{}",
    "Match all": "Match all\n{}",
    "Match host": "Match originalhost 127.0.0.1 host 127.0.0.1 localuser *\n{}",
    "Match exec": "Match exec \"env >{d}/match-environment; tr '\\\\0' ' ' </proc/$PPID/cmdline "
    '>{d}/match-arguments"\n{}',
    "Match final": "Match final\n{}",
    "Include": "Host *\nInclude {d}/included\n",
}


def configuration(place: str, names: list[str], d: Path, busy: int = 1) -> str:
    """The user's configuration with directives at a place."""
    lines = [
        f"  {name} {WITHOUT_EFFECT.get(name) or HONOURED[name][0]}".format(d=d, busy=busy)
        for name in names
    ]
    (d / "included").write_text("\n".join(lines) + "\n")
    unknown = ",".join(name for name in WITHOUT_EFFECT if name != "IgnoreUnknown")
    return f"IgnoreUnknown {unknown}\n" + PLACES[place].format("\n".join(lines), d=d) + "\n"


@pytest.fixture
def marks(tmp_path) -> Path:
    made = tmp_path / "marks"
    made.mkdir()
    return made


@pytest.fixture
def shown(home, config, marks):
    """What OpenSSH is told for the gateway with directives at a place: the settings by name."""
    (marks / "pins").write_text("")

    def show(place: str, names: list[str]) -> dict[str, list[str]]:
        config(configuration(place, names, marks))
        environment = os.environ | {
            "DAYTONA_SSH_GATEWAY": "127.0.0.1:2222",
            "DAYTONA_SSH_TRUST_FILE": str(marks / "pins"),
        }
        argv = (sys.executable, "-ISB", ssh.__file__, "-G", "-p", "2222", "127.0.0.1")
        done = subprocess.run(argv, env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), names
        found: dict[str, list[str]] = {}
        for line in done.stdout.splitlines():
            name, _, value = line.partition(" ")
            found.setdefault(name, []).append(value)
        return found

    return show


@needs_man
def test_the_table_is_complete():
    """Whatever the installed client and its manual know has a verdict here, and nothing has two."""
    done = subprocess.run(
        ("ssh", "-G", "-F", "/dev/null", "host"), capture_output=True, text=True, check=True
    )
    known = {line.split(" ")[0].lower() for line in done.stdout.splitlines()} - {
        "host",
        "match",
        "include",
    }
    manual = subprocess.run(
        ("man", "-P", "cat", "ssh_config"),
        capture_output=True,
        text=True,
        env=os.environ | {"MANWIDTH": "80"},
    )
    if manual.returncode != 0:
        pytest.skip("there is no manual page of ssh_config")
    known |= {
        name.lower() for name in re.findall(r"^     ([A-Z]\w+)$", manual.stdout, re.MULTILINE)
    } - {"host", "match", "include"}
    table = [name.lower() for name in (*WITHOUT_EFFECT, *HONOURED, *ELSEWHERE)]
    assert sorted(known - set(table)) == []
    assert len(table) == len(set(table))
    print(
        f"directives of ssh_config(5) tried: {len(table)}, of which honoured: "
        f"{len(HONOURED) + len(ELSEWHERE)}"
    )
    assert len(table) >= 109


def different(one: dict[str, list[str]], other: dict[str, list[str]]) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


@pytest.mark.parametrize("place", PLACES)
def test_no_directive_changes_a_setting_that_is_not_honoured(shown, place):
    plain = shown(place, [])
    names = list(WITHOUT_EFFECT)
    if different(plain, shown(place, names)):  # which one?
        culprits = {
            name: found for name in names if (found := different(plain, shown(place, [name])))
        }
        pytest.fail(f"{place}: {culprits or 'only several together'}")


def test_what_is_honoured_is(shown, marks):
    plain = shown("Host", [])
    for name, (_, expected) in HONOURED.items():
        found = shown("Host", [name])
        assert different(plain, found) == {name.lower()}
        assert [ON_OR_OFF.get(each, each) for each in found[name.lower()]] == [
            expected.format(d=marks)
        ]


@pytest.mark.parametrize("place", PLACES)
def test_a_connection_under_all_of_them_at_once(wrapper, config, agent, marks, place):
    """The stream is the stream, nothing was started, left open or asked, and what a Match runs sees
    nothing of ours."""
    import socket

    noise = bytes(range(256)) * 256 + b"\n~.\nx.\n"
    with socket.create_server(("127.0.0.1", 0)) as busy:
        config(configuration(place, list(WITHOUT_EFFECT), marks, busy.getsockname()[1]))
        done = wrapper(
            "cat; env >seen; ls -a >>seen", stdin=noise, env=agent | {"LC_SECRET": "leaked"}
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, noise, b"")
    seen = wrapper("cat seen; rm seen").stdout.decode()
    assert not any(
        sign in seen
        for sign in ("leaked", "SSH_AUTH_SOCK", "DISPLAY", "SSH_TTY", "remote-command", "ja_JP")
    )
    executed = {"match-environment", "match-arguments"} if place == "Match exec" else set()
    assert {path.name for path in marks.iterdir()} == {"included"} | executed
    for name in executed:
        assert wrapper.token not in (marks / name).read_text()
        assert "DAYTONA_" not in (marks / name).read_text()


def test_a_connection_that_the_user_refuses_is_not_made(wrapper, config):
    """RefuseConnection of OpenSSH 10, in its own words; others do not know it."""
    config('IgnoreUnknown RefuseConnection\nHost 127.0.0.1\n  RefuseConnection "not from here"\n')
    argv = ("ssh", "-F", "none", "-o", "IgnoreUnknown=*", "-o", "RefuseConnection=x", "-G", "host")
    known = subprocess.run(argv, capture_output=True, timeout=30).returncode != 0
    done = wrapper("true")
    assert done.returncode == (255 if known else 0)
    assert (b"not from here" in done.stderr) is known


RECORDER = """#!{python} -IS
import os, sys
with open({log!r}, "a") as log:
    print(sys.argv, file=log)
{then}
"""


@pytest.fixture
def recorder(marks):
    """Make a program that notes what it is called with, and then does something in Python."""

    def make(name: str, then: str = "") -> Path:
        path = marks / name
        path.write_text(
            RECORDER.format(python=sys.executable, log=str(marks / f"{name}-saw"), then=then)
        )
        path.chmod(0o755)
        return path

    return make


PIPE = """
import socket, threading
there = socket.create_connection((sys.argv[-2], int(sys.argv[-1])))
def back():
    while data := there.recv(65536):
        os.write(1, data)
    os._exit(0)
threading.Thread(target=back).start()
while data := os.read(0, 65536):
    there.sendall(data)
there.shutdown(socket.SHUT_WR)
"""


@pytest.mark.parametrize("directive", ["User me%%", ""])
def test_no_command_of_the_users_gets_the_token_for_its_user(
    wrapper, config, marks, recorder, directive
):
    """%r in a Match exec and in a ProxyCommand is the user that their own configuration names."""
    import getpass

    proxy, matched = recorder("proxy", PIPE), recorder("matched")
    config(
        f'Host *\n  {directive}\nMatch exec "{matched} %r %h %p"\n  ProxyCommand {proxy} '
        "%%r %r %h %p\n"
    )
    done = wrapper("cat", stdin=b"through")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"through", b"")
    # OpenSSH 10 expands it, if not for Match; 9 does not
    argv = ["ssh", "-F", "none", "-o", directive or "User=" + getpass.getuser(), "-G", "host"]
    shown = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    name = re.search("^user (.*)", shown.stdout, re.MULTILINE)[1]
    for tool, words in (
        ("proxy", ["%r", name, "127.0.0.1", str(wrapper.port)]),
        ("matched", [name, "127.0.0.1", str(wrapper.port)]),
    ):
        seen = (marks / f"{tool}-saw").read_text()
        assert wrapper.token not in seen
        literal = [
            (directive or f"User {name}").split()[1] if word == name else word for word in words
        ]
        assert any(str([str(marks / tool), *each]) in seen for each in (words, literal))


@pytest.mark.parametrize("hops", [1, 2])
def test_no_jump_host_gets_the_token_for_its_user(wrapper, config, tmp_path, hops):
    """ProxyJump %r@host: a jump host would have been sent it as a name. Each hop's own part of the
    configuration counts for it."""
    with tiny(admits=True) as jump, tiny(admits=True) as further:
        config(
            "Host jump further\n  HostName 127.0.0.1\n  StrictHostKeyChecking no\n  "
            f"UserKnownHostsFile {tmp_path}/jump\n"
            f"  LogLevel QUIET\n  ProxyJump none\nHost jump\n  Port {jump.port}\nHost *\n  "
            "User alice\n"
            "  ProxyJump "
            f"{'bob@jump,' if hops == 2 else ''}"
            f"%r@{'further:' + str(further.port) if hops == 2 else 'jump'}\n"
        )
        done = wrapper("cat", stdin=b"through")
        assert (done.returncode, done.stdout) == (0, b"through"), done.stderr
        if hops == 1:
            assert (jump.users, jump.offers) == (["alice"], [f"forward to {wrapper.port}"])
        else:
            assert (jump.users, jump.offers) == (["bob"], [f"forward to {further.port}"])
            assert (further.users, further.offers) == (["alice"], [f"forward to {wrapper.port}"])


@pytest.mark.parametrize("how", ["file", "global", "command", "alias"])
def test_in_inherited_mode_the_users_own_trust_counts(wrapper, config, marks, recorder, how):
    """And the token is still nowhere."""
    pins = Path(wrapper.environment.pop("DAYTONA_SSH_TRUST_FILE")).read_text()
    wrapper.environment.pop("DAYTONA_SSH_TRUST_NAME", None)
    odd = marks / "hosts of 100% \\me"
    odd.write_text(
        pins if how != "alias" else pins.replace(f"[127.0.0.1]:{wrapper.port}", "known.example")
    )
    empty = f"UserKnownHostsFile {marks}/none\n"
    path = str(odd).replace("%", "%%").replace("\\", "\\\\")
    command = recorder("hosts", f"print(open({str(odd)!r}).read())")
    config(
        {
            "file": f'UserKnownHostsFile {marks}/none "{path}"\n',
            "global": empty + f'GlobalKnownHostsFile {marks}/none "{path.replace("%%", "%")}"\n',
            "command": empty + f"User me\nKnownHostsCommand {command} %r %H\n",
            "alias": f'UserKnownHostsFile "{path}"\nHostKeyAlias known.example\n',
        }[how]
    )
    assert wrapper("cat", stdin=b"x").stdout == b"x"
    if how == "command":
        seen = (marks / "hosts-saw").read_text()
        assert str([str(command), "me", f"[127.0.0.1]:{wrapper.port}"]) in seen
        assert wrapper.token not in seen
    config(empty + f"GlobalKnownHostsFile {marks}/none\n")
    assert wrapper("cat", stdin=b"x").returncode == 255, (
        "without it there is no trust: the test would see that"
    )


def test_a_whole_session_under_all_of_them(
    local, repo, begin, config, agent, marks, recorder, monkeypatch
):
    """Transfers of git in both directions, with what is honoured besides."""
    tokens: list[str] = []
    local.watch_tokens(tokens.append)
    for name, value in agent.items():
        monkeypatch.setenv(name, value)
    proxy = recorder("proxy", PIPE)
    said = configuration(
        "Host",
        [
            *WITHOUT_EFFECT,
            *(name for name in HONOURED if name not in ("ProxyCommand", "ProxyUseFdpass")),
        ],
        marks,
    )
    (marks / "revoked keys").write_text("")
    config(said + f"ProxyCommand {proxy} %r %h %p\n")
    session = begin(repo)
    session.agent("echo one >one; git add one; git commit -qm one")
    session.sync()
    tree = repo.git("rev-parse", "opencode/1^{tree}")
    mine = repo.git("commit-tree", tree, "-p", "opencode/1", "-m", "mine")
    repo.git("update-ref", "refs/heads/opencode/1", mine)
    session.coordinator.push("1")
    assert session.agent("git log -1 --format=%s") == "mine\n"
    session.agent("echo two >two")
    session.sync()
    session.coordinator.delete("1")
    assert repo.show("opencode/1", "two") == "two"
    session.coordinator.close()
    seen = (marks / "proxy-saw").read_text()
    assert len(tokens) >= 4
    assert not any(token in seen for token in tokens)
    assert {path.name for path in marks.iterdir()} == {
        "included",
        "revoked keys",
        "proxy",
        "proxy-saw",
    }
