"""Sandboxes in ~/.ssh/config: git daytona ssh-config, the proxy that it names, and git daytona
code, with the user's own ssh, scp, sftp, rsync and git."""

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncssh
import paramiko
import pytest

from git_daytona.local.gateway.channel import Session
from git_daytona.local.gateway.connection import Door
from support import tmux
from support.processes import descendants, gone
from support.round_trip import BIN, program, stop
from support.waiting import until

GIT_DAYTONA = str(BIN / "git-daytona")


@pytest.fixture
def config(home: Path, local) -> Path:
    """ssh's configuration, installed. (The home of OpenSSH is that of passwd(5).)"""
    done = subprocess.run((GIT_DAYTONA, "ssh-config", "--install"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return home / ".ssh" / "config"


@pytest.fixture
def session(begin, repo):
    return begin(repo)


@pytest.fixture
def ran(config: Path, repo, monkeypatch) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run one of OpenSSH's programs, or another, in the repository."""

    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")

    def run(
        *words: str, stdin: str = "", cwd: Path | None = None, **env: str
    ) -> "subprocess.CompletedProcess[str]":
        if words[0] in ("ssh", "scp", "sftp"):
            words = (words[0], "-F", str(config), *words[1:])
        done = subprocess.run(
            words,
            cwd=cwd or repo.path,
            env=os.environ | env,
            input=stdin,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=60,
        )
        print(done.stderr)
        return done

    return run


def all_revoked(local) -> bool:
    return local.live_tokens() == 0 and local.counts["mint"] == local.counts["revoke"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def running(*words: str, cwd: Path, **how) -> Iterator["subprocess.Popen[bytes]"]:
    """A program that runs until the block ends."""
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE} | how
    with subprocess.Popen(words, cwd=cwd, **streams) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def by_paramiko(command: str) -> Iterator[paramiko.Transport]:
    """A connection through a proxy. The transport's thread ends that, and of itself nobody waits
    for either."""
    proxy = paramiko.ProxyCommand(command)
    with proxy.process:
        transport = paramiko.Transport(proxy)
        try:
            yield transport
        finally:
            transport.close()
            transport.join(30)


# -- what programs do with a host ------------------------------------------------------------------


def test_commands(local, session, ran):
    minted = local.counts["mint"]
    # no variable of ours gets there but git's
    sent = {"GIT_PROTOCOL": "version=2", "CANARY": "x"}
    command = "cat; pwd >&2; env | grep -c -e ^GIT_PROTOCOL=version=2 -e ^CANARY; exit 3"
    done = ran("ssh", "-o", "SendEnv=*", "sandbox-1", command, stdin="in and ", **sent)
    assert (done.returncode, done.stdout, done.stderr) == (3, "in and 1\n", "/home/daytona\n")
    assert ran("ssh", "sandbox-1", stdin="echo a shell; exit 4\n").returncode == 4
    assert local.counts["mint"] == minted + 2
    found = session.coordinator.find("1")
    assert found.last_accessed > found.synced_at  # what was done there is known not to be here yet
    much = "printf 'begins as the mark \\373'; head -c 3000000 /dev/zero; kill $$"
    much = ran("ssh", "sandbox-1", much)
    assert (much.returncode, len(much.stdout)) == (143, 3_000_020)
    assert all_revoked(local)


def test_sftp_scp_and_rsync(local, session, ran, tmp_path):
    (tmp_path / "there").write_bytes(os.urandom(300_000))
    for old in ([], ["-O"]):
        sent = ran("scp", *old, str(tmp_path / "there"), "sandbox-1:project/copied")
        assert sent.returncode == 0
    assert ran("scp", "sandbox-1:project/copied", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back").read_bytes() == (tmp_path / "there").read_bytes()
    batch = ran("sftp", "-b", "-", "sandbox-1", stdin="ls project\nrm project/copied\n")
    assert (batch.returncode, "project/copied" in batch.stdout) == (0, True)
    if shutil.which("rsync"):
        ssh = f"ssh -F {Path.home()}/.ssh/config"
        assert ran("rsync", "-e", ssh, "-a", "README", "sandbox-1:project/new").returncode == 0
        assert session.agent("cat new; rm new") == "hello\n"
    assert ran("ssh", "-s", "sandbox-1", "nonesuch").returncode == 255
    assert all_revoked(local)


def test_a_terminal(local, session, config, repo):
    with tmux.start(
        ["ssh", "-F", str(config), "sandbox-1"], size=(90, 20), cwd=repo.path
    ) as screen:
        tmux.use_shell(screen, lambda: until(lambda: all_revoked(local)))


def test_channels_of_one_connection(local, session, config, repo, ran, tmp_path):
    """Commands, ports and an upload at once, as editors do, over one lease."""
    session.agent("nohup python3 -u -m http.server -b 127.0.0.1 0 >log 2>&1 </dev/null &")
    until(lambda: "port " in session.agent("cat log"))
    port = session.agent("cat log").split("port ")[1].split()[0]
    minted, socks = local.counts["mint"], free_port()
    control = ("-S", str(tmp_path / "s"))
    words = ("ssh", "-F", str(config), "-M", *control, "-T", "-D", str(socks), "sandbox-1", "sh")
    with running(*words, cwd=repo.path) as editor:
        editor.stdin.write(b"echo there\n")
        editor.stdin.flush()
        assert editor.stdout.readline() == b"there\n"
        assert ran("ssh", *control, "sandbox-1", "cat", stdin="another").stdout == "another"
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", socks), 20) as proxied:
                proxied.sendall(b"\5\1\0\5\1\0\1\177\0\0\1" + int(port).to_bytes(2, "big"))
                proxied.sendall(b"GET /log HTTP/1.0\r\n\r\n")
                assert b"Serving HTTP" in proxied.makefile("rb").read()
        place = f"localhost:{port}"
        page = running("ssh", "-F", str(config), *control, "-W", place, "sandbox-1", cwd=repo.path)
        with page as direct:
            direct.stdin.write(b"GET /log HTTP/1.0\r\n\r\n")
            direct.stdin.flush()
            assert b"Serving HTTP" in direct.stdout.read()
        # a channel that is closed takes its command's ssh along
        with running(
            "ssh", "-F", str(config), *control, "sandbox-1", "echo x; cat", cwd=repo.path
        ) as one:
            one.stdout.readline()
            children = len(descendants(editor.pid))
        until(lambda: len(descendants(editor.pid)) < children)
        assert local.counts["mint"] == minted + 1
        assert all_revoked(local)


def test_ctrl_c_ends_a_transfer_of_sftp_and_not_the_connection(local, session, config, repo):
    session.agent("head -c 300000000 /dev/zero >big")
    for how in (("-F", str(config)), ("-S", str(BIN / "daytona-ssh"))):
        with tmux.start(["sftp", *how, "sandbox-1"], size=(90, 20), cwd=repo.path) as screen:
            screen.wait_for("sftp>")
            screen.type("get project/big /dev/null\n")
            screen.wait_for(r"^\S*big .* [1-9]")
            screen.send("C-c")
            screen.wait_for("Interrupt")
            screen.type("pwd\n")
            screen.wait_for("Remote working directory")


def test_another_implementation_of_ssh(local, session, config, repo, tmp_path, monkeypatch):
    """What brings an ssh of its own, and reads the configuration, as JetBrains' editors do."""
    monkeypatch.chdir(repo.path)
    found = paramiko.SSHConfig.from_path(str(config)).lookup("sandbox-1")
    keys = paramiko.HostKeys(found["userknownhostsfile"].strip('"'))
    with by_paramiko(found["proxycommand"]) as transport:
        transport.start_client(timeout=30)
        assert keys.check(found["hostkeyalias"], transport.get_remote_server_key())
        transport.auth_none(found["user"])

        def channel() -> paramiko.Channel:
            opened = transport.open_session()
            opened.settimeout(30)
            return opened

        with paramiko.SFTPClient.from_transport(transport) as sftp:
            (tmp_path / "there").write_bytes(os.urandom(100_000))
            sftp.put(str(tmp_path / "there"), "project/copied")
            with sftp.open("project/copied") as copied:
                assert copied.read() == (tmp_path / "there").read_bytes()
        command = channel()
        command.exec_command(b"printf '%s' \xff | od -An -tx1; echo no >&2; exit 7")
        assert command.makefile().read().strip() == b"ff"
        assert (command.makefile_stderr().read(), command.recv_exit_status()) == (b"no\n", 7)
        impossible = channel()
        impossible.exec_command(b"echo \0")
        assert impossible.recv_exit_status() == 255
        terminal = channel()
        terminal.get_pty("xterm", 80, 24)
        terminal.invoke_shell()
        terminal.send(b"stty size; echo ready\n")
        shown = b""
        while b"24 80\r\nready" not in shown:
            shown += terminal.recv(4096)
        terminal.resize_pty(100, 30)
        until(lambda: terminal.send(b"stty size\n") and b"30 100" in terminal.recv(4096))
        terminal.send(b"exit\n")
        assert terminal.recv_exit_status() == 0
        # a command is promised no terminal, but lines that one shows
        command = channel()
        command.get_pty()
        command.exec_command("tty; echo x >&2")
        assert command.makefile().read() == b"not a tty\r\n"
        assert command.makefile_stderr().read() == b"x\r\n"
        for kind in ("x11", "auth-agent@openssh.com", "forwarded-tcpip", "nonesuch"):
            with pytest.raises(paramiko.ChannelException):
                transport.open_channel(kind, ("localhost", 1), ("localhost", 1), timeout=30)
        with pytest.raises(paramiko.SSHException):
            transport.request_port_forward("", 0)
    until(lambda: all_revoked(local))


# -- who is meant ----------------------------------------------------------------------------------


def test_from_anywhere(local, session, ran, repo, begin, tmp_path, monkeypatch):
    """By the sandbox's id from anywhere, also by the key in the project's .env; by its number
    where that is nobody else's."""
    stop(session.coordinator.cloud, session.sandbox_id)
    repo.write(".env", f"DAYTONA_API_KEY={local.api_key}\n")
    monkeypatch.delenv("DAYTONA_API_KEY")
    done = ran("ssh", f"sandbox-{session.sandbox_id}", "echo awake", cwd=tmp_path)
    assert done.stdout == "awake\n" and "starting the sandbox" in done.stderr
    assert ran("ssh", "sandbox-1", "echo alone", cwd=tmp_path).stdout == "alone\n"
    monkeypatch.setenv("DAYTONA_API_KEY", local.api_key)
    other = type(repo)(tmp_path / "other")
    other.path.mkdir()
    other.git("init", "-q")
    other.commit("README")
    begin(other)
    two = ran("ssh", "sandbox-1", "echo which", cwd=tmp_path)
    assert (two.returncode, two.stdout) == (255, "")
    assert "there are 2 sessions 1 on this machine" in two.stderr
    assert "hint: name the sandbox: that of '" in two.stderr
    name = ran("ssh", "sandbox-1", "cat project/README", cwd=other.path)
    assert name.stdout == "content\n"
    assert "no session" in ran("ssh", "sandbox-99", "true").stderr
    assert all_revoked(local)


def test_code(local, session, config, repo, command, tell, tmp_path, monkeypatch):
    """An editor connects with OpenSSH and the installed configuration, from wherever it runs."""
    editor = f"#!/bin/sh\necho \"$DAYTONA_API_KEY\"; cd /; exec ssh -F '{config}' -T"
    editor += ' "${2#ssh-remote+}" "cat $3/README"\n'
    program(tmp_path / "bin" / "cursor", editor)
    repo.write(".env", f"DAYTONA_API_KEY={local.api_key}\n")
    path = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    told = command("git-daytona", "code", "1", cwd=repo.path, env=path)
    assert (told.status, told.out) == (0, "\nhello\n")
    assert "warning: the editor does not get the key of this environment" in told.err

    def refused() -> tuple[int, str]:
        told = tell("git-daytona", "code", "1", cwd=repo.path)
        return told.status, "".join(told.complaint)

    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    status, text = refused()
    assert status == 12 and "none of code, code-insiders" in text
    monkeypatch.setenv("PATH", path["PATH"])
    repo.git("config", "daytona.editor", "cursor")  # one that a repository names is not started
    status, text = refused()
    assert status == 13 and "names no program" in text
    repo.git("config", "--unset", "daytona.editor")
    repo.git("config", "--global", "daytona.editor", "nonesuch")
    status, text = refused()
    assert status == 12 and "there is no 'nonesuch' on PATH" in text
    repo.git("config", "--global", "daytona.editor", "cursor")
    config.write_text(f"Host *\n  StrictHostKeyChecking no\n{config.read_text()}")
    status, text = refused()
    assert status == 13 and "others count more (stricthostkeychecking)" in text
    monkeypatch.setenv("DAYTONA_SSH_BINARY", "/nonesuch")
    status, text = refused()
    assert status == 12 and "DAYTONA_SSH_BINARY names a file that does not exist" in text
    monkeypatch.delenv("DAYTONA_SSH_BINARY")
    config.unlink()
    status, text = refused()
    assert status == 13 and "hint: git daytona ssh-config --install" in text


# -- the other side, and other users ---------------------------------------------------------------


def test_what_is_granted(local, session, config, ran, repo):
    """Channels into the sandbox; no agent, no X11, no port of this machine."""
    place = repo.path / "agent"
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(place))
        agent.listen()
        words = ("ssh", "-o", f"ForwardAgent={place}", "-X", "sandbox-1")
        done = ran(*words, "echo $SSH_AUTH_SOCK $DISPLAY", SSH_AUTH_SOCK=str(place), DISPLAY=":0")
        assert done.stdout == "\n"
        agent.settimeout(0)
        with pytest.raises(BlockingIOError):
            agent.accept()
    strict = ("-o", "ExitOnForwardFailure=yes")
    done = ran("ssh", *strict, "-R", f"{free_port()}:localhost:22", "sandbox-1", "echo no")
    assert (done.returncode, done.stdout) == (255, "")
    nobody = ran("ssh", "-W", f"localhost:{free_port()}", "sandbox-1")
    assert nobody.stdout == ""


def test_output_without_end_is_held_back(local, session, config, repo):
    """A reader that stops costs no memory here; one that goes ends all of it."""
    words = ("ssh", "-F", str(config), "sandbox-1", "yes")
    with running(*words, cwd=repo.path) as process:
        process.stdout.read(1 << 20)
        below = descendants(process.pid)
        until(lambda: local.faults.gateway.output_bytes > 0)
        proxy = next(each for each in below if "ssh-proxy" in each.words)
        status = Path(f"/proc/{proxy.pid}/status").read_text()
        assert int(status.split("VmHWM:")[1].split()[0]) < 300_000, "kB"
        process.stdout.close()
        process.wait(60)
    assert gone(*(each.pid for each in below))
    assert all_revoked(local)


def test_the_sandboxs_words_are_no_ssh_of_ours(local, session, ran):
    """A shell of its own that writes without end where the connection is held open: the client's
    connection does not hear of it."""
    session.agent("printf '#!/usr/bin/python3\\nprint(1)\\n' >/tmp/x; chmod +x /tmp/x")
    evil = "echo injected; while read -r r; do echo more; done"
    with_evil = local.faults.gateway.exchange
    try:
        local.faults.gateway.exchange = lambda command: command.replace(
            "while read -r r; do :; done", evil
        )
        assert ran("ssh", "sandbox-1", "echo as ever").stdout == "as ever\n"
    finally:
        local.faults.gateway.exchange = with_evil


@pytest.mark.parametrize(
    "how", ["killed", "the sandbox stops", "its own ssh is killed", "the proxy is killed"]
)
def test_how_it_ends(local, session, config, repo, how):
    """Nothing of it is left: process, token, socket."""
    words = ("ssh", "-F", str(config), "sandbox-1", "echo there; cat")
    with running(*words, cwd=repo.path, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"there\n"
        below = descendants(process.pid)
        words = [word for each in below for word in each.words]
        folder = Path(next(word for word in words if "ControlPath=/" in word)[12:]).parent
        assert folder.stat().st_mode & 0o777 == 0o700
        if how == "killed":
            process.kill()
        elif how == "the sandbox stops":
            stop(session.coordinator.cloud, session.sandbox_id)
            # by the wrapper, or by ssh, whichever hears of it first
            said = process.stderr.read()
            assert b"ended before the command did" in said or b"closed by remote host" in said
        elif how == "its own ssh is killed":
            os.kill(next(each.pid for each in below if "echo there" in each.words[-1]), 9)
            assert b"ended before the command did" in process.stderr.read()
        else:
            os.kill(next(each.pid for each in below if "ssh-proxy" in each.words), 9)
        process.wait(30)
        assert b"Traceback" not in process.stderr.read()
    assert gone(*(each.pid for each in below))
    assert all_revoked(local)
    if how == "the proxy is killed":
        folder.rmdir()
    until(lambda: not folder.exists())


def test_nothing_listens_and_all_is_private(local, session, config, repo, home):
    """Two users on one machine: no port, no socket that another could open, no file to read."""
    before = set(home.rglob("*"))
    with running("ssh", "-F", str(config), "sandbox-1", "echo; cat", cwd=repo.path) as process:
        process.stdout.readline()
        sockets = set()
        for each in descendants(process.pid):
            for descriptor in Path(f"/proc/{each.pid}/fd").iterdir():
                sockets.add(str(descriptor.readlink()))
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        listening = {f"socket:[{line.split()[9]}]" for line in lines if line.split()[3] == "0A"}
        assert sockets & listening == set()
    new = [*(set(home.rglob("*")) - before), *(home / ".local/state/git-daytona").rglob("*")]
    assert new
    modes = {str(path): oct(path.stat().st_mode & 0o077) for path in new if path.exists()}
    assert set(modes.values()) == {oct(0)}


# -- the token -------------------------------------------------------------------------------------


def test_an_editor_that_fetches_all_the_time(local, session, ran, repo, config):
    """One lease for each, revoked; a sync meanwhile is not in its way."""
    minted = local.counts["mint"]
    url = f"ssh://sandbox-{session.sandbox_id}/home/daytona/project"
    with running("ssh", "-F", str(config), "sandbox-1", "echo; cat", cwd=repo.path) as open_one:
        open_one.stdout.readline()
        for number in range(3):
            session.agent(f"echo {number} >new")
            session.sync()
            assert ran("git", "fetch", "-q", "sandbox-1").returncode == 0
            ssh = f"ssh -F {config}"
            assert ran("git", "fetch", "-q", url, GIT_SSH_COMMAND=ssh).returncode == 0
    assert repo.git("rev-parse", "FETCH_HEAD") == repo.git("rev-parse", "opencode/1")
    assert local.counts["mint"] == minted + 10
    assert all_revoked(local)


def test_the_token_is_nowhere(local, begin, repo, canary, config, ran, tmp_path):
    session = begin(repo)
    # it is the user's, and the programs' that the user starts
    canary.may_have_key = lambda each: each.name != "ssh" or str(config) in each.words
    with canary.watching():
        for words in (
            ("scp", "-F", str(config), "README", f"sandbox-{session.sandbox_id}:project/x"),
            ("ssh", "-F", str(config), "-tt", "sandbox-1", "sleep 0.3"),
        ):
            done = ran(*words)
            canary.tell("stdout", done.stdout)
            canary.tell("stderr", done.stderr)
    assert {"ssh", "scp"} <= set(canary.seen), "it did look"
    assert len(canary.tokens) >= 3
    assert canary.leaks() == []
    assert all_revoked(local)


@pytest.mark.parametrize("packets", ["good", "bad"])
def test_a_gateway_that_wants_more(local, session, ran, monkeypatch, packets):
    """Channels that it opens by itself are refused, its banner is not shown, and what is no packet
    ends the connection."""
    outcomes: list[str] = []
    begun, admitted = Session.session_started, Door.begin_auth

    async def want(connection) -> None:
        nothing = asyncssh.SSHTCPSession
        for opening in (
            connection.create_connection(nothing, "localhost", 22),
            connection.create_x11_connection(nothing),
            connection.create_agent_connection(nothing),
            connection.create_unix_connection(nothing, "/tmp/socket"),
        ):
            try:
                await opening
            except asyncssh.ChannelOpenError:
                outcomes.append("refused")
            else:
                outcomes.append("opened")
        if packets == "bad":
            connection._wire.write(b"\0" * 100)

    def session_started(self) -> None:
        self.access.run(want(self.channel.get_connection()))
        begun(self)

    def begin_auth(self, username: str) -> bool:
        self._connection.send_auth_banner("\x1b]0;pwned\a\n")
        return admitted(self, username)

    monkeypatch.setattr(Session, "session_started", session_started)
    monkeypatch.setattr(Door, "begin_auth", begin_auth)
    for words in (
        ("ssh", "sandbox-1", "sleep 1; echo there"),
        (str(BIN / "daytona-ssh"), "-L", f"{free_port()}:localhost:9", "1", "sleep 1; echo there"),
    ):
        done = ran(*words, SSH_AUTH_SOCK="/nonesuch", DISPLAY=":0")
        assert "\x1b" not in done.stderr and "pwned" not in done.stderr
        if packets == "good":
            assert (done.returncode, done.stdout) == (0, "there\n")
        else:
            # 10: it never stood
            assert done.returncode in (255, 10) and done.stdout == ""
            assert "[connection-closed]" in done.stderr
    assert set(outcomes) == {"refused"} and len(outcomes) >= 8
    assert all_revoked(local)
