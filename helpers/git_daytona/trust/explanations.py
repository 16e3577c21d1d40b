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

# Lines of ssh 9.2 at LogLevel ERROR (sshconnect.c, sshconnect2.c, kex.c); ssh does not translate
# them.
_NAMED = re.compile(
    r"^(?:No \S+ host key is known for (?P<new>\S+) and you have requested strict checking"
    r"|(?:Host key for|\S+ host key for) (?P<changed>\S+) (?:has changed|was revoked) and you have requested strict checking"
    r"|The \S+ host key for (?P<revoked>\S+) is marked as revoked)",
    re.MULTILINE,
)
_FAILED = re.compile(
    r"^(?:Host key verification failed|Host key \S+ \S+ revoked by file|.*no matching host key type found)",
    re.MULTILINE,
)
_FINGERPRINT = re.compile(r"key sent by the remote host is\s+(SHA256:[A-Za-z0-9+/]{43})")


@dataclass(frozen=True)
class Complaint:
    """What ssh said: the presented fingerprint if it named it; whether the key is revoked; whether
    there was no key of a type that it accepts; and the name of the host whose key it refused if
    that was not the gateway (a jump host)."""

    fingerprint: str | None
    revoked: bool = False
    no_type: bool = False
    elsewhere: str | None = None


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
        revoked=bool(
            re.search(
                r"^The \S+ host key for \S+ is marked as revoked|revoked by file",
                text,
                re.MULTILINE,
            )
        ),
        no_type="no matching host key type found" in text,
        elsewhere=printable(sorted(named)[0]) if named and not named & ours else None,
    )


def show(keys: Iterable[HostKey]) -> str:
    return ", ".join(str(key) for key in keys) or "none"


def _whom_to_ask(settings: Settings) -> str:
    if settings.api_url == DEFAULT_API_URL:
        return f"compare the fingerprints with {POLICY_PAGE}"
    return f"ask who runs {settings.api_url} whether the key was changed (Daytona's own policy: {POLICY_PAGE})"


def disjoint(
    settings: Settings,
    pin_file: Path,
    endpoint: Endpoint,
    published: Sequence[HostKey],
    pinned: Sequence[HostKey],
) -> HostKeyRefused:
    name = endpoint.known_hosts_name
    return HostKeyRefused(
        f"the host keys that Daytona publishes for '{name}' are not the pinned ones: published {show(published)};"
        f" pinned {show(pinned)} in '{pin_file}'",
        hint=f"a rotation publishes old and new keys together for at least 30 days: unless nothing ran here for that long, suspect"
        f" substitution; {_whom_to_ask(settings)};"
        f" only if the published key is genuine: daytona-pin forget '{name}'",
    )


def presented_differs(
    settings: Settings,
    endpoint: Endpoint,
    path: Path | None,
    trusted: Sequence[HostKey],
    published: Sequence[HostKey],
    said: Complaint,
) -> HostKeyRefused:
    """The gateway presents a key that the trusted file does not vouch for."""
    name = endpoint.known_hosts_name
    presented = said.fingerprint or "an unknown key"
    if said.revoked:
        message = f"the gateway '{name}' presents a host key that '{path}' marks as revoked"
    elif (
        published
        and said.fingerprint
        and said.fingerprint not in {key.fingerprint for key in published}
    ):
        message = (
            f"the gateway '{name}' does not present a host key that Daytona publishes: presented {presented};"
            f" published {show(published)}; trusted {show(trusted)} in '{path}'"
        )
    else:
        message = f"the gateway '{name}' presents {presented}, which is not trusted; trusted are {show(trusted)} in '{path}'"
    return HostKeyRefused(
        message,
        hint="somebody may be between you and the gateway: nothing was sent to it;"
        f" see 'daytona-pin verify --live', and {_whom_to_ask(settings)}",
    )


def by_ssh(
    settings: Settings, endpoint: Endpoint, published: Sequence[HostKey], said: Complaint
) -> HostKeyRefused:
    """Inherited mode: the user's own ssh does not trust the key."""
    presented = f", presented {said.fingerprint}" if said.fingerprint else ""
    listed = f", published {show(published)}" if published else ""
    return HostKeyRefused(
        f"your ssh does not trust the host key of '{endpoint.known_hosts_name}'{presented}{listed}",
        hint=f"{_whom_to_ask(settings)}, then add it to ~/.ssh/known_hosts, or to a file named by DAYTONA_SSH_KNOWN_HOSTS;"
        " 'daytona-pin scan' shows what the gateway presents",
    )


def unpublished(settings: Settings, endpoint: Endpoint, said: Complaint) -> HostKeyRefused:
    """The API publishes no host keys, none is pinned, and the user's own ssh knows none either."""
    name = endpoint.known_hosts_name
    presented = f", which presents {said.fingerprint}" if said.fingerprint else ""
    return HostKeyRefused(
        f"{settings.api_url} publishes no host keys, none is pinned, and your ssh does not trust one of '{name}'{presented}",
        hint="get the key from whoever runs that server, compare it with what 'daytona-pin scan' shows, and pin it:"
        " daytona-pin import FILE",
    )


def no_type(endpoint: Endpoint) -> HostKeyRefused:
    return HostKeyRefused(
        f"the gateway '{endpoint.known_hosts_name}' has no host key of a type that your ssh accepts",
        hint="look for HostKeyAlgorithms in your ssh configuration, and see 'daytona-pin scan'",
    )


def other_host(name: str) -> HostKeyRefused:
    return HostKeyRefused(
        f"ssh does not trust the host key of '{name}', through which your ssh configuration leads to the gateway",
        hint=f"connect to it once with 'ssh {name}', or change ProxyJump or ProxyCommand in your ssh configuration",
    )


def unreadable(settings: Settings, endpoint: Endpoint, items: Sequence[str]) -> HostKeyRefused:
    return HostKeyRefused(
        f"the host keys that {settings.api_url} publishes for '{endpoint.known_hosts_name}' are unreadable: {items[0]}",
        hint="update git-daytona, or name a file with the key that you trust in DAYTONA_SSH_KNOWN_HOSTS",
    )


def unknown_gateway(endpoint: Endpoint) -> HostKeyRefused:
    name = endpoint.known_hosts_name
    return HostKeyRefused(
        f"the sandbox is served by another gateway, '{name}', whose host key is neither published nor pinned",
        hint=f"get its key from who runs it, and: daytona-pin import --host '{name}' FILE",
    )


def endpoint_unknown(problem: Published | GitDaytonaError) -> GitDaytonaError:
    """The API cannot say where the gateway is, and no pin does."""
    assert isinstance(problem, GitDaytonaError), "an answer that could be read names an endpoint"
    # Of its own kind: a server that answers HTML is not one to ask again.
    problem.message = f"the SSH gateway is unknown: {problem.message}"
    return problem


def inherited(endpoint: Endpoint, answer: Published | GitDaytonaError) -> str:
    """The warning of inherited mode."""
    why = (
        "the Daytona API publishes no host keys"
        if isinstance(answer, Published)
        else answer.message
    )
    return (
        f"{why}, and none is pinned: the host key of '{endpoint.known_hosts_name}' is left to your own ssh;"
        " pin one with 'daytona-pin import FILE'"
    )


def manual_differs(
    path: Path, endpoint: Endpoint, trusted: Sequence[HostKey], published: Sequence[HostKey]
) -> str:
    return (
        f"'{path}' holds other host keys for '{endpoint.known_hosts_name}' than Daytona publishes, and is used:"
        f" in the file {show(trusted)}; published {show(published)}"
    )
