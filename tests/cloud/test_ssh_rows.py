"""SSH, point by point: through the gateway into a sandbox, with OpenSSH's client and, for single
messages, paramiko's."""

import os
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import paramiko
import pytest

from git_daytona.local.server import LocalDaytona
from support import openssh
from support.account import FIRST_SHELL, Server
from support.openssh import granted, read_all
from support.rows import Like, Row, Table, one_of
from support.waiting import until

TABLE = Table("SSH")
RUNS = 40


def test_row(row: Row, hold: Any) -> None:
    hold(TABLE, row)


# What a command finds.


@TABLE.row("a command is run by /bin/sh -c", "/bin/sh -c ")
def shell(on: Server) -> Any:
    return on.box.ssh.out("line=$(tr '\\0' ' ' </proc/$$/cmdline); printf %.11s \"$line\"")


@TABLE.row("a glob without a match stays, words are split", "*.no-such 2\n")
def globs(on: Server) -> Any:
    return on.box.ssh.out('words="1 2"; set -- $words; echo *.no-such $#')


@TABLE.row("the environment has no SHELL, USER, LOGNAME, TERM", [])
def environment(on: Server) -> Any:
    names = {line.partition("=")[0] for line in on.box.ssh.out("env").splitlines()}
    return sorted(names & {"SHELL", "USER", "LOGNAME", "TERM"})


@TABLE.row(
    "the environment has HOME, PATH and what the sandbox was given", ["GREETING", "HOME", "PATH"]
)
def given_environment(on: Server) -> Any:
    names = {line.partition("=")[0] for line in on.box.ssh.out("env").splitlines()}
    return sorted(names & {"HOME", "PATH", "GREETING"})


@TABLE.row(
    "variables that the client sends are ignored",
    {"GIT_PROTOCOL": "", "TZ": "", "LC_ALL as sent": False},
)
def sent_environment(on: Server) -> Any:
    sent = ("-o", "SetEnv=GIT_PROTOCOL=version=2 LC_ALL=xx_XX TZ=Asia/Tokyo")
    protocol, zone, locale = (
        on.box.ssh.out('echo "$GIT_PROTOCOL|$TZ|$LC_ALL"', *sent).strip().split("|")
    )
    return {"GIT_PROTOCOL": protocol, "TZ": zone, "LC_ALL as sent": locale == "xx_XX"}


@TABLE.row("a request to set a variable is granted", True)
def env_request(on: Server) -> Any:
    with on.box.ssh.transport() as transport:
        channel = transport.open_session()
        return granted(
            channel,
            "env",
            lambda m: m.add_string("GIT_PROTOCOL"),
            lambda m: m.add_string("version=2"),
        )


@TABLE.row(
    "git speaks protocol v0: no version line, the refs at once",
    {"version line": False, "refs": True},
)
def git_protocol(on: Server) -> Any:
    folder = on.box.folder()
    git = "git -c user.name=a -c user.email=a@example.invalid"
    on.box.sh(f"cd {folder} && git init -q . && {git} commit -q --allow-empty -m one")
    said = on.box.ssh.out(
        f"git upload-pack {folder}", "-o", "SetEnv=GIT_PROTOCOL=version=2", data=b"0000"
    )
    return {"version line": "version 2" in said, "refs": "refs/heads/" in said}


@TABLE.row(
    "umask, HOME and working directory",
    {"umask": "0022", "home": "/home/daytona", "cwd": "/home/daytona"},
)
def place(on: Server) -> Any:
    mask, home, cwd = on.box.ssh.out('umask; echo "$HOME"; pwd').splitlines()
    return {"umask": mask, "home": home, "cwd": cwd}


# Streams.


@TABLE.row("stderr is dropped", {"out": "out\n", "err": ""})
def stderr(on: Server) -> Any:
    ran = on.box.ssh.run("echo err >&2; echo out")
    return {"out": ran.out, "err": ran.err}


