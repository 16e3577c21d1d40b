"""Why a host key is not trusted, in words. Pure.

Every refusal shows the fingerprints that differ and says what to do; none says "it may be fine".
"""

from collections.abc import Iterable

from git_daytona.base.errors import HostKeyRefused
from git_daytona.settings.settings import DEFAULT_API_URL
from git_daytona.trust.decision import Evidence, Mode, Outcome
from git_daytona.trust.host_keys import HostKey
from git_daytona.trust.pin_file import no_key

POLICY_PAGE = "https://github.com/daytona/.github/blob/main/SECURITY.md#ssh-host-key-verification"
"""Where Daytona publishes the fingerprint of its cloud's gateway, and its rotation policy (named by
the API's own schema)."""

_INTERCEPTED = "somebody may be between you and the gateway: nothing was sent to it; {verify}{ask}"
_CHANGED = (
    "the host keys that Daytona publishes for '{name}' are not the trusted ones:"
    " published {published}{trusted}{who_changed}",
    "a rotation publishes old and new keys together for at least 30 days{since}: unless nothing ran"
    " here for that long, suspect substitution; {ask}; only if the published key is genuine:"
    " {remedy}",
)
WORDS = {
    Outcome.OTHER_HOST: (
        "ssh does not trust the host key of '{host}', through which your ssh configuration leads to"
        " the gateway",
        "connect to it once with 'ssh {host}', or change ProxyJump or ProxyCommand in your ssh"
        " configuration",
    ),
    Outcome.NO_TYPE: (
        "the gateway '{name}' has no host key of a type that your ssh accepts",
        "look for HostKeyAlgorithms in your ssh configuration, and see 'daytona-pin scan'",
    ),
    Outcome.NOWHERE: (
        "{api_url} publishes no host keys, none is pinned, and your ssh does not trust one of"
        " '{name}', which presents {key}",
        "get the key from whoever runs that server, compare it with what 'daytona-pin scan' shows,"
        " and pin it: daytona-pin import FILE",
    ),
    Outcome.USER_SSH: (
        "your ssh does not trust the host key of '{name}': presented {key}; published {published}",
        "{ask}, then add it to ~/.ssh/known_hosts, or to a file named by DAYTONA_SSH_KNOWN_HOSTS;"
        " 'daytona-pin scan' shows what the gateway presents",
    ),
    Outcome.REVOKED: (
        "the gateway '{name}' presents a host key that '{file}' marks as revoked",
        _INTERCEPTED,
    ),
    Outcome.UNPUBLISHED: (
        "the gateway '{name}' does not present a host key that Daytona publishes:"
        " presented {key}; published {published}{trusted}",
        _INTERCEPTED,
    ),
    Outcome.UNTRUSTED: (
        "the gateway '{name}' presents {key}, which is not trusted{trusted}",
        _INTERCEPTED,
    ),
    Outcome.TRUSTED_ONLY: (
        "the gateway '{name}' presents {key}, which is trusted but not published",
        "{ask}",
    ),
    Outcome.CONTRADICTED: (
        "the API publishes keys and fingerprints that do not belong together",
        "{ask}",
    ),
    Outcome.UNREADABLE: (
        "the host keys that {api_url} publishes for '{name}' are unreadable: {item}",
        "update git-daytona, or name a file with the key that you trust in DAYTONA_SSH_KNOWN_HOSTS",
    ),
    Outcome.DISJOINT: _CHANGED,
    Outcome.REVOKED_PIN: _CHANGED,
    Outcome.UNKNOWN: (
        "the sandbox is served by another gateway, '{name}', whose host key is neither published"
        " nor pinned",
        "get its key from who runs it, and: daytona-pin import --host '{name}' FILE",
    ),
}
"""Message and hint of each outcome that is refused."""


def refusal(outcome: Outcome, it: Evidence) -> HostKeyRefused:
    """Say in words what is refused, and what to do."""
    if outcome is Outcome.NO_LINE and it.file:
        return no_key(it.file, it.pins.lines, it.endpoint)
    name, api_url = it.endpoint.known_hosts_name, it.settings.api_url
    day = it.pins.pinned_on(it.endpoint)
    fields = {
        "name": name,
        "api_url": api_url,
        "file": it.file,
        "ask": _whom_to_ask(api_url),
        "host": it.refused and it.refused.other_host,
        "key": it.fingerprint or "an unknown key",
        "published": _list(it.published.keys),
        "trusted": f"; trusted {_list(it.trusted)} in '{it.file}'" if it.file else "",
        "item": "; ".join(it.published.unreadable[:1]),
        "who_changed": _who_changed(it),
        "since": f"; this pin is of {day}" if day else "",
        "remedy": "correct the file" if it.mode is Mode.MANUAL else f"daytona-pin forget '{name}'",
        "verify": "" if it.presented else "see 'daytona-pin verify --live', and ",
    }
    message, hint = (words.format_map(fields) for words in WORDS[outcome])
    return HostKeyRefused(message, hint=hint)


def _whom_to_ask(api_url: str) -> str:
    if api_url == DEFAULT_API_URL:
        return f"compare the fingerprints with {POLICY_PAGE}"
    return (
        f"ask who runs {api_url} whether the key was changed (Daytona's own policy: {POLICY_PAGE})"
    )


def _who_changed(it: Evidence) -> str:
    """Say which side the gateway is on, if it was asked, when published and trusted keys differ."""
    if it.presented is None:
        return ""
    if not set(it.presented).isdisjoint(it.trusted):
        return "; the gateway still presents a trusted key: it is the API's answer that changed"
    if not set(it.presented).isdisjoint(it.published.keys):
        return "; the gateway presents a published key: API and gateway have both changed"
    return "; the gateway presents a third one"


def _list(keys: Iterable[HostKey]) -> str:
    return ", ".join(map(str, keys)) or "none"
