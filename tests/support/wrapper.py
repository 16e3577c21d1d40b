"""The wrapper on its own with a leased token, the user's ssh configuration, a server that notes
what clients offer, and an agent."""

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import paramiko
import pytest

from git_daytona.api.cloud import Cloud
from git_daytona.settings import settings
from git_daytona.transfer.environment import ssh_environment
from git_daytona.transfer.transfer import Transfers
from git_daytona.trust.gateway import Policy
from support.round_trip import BIN
from support.waiting import until


@pytest.fixture(scope="module")
def sandbox(server) -> str:
    """A sandbox for all tests of this module."""
    answer = httpx.post(
        f"{server.api_url}/sandbox",
        json={},
        headers={"Authorization": f"Bearer {server.api_key}"},
        timeout=60,
    )
    return str(answer.json()["id"])


@dataclass
class Wrapper:
    """The wrapper with a leased token."""

    token: str
    environment: dict[str, str]
    port: int
    program: tuple[str, ...] = (str(BIN / "daytona-ssh"),)

    def popen(
        self, *words: str, env: dict[str, str] | None = None, **how
    ) -> "subprocess.Popen[bytes]":
        words = words or ("cat",)
        argv = (*self.program, "-p", str(self.port), "127.0.0.1", *words)
        environment = (
            os.environ | self.environment | {"DAYTONA_SSH_TOKEN": self.token} | (env or {})
        )
        return subprocess.Popen(
            argv,
            env=environment,
            **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            | how,
        )

    def __call__(
        self, *words: str, stdin: bytes = b"", env: dict[str, str] | None = None, **how
    ) -> "subprocess.CompletedProcess[bytes]":
        with self.popen(*words, env=env, **how) as process:
            out, err = process.communicate(stdin, timeout=60)
        assert self.token.encode() not in err
        assert b"Traceback" not in err
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture
def wrapper(local, sandbox) -> Iterator[Wrapper]:
    found = settings.load(None)
    cloud = Cloud(found)
    transfers = Transfers(found, cloud, Policy(found, cloud.config))
    with transfers.lease(sandbox) as (access, trust):
        yield Wrapper(access.token.reveal(), ssh_environment(found, trust, ()), local.gateway_port)


@pytest.fixture
def config(home) -> "callable":
    """Write ~/.ssh/config."""
    (home / ".ssh").mkdir(mode=0o700, exist_ok=True)

    def write(text: str) -> Path:
        (home / ".ssh" / "config").write_text(text)
        return home / ".ssh" / "config"

    return write


@dataclass
class Tiny(paramiko.ServerInterface):
    """An ssh server that notes what clients offer, and forwards to where a jump wants to go if it
    lets them in."""

    admits: bool
    users: list[str] = field(default_factory=list)
    offers: list[str] = field(default_factory=list)
    port: int = 0
    key: paramiko.PKey = field(default_factory=paramiko.ECDSAKey.generate)
    transport: paramiko.Transport | None = None

    def get_allowed_auths(self, username):
        return "publickey,password,keyboard-interactive"

    def check_auth_none(self, username):
        self.users.append(username)
        return paramiko.AUTH_SUCCESSFUL if self.admits else paramiko.AUTH_FAILED

    def check_auth_publickey(self, username, key):
        self.offers.append("publickey")
        return paramiko.AUTH_FAILED

    def check_auth_password(self, username, password):
        self.offers.append("password")
        return paramiko.AUTH_FAILED

    def check_channel_direct_tcpip_request(self, chanid, origin, destination):
        self.offers.append(f"forward to {destination[1]}")
        threading.Thread(target=self._forward, args=(destination,), daemon=True).start()
        return paramiko.OPEN_SUCCEEDED

    def check_channel_request(self, kind, chanid):
        self.offers.append(kind)
        return paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED

    def _forward(self, destination):
        channel = self.transport.accept(20)
        # The client may be gone at any moment; paramiko then raises EOFError from whatever would
        # still send something.
        with socket.create_connection(destination) as there, contextlib.suppress(OSError, EOFError):

            def back() -> None:
                with contextlib.suppress(OSError, EOFError):
                    while data := there.recv(65536):
                        channel.sendall(data)
                    channel.shutdown_write()

            thread = threading.Thread(target=back, daemon=True)
            thread.start()
            while data := channel.recv(65536):
                there.sendall(data)
            there.shutdown(socket.SHUT_WR)
            thread.join(20)
        with contextlib.suppress(EOFError):
            channel.close()


@contextlib.contextmanager
def tiny(*, admits: bool) -> Iterator[Tiny]:
    server = Tiny(admits)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.port = listener.getsockname()[1]

        def serve() -> None:
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                while True:
                    client, _ = listener.accept()
                    server.transport = paramiko.Transport(client)
                    server.transport.add_server_key(server.key)
                    server.transport.start_server(threading.Event(), server)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            if server.transport is not None:
                server.transport.close()
                server.transport.join()


@pytest.fixture
def agent(home, tmp_path) -> Iterator[dict[str, str]]:
    """A running ssh-agent with a key, which is also ~/.ssh/id_ed25519."""
    (home / ".ssh").mkdir(mode=0o700, exist_ok=True)
    key = home / ".ssh" / "id_ed25519"
    subprocess.run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key), check=True)
    place = tmp_path / "agent"
    with subprocess.Popen(("ssh-agent", "-D", "-a", place), stdout=subprocess.DEVNULL) as process:
        until(place.exists)
        subprocess.run(
            ("ssh-add", "-q", key), env=os.environ | {"SSH_AUTH_SOCK": str(place)}, check=True
        )
        yield {"SSH_AUTH_SOCK": str(place)}
        process.terminate()
