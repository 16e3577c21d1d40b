"""What is known about the gateway's host keys, side by side, and what follows from it. Changes
nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from git_daytona.base import paths
from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import ApiUnreachable, GitDaytonaError, NothingToVerify
from git_daytona.settings.settings import DEFAULT_API_URL
from git_daytona.trust import known_hosts, manual_file, pin_file
from git_daytona.trust.decision import decide, keys_of
from git_daytona.trust.explanations import POLICY_PAGE, show
from git_daytona.trust.gateway import Mode, Policy
from git_daytona.trust.host_keys import HostKey
from git_daytona.trust.known_hosts import Line, Marker, Verdict
from git_daytona.trust.published import Published

VERIFIED, MISMATCH = 0, 1
NOTHING, NOT_ASKED = NothingToVerify.status, ApiUnreachable.status


@dataclass(frozen=True)
class Report:
    """The outcome of a look: ``keys`` with where each was seen (published, pinned or manual,
    revoked, presented), a one-line ``verdict`` with its exit status, what to do, and remarks that
    change nothing."""

    mode: Mode
    endpoint: Endpoint
    file: Path | None
    keys: tuple[tuple[HostKey, tuple[str, ...]], ...]
    status: int
    verdict: str
    advice: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Sources:
    """Everything that was looked at. ``answer`` None: offline. ``presented`` None: not live."""

    mode: Mode
    endpoint: Endpoint
    file: Path | None
    lines: tuple[Line, ...]
    answer: Published | GitDaytonaError | None
    presented: tuple[HostKey, ...] | None
    pinned_on: str | None

    @property
    def published(self) -> tuple[HostKey, ...]:
        return (
            self.answer.keys
            if isinstance(self.answer, Published) and self.answer.endpoint == self.endpoint
            else ()
        )


def look(
    policy: Policy, *, offline: bool, probe: Callable[[Endpoint], tuple[HostKey, ...]] | None
) -> Report:
    """Look at all sources and judge. ``probe`` asks the gateway itself (None: not live).

    Raises BadSetting (manual file), HostKeyRefused (unusable pin file), NothingToVerify or
    ApiUnreachable when the endpoint is not known, GatewayUnreachable.
    """
    settings = policy.settings
    answer = None if offline else policy.answer()
    file = (
        manual_file.path_of(settings.ssh_known_hosts)
        if settings.ssh_known_hosts
        else paths.pin_file()
    )
    every = manual_file.load(file) if settings.ssh_known_hosts else ()
    pins = (
        pin_file.Pins()
        if settings.ssh_known_hosts or not settings.auto_pin
        else pin_file.load(file)
    )
    endpoint = policy.endpoint(answer, every or pins.lines, pins)
    if endpoint is None:
        if isinstance(answer, GitDaytonaError):
            raise ApiUnreachable(
                f"the SSH gateway is unknown: {answer.message}",
                hint=answer.hint,
                details=answer.details,
            )
        raise NothingToVerify("no gateway is pinned", hint="pin it with: daytona-pin pin")
    lines = known_hosts.serving(every or pins.lines, endpoint.known_hosts_name)
    about = answer if isinstance(answer, Published) and answer.endpoint == endpoint else None
    mode = Mode.MANUAL if settings.ssh_known_hosts else Mode.INHERITED
    if mode is not Mode.MANUAL and settings.auto_pin and (lines or (about and about.something)):
        mode = Mode.PINNED
    record = next((each for each in reversed(pins.records) if each.endpoint == endpoint), None)
    sources = _Sources(
        mode=mode,
        endpoint=endpoint,
        file=file if mode is not Mode.INHERITED else None,
        lines=lines,
        answer=answer,
        presented=probe(endpoint) if probe else None,
        pinned_on=record.when if record else None,
    )
    status, verdict, advice = _judge(sources, settings.api_url)
    notes = (*_notes(sources, every), *policy.warnings)
    return Report(mode, endpoint, sources.file, _seen(sources), status, verdict, advice, notes)


def _judge(it: _Sources, api_url: str) -> tuple[int, str, str | None]:
    """Status, verdict and advice. A mismatch is said before everything else."""
    whom = (
        f"compare with {POLICY_PAGE}" if api_url == DEFAULT_API_URL else f"ask who runs {api_url}"
    )
    trusted = set(keys_of(it.lines))
    if isinstance(it.answer, Published) and it.answer.endpoint == it.endpoint:
        if it.answer.contradicted:
            return (
                MISMATCH,
                "mismatch: the API publishes keys and fingerprints that do not belong together",
                whom,
            )
        if it.answer.unreadable and not it.published and not it.lines:
            return (
                MISMATCH,
                f"unreadable: what the API publishes is no host key ({it.answer.unreadable[0]})",
                "update git-daytona",
            )
    if it.published and it.lines and not trusted & set(it.published):
        return (
            MISMATCH,
            f"mismatch: the {it.mode.value} keys are not the published ones{_which_changed(it)}",
            _disjoint(it, whom),
        )
    # A newly published key beside a pinned one is pinned by the next start: what ssh will read then
    # is what counts.
    added = (
        decide(it.lines, it.published, something=bool(it.published)).add
        if it.mode is Mode.PINNED
        else ()
    )
    lines = (*it.lines, *(Line(0, Marker.NONE, b"", key) for key in added))
    if it.presented is not None:
        against = (
            lines
            if it.mode is not Mode.INHERITED
            else tuple(Line(0, Marker.NONE, b"", key) for key in it.published)
        )
        shown = known_hosts.negotiated(against, it.presented)
        if (
            shown is not None
            and against
            and (found := known_hosts.verdict(against, shown)) is not Verdict.OK
        ):
            return (
                MISMATCH,
                _presented(it, shown, found),
                f"nothing is sent to it; a forged gateway looks like this; {whom}",
            )
        if shown is not None and it.published and shown not in it.published:
            return (
                MISMATCH,
                f"mismatch: the gateway presents {shown}, which is trusted but not published",
                whom,
            )
    if isinstance(it.answer, GitDaytonaError):
        return (
            NOT_ASKED,
            f"could not ask: {it.answer.message}",
            "try again, or look at the pin alone with --offline",
        )
    if it.mode is Mode.MANUAL and not it.lines:
        clause = manual_file.bare_host(manual_file.load(it.file), it.endpoint) if it.file else ""
        return (
            MISMATCH,
            f"mismatch: the file has no key for '{it.endpoint.known_hosts_name}'{clause}",
            "add the key to it",
        )
    if it.mode is Mode.INHERITED and not (it.published and it.presented):
        return (
            NOTHING,
            "nothing to verify against: the host key is left to your own ssh",
            "daytona-pin import FILE pins a key",
        )
    if not it.lines and it.presented is None:
        return (
            NOTHING,
            "nothing is pinned yet; the published keys are pinned by the first start",
            "pin them now: daytona-pin pin",
        )
    return VERIFIED, _verified(it, added), None


def _verified(it: _Sources, added: Sequence[HostKey]) -> str:
    kinds = [
        word
        for word, there in (
            ("published", it.published),
            (it.mode.value, it.lines),
            ("presented", it.presented is not None),
        )
        if there
    ]
    text = (
        f"verified: {' = '.join(kinds)}"
        if len(kinds) > 1
        else f"usable: a key is {kinds[0]}, nothing else was asked"
    )
    if added and it.lines:
        return f"{text}; a rotation is under way, the new key is pinned by the next start"
    return text


def _which_changed(it: _Sources) -> str:
    """What the presented key says about a published set that differs from the trusted one."""
    if it.presented is None:
        return ""
    if set(it.presented) & set(keys_of(it.lines)):
        return "; the gateway still presents a trusted key: it is the API's answer that changed"
    if set(it.presented) & set(it.published):
        return "; the gateway presents a published key: API and gateway have both changed"
    return "; the gateway presents a third one"


def _disjoint(it: _Sources, whom: str) -> str:
    if it.mode is Mode.MANUAL:
        return f"the file is used as it is; {whom}, and correct the file"
    since = f"; this pin is of {it.pinned_on[:10]}" if it.pinned_on else ""
    return (
        f"a rotation publishes old and new keys together for at least 30 days{since}: if it is newer than that, suspect substitution;"
        f" {whom}; only if the published key is genuine: daytona-pin forget '{it.endpoint.known_hosts_name}'"
    )


def _presented(it: _Sources, shown: HostKey, found: Verdict) -> str:
    if found is Verdict.REVOKED:
        return f"mismatch: the gateway presents {shown}, which is marked as revoked"
    what, keys = ("published", it.published) if it.published else (it.mode.value, keys_of(it.lines))
    return f"mismatch: the gateway presents {shown}, the {what} key is {show(keys)}"


def _seen(it: _Sources) -> tuple[tuple[HostKey, tuple[str, ...]], ...]:
    """Each key once, with where it was seen, in the order in which ssh would prefer them."""
    word = "manual" if it.mode is Mode.MANUAL else "pinned"
    revoked = tuple(line.key for line in it.lines if line.marker is Marker.REVOKED and line.key)
    where: dict[HostKey, list[str]] = {}
    for name, keys in (
        ("published", it.published),
        (word, keys_of(it.lines)),
        ("revoked", revoked),
        ("presented", it.presented or ()),
    ):
        for key in keys:
            where.setdefault(key, []).append(name)
    return tuple((key, tuple(names)) for key, names in where.items())


def _notes(it: _Sources, every: Sequence[Line]) -> tuple[str, ...]:
    notes = [
        f"line {line.number} of '{it.file}' is skipped by ssh: {line.problem}"
        for line in every
        if line.problem
    ]
    if isinstance(it.answer, Published):
        notes += [f"a published item is no host key: {item}" for item in it.answer.unreadable]
        if it.answer.legacy and not it.published:
            notes.append("this server publishes no host keys; its sshGatewayPublicKey is not one")
    if (
        it.mode is Mode.MANUAL
        and it.lines
        and (clause := manual_file.bare_host(every, it.endpoint))
    ):
        notes.append(clause.removeprefix("; "))
    return tuple(notes[:20])
