"""The SSH gateway, with the real OpenSSH client and real git; paramiko's client where OpenSSH's does not let one look closely."""

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

import paramiko
import pytest

from git_daytona.local import connection
from git_daytona.local.faults import Faults
from git_daytona.local.gateway import Gateway
from git_daytona.local.isolation import choose
from git_daytona.local.model import ApiError, Isolation, Sandbox

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
        return ["ssh", "-F", str(self.config(token)), *options, "gateway", *arguments[len(options) :]]

    def run(self, *arguments: str, token: str = TOKEN, data: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(self.argv(*arguments, token=token), input=data, capture_output=True, timeout=SECONDS)

    def git(self, *arguments: str | Path, token: str = TOKEN) -> str:
        environment = {
            **os.environ,
            "GIT_SSH_COMMAND": f"ssh -F '{self.config(token)}'",
            "GIT_SSH_VARIANT": "ssh",
            "GIT_CONFIG_GLOBAL": os.devnull,
        }
        identity = ["-c", "user.name=Test", "-c", "user.email=test@localhost", "-c", "init.defaultBranch=main"]
        return subprocess.run(
            ["git", *identity, *arguments], env=environment, capture_output=True, text=True, check=True, timeout=SECONDS
        ).stdout


class World:
    """A gateway with one started sandbox and one token."""

    def __init__(self, folder: Path, mode: str, key_types: tuple[str, ...] = ("ed25519",)):
        self.root = folder / "daytona"
        self.isolation: Isolation = choose(self.root, mode=mode)
        self.registry = Tokens()
        self.faults = Faults()
        self.keys_dir = self.root / "host_keys"
        self.gateway = Gateway(self.registry, self.isolation, host_keys_dir=self.keys_dir, faults=self.faults, key_types=key_types)
        self.sandbox = Sandbox(id="one", name="one", directory=self.root / "one", state="started")
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
    assert eventually(lambda: not any(thread.name.startswith("ssh-") for thread in threading.enumerate()))
    assert descriptors() == before


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


def read_until(channel: paramiko.Channel, text: bytes) -> bytes:
    channel.settimeout(SECONDS)
    seen = b""
    while text not in seen:
        data = channel.recv(4096)
        assert data, seen
        seen += data
    return seen


# Commands --------------------------------------------------------------------------------------------------------------


def test_status_and_streams(world: World) -> None:
    result = world.client.run("echo out; echo err >&2; pwd; exit 7")
    assert (result.returncode, result.stdout, result.stderr) == (7, b"out\n/home/daytona\n", b"err\n")


def test_a_signal_is_reported_as_such(world: World) -> None:
    result = world.client.run("-v", "kill -TERM $$")
    assert result.returncode == 255
    assert b"rtype exit-signal" in result.stderr


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
    result = world.client.run("-oSetEnv=GIT_PROTOCOL=version=2 LC_ALL=C LD_PRELOAD=x PATH=/evil", "env")
    lines = result.stdout.decode().splitlines()
    assert {"GIT_PROTOCOL=version=2", "LC_ALL=C", "HOME=/home/daytona"} <= set(lines)
    assert not any("LD_PRELOAD" in line or "evil" in line for line in lines)


def test_bytes_of_the_command_arrive_as_they_are(transport: paramiko.Transport) -> None:
    channel = transport.open_session()
    channel.exec_command(b"printf %s '\xff\xc3\xa9' | od -An -tx1")
    assert read_until(channel, b"\n").split() == [b"ff", b"c3", b"a9"]


def test_shell_without_terminal(world: World) -> None:
    result = world.client.run("-T", data=b"cd /tmp\npwd\nexit 4\n")
    assert (result.returncode, result.stdout) == (4, b"/tmp\n")


def test_shell_with_terminal(world: World, transport: paramiko.Transport) -> None:
    channel = transport.open_session()
    channel.get_pty("vt100", width=101, height=31)
    channel.invoke_shell()
    channel.sendall(b"PS1=; echo $TERM $(stty size) $(tty) end-$((1))\n")
    assert b"vt100 31 101 /dev/pts/" in read_until(channel, b"end-1")
    channel.resize_pty(width=77, height=22)
    channel.sendall(b"stty size; echo end-$((2))\n")
    assert b"22 77" in read_until(channel, b"end-2")
    mark = sleeper()
    channel.sendall(f"sleep {mark}\n".encode())
    assert eventually(lambda: len(living(mark)) == 1)
    channel.sendall(b"\x03echo end-$((3))\n")
    read_until(channel, b"end-3")  # the terminal's interrupt key reached the command
    channel.sendall(b"exit 5\n")
    assert channel.recv_exit_status() == 5


def test_terminal_that_hangs_up(world: World, transport: paramiko.Transport) -> None:
    mark = sleeper()
    channel = transport.open_session()
    channel.get_pty()
    channel.exec_command(f"sleep {mark}")
    assert eventually(lambda: len(living(mark)) == 1)
    channel.close()
    assert eventually(lambda: living(mark) == [])


def test_sftp(world: World, tmp_path: Path) -> None:
    server = [path for path in ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server") if Path(path).exists()]
    if not server:
        pytest.skip("no sftp-server on this machine")
    source = tmp_path / "file"
    source.write_text("over sftp")
    subprocess.run(
        ["sftp", "-q", "-F", world.client.config(TOKEN), "-b", "-", "gateway"],
        input=f"put {source} copy\n".encode(),
        capture_output=True,
        check=True,
        timeout=SECONDS,
    )
    assert (world.sandbox.home / "copy").read_text() == "over sftp"


def test_what_is_not_offered_is_refused_cleanly(world: World, transport: paramiko.Transport) -> None:
    result = world.client.run("-s", "unknown")
    assert result.returncode == 255
    with pytest.raises(paramiko.ChannelException):
        transport.open_channel("direct-tcpip", ("127.0.0.1", world.gateway.port), ("127.0.0.1", 1))
    with pytest.raises(paramiko.SSHException):
        transport.request_port_forward("127.0.0.1", 0)
    channel = transport.open_session()
    channel.exec_command("echo still here")
    assert read_until(channel, b"\n") == b"still here\n"


# Connections -----------------------------------------------------------------------------------------------------------


def test_banner(world: World) -> None:
    with socket.create_connection(("127.0.0.1", world.gateway.port), timeout=SECONDS) as raw, raw.makefile("rb") as lines:
        assert lines.readline() == b"SSH-2.0-daytona-local\r\n"


def test_several_channels_of_one_connection(transport: paramiko.Transport) -> None:
    channels = [transport.open_session() for _ in range(connection.MAX_SESSIONS)]
    for number, channel in enumerate(channels):
        channel.exec_command(f"read line; echo $line; exit {number}")
    with pytest.raises(paramiko.ChannelException):
        transport.open_session()
    for number, channel in reversed(list(enumerate(channels))):
        channel.sendall(f"line {number}\n".encode())
        assert read_until(channel, b"\n") == f"line {number}\n".encode()
        assert channel.recv_exit_status() == number


def test_many_channels_one_after_another(transport: paramiko.Transport) -> None:
    for _ in range(3 * connection.MAX_SESSIONS):
        channel = transport.open_session()
        channel.exec_command("true")
        assert channel.recv_exit_status() == 0


def test_thirty_at_once(world: World) -> None:
    with ThreadPoolExecutor(30) as pool:
        results = list(pool.map(lambda n: world.client.run(f"echo {n}; exit {n}"), range(30)))
    assert [(result.returncode, result.stdout) for result in results] == [(n, f"{n}\n".encode()) for n in range(30)]


def test_keep_alive_is_answered(world: World) -> None:
    assert world.client.run("-oServerAliveInterval=1", "-oServerAliveCountMax=1", "sleep 3").returncode == 0


def test_noise_does_no_harm(world: World) -> None:
    for noise in (b"", b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-x\r\n" + os.urandom(1000)):
        with socket.create_connection(("127.0.0.1", world.gateway.port), timeout=SECONDS) as raw:
            raw.sendall(noise)
    assert world.client.run("true").returncode == 0


def test_a_client_that_goes_away_ends_its_command(world: World) -> None:
    mark = sleeper()
    with subprocess.Popen(
        world.client.argv(f"sleep {mark} & sleep {mark}"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as client:
        assert eventually(lambda: len(living(mark)) == 2)
        client.kill()
    assert eventually(lambda: living(mark) == [])


def test_a_channel_that_is_closed_ends_its_command(transport: paramiko.Transport) -> None:
    mark = sleeper()
    channel = transport.open_session()
    channel.exec_command(f"sleep {mark}")
    assert eventually(lambda: len(living(mark)) == 1)
    channel.close()
    assert eventually(lambda: living(mark) == [])
    assert transport.is_active()


def test_background_servers_stay(world: World) -> None:
    mark = sleeper()
    assert world.client.run(f"sleep {mark} >/dev/null 2>&1 </dev/null &").returncode == 0
    assert len(living(mark)) == 1
    world.isolation.stop(world.sandbox)
    assert living(mark) == []


def test_stop_cuts_connections(world: World) -> None:
    mark = sleeper()
    with subprocess.Popen(
        world.client.argv(f"sleep {mark}"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as client:
        assert eventually(lambda: len(living(mark)) == 1)
        world.gateway.stop()
        assert client.wait(SECONDS) == 255
    assert eventually(lambda: living(mark) == [])
    world.gateway.stop()


# Admission -------------------------------------------------------------------------------------------------------------


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
    verbose = world.client.run("-v", "true", token=token)
    assert b"Authenticated to 127.0.0.1" in verbose.stderr
    silent = world.client.run("-N", token=token)
    assert silent.returncode == 255


def test_revoking_does_not_cut_a_transfer(world: World) -> None:
    with subprocess.Popen(world.client.argv("cat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
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
    assert world.client.run("true").returncode == 255


def test_an_open_session_is_activity(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "TOUCH_SECONDS", 0.1)
    with subprocess.Popen(world.client.argv("cat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        assert eventually(lambda: len(world.registry.touches) > 2)
        client.communicate(timeout=SECONDS)
    assert set(world.registry.touches) == {"one"}


def test_tokens_are_in_no_log(world: World, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("paramiko", "paramiko.transport", connection.LOG):
        caplog.set_level(logging.DEBUG, logger=name)
    assert world.client.run("true").returncode == 0
    assert world.client.run("true", token="unknown-token").returncode == 255
    out, err = capfd.readouterr()
    for text in (caplog.text, out, err):
        assert TOKEN not in text
        assert "unknown-token" not in text


# Host keys -------------------------------------------------------------------------------------------------------------


def test_host_keys_are_kept_privately(world: World) -> None:
    before = world.gateway.presented_keys()
    assert [line.split()[0] for line in before] == ["ssh-ed25519"]
    assert world.keys_dir.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in world.keys_dir.iterdir()} == {0o600}
    again = Gateway(world.registry, world.isolation, host_keys_dir=world.keys_dir, faults=world.faults)
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
        Gateway(world.registry, world.isolation, host_keys_dir=tmp_path / "keys", key_types=("dsa",))


# git and large data ----------------------------------------------------------------------------------------------------


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
            "cd project && git checkout -q opencode && test \"$(cat file)\" = 'from here' && echo 'from there' >> file"
            " && git -c user.name=A -c user.email=a@localhost commit -qam there && git rev-parse HEAD"
        )
        there = client.run(script)
        assert there.returncode == 0, there.stderr
        client.git("-C", mine, "fetch", url, "+refs/heads/opencode:refs/remotes/sandbox-1/opencode")
        assert client.git("-C", mine, "rev-parse", "refs/remotes/sandbox-1/opencode") == there.stdout.decode()
        client.git("clone", url, tmp_path / "clone")
        assert (tmp_path / "clone/file").read_text() == "from here\nfrom there\n"
    finally:
        world.close()


def test_many_fetches_at_once(world: World, tmp_path: Path) -> None:
    assert world.client.run("git init -q p && cd p && head -c 2000000 /dev/urandom > f && git add f && git -c user.name=A -c"
                            " user.email=a@localhost commit -qm x").returncode == 0  # fmt: skip
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: world.client.git("clone", "-q", "ssh://gateway/home/daytona/p", tmp_path / str(n)), range(16)))
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
        world.client.argv(f"exec head -c {size} /dev/zero"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as client:
        assert client.stdout is not None
        head: list[int] = []

        def found() -> bool:
            head.extend(
                int(folder.name)
                for folder in Path("/proc").glob("[0-9]*")
                if str(size).encode() in _arguments(folder) and _arguments(folder).startswith(b"head\0")
            )
            return bool(head)

        assert eventually(found)
        written = settle(lambda: io(head[0], "wchar"))
        assert 0 < written < 25 * MB
        assert resident() - before < 16 * MB
        assert len(client.stdout.read()) == size
        assert client.wait(SECONDS) == 0


def _arguments(folder: Path) -> bytes:
    try:
        return (folder / "cmdline").read_bytes()
    except OSError:
        return b""


def test_a_slow_command_holds_the_client_up(world: World, tmp_path: Path) -> None:
    world.client.run("true")
    source = tmp_path / "data"
    source.write_bytes(bytes(50 * MB))
    before = resident()
    with (
        source.open("rb") as data,
        subprocess.Popen(world.client.argv("read line; wc -c"), stdin=data, stdout=subprocess.PIPE) as idle,
    ):
        idle.kill()
    mark = sleeper()
    with (
        source.open("rb") as data,
        subprocess.Popen(world.client.argv(f"sleep {mark}; wc -c"), stdin=data, stdout=subprocess.PIPE) as client,
    ):
        assert eventually(lambda: len(living(mark)) == 1)
        taken = settle(lambda: io(client.pid, "rchar"))
        assert 0 < taken < 25 * MB
        assert resident() - before < 16 * MB
        os.kill(living(mark)[0], signal.SIGTERM)
        out, _ = client.communicate(timeout=SECONDS)
        assert int(out) == 50 * MB


# Faults ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["drop_before_handshake", "drop_after_handshake", "refuse_after_start"])
def test_refused_connections(world: World, fault: str) -> None:
    setattr(world.faults.gateway, fault, 2)
    assert [world.client.run("true").returncode for _ in range(3)] == [255, 255, 0]
    if fault == "refuse_after_start":
        world.faults.gateway.note_start("one")
        assert world.client.run("true").returncode == 255


@pytest.mark.parametrize(("script", "data"), [("cat /dev/zero", b""), ("cat > got", bytes(MB))])
def test_a_connection_that_breaks_in_mid_stream(world: World, script: str, data: bytes) -> None:
    world.faults.gateway.drop_after_bytes = 100_000
    result = world.client.run(script, data=data)
    assert result.returncode == 255
    if data:
        got = world.sandbox.home / "got"
        assert eventually(lambda: got.exists() and got.stat().st_size == 100_000)
    else:
        assert 0 < len(result.stdout) <= 100_000  # ssh does not print all that it got when the connection is reset


def test_latency(world: World) -> None:
    world.faults.latency = 0.2
    world.faults.gateway.latency = 0.3
    began = time.monotonic()
    assert world.client.run("true").returncode == 0
    assert time.monotonic() - began >= 0.5


def test_hanging_connections(world: World) -> None:
    world.faults.gateway.hang = 1
    with subprocess.Popen(world.client.argv("echo late"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as client:
        assert eventually(lambda: world.faults.gateway.hang == 0)
        assert world.client.run("true").returncode == 0
        assert client.poll() is None
        world.faults.gateway.release()
        assert client.communicate(timeout=SECONDS)[0] == b"late\n"
