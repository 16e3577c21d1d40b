"""daytona-ssh for people, as the ssh of scp, sftp, rsync and git, and git daytona forward: real
programs against the embedded gateway."""

import os
import shutil
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from git_daytona.base.errors import UsageError
from git_daytona.cli import daytona_ssh
from git_daytona.cli.daytona_ssh import parse
from support import tmux
from support.processes import descendants, gone
from support.round_trip import BIN, stop
from support.waiting import until

SSH = str(BIN / "daytona-ssh")
SERVER = (
    "import http.server as h\n"
    "class Page(h.BaseHTTPRequestHandler):\n"
    "    def do_GET(self):\n"
    "        self.send_response(200)\n"
    "        self.end_headers()\n"
    "        self.wfile.write(b'from the sandbox')\n"
    "    def log_message(self, *words): pass\n"
    "s = h.HTTPServer(('127.0.0.1', 0), Page)\n"
    "open('port', 'w').write(str(s.server_port))\n"
    "s.serve_forever()\n"
)


@pytest.fixture
def session(begin, repo):
    return begin(repo)


@pytest.fixture
def served(session) -> int:
    """The port of a web server in the sandbox."""
    session.agent(f"cat >server.py <<'END'\n{SERVER}END\n")
    session.agent("nohup python3 server.py >/dev/null 2>&1 </dev/null & ")
    until(lambda: session.agent("cat port 2>/dev/null || true").isdigit())
    return int(session.agent("cat port"))


@pytest.fixture
def ran(repo) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    def run(*words: str, stdin: str = "", **env: str) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            words,
            cwd=repo.path,
            env=os.environ | env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )
        print(done.stderr)
        return done

    return run


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def listening_on(port: int) -> set[str]:
    """The addresses of this machine on which somebody listens to that port (proc(5), net/tcp)."""
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path("/proc/net", name).read_text().splitlines()[1:]
    ]
    return {
        words[1].partition(":")[0]
        for words in lines
        if words[3] == "0A" and words[1].endswith(f":{port:04X}")
    }


@contextmanager
def running(*words: str, cwd: Path, **how) -> Iterator["subprocess.Popen[str]"]:
    """A program that runs until the block ends; then as after Ctrl-C."""
    with subprocess.Popen(words, cwd=cwd, text=True, stdout=subprocess.PIPE, **how) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


