"""The decision about a gateway's host keys. Pure: what is trusted, published and presented goes in,
what follows from it comes out."""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import GitDaytonaError, HostKeyRefused
from git_daytona.settings.settings import DEFAULT_API_URL, Settings
from git_daytona.trust import known_hosts
from git_daytona.trust.explanations import POLICY_PAGE, Outcome
from git_daytona.trust.host_keys import HostKey
from git_daytona.trust.known_hosts import Line, Marker, Verdict
from git_daytona.trust.pin_file import Pins
from git_daytona.trust.presented import Complaint
from git_daytona.trust.published import Published


class Mode(enum.Enum):
    MANUAL = "manual"
    PINNED = "pinned"
    INHERITED = "inherited"


@dataclass(frozen=True)
class Evidence:
    """All that is known about the host keys of one gateway.

    ``file`` is the one that counts (None: the user's ssh decides) and ``pins`` its content;
    ``answer`` is None if the API was not asked, ``presented`` if the gateway was not; ``complaint``
    is what ssh wrote when it trusted the file alone, or, without one, as its user has configured.
    """

    settings: Settings
    endpoint: Endpoint
    file: Path | None
    pins: Pins
    answer: Published | GitDaytonaError | None
    presented: tuple[HostKey, ...] | None = None
    complaint: Complaint | None = None

    @property
    def mode(self) -> Mode:
        if self.settings.ssh_known_hosts:
            return Mode.MANUAL
        there = self.lines or self.published.keys or self.published.unreadable
        return Mode.PINNED if self.settings.auto_pin and there else Mode.INHERITED

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines of the file that ssh takes for this gateway."""
        return self.pins.serving(self.endpoint)

    @property
    def has_line(self) -> bool:
        """Whether there is a line with which ssh may accept a key."""
        return any(line.marker is not Marker.REVOKED for line in self.lines)

    @property
    def trusted(self) -> tuple[HostKey, ...]:
        return known_hosts.keys_of(self.lines)

    @property
    def published(self) -> Published:
        """What the API publishes about this gateway; without keys if that is nothing."""
        if isinstance(self.answer, Published) and self.answer.endpoint == self.endpoint:
            return self.answer
        return Published(self.endpoint)

    @property
    def common(self) -> set[HostKey] | None:
        """The published keys that are trusted, too; None where one side has nothing to compare."""
        keys = self.published.keys
        return set(keys) & set(self.trusted) if self.lines and keys else None

    @property
    def offered(self) -> tuple[HostKey, ...]:
        """The published keys that the file does not revoke."""
        keys = self.published.keys
        return tuple(key for key in keys if not known_hosts.is_revoked(self.lines, key))

    @property
    def added(self) -> tuple[HostKey, ...]:
        """The keys to pin: what is published, if nothing is pinned or it is published together with
        a pinned key (a rotation)."""
        known = set(self.trusted)
        if self.mode is not Mode.PINNED or (self.lines and known.isdisjoint(self.offered)):
            return ()
        return tuple(key for key in self.offered if key not in known)

    @property
    def expected(self) -> tuple[Line, ...]:
        """What ssh will read at the next start; in inherited mode what is published counts."""
        extra = self.published.keys if self.mode is Mode.INHERITED else self.added
        return (*self.lines, *(Line(0, Marker.NONE, b"", key) for key in extra))

    @property
    def shown(self) -> HostKey | None:
        """The presented key that ssh would be shown."""
        return known_hosts.negotiated(self.expected, self.presented or ())

    @property
    def refused(self) -> Complaint | None:
        """What ssh says, or would say, about what is presented."""
        return self.complaint or objection(self.expected, self.shown)


def objection(lines: Sequence[Line], shown: HostKey | None) -> Complaint | None:
    """What ssh would say about a presented key, given the lines that serve the gateway."""
    if not lines or shown is None:
        return None
    found = known_hosts.verdict(lines, shown)
    is_revoked = found is Verdict.REVOKED
    return None if found is Verdict.OK else Complaint(shown.fingerprint, is_revoked)


def decide(it: Evidence, *, report: bool = False) -> Outcome:
    """Decide what the evidence shows, the worst first.

    A transfer goes on without the API's answer, and where it contradicts itself: those are outcomes
    of a ``report`` only.
    """
    if it.complaint:
        return _of_complaint(it, it.complaint)
    if report and it.published.contradicted:
        return Outcome.CONTRADICTED
    found = _of_keys(it)
    if report and not found and isinstance(it.answer, GitDaytonaError):
        return Outcome.NOT_ASKED
    return found or _of_file(it)


def _of_keys(it: Evidence) -> Outcome | None:
    """What is wrong with the published, trusted and presented keys; None if nothing is."""
    keys = it.published.keys
    if it.published.unreadable and not (keys or it.lines):
        return Outcome.UNREADABLE
    if it.common == set():
        return Outcome.DISJOINT
    if it.refused:
        return _of_complaint(it, it.refused)
    if keys and it.shown not in (None, *keys):
        return Outcome.TRUSTED_ONLY
    if it.common and it.common.isdisjoint(it.offered):
        return Outcome.REVOKED_PIN
    return None


def _of_file(it: Evidence) -> Outcome:
    """What follows where nothing is wrong."""
    if it.mode is Mode.MANUAL and not it.has_line:
        return Outcome.NO_LINE
    if not it.lines and _is_unknown(it):
        return Outcome.UNKNOWN
    if it.mode is Mode.INHERITED and not (it.published.keys and it.presented):
        return Outcome.INHERIT
    return Outcome.KEEP if it.lines or it.presented is not None else Outcome.PIN


def _of_complaint(it: Evidence, refused: Complaint) -> Outcome:
    if refused.other_host:
        return Outcome.OTHER_HOST
    if it.complaint and it.file is None:
        is_nowhere = it.settings.auto_pin and not it.published.keys
        return Outcome.NOWHERE if is_nowhere else Outcome.USER_SSH
    if refused.no_type:
        return Outcome.NO_TYPE
    if refused.revoked:
        return Outcome.REVOKED
    published = [None, *(key.fingerprint for key in it.published.keys)]
    if refused.fingerprint in published or not it.published.keys:
        return Outcome.UNTRUSTED
    return Outcome.UNPUBLISHED


def _is_unknown(it: Evidence) -> bool:
    """Whether this is another than the account's gateway, which has keys: it is refused rather than
    left to ssh."""
    if not isinstance(it.answer, Published):
        return bool(it.pins.lines)
    has_keys = it.answer.keys or it.answer.unreadable or it.pins.serving(it.answer.endpoint)
    return it.answer.endpoint != it.endpoint and bool(has_keys)


def refusal(outcome: Outcome, it: Evidence) -> HostKeyRefused:
    message, hint = explain(outcome, it)
    return HostKeyRefused(message, hint=hint)


def explain(outcome: Outcome, it: Evidence) -> tuple[str, str | None]:
    """Return an outcome's message and hint, about this evidence."""
    name, api_url, refused = it.endpoint.known_hosts_name, it.settings.api_url, it.refused
    day = it.pins.pinned_on(it.endpoint)
    key = refused.fingerprint if refused else it.shown and it.shown.fingerprint
    fields = {
        "name": name,
        "api_url": api_url,
        "file": it.file,
        "ask": _whom_to_ask(api_url),
        "host": refused and refused.other_host,
        "key": key or "an unknown key",
        "published": _list(it.published.keys),
        "trusted": f"; trusted {_list(it.trusted)} in '{it.file}'" if it.file else "",
        "item": "; ".join(it.published.unreadable[:1]),
        "who_changed": _who_changed(it),
        "since": f" (this pin is of {day})" if day else "",
        "remedy": "correct the file" if it.mode is Mode.MANUAL else f"daytona-pin forget '{name}'",
        "verify": "" if it.presented else "see 'daytona-pin verify --live', and ",
        "why": _why_no_line(it),
        "problem": it.answer,
    }
    message, hint = (words.format_map(fields) for words in outcome.value)
    return message, hint or None


