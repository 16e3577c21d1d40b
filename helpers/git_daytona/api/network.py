"""The proxies and certificates that the environment names for every tool, and so for Daytona's API,
its toolboxes and terminals. A repository's ``.env`` has no say in them."""

import base64
import contextlib
import ipaddress
import os
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from git_daytona.base.endpoint import split_link
from git_daytona.base.errors import BadSetting
from git_daytona.base.secret import Secret, printable

BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables that name certificates in place of the system's."""
ADDITIONS = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""OpenSSL's own, each in place of a part of the system's certificates."""
PROXY_FORM = "http://USER:PASSWORD@HOST:PORT, special characters percent-encoded"


@dataclass(frozen=True)
class Proxy:
    """An HTTP proxy: its URL without user and password, and the variable that names it."""

    url: str
    variable: str
    userinfo: tuple[Secret, Secret] | None = field(default=None, compare=False)
    """User name and password."""

    def authorization(self) -> Secret | None:
        """The Proxy-Authorization header of these (RFC 7617)."""
        if self.userinfo is None:
            return None
        pair = ":".join(each.reveal() for each in self.userinfo).encode("utf-8", "surrogateescape")
        return Secret(f"Basic {base64.b64encode(pair).decode()}")

    def __str__(self) -> str:
        return f"the proxy '{self.url}' ({self.variable})"


def proxy_for(url: str) -> Proxy | None:
    """Find the proxy for a URL in HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, of which the
    names in lower case count first; None where it is reached directly, as loopback always is.

    Raises BadSetting for a proxy that cannot be used.
    """
    parts, found = urlsplit(url), getproxies()
    name = next((each for each in (parts.scheme, "all") if found.get(each)), None)
    if name is None or _is_exempt(parts, found.get("no", "")):
        return None
    names = (f"{name}_proxy", f"{name}_proxy".upper())
    variable = next((each for each in names if os.environ.get(each)), "the system's settings")
    return _proxy(found[name].strip(), variable)


def _is_exempt(parts: SplitResult, exempt: str) -> bool:
    host, port = parts.hostname or "", parts.port or {"http": 80}.get(parts.scheme, 443)
    if f".{host}".endswith(".localhost") or proxy_bypass(f"{host}:{port}"):
        return True
    if any("*" in each and fnmatch(host, each.strip().lower()) for each in exempt.split(",")):
        return True  # *.example, as other tools take it
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # it is a name
        return False
    return address.is_loopback or any(address in network for network in _networks(exempt))


def _networks(exempt: str) -> Iterator[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """The addresses and networks in NO_PROXY, which urllib.request takes for names."""
    for each in exempt.split(","):
        with contextlib.suppress(ValueError):
            yield ipaddress.ip_network(re.sub(r"[\[\] ]", "", each), strict=False)


def _proxy(text: str, variable: str) -> Proxy:
    """Read a proxy's URL, which may lack its scheme. Raises BadSetting, which does not quote it:
    a password may be anywhere in it."""
    scheme, _, rest = text.rpartition("://")
    userinfo, _, place = rest.rpartition("@")
    parts = split_link(f"{scheme.lower() or 'http'}://{place}")
    hint = f"write {PROXY_FORM}; hosts in NO_PROXY are reached without it"
    if re.fullmatch(r"(?i)socks\w{0,3}|ftp|quic", scheme):
        raise BadSetting(
            f"{variable} names a proxy of kind '{scheme}', which cannot be used", hint=hint
        )
    if parts is None:
        raise BadSetting(f"{variable} is not the URL of a proxy", hint=hint)
    user, _, password = (Secret(unquote(each)) for each in userinfo.partition(":"))
    known = (user, password) if userinfo else None
    return Proxy(f"{parts.scheme}://{parts.netloc}", variable, known)


@dataclass(frozen=True)
class Way:
    """How the servers at a URL are connected to: by which proxy, and with which TLS, if any."""

    proxy: Proxy | None
    tls: ssl.SSLContext | None


def way_to(url: str) -> Way:
    """Find the way to a URL. Raises BadSetting for what the environment names in vain."""
    proxy = proxy_for(url)
    is_encrypted = url.startswith("https:") or (proxy and proxy.url.startswith("https:"))
    return Way(proxy, _tls() if is_encrypted else None)


def _tls() -> ssl.SSLContext:
    """Make the context of our connections: authorities of the system, or of those that BUNDLES and
    ADDITIONS name. Raises BadSetting where there is nothing to read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for variable in (*BUNDLES, *ADDITIONS):
        if place := os.environ.get(variable):
            _load(context, variable, place)
            if variable in BUNDLES:
                return context
    context.load_default_certs()
    return context


def _load(context: ssl.SSLContext, variable: str, place: str) -> None:
    # SSL_CERT_DIR may name several
    folders = [each for each in place.split(os.pathsep) if Path(each).is_dir()]
    try:
        if folders and variable != "SSL_CERT_FILE":
            context.load_verify_locations(capath=folders[0])
        else:
            context.load_verify_locations(cafile=place)
    except OSError as problem:  # ssl.SSLError, too
        is_foreign = isinstance(problem, ssl.SSLError)
        why = "it holds no certificate" if is_foreign else problem.strerror
        raise BadSetting(
            f"cannot read the certificates in '{printable(place)}' ({variable}): {why}",
            hint=f"let {variable} name a file of PEM certificates, or unset it for the system's",
        ) from None


def authorities() -> str:
    """Say whose certificates count, for messages."""
    for variable in (*BUNDLES, *ADDITIONS):
        if place := os.environ.get(variable):
            return f"those of {variable}, '{printable(place)}'"
    paths = ssl.get_default_verify_paths()
    return f"the system's, '{paths.cafile or paths.capath or paths.openssl_cafile}'"
