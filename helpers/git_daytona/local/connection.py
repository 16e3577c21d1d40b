"""One SSH connection of the gateway: handshake, admission, channels, end."""

import socket
import threading
import time
from typing import Any

import paramiko  # type: ignore[import-untyped]

from .channel import Session
from .faults import Faults
from .model import Isolation, Registry, Sandbox

MAX_SESSIONS = 10  # as OpenSSH's MaxSessions; each takes three threads
HANDSHAKE_SECONDS = 30.0
QUIET_SECONDS = 1.0
TOUCH_SECONDS = 15.0
LOG = "git_daytona.local.ssh"
CHANNEL_REQUEST = 98  # RFC 4254, 9
CHANNEL_CLOSE = 97


class Packetizer(paramiko.Packetizer):  # type: ignore[misc]
    """Leaves re-keying to the client: paramiko's default of 512 MB is for old ciphers (RFC 4344, 3.2 allows 2^32 blocks)."""

    REKEY_BYTES = 1 << 34
    REKEY_PACKETS = 1 << 31


class Transport(paramiko.Transport):  # type: ignore[misc]
    """paramiko's, with a word after the answer to a channel request, which it has no hook for."""

    # AES-GCM needs no MAC of its own, which halves paramiko's work. The client's order of preference decides, and
    # OpenSSH's prefers CTR, so CTR is not offered; every OpenSSH since 6.2 (2013) has GCM.
    _preferred_ciphers = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")

    def _answer(self: Any, message: Any) -> None:  # `self` is the channel: paramiko calls these as its methods
        paramiko.Channel._handle_request(self, message)
        server = self.transport.server_object
        if server is not None:
            server.answered(self)

    _channel_handler_table = {**paramiko.Transport._channel_handler_table, CHANNEL_REQUEST: _answer}  # noqa: RUF012

    def _queue_incoming_channel(self, channel: Any) -> None:
        """In place of paramiko's queue, which would keep every channel for an `accept` that never comes.

        Somebody must hold the channel: the transport itself has only a weak reference.
        """
        self.server_object.opened(channel)


