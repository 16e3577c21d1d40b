"""`daytona-local`: the embedded Daytona as a command. Heavy imports (the server) wait until a
subcommand needs them."""

import contextlib
import io
import logging
import os
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from git_daytona import __version__
from git_daytona.base import messages, paths
from git_daytona.base.errors import BadSetting, GitDaytonaError
from git_daytona.base.secret import key_out_of_environment

if TYPE_CHECKING:
    from git_daytona.doctor.live import Embedded
    from git_daytona.local.server import LocalDaytona

PROGRAM = "daytona-local"
NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit statuses of `exec` for a command that cannot be run, as of a shell."""

CONTRADICTING = ("DAYTONA_SERVER_URL", "DAYTONA_JWT_TOKEN", "DAYTONA_ORGANIZATION_ID")
"""Variables that would make the SDKs ignore the URL or the key that `exec` sets."""

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FORWARDED = (*ENDING, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH)

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


@click.group(name=PROGRAM, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", message=f"{PROGRAM} %(version)s")
def cli() -> None:
    """A Daytona of your own on loopback: API, toolbox and SSH gateway. Sandboxes are directories of
    this machine."""


@cli.command()
@root_option
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port of the API; 0: the last one, or any.",
)
@click.option(
    "--gateway-port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port of the SSH gateway, likewise.",
)
@isolation_option
@like_option
@click.option(
    "--env-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write what to export to FILE, too (mode 0600), once everything listens; removed at the "
    "end.",
)
def serve(
    root: Path | None,
    port: int,
    gateway_port: int,
    isolation: str,
    like: str,
    env_file: Path | None,
) -> None:
    """Run until Ctrl-C. Prints what to export; then, in another terminal: eval "$(that)"."""
    ended = threading.Event()
    with (
        _warnings(),
        _signals(ENDING, lambda number: ended.set()),
        _server(root or paths.local_root(), isolation, like, port, gateway_port) as local,
    ):
        exports = "".join(
            f"export {name}={shlex.quote(value)}\n" for name, value in _variables(local).items()
        )
        click.echo(exports, nl=False)
        gateway = f"{local.gateway_host}:{local.gateway_port}"
        messages.note(
            f"{PROGRAM}: API on {local.api_url}, SSH gateway on {gateway}, isolation: "
            f"{local.isolation.name}"
        )
        messages.note(f"{PROGRAM}: sandboxes in '{local.root}'; end with Ctrl-C")
        with _file(env_file, exports):
            ended.wait()


@cli.command(
    "exec",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[--root DIR] [--isolation MODE] [--like SERVER] --",
)
@root_option
@isolation_option
@like_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(root: Path | None, isolation: str, like: str, command: tuple[str, ...]) -> None:
    """Run COMMAND with a Daytona of its own, and exit with its status.

    DAYTONA_API_URL and DAYTONA_API_KEY are set for it. Without --root, everything is thrown away
    afterwards.
    """
    with (
        _warnings(),
        _root(root) as directory,
        _signals(ENDING, _unwind),
        _server(directory, isolation, like) as local,
    ):
        environment = {
            name: value for name, value in os.environ.items() if name not in CONTRADICTING
        }
        status = _run(command, environment | _variables(local))
    raise SystemExit(status)


def isolation_here() -> str:
    """The kind of isolation that sandboxes would have here (``plain``: none), for ``git daytona
    doctor``."""
    from git_daytona.local.isolation.choose import choose

    # Where nothing isolates, choose() says so on stderr: here that is the answer, not a warning.
    with (
        tempfile.TemporaryDirectory(prefix="daytona-local-") as folder,
        contextlib.redirect_stderr(io.StringIO()),
    ):
        return choose(Path(folder)).name


@contextmanager
def embedded(root: Path) -> "Iterator[Embedded]":
    """A Daytona for ``git daytona doctor --live``."""
    from git_daytona.doctor.live import Embedded

    # What the sandboxes are isolated with is another check's.
    with contextlib.ExitStack() as stack:
        with contextlib.redirect_stderr(io.StringIO()):
            local = stack.enter_context(_server(root, "auto", "cloud"))
        from git_daytona.local.api.snapshots import DEFAULT_SNAPSHOT

        variables = _variables(local) | {"DAYTONA_SNAPSHOT": DEFAULT_SNAPSHOT}
        yield Embedded(variables, lambda: len(local.sandboxes))


def _variables(local: "LocalDaytona") -> dict[str, str]:
    return {"DAYTONA_API_URL": local.api_url, "DAYTONA_API_KEY": local.api_key}


@contextmanager
def _server(
    root: Path, isolation: str, like: str, port: int = 0, gateway_port: int = 0
) -> "Iterator[LocalDaytona]":
    """A running server; what hinders it becomes an error for people."""
    from git_daytona.local.core.model import ApiError
    from git_daytona.local.core.store import RootInUse

    with key_out_of_environment():
        from git_daytona.local.server import LocalDaytona

    local = LocalDaytona(
        root, api_port=port, gateway_port=gateway_port, isolation=isolation, like=like
    )
    try:
        local.__enter__()
    except RootInUse as error:
        raise GitDaytonaError(
            str(error), hint="use it, end it, or give this one another --root"
        ) from error
    except ApiError as error:
        raise BadSetting(error.message, hint="use '--isolation auto'") from error
    except OSError as error:
        named = f"'{error.filename}': " if error.filename else ""
        raise BadSetting(
            f"cannot start on '{root}': {named}{error.strerror or error}",
            hint="give another --root, --port or --gateway-port",
        ) from error
    try:
        yield local
    finally:
        local.__exit__(None, None, None)


@contextmanager
def _root(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(
        prefix="daytona-local-", ignore_cleanup_errors=True
    ) as directory:
        yield Path(directory)


def _run(command: tuple[str, ...], environment: Mapping[str, str]) -> int:
    """The command's exit status; 128 and the signal's number when one ended it.

    It stays in our process group and has our terminal, so Ctrl-C and Ctrl-Z reach it by themselves;
    signals that are sent to us alone are passed on.
    """
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def forward(number: int) -> None:
        if number in FROM_TERMINAL and _in_foreground():
            return
        if child is None:
            early.append(number)
        else:
            child.send_signal(number)

    with _signals(FORWARDED, forward):
        try:
            # Not by run.py: that one is for children without a terminal, and with a limit of time.
            child = subprocess.Popen(command, env=environment)
        except (FileNotFoundError, NotADirectoryError) as error:
            return _cannot_run(command[0], error, NOT_FOUND)
        except OSError as error:
            return _cannot_run(command[0], error, NOT_EXECUTABLE)
        for number in early:
            child.send_signal(number)
        status = child.wait()
    return status if status >= 0 else 128 - status


def _cannot_run(program: str, error: OSError, status: int) -> int:
    messages.error(
        PROGRAM,
        GitDaytonaError(
            f"cannot run '{program}': {error.strerror}", hint="check its name and PATH"
        ),
    )
    return status


def _in_foreground() -> bool:
    """Whether the terminal sends its signals to our process group, and so to the child."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _unwind(number: int) -> None:
    raise SystemExit(128 + number)


@contextmanager
def _signals(numbers: tuple[signal.Signals, ...], act: Callable[[int], None]) -> Iterator[None]:
    """Meet these signals so for a while. One that is ignored stays so (nohup)."""

    def handle(number: int, frame: FrameType | None) -> None:
        act(number)

    before = {number: signal.getsignal(number) for number in numbers}
    for number, earlier in before.items():
        if earlier is not signal.SIG_IGN:
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def _file(path: Path | None, content: str) -> Iterator[None]:
    """The file holds the key: private at birth, and gone at the end."""
    if path is None:
        yield
        return
    from git_daytona.local.core.store import write_private

    try:
        write_private(path, content.encode())
    except OSError as error:
        raise BadSetting(
            f"cannot write '{path}': {error.strerror}", hint="give another --env-file"
        ) from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


class _Talk(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        messages.warning(PROGRAM, record.getMessage())


@contextmanager
def _warnings() -> Iterator[None]:
    """Show the server's warnings on stderr."""
    logger, handler = logging.getLogger("git_daytona.local"), _Talk(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
