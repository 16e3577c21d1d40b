"""How the gateway's host key is trusted: manual, pinned or inherited (DESIGN.md §5).

A transfer asks ``Policy.default()`` before it mints a token, runs ssh as the returned Trust says,
so that ssh itself enforces the verdict, and asks ``Policy.refusal()`` when ssh fails. The API is
asked once per process. It is asked again only where its answer of earlier would refuse a transfer:
keys may have been rotated, or a pin forgotten, while the process ran (CASES 65).
"""

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
from git_daytona.trust import explanations, manual_file, pin_file
from git_daytona.trust import known_hosts as knownhosts
from git_daytona.trust import preflight as glance
from git_daytona.trust.config_cache import Asked
from git_daytona.trust.decision import Outcome, decide, keys_of, named_endpoints
from git_daytona.trust.host_keys import HostKey
from git_daytona.trust.known_hosts import Line
from git_daytona.trust.pin_file import Pins
from git_daytona.trust.published import Published


class Mode(enum.Enum):
    MANUAL = "manual"
    PINNED = "pinned"
    INHERITED = "inherited"


@dataclass(frozen=True)
class Trust:
    """How one endpoint's host key is verified: what ``daytona-ssh`` is told.

    ``known_hosts`` is the only file to trust, and ``alias`` the name to look up in it
    (HostKeyAlias); both are None in inherited mode, where the ssh client verifies as its user has
    configured it.
    """

    mode: Mode
    endpoint: Endpoint
    known_hosts: Path | None
    alias: str | None


class PinRenewed(HostKeyRefused):
    """ssh refused the key, but the pin has changed since ssh read it (a published rotation): the
    same attempt now succeeds."""

    meaning = HostKeyRefused.meaning
    transient = True