@TABLE.row("1.5 MB on stderr pass unseen", {"out": "end\n", "err": ""})
def much_stderr(on: Server) -> Any:
    ran = on.box.ssh.run("head -c 1500000 /dev/zero >&2; echo end")
    return {"out": ran.out, "err": ran.err}


@TABLE.row("6 MB on stderr hang the command", {"ends": False, "at the end of stderr": False})
def hanging_stderr(on: Server) -> Any:
    folder = on.box.folder()
    with on.box.ssh.start(
        f"cd {folder}; echo $$ >pid; head -c 6000000 /dev/zero >&2; touch end"
    ) as process:
        try:
            # It needs milliseconds where somebody reads it: three seconds are no measure of speed.
            process.communicate(timeout=3)
            ends = True
        except subprocess.TimeoutExpired:
            ends = False
        # Looked at while the connection is there: its end lets the command go on.
        reached = on.box.sh(f"cd {folder}; test -e end && echo reached; true")
        process.kill()
    on.box.sh(f"cd {folder}; pkill -9 -P $(cat pid); kill -9 $(cat pid); true")
    return {"ends": ends, "at the end of stderr": "reached" in reached}


@TABLE.row("half close: the input's end arrives, output still comes back", "input\nafter\n")
def half_close(on: Server) -> Any:
    return on.box.ssh.out("cat; echo after", data=b"input\n")


@TABLE.row("every byte passes both ways", True)
def every_byte(on: Server) -> Any:
    data = bytes(range(256)) * 4096
    with on.box.ssh.start("cat") as process:
        out, _ = process.communicate(data, timeout=openssh.SECONDS)
    return out == data


@TABLE.row("a background child that holds the output keeps the command open", "first\nlate\n")
def background(on: Server) -> Any:
    return on.box.ssh.out("(sleep 0.5; echo late) & echo first")


# The exit status.


@TABLE.row(
    "exit statuses get lost at random: output complete, nothing said",
    {
        "lost": Like(f"from 1 to {RUNS}", lambda lost: 1 <= lost <= RUNS),
        "others": one_of([], [0]),
        "output": ["out\n"],
        "said": [""],
    },
)
def lost_statuses(on: Server) -> Any:
    with on.box.ssh.shared() as options:
        ran = [on.box.ssh.run("echo out", *options) for _ in range(RUNS)]
    return {
        "lost": sum(one.status == openssh.LOST for one in ran),
        "others": sorted({one.status for one in ran} - {openssh.LOST}),  # type: ignore[type-var]
        "output": sorted({one.out for one in ran}),
        "said": sorted({one.err for one in ran}),
    }


STATUSES = {"true": 0, "exit 7": 7, "exit 300": 44, "no-such-command": 127, "kill -9 $$": 1}


@TABLE.row("a status that arrives is right; an end by a signal is 1", STATUSES)
def statuses(on: Server) -> Any:
    return {command: on.box.ssh.status(command) for command in STATUSES}


@TABLE.row("a command's end by a signal is never told as a signal", ["exit-status"])
def exit_signal(on: Server) -> Any:
    return on.box.ssh.requests("kill -9 $$")


@pytest.mark.parametrize("share", [0, 1])
def test_the_twin_loses_as_many_statuses_as_it_is_told_to(
    twin: LocalDaytona, server: Server, share: int
) -> None:
    before, twin.faults.gateway.lost_statuses = twin.faults.gateway.lost_statuses, share
    try:
        with server.box.ssh.shared() as options:
            ran = [server.box.ssh.run("echo out; exit 3", *options) for _ in range(20)]
    finally:
        twin.faults.gateway.lost_statuses = before
    assert {(one.status, one.out, one.err) for one in ran} == {
        (openssh.LOST if share else 3, "out\n", "")
    }


# Terminals.


@TABLE.row("with a command there is no terminal", "not a tty\nhello\n")
def terminal_with_command(on: Server) -> Any:
    # Whether lines end in CR LF there is not what this is about.
    return on.box.ssh.out("tty; cat", "-tt", data=b"hello\n").replace("\r\n", "\n")


