"""One SSH connection of the gateway: admission, and which channels it opens.

The names with an underscore are asyncssh's: it finds the handler of a request by the request's
name, and has no other way in for those that it does not know or would do itself, with the server's
own files.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import asyncssh
from asyncssh.constants import OPEN_RESOURCE_SHORTAGE, OPEN_UNKNOWN_CHANNEL_TYPE

from git_daytona.local.gateway.channel import Forward, Session, port, unix_socket
from git_daytona.local.gateway.streams import Access, Stream

MAX_CHANNELS = 100
"""No limit of Daytona's was found; here each takes a process and six descriptors."""
WINDOW = 2 << 20
PACKET = 32768
CUT_SECONDS = 2.0


class Channel(asyncssh.SSHServerChannel[bytes]):
    """A session's channel."""

    def _process_exec_request(self, packet: Any) -> bool:
        """Take a command of any bytes; asyncssh refuses those that are not UTF-8."""
        command = packet.get_string()
        packet.check_end()
        return bool(self._start_session(command=command.decode("utf-8", "surrogateescape")))

    def _process_auth_agent_req_at_openssh_dot_com_request(self, packet: Any) -> bool:  # type: ignore[override]
        """Grant it, and nothing more; asyncssh's makes a socket on the server's side."""
        packet.check_end()
        if isinstance(self._session, Session):
            self._session.agent = True
        return True


class Closed(asyncssh.SSHTCPSession[bytes]):
    """A channel that is closed as soon as it is open."""

    def connection_made(self, chan: Any) -> None:
        chan.close()


class Connection(asyncssh.SSHServerConnection):
    """asyncssh's, with what Daytona's gateways do differently."""

    # All global requests are refused, which a client that asks for a sign of life takes for one as
    # well.
    _process_keepalive_at_openssh_dot_com_global_request: Any = None
    _process_tcpip_forward_global_request: Any = None
    _process_cancel_tcpip_forward_global_request: Any = None
    _process_streamlocal_forward_at_openssh_dot_com_global_request: Any = None
    _process_cancel_streamlocal_forward_at_openssh_dot_com_global_request: Any = None

    def connection_made(self, transport: Any) -> None:
        self._wire = transport
        self._is_cut = False
        super().connection_made(transport)

    def cut(self) -> None:
        """Close the TCP connection without a word of SSH, behind what has been written.

        The client is left to close its side: a reset could take back what it has not read yet.
        """
        if not self._is_cut and not self._wire.is_closing():
            self._is_cut = True
            self._wire.write_eof()
            asyncio.get_running_loop().call_later(CUT_SECONDS, self._wire.abort)

    def data_received(self, data: bytes, datatype: Any = None) -> None:
        if not self._is_cut:
            super().data_received(data, datatype)

    def send_packet(self, pkttype: int, *args: bytes, handler: Any = None) -> None:
        if not self._is_cut and not self._wire.is_closing():
            super().send_packet(pkttype, *args, handler=handler)

    def send_channel_open_failure(self, send_chan: int, code: int, reason: str, lang: str) -> None:
        """Open a channel of an unknown type before closing it, as the gateway does that asks the
        next one only then."""
        if code == OPEN_UNKNOWN_CHANNEL_TYPE:
            self.create_tcp_channel().process_open(send_chan, 0, PACKET, Closed())
        else:
            super().send_channel_open_failure(send_chan, code, reason, lang)


class Door(asyncssh.SSHServer):
    """Whom a connection admits, and to what."""

    def __init__(self, admit: Callable[[str, Connection], Access | None]):
        self._admit = admit
        self._token = ""
        self._access: Access | None = None
        self._streams: list[Stream] = []

    def connection_made(self, conn: Any) -> None:
        self._connection: Connection = conn

    def begin_auth(self, username: str) -> bool:
        self._token = username
        return False  # nothing more is asked: the method `none` for everybody

    def auth_completed(self) -> None:
        """Look at the token behind the handshake, and once: a later revocation does not cut a
        transfer."""
        self._access = self._admit(self._token, self._connection)
        if self._access is None:
            self._connection.cut()

    def session_requested(self) -> Any:
        channel = Channel(
            self._connection,
            asyncio.get_running_loop(),
            allow_pty=True,
            line_editor=False,
            line_echo=False,
            line_history=0,
            max_line_length=0,
            encoding=None,
            errors="strict",
            window=WINDOW,
            max_pktsize=PACKET,
        )
        return channel, self._opened(Session(self._admitted()))

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Any:
        return self._opened(Forward(self._admitted(), lambda: port(dest_host, dest_port)))

    def unix_connection_requested(self, dest_path: str) -> Any:
        access = self._admitted()
        return self._opened(
            Forward(access, lambda: unix_socket(access.isolation, access.sandbox, dest_path))
        )

    def _admitted(self) -> Access:
        assert self._access is not None  # a connection that is cut hears nothing any more
        return self._access

    def _opened(self, stream: Stream) -> Stream:
        self._streams = [each for each in self._streams if not each.gone.is_set()]
        if len(self._streams) >= MAX_CHANNELS:
            raise asyncssh.ChannelOpenError(OPEN_RESOURCE_SHORTAGE, "too many channels")
        self._streams.append(stream)
        return stream