class Policy:
    """The trust decision of one process. Safe for many threads.

    ``ask`` returns the raw answer of ``GET /config`` and raises GitDaytonaError (Cloud.config); it
    is called lazily. ``glance`` returns the key that an endpoint presents, or None when it cannot
    be seen; None: never look before ssh does. ``warnings`` collects lines to show once, oldest
    first.
    """

    def __init__(
        self,
        settings: Settings,
        ask: Callable[[], Mapping[str, Any]],
        *,
        glance: Callable[[Endpoint, Sequence[Line]], HostKey | None] | None = glance.presented,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.settings = settings
        self.warnings: list[str] = []
        self._asked = Asked(ask, clock)
        self._glance = glance
        self._glanced: set[Endpoint] = set()
        self._lock = threading.RLock()
        self._renewed: set[tuple[Endpoint, frozenset[HostKey]]] = set()

    # -- the decision ------------------------------------------------------------------------------

    def default(self) -> Trust:
        """Trust for the endpoint that the API names.

        Raises HostKeyRefused (keys differ, unusable pin file), BadSetting (manual file), or why the
        endpoint cannot be learned.
        """
        return self._looked_at(self._decide(None))

    def for_endpoint(self, endpoint: Endpoint) -> Trust:
        """Trust for the endpoint that a mint's reply names, which may be another gateway than the
        default one (CASES 28).

        In pinned mode an endpoint that is neither published nor pinned is refused. Raises as
        default().
        """
        return self._looked_at(self._decide(endpoint))

    def _decide(self, endpoint: Endpoint | None) -> Trust:
        if self.settings.ssh_known_hosts:
            return self._manual(endpoint)
        if endpoint is not None:
            return self._for_named(endpoint)
        answer = self.answer()
        if isinstance(answer, Published):
            return self._for_named(answer.endpoint)
        if not self.settings.auto_pin:
            raise answer
        pins = pin_file.load(paths.pin_file())
        found = self.endpoint(answer, pins.lines, pins)
        if found is None:
            raise explanations.endpoint_unknown(answer)
        self._warn(f"{answer.message}; using the pin of '{found.known_hosts_name}'")
        return self._trust(Mode.PINNED, found)

    def _for_named(self, endpoint: Endpoint) -> Trust:
        if not self.settings.auto_pin:
            return self._trust(Mode.INHERITED, endpoint)
        while True:
            answer, mine = self._answer_about(endpoint)
            pins = pin_file.load(paths.pin_file())
            pinned = pins.serving(endpoint)
            decision = decide(
                pinned, mine.keys if mine else (), something=mine is not None and mine.something
            )
            # A refusal, and a first pin, rest on what the API says now, not on what it said hours
            # ago.
            if decision.outcome in (Outcome.KEEP, Outcome.INHERIT) or not self._asked.again():
                break
        match decision.outcome:
            case Outcome.REFUSE if mine:
                raise explanations.disjoint(
                    self.settings, paths.pin_file(), endpoint, mine.keys, keys_of(pinned)
                )
            case Outcome.UNREADABLE if mine:
                raise explanations.unreadable(self.settings, endpoint, mine.unreadable)
            case Outcome.INHERIT if not mine and self._pinning(answer, pins):
                raise explanations.unknown_gateway(endpoint)
            case Outcome.INHERIT:
                return self._trust(Mode.INHERITED, endpoint)
        if mine:
            self._warn_about(mine)
        if mine and decision.add:
            self._write(endpoint, mine)
        return self._trust(Mode.PINNED, endpoint)

    def _write(self, endpoint: Endpoint, mine: Published) -> None:
        """Pin what is published, after deciding once more under the lock: of two processes one is
        first."""
        try:
            with pin_file.changing(paths.pin_file()):
                pins = pin_file.load(paths.pin_file())
                pinned = pins.serving(endpoint)
                decision = decide(pinned, mine.keys, something=mine.something)
                if decision.outcome is Outcome.REFUSE:
                    raise explanations.disjoint(
                        self.settings, paths.pin_file(), endpoint, mine.keys, keys_of(pinned)
                    )
                if decision.add:
                    pin_file.add(
                        paths.pin_file(), pins, endpoint, decision.add, self.settings.api_url
                    )
        except (BadSetting, TimedOut) as problem:
            if not keys_of(pin_file.load(paths.pin_file()).serving(endpoint)):
                raise
            # the pinned one still serves
            self._warn(f"a newly published host key was not pinned: {problem.message}")

    def _answer_about(
        self, endpoint: Endpoint
    ) -> tuple[Published | GitDaytonaError, Published | None]:
        """The API's answer, and the same again if it is about this endpoint."""
        answer = self.answer()
        return answer, answer if isinstance(
            answer, Published
        ) and answer.endpoint == endpoint else None

    def _warn_about(self, mine: Published) -> None:
        for item in mine.unreadable:
            self._warn(f"the Daytona API publishes a host key that cannot be read: {item}")
        for key in mine.contradicted:
            self._warn(f"the published fingerprints do not list the published key {key}")

    def _pinning(self, answer: Published | GitDaytonaError, pins: Pins) -> bool:
        """Whether this account's gateways are pinned ones, so that an unknown gateway is refused
        rather than left to ssh."""
        if isinstance(answer, Published):
            return answer.something or bool(pins.serving(answer.endpoint))
        return bool(pins.lines)

    def _manual(self, endpoint: Endpoint | None) -> Trust:
        path = manual_file.path_of(self.settings.ssh_known_hosts or "")
        lines = manual_file.load(path)
        if endpoint is None:
            answer = self.answer()
            endpoint = self.endpoint(answer, lines, Pins())
            if endpoint is None:
                raise explanations.endpoint_unknown(answer)
        mine = manual_file.check(path, lines, endpoint)
        published_keys = self._published_keys(endpoint)
        if published_keys and not set(keys_of(mine)) & set(published_keys):
            self._warn(explanations.manual_differs(path, endpoint, keys_of(mine), published_keys))
        return self._trust(Mode.MANUAL, endpoint, path)

    def _trust(self, mode: Mode, endpoint: Endpoint, path: Path | None = None) -> Trust:
        if mode is Mode.INHERITED:
            return Trust(mode, endpoint, None, None)
        if path is None:
            path = paths.pin_file()
            manual_file.check_path(
                str(path), f"the path of the pin file, '{printable(str(path))}',"
            )
        return Trust(mode, endpoint, path, endpoint.known_hosts_name)

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
        named = named_endpoints(lines)
        return next(iter(named)) if len(named) == 1 and not named & foreign else None

    def answer(self) -> Published | GitDaytonaError:
        """What ``GET /config`` says, asked for once; or the error that asking ended in, or that the
        answer deserves."""
        return self._asked.answer()

    def _warn(self, line: str) -> None:
        with self._lock:
            if line not in self.warnings:
                self.warnings.append(line)

    # -- after a failure ---------------------------------------------------------------------------

    def refusal(self, trust: Trust, ssh_stderr: str) -> HostKeyRefused | None:
        """Why ssh refused the host key, given what it wrote to stderr at LogLevel ERROR; None when
        that was not the reason.

        PinRenewed, which is transient, when the API meanwhile publishes the presented key beside a
        pinned one (or the pin was forgotten and made anew): it is pinned now, and the same attempt
        succeeds. At most once per set of pins.
        """
        complaint = explanations.complaint(ssh_stderr, trust.endpoint)
        if complaint is None:
            return None
        with self._lock:
            self._glanced.discard(trust.endpoint)
        if trust.mode is Mode.INHERITED and complaint.elsewhere is None:
            published = self._published_keys(trust.endpoint)
            if published or not self.settings.auto_pin:
                return explanations.by_ssh(self.settings, trust.endpoint, published, complaint)
            return explanations.unpublished(self.settings, trust.endpoint, complaint)
        if complaint.elsewhere is not None:
            return explanations.other_host(complaint.elsewhere)
        if complaint.no_type:
            return explanations.no_type(trust.endpoint)
        return self._explain(trust, complaint, evidence=True)

    def _looked_at(self, trust: Trust) -> Trust:
        """The trust, unless the gateway plainly presents another key: looked at once, and again
        after each refusal."""
        first = self._glance is not None and self._is_first(trust.endpoint)
        if trust.mode is Mode.INHERITED:
            refused = (
                self.refusal(
                    trust, glance.complaint_of_ssh(trust.endpoint, self.settings.ssh_binary)
                )
                if first
                else None
            )
            if refused is not None:
                raise refused
            if self.settings.auto_pin:
                self._warn(explanations.inherited(trust.endpoint, self.answer()))
            return trust
        if self._glance is None or not first:
            return trust
        lines = self._trusted_lines(trust)
        shown = self._glance(trust.endpoint, lines)
        if shown is None:
            return trust
        found = knownhosts.verdict(lines, shown)
        if found is knownhosts.Verdict.OK:
            return trust
        problem = self._explain(
            trust,
            explanations.Complaint(shown.fingerprint, revoked=found is knownhosts.Verdict.REVOKED),
        )
        if problem.transient:  # the API publishes the key by now, and it is pinned
            return trust
        with self._lock:
            self._glanced.discard(trust.endpoint)
        raise problem

    def _is_first(self, endpoint: Endpoint) -> bool:
        """Whether this look at an endpoint is the first, or the first since it was refused."""
        with self._lock:
            first = endpoint not in self._glanced
            self._glanced.add(endpoint)
            return first

    def _explain(
        self, trust: Trust, complaint: explanations.Complaint, *, evidence: bool = False
    ) -> HostKeyRefused:
        """Decide once more, on a fresh answer of the API, about a key that was not accepted."""
        if trust.mode is Mode.PINNED:
            self._asked.again(evidence=evidence)
            try:
                self._decide(trust.endpoint)
            except HostKeyRefused as problem:
                return problem
            except GitDaytonaError:
                pass  # the pin file cannot be written, say: what was found stands
        lines = self._trusted_lines(trust)
        if trust.mode is Mode.PINNED and self._is_news(trust.endpoint, lines, complaint):
            return PinRenewed(
                f"the host key of '{trust.endpoint.known_hosts_name}' was rotated; its new key, published beside the pinned one,"
                " is pinned now",
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

    def _is_news(
        self, endpoint: Endpoint, lines: tuple[Line, ...], complaint: explanations.Complaint
    ) -> bool:
        """Whether ssh would now accept what it refused."""
        trusted = frozenset(keys_of(lines))
        accepted = {
            key.fingerprint
            for key in trusted
            if knownhosts.verdict(lines, key) is knownhosts.Verdict.OK
        }
        if complaint.revoked or not (
            complaint.fingerprint in accepted if complaint.fingerprint else accepted
        ):
            return False
        with self._lock:
            state = (endpoint, trusted)
            if state in self._renewed:
                return False
            self._renewed.add(state)
            return True

    def _trusted_lines(self, trust: Trust) -> tuple[Line, ...]:
        try:
            data = pin_file.read_bounded(trust.known_hosts) if trust.known_hosts else b""
        except OSError:  # gone since: then it vouches for nothing
            return ()
        return knownhosts.serving(knownhosts.parse(data), trust.endpoint.known_hosts_name)

    def _published_keys(self, endpoint: Endpoint) -> tuple[HostKey, ...]:
        answer = self.answer()
        return answer.keys if isinstance(answer, Published) and answer.endpoint == endpoint else ()
