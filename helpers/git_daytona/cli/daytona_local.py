"""`daytona-local`: the embedded Daytona, which is imported once a command needs it."""

import contextlib
import io
import logging
import os
import shlex
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from git_daytona.base import messages, paths, run
from git_daytona.base.errors import BadSetting, GitDaytonaError, MissingProgram
from git_daytona.base.secret import key_out_of_environment
from git_daytona.base.signals import handling, unwind
from git_daytona.cli import options
from git_daytona.cli.program import program
from git_daytona.service import charge

if TYPE_CHECKING:
    from git_daytona.doctor.live import Embedded
    from git_daytona.local.server import LocalDaytona

PROGRAM = "daytona-local"
NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit statuses of `exec` for a command that cannot be run, as of a shell."""

APART = "end it with 'opencode service stop', or use 'opencode run --standalone'"
CONTRADICTING = ("DAYTONA_SERVER_URL", "DAYTONA_JWT_TOKEN", "DAYTONA_ORGANIZATION_ID")
"""Variables that would make the SDKs ignore the URL or the key that `exec` sets."""

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

SECTIONS = {
    "Commands": {
        "serve": ("daytona_local", "Run until Ctrl-C, and print what to export"),
        "env": ("daytona_local", "Print what to export for the one that runs"),
        "exec": ("daytona_local", "Run a command with a Daytona of its own"),
    }
}

root_option = click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where sandboxes and keys are kept.",
)
isolation_option = click.option(
    "--isolation",
    type=click.Choice(["auto", "bubblewrap", "namespaces", "plain"]),
    default="auto",
    show_default=True,
    help="How sandboxes are kept apart from this machine.",
)
like_option = click.option(
    "--like",
    type=click.Choice(["cloud", "0.190"]),
    default="cloud",
    show_default=True,
    help="Which Daytona to behave like: the newest known, or the last with published source.",
)
port_option = partial(options.number, metavar="N", within=(0, 65535), default=0)


@program(PROGRAM, SECTIONS)
def cli() -> None:
    """A Daytona of your own on loopback: API, toolbox and SSH gateway. Sandboxes are directories of
    this machine."""


@click.command()
@root_option
@port_option("--port", help="Port of the API; 0: the last one, or any.")
@port_option("--gateway-port", help="Port of the SSH gateway, likewise.")
@isolation_option
@like_option
@click.option(
    "--env-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write what to export to FILE, too (mode 0600), while everything listens.",
)
def serve(root: Path | None, env_file: Path | None, **server: Any) -> None:
    """Run until Ctrl-C. Prints what to export; in another terminal, 'daytona-local env' does."""
    ended = threading.Event()
    with (
        handling(ENDING, lambda _number: ended.set()),
        _server(root or paths.local_root(), **server) as local,
    ):
        exports = _exports(local.api_url, local.api_key)
        click.echo(exports, nl=False)
        places = f"API on {local.api_url}, SSH gateway on {local.gateway_host}:{local.gateway_port}"
        messages.note(f"{PROGRAM}: {places}, isolation: {local.isolation.name}")
        where = f" --root {shlex.quote(str(root))}" if root else ""
        elsewhere = f'in another terminal: eval "$({PROGRAM} env{where})"'
        messages.note(f"{PROGRAM}: sandboxes in '{local.root}'; end with Ctrl-C; {elsewhere}")
        with _key_file(env_file, exports) if env_file else contextlib.nullcontext():
            ended.wait()


@click.command("env")
@root_option
def env_(root: Path | None) -> None:
    """Print what to export for the Daytona that 'serve' runs: eval "$(daytona-local env)"."""
    from git_daytona.local.core.ports import api_url
    from git_daytona.local.core.store import Store

    store = Store(root or paths.local_root())
    if not store.is_in_use():
        hint = f"start one: {PROGRAM} serve"
        raise GitDaytonaError(f"no {PROGRAM} runs on '{store.root}'", hint=hint)
    click.echo(_exports(api_url(store.ports()[0]), store.api_key()), nl=False)


@click.command(
    "exec",
    context_settings=options.PASSING_ON,
    options_metavar="[--root DIR] [--isolation MODE] [--like SERVER] --",
)
@root_option
@isolation_option
@like_option
@options.command
def execute(root: Path | None, command: tuple[str, ...], **server: Any) -> int:
    """Run COMMAND with a Daytona of its own, and exit with its status.

    DAYTONA_API_URL and DAYTONA_API_KEY are set for it. Without --root, everything is thrown away
    afterwards; what was done in sessions is brought back to their branches before.
    """
    with (
        contextlib.nullcontext(root) if root else _temporary() as directory,
        handling(ENDING, unwind),
        _server(directory, **server) as local,
    ):
        kept = {name: value for name, value in os.environ.items() if name not in CONTRADICTING}
        told = sys.stderr is not None and sys.stderr.isatty()
        if told:
            own = f"a Daytona of its own here, on {local.api_url}"
            messages.note(f"{PROGRAM}: git daytona uses {own}, until this command ends")
        before = charge.background()
        if before is not None:
            messages.warning(PROGRAM, f"{before} does not see this Daytona; {APART}")
        try:
            return _run(command, kept | _variables(local))
        finally:
            if root is None and _clear(local) and told:
                messages.note(f"{PROGRAM}: that Daytona is gone, and nothing of it is left")
            after = charge.background()
            if after is not None and after != before:
                messages.warning(PROGRAM, f"{after} may still point to this Daytona; {APART}")


def _clear(local: "LocalDaytona") -> bool:
    """Let nothing of a Daytona stay where its command has worked; tell whether nothing does."""
    pinned = b""
    with contextlib.suppress(OSError):
        pinned = paths.pin_file().read_bytes()
    if not local.sandboxes and f" from {local.api_url} on ".encode() not in pinned:
        return True
    from git_daytona.base.endpoint import Endpoint
    from git_daytona.cli import leftovers

    gateway = Endpoint(local.gateway_host, local.gateway_port)
    ids = {sandbox.id for sandbox in local.sandboxes}
    return leftovers.clear(
        ids, gateway, _variables(local), lambda line: messages.note(f"{PROGRAM}: {line}")
    )


def isolation_here() -> str:
    """Find the isolation that sandboxes would have here (``plain``: none), for the doctor."""
    from git_daytona.local.isolation.choose import choose

    # Where nothing isolates, choose() says so on stderr: here that is the answer, not a warning.
    with _temporary() as folder, contextlib.redirect_stderr(io.StringIO()):
        return choose(folder).name


@contextmanager
def embedded(root: Path) -> "Iterator[Embedded]":
    """A Daytona for ``git daytona doctor --live``."""
    from git_daytona.doctor.live import Embedded

    # What the sandboxes are isolated with is another check's.
    with contextlib.ExitStack() as stack:
        with contextlib.redirect_stderr(io.StringIO()):
            local = stack.enter_context(_server(root, isolation="auto", like="cloud"))
        from git_daytona.local.api.snapshots import DEFAULT_SNAPSHOT

        variables = _variables(local) | {"DAYTONA_SNAPSHOT": DEFAULT_SNAPSHOT}
        yield Embedded(variables, lambda: len(local.sandboxes))


def _variables(local: "LocalDaytona") -> dict[str, str]:
    return {"DAYTONA_API_URL": local.api_url, "DAYTONA_API_KEY": local.api_key}


def _exports(url: str, key: str) -> str:
    return f"export DAYTONA_API_URL={shlex.quote(url)}\nexport DAYTONA_API_KEY={shlex.quote(key)}\n"


@contextmanager
def _temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="daytona-local-", ignore_cleanup_errors=True) as path:
        yield Path(path)


class _Warnings(logging.Handler):
    """Shows the server's warnings on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        messages.warning(PROGRAM, record.getMessage())