@TABLE.row("with a command Enter stays a carriage return, nothing is echoed", "61 0d ")
def carriage_return(on: Server) -> Any:
    return on.box.ssh.out(
        "head -c 2 | od -An -v -tx1 | tr -s ' \\n' ' ' | cut -c2-", "-tt", data=b"a\r"
    ).strip("\r\n")


def shell_on_terminal(on: Server) -> dict[str, Any]:
    """A shell on a terminal of 100 columns and 40 rows, which gets 90 and 30, and is left with
    status 3."""
    ours, theirs = os.openpty()
    seen = ""

    def wait_for(pattern: str) -> str:
        nonlocal seen
        while not (found := re.search(pattern, seen)):
            seen += os.read(ours, 65536).decode(errors="replace")
        return found[1]

    def ask(command: str) -> str:
        # The mark is written in two parts, so that the echo of what is typed does not have it.
        os.write(ours, f"echo mar''k=$({command})=\r".encode())
        nonlocal seen
        answer = wait_for(r"mark=([^=]*)=")
        seen = ""
        return answer

    def size(columns: int, rows: int) -> None:
        subprocess.run(
            ["stty", "cols", str(columns), "rows", str(rows)], stdin=theirs, check=True, timeout=10
        )

    try:
        size(100, 40)
        with on.box.ssh.start(
            None,
            "-t",
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                told = {
                    "tty": ask("tty").startswith("/dev/pts/"),
                    "shell": ask("readlink /proc/$$/exe"),
                    "first": ask(FIRST_SHELL),
                    "login": ask("case $0 in -*) echo yes ;; *) echo no ;; esac"),
                    "cwd": ask("pwd"),
                    "size": ask("stty size"),
                }
                size(90, 30)
                process.send_signal(signal.SIGWINCH)
                told["resized"] = until(
                    lambda: (now := ask("stty size")) != told["size"] and now,
                    "the new size",
                    every=0.1,
                )
                os.write(ours, b"exit 3\r")
                status = process.wait(openssh.SECONDS)
                told["status"] = "lost" if status == openssh.LOST else status
            finally:
                process.kill()
    finally:
        os.close(ours)
        os.close(theirs)
    return told


@TABLE.row(
    "without a command: the user's shell, not a login shell, at home",
    {"tty": True, "the first of zsh, bash": True, "login": "no", "cwd": "/home/daytona"},
)
def terminal_shell(on: Server) -> Any:
    told = on.once(shell_on_terminal)
    return {
        "tty": told["tty"],
        "the first of zsh, bash": told["shell"] == told["first"],
        "login": told["login"],
        "cwd": told["cwd"],
    }


@TABLE.row(
    "without a command: the size arrives, and so does another one",
    {"size": "40 100", "resized": "30 90"},
)
def terminal_size(on: Server) -> Any:
    told = on.once(shell_on_terminal)
    return {"size": told["size"], "resized": told["resized"]}


@TABLE.row(
    "without a command: the status is 0 whatever the shell's is, if it is not lost",
    one_of(0, "lost"),
)
def terminal_status(on: Server) -> Any:
    return on.once(shell_on_terminal)["status"]


@TABLE.row("script as the command gives a terminal of 0 by 0", "0 0\r\n")
def script_terminal(on: Server) -> Any:
    return on.box.ssh.out("script -qec 'stty size' /dev/null")


@TABLE.row("without terminal and command: /bin/sh reads its input", "/bin/sh\n")
def plain_shell(on: Server) -> Any:
    return on.box.ssh.out(None, "-T", data=b"tr '\\0' '\\n' </proc/$$/cmdline\n")


# Ends.


@TABLE.row("signal requests reach the process", "got TERM\n")
def signals(on: Server) -> Any:
    with on.box.ssh.transport() as transport:
        channel = transport.open_session()
        channel.settimeout(openssh.SECONDS)
        channel.exec_command(
            "trap 'echo got TERM; exit' TERM; echo ready; while :; do sleep 0.05; done"
        )
        assert channel.recv(6) == b"ready\n"
        message = paramiko.Message()
        message.add_byte(openssh.cMSG_CHANNEL_REQUEST)
        message.add_int(channel.remote_chanid)
        message.add_string("signal")
        message.add_boolean(False)
        message.add_string("TERM")
        transport._send_user_message(message)  # type: ignore[attr-defined]
        return read_all(channel)


@TABLE.row(
    "the client is killed: its input ends, the command runs on",
    {"input ended": True, "runs on": True},
)
def killed_client(on: Server) -> Any:
    folder = on.box.folder()
    command = f"cd {folder}; echo $$ >pid; cat >/dev/null; touch input-ended; exec sleep 600"
    with on.box.ssh.start(command) as process:
        until(lambda: on.box.sh(f"cat {folder}/pid 2>/dev/null"), "the command", every=0.05)
        process.kill()
    ended = until(
        lambda: on.box.sh(f"test -e {folder}/input-ended && echo yes"),
        "the end of its input",
        every=0.05,
    )
    return {
        "input ended": ended == "yes\n",
        "runs on": on.box.sh(f"kill -9 $(cat {folder}/pid) && echo yes") == "yes\n",
    }


# Files.

SFTP_SERVERS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/lib/sftp-server",
)


