"""Why a host key is not trusted, in words; and what ssh's own words mean. Pure.

Every refusal shows the fingerprints that differ and says what to do; none says "it may be fine".
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import GitDaytonaError, HostKeyRefused
from git_daytona.base.secret import printable
from git_daytona.settings.settings import DEFAULT_API_URL, Settings
from git_daytona.trust.host_keys import HostKey
from git_daytona.trust.published import Published

POLICY_PAGE = "https://github.com/daytona/.github/blob/main/SECURITY.md#ssh-host-key-verification"
"""Where Daytona publishes the fingerprint of its cloud's gateway, and its rotation policy (named by
the API's own schema)."""

# Lines of ssh 9.2 at LogLevel ERROR (sshconnect.c, sshconnect2.c, kex.c), which has no translations
_STRICT = "and you have requested strict checking"
_NAMED = re.compile(
    rf"^(?:No \S+ host key is known for (?P<new>\S+) {_STRICT}"
    rf"|(?:Host key for|\S+ host key for) (?P<changed>\S+) (?:has changed|was revoked) {_STRICT}"
    r"|The \S+ host key for (?P<revoked>\S+) is marked as revoked)",
    re.MULTILINE,
)
_FAILED = re.compile(
    r"^(?:Host key verification failed|Host key \S+ \S+ revoked by file"
    r"|.*no matching host key type found)",
    re.MULTILINE,
)
_REVOKED = re.compile(
    r"^The \S+ host key for \S+ is marked as revoked|revoked by file", re.MULTILINE
)
_FINGERPRINT = re.compile(r"key sent by the remote host is\s+(SHA256:[A-Za-z0-9+/]{43})")


@dataclass(frozen=True)
class Complaint:
    """What ssh wrote: the presented fingerprint, if named; whether the key is revoked; whether none
    is of a type that it accepts; the host of the refused key if not the gateway (a jump host)."""

    fingerprint: str | None
    revoked: bool = False
    no_type: bool = False
    other_host: str | None = None


def complaint(stderr: str, endpoint: Endpoint) -> Complaint | None:
    """Read ssh's stderr; None when no host key was refused."""
    text = stderr.replace("\r", "")
    if not _FAILED.search(text):
        return None
    fingerprint = _FINGERPRINT.search(text)
    named = {name for match in _NAMED.finditer(text) for name in match.groups() if name}
    ours = {endpoint.known_hosts_name, endpoint.host}
    return Complaint(
        fingerprint=fingerprint[1] if fingerprint else None,
        revoked=bool(_REVOKED.search(text)),
        no_type="no matching host key type found" in text,
        other_host=printable(min(named)) if named and not named & ours else None,
    )


def show(keys: Iterable[HostKey]) -> str:
    return ", ".join(str(key) for key in keys) or "none"


def whom_to_ask(api_url: str) -> str:
    if api_url == DEFAULT_API_URL:
        return f"compare the fingerprints with {POLICY_PAGE}"
    return (
        f"ask who runs {api_url} whether the key was changed (Daytona's own policy: {POLICY_PAGE})"
    )


def disjoint(
    settings: Settings,
    pin_file: Path,
    endpoint: Endpoint,
    published: Sequence[HostKey],
    pinned: Sequence[HostKey],
) -> HostKeyRefused:
    name = endpoint.known_hosts_name
    return HostKeyRefused(
        f"the host keys that Daytona publishes for '{name}' are not the pinned ones:"
        f" published {show(published)}; pinned {show(pinned)} in '{pin_file}'",
        hint="a rotation publishes old and new keys together for at least 30 days: unless nothing"
        f" ran here for that long, suspect substitution; {whom_to_ask(settings.api_url)};"
        f" only if the published key is genuine: daytona-pin forget '{name}'",
    )


