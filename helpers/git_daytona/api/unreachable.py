"""Why a server gave no answer, in words: one kind of failure, one message, one remedy."""

import errno
import os
import socket
import ssl
from collections.abc import Iterator
from http import HTTPStatus

import urllib3

from git_daytona.api import network
from git_daytona.api.failures import senseless
from git_daytona.api.network import Proxy
from git_daytona.base import errors
from git_daytona.base.secret import redact

_CLOCK = "check this machine's clock; else whoever runs the server has to renew it"
_NAME = "use a name that the certificate has in DAYTONA_API_URL"
_AUTHORITY = "if you trust it, as a server or proxy of your organisation, name its authority's"
# OpenSSL's codes (X509_V_ERR_… in x509_vfy.h) → what is wrong with a certificate, what to do
_CERTIFICATE = {
    9: ("is not valid yet", _CLOCK),
    10: ("has expired", _CLOCK),
    18: ("is self-signed", ""),
    19: ("is of an unknown authority", ""),
    20: ("is of an unknown authority", ""),
    21: ("is of an unknown authority", ""),
    62: ("is for another name", _NAME),
    64: ("is for another address", _NAME),
}
_NO_WAY = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN)
_TRY_AGAIN = "check the network and DAYTONA_API_URL, then try again"
_A_PROXY = "check the network; where only a proxy leads out, name it in HTTPS_PROXY"


class Untunnelled(Exception):
    """A proxy's refusal to connect us, with its HTTP status."""

    def __init__(self, status: int):
        super().__init__(f"HTTP {status}")
        self.status = status


def explain(
    problem: BaseException, doing: str, url: str, api_url: str, proxy: Proxy | None
) -> errors.GitDaytonaError:
    """Make the error of a request to a URL that failed. Its text may hold URLs with tokens: it
    goes, redacted, into the details."""
    details = redact(f"could not {doing}: {type(problem).__name__}: {problem}")
    if not isinstance(problem, (urllib3.exceptions.HTTPError, OSError, Untunnelled)):
        return senseless(doing, details)
    chain = list(_chain(problem))
    server = api_url if url.startswith(api_url) else origin(url)
    if isinstance(problem, Untunnelled):
        return refused(problem.status, server, proxy)
    is_of_proxy = any(isinstance(each, urllib3.exceptions.ProxyError) for each in chain)
    where = str(proxy) if is_of_proxy else f"Daytona at {server}"
    for each in chain:
        if isinstance(each, ssl.SSLCertVerificationError):
            what, hint = _of_certificate(each)
            return errors.CertificateRefused(
                f"the certificate of {where} {what}", hint=hint, details=details
            )
    what, hint = next(filter(None, map(_what, chain)), ("it gave no answer", _TRY_AGAIN))
    if is_of_proxy and proxy:
        hint = f"check that proxy and {proxy.variable}; hosts in NO_PROXY are reached without it"
    return errors.ApiUnreachable(f"cannot reach {where}: {what}", hint=hint, details=details)


def origin(url: str) -> str:
    """The beginning of a URL, up to its path."""
    return "/".join(url.split("/", 3)[:3])


def refused(status: int, server: str, proxy: Proxy | None) -> errors.GitDaytonaError:
    """Make the error of a proxy that answered in the server's place."""
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        wants = "asks for a user name and a password"
        if proxy and proxy.userinfo:
            wants = "does not accept its user name and password"
        variable = proxy.variable if proxy else "HTTPS_PROXY"
        return errors.ProxyRefused(
            f"{proxy or 'a proxy'} {wants}", hint=f"set {variable} to {network.PROXY_FORM}"
        )
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return errors.ApiUnreachable(
            f"{proxy} finds no way to Daytona at {server} (HTTP {status})",
            hint="check DAYTONA_API_URL, then try again; hosts in NO_PROXY are reached without it",
        )
    return errors.ProxyRefused(
        f"{proxy} does not connect to Daytona at {server} (HTTP {status})",
        hint="ask whoever runs the proxy to allow it; hosts in NO_PROXY are reached without it",
    )


def _chain(problem: BaseException | None) -> Iterator[BaseException]:
    """An exception and what led to it, the last first."""
    for _ in range(10):
        if problem is None:
            return
        yield problem
        wrapped = next((each for each in problem.args if isinstance(each, BaseException)), None)
        problem = problem.__cause__ or wrapped or problem.__context__


def _of_certificate(problem: ssl.SSLCertVerificationError) -> tuple[str, str]:
    found = _CERTIFICATE.get(problem.verify_code)
    what, hint = found or (f"is not accepted: {problem.verify_message}", "")
    trusted = f"{_AUTHORITY} certificate in SSL_CERT_FILE (trusted are {network.authorities()})"
    return what, hint or trusted


def _what(problem: BaseException) -> tuple[str, str] | None:
    """What is behind a failure, if this exception tells."""
    match problem:
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER" | "HTTP_REQUEST" | "RECORD_LAYER_FAILURE"):
            return "it does not speak TLS", "check DAYTONA_API_URL: https or http, and the port"
        case ssl.SSLError():
            return f"TLS failed ({problem.reason})", _TRY_AGAIN
        case socket.gaierror():
            return "its name does not resolve", (
                "check DAYTONA_API_URL and this machine's DNS; where only a proxy knows names, name"
                " it in HTTPS_PROXY"
            )
        case ConnectionRefusedError():
            hint = "check the network and DAYTONA_API_URL, and whether the server runs"
            return "nothing listens there", hint
        case urllib3.exceptions.NewConnectionError():  # a time-out by its class, whatever it is
            return None
        case urllib3.exceptions.ConnectTimeoutError():
            return "nothing answers there", _A_PROXY
        case urllib3.exceptions.TimeoutError() | TimeoutError():
            return "it did not answer in time", _TRY_AGAIN
        case OSError(errno=number) if number in _NO_WAY:
            return os.strerror(number).lower(), _A_PROXY
        case ConnectionResetError() | BrokenPipeError():
            return "the connection was closed", _TRY_AGAIN
    return None