def copied(on: Server, program: str, *options: str) -> Any:
    if on.twin and not any(map(os.path.exists, SFTP_SERVERS)):
        pytest.skip("this machine has no sftp-server for the twin (Debian: openssh-sftp-server)")
    folder = on.box.folder()
    relative = folder.removeprefix(f"{on.box.home}/")
    there, back = on.box.ssh.folder / "there", on.box.ssh.folder / "back"
    there.write_bytes(bytes(range(256)))
    if program == "sftp":
        on.box.ssh.tool(
            "sftp",
            "-b",
            "-",
            "sandbox",
            data=f"put {there} {relative}/file\nget {relative}/file {back}\n".encode(),
        )
    else:
        on.box.ssh.tool("scp", *options, str(there), f"sandbox:{relative}/file")
        on.box.ssh.tool("scp", *options, f"sandbox:{relative}/file", str(back))
    same = back.exists() and back.read_bytes() == there.read_bytes()
    Path(back).unlink(missing_ok=True)
    return {"there": on.box.sh(f"stat -c %s {folder}/file").strip(), "back": same}


@TABLE.row("sftp, with paths relative to the home", {"there": "256", "back": True})
def sftp(on: Server) -> Any:
    return copied(on, "sftp")


@TABLE.row("scp", {"there": "256", "back": True})
def scp(on: Server) -> Any:
    return copied(on, "scp")


@TABLE.row("scp -O", {"there": "256", "back": True})
def old_scp(on: Server) -> Any:
    return copied(on, "scp", "-O")


# Forwards.

GREET = (
    "\nwhile True:\n    one, _ = listener.accept()\n    one.sendall(b'hello from inside')\n    "
    "one.close()\n"
)


@TABLE.row("direct-tcpip reaches a port of the sandbox", "hello from inside")
def forward_port(on: Server) -> Any:
    # Its input stays open: the end of one direction ends the other.
    with (
        on.box.listening(GREET, "127.0.0.1") as port,
        on.box.ssh.start(None, "-W", f"127.0.0.1:{port}") as process,
    ):
        assert process.stdout is not None
        return process.stdout.read().decode()


def opened(transport: paramiko.Transport, kind: str, *where: Any) -> str:
    """What becomes of a channel of that kind."""
    try:
        channel = transport.open_channel(kind, *where, timeout=openssh.SECONDS)
    except paramiko.ChannelException:
        return "refused"
    except paramiko.SSHException:
        # Paramiko forgets a channel that is closed, also one that it has not handed out yet.
        if not transport.is_active():
            raise
        return "opened, then closed"
    channel.settimeout(openssh.SECONDS)
    return "opened, then closed" if channel.recv(1) == b"" else "opened"


@TABLE.row(
    "direct-tcpip to a port where nobody listens is opened, then closed", "opened, then closed"
)
def forward_nowhere(on: Server) -> Any:
    with on.box.ssh.transport() as transport:
        return opened(transport, "direct-tcpip", ("127.0.0.1", 1), ("127.0.0.1", 1))


