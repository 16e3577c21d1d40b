"""How the gateway's host key is trusted: manual, pinned or inherited.

A transfer asks ``Policy.default()`` before it mints a token, runs ssh as the returned Trust says,
so that ssh itself enforces the verdict, and asks ``Policy.refusal()`` when ssh fails. The API is
asked once per process, and again only where its earlier answer would refuse a transfer: keys may
have been rotated, or a pin forgotten, while the process ran.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import BadSetting, GitDaytonaError, HostKeyRefused, TimedOut
from git_daytona.base.secret import printable
from git_daytona.settings.settings import Settings
from git_daytona.trust import known_hosts, pin_file, presented
from git_daytona.trust.decision import Evidence, Mode, decide, objection, refusal
from git_daytona.trust.explanations import Outcome
from git_daytona.trust.host_keys import HostKey
from git_daytona.trust.presented import Complaint
from git_daytona.trust.published import Published, PublishedConfig

__all__ = ["Mode", "PinRenewed", "Policy", "Trust"]


@dataclass(frozen=True)
class Trust:
    """How one endpoint's host key is verified. ``known_hosts`` is the only file to trust; None in
    inherited mode, where the ssh client verifies as its user has configured it."""

    mode: Mode
    endpoint: Endpoint
    known_hosts: Path | None = None

    @property
    def alias(self) -> str | None:
        """The name to look up in the file (HostKeyAlias)."""
        return self.endpoint.known_hosts_name if self.known_hosts else None


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

    def answer(self) -> Published | GitDaytonaError:
        """What ``GET /config`` says, or why that is unknown: asked once per process."""
        return self._config.answer()

    def _warn(self, line: str) -> None:
        with self._lock:
            if line not in self.warnings:
                self.warnings.append(line)

    def default(self) -> Trust:
        """Trust for the endpoint that the API names. Raises HostKeyRefused (keys differ, unusable
        pin file), BadSetting (manual file), or why the endpoint cannot be learned."""
        return self._look_at(self._decide(self.endpoint()))

    def for_endpoint(self, endpoint: Endpoint) -> Trust:
        """Trust for the endpoint that a mint's reply names, which may be another than the default;
        in pinned mode an unknown one is refused. Raises as default()."""
        return self._look_at(self._decide(endpoint))

    def endpoint(self) -> Endpoint:
        """Where the API says that its gateway is, else where it was pinned. Raises why that is
        unknown."""
        _, pins = pin_file.trusted(self.settings)
        answer = self.answer()
        if isinstance(answer, Published):
            return answer.endpoint
        found = pins.default_endpoint(self.settings.api_url)
        if found is None:
            # of its own kind: a server that answers HTML is not one to ask again
            raise answer.but()
        if not self.settings.ssh_known_hosts:
            self._warn(f"{answer.message}; using the pin of '{found.known_hosts_name}'")
        return found

    def _evidence(self, endpoint: Endpoint) -> Evidence:
        file, pins = pin_file.trusted(self.settings)
        return Evidence(self.settings, endpoint, file, pins, self.answer())

    def _decide(self, endpoint: Endpoint) -> Trust:
        known = self._evidence(endpoint)
        outcome, file = decide(known), known.file
        if file is None:
            return Trust(Mode.INHERITED, endpoint)
        if known.mode is Mode.MANUAL:
            if not known.has_line:
                raise refusal(Outcome.NO_LINE, known)
            if outcome is Outcome.DISJOINT:
                self._warn(f"{refusal(outcome, known).message}; the file is used as it is")
            return Trust(Mode.MANUAL, endpoint, file)
        # A refusal, and a first pin, rest on what the API says now, not on what it said hours ago.
        if outcome not in (Outcome.KEEP, Outcome.INHERIT, Outcome.UNKNOWN):
            self._config.renew()
            known = self._evidence(endpoint)
        if self._accepted(known) is Outcome.INHERIT:
            return Trust(Mode.INHERITED, endpoint)
        for item in known.published.unreadable:
            self._warn(f"the Daytona API publishes a host key that cannot be read: {item}")
        for key in known.published.contradicted:
            self._warn(f"the published fingerprints do not list the published key {key}")
        if known.added:
            self._pin(endpoint, file)
        pin_file.check_path(str(file), f"the path of the pin file, '{printable(str(file))}',")
        return Trust(Mode.PINNED, endpoint, file)

    def _accepted(self, known: Evidence) -> Outcome:
        """Return the outcome; raises HostKeyRefused for one that ends the transfer."""
        outcome = decide(known)
        if outcome.is_refusal:
            raise refusal(outcome, known)
        return outcome

    def _pin(self, endpoint: Endpoint, path: Path) -> None:
        """Pin what is published, deciding again under the lock: of two processes one is first."""
        try:
            with pin_file.changing(path):
                known = self._evidence(endpoint)
                self._accepted(known)
                if known.added:
                    pin_file.add(path, known.pins, endpoint, known.added, self.settings.api_url)
        except (BadSetting, TimedOut) as problem:
            if not self._evidence(endpoint).trusted:
                raise
            # the pinned one still serves
            self._warn(f"a newly published host key was not pinned: {problem.message}")

    def _look_at(self, trust: Trust) -> Trust:
        """Refuse a gateway that plainly presents another key, before a token is minted for it. An
        endpoint is looked at once, and again after each refusal."""
        with self._lock:
            first = self._preflight and trust.endpoint not in self._looked_at
            self._looked_at.add(trust.endpoint)
        refused = self._preview(trust) if first else None
        # transient: the API publishes the key by now, and it is pinned
        if refused is not None and not refused.transient:
            raise refused
        if trust.mode is Mode.INHERITED and self.settings.auto_pin:
            answer = self.answer()
            why = "the Daytona API publishes no host keys"
            if isinstance(answer, GitDaytonaError):
                why = answer.message
            self._warn(
                f"{why}, and none is pinned: the host key of '{trust.endpoint.known_hosts_name}' is"
                " left to your own ssh; pin one with 'daytona-pin import FILE'"
            )
        return trust

    def _preview(self, trust: Trust) -> HostKeyRefused | None:
        """Look at the gateway: what ssh will refuse."""
        if trust.mode is Mode.INHERITED:
            stderr = presented.user_ssh_stderr(trust.endpoint, self.settings.ssh_binary)
            return self.refusal(trust, stderr)
        lines = self._evidence(trust.endpoint).lines
        complaint = objection(lines, presented.preferred_key(trust.endpoint, lines))
        return self._explain(trust, complaint) if complaint else None

    def refusal(self, trust: Trust, ssh_stderr: str) -> HostKeyRefused | None:
        """Why ssh refused the host key, given what it wrote to stderr at LogLevel ERROR; None when
        that was not the reason. PinRenewed, at most once per set of pins, when the API meanwhile
        publishes the presented key with a pinned one, or the pin was forgotten and made anew."""
        complaint = presented.complaint(ssh_stderr, trust.endpoint)
        return self._explain(trust, complaint, evidence=True) if complaint else None

    def _explain(
        self, trust: Trust, complaint: Complaint, *, evidence: bool = False
    ) -> HostKeyRefused:
        """Decide once more, on a fresh answer of the API, about a key that was not accepted."""
        with self._lock:
            self._looked_at.discard(trust.endpoint)
        if trust.mode is Mode.PINNED and not (complaint.no_type or complaint.other_host):
            self._config.renew(evidence=evidence)
            try:
                self._decide(trust.endpoint)
            except HostKeyRefused as problem:
                return problem
            except GitDaytonaError:
                pass  # the pin file cannot be written, say: the complaint is what counts
            if self._accepts_now(trust.endpoint, complaint):
                return PinRenewed(
                    f"the host key of '{trust.endpoint.known_hosts_name}' was rotated; its new key,"
                    " published beside the pinned one, is pinned now",
                    hint="try again",
                )
        known = replace(self._evidence(trust.endpoint), file=trust.known_hosts, complaint=complaint)
        return refusal(decide(known), known)

    def _accepts_now(self, endpoint: Endpoint, complaint: Complaint) -> bool:
        """Whether ssh would now accept what it refused; True once per set of pins."""
        known = self._evidence(endpoint)
        keys = (key for key in known.trusted if not known_hosts.is_revoked(known.lines, key))
        accepted = {key.fingerprint for key in keys}
        is_among = complaint.fingerprint in accepted if complaint.fingerprint else bool(accepted)
        if complaint.revoked or not is_among:
            return False
        with self._lock:
            state = (endpoint, frozenset(known.trusted))
            is_new = state not in self._renewed
            self._renewed.add(state)
            return is_new
