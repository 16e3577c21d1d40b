"""Where an SSH gateway listens, and what a link leads to, read from what the API says. Pure:
strings in, values out."""

import re
import shlex
from dataclasses import dataclass
from urllib.parse import urlsplit

from git_daytona.base.errors import BadAnswer

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_ADDRESS6 = re.compile(r"(?=.*:)[0-9A-Fa-f:.]{2,45}")


@dataclass(frozen=True, order=True)
class Endpoint:
    """Host (lower case, no brackets) and TCP port of a gateway."""

    host: str
    port: int = 22

    @property
    def known_hosts_name(self) -> str:
        """How known_hosts names it, and HostKeyAlias with it: ``host`` on port 22, ``[host]:port``
        on any other (sshd(8))."""
        return self.host if self.port == 22 else f"[{self.host}]:{self.port}"

    @property
    def url_authority(self) -> str:
        """``host[:port]`` for an ssh:// URL, IPv6 addresses in brackets (RFC 3986)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == 22 else f"{host}:{self.port}"

    def __str__(self) -> str:
        return self.url_authority


def endpoint(host: object, port: object = 22) -> Endpoint:
    """Check a host and port that somebody sent; raises BadAnswer for anything that is not plainly
    one (option syntax, controls)."""
    if isinstance(host, str):
        bare = host.strip().removeprefix("[").removesuffix("]").lower()
        # Compared before it is converted: JSON knows 1e999.
        plain = (
            isinstance(port, (int, float))
            and not isinstance(port, bool)
            and 0 < port < 65536
            and port == int(port)
        )
        number = int(port) if plain else 0  # type: ignore[call-overload]
        if (_NAME.fullmatch(bare) or _ADDRESS6.fullmatch(bare)) and number:
            return Endpoint(bare, number)
    raise BadAnswer(
        "the Daytona API names no usable SSH gateway",
        hint="check DAYTONA_API_URL; a self-hosted server may need an update",
    )


def from_ssh_command(command: object) -> Endpoint | None:
    """The endpoint in an ``ssh [-p PORT] [options] [USER@]HOST`` line as the API sends it
    (``sshCommand``, ``sshGatewayCommand``).

    None when there is no such line; BadAnswer when there is one that makes no sense. The line is
    only ever read, never run.
    """
    if command is None or command == "":
        return None
    unusable = BadAnswer(
        "the Daytona API sent an ssh command that cannot be understood",
        hint="the server may be newer than this",
    )
    if not isinstance(command, str) or len(command) > 4096:
        raise unusable
    try:
        words = shlex.split(command)
    except ValueError as problem:
        raise unusable from problem
    if len(words) < 2 or words[0].rsplit("/", 1)[-1] != "ssh":
        raise unusable
    port, host, rest = 22, None, iter(words[1:])
    for word in rest:
        if word.startswith("-p"):
            text = word[2:] or next(rest, "")
            if not text.isascii() or not text.isdigit():
                raise unusable
            port = int(text)
        elif word in ("-o", "-i", "-F", "-l", "-J"):
            next(rest, None)
        elif not word.startswith("-"):
            host = host or word
    if host is None:
        raise unusable
    return endpoint(host.rsplit("@", 1)[-1], port)


def web_link(url: object) -> str:
    """A link that is shown to people, to be opened in their browser: http or https, a host, ASCII
    (RFC 3986), no user name. Raises BadAnswer for anything else."""
    try:
        if (
            isinstance(url, str)
            and len(url) <= 2048
            and re.fullmatch(r"https?://[\x21-\x7e]+", url)
        ):
            parts = urlsplit(url)
            if parts.hostname and parts.username is None and parts.port != 0:
                return url
    except ValueError:  # of the brackets of an address, or a port that is none
        pass
    raise BadAnswer(
        "the Daytona API sent a link that is none",
        hint="try again, or find the preview in Daytona's dashboard",
    )


def toolbox_base(url: object, api_url: str) -> str:
    """Where the API says that the toolboxes of its sandboxes are, without a last slash: the API's
    own host, or another of its design.

    The key goes there with every command. Whoever answers as the API has it anyway, so any host
    will do; but over TLS if the API itself is reached so. Raises BadAnswer.
    """
    bad = BadAnswer(
        "the Daytona API names no usable toolbox for the sandbox", hint="check DAYTONA_API_URL"
    )
    try:
        if (
            isinstance(url, str)
            and len(url) <= 2048
            and re.fullmatch(r"https?://[\x21-\x7e]+", url)
        ):
            parts = urlsplit(url)
            if (
                parts.hostname
                and parts.username is None
                and parts.port != 0
                and not parts.query
                and not parts.fragment
            ):
                if parts.scheme == "https" or urlsplit(api_url).scheme == "http":
                    return url.rstrip("/")
                bad = BadAnswer(
                    f"the Daytona API names a toolbox without TLS, at '{parts.hostname}'; the key was not sent there",
                    hint="report it to whoever runs the server",
                )
    except ValueError:  # of the brackets of an address, or a port that is none
        pass
    raise bad