@TABLE.row("direct-streamlocal reaches a unix socket of the sandbox", "hello from inside")
def forward_socket(on: Server) -> Any:
    path = f"{on.box.folder()}/socket"
    with on.box.listening(GREET, path), on.box.ssh.forwarded(path) as connection:
        received = b""
        while more := connection.recv(1024):
            received += more
    return received.decode()


@TABLE.row("tcpip-forward is refused", "refused")
def remote_forward(on: Server) -> Any:
    with on.box.ssh.transport() as transport:
        return (
            "refused"
            if transport.global_request("tcpip-forward", ("127.0.0.1", 0), wait=True) is None
            else "granted"
        )


AGENT_PROBE = """
import os, socket
agent = socket.socket(socket.AF_UNIX)
agent.settimeout(5)
try:
    agent.connect(os.environ["SSH_AUTH_SOCK"])
    agent.sendall(b"\\0\\0\\0\\1\\x0b")
    print(len(agent.recv(5)))
except OSError:
    print(0)
"""


@TABLE.row(
    "agent forwarding is granted, but its socket is dead",
    {"granted": True, "SSH_AUTH_SOCK": True, "answers": False},
)
def agent(on: Server) -> Any:
    folder = on.box.folder()
    on.box.toolbox.post(
        f"/files/upload?path={folder}/probe.py", files={"file": AGENT_PROBE.encode()}
    )
    with on.box.ssh.transport() as transport:
        channel = transport.open_session()
        allowed = granted(channel, "auth-agent-req@openssh.com")
        if not allowed:
            channel = transport.open_session()
        channel.exec_command(
            f'echo "${{SSH_AUTH_SOCK:+set}}"; test -n "$SSH_AUTH_SOCK" && python3 {folder}/probe.py'
        )
        said = read_all(channel).splitlines()
    return {
        "granted": allowed,
        "SSH_AUTH_SOCK": said[0] == "set",
        "answers": said[1:] not in ([], ["0"]),
    }


@TABLE.row("X11 is ignored", "")
def x11(on: Server) -> Any:
    with on.box.ssh.transport() as transport:
        channel = transport.open_session()
        message: list[Any] = [
            lambda m: m.add_boolean(False),
            lambda m: m.add_string("MIT-MAGIC-COOKIE-1"),
            lambda m: m.add_string("00" * 16),
            lambda m: m.add_int(0),
        ]
        if not granted(channel, "x11-req", *message):
            channel = transport.open_session()
        channel.exec_command('printf %s "$DISPLAY"')
        return read_all(channel)


@TABLE.row("a channel of an unknown type is opened, then closed", "opened, then closed")
def unknown_channel(on: Server) -> Any:
    with on.box.ssh.transport() as transport:
        return opened(transport, "conformance@example.invalid")


@TABLE.row("an unknown subsystem is refused", False)
def unknown_subsystem(on: Server) -> Any:
    with on.box.ssh.transport() as transport:
        return granted(transport.open_session(), "subsystem", lambda m: m.add_string("conformance"))


@TABLE.row("a connection has forty channels", 40)
def channels(on: Server) -> Any:
    with on.box.ssh.transport() as transport:
        return len([transport.open_session() for _ in range(40)])


# The connection.


@TABLE.row(
    "authentication is none, for a client that has a key, too", {"method": "none", "out": "in\n"}
)
def authentication(on: Server) -> Any:
    key = on.box.ssh.folder / "key"
    if not key.exists():
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=30
        )
    ran = on.box.ssh.run(
        "echo in",
        "-v",
        "-o",
        "LogLevel=DEBUG",
        "-i",
        str(key),
        "-o",
        "PreferredAuthentications=publickey",
    )
    method = re.search(r'^Authenticated to .* using "(\w+)"', ran.err, re.MULTILINE)
    return {"method": method and method[1], "out": ran.out}