@contextmanager
def _server(
    root: Path, *, isolation: str, like: str, port: int = 0, gateway_port: int = 0
) -> "Iterator[LocalDaytona]":
    """A running server; what hinders it becomes an error for people."""
    from git_daytona.local.core.model import ApiError
    from git_daytona.local.core.store import RootInUse

    with key_out_of_environment():
        from git_daytona.local.server import LocalDaytona

    local = LocalDaytona(
        root, api_port=port, gateway_port=gateway_port, isolation=isolation, like=like
    )
    logger, handler = logging.getLogger("git_daytona.local"), _Warnings(logging.WARNING)
    with contextlib.ExitStack() as stack:
        logger.addHandler(handler)
        stack.callback(logger.removeHandler, handler)
        try:
            stack.enter_context(local)
        except RootInUse as error:
            hint = "use it, end it, or give this one another --root"
            raise GitDaytonaError(str(error), hint=hint) from error
        except ApiError as error:
            raise BadSetting(error.message, hint="use '--isolation auto'") from error
        except OSError as error:
            named = f"'{error.filename}': " if error.filename else ""
            raise BadSetting(
                f"cannot start on '{root}': {named}{error.strerror or error}",
                hint="give another --root, --port or --gateway-port",
            ) from error
        yield local


def _run(command: tuple[str, ...], environment: Mapping[str, str]) -> int:
    """The command's exit status; 128 and the signal's number when one ended it."""
    try:
        return run.foreground(command, environment)
    except MissingProgram as problem:
        messages.error(PROGRAM, problem)
        missing = isinstance(problem.__cause__, FileNotFoundError | NotADirectoryError)
        return NOT_FOUND if missing else NOT_EXECUTABLE


@contextmanager
def _key_file(path: Path, content: str) -> Iterator[None]:
    """The file holds the key: private at birth, and gone at the end."""
    from git_daytona.local.core.store import write_private

    try:
        write_private(path, content.encode())
    except OSError as error:
        hint = "give another --env-file"
        raise BadSetting(f"cannot write '{path}': {error.strerror}", hint=hint) from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
