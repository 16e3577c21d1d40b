"""`daytona-pin`: see, check and change how the host key of Daytona's SSH gateway is trusted."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from git_daytona import __version__
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
from git_daytona.cli import pin_output as output
from git_daytona.settings import settings
from git_daytona.trust import known_hosts, pin_file, presented, verify
from git_daytona.trust.decision import Evidence, Mode, refusal
from git_daytona.trust.explanations import Outcome
from git_daytona.trust.gateway import Policy
from git_daytona.trust.host_keys import HostKey
from git_daytona.trust.known_hosts import endpoint_of, keys_of
from git_daytona.trust.published import Published

PROGRAM = "daytona-pin"

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object instead of text."
)
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask before a key is dropped.")
host_option = click.option(
    "--host",
    metavar="HOST",
    help="The gateway, as HOST, HOST:PORT or [HOST]:PORT; default: the API's.",
)


@click.group(name=PROGRAM, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", message=f"{PROGRAM} %(version)s")
def cli() -> None:
    """See, check and change how the host key of Daytona's SSH gateway is trusted."""


@cli.command("verify")
@click.option(
    "--live", is_flag=True, help="Ask the gateway, too, which keys it presents (no authentication)."
)
@click.option("--offline", is_flag=True, help="Do not ask the Daytona API.")
@json_option
def verify_command(live: bool, offline: bool, as_json: bool) -> int:
    """Compare published, trusted and presented keys.

    Exits 0 if verified, 1 on a mismatch, 3 if there is nothing to verify against, 4 if the API or
    the gateway could not be asked.
    """
    try:
        report = verify.look(_policy(), offline=offline, probe=presented.all_keys if live else None)
    except HostKeyRefused as problem:
        if as_json:
            output.as_json(
                {"verdict": problem.message, "status": verify.MISMATCH, "advice": problem.hint}
            )
        messages.error(PROGRAM, problem)
        return verify.MISMATCH
    if as_json:
        output.as_json(
            {
                "mode": report.mode.value,
                "gateway": output.gateway(report.endpoint),
                "file": str(report.file) if report.file else None,
                "keys": [{**output.key(key), "seen": list(seen)} for key, seen in report.keys],
                "verdict": report.verdict,
                "status": report.status,
                "advice": report.advice,
                "notes": list(report.notes),
            }
        )
        return report.status
    output.line(f"mode:     {report.mode.value}")
    output.line(f"gateway:  {report.endpoint.known_hosts_name}")
    output.line(f"file:     {report.file or '(that of your own ssh)'}")
    output.table("key:", ((str(key), ", ".join(seen)) for key, seen in report.keys))
    output.line(f"verdict:  {report.verdict}")
    for note in report.notes:
        messages.note(f"note: {note}")
    if report.advice:
        messages.note(f"hint: {report.advice}")
    return report.status


@cli.command()
@json_option
def show(as_json: bool) -> int:
    """Show what is trusted: each gateway in the pin file, or the lines of DAYTONA_SSH_KNOWN_HOSTS.
    Asks nobody."""
    found = settings.load(None)
    path, lines, records = _file(found)
    rows = []
    for line in lines:
        when = next(
            (
                each
                for each in reversed(records)
                if line.key and line.serves(each.endpoint.known_hosts_name)
            ),
            None,
        )
        rows.append((line, when))
    mode = (
        Mode.MANUAL if found.ssh_known_hosts else Mode.PINNED if found.auto_pin else Mode.INHERITED
    )
    if as_json:
        keys = [
            {
                "line": line.number,
                "host": output.text(line.hosts),
                "marker": line.marker.value or None,
                **(output.key(line.key) if line.key else {"problem": line.problem}),
                "source": record.source if record else None,
                "pinned": record.when if record else None,
            }
            for line, record in rows
        ]
        output.as_json({"mode": mode.value, "file": str(path), "keys": keys})
        return 0
    output.line(f"mode:     {mode.value}")
    output.line(f"file:     {path}{'' if path.exists() else ' (there is none yet)'}")
    for line, record in rows:
        origin = f"  (from {record.source} on {record.when})" if record else ""
        marker = f"{line.marker.value} " if line.marker.value else ""
        output.line(
            f"{marker}{output.text(line.hosts)}  "
            f"{line.key or f'line {line.number} is skipped: {line.problem}'}{origin}"
        )
    return 0