@TABLE.row("there is one host key, of one type", ["ssh-ed25519"])
def host_keys(on: Server) -> Any:
    argv = [
        "ssh-keyscan",
        "-T",
        "10",
        "-t",
        "rsa,ecdsa,ed25519",
        "-p",
        str(on.box.ssh.port),
        on.box.ssh.host,
    ]
    found = subprocess.run(argv, capture_output=True, text=True, timeout=60).stdout
    return sorted(line.split()[1] for line in found.splitlines() if not line.startswith("#"))


@TABLE.row("other host keys are not announced", [])
def announced(on: Server) -> Any:
    said = on.box.ssh.told("true")
    return sorted(set(re.findall(r"rtype (hostkeys\S+)", said)))


@TABLE.row("version and banner", {"version": "SSH-2.0-Go", "banner": None})
def version(on: Server) -> Any:
    with socket.create_connection(
        (on.box.ssh.host, on.box.ssh.port), timeout=openssh.SECONDS
    ) as connection:
        line = connection.makefile("rb").readline().decode().strip()
    with on.box.ssh.transport() as transport:
        return {"version": line, "banner": transport.get_banner()}


@TABLE.row("keepalive@openssh.com is refused, which is an answer", "refused")
def keepalive(on: Server) -> Any:
    with on.box.ssh.transport() as transport:
        return (
            "refused"
            if transport.global_request("keepalive@openssh.com", wait=True) is None
            else "granted"
        )


@TABLE.row("a connection counts as activity", True)
def activity(on: Server) -> Any:
    before = on.box.seen()["lastActivityAt"]
    on.box.ssh.run("true")
    return until(lambda: on.box.seen()["lastActivityAt"] > before, "activity", every=0.1)


# Tokens and states: test_life_rows.py has those that stop a sandbox.


@TABLE.row(
    "a bad token: in, then closed",
    {"status": 255, "closed by the remote host": True, "denied": False},
)
def bad_token(on: Server) -> Any:
    return refused(on, "A" * 32)


@TABLE.row(
    "an expired token: in, then closed",
    {"status": 255, "closed by the remote host": True, "denied": False},
)
def expired_token(on: Server) -> Any:
    # A token of another sandbox: minting ends the earlier ones.
    return refused(on, on.once(tokens)["expired"])


@TABLE.row(
    "a superseded token: in, then closed",
    {"status": 255, "closed by the remote host": True, "denied": False},
)
def superseded_token(on: Server) -> Any:
    return refused(on, on.once(tokens)["superseded"])


def refused(on: Server, token: str) -> dict[str, Any]:
    client = openssh.Client(on.box.ssh.host, on.box.ssh.port, token, [])
    try:
        ran = client.run("true", "-o", "LogLevel=INFO")
    finally:
        client.close()
    return {
        "status": ran.status,
        "closed by the remote host": "closed by remote host" in ran.err,
        "denied": "Permission denied" in ran.err,
    }


def tokens(on: Server) -> dict[str, Any]:
    """Tokens of a second sandbox, and what goes on after one is revoked."""
    box = on.started()
    superseded = box.mint()["token"]
    valid = box.mint()
    client = box.client(valid)
    with client.transport() as transport:
        channel = transport.open_session()
        channel.settimeout(openssh.SECONDS)
        channel.exec_command("cat; echo end")
        on.api.delete(f"/sandbox/{box.id}/ssh-access", params={"token": valid["token"]})
        channel.sendall(b"goes on\n")
        channel.shutdown_write()
        old = read_all(channel)
        another = transport.open_session()
        another.exec_command("echo new")
        new = read_all(another)
    return {
        "superseded": superseded,
        "revoked": {
            "old channel": old,
            "new channel": new,
            "new connection": client.run("echo new").out,
        },
        "expired": box.mint(expiresInMinutes=0)["token"],
    }


@TABLE.row(
    "revoked while connected: its channels go on and new ones open, new connections do not",
    {"old channel": "goes on\nend\n", "new channel": "new\n", "new connection": ""},
)
def revoked(on: Server) -> Any:
    return on.once(tokens)["revoked"]
