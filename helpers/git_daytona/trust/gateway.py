"""How the gateway's host key is trusted: manual, pinned or inherited.

A transfer asks ``Policy.default()`` before it mints a token, runs ssh as the returned Trust says,
so that ssh itself enforces the verdict, and asks ``Policy.refusal()`` when ssh fails. The API is
asked once per process, and again only where its earlier answer would refuse a transfer: keys may
have been rotated, or a pin forgotten, while the process ran.
"""

import copy
import enum
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from git_daytona.base import paths
from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import BadSetting, GitDaytonaError, HostKeyRefused, TimedOut
from git_daytona.base.secret import printable
from git_daytona.settings.settings import Settings
from git_daytona.trust import explanations, known_hosts, manual_file, pin_file, presented
from git_daytona.trust.decision import Decision, Outcome, decide
from git_daytona.trust.explanations import Complaint
from git_daytona.trust.host_keys import HostKey
from git_daytona.trust.known_hosts import Line, Verdict, keys_of
from git_daytona.trust.pin_file import Pins
from git_daytona.trust.published import Published, PublishedConfig


class Mode(enum.Enum):
    MANUAL = "manual"
    PINNED = "pinned"
    INHERITED = "inherited"


@dataclass(frozen=True)
class Trust:
    """How one endpoint's host key is verified: what ``daytona-ssh`` is told.

    ``known_hosts`` is the only file to trust; None in inherited mode, where the ssh client verifies
    as its user has configured it.
    """

    mode: Mode
    endpoint: Endpoint
    known_hosts: Path | None = None

    @property
    def alias(self) -> str | None:
        """The name to look up in the file (HostKeyAlias)."""
        return self.endpoint.known_hosts_name if self.known_hosts else None

    def lines(self) -> tuple[Line, ...]:
        """The lines that the file has for the endpoint; none if it is gone by now."""
        try:
            data = pin_file.read_bounded(self.known_hosts) if self.known_hosts else b""
        except OSError:
            return ()
        return known_hosts.serving(known_hosts.parse(data), self.endpoint.known_hosts_name)


class PinRenewed(HostKeyRefused):
    """ssh refused the key, but the pin has changed since ssh read it (a published rotation): the
    same attempt now succeeds."""

    transient = True


