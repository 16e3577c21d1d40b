"""The report of ``daytona-pin verify`` and ``git daytona doctor``: all that is known about the
gateway's host keys, and what follows from it. Changes nothing."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from git_daytona.base import paths
from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import ApiUnreachable, GitDaytonaError, NothingToVerify
from git_daytona.settings.settings import DEFAULT_API_URL
from git_daytona.trust import known_hosts, manual_file, pin_file
from git_daytona.trust.decision import decide
from git_daytona.trust.explanations import POLICY_PAGE, show
from git_daytona.trust.gateway import Mode, Policy
from git_daytona.trust.host_keys import HostKey
from git_daytona.trust.known_hosts import Line, Marker, Verdict, keys_of
from git_daytona.trust.pin_file import Pins
from git_daytona.trust.published import Published

VERIFIED, MISMATCH = 0, 1
NOTHING, NOT_ASKED = NothingToVerify.status, ApiUnreachable.status


class Judgement(NamedTuple):
    """A one-line ``verdict`` with its exit status, and what to do."""

    status: int
    verdict: str
    advice: str | None = None


@dataclass(frozen=True)
class Report:
    """``keys`` with where each was seen (published, pinned or manual, revoked, presented), the
    judgement on them, and remarks that change nothing."""

    mode: Mode
    endpoint: Endpoint
    file: Path | None
    keys: tuple[tuple[HostKey, tuple[str, ...]], ...]
    status: int
    verdict: str
    advice: str | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Sources:
    """Everything that was looked at: ``answer`` None: offline; ``presented`` None: not live."""

    mode: Mode
    endpoint: Endpoint
    file: Path | None
    every_line: tuple[Line, ...]
    answer: Published | GitDaytonaError | None
    presented: tuple[HostKey, ...] | None
    pinned_on: str | None
    api_url: str

    @property
    def lines(self) -> tuple[Line, ...]:
        return known_hosts.serving(self.every_line, self.endpoint.known_hosts_name)

    @property
    def about(self) -> Published | None:
        """What the API publishes about this endpoint."""
        answer = self.answer
        return (
            answer if isinstance(answer, Published) and answer.endpoint == self.endpoint else None
        )

    @property
    def published(self) -> tuple[HostKey, ...]:
        return self.about.keys if self.about else ()

    @property
    def added(self) -> tuple[HostKey, ...]:
        """Keys published with a pinned one, which the next start pins."""
        return decide(self.lines, self.about).add if self.mode is Mode.PINNED else ()

    @property
    def whom_to_ask(self) -> str:
        if self.api_url == DEFAULT_API_URL:
            return f"compare with {POLICY_PAGE}"
        return f"ask who runs {self.api_url}"


def look(
    policy: Policy, *, offline: bool, probe: Callable[[Endpoint], tuple[HostKey, ...]] | None
) -> Report:
    """Look at all sources and judge. ``probe`` asks the gateway itself (None: not live).

    Raises BadSetting (manual file), HostKeyRefused (unusable pin file), NothingToVerify or
    ApiUnreachable when the endpoint is not known, GatewayUnreachable.
    """
    settings, answer = policy.settings, None if offline else policy.answer()
    mode, file, pins = Mode.INHERITED, None, Pins()
    if settings.ssh_known_hosts:
        mode, file = Mode.MANUAL, manual_file.path_of(settings.ssh_known_hosts)
        pins = Pins(lines=manual_file.load(file))
    elif settings.auto_pin:
        pins = pin_file.load(paths.pin_file())
    endpoint = policy.endpoint(answer, pins.lines, pins)
    if endpoint is None and isinstance(answer, GitDaytonaError):
        raise ApiUnreachable(
            f"the SSH gateway is unknown: {answer.message}",
            hint=answer.hint,
            details=answer.details,
        )
    if endpoint is None:
        raise NothingToVerify("no gateway is pinned", hint="pin it with: daytona-pin pin")
    about = answer if isinstance(answer, Published) and answer.endpoint == endpoint else None
    published = about is not None and bool(about.keys or about.unreadable)
    if mode is Mode.INHERITED and settings.auto_pin and (published or pins.serving(endpoint)):
        mode, file = Mode.PINNED, paths.pin_file()
    sources = _Sources(
        mode=mode,
        endpoint=endpoint,
        file=file,
        every_line=pins.lines,
        answer=answer,
        presented=probe(endpoint) if probe else None,
        pinned_on=next((it.when for it in reversed(pins.records) if it.endpoint == endpoint), None),
        api_url=settings.api_url,
    )
    notes = (*tuple(_notes(sources))[:20], *policy.warnings)
    return Report(mode, endpoint, file, _seen(sources), *_judge(sources), notes)


def _judge(it: _Sources) -> Judgement:
    """Judge what was seen. A mismatch goes before everything else."""
    if problem := _published_mismatch(it) or _presented_mismatch(it):
        return problem
    if isinstance(it.answer, GitDaytonaError):
        return Judgement(
            NOT_ASKED,
            f"could not ask: {it.answer.message}",
            "try again, or look at the pin alone with --offline",
        )
    if it.mode is Mode.MANUAL and not it.lines:
        clause = manual_file.bare_host(it.every_line, it.endpoint)
        return Judgement(
            MISMATCH,
            f"mismatch: the file has no key for '{it.endpoint.known_hosts_name}'{clause}",
            "add the key to it",
        )
    if it.mode is Mode.INHERITED and not (it.published and it.presented):
        return Judgement(
            NOTHING,
            "nothing to verify against: the host key is left to your own ssh",
            "daytona-pin import FILE pins a key",
        )
    if not it.lines and it.presented is None:
        return Judgement(
            NOTHING,
            "nothing is pinned yet; the published keys are pinned by the first start",
            "pin them now: daytona-pin pin",
        )
    return Judgement(VERIFIED, _verified(it))


def _published_mismatch(it: _Sources) -> Judgement | None:
    """What is wrong with the published keys, in themselves or next to the trusted ones."""
    if it.about and it.about.contradicted:
        return Judgement(
            MISMATCH,
            "mismatch: the API publishes keys and fingerprints that do not belong together",
            it.whom_to_ask,
        )
    if it.about and it.about.unreadable and not it.published and not it.lines:
        return Judgement(
            MISMATCH,
            f"unreadable: what the API publishes is no host key ({it.about.unreadable[0]})",
            "update git-daytona",
        )
    if not it.published or not it.lines or set(keys_of(it.lines)) & set(it.published):
        return None
    which = ""
    if it.presented is not None:
        which = "; the gateway presents a third one"
        if set(it.presented) & set(keys_of(it.lines)):
            which = (
                "; the gateway still presents a trusted key: it is the API's answer that changed"
            )
        elif set(it.presented) & set(it.published):
            which = "; the gateway presents a published key: API and gateway have both changed"
    since = f"; this pin is of {it.pinned_on[:10]}" if it.pinned_on else ""
    advice = (
        f"a rotation publishes old and new keys together for at least 30 days{since}: if it is"
        f" newer than that, suspect substitution; {it.whom_to_ask}; only if the published key is"
        f" genuine: daytona-pin forget '{it.endpoint.known_hosts_name}'"
    )
    if it.mode is Mode.MANUAL:
        advice = f"the file is used as it is; {it.whom_to_ask}, and correct the file"
    return Judgement(
        MISMATCH, f"mismatch: the {it.mode.value} keys are not the published ones{which}", advice
    )


def _presented_mismatch(it: _Sources) -> Judgement | None:
    """What is wrong with the key that the gateway presents, as ssh would see it."""
    # what ssh will read at the next start counts; in inherited mode what is published
    extra = it.published if it.mode is Mode.INHERITED else it.added
    against = (*it.lines, *(Line(0, Marker.NONE, b"", key) for key in extra))
    shown = known_hosts.negotiated(against, it.presented or ())
    if shown is None:
        return None
    found = known_hosts.verdict(against, shown) if against else Verdict.OK
    if found is not Verdict.OK:
        kind, keys = it.mode.value, keys_of(it.lines)
        if it.published:
            kind, keys = "published", it.published
        why = f"the {kind} key is {show(keys)}"
        if found is Verdict.REVOKED:
            why = "which is marked as revoked"
        return Judgement(
            MISMATCH,
            f"mismatch: the gateway presents {shown}, {why}",
            f"nothing is sent to it; a forged gateway looks like this; {it.whom_to_ask}",
        )
    if it.published and shown not in it.published:
        return Judgement(
            MISMATCH,
            f"mismatch: the gateway presents {shown}, which is trusted but not published",
            it.whom_to_ask,
        )
    return None


def _verified(it: _Sources) -> str:
    there = {
        "published": it.published,
        it.mode.value: it.lines,
        "presented": it.presented is not None,
    }
    kinds = [kind for kind, is_there in there.items() if is_there]
    text = f"verified: {' = '.join(kinds)}"
    if len(kinds) == 1:
        text = f"usable: a key is {kinds[0]}, nothing else was asked"
    if it.added and it.lines:
        text += "; a rotation is under way, the new key is pinned by the next start"
    return text


def _seen(it: _Sources) -> tuple[tuple[HostKey, tuple[str, ...]], ...]:
    """Each key once, with where it was seen, in the order in which ssh would prefer them."""
    sources: dict[str, Sequence[HostKey]] = {
        "published": it.published,
        "manual" if it.mode is Mode.MANUAL else "pinned": keys_of(it.lines),
        "revoked": [line.key for line in it.lines if line.marker is Marker.REVOKED and line.key],
        "presented": it.presented or (),
    }
    every = dict.fromkeys(key for keys in sources.values() for key in keys)
    return tuple((key, tuple(name for name, its in sources.items() if key in its)) for key in every)


def _notes(it: _Sources) -> Iterator[str]:
    for line in it.every_line:
        if line.problem:
            yield f"line {line.number} of '{it.file}' is skipped by ssh: {line.problem}"
    if isinstance(it.answer, Published):
        for item in it.answer.unreadable:
            yield f"a published item is no host key: {item}"
        if it.answer.legacy and not it.published:
            yield "this server publishes no host keys; its sshGatewayPublicKey is not one"
    clause = manual_file.bare_host(it.every_line, it.endpoint)
    if it.mode is Mode.MANUAL and it.lines and clause:
        yield clause.removeprefix("; ")
