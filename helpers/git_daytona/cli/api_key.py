"""``daytona-token login``, ``logout`` and ``whoami``: the API key and what it may do."""

import contextlib
import getpass
import json
import signal
import sys
import warnings
from collections.abc import Iterable
from dataclasses import replace

import click

from git_daytona.api.account import Account, KeyInfo
from git_daytona.base import messages, signals
from git_daytona.base.errors import GitDaytonaError, KeyRefused, UsageError
from git_daytona.base.secret import KEY_CHARACTERS, Secret, key_problem, one_line
from git_daytona.cli import options
from git_daytona.cli.sandbox_tokens import PROGRAM, settings_here, warn
from git_daytona.settings import cli_profile, keystore
from git_daytona.settings.settings import DEFAULT_API_URL, KEYS_PAGE, Settings

FROM_A_FILE = f"{PROGRAM} login <FILE, where FILE holds the key alone"


class KeylessCommand(click.Command):
    """A command without arguments, which never repeats one that it is given: a key, perhaps."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError:
            raise UsageError(
                f"'{ctx.info_name}' takes no arguments, and no options but those that "
                f"'{PROGRAM} {ctx.info_name} -h' lists",
                hint=f"if a key stood there, revoke it ({KEYS_PAGE}): the shell's history has "
                "it, and other users could see it",
            ) from None


@click.command(cls=KeylessCommand)
@options.flag("--no-check", help="Do not ask the API whether it takes the key.")
def login(no_check: bool) -> None:
    """Store an API key in the keyring of the system.

    The key is asked for without echo, or is the first line of standard input if that is no
    terminal. It is stored only if the API takes it.
    """
    found, _ = settings_here()
    before = keystore.required(found.api_url)  # before anybody types a key that could not be kept
    key, source = _typed(found) if sys.stdin and sys.stdin.isatty() else _piped()
    name = ""
    if not no_check:
        try:
            info = Account(replace(found, key=key, key_source=source)).key_info()
        except GitDaytonaError as problem:
            hint = problem.hint
            if isinstance(problem, KeyRefused):
                hint = f"copy it whole, or make a new one ({KEYS_PAGE}), then try again"
            raise problem.but(
                message=f"{problem.message}; the key was not stored", hint=hint
            ) from None
        name = f" '{info.name}'" if info.name else ""
        _warn_of_missing(info)
    place = keystore.keep(found.api_url, key)
    remark = " (it replaced another)" if before else ""
    messages.note(f"the key{name} for {found.api_url} is in the OS keyring: {place}{remark}")
    if place.plain:
        warn(f"that is plain text: whoever reads '{place.file}' has the key")
    if found.key is not None:
        warn(f"here, the key from {found.key_source} is used instead: it comes before the keyring")


@click.command(cls=KeylessCommand)
def logout() -> None:
    """Remove the API key from the keyring of the system.

    The key itself stays valid: revoke it in Daytona's dashboard. Exits with 1 if there is none in
    the keyring.
    """
    found, _ = settings_here()
    place = keystore.forget(found.api_url)
    profile = cli_profile.look(found.api_url)
    left = found.key_source if found.key else profile.source if profile and profile.key else None
    if place is None:
        hint = "see DAYTONA_API_URL: each API has a key of its own"
        hint = f"the one in use is from {left}" if left else hint
        raise GitDaytonaError(f"there is no key for {found.api_url} in a keyring", hint=hint)
    messages.note(f"the key for {found.api_url} was removed from the OS keyring: {place}")
    if left:
        warn(f"there is still a key: the one from {left}")


@click.command(cls=KeylessCommand)
@options.as_json
def whoami(as_json: bool) -> None:
    """Show whose API key is used, where it comes from, and what it may do."""
    found, _ = settings_here()
    account = Account(found)
    info = account.key_info()
    source = account.settings.key_source or ""
    if remark := cli_profile.warning(found.api_url, source):
        warn(remark)
    _warn_of_missing(info)
    name = None
    with contextlib.suppress(GitDaytonaError):  # where the API does not tell a key
        name = (info.organization_id and account.organization_name(info.organization_id)) or None
    if as_json:
        expires = info.expires_at.isoformat() if info.expires_at else None
        key = {"name": info.name, "permissions": [*info.permissions], "expiresAt": expires}
        organization = {"id": info.organization_id or None, "name": name}
        answer = {"organization": organization, "apiUrl": found.api_url, "source": source}
        click.echo(json.dumps(answer | {"key": key}))
    else:
        _print_key(info, name, found.api_url, source)


def _print_key(info: KeyInfo, name: str | None, api_url: str, source: str) -> None:
    identity = info.organization_id or "the API does not say"
    rows = {
        "organisation": f"{name} ({identity})" if name else identity,
        "API": api_url,
        "key": f"'{info.name}'" if info.name else "without a name",
        "source": source,
        "may": _words(info.permissions) or "the API does not say",
        "expires": f"{info.expires_at:%Y-%m-%d %H:%M %Z}" if info.expires_at else "never",
    }
    for label, text in rows.items():
        click.echo(f"{label:<14}{one_line(text)}")


def _piped() -> tuple[Secret, str]:
    """Read the key from standard input. Raises UsageError, which never quotes it."""
    if sys.stdin is None:
        raise UsageError("standard input is closed, and the key is read from it", hint=FROM_A_FILE)
    # Bytes: what is no text is no key either. One more than fits, so that a longer one is noticed.
    text = sys.stdin.buffer.readline(KEY_CHARACTERS + 2).decode("utf-8", "replace").strip()
    if not text:
        raise UsageError("there was no key on standard input", hint=FROM_A_FILE)
    return _checked(text, "standard input")


def _typed(found: Settings) -> tuple[Secret, str]:
    """Read the key that somebody types. Raises UsageError, which never quotes it."""

    def end(number: int) -> None:
        messages.note("")
        signals.unwind(number)  # so that the terminal gets its echo back

    page = f"; they are made at {KEYS_PAGE}" if found.api_url == DEFAULT_API_URL else ""
    messages.note(f"paste an API key for {found.api_url}{page}")
    try:
        with signals.handling((signal.SIGTERM,), end), warnings.catch_warnings():
            # Without this it would go on, and show what is typed.
            warnings.simplefilter("error", getpass.GetPassWarning)
            text: str = click.prompt("API key (not shown)", hide_input=True, err=True).strip()
    except getpass.GetPassWarning:
        raise UsageError("this terminal cannot hide what is typed", hint=FROM_A_FILE) from None
    if not text:
        raise UsageError("no key was typed", hint=FROM_A_FILE)
    return _checked(text, "the prompt")


def _checked(text: str, source: str) -> tuple[Secret, str]:
    if problem := key_problem(text):
        hint = "give the key alone, in one line"
        raise UsageError(f"what came from {source} is not an API key: it {problem}", hint=hint)
    return Secret(text), source


def _warn_of_missing(info: KeyInfo) -> None:
    if lacks := info.lacks:
        warn(f"the key lacks the permission {lacks}: sessions cannot be started and ended with it")


def _words(permissions: Iterable[str]) -> str:
    """Permissions (``write:sandboxes``) by what they are for."""
    verbs: dict[str, list[str]] = {}
    for permission in permissions:
        verb, _, thing = permission.replace("_", " ").partition(":")
        verbs.setdefault(thing or "anything", []).append(verb)
    return "; ".join(f"{' and '.join(names)} {thing}" for thing, names in verbs.items())