def presented_differs(
    settings: Settings,
    endpoint: Endpoint,
    path: Path | None,
    trusted: Sequence[HostKey],
    published: Sequence[HostKey],
    refused: Complaint,
) -> HostKeyRefused:
    """The gateway presents a key that the trusted file does not vouch for."""
    gateway = f"the gateway '{endpoint.known_hosts_name}'"
    if refused.revoked:
        message = f"{gateway} presents a host key that '{path}' marks as revoked"
    elif (
        published
        and refused.fingerprint
        and refused.fingerprint not in [key.fingerprint for key in published]
    ):
        message = (
            f"{gateway} does not present a host key that Daytona publishes:"
            f" presented {refused.fingerprint}; published {show(published)};"
            f" trusted {show(trusted)} in '{path}'"
        )
    else:
        message = (
            f"{gateway} presents {refused.fingerprint or 'an unknown key'}, which is not trusted;"
            f" trusted are {show(trusted)} in '{path}'"
        )
    return HostKeyRefused(
        message,
        hint="somebody may be between you and the gateway: nothing was sent to it;"
        f" see 'daytona-pin verify --live', and {whom_to_ask(settings.api_url)}",
    )


def by_ssh(
    settings: Settings, endpoint: Endpoint, published: Sequence[HostKey], refused: Complaint
) -> HostKeyRefused:
    """Inherited mode: the user's own ssh does not trust the key."""
    name = endpoint.known_hosts_name
    if settings.auto_pin and not published:
        presented = f", which presents {refused.fingerprint}" if refused.fingerprint else ""
        return HostKeyRefused(
            f"{settings.api_url} publishes no host keys, none is pinned, and your ssh does not"
            f" trust one of '{name}'{presented}",
            hint="get the key from whoever runs that server, compare it with what 'daytona-pin"
            " scan' shows, and pin it: daytona-pin import FILE",
        )
    presented = f", presented {refused.fingerprint}" if refused.fingerprint else ""
    listed = f", published {show(published)}" if published else ""
    return HostKeyRefused(
        f"your ssh does not trust the host key of '{name}'{presented}{listed}",
        hint=f"{whom_to_ask(settings.api_url)}, then add it to ~/.ssh/known_hosts, or to a file"
        " named by DAYTONA_SSH_KNOWN_HOSTS; 'daytona-pin scan' shows what the gateway presents",
    )


def no_type(endpoint: Endpoint) -> HostKeyRefused:
    return HostKeyRefused(
        f"the gateway '{endpoint.known_hosts_name}' has no host key of a type that your ssh"
        " accepts",
        hint="look for HostKeyAlgorithms in your ssh configuration, and see 'daytona-pin scan'",
    )


def other_host(name: str) -> HostKeyRefused:
    return HostKeyRefused(
        f"ssh does not trust the host key of '{name}', through which your ssh configuration leads"
        " to the gateway",
        hint=f"connect to it once with 'ssh {name}', or change ProxyJump or ProxyCommand in your"
        " ssh configuration",
    )


def unreadable(settings: Settings, endpoint: Endpoint, items: Sequence[str]) -> HostKeyRefused:
    return HostKeyRefused(
        f"the host keys that {settings.api_url} publishes for '{endpoint.known_hosts_name}' are"
        f" unreadable: {items[0]}",
        hint="update git-daytona, or name a file with the key that you trust in"
        " DAYTONA_SSH_KNOWN_HOSTS",
    )


def unknown_gateway(endpoint: Endpoint) -> HostKeyRefused:
    name = endpoint.known_hosts_name
    return HostKeyRefused(
        f"the sandbox is served by another gateway, '{name}', whose host key is neither published"
        " nor pinned",
        hint=f"get its key from who runs it, and: daytona-pin import --host '{name}' FILE",
    )


def inherited(endpoint: Endpoint, answer: Published | GitDaytonaError) -> str:
    """The warning of inherited mode."""
    nothing = "the Daytona API publishes no host keys"
    return (
        f"{nothing if isinstance(answer, Published) else answer.message}, and none is pinned:"
        f" the host key of '{endpoint.known_hosts_name}' is left to your own ssh;"
        " pin one with 'daytona-pin import FILE'"
    )


def manual_differs(
    path: Path, endpoint: Endpoint, trusted: Sequence[HostKey], published: Sequence[HostKey]
) -> str:
    return (
        f"'{path}' holds other host keys for '{endpoint.known_hosts_name}' than Daytona publishes,"
        f" and is used: in the file {show(trusted)}; published {show(published)}"
    )
