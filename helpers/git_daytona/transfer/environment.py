"""What a child needs for one connection to a sandbox: the wrapper, the token, and the pipes by
which the wrapper notices our end and reports its own."""

import contextlib
import os
import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from git_daytona import ssh
from git_daytona.base.secret import Secret
from git_daytona.git.environment import user_ssh
from git_daytona.settings.settings import Settings
from git_daytona.transfer.report_pipe import ReportPipe
from git_daytona.trust.gateway import Trust


@dataclass(frozen=True)
class Connection:
    """A child's variables for one connection, and the descriptors that it has to inherit."""

    env: dict[str, str]
    pass_fds: tuple[int, ...]
    report: ReportPipe


@contextlib.contextmanager
def connection(
    settings: Settings, token: Secret, trust: Trust, configured: Iterable[tuple[str, str]] = ()
) -> Iterator[Connection]:
    """Keep the token and the pipes for one child open while the block runs.

    ``configured`` is what git's configuration has of the user's own ssh.
    """
    with (
        inheritable(token) as descriptor,
        _lifeline() as lifeline,
        contextlib.closing(ReportPipe()) as report,
    ):
        env = ssh_environment(settings, trust, configured) | {
            "DAYTONA_SSH_TOKEN_FD": str(descriptor),
            "DAYTONA_SSH_LIFELINE_FD": str(lifeline),
            "DAYTONA_SSH_REPORT_FD": str(report.writing),
        }
        yield Connection(env, (descriptor, lifeline, report.writing), report)


def ssh_environment(
    settings: Settings,
    trust: Trust,
    configured: Iterable[tuple[str, str]],
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Build the variables that make git use ``daytona-ssh`` for the gateway and the user's own ssh
    for every other host; no token."""
    # The interpreter that runs us and the wrapper's own file: what PATH holds, or who installed
    # what where, does not matter.
    env = {
        "GIT_SSH_COMMAND": shlex.join((sys.executable, "-I", "-S", "-B", ssh.__file__)),
        "GIT_SSH_VARIANT": "ssh",
        "DAYTONA_SSH_GATEWAY": trust.endpoint.url_authority,
    }
    if trust.known_hosts is not None:
        env["DAYTONA_SSH_TRUST_FILE"] = str(trust.known_hosts)
    if trust.alias is not None:
        env["DAYTONA_SSH_TRUST_NAME"] = trust.alias
    if settings.ssh_binary:
        env["DAYTONA_SSH_BINARY"] = settings.ssh_binary
    last = dict(configured)
    source = os.environ if environ is None else environ
    return env | user_ssh(source, last.get("core.sshcommand"), last.get("ssh.variant"))


@contextlib.contextmanager
def inheritable(token: Secret) -> Iterator[int]:
    """Give the token a descriptor that one child may inherit: it is in no argument list,
    environment or named file."""
    with (
        os.fdopen(os.memfd_create("daytona-token", os.MFD_CLOEXEC), "r+b", buffering=0)
        if hasattr(os, "memfd_create")
        else tempfile.TemporaryFile(buffering=0)
    ) as anonymous:
        anonymous.write(token.reveal().encode())
        yield anonymous.fileno()


@contextlib.contextmanager
def _lifeline() -> Iterator[int]:
    """Open the reading end of a pipe that ends when this process does, however it does: the wrapper
    then ends ssh, and git with it."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(writing)
        os.close(reading)
