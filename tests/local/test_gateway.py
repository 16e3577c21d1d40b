"""The SSH gateway, with the real OpenSSH client and real git; paramiko's client where OpenSSH's
does not let one look closely."""

import contextlib
import hashlib
import logging
import os
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import paramiko
import pytest

from git_daytona.local.core.faults import Faults
from git_daytona.local.core.model import ApiError, Isolation, Sandbox
from git_daytona.local.gateway import channel as channels
from git_daytona.local.gateway import connection, streams
from git_daytona.local.gateway.server import Gateway
from git_daytona.local.isolation.choose import choose
from git_daytona.local.isolation.environment import terminal_shell
from git_daytona.local.server import LocalDaytona
from support.processes import gone, parent

SECONDS = 30.0
TOKEN = "token-of-one"
MB = 1 << 20


class Tokens:
    """A registry in memory."""

    def __init__(self) -> None:
        self.sandboxes: dict[str, Sandbox] = {}
        self.tokens: dict[str, tuple[Sandbox, float]] = {}
        self.touches: list[str] = []

    def sandbox(self, id_or_name: str) -> Sandbox:
        try:
            return self.sandboxes[id_or_name]
        except KeyError:
            raise ApiError(404, "no such sandbox") from None

    def touch(self, sandbox: Sandbox) -> None:
        self.touches.append(sandbox.id)

    def validate(self, token: str) -> Sandbox | None:
        sandbox, expires = self.tokens.get(token, (None, 0.0))
        return sandbox if expires > time.time() else None

    def mint(self, sandbox: Sandbox, token: str, seconds: float = 600) -> None:
        self.sandboxes[sandbox.id] = sandbox
        self.tokens[token] = (sandbox, time.time() + seconds)


