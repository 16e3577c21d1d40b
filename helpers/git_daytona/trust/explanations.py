"""The outcomes of a decision, in words: for each a message and what to do.

Every refusal shows the fingerprints that differ; none says "it may be fine". What stands in braces
is filled in by ``decision.explain``.
"""

import enum

POLICY_PAGE = "https://github.com/daytona/.github/blob/main/SECURITY.md#ssh-host-key-verification"
"""Where Daytona publishes the fingerprint of its cloud's gateway, and its rotation policy (named by
the API's own schema)."""

_INTERCEPTED = "nothing was sent, and somebody may be in between: {verify}{ask}"
_ROTATION = (
    "unless nothing ran here for 30 days, in which old and new keys are published together{since},"
    " suspect substitution: {ask}; only if the published key is genuine: {remedy}"
)


class Outcome(enum.Enum):
    """What the evidence about a gateway shows; ``decision.decide`` says when."""

    # what ssh refused
    OTHER_HOST = (
        "ssh does not trust the host key of '{host}', through which your ssh configuration leads to"
        " the gateway",
        "connect to it once with 'ssh {host}', or change ProxyJump or ProxyCommand in your ssh"
        " configuration",
    )
    NO_TYPE = (
        "the gateway '{name}' has no host key of a type that your ssh accepts",
        "look for HostKeyAlgorithms in your ssh configuration, and see 'daytona-pin scan'",
    )
    NOWHERE = (
        "{api_url} publishes no host keys, none is pinned, and your ssh does not trust one of"
        " '{name}', which presents {key}",
        "get the key from whoever runs that server, compare it with what 'daytona-pin scan' shows,"
        " and pin it: daytona-pin import FILE",
    )
    USER_SSH = (
        "your ssh does not trust the host key of '{name}': presented {key}; published {published}",
        "{ask}, then add it to ~/.ssh/known_hosts, or to a file named by DAYTONA_SSH_KNOWN_HOSTS;"
        " 'daytona-pin scan' shows what the gateway presents",
    )
    # what is wrong with the presented key
    REVOKED = (
        "the gateway '{name}' presents a host key that '{file}' marks as revoked",
        _INTERCEPTED,
    )
    UNPUBLISHED = (
        "the gateway '{name}' presents {key}, which Daytona does not publish: published"
        " {published}{trusted}",
        _INTERCEPTED,
    )
    UNTRUSTED = "the gateway '{name}' presents {key}, which is not trusted{trusted}", _INTERCEPTED
    TRUSTED_ONLY = (
        "the gateway '{name}' presents {key}, which is trusted but not published",
        "{ask}",
    )
    # what is wrong with the published or trusted keys
    CONTRADICTED = "the API publishes keys and fingerprints that do not belong together", "{ask}"
    UNREADABLE = (
        "the host keys that {api_url} publishes for '{name}' are unreadable: {item}",
        "update git-daytona, or name a file with the key that you trust in DAYTONA_SSH_KNOWN_HOSTS",
    )
    DISJOINT = (
        "the host keys that Daytona publishes for '{name}' are not the trusted ones:"
        " published {published}{trusted}{who_changed}",
        _ROTATION,
    )
    REVOKED_PIN = (
        "the host keys that Daytona publishes for '{name}' are revoked in '{file}':"
        " published {published}{trusted}{who_changed}",
        _ROTATION,
    )
    NO_LINE = (
        "'{file}' has no host key for '{name}'{why}",
        "add a line '{name} <type> <base64>', for the key that you trust",
    )
    UNKNOWN = (
        "the sandbox is served by another gateway, '{name}', whose host key is neither published"
        " nor pinned",
        "get its key from who runs it, and: daytona-pin import --host '{name}' FILE",
    )
    # what ends no transfer
    NOT_ASKED = "could not ask: {problem}", "try again, or look at the pin alone with --offline"
    INHERIT = (
        "nothing to verify against: the host key is left to your own ssh",
        "daytona-pin import FILE pins a key",
    )
    PIN = (
        "nothing is pinned yet; the published keys are pinned by the first start",
        "pin them now: daytona-pin pin",
    )
    KEEP = "the trusted key holds", ""

    @property
    def is_refusal(self) -> bool:
        return self not in (Outcome.NOT_ASKED, Outcome.INHERIT, Outcome.PIN, Outcome.KEEP)
