"""The report of ``daytona-pin verify`` and ``git daytona doctor``: all that is known about the
gateway's host keys, and what follows from it. Changes nothing."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import ApiUnreachable, GitDaytonaError, NothingToVerify
from git_daytona.trust import pin_file
from git_daytona.trust.decision import Evidence, Mode, bare_host, decide, explain
from git_daytona.trust.explanations import Outcome
from git_daytona.trust.gateway import Policy
from git_daytona.trust.host_keys import HostKey
from git_daytona.trust.known_hosts import Marker
from git_daytona.trust.published import Published

VERIFIED, MISMATCH = 0, 1
NOTHING, NOT_ASKED = NothingToVerify.status, ApiUnreachable.status
MOST_NOTES = 20


@dataclass(frozen=True)
class Report:
    """``keys`` with where each was seen (published, pinned or manual, revoked, presented); a
    one-line ``verdict`` with its exit status, and what to do; remarks that change nothing."""

    mode: Mode
    endpoint: Endpoint
    file: Path | None
    keys: tuple[tuple[HostKey, tuple[str, ...]], ...]
    status: int
    verdict: str
    advice: str | None
    notes: tuple[str, ...] = ()


def look(
    policy: Policy, *, offline: bool, probe: Callable[[Endpoint], tuple[HostKey, ...]] | None
) -> Report:
    """Look at all sources and judge. ``probe`` asks the gateway itself (None: not live).

    Raises BadSetting (manual file), HostKeyRefused (unusable pin file), NothingToVerify or
    ApiUnreachable when the endpoint is not known, GatewayUnreachable.
    """
    settings, answer = policy.settings, None if offline else policy.answer()
    file, pins = pin_file.trusted(settings)
    known = pins.default_endpoint(settings.api_url)
    endpoint = answer.endpoint if isinstance(answer, Published) else known
    if endpoint is None and isinstance(answer, GitDaytonaError):
        raise ApiUnreachable(answer.message, hint=answer.hint, details=answer.details)
    if endpoint is None:
        raise NothingToVerify("no gateway is pinned", hint="pin it with: daytona-pin pin")
    it = Evidence(settings, endpoint, file, pins, answer, probe(endpoint) if probe else None)
    return Report(
        it.mode,
        endpoint,
        file if it.mode is not Mode.INHERITED else None,
        tuple((key, tuple(sources)) for key, sources in _seen(it).items()),
        *_judge(it),
        notes=(*tuple(_notes(it))[:MOST_NOTES], *policy.warnings),
    )


def _judge(it: Evidence) -> tuple[int, str, str | None]:
    """Return status, verdict and advice."""
    outcome = decide(it, report=True)
    verdict, advice = explain(outcome, it)
    if outcome.is_refusal:
        return MISMATCH, f"mismatch: {verdict}", advice
    if outcome is not Outcome.KEEP:
        return NOT_ASKED if outcome is Outcome.NOT_ASKED else NOTHING, verdict, advice
    there = {
        "published": it.published.keys,
        it.mode.value: it.lines,
        "presented": it.presented is not None,
    }
    kinds = [kind for kind, is_there in there.items() if is_there]
    verdict = f"verified: {' = '.join(kinds)}"
    if len(kinds) == 1:
        verdict = f"usable: a key is {kinds[0]}, nothing else was asked"
    if it.added and it.lines:
        verdict += "; a rotation is under way, the new key is pinned by the next start"
    return VERIFIED, verdict, None


def _seen(it: Evidence) -> dict[HostKey, list[str]]:
    """Each key with where it was seen, in the order in which ssh would prefer them."""
    revoked = [line.key for line in it.lines if line.marker is Marker.REVOKED and line.key]
    sources = {
        "published": it.published.keys,
        "manual" if it.mode is Mode.MANUAL else "pinned": it.trusted,
        "revoked": dict.fromkeys(revoked),
        "presented": it.presented or (),
    }
    found: dict[HostKey, list[str]] = {}
    for source, keys in sources.items():
        for key in keys:
            found.setdefault(key, []).append(source)
    return found


def _notes(it: Evidence) -> Iterator[str]:
    for line in it.pins.lines:
        if line.problem:
            yield f"line {line.number} of '{it.file}' is skipped by ssh: {line.problem}"
    if isinstance(it.answer, Published):
        for item in it.answer.unreadable:
            yield f"a published item is not a host key: {item}"
        if it.answer.legacy and not it.published.keys:
            yield "this server publishes no host keys; its sshGatewayPublicKey is not one"
    if it.mode is Mode.MANUAL and it.lines and bare_host(it):
        yield bare_host(it)
