"""`daytona-pin`: see, check and change how the host key of Daytona's SSH gateway is trusted."""

import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from git_daytona.api.cloud import Cloud
from git_daytona.base import messages, paths
from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import (
    BadSetting,
    GitDaytonaError,
    HostKeyRefused,
    NothingToVerify,
    UsageError,
)
from git_daytona.base.secret import printable
from git_daytona.cli import options
from git_daytona.cli.program import program
from git_daytona.settings import settings
from git_daytona.trust import known_hosts, pin_file, presented, verify
from git_daytona.trust.decision import Evidence, Mode, refusal
from git_daytona.trust.explanations import Outcome
from git_daytona.trust.gateway import Policy
from git_daytona.trust.host_keys import HostKey
from git_daytona.trust.known_hosts import Line, endpoint_of, keys_of
from git_daytona.trust.pin_file import Pins, Record
from git_daytona.trust.published import Published

PROGRAM = "daytona-pin"
warn = partial(messages.warning, PROGRAM)
SECTIONS = {
    "Commands": {
        "verify": ("daytona_pin", "Compare published, trusted and presented keys"),
        "show": ("daytona_pin", "Show what is trusted"),
        "pin": ("daytona_pin", "Pin the keys that the API publishes now"),
        "forget": ("daytona_pin", "Drop the pin of a gateway"),
        "import": ("daytona_pin", "Pin the keys that a known_hosts file has"),
        "path": ("daytona_pin", "Print the path of the file that is trusted"),
        "known-hosts": ("daytona_pin", "Print the trusted lines, for your own ssh"),
        "scan": ("daytona_pin", "Print what the gateway presents, which proves nothing"),
    }
}


@program(PROGRAM, SECTIONS)
def cli() -> None:
    """See, check and change how the host key of Daytona's SSH gateway is trusted."""


def _endpoint(_context: click.Context, _: click.Parameter, text: str | None) -> Endpoint | None:
    if text is None:
        return None
    # With one colon it is HOST:PORT; with more, an IPv6 address, or the form with brackets.
    bare = text.count(":") == 1 and "[" not in text
    found = endpoint_of("[{}]:{}".format(*text.split(":")) if bare else text)
    if found is None:
        hint = "write HOST, HOST:PORT or [HOST]:PORT"
        raise UsageError(f"'{printable(text)}' is not the address of a gateway", hint=hint)
    return found


host_option = click.option(
    "--host",
    metavar="HOST",
    callback=_endpoint,
    help="The gateway, as HOST, HOST:PORT or [HOST]:PORT; default: the API's.",
)


@click.command("verify")
@options.flag("--live", help="Ask the gateway, too, which keys it presents (no authentication).")
@options.flag("--offline", help="Do not ask the Daytona API.")
@options.as_json
def verify_(live: bool, offline: bool, as_json: bool) -> int:
    """Compare published, trusted and presented keys.

    Exits 0 if verified, 1 on a mismatch, 3 if there is nothing to verify against, 4 if the API or
    the gateway could not be asked.
    """
    try:
        report = verify.look(_policy(), offline=offline, probe=presented.all_keys if live else None)
    except HostKeyRefused as problem:
        if as_json:
            verdict = {"verdict": problem.message, "status": verify.MISMATCH}
            options.print_json(verdict | {"advice": problem.hint})
        messages.error(PROGRAM, problem)
        return verify.MISMATCH
    document = {
        "mode": report.mode.value,
        "gateway": _gateway(report.endpoint),
        "file": str(report.file) if report.file else None,
        "keys": [{**_key(key), "seen": list(seen)} for key, seen in report.keys],
        "verdict": report.verdict,
        "status": report.status,
        "advice": report.advice,
        "notes": list(report.notes),
    }
    lines = [
        f"mode:     {report.mode.value}",
        f"gateway:  {report.endpoint.known_hosts_name}",
        f"file:     {report.file or '(that of your own ssh)'}",
        *_key_lines([(key, ", ".join(seen)) for key, seen in report.keys]),
        f"verdict:  {report.verdict}",
    ]
    _print(as_json, document, lines)
    if not as_json:
        for note in report.notes:
            messages.note(f"note: {note}")
        if report.advice:
            messages.note(f"hint: {report.advice}")
    return report.status


@click.command()
@options.as_json
def show(as_json: bool) -> None:
    """Show what is trusted, the pin file or that of DAYTONA_SSH_KNOWN_HOSTS. Asks nobody."""
    found = settings.load(None)
    file, mode = _file(found), Mode.PINNED if found.auto_pin else Mode.INHERITED
    if found.ssh_known_hosts:
        mode, pins = Mode.MANUAL, Pins(lines=pin_file.load_manual(file))
    else:
        pins = pin_file.load(file)
    lines = [
        f"mode:     {mode.value}",
        f"file:     {file}{'' if file.exists() else ' (there is none yet)'}",
        *(_line(line, pins) for line in pins.lines),
    ]
    keys = [_document(line, pins) for line in pins.lines]
    _print(as_json, {"mode": mode.value, "file": str(file), "keys": keys}, lines)