class Client:
    """The real OpenSSH client with a private configuration; the token is in no argument list."""

    def __init__(self, folder: Path, gateway: Gateway, keys: list[str]):
        self._folder = folder
        self._gateway = gateway
        self.known_hosts = folder / "known_hosts"
        self.trust(keys)

    def trust(self, keys: list[str]) -> None:
        self.known_hosts.write_text("".join(f"gateway {key}\n" for key in keys))

    def config(self, token: str) -> Path:
        path = self._folder / f"config-{hashlib.sha256(token.encode()).hexdigest()[:8]}"
        lines = [
            "Host gateway",
            "HostName 127.0.0.1",
            f"Port {self._gateway.port}",
            f"User {token}",
            "HostKeyAlias gateway",
            f"UserKnownHostsFile {self.known_hosts}",
            "GlobalKnownHostsFile /dev/null",
            "StrictHostKeyChecking yes",
            "BatchMode yes",
            "IdentityFile none",
            "ConnectTimeout 20",
        ]
        if not path.exists():
            fresh = path.with_suffix(f".{threading.get_ident()}")
            fresh.touch(0o600)
            fresh.write_text("\n".join(lines) + "\n")
            fresh.replace(path)  # whole, for others run at the same time
        return path

    def argv(self, *arguments: str, token: str = TOKEN) -> list[str]:
        options = [argument for argument in arguments if argument.startswith("-")]
        return [
            "ssh",
            "-F",
            str(self.config(token)),
            *options,
            "gateway",
            *arguments[len(options) :],
        ]

    def run(
        self, *arguments: str, token: str = TOKEN, data: bytes = b""
    ) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            self.argv(*arguments, token=token), input=data, capture_output=True, timeout=SECONDS
        )

    def git(self, *arguments: str | Path, token: str = TOKEN) -> str:
        environment = {
            **os.environ,
            "GIT_SSH_COMMAND": f"ssh -F '{self.config(token)}'",
            "GIT_SSH_VARIANT": "ssh",
            "GIT_CONFIG_GLOBAL": os.devnull,
        }
        identity = [
            "-c",
            "user.name=Test",
            "-c",
            "user.email=test@localhost",
            "-c",
            "init.defaultBranch=main",
        ]
        return subprocess.run(
            ["git", *identity, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=SECONDS,
        ).stdout


class World:
    """A gateway with one started sandbox and one token."""

    def __init__(self, folder: Path, mode: str, key_types: tuple[str, ...] = ("ed25519",)):
        self.root = folder / "daytona"
        self.isolation: Isolation = choose(self.root, mode=mode)
        self.registry = Tokens()
        self.faults = Faults()
        self.faults.gateway.lost_statuses = 0.0
        self.keys_dir = self.root / "host_keys"
        self.gateway = Gateway(
            self.registry,
            self.isolation,
            host_keys_dir=self.keys_dir,
            faults=self.faults,
            key_types=key_types,
        )
        self.sandbox = Sandbox(
            id=uuid.uuid4().hex, name="one", directory=self.root / "one", state="started"
        )
        self.registry.mint(self.sandbox, TOKEN)
        self.isolation.start(self.sandbox)
        self.gateway.start()
        self.client = Client(folder, self.gateway, self.gateway.presented_keys())

    def close(self) -> None:
        self.gateway.stop()
        self.isolation.stop(self.sandbox)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    before = descriptors()
    one = World(tmp_path, "auto")
    yield one
    one.close()
    assert eventually(
        lambda: not any(thread.name.startswith("ssh-") for thread in threading.enumerate())
    )
    # Fewer than before is no leak: what earlier tests left to the garbage collector may go
    # meanwhile.
    assert eventually(lambda: descriptors() <= before)


@pytest.fixture
def transport(world: World) -> Iterator[paramiko.Transport]:
    """paramiko's client, logged in."""
    one = paramiko.Transport(("127.0.0.1", world.gateway.port))
    one.start_client(timeout=SECONDS)
    one.auth_none(TOKEN)
    yield one
    one.close()


def eventually(condition: Callable[[], bool]) -> bool:
    """Look at something that no event tells of (the process table) until it holds."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def has(path: Path, content: bytes) -> bool:
    return path.exists() and path.read_bytes() == content


def sleeper() -> str:
    return f"900.{uuid.uuid4().int}"


def living(mark: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if arguments.startswith(b"sleep\0") and mark.encode() in arguments:
            found.append(int(folder.name))
    return found


def heads(size: str) -> list[int]:
    """The processes ``head -c SIZE``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes().startswith(f"head\0-c\0{size}\0".encode()):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@contextlib.contextmanager
def change_directory(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def read_until(channel: paramiko.Channel, text: bytes) -> bytes:
    channel.settimeout(SECONDS)
    seen = b""
    while text not in seen:
        data = channel.recv(4096)
        assert data, seen
        seen += data
    return seen


# Commands
# --------------------------------------------------------------------------------------------------


def test_output_and_status(world: World) -> None:
    result = world.client.run("echo out; echo err >&2; pwd; umask; exit 7")
    assert (result.returncode, result.stdout, result.stderr) == (
        7,
        b"out\n/home/daytona\n0022\n",
        b"",
    )


@pytest.mark.parametrize(
    ("command", "status"),
    [("exit 300", 44), ("no-such-command", 127), ("kill -TERM $$", 1), ("kill -9 $$", 1)],
)
def test_statuses(world: World, command: str, status: int) -> None:
    result = world.client.run("-v", command)
    assert result.returncode == status
    assert b"rtype exit-status" in result.stderr
    assert b"exit-signal" not in result.stderr


def test_a_lost_status_leaves_no_trace(world: World) -> None:
    world.faults.gateway.lost_statuses = 1.0
    result = world.client.run("head -c 3000000 /dev/zero; exit 3")
    assert (result.returncode, len(result.stdout), result.stderr) == (255, 3_000_000, b"")
    verbose = world.client.run("-v", "true")
    assert b"rcvd eof" in world.client.run("-vvv", "true").stderr
    assert b"rtype exit" not in verbose.stderr
    assert b"closed by remote host" not in verbose.stderr


def test_statuses_are_lost_now_and_then_by_default(world: World) -> None:
    world.faults.clear()
    assert {world.client.run("exit 7").returncode for _ in range(20)} == {7, 255}


def test_much_on_standard_error_hangs_a_command(world: World) -> None:
    assert world.client.run("head -c 1500000 /dev/zero >&2; echo on").stdout == b"on\n"
    mark = sleeper()
    with subprocess.Popen(
        world.client.argv(f"sleep {mark} & head -c 6000000 /dev/zero >&2; touch ended"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as client:
        assert eventually(lambda: len(living(mark)) == 1)
        assert eventually(lambda: len(heads("6000000")) == 1)
        assert 2 * MB < settle(lambda: io(heads("6000000")[0], "wchar")) < 4 * MB
        assert client.poll() is None
        client.kill()
    assert eventually(lambda: heads("6000000") == [])
    assert eventually((world.sandbox.home / "ended").exists)


def test_a_command_that_hangs_on_standard_error_says_nothing_more(
    transport: paramiko.Transport,
) -> None:
    channel = transport.open_session()
    channel.exec_command("echo before; (head -c 6000000 /dev/zero >&2) & cat")
    assert read_until(channel, b"\n") == b"before\n"
    assert eventually(lambda: len(heads("6000000")) == 1)
    assert 2 * MB < settle(lambda: io(heads("6000000")[0], "wchar")) < 4 * MB
    channel.sendall(b"after\n")
    channel.settimeout(0.5)
    with pytest.raises(TimeoutError):
        channel.recv(10)


def test_input_ends_when_the_clients_does(world: World) -> None:
    data = os.urandom(20 * MB)
    result = world.client.run("sha256sum; echo after", data=data)
    digest, _, after = result.stdout.split()
    assert digest.decode() == hashlib.sha256(data).hexdigest()
    assert after == b"after"


def test_both_directions_at_once(world: World) -> None:
    data = os.urandom(20 * MB)
    assert world.client.run("cat", data=data).stdout == data


def test_input_that_is_not_wanted(world: World) -> None:
    result = world.client.run("exec <&-; head -c 100000 /dev/zero", data=bytes(8 * MB))
    assert (result.returncode, len(result.stdout)) == (0, 100000)


def test_environment(world: World) -> None:
    world.sandbox.env["OWN"] = "1"
    result = world.client.run(
        "-oSetEnv=GIT_PROTOCOL=version=2 LC_ALL=C LD_PRELOAD=x PATH=/evil OWN=2", "env"
    )
    variables = dict(line.split("=", 1) for line in result.stdout.decode().splitlines())
    assert variables.pop("PWD") == "/home/daytona"  # the shell's
    variables.pop("OLDPWD", None)
    assert variables.pop("PATH").startswith("/usr/local/sbin:")
    assert variables == {
        "HOME": "/home/daytona",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "DAYTONA_SANDBOX_ID": world.sandbox.id,
        "DAYTONA_SANDBOX_SNAPSHOT": "",
        "DAYTONA_SANDBOX_USER": "daytona",
        "OWN": "1",
    }


def test_commands_run_in_sh(world: World) -> None:
    result = world.client.run("echo $0 nothing-like-*; x='a b'; set -- $x; echo $#")
    assert result.stdout == b"/bin/sh nothing-like-*\n2\n"


def test_bytes_of_the_command_arrive_as_they_are(transport: paramiko.Transport) -> None:
    channel = transport.open_session()
    channel.exec_command(b"printf %s '\xff\xc3\xa9' | od -An -tx1")
    assert read_until(channel, b"\n").split() == [b"ff", b"c3", b"a9"]


def test_shell_without_terminal(world: World) -> None:
    result = world.client.run("-T", data=b"cd /tmp\npwd\necho $0\nexit 4\n")
    assert (result.returncode, result.stdout) == (4, b"/tmp\n/bin/sh\n")


def test_an_empty_command_is_a_shell(transport: paramiko.Transport) -> None:
    channel = transport.open_session()
    channel.exec_command(" ")
    channel.sendall(b"echo $0; exit 3\n")
    assert read_until(channel, b"\n") == b"/bin/sh\n"
    assert channel.recv_exit_status() == 3


def test_a_command_gets_no_terminal(world: World) -> None:
    result = world.client.run(
        "-tt", "tty; echo ${TERM-none}; head -c 3 | od -An -tx1", data=b"ab\r"
    )
    assert (result.returncode, result.stdout) == (0, b"not a tty\r\nnone\r\n 61 62 0d\r\n")


def test_shell_with_terminal(world: World, transport: paramiko.Transport) -> None:
    (world.sandbox.home / ".zshrc").touch()  # zsh asks people who have none
    channel = transport.open_session()
    channel.get_pty("vt100", width=101, height=31)
    channel.invoke_shell()
    channel.sendall(b"PS1=; echo $TERM $(stty size) $PWD $SHELL $(tty) end-$((1))\n")
    seen = read_until(channel, b"end-1")
    assert f"vt100 31 101 /home/daytona {terminal_shell()} /dev/pts/".encode() in seen
    channel.resize_pty(width=77, height=22)
    channel.sendall(b"stty size; echo end-$((2))\n")
    assert b"22 77" in read_until(channel, b"end-2")
    mark = sleeper()
    channel.sendall(f"sleep {mark}\n".encode())
    assert eventually(lambda: len(living(mark)) == 1)
    channel.sendall(b"\x03echo end-$((3))\n")
    read_until(channel, b"end-3")  # the terminal's interrupt key reached the command
    channel.sendall(b"[[ -o login ]] || shopt -q login_shell; echo login-$?-; exit 5\n")
    assert b"login-0-" not in read_until(channel, b"exit 5")
    assert channel.recv_exit_status() == 0  # whatever the shell's was


def test_a_terminal_outlives_its_client_until_it_says_something(
    world: World, transport: paramiko.Transport
) -> None:
    (world.sandbox.home / ".zshrc").touch()
    mark = sleeper()
    channel = transport.open_session()
    channel.get_pty()
    channel.invoke_shell()
    # It reads on: a child that it is just starting may be missed by the signal that ends the shell.
    channel.sendall(f"PS1=; sleep {mark}; read line\n".encode())
    assert eventually(lambda: len(living(mark)) == 1)
    [sleep] = living(mark)
    shell = parent(sleep)
    channel.close()
    transport.open_session().exec_command("true")  # the gateway has seen the close by now
    assert living(mark) == [sleep]
    os.kill(sleep, signal.SIGKILL)  # the shell reports that, to nobody
    assert gone(shell)


def test_a_signal_reaches_the_command(transport: paramiko.Transport) -> None:
    channel = transport.open_session()
    channel.exec_command(
        "trap 'echo caught; exit 9' USR1; echo ready; while :; do read line || sleep 0.01; done"
    )
    read_until(channel, b"ready")
    message = paramiko.Message()
    message.add_byte(bytes([98]))  # SSH_MSG_CHANNEL_REQUEST
    message.add_int(channel.remote_chanid)
    message.add_string("signal")
    message.add_boolean(False)
    message.add_string("USR1")
    transport._send_user_message(message)
    channel.shutdown_write()
    read_until(channel, b"caught")
    assert channel.recv_exit_status() == 9


def test_a_process_in_the_background_that_holds_the_output(world: World) -> None:
    assert world.client.run("(sleep 0.3; echo late) & echo early").stdout == b"early\nlate\n"


def test_an_agent_is_granted_and_dead(transport: paramiko.Transport, world: World) -> None:
    channel = transport.open_session()
    channel.request_forward_agent(lambda _: None)
    channel.exec_command("test -S $SSH_AUTH_SOCK && echo $SSH_AUTH_SOCK; ssh-add -l; echo $?")
    path, status = read_until(channel, b"\n2").decode().split()
    assert (path[:15], status) == ("/tmp/auth-agent", "2")
    assert channel.recv_exit_status() == 0
    assert eventually(lambda: list(world.sandbox.tmp.iterdir()) == [])


# Files
# --------------------------------------------------------------------------------------------------


def test_files_come_and_go(world: World, tmp_path: Path) -> None:
    if not any(Path(server).exists() for server in channels.SFTP_SERVERS):
        pytest.skip("no sftp-server on this machine")
    config = ("-F", str(world.client.config(TOKEN)))
    source, back = tmp_path / "file", tmp_path / "back"
    source.write_bytes(os.urandom(3 * MB))

    def sftp(*commands: str) -> str:
        batch = "\n".join(commands).encode()
        run = subprocess.run(
            ["sftp", "-q", *config, "-b", "-", "gateway"],
            input=batch,
            capture_output=True,
            timeout=SECONDS,
        )
        assert run.returncode == 0, run.stderr
        return run.stdout.decode()

    assert "/home/daytona" in sftp(
        "pwd",
        f"put {source} copy",
        "mkdir folder",
        "rename copy folder/copy",
        f"get folder/copy {back}",
    )
    assert (
        back.read_bytes()
        == (world.sandbox.home / "folder/copy").read_bytes()
        == source.read_bytes()
    )
    for protocol in ((), ("-O",)):
        back.unlink()
        for pair in ((source, "gateway:by-scp"), ("gateway:by-scp", back)):
            subprocess.run(
                ["scp", "-q", *protocol, *config, *pair],
                check=True,
                capture_output=True,
                timeout=SECONDS,
            )
        assert (
            back.read_bytes() == (world.sandbox.home / "by-scp").read_bytes() == source.read_bytes()
        )


# Ports and sockets
# --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def echoing(server: socket.socket) -> Iterator[list[bytes]]:
    """Send back in capitals what a listening socket gets; what that was."""
    got: list[bytes] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                there, _ = server.accept()
                with there:
                    while data := there.recv(65536):
                        got.append(data)
                        there.sendall(data.upper())

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield got
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def assert_opened_and_closed(transport: paramiko.Transport, *kind: object) -> None:
    try:
        channel = transport.open_channel(*kind)
    except paramiko.ChannelException:
        raise  # refused
    except paramiko.SSHException:
        pass  # it was closed before paramiko had looked at it again
    else:
        channel.settimeout(SECONDS)
        assert channel.recv(1) == b""
    assert transport.is_active()


def test_ports_of_the_sandbox(world: World, transport: paramiko.Transport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, echoing(server):
        port = server.getsockname()[1]
        channel = transport.open_channel("direct-tcpip", ("127.0.0.1", port), ("127.0.0.1", 1))
        channel.sendall(b"hello\n" * 100_000)
        seen = b""
        while len(seen) < 600_000:
            seen += channel.recv(65536)
        assert seen == b"HELLO\n" * 100_000
        channel.close()
        with subprocess.Popen(
            world.client.argv(f"-W127.0.0.1:{port}"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as client:
            assert client.stdin is not None and client.stdout is not None
            client.stdin.write(b"by ssh\n")
            client.stdin.flush()
            assert client.stdout.readline() == b"BY SSH\n"
            client.stdin.close()
            assert client.wait(SECONDS) == 0
    # where nobody listens any more
    assert_opened_and_closed(transport, "direct-tcpip", ("127.0.0.1", port), ("127.0.0.1", 1))


@contextlib.contextmanager
def tunnel(world: World, path: str, ours: Path) -> Iterator[socket.socket]:
    """A connection to a socket of the sandbox, by `ssh -L`."""
    command = world.client.argv("-N", f"-L{ours}:{path}", "-oExitOnForwardFailure=yes")
    with (
        subprocess.Popen(command, stdin=subprocess.DEVNULL) as client,
        socket.socket(socket.AF_UNIX) as one,
    ):
        try:
            assert eventually(ours.exists)
            one.settimeout(SECONDS)
            one.connect(str(ours))
            yield one
        finally:
            client.terminate()


def test_sockets_of_the_sandbox(world: World, tmp_path: Path) -> None:
    home = world.sandbox.home
    (home / "folder").mkdir()
    (home / "link").symlink_to("/home/daytona/folder")
    with (
        change_directory(home / "folder"),  # for the length that the path of a socket may have
        socket.socket(socket.AF_UNIX) as server,
    ):
        server.bind("own")
        server.listen()
        with echoing(server):
            for number, path in enumerate(("/home/daytona/folder/own", "/home/daytona/link/own")):
                with tunnel(world, path, tmp_path / str(number)) as one:
                    one.sendall(b"hello")
                    assert one.recv(10) == b"HELLO"
    with tunnel(world, "/home/daytona/nothing", tmp_path / "none") as one:
        assert one.recv(1) == b""


def test_sockets_of_the_host_are_out_of_reach(world: World, tmp_path: Path) -> None:
    if not world.isolation.isolates:
        pytest.skip("nothing is isolated here")
    home, place = world.sandbox.home, tmp_path / "host"
    (home / "link").symlink_to(place)
    (home / "folder").symlink_to(tmp_path)
    (home / "dots").symlink_to("../" * 20 + str(place).lstrip("/"))
    with change_directory(tmp_path), socket.socket(socket.AF_UNIX) as server:
        server.bind("host")
        server.listen()
        with echoing(server) as got:
            for number, path in enumerate(
                (
                    str(place),
                    "/home/daytona/link",
                    "/home/daytona/folder/host",
                    "/home/daytona/dots",
                    f"/tmp/../{place}",
                )
            ):
                with (
                    tunnel(world, path, tmp_path / str(number)) as one,
                    # the refusal may come before what is sent, or after it
                    contextlib.suppress(BrokenPipeError, ConnectionResetError),
                ):
                    one.sendall(b"secret")
                    assert one.recv(10) == b"", path
            assert got == []


def test_a_socket_that_becomes_a_link_in_between(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was a place of the sandbox when its path was looked at is a link to the host when it is
    opened."""
    if not world.isolation.isolates:
        pytest.skip("nothing is isolated here")
    with change_directory(tmp_path), socket.socket(socket.AF_UNIX) as server:
        server.bind("host")
        server.listen()
        server.setblocking(False)
        (world.sandbox.home / "swapped").symlink_to(tmp_path / "host")
        resolved = world.sandbox.home / "swapped"
        monkeypatch.setattr(world.isolation, "path", lambda sandbox, path: resolved)
        with pytest.raises(OSError):
            channels.unix_socket(world.isolation, world.sandbox, "swapped")
        with pytest.raises(BlockingIOError):
            server.accept()


def test_what_is_not_offered(world: World, transport: paramiko.Transport) -> None:
    result = world.client.run("-v", "-s", "unknown")
    assert result.returncode == 255
    assert b"subsystem request failed" in result.stderr
    assert_opened_and_closed(transport, "unknown@example.com")
    with pytest.raises(paramiko.SSHException):
        transport.request_port_forward("127.0.0.1", 0)
    channel = transport.open_session()
    channel.exec_command("echo still here")
    assert read_until(channel, b"\n") == b"still here\n"


# Connections
# --------------------------------------------------------------------------------------------------


def test_banner(world: World) -> None:
    with (
        socket.create_connection(("127.0.0.1", world.gateway.port), timeout=SECONDS) as raw,
        raw.makefile("rb") as lines,
    ):
        assert lines.readline() == b"SSH-2.0-Go\r\n"


def test_many_channels_of_one_connection(transport: paramiko.Transport) -> None:
    channels = [transport.open_session() for _ in range(connection.MAX_CHANNELS)]
    with pytest.raises(paramiko.ChannelException):
        transport.open_session()
    for number, channel in enumerate(channels):
        channel.exec_command(f"read line; echo $line; exit {number}")
    for number, channel in reversed(list(enumerate(channels))):
        channel.sendall(f"line {number}\n".encode())
        assert read_until(channel, b"\n") == f"line {number}\n".encode()
        assert channel.recv_exit_status() == number


def test_a_client_that_leaves_many_channels_is_no_news(
    world: World, transport: paramiko.Transport, caplog: pytest.LogCaptureFixture
) -> None:
    channels = [transport.open_session() for _ in range(40)]
    for channel in channels:
        channel.exec_command("echo begun; cat")
        read_until(channel, b"begun")
    for channel in channels:
        channel.close()
    transport.close()
    assert eventually(lambda: not world.gateway._connections)
    assert eventually(lambda: len(world.gateway._tasks) == 1)  # what listens
    assert caplog.text == ""


def test_many_channels_one_after_another(transport: paramiko.Transport) -> None:
    for _ in range(connection.MAX_CHANNELS + 10):
        channel = transport.open_session()
        channel.exec_command("true")
        assert channel.recv_exit_status() == 0
        channel.close()


def test_thirty_at_once(world: World) -> None:
    with ThreadPoolExecutor(30) as pool:
        results = list(pool.map(lambda n: world.client.run(f"echo {n}; exit {n}"), range(30)))
    assert [(result.returncode, result.stdout) for result in results] == [
        (n, f"{n}\n".encode()) for n in range(30)
    ]


def test_keep_alive_is_answered(world: World) -> None:
    assert (
        world.client.run("-oServerAliveInterval=1", "-oServerAliveCountMax=1", "sleep 3").returncode
        == 0
    )


def test_noise_does_no_harm(world: World) -> None:
    for noise in (b"", b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-x\r\n" + os.urandom(1000)):
        with socket.create_connection(("127.0.0.1", world.gateway.port), timeout=SECONDS) as raw:
            raw.sendall(noise)
    assert world.client.run("true").returncode == 0


@pytest.mark.parametrize("how", ["client", "channel"])
def test_a_command_outlives_its_client(
    world: World, transport: paramiko.Transport, how: str
) -> None:
    mark = sleeper()
    command = f"trap 'touch hup' HUP; echo begun; cat > got; touch ended; sleep {mark}"
    if how == "channel":
        channel = transport.open_session()
        channel.exec_command(command)
        channel.sendall(b"half")
        read_until(channel, b"begun")
        assert eventually(lambda: has(world.sandbox.home / "got", b"half"))
        channel.close()
    else:
        with subprocess.Popen(
            world.client.argv(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as client:
            assert client.stdin is not None and client.stdout is not None
            client.stdin.write(b"half")
            client.stdin.flush()
            assert client.stdout.readline() == b"begun\n"
            assert eventually(lambda: has(world.sandbox.home / "got", b"half"))
            client.kill()
    assert eventually(lambda: len(living(mark)) == 1)  # its input has ended
    assert (world.sandbox.home / "ended").exists()
    assert not (world.sandbox.home / "hup").exists()
    assert transport.is_active()
    world.isolation.stop(world.sandbox)
    assert living(mark) == []


def test_what_a_command_says_to_nobody(transport: paramiko.Transport, world: World) -> None:
    """The first that cannot be delivered tells the gateway that the client is gone; after that the
    pipe is broken."""
    home = world.sandbox.home
    channel = transport.open_session()
    channel.exec_command(
        "trap '' PIPE; echo begun; cat; echo a && touch taken; while echo b; do :; done; "
        "touch broken"
    )
    read_until(channel, b"begun")
    channel.close()
    assert eventually((home / "broken").exists)
    assert (home / "taken").exists()
    assert transport.is_active()


def test_background_servers_stay(world: World) -> None:
    mark = sleeper()
    assert world.client.run(f"sleep {mark} >/dev/null 2>&1 </dev/null &").returncode == 0
    assert len(living(mark)) == 1
    world.isolation.stop(world.sandbox)
    assert living(mark) == []


def test_a_sandbox_that_stops_cuts_its_connections(world: World) -> None:
    with subprocess.Popen(
        world.client.argv("echo ready; cat"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as client:
        assert client.stdout is not None and client.stderr is not None
        assert client.stdout.readline() == b"ready\n"
        world.gateway.cut("another")
        world.gateway.cut(world.sandbox.id)
        assert client.wait(SECONDS) == 255
        assert b"closed by remote host" in client.stderr.read()


@pytest.mark.parametrize("end", ["stop", "delete"])
def test_the_end_of_a_sandbox_is_told_to_the_gateway(tmp_path: Path, end: str) -> None:
    with LocalDaytona(tmp_path / "daytona") as local:
        headers = {"Authorization": f"Bearer {local.api_key}"}
        with httpx.Client(
            base_url=local.api_url, headers=headers, trust_env=False, timeout=SECONDS
        ) as api:
            box = api.post("/sandbox", json={}).json()["id"]
            assert eventually(lambda: api.get(f"/sandbox/{box}").json()["state"] == "started")
            token = api.post(f"/sandbox/{box}/ssh-access").json()["token"]
            argv = Client(tmp_path, local.gateway, local.gateway.presented_keys()).argv(
                "echo ready; cat", token=token
            )
            with subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as client:
                assert client.stdout is not None and client.stderr is not None
                assert client.stdout.readline() == b"ready\n"
                (
                    api.post(f"/sandbox/{box}/stop")
                    if end == "stop"
                    else api.delete(f"/sandbox/{box}")
                ).raise_for_status()
                assert client.wait(SECONDS) == 255
                assert b"closed by remote host" in client.stderr.read()


def test_the_end_of_the_gateway_ends_everything(world: World) -> None:
    mark = sleeper()
    with subprocess.Popen(
        world.client.argv(f"sleep {mark}"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as client:
        assert eventually(lambda: len(living(mark)) == 1)
        world.gateway.stop()
        assert client.wait(SECONDS) == 255
    assert eventually(lambda: living(mark) == [])
    world.gateway.stop()


# Admission
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["unknown", "revoked", "expired", "stopped"])
def test_who_is_not_let_in_is_cut_after_the_handshake(world: World, case: str) -> None:
    token = TOKEN
    if case == "unknown":
        token = "another"
    elif case == "revoked":
        del world.registry.tokens[TOKEN]
    elif case == "expired":
        world.registry.mint(world.sandbox, TOKEN, seconds=-1)
    else:
        world.sandbox.state = "stopped"
    result = world.client.run("echo reached", token=token)
    assert (result.returncode, result.stdout) == (255, b"")
    assert token.encode() not in result.stderr
    assert b"Connection to 127.0.0.1 closed by remote host." in result.stderr
    verbose = world.client.run("-v", "true", token=token)
    assert b"Authenticated to 127.0.0.1" in verbose.stderr
    silent = world.client.run("-N", token=token)
    assert silent.returncode == 255


def test_a_client_that_would_rather_show_a_key(world: World, tmp_path: Path) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True
    )
    assert (
        world.client.run(
            "-oPreferredAuthentications=publickey", f"-i{tmp_path / 'key'}", "echo in"
        ).stdout
        == b"in\n"
    )


def test_revoking_does_not_cut_a_transfer(world: World, transport: paramiko.Transport) -> None:
    with subprocess.Popen(
        world.client.argv("cat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(b"before\n")
        client.stdin.flush()
        assert client.stdout.readline() == b"before\n"
        world.registry.tokens.clear()
        client.stdin.write(b"after\n")
        client.stdin.close()
        assert client.stdout.read() == b"after\n"
        assert client.wait(SECONDS) == 0
    channel = transport.open_session()  # a new one of a connection from before
    channel.exec_command("echo on")
    assert read_until(channel, b"\n") == b"on\n"
    assert world.client.run("true").returncode == 255


def test_an_open_session_is_activity(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "TOUCH_SECONDS", 0.1)
    with subprocess.Popen(
        world.client.argv("cat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as client:
        assert eventually(lambda: len(world.registry.touches) > 2)
        client.communicate(timeout=SECONDS)
    assert set(world.registry.touches) == {world.sandbox.id}


def test_tokens_are_in_no_log(
    world: World, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="asyncssh")
    assert world.client.run("true").returncode == 0
    assert world.client.run("true", token="unknown-token").returncode == 255
    out, err = capfd.readouterr()
    for text in (caplog.text, out, err):
        assert TOKEN not in text
        assert "unknown-token" not in text


# Host keys
# --------------------------------------------------------------------------------------------------


def test_host_keys_are_kept_privately(world: World) -> None:
    before = world.gateway.presented_keys()
    assert [line.split()[0] for line in before] == ["ssh-ed25519"]
    assert world.keys_dir.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in world.keys_dir.iterdir()} == {0o600}
    scan = subprocess.run(
        ["ssh-keyscan", "-T3", "-p", str(world.gateway.port), "127.0.0.1"],
        capture_output=True,
        timeout=SECONDS,
    )
    assert [
        line.split(maxsplit=1)[1] for line in scan.stdout.decode().splitlines() if line[0] != "#"
    ] == before
    assert b"hostkeys" not in world.client.run("-v", "-oUpdateHostKeys=yes", "true").stderr.replace(
        b"hostkeys_find_by", b""
    )
    again = Gateway(
        world.registry, world.isolation, host_keys_dir=world.keys_dir, faults=world.faults
    )
    assert again.presented_keys() == before


def test_rotation(world: World, transport: paramiko.Transport) -> None:
    old = world.gateway.presented_keys()
    world.gateway.rotate()
    assert set(world.gateway.presented_keys()).isdisjoint(old)
    refused = world.client.run("true")
    assert refused.returncode == 255
    assert b"HOST IDENTIFICATION HAS CHANGED" in refused.stderr
    world.client.trust(world.gateway.presented_keys())
    assert world.client.run("true").returncode == 0
    channel = transport.open_session()  # of a connection from before
    channel.exec_command("echo on")
    assert read_until(channel, b"\n") == b"on\n"


def test_several_key_types(tmp_path: Path) -> None:
    world = World(tmp_path, "plain", key_types=("ed25519", "ecdsa", "rsa"))
    try:
        for line in world.gateway.presented_keys():
            world.client.trust([line])
            assert world.client.run("true").returncode == 0, line.split()[0]
    finally:
        world.close()


def test_unknown_key_type(world: World, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="dsa"):
        Gateway(
            world.registry, world.isolation, host_keys_dir=tmp_path / "keys", key_types=("dsa",)
        )


# git and large data
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["bubblewrap", "namespaces", "plain"])
def test_git_there_and_back(tmp_path: Path, mode: str) -> None:
    try:
        world = World(tmp_path, mode)
    except ApiError as error:
        pytest.skip(error.message)
    try:
        client, url = world.client, "ssh://gateway/home/daytona/project"
        mine = tmp_path / "mine"
        client.git("init", mine)
        (mine / "file").write_text("from here\n")
        client.git("-C", mine, "add", ".")
        client.git("-C", mine, "commit", "-m", "here")
        assert client.run("git init -q project").returncode == 0
        client.git("-C", mine, "push", url, "HEAD:refs/heads/opencode")
        script = (
            "cd project && git checkout -q opencode && test \"$(cat file)\" = 'from here' "
            "&& echo 'from there' >> file"
            " && git -c user.name=A -c user.email=a@localhost commit -qam there && git "
            "rev-parse HEAD"
        )
        there = client.run(script)
        assert there.returncode == 0, there.stderr
        client.git("-C", mine, "fetch", url, "+refs/heads/opencode:refs/remotes/sandbox-1/opencode")
        assert (
            client.git("-C", mine, "rev-parse", "refs/remotes/sandbox-1/opencode")
            == there.stdout.decode()
        )
        client.git("clone", url, tmp_path / "clone")
        assert (tmp_path / "clone/file").read_text() == "from here\nfrom there\n"
    finally:
        world.close()


def test_many_fetches_at_once(world: World, tmp_path: Path) -> None:
    assert (
        world.client.run(
            "git init -q p && cd p && head -c 2000000 /dev/urandom > f && git add "
            "f "
            "&& "
            "git "
            "-c "
            "user.name=A -c"
            " user.email=a@localhost commit -qm x"
        ).returncode
        == 0
    )
    with ThreadPoolExecutor(16) as pool:
        list(
            pool.map(
                lambda n: world.client.git(
                    "clone", "-q", "ssh://gateway/home/daytona/p", tmp_path / str(n)
                ),
                range(16),
            )
        )
    assert len({(tmp_path / str(n) / "f").read_bytes() for n in range(16)}) == 1


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def settle(counter: Callable[[], int]) -> int:
    """The value of a counter once it has stood still for half a second."""
    deadline = time.monotonic() + SECONDS
    value, since = counter(), time.monotonic()
    while time.monotonic() - since < 0.5:
        assert time.monotonic() < deadline
        time.sleep(0.02)
        if (now := counter()) != value:
            value, since = now, time.monotonic()
    return value


def io(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)[name])


def test_a_slow_reader_holds_the_command_up(world: World) -> None:
    world.client.run("true")
    size = 50 * MB
    before = resident()
    with subprocess.Popen(
        world.client.argv(f"exec head -c {size} /dev/zero"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as client:
        assert client.stdout is not None
        assert eventually(lambda: len(heads(str(size))) == 1)
        written = settle(lambda: io(heads(str(size))[0], "wchar"))
        assert 0 < written < 25 * MB
        assert resident() - before < 16 * MB
        assert len(client.stdout.read()) == size
        assert client.wait(SECONDS) == 0


def test_a_slow_command_holds_the_client_up(world: World, tmp_path: Path) -> None:
    world.client.run("true")
    source = tmp_path / "data"
    source.write_bytes(bytes(50 * MB))
    before = resident()
    with (
        source.open("rb") as data,
        subprocess.Popen(
            world.client.argv("read line; wc -c"), stdin=data, stdout=subprocess.PIPE
        ) as idle,
    ):
        idle.kill()
    mark = sleeper()
    with (
        source.open("rb") as data,
        subprocess.Popen(
            world.client.argv(f"sleep {mark}; wc -c"), stdin=data, stdout=subprocess.PIPE
        ) as client,
    ):
        assert eventually(lambda: len(living(mark)) == 1)
        taken = settle(lambda: io(client.pid, "rchar"))
        assert 0 < taken < 25 * MB
        assert resident() - before < 16 * MB
        os.kill(living(mark)[0], signal.SIGTERM)
        out, _ = client.communicate(timeout=SECONDS)
        assert int(out) == 50 * MB


# Faults
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault", ["drop_before_handshake", "drop_after_handshake", "refuse_after_start"]
)
def test_refused_connections(world: World, fault: str) -> None:
    setattr(world.faults.gateway, fault, 2)
    assert [world.client.run("true").returncode for _ in range(3)] == [255, 255, 0]
    if fault == "refuse_after_start":
        world.faults.gateway.note_start(world.sandbox.id)
        assert world.client.run("true").returncode == 255


@pytest.mark.parametrize(("script", "data"), [("cat /dev/zero", b""), ("cat > got", bytes(MB))])
def test_a_connection_that_breaks_in_mid_stream(world: World, script: str, data: bytes) -> None:
    world.faults.gateway.drop_after_bytes = 100_000
    result = world.client.run(script, data=data)
    assert result.returncode == 255
    assert b"closed by remote host" in result.stderr
    if data:
        got = world.sandbox.home / "got"
        assert eventually(lambda: got.exists() and got.stat().st_size == 100_000)
    else:
        assert 0 < len(result.stdout) <= 100_000  # ssh does not print all that it got


@pytest.mark.parametrize("most", [0, 1, 100_000, 5_000_000])
def test_a_channel_that_breaks_in_mid_stream(
    world: World, transport: paramiko.Transport, most: int
) -> None:
    world.faults.gateway.cut_output_after = most
    result = world.client.run("head -c 6000000 /dev/zero; cat")
    assert (result.returncode, len(result.stdout), result.stderr) == (255, most, b"")
    channel = transport.open_session()
    channel.exec_command("cat /dev/zero")
    seen = 0
    while data := channel.recv(65536):
        seen += len(data)
    assert seen == most
    assert channel.recv_exit_status() == -1  # paramiko's word for none
    assert transport.is_active()


def test_a_connection_that_stalls(world: World) -> None:
    world.faults.gateway.stall_after_bytes = 10
    with subprocess.Popen(
        world.client.argv("printf 123456; read line; printf 7890123"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as client:
        assert client.stdin is not None and client.stdout is not None
        assert client.stdout.read(6) == b"123456"
        client.stdin.write(b"\n")
        client.stdin.flush()
        assert world.faults.gateway.held.wait(SECONDS)
        assert client.poll() is None
        world.faults.gateway.release()
        assert client.stdout.read() == b"7890123"
        assert client.wait(SECONDS) == 0


def test_another_git_in_the_place_of_the_sandboxs_own(world: World) -> None:
    world.faults.gateway.git_server = 'echo "asked for: $DAYTONA_COMMAND"'
    assert world.client.run("echo it").stdout == b"it\n"
    assert (
        world.client.run('git upload-pack "it\'s"').stdout
        == b"asked for: git 'upload-pack' 'it'\\''s'\n"
    )
    world.faults.gateway.git_server = 'eval "$DAYTONA_COMMAND"'
    assert world.client.run("git --version").stdout.startswith(b"git version ")


def test_latency(world: World) -> None:
    world.faults.latency = 0.2
    world.faults.gateway.latency = 0.3
    began = time.monotonic()
    assert world.client.run("true").returncode == 0
    assert time.monotonic() - began >= 0.5


def test_hanging_connections(world: World) -> None:
    world.faults.gateway.hang = 1
    with subprocess.Popen(
        world.client.argv("echo late"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as client:
        assert world.faults.gateway.held.wait(SECONDS)
        assert world.client.run("true").returncode == 0
        assert client.poll() is None
        world.faults.gateway.release()
        assert client.communicate(timeout=SECONDS)[0] == b"late\n"