@cli.command()
@json_option
def pin(as_json: bool) -> int:
    """Ask the API for the gateway's host keys and pin them now."""
    policy = _policy()
    if policy.settings.ssh_known_hosts:
        raise BadSetting(
            "DAYTONA_SSH_KNOWN_HOSTS is set: nothing is pinned beside it",
            hint="unset it to use the pin file",
        )
    if not policy.settings.auto_pin:
        raise BadSetting(
            "DAYTONA_SSH_AUTO_PIN switches pinning off", hint="unset it to use the pin file"
        )
    answer = policy.answer()
    if isinstance(answer, GitDaytonaError):
        raise answer
    before = keys_of(pin_file.load(paths.pin_file()).serving(answer.endpoint))
    trust = policy.default()
    for line in policy.warnings:
        messages.warning(PROGRAM, line)
    if trust.mode is not Mode.PINNED:
        raise NothingToVerify(
            f"{policy.settings.api_url} publishes no host keys, there is nothing to pin",
            hint="get the key from who runs the gateway, and: daytona-pin import FILE",
        )
    _changed(trust.endpoint, before, as_json)
    return 0


@cli.command()
@click.argument("host", required=False)
@yes_option
@json_option
def forget(host: str | None, yes: bool, as_json: bool) -> int:
    """Drop the pin of a gateway (default: that of the API in use); the next start pins what is
    published then."""
    policy = _policy()
    with pin_file.changing(paths.pin_file()):
        pins = pin_file.load(paths.pin_file())
        endpoint = _host(host) if host else pins.default_endpoint(policy.settings.api_url)
        if endpoint is None:
            endpoint = _ask_endpoint(policy)
        dropped = keys_of(pins.serving(endpoint))
        if not dropped:
            raise NothingToVerify(
                f"'{endpoint.known_hosts_name}' is not pinned",
                hint="'daytona-pin show' lists what is",
            )
        _confirm(endpoint, dropped, yes)
        pin_file.forget(paths.pin_file(), pins, endpoint)
    _changed(endpoint, dropped, as_json)
    return 0


@cli.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@host_option
@yes_option
@json_option
def import_command(file: Path, host: str | None, yes: bool, as_json: bool) -> int:
    """Pin the keys that FILE, in known_hosts form, has for a gateway, in place of those pinned
    before."""
    policy = _policy()
    try:
        lines = known_hosts.parse(pin_file.read_bounded(file))
    except OSError as problem:
        raise BadSetting(
            f"cannot read '{file}': {(problem.strerror or str(problem)).lower()}",
            hint="check the path",
        ) from problem
    endpoint = _host(host) if host else _ask_endpoint(policy, lines)
    found = Evidence(policy.settings, endpoint, file, pin_file.Pins(lines=lines), None)
    if not found.has_line:
        raise refusal(Outcome.NO_LINE, found)
    keys = tuple(key for key in found.trusted if not known_hosts.is_revoked(found.lines, key))
    if not keys:
        raise HostKeyRefused(
            f"'{file}' vouches for no key of '{endpoint.known_hosts_name}'",
            hint="look for @revoked lines in it",
        )
    with pin_file.changing(paths.pin_file()):
        pins = pin_file.load(paths.pin_file())
        before = keys_of(pins.serving(endpoint))
        dropped = [key for key in before if key not in keys]
        if dropped:
            _confirm(endpoint, dropped, yes)
            pins = pin_file.forget(paths.pin_file(), pins, endpoint)
        fresh = [key for key in keys if dropped or key not in before]
        if fresh:
            pin_file.add(
                paths.pin_file(), pins, endpoint, fresh, f"'{printable(str(file.resolve()))}'"
            )
    _changed(endpoint, before, as_json)
    return 0