class Policy:
    """The trust decision of one process. Safe for many threads.

    ``ask`` returns the raw answer of ``GET /config`` and raises GitDaytonaError (Cloud.config); it
    is called lazily. With ``preflight`` the gateway is looked at before ssh connects. ``warnings``
    collects lines to show once, oldest first.
    """

    def __init__(
        self,
        settings: Settings,
        ask: Callable[[], Mapping[str, Any]],
        *,
        preflight: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.settings = settings
        self.warnings: list[str] = []
        self._config = PublishedConfig(ask, clock)
        self._preflight = preflight
        self._lock = threading.RLock()
        self._looked_at: set[Endpoint] = set()
        self._renewed: set[tuple[Endpoint, frozenset[HostKey]]] = set()

    # -- the decision ------------------------------------------------------------------------------

    def default(self) -> Trust:
        """Trust for the endpoint that the API names.

        Raises HostKeyRefused (keys differ, unusable pin file), BadSetting (manual file), or why the
        endpoint cannot be learned.
        """
        return self._look_at(self._decide(None))

    def for_endpoint(self, endpoint: Endpoint) -> Trust:
        """Trust for the endpoint that a mint's reply names, which may be another than the default.

        In pinned mode one that is neither published nor pinned is refused. Raises as default().
        """
        return self._look_at(self._decide(endpoint))

    def _decide(self, endpoint: Endpoint | None) -> Trust:
        if self.settings.ssh_known_hosts:
            return self._manual(self.settings.ssh_known_hosts, endpoint)
        if not self.settings.auto_pin:
            return Trust(Mode.INHERITED, endpoint or self._locate((), Pins()))
        if endpoint is None:
            answer = self.answer()
            if isinstance(answer, Published):
                endpoint = answer.endpoint
            else:
                pins = pin_file.load(paths.pin_file())
                endpoint = self._locate(pins.lines, pins)
                self._warn(f"{answer.message}; using the pin of '{endpoint.known_hosts_name}'")
        return self._pinned(endpoint)

    def _manual(self, setting: str, endpoint: Endpoint | None) -> Trust:
        path = manual_file.path_of(setting)
        lines = manual_file.load(path)
        endpoint = endpoint or self._locate(lines, Pins())
        trusted = keys_of(manual_file.check(path, lines, endpoint))
        about = self.published(endpoint)
        if about and about.keys and set(trusted).isdisjoint(about.keys):
            self._warn(explanations.manual_differs(path, endpoint, trusted, about.keys))
        return Trust(Mode.MANUAL, endpoint, path)

    def _pinned(self, endpoint: Endpoint) -> Trust:
        """Trust the pin, or pin what is published; INHERITED where there is neither."""
        path = paths.pin_file()
        seen = decide(pin_file.load(path).serving(endpoint), self.published(endpoint))
        # A refusal, and a first pin, rest on what the API says now, not on what it said hours ago.
        if seen.outcome not in (Outcome.KEEP, Outcome.INHERIT):
            self._config.renew()
        decision, about = self._decide_pins(endpoint, pin_file.load(path))
        if decision.outcome is Outcome.INHERIT:
            return Trust(Mode.INHERITED, endpoint)
        if about:
            for item in about.unreadable:
                self._warn(f"the Daytona API publishes a host key that cannot be read: {item}")
            for key in about.contradicted:
                self._warn(f"the published fingerprints do not list the published key {key}")
        if decision.add:
            self._pin(endpoint)
        manual_file.check_path(str(path), f"the path of the pin file, '{printable(str(path))}',")
        return Trust(Mode.PINNED, endpoint, path)

    def _decide_pins(self, endpoint: Endpoint, pins: Pins) -> tuple[Decision, Published | None]:
        """Decide about an endpoint, and on what answer of the API; raises HostKeyRefused."""
        pinned, about = pins.serving(endpoint), self.published(endpoint)
        decision = decide(pinned, about)
        match decision.outcome:
            case Outcome.REFUSE if about:
                raise explanations.disjoint(
                    self.settings, paths.pin_file(), endpoint, about.keys, keys_of(pinned)
                )
            case Outcome.UNREADABLE if about:
                raise explanations.unreadable(self.settings, endpoint, about.unreadable)
            case Outcome.INHERIT if not about and self._account_is_pinned(pins):
                raise explanations.unknown_gateway(endpoint)
        return decision, about

    def _account_is_pinned(self, pins: Pins) -> bool:
        """Whether this account's gateways are pinned ones, so that an unknown one is refused rather
        than left to ssh."""
        answer = self.answer()
        if isinstance(answer, Published):
            return bool(answer.keys or answer.unreadable or pins.serving(answer.endpoint))
        return bool(pins.lines)

    def _pin(self, endpoint: Endpoint) -> None:
        """Pin what is published, deciding again under the lock: of two processes one is first."""
        path = paths.pin_file()
        try:
            with pin_file.changing(path):
                pins = pin_file.load(path)
                decision, _ = self._decide_pins(endpoint, pins)
                if decision.add:
                    pin_file.add(path, pins, endpoint, decision.add, self.settings.api_url)
        except (BadSetting, TimedOut) as problem:
            if not keys_of(pin_file.load(path).serving(endpoint)):
                raise
            # the pinned one still serves
            self._warn(f"a newly published host key was not pinned: {problem.message}")

    def _locate(self, lines: Sequence[Line], pins: Pins) -> Endpoint:
        """The default gateway's endpoint; raises why the API cannot say, if nothing else does."""
        answer = self.answer()
        found = self.endpoint(answer, lines, pins)
        if found is None:
            assert isinstance(answer, GitDaytonaError), "an answer that could be read names one"
            # of its own kind: a server that answers HTML is not one to ask again
            problem = copy.copy(answer)
            problem.message = f"the SSH gateway is unknown: {answer.message}"
            raise problem from answer
        return found

    def endpoint(
        self, answer: Published | GitDaytonaError | None, lines: Sequence[Line], pins: Pins
    ) -> Endpoint | None:
        """Where the default gateway is: the API's word; without it, what was last pinned from this
        API; else the only endpoint that the lines name, unless it was pinned from another API. None
        when that leaves none or several."""
        if isinstance(answer, Published):
            return answer.endpoint
        if recorded := pins.last_endpoint(self.settings.api_url):
            return recorded
        foreign = {record.endpoint for record in pins.records if record.source.startswith("http")}
        named = known_hosts.named_endpoints(lines)
        return next(iter(named)) if len(named) == 1 and not named & foreign else None

    def answer(self) -> Published | GitDaytonaError:
        """What ``GET /config`` says, or why that is unknown: asked once per process."""
        return self._config.answer()

    def published(self, endpoint: Endpoint) -> Published | None:
        """What the API publishes about this endpoint; None: nothing, or it could not be asked."""
        answer = self.answer()
        return answer if isinstance(answer, Published) and answer.endpoint == endpoint else None

    def _published_keys(self, endpoint: Endpoint) -> tuple[HostKey, ...]:
        about = self.published(endpoint)
        return about.keys if about else ()

    def _warn(self, line: str) -> None:
        with self._lock:
            if line not in self.warnings:
                self.warnings.append(line)

    # -- before a connection -----------------------------------------------------------------------

    def _look_at(self, trust: Trust) -> Trust:
        """Refuse a gateway that plainly presents another key, before a token is minted for it.

        An endpoint is looked at once, and again after each refusal.
        """
        with self._lock:
            first = self._preflight and trust.endpoint not in self._looked_at
            self._looked_at.add(trust.endpoint)
        refused = self._preflight_refusal(trust) if first else None
        # transient: the API publishes the key by now, and it is pinned
        if refused is not None and not refused.transient:
            self._look_again(trust.endpoint)
            raise refused
        if trust.mode is Mode.INHERITED and self.settings.auto_pin:
            self._warn(explanations.inherited(trust.endpoint, self.answer()))
        return trust

    def _look_again(self, endpoint: Endpoint) -> None:
        with self._lock:
            self._looked_at.discard(endpoint)

    def _preflight_refusal(self, trust: Trust) -> HostKeyRefused | None:
        if trust.mode is Mode.INHERITED:
            stderr = presented.user_ssh_stderr(trust.endpoint, self.settings.ssh_binary)
            return self.refusal(trust, stderr)
        lines = trust.lines()
        shown = presented.preferred_key(trust.endpoint, lines)
        found = known_hosts.verdict(lines, shown) if shown else Verdict.OK
        if shown is None or found is Verdict.OK:
            return None
        return self._explain(trust, Complaint(shown.fingerprint, found is Verdict.REVOKED))

    # -- after a failure ---------------------------------------------------------------------------

    def refusal(self, trust: Trust, ssh_stderr: str) -> HostKeyRefused | None:
        """Why ssh refused the host key, given what it wrote to stderr at LogLevel ERROR; None when
        that was not the reason.

        PinRenewed, which is transient, when the API meanwhile publishes the presented key with a
        pinned one (or the pin was forgotten and made anew): it is pinned now, and the same attempt
        succeeds. At most once per set of pins.
        """
        complaint = explanations.complaint(ssh_stderr, trust.endpoint)
        if complaint is None:
            return None
        self._look_again(trust.endpoint)
        if complaint.other_host is not None:
            return explanations.other_host(complaint.other_host)
        if trust.mode is Mode.INHERITED:
            keys = self._published_keys(trust.endpoint)
            return explanations.by_ssh(self.settings, trust.endpoint, keys, complaint)
        if complaint.no_type:
            return explanations.no_type(trust.endpoint)
        return self._explain(trust, complaint, evidence=True)

    def _explain(
        self, trust: Trust, complaint: Complaint, *, evidence: bool = False
    ) -> HostKeyRefused:
        """Decide once more, on a fresh answer of the API, about a key that was not accepted."""
        if trust.mode is Mode.PINNED:
            self._config.renew(evidence=evidence)
            try:
                self._decide(trust.endpoint)
            except HostKeyRefused as problem:
                return problem
            except GitDaytonaError:
                pass  # the pin file cannot be written, say: the complaint is what counts
        lines = trust.lines()
        if trust.mode is Mode.PINNED and self._accepts_now(trust.endpoint, lines, complaint):
            return PinRenewed(
                f"the host key of '{trust.endpoint.known_hosts_name}' was rotated; its new key,"
                " published beside the pinned one, is pinned now",
                hint="try again",
            )
        return explanations.presented_differs(
            self.settings,
            trust.endpoint,
            trust.known_hosts,
            keys_of(lines),
            self._published_keys(trust.endpoint),
            complaint,
        )

    def _accepts_now(
        self, endpoint: Endpoint, lines: tuple[Line, ...], complaint: Complaint
    ) -> bool:
        """Whether ssh would now accept what it refused; True once per set of pins."""
        trusted = keys_of(lines)
        accepted = {
            key.fingerprint for key in trusted if known_hosts.verdict(lines, key) is Verdict.OK
        }
        if complaint.revoked or not accepted:
            return False
        if complaint.fingerprint and complaint.fingerprint not in accepted:
            return False
        with self._lock:
            state = (endpoint, frozenset(trusted))
            if state in self._renewed:
                return False
            self._renewed.add(state)
            return True