class Connection(paramiko.ServerInterface):  # type: ignore[misc]
    """Serves one client. `serve` runs in a thread of the connection's own; the requests come from paramiko's thread."""

    def __init__(
        self,
        client: socket.socket,
        keys: "list[paramiko.PKey]",
        registry: Registry,
        isolation: Isolation,
        faults: Faults,
        banner: str,
        stopping: threading.Event,
    ):
        self._client = client
        self._keys = keys
        self._registry = registry
        self._isolation = isolation
        self._faults = faults
        self._gateway_faults = faults.gateway
        self._banner = banner
        self._stopping = stopping
        self._transport: Any = None
        self._token = ""
        self._authenticated = threading.Event()
        self._asked = threading.Event()
        self._admission = threading.Lock()
        self._admitted: bool | None = None
        self._sandbox: Sandbox | None = None
        self._sessions: dict[int, Session] = {}
        self._left = self._gateway_faults.drop_after_bytes
        self._passed = 0
        self._counting = threading.Lock()

    def serve(self) -> None:
        """From the first byte to the last; returns when nothing of the connection is left."""
        try:
            with self._client:
                if self._meet_faults():
                    self._converse()
        except (OSError, EOFError, paramiko.SSHException):
            pass  # a client that went away or does not speak SSH
        finally:
            for session in list(self._sessions.values()):
                session.abandon()
                session.done.wait()

    def close(self) -> None:
        """Cut the connection."""
        transport = self._transport
        if transport is not None:
            transport.close()
        try:
            self._client.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the client was faster

    def _meet_faults(self) -> bool:
        """Do what tests switched on; False when the connection is not to be served."""
        faults = self._gateway_faults
        delay = self._faults.latency + faults.latency
        if delay > 0 and self._stopping.wait(delay):
            return False
        if faults.take("drop_before_handshake"):
            return False
        if faults.take("hang") and not faults.hold(self._stopping.is_set):
            return False
        return not self._stopping.is_set()

    def _converse(self) -> None:
        self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport = Transport(self._client, packetizer_class=Packetizer)
        # paramiko's messages name users, and here a user's name is a token; they go where nobody listens.
        transport.set_log_channel(LOG)
        transport.local_version = f"SSH-2.0-{self._banner}"
        for key in self._keys:
            transport.add_server_key(key)
        self._transport = transport
        try:
            transport.start_server(event=threading.Event(), server=self)
            deadline = time.monotonic() + HANDSHAKE_SECONDS
            while not self._authenticated.wait(0.1):
                if not transport.is_active() or time.monotonic() > deadline or self._stopping.is_set():
                    return
            # The check comes after the handshake and before the first channel; for a client that asks for none, a bit later.
            self._asked.wait(QUIET_SECONDS)
            if self.admit():
                self._stay(transport)
        finally:
            transport.close()
            transport.join()

    def _stay(self, transport: Any) -> None:
        touched = time.monotonic()
        while transport.is_alive() and not self._stopping.is_set():
            transport.join(0.5)
            for number, session in list(self._sessions.items()):
                if session.forsaken:
                    session.abandon()
                if session.done.is_set():
                    self._sessions.pop(number, None)
            if self._sessions and self._sandbox is not None and time.monotonic() - touched > TOUCH_SECONDS:
                touched = time.monotonic()
                self._registry.touch(self._sandbox)

    def admit(self) -> bool:
        """Whether the token opens a started sandbox: asked once, so that a later revocation does not cut a transfer."""
        with self._admission:
            if self._admitted is None:
                sandbox = self._registry.validate(self._token)
                self._admitted = (
                    sandbox is not None
                    and sandbox.state == "started"
                    and not self._gateway_faults.take("drop_after_handshake")
                    and not self._gateway_faults.take_start_refusal(sandbox.id)
                )
                if sandbox is not None and self._admitted:
                    self._sandbox = sandbox
                    self._registry.touch(sandbox)
            return self._admitted

    def _allow(self, count: int) -> int:
        limit = self._gateway_faults.stall_after_bytes
        with self._counting:
            self._passed += count
            stalls = limit is not None and self._passed > limit
        if stalls:
            self._gateway_faults.hold(lambda: self._stopping.is_set() or not self._transport.is_active())
        if self._left is None:
            return count
        with self._counting:
            allowed = min(count, self._left)
            self._left -= allowed
            return allowed

    # paramiko's questions -------------------------------------------------------------------------------------------

    def get_allowed_auths(self, username: str) -> str:
        return "none"

    def check_auth_none(self, username: str) -> int:
        self._token = username
        self._authenticated.set()
        return int(paramiko.AUTH_SUCCESSFUL)

    def check_channel_request(self, kind: str, chanid: int) -> int:
        admitted = self.admit()
        self._asked.set()
        if not admitted:
            self._transport.close()
            return int(paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED)
        if kind != "session":
            return int(paramiko.OPEN_FAILED_UNKNOWN_CHANNEL_TYPE)
        if sum(not session.done.is_set() for session in list(self._sessions.values())) >= MAX_SESSIONS:
            return int(paramiko.OPEN_FAILED_RESOURCE_SHORTAGE)
        return int(paramiko.OPEN_SUCCEEDED)

    def check_channel_env_request(self, channel: Any, name: bytes, value: bytes) -> bool:
        return self._session(channel).accept_env(name.decode(errors="replace"), value.decode(errors="surrogateescape"))

    def check_channel_pty_request(
        self, channel: Any, term: bytes, width: int, height: int, pixelwidth: int, pixelheight: int, modes: bytes
    ) -> bool:
        return self._session(channel).open_terminal(term.decode("ascii", "replace"), width, height)

    def check_channel_window_change_request(self, channel: Any, width: int, height: int, pixelwidth: int, pixelheight: int) -> bool:
        return self._session(channel).resize(width, height)

    def check_channel_exec_request(self, channel: Any, command: bytes) -> bool:
        return self._session(channel).execute(self._gateway_faults.exchange(command.decode(errors="surrogateescape")))

    def check_channel_shell_request(self, channel: Any) -> bool:
        return self._session(channel).shell()

    def check_channel_subsystem_request(self, channel: Any, name: str) -> bool:
        return self._session(channel).subsystem(name)

    def answered(self, channel: Any) -> None:
        """A channel's request has been answered, so data may flow."""
        self._session(channel).stream()

    def opened(self, channel: Any) -> None:
        """A channel was opened after `check_channel_request` allowed it."""
        assert self._sandbox is not None
        self._sessions[channel.chanid] = Session(channel, self._sandbox, self._isolation, self._allow, self.close)

    def _session(self, channel: Any) -> Session:
        return self._sessions[channel.chanid]