def page(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
        return bytes(answer.read())


def all_revoked(local) -> bool:
    return local.live_tokens() == 0 and local.counts["mint"] == local.counts["revoke"]


# -- the programs ----------------------------------------------------------------------------------


def test_commands(local, session, ran, repo):
    for name in ("sandbox-1", "opencode/1"):
        done = ran(SSH, name, "cat; pwd >&2; exit 3", stdin="in and out")
        assert (done.returncode, done.stdout) == (3, "in and out")
    assert "/home/daytona" in done.stderr
    assert ran(SSH, "-T", "-n", session.sandbox_id, "--", "cat").stdout == ""
    elsewhere = ran("sh", "-c", f"cd / && {SSH} {session.sandbox_id} echo there")
    assert elsewhere.stdout == "there\n"
    # where sshfs starts its ssh
    assert ran("sh", "-c", f"cd / && {SSH} sandbox-1 echo there").stdout == "there\n"
    assert ran(SSH, "1", stdin="echo a shell; exit 4\n").returncode == 4
    assert all_revoked(local)
    # what was done there is known not to be here yet
    found = session.coordinator.find("1")
    assert found.last_accessed > found.synced_at


def test_sftp_scp_and_git(local, session, ran, repo, tmp_path):
    head = session.agent("git rev-parse HEAD").strip()
    (tmp_path / "there").write_bytes(os.urandom(300_000))
    sent = ran("scp", "-S", SSH, str(tmp_path / "there"), "sandbox-1:project/copied")
    assert sent.returncode == 0
    for old in ([], ["-O"]):
        back = ran("scp", *old, "-S", SSH, "sandbox-1:project/copied", str(tmp_path / "back"))
        assert back.returncode == 0
        assert (tmp_path / "back").read_bytes() == (tmp_path / "there").read_bytes()
    batch = ran("sftp", "-S", SSH, "-b", "-", "1", stdin="ls project\nrm project/copied\n")
    assert (batch.returncode, "project/copied" in batch.stdout) == (0, True)
    assert session.agent("ls") == "README\n"
    missing = ran("scp", "-S", SSH, "sandbox-1:project/copied", str(tmp_path / "back"))
    assert missing.returncode != 0 and "No such file" in missing.stderr
    assert ran(SSH, "-s", "1", "nonesuch").returncode == 255
    assert head in ran("git", "ls-remote", "sandbox-1:project", GIT_SSH=SSH).stdout
    assert all_revoked(local)


@pytest.mark.skipif(shutil.which("rsync") is None, reason="no rsync (apt install rsync)")
def test_rsync(local, session, ran, repo):
    (repo.path / "tree").mkdir()
    (repo.path / "tree" / "name with blanks").write_text("one")
    assert ran("rsync", "-e", SSH, "-a", "tree", "sandbox-1:project/").returncode == 0
    assert session.agent("cat tree/*; rm -r tree; echo two >two") == "one"
    assert ran("rsync", "-e", SSH, "-a", "1:project/two", "got").returncode == 0
    assert (repo.path / "got").read_text() == "two\n"
    assert all_revoked(local)


def test_a_terminal(local, session, repo):
    with tmux.start([SSH, "sandbox-1"], size=(90, 20), cwd=repo.path) as screen:
        tmux.use_shell(screen, lambda: until(lambda: all_revoked(local)))


def test_other_hosts_are_for_the_users_own_ssh(ran, tmp_path):
    own = tmp_path / "ssh"
    own.write_text('#!/bin/sh\necho "own: $*"\n')
    own.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    for words in (["host", "1"], ["-J", "jump", "me@host.example"], ["-G", "sandbox-1"]):
        assert ran(SSH, *words, PATH=path).stdout == f"own: {' '.join(words)}\n"


# -- ports -----------------------------------------------------------------------------------------


def test_forward(local, session, served, repo):
    here, another = free_port(), free_port()
    words = (str(BIN / "git-daytona"), "forward", "1", f"{here}:{served}", f"{another}:{served}")
    with running(*words, cwd=repo.path) as process:
        line = process.stdout.readline()
        assert line == f"http://127.0.0.1:{here} -> port {served} of session 1\n"
        assert page(here) == page(another) == b"from the sandbox"
        assert listening_on(here) == {"0100007F"}
        assert all_revoked(local), "while it goes on"
        session.agent("echo a sync does not wait >new")
        session.sync()
        busy = subprocess.run(words, cwd=repo.path, capture_output=True, text=True, timeout=60)
        assert f"error: port {here} of this machine cannot be used: Address already" in busy.stderr
        assert "hint: choose another: git daytona forward 1 " in busy.stderr
    assert process.returncode == 0
    assert listening_on(here) == set()


def test_forward_ends_with_the_sandbox(local, session, served, repo):
    words = (str(BIN / "git-daytona"), "forward", "1", f"{free_port()}:{served}")
    with running(*words, cwd=repo.path, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        stop(session.coordinator.cloud, session.sandbox_id)
        assert process.wait(60) == 10
        assert "error: the connection to the sandbox has ended" in process.stderr.read()


def test_what_ssh_forwards(local, session, served, repo, ran):
    """-L, -D and -W, with the stdin and stdout of the last; a port where nobody listens."""
    here, proxy = free_port(), free_port()
    words = (SSH, "-N", "-L", f"{here}:localhost:{served}", "-D", str(proxy), "1")
    with running(*words, cwd=repo.path):
        until(lambda: listening_on(here) and listening_on(proxy))
        assert page(here) == b"from the sandbox"
        assert listening_on(here) == listening_on(proxy) == {"0100007F"}
        with socket.create_connection(("127.0.0.1", proxy), 20) as socks:
            socks.sendall(b"\5\1\0")
            assert socks.recv(2) == b"\5\0"
            socks.sendall(b"\5\1\0\1\177\0\0\1" + served.to_bytes(2, "big"))
            assert socks.recv(10)[:2] == b"\5\0"
            socks.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert socks.makefile("rb").read().endswith(b"from the sandbox")
        until(lambda: all_revoked(local))
    # its end is that of both directions, so the input stays open until the answer is there
    with running(SSH, "-W", f"localhost:{served}", "1", cwd=repo.path, stdin=-1) as process:
        print("GET / HTTP/1.0\r\n\r", file=process.stdin, flush=True)
        assert process.stdout.read().endswith("from the sandbox")
    assert ran(SSH, "-W", f"localhost:{free_port()}", "1").stdout == ""
    assert all_revoked(local)


# -- what goes wrong -------------------------------------------------------------------------------


def test_a_connection_that_broke_is_made_again(local, session, ran, tmp_path):
    """With all of the input, also where no command says that it has begun."""
    (tmp_path / "file").write_text("whole")
    for fault in ("drop_before_handshake", "drop_after_handshake"):
        setattr(local.faults.gateway, fault, 1)
        sent = ran("scp", "-S", SSH, str(tmp_path / "file"), "1:project/copied")
        assert sent.returncode == 0
        assert session.agent("cat copied; rm copied") == "whole"
    assert all_revoked(local)
    local.faults.gateway.drop_after_handshake = 9
    gave_up = ran(SSH, "-W", "localhost:9", "1")
    local.faults.gateway.drop_after_handshake = 0
    assert gave_up.returncode == 10
    assert "[connection-closed]" in gave_up.stderr.splitlines()[-2]
    assert all_revoked(local)


@pytest.mark.parametrize("words", [("-N", "1"), ("-s", "1", "sftp")], ids=["ports", "subsystem"])
@pytest.mark.parametrize("how", ["killed", "the sandbox stops"])
def test_how_it_ends(local, session, repo, words, how, tmp_path, monkeypatch):
    """Nothing of it is left: process, token, socket."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "t"))
    (tmp_path / "t").mkdir()
    local.forget_calls()
    streams = {"stdin": -1, "stdout": subprocess.DEVNULL, "stderr": -1}
    with subprocess.Popen((SSH, *words), cwd=repo.path, text=True, **streams) as process:
        until(lambda: [call.route for call in local.calls].count("revoke") == 1)
        below = [each.pid for each in descendants(process.pid)]
        if how == "killed":
            process.kill()
        else:
            stop(session.coordinator.cloud, session.sandbox_id)
            assert "error: the connection ended before the command did" in process.stderr.read()
        assert process.wait(30) == (-signal.SIGKILL if how == "killed" else 255)
    assert gone(*below)
    assert local.live_tokens() == 0
    assert list((tmp_path / "t").iterdir()) == []


def test_what_cannot_be(local, session, ran, monkeypatch):
    stop(session.coordinator.cloud, session.sandbox_id)
    started = ran(SSH, "1", "echo awake")
    assert started.stdout == "awake\n" and "starting the sandbox" in started.stderr
    assert "there is no session 'sandbox-99'" in ran(SSH, "sandbox-99", "true").stderr
    assert ran(SSH, "1", "true", DAYTONA_API_KEY="").returncode == 5
    assert all_revoked(local)


@pytest.mark.parametrize("number", ["0", "70000", "8080:", "a:1", "1:2:3", "0:80", "*:80:1", "-1"])
def test_no_ports(command, repo, number):
    told = command("git-daytona", "forward", "1", number, cwd=repo.path)
    assert told.status == 2


REFUSED = {
    "-F": "-F conf",
    "-i": "-i key",
    "-l": "-l me",
    "me@": "-T",
    "-J": "-J jump",
    "-v": "-v",
    "-vT": "-Tv",
    "-A": "-A",
    "-X": "-X",
    "-g": "-g",
    "-R": "-R 80:localhost:80",
    "-E": "-E file",
    "-S": "-S socket",
    "-p": "-p 22",
    "-f": "-f",
    "ProxyCommand": "-oProxyCommand=nc",
    "ProxyUnlike": "-o PROXYJUMP=jump",
    "User": "-oUser=root",
    "LocalCommand": "-o LocalCommand=ls",
    "PermitLocalCommand": "-oPermitLocalCommand=yes",
    "UserKnownHostsFile": "-oUserKnownHostsFile=/dev/null",
    "StrictHostKeyChecking": "-oStrictHostKeyChecking=no",
    "GatewayPorts": "-oGatewayPorts=yes",
    "LogLevel": "-oLogLevel=DEBUG",
    "two in one": "-oConnectTimeout=1\nUser=x",
    "ForwardAgent": "-oForwardAgent=yes",
    "-L 1": "-L 0.0.0.0:80:localhost:80",
    "-L 2": "-L *:80:localhost:80",
    "-L 3": "-L :80:localhost:80",
    "-L 4": "-L /tmp/%r:localhost:80",
    "-L 5": "-L 80:/run/%r",
    "-L 6": "-L /tmp/${HOME}:localhost:80",
    "-L 7": "-L 80",
    "-L 8": "-L 80:x",
    "-L 9": "-L 80:81:x:82",
    "-D 1": "-D 0.0.0.0:80",
    "-D 2": "-D 192.168.0.1:80",
    "-D 3": "-D 80:x:80",
    "-W": "-W %r:80",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_break_trust_is_refused(name):
    user = "me@" if name == "me@" else ""
    letter, blank, value = REFUSED[name].partition(" ")
    with pytest.raises(UsageError) as refused:
        parse([letter, *([value] if blank else []), f"{user}sandbox-1", "true"])
    assert refused.value.hint


def test_a_refusal_comes_before_any_call(local, session, ran):
    local.forget_calls()
    refused = ran(SSH, "-J", "jump", "1", "true")
    assert refused.returncode == 2
    assert "daytona-ssh: error: daytona-ssh does not take '-J'" in refused.stderr
    assert local.calls == []


def test_what_programs_pass_is_taken():
    usual = ["-x", "-a", "-oForwardX11 no", "-oPermitLocalCommand=no", "-oForwardAgent=no"]
    usual += ["-oClearAllForwardings=yes", "-o", "RemoteCommand none", "-oProtocol=2"]
    sftp = parse([*usual, "-s", "--", "sandbox-1", "sftp"])
    assert (sftp.name, sftp.wish.session, sftp.wish.command) == ("sandbox-1", ("-s",), "sftp")
    sshfs = parse([*usual, "-o", "ServerAliveInterval=3", "1", "-s", "sftp"])
    assert sshfs.wish.session == ("-s",)
    assert sshfs.wish.more == (
        *("-o", "clearallforwardings=yes"),
        *("-o", "serveraliveinterval=3"),
    )
    code = parse(["-T", "-D", "4321", "-o", "ConnectTimeout=15", "1", "bash"])
    assert code.wish.more[:2] == ("-D", "127.0.0.1:4321")
    assert parse(["1", "--", "-x"]).wish.command == "-x"
    assert daytona_ssh.on_loopback("[::1]:80:localhost:80", "L")[1] == "[::1]:80:localhost:80"


# -- the token -------------------------------------------------------------------------------------


def test_the_token_is_nowhere(local, begin, repo, canary, ran, tmp_path):
    session = begin(repo)
    # it is the user's, and the programs' that the user starts; not that of what we start
    canary.may_have_key = lambda each: each.name != "ssh"
    big = tmp_path / "big"
    big.write_bytes(bytes(30_000_000))
    with canary.watching():
        for words in (
            ("scp", "-S", SSH, str(big), "sandbox-1:project/big"),
            (SSH, "-L", f"{free_port()}:localhost:9", "1", "sleep 0.3"),
            (SSH, "-o", "ExitOnForwardFailure=yes", "-W", "localhost:9", "1"),
        ):
            done = ran(*words)
            canary.tell("stdout", done.stdout)
            canary.tell("stderr", done.stderr)
    assert session.agent("wc -c <big; rm big").strip() == "30000000"
    assert {"ssh", "scp"} <= set(canary.seen), "it did look"
    assert len(canary.tokens) >= 3
    assert canary.leaks() == []
    assert all_revoked(local)
    assert list(Path(os.environ["TMPDIR"]).glob("daytona-ssh-*")) == []