def _whom_to_ask(api_url: str) -> str:
    if api_url == DEFAULT_API_URL:
        return f"compare the fingerprints with {POLICY_PAGE}"
    return f"ask who runs {api_url} whether the key was changed"


def _who_changed(it: Evidence) -> str:
    """Say which side the gateway is on, if it was asked, when published and trusted keys differ."""
    if it.presented is None:
        return ""
    if not set(it.presented).isdisjoint(it.trusted):
        return "; the gateway still presents a trusted key: it is the API's answer that changed"
    if not set(it.presented).isdisjoint(it.published.keys):
        return "; the gateway presents a published key: API and gateway have both changed"
    return "; the gateway presents a third one"


def _why_no_line(it: Evidence) -> str:
    """Name the first line that looks as if it were for the gateway."""
    name = it.endpoint.known_hosts_name
    for line in it.pins.lines:
        if line.problem and known_hosts.names_match(line.hosts, name):
            return f"; line {line.number} is for it, but ssh skips it: {line.problem}"
    return f"; {bare_host(it)}" if bare_host(it) else ""


def bare_host(it: Evidence) -> str:
    """A clause about the first line that names the host without the port: ssh would take it, this
    suite does not. Empty if there is none."""
    host, port = it.endpoint.host, it.endpoint.port
    numbers = (line.number for line in known_hosts.serving(it.pins.lines, host) if port != 22)
    clause = f"is for '{host}' on port 22 and does not serve port {port}"
    return next((f"line {number} {clause}" for number in numbers), "")


def _list(keys: Iterable[HostKey]) -> str:
    return ", ".join(map(str, keys)) or "none"
