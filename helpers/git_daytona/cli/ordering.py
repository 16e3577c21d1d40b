"""The options that order a sandbox, made from the table in settings/order.py."""

from collections.abc import Callable
from functools import wraps
from typing import IO, Any

import click

from git_daytona.base.errors import UsageError
from git_daytona.base.secret import Secret, printable
from git_daytona.settings import order, settings


def _add(command: Callable[..., Any]) -> Callable[..., Any]:
    file = click.File(encoding="utf-8-sig")
    for name, kind, metavar, help_ in (
        ("--secret", str, "NAME", "A secret of Daytona's vault as this variable; VARIABLE=NAME."),
        ("--env-file", file, "FILE", "Variables for the sandbox, from a file like .env."),
        ("--env", str, "NAME", "A variable of yours for the sandbox; or NAME=VALUE."),
    ):
        command = click.option(name, type=kind, metavar=metavar, help=help_, multiple=True)(command)
    for each in reversed(order.OPTIONS):
        if each.is_switch:
            names = f"--{each.name}/--no-{each.name}"
            command = click.option(names, default=None, help=each.help)(command)
        else:
            command = click.option(f"--{each.name}", metavar=each.metavar, help=each.help)(command)
    return command


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command all options of an order, which it gets as one ``order``."""

    @wraps(command)
    def ordering(**values: Any) -> Any:
        env, handles, secrets = (values.pop(name) for name in ("env", "env_file", "secret"))
        texts = {each.name: values.pop(each.name.replace("-", "_")) for each in order.OPTIONS}
        found = {
            name: str(text).lower() if isinstance(text, bool) else text
            for name, text in texts.items()
            if text is not None
        }
        held = [_variables(each) for each in handles]
        return command(order=order.given(found, env=env, files=held, secrets=secrets), **values)

    return _add(ordering)


def _variables(handle: IO[str]) -> dict[str, Secret]:
    hint = "it has to be a text of lines NAME=VALUE, of at most 1 MiB"
    try:
        found, bad = _read(handle)
    except (OSError, ValueError):  # which hold what was read
        raise UsageError(f"cannot read '{printable(handle.name)}'", hint=hint) from None
    if bad:
        where = f"line {bad[0]} of '{printable(handle.name)}'"
        raise UsageError(f"{where} is not NAME=VALUE", hint=hint)
    return found


def _read(handle: IO[str]) -> tuple[dict[str, Secret], list[int]]:
    text = handle.read(settings.DOTENV_BYTES + 1)
    if len(text) > settings.DOTENV_BYTES:
        raise ValueError("it is too large")
    found, bad = settings.parse_dotenv(text)
    return {name: Secret(value) for name, value in found.items()}, bad