@click.command()
@options.as_json
def pin(as_json: bool) -> None:
    """Ask the API for the gateway's host keys and pin them now."""
    policy = _policy()
    if policy.settings.ssh_known_hosts:
        hint = "unset it to use the pin file"
        raise BadSetting("DAYTONA_SSH_KNOWN_HOSTS is set: nothing is pinned beside it", hint=hint)
    if not policy.settings.auto_pin:
        raise BadSetting(
            "DAYTONA_SSH_AUTO_PIN switches pinning off", hint="unset it to use the pin file"
        )
    answer = policy.answer()
    if isinstance(answer, GitDaytonaError):
        raise answer.but()
    before = keys_of(pin_file.load(paths.pin_file()).serving(answer.endpoint))
    trust = policy.default()
    for line in policy.warnings:
        warn(line)
    if trust.mode is not Mode.PINNED:
        raise NothingToVerify(
            f"{policy.settings.api_url} publishes no host keys, there is nothing to pin",
            hint="get the key from who runs the gateway, and: daytona-pin import FILE",
        )
    _print_change(trust.endpoint, before, as_json)


@click.command()
@click.argument("host", required=False, callback=_endpoint)
@options.yes
@options.as_json
def forget(host: Endpoint | None, yes: bool, as_json: bool) -> None:
    """Drop a gateway's pin (default: the API's); the next start pins what is published then."""
    policy, file = _policy(), paths.pin_file()
    with pin_file.changing(file):
        pins = pin_file.load(file)
        endpoint = host or pins.default_endpoint(policy.settings.api_url) or _ask_endpoint(policy)
        dropped = keys_of(pins.serving(endpoint))
        if not dropped:
            hint = "'daytona-pin show' lists what is"
            raise NothingToVerify(f"'{endpoint.known_hosts_name}' is not pinned", hint=hint)
        _confirm(endpoint, dropped, yes)
        pin_file.forget(file, pins, endpoint)
    _print_change(endpoint, dropped, as_json)


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@host_option
@options.yes
@options.as_json
def import_(file: Path, host: Endpoint | None, yes: bool, as_json: bool) -> None:
    """Pin a gateway's keys of FILE, in known_hosts form, in place of those pinned before."""
    lines, policy = _read(file), _policy()
    endpoint = host or _ask_endpoint(policy, lines)
    found = Evidence(policy.settings, endpoint, file, Pins(lines=tuple(lines)), None)
    if not found.has_line:
        raise refusal(Outcome.NO_LINE, found)
    keys = [key for key in found.trusted if not known_hosts.is_revoked(found.lines, key)]
    if not keys:
        raise HostKeyRefused(
            f"'{file}' vouches for no key of '{endpoint.known_hosts_name}'",
            hint="look for @revoked lines in it",
        )
    before = _pin_instead(endpoint, keys, f"'{printable(str(file.resolve()))}'", yes)
    _print_change(endpoint, before, as_json)


def _pin_instead(
    endpoint: Endpoint, keys: Sequence[HostKey], origin: str, yes: bool
) -> Sequence[HostKey]:
    """Pin keys in place of those that are pinned; return these."""
    place = paths.pin_file()
    with pin_file.changing(place):
        pins = pin_file.load(place)
        before = keys_of(pins.serving(endpoint))
        fresh = [key for key in keys if key not in before]
        if dropped := [key for key in before if key not in keys]:
            _confirm(endpoint, dropped, yes)
            pins, fresh = pin_file.forget(place, pins, endpoint), [*keys]
        if fresh:
            pin_file.add(place, pins, endpoint, fresh, origin)
    return before


def _read(file: Path) -> Sequence[Line]:
    try:
        return known_hosts.parse(pin_file.read_bounded(file))
    except OSError as problem:
        raise BadSetting(
            f"cannot read '{file}': {(problem.strerror or str(problem)).lower()}",
            hint="check the path",
        ) from problem


@click.command()
@options.as_json
def path(as_json: bool) -> None:
    """Print the path of the file that is trusted."""
    file = _file(settings.load(None))
    _print(as_json, {"file": str(file), "exists": file.exists()}, [str(file)])


@click.command("known-hosts")
@click.argument("host", required=False, callback=_endpoint)
def known_hosts_(host: Endpoint | None) -> None:
    """Print the trusted lines for HOST (default: all), as known_hosts has them. Asks nobody.

    A plain ssh of yours uses the pin with: KnownHostsCommand /path/to/daytona-pin known-hosts %H.
    """
    found = settings.load(None)
    file = _file(found)
    lines = pin_file.load_manual(file) if found.ssh_known_hosts else pin_file.load(file).lines
    for line in known_hosts.serving(lines, host.known_hosts_name) if host else lines:
        if line.key is not None:
            name = host.known_hosts_name if host else line.hosts.decode("utf-8", "replace")
            click.echo(printable(" ".join(filter(None, (line.marker.value, name, line.key.line)))))