@cli.command()
@json_option
def path(as_json: bool) -> int:
    """Print the path of the file that is trusted."""
    found = settings.load(None)
    where = (
        pin_file.manual_path(found.ssh_known_hosts) if found.ssh_known_hosts else paths.pin_file()
    )
    if as_json:
        output.as_json({"file": str(where), "exists": where.exists()})
    else:
        output.line(str(where))
    return 0


@cli.command()
@host_option
@json_option
def scan(host: str | None, as_json: bool) -> int:
    """Print what the gateway presents, in known_hosts form. It proves nothing: a forged gateway
    presents its own key."""
    endpoint = _host(host) if host else _ask_endpoint(_policy())
    keys = presented.all_keys(endpoint)
    messages.warning(
        PROGRAM,
        "this is what answers at that address just now, which proves nothing: compare the "
        "fingerprints",
    )
    if as_json:
        output.as_json(
            {"gateway": output.gateway(endpoint), "keys": [output.key(key) for key in keys]}
        )
        return 0
    for key in keys:
        messages.note(str(key))
        output.line(f"{endpoint.known_hosts_name} {key.line}")
    return 0


# -- what the commands share -----------------------------------------------------------------------


def _policy() -> Policy:
    """The policy for the settings of the environment; the SDK is loaded only once the API is
    asked."""
    found = settings.load(None)

    def ask() -> dict[str, Any]:
        from git_daytona.api.cloud import Cloud

        return Cloud(found).config()

    return Policy(found, ask, preflight=False)


def _file(
    found: settings.Settings,
) -> tuple[Path, Sequence[known_hosts.Line], Sequence[pin_file.Record]]:
    if found.ssh_known_hosts:
        path = pin_file.manual_path(found.ssh_known_hosts)
        return path, pin_file.load_manual(path), ()
    pins = pin_file.load(paths.pin_file())
    return paths.pin_file(), pins.lines, pins.records


def _host(text: str) -> Endpoint:
    # With one colon it is HOST:PORT; with more, an IPv6 address, or the form with brackets.
    found = endpoint_of(
        "[{}]:{}".format(*text.split(":")) if text.count(":") == 1 and "[" not in text else text
    )
    if found is None:
        raise UsageError(
            f"'{printable(text)}' names no gateway", hint="write HOST, HOST:PORT or [HOST]:PORT"
        )
    return found


def _ask_endpoint(policy: Policy, lines: Sequence[known_hosts.Line] = ()) -> Endpoint:
    """The API's gateway; if it cannot be asked, the one that the lines or the pin file name. Raises
    what asking raised."""
    answer = policy.answer()
    if isinstance(answer, Published):
        return answer.endpoint
    pins = pin_file.load(paths.pin_file())
    found = pins.default_endpoint(policy.settings.api_url, lines)
    if found is None:
        raise answer
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
    click.confirm(f"Stop trusting this for '{endpoint.known_hosts_name}'?", abort=True, err=True)


def _changed(endpoint: Endpoint, before: Sequence[HostKey], as_json: bool) -> None:
    """Say what is pinned now and what changed."""
    now = keys_of(pin_file.load(paths.pin_file()).serving(endpoint))
    rows = [(key, "kept" if key in before else "added") for key in now]
    rows += [(key, "dropped") for key in before if key not in now]
    if as_json:
        keys = [{**output.key(key), "change": change} for key, change in rows]
        output.as_json(
            {"gateway": output.gateway(endpoint), "file": str(paths.pin_file()), "keys": keys}
        )
        return
    output.line(f"gateway:  {endpoint.known_hosts_name}")
    output.table("key:", ((str(key), change) for key, change in rows))
