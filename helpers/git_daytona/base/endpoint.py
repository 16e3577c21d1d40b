"""Where an SSH gateway listens, and links: what the API says, checked."""

import re
import shlex
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from git_daytona import ssh
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
        """Its name in known_hosts and HostKeyAlias: ``host``, or ``[host]:port`` (sshd(8))."""
        return self.host if self.port == 22 else f"[{self.host}]:{self.port}"

    @property
    def url_authority(self) -> str:
        """``host[:port]`` for an ssh:// URL, IPv6 addresses in brackets (RFC 3986)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == 22 else f"{host}:{self.port}"

    def __str__(self) -> str:
        return self.url_authority


def endpoint(host: object, port: object = 22) -> Endpoint:
    """Check a host and port that somebody sent; raises BadAnswer (for option syntax, controls)."""
    bare = host.strip().removeprefix("[").removesuffix("]").lower() if isinstance(host, str) else ""
    if (
        (_NAME.fullmatch(bare) or _ADDRESS6.fullmatch(bare))
        and isinstance(port, int | float)
        and not isinstance(port, bool)
        and 0 < port < 65536  # compared before it is converted: JSON knows 1e999
        and port == int(port)
    ):
        return Endpoint(bare, int(port))
    hint = "check DAYTONA_API_URL; a self-hosted server may need an update"
    raise BadAnswer("the Daytona API returned no valid SSH gateway", hint=hint)


def from_ssh_command(command: object) -> Endpoint | None:
    """Read the endpoint off ``ssh [-p PORT] [options] [USER@]HOST [options]``, a command of the
    API; None if it sent none. Raises BadAnswer."""
    if command is None or command == "":
        return None
    try:
        if not isinstance(command, str) or len(command) > 4096:
            raise ValueError
        program, *words = shlex.split(command)
        options, (place, *rest) = ssh.options_and_operands(words)
        port = dict(options + ssh.options_and_operands(rest)[0]).get("p", "22")
        if program.rpartition("/")[2] != "ssh" or not re.fullmatch("[0-9]+", port):
            raise ValueError
        return endpoint(place.rpartition("@")[2], int(port))
    except ValueError as problem:
        hint = "the server may be newer than this"
        raise BadAnswer("the Daytona API returned an invalid ssh command", hint=hint) from problem


def split_link(url: object) -> SplitResult | None:
    """Split an http or https URL of ASCII with a host and no user name (RFC 3986); else None."""
    if isinstance(url, str) and len(url) <= 2048 and re.fullmatch(r"https?://[\x21-\x7e]+", url):
        try:
            parts = urlsplit(url)
            if parts.hostname and parts.username is None and parts.port != 0:
                return parts
        except ValueError:  # of the brackets of an address, or an invalid port
            pass
    return None


def web_link(url: object) -> str:
    """Check a link that people open in their browser. Raises BadAnswer."""
    if split_link(url) is None:
        hint = "try again, or find the preview in Daytona's dashboard"
        raise BadAnswer("the Daytona API returned an invalid preview URL", hint=hint)
    return str(url)


def toolbox_base(url: object, api_url: str) -> str:
    """Check where the API says that the toolboxes of its sandboxes are; no slash at the end.

    The key goes there with every command. Whoever answers as the API has it anyway, so any host
    will do; but over TLS if the API itself is reached so. Raises BadAnswer.
    """
    parts = split_link(url)
    if parts is None or parts.query or parts.fragment:
        raise BadAnswer(
            "the Daytona API returned no valid toolbox URL", hint="check DAYTONA_API_URL"
        )
    if parts.scheme != "https" and urlsplit(api_url).scheme != "http":
        raise BadAnswer(
            f"the Daytona API names a toolbox without TLS, at '{parts.hostname}';"
            " the key was not sent there",
            hint="report it to whoever runs the server",
        )
    return str(url).rstrip("/")