@click.command()
@host_option
@options.as_json
def scan(host: Endpoint | None, as_json: bool) -> None:
    """Print what the gateway presents; it proves nothing: a forged one presents its own key."""
    endpoint = host or _ask_endpoint(_policy())
    keys = presented.all_keys(endpoint)
    remedy = "compare the fingerprints"
    warn(f"this is what answers at that address just now, which proves nothing: {remedy}")
    if not as_json:
        for key in keys:
            messages.note(str(key))
    document = {"gateway": _gateway(endpoint), "keys": [_key(key) for key in keys]}
    _print(as_json, document, [f"{endpoint.known_hosts_name} {key.line}" for key in keys])


def _policy() -> Policy:
    found = settings.load(None)
    return Policy(found, Cloud(found).config, preflight=False)


def _file(found: settings.Settings) -> Path:
    """The file that is trusted. Raises BadSetting."""
    if found.ssh_known_hosts:
        return pin_file.manual_path(found.ssh_known_hosts)
    return paths.pin_file()


def _record(line: Line, pins: Pins) -> Record | None:
    """The last record of where a line's key came from."""
    records = reversed(pins.records if line.key else ())
    return next((it for it in records if line.serves(it.endpoint.known_hosts_name)), None)


def _ask_endpoint(policy: Policy, lines: Sequence[Line] = ()) -> Endpoint:
    """Ask the API for its gateway; else take that of the lines or pins. Raises why it cannot."""
    answer = policy.answer()
    if isinstance(answer, Published):
        return answer.endpoint
    pins = pin_file.load(paths.pin_file())
    found = pins.default_endpoint(policy.settings.api_url, lines)
    if found is None:
        raise answer.but()
    return found


def _confirm(endpoint: Endpoint, keys: Iterable[HostKey], yes: bool) -> None:
    """Ask before keys are dropped; on no answer, or without a terminal, nothing is changed."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(
            f"a pinned key of '{endpoint.known_hosts_name}' would be dropped",
            hint="say so with --yes",
        )
    for key in keys:
        messages.note(f"pinned: {key}")
    options.confirm(f"Stop trusting this for '{endpoint.known_hosts_name}'?", yes)


def _print(as_json: bool, document: dict[str, Any], lines: Iterable[str]) -> None:
    """Print the document for programs, or the lines for people."""
    if as_json:
        options.print_json(document)
        return
    for line in lines:
        click.echo(printable(line))


def _print_change(endpoint: Endpoint, before: Sequence[HostKey], as_json: bool) -> None:
    """Print what is pinned now and what changed."""
    file = paths.pin_file()
    now = keys_of(pin_file.load(file).serving(endpoint))
    rows = [(key, "kept" if key in before else "added") for key in now]
    rows += [(key, "dropped") for key in before if key not in now]
    keys = [{**_key(key), "change": change} for key, change in rows]
    document = {"gateway": _gateway(endpoint), "file": str(file), "keys": keys}
    _print(as_json, document, [f"gateway:  {endpoint.known_hosts_name}", *_key_lines(rows)])


def _key_lines(rows: Sequence[tuple[HostKey, str]]) -> list[str]:
    """A line for each key, with a remark; the remarks are aligned."""
    width = max((len(str(key)) for key, _ in rows), default=0)
    return [f"key:      {key!s:{width}}  {remark}" for key, remark in rows]


def _key(key: HostKey) -> dict[str, str]:
    return {"type": key.type, "fingerprint": key.fingerprint, "key": key.line}


def _gateway(endpoint: Endpoint) -> dict[str, Any]:
    return {"host": endpoint.host, "port": endpoint.port, "name": endpoint.known_hosts_name}


def _document(line: Line, pins: Pins) -> dict[str, Any]:
    record = _record(line, pins)
    return {
        "line": line.number,
        "host": printable(line.hosts.decode("utf-8", "replace")),
        "marker": line.marker.value or None,
        **(_key(line.key) if line.key else {"problem": line.problem}),
        "source": record.source if record else None,
        "pinned": record.when if record else None,
    }


def _line(line: Line, pins: Pins) -> str:
    marker = f"{line.marker.value} " if line.marker.value else ""
    key = line.key or f"line {line.number} is skipped: {line.problem}"
    record = _record(line, pins)
    origin = f"  (from {record.source} on {record.when})" if record else ""
    return f"{marker}{line.hosts.decode('utf-8', 'replace')}  {key}{origin}"
