"""What a child needs for one connection: the wrapper, the token, a lifeline and a report pipe."""

import contextlib
import os
import shlex
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from git_daytona.base import paths
from git_daytona.base.secret import Secret, redact
from git_daytona.git.environment import user_ssh
from git_daytona.settings.settings import Settings
from git_daytona.trust.gateway import Trust
from git_daytona.trust.presented import WRAPPER

REPORT_BYTES = 65536
"""All that is read of a report: what a pipe holds anyway."""


@dataclass(frozen=True)
class ConnectionEnd:
    """The end of the last connection, as ssh.py's _Report writes it; all empty without a report.

    ``entry`` is that of the error (base/errors.py), empty where the remote command came to its end,
    whatever its status; ``stderr`` the ssh client's own, redacted.
    """

    entry: str = ""
    message: str = ""
    hint: str = ""
    stderr: str = ""


class ReportPipe:
    """A pipe for what ``daytona-ssh`` reports, to which nothing else can write.

    git's stderr has it, too, for people; but there the sandbox has its say as well (a refusal of
    git's server may be of many lines), and what is done next must not hang on whose words look like
    whose. ``writing`` is for the child; ``close_writing`` once it has ended.
    """

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()

    def close(self) -> None:
        self.close_writing()
        os.close(self._reading)

    def close_writing(self) -> None:
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def end(self) -> ConnectionEnd:
        """Read the last end that has been reported so far."""
        # a process that nobody knows of may still hold the other end
        os.set_blocking(self._reading, False)
        records = b""
        with contextlib.suppress(BlockingIOError):
            while len(records) < REPORT_BYTES and (data := os.read(self._reading, REPORT_BYTES)):
                records += data
        fields = records.decode("utf-8", "replace").split("\0")
        ends = [at for at, field in enumerate(fields[:-5]) if field == "ended"]
        if not ends:
            return ConnectionEnd()
        entry, message, hint, stderr = fields[ends[-1] + 1 : ends[-1] + 5]
        return ConnectionEnd(entry, message, hint, redact(stderr.replace("\r\n", "\n")))

    def wait_for_begin(self) -> bool:
        """Wait until the remote command runs; False if all have closed the other end before."""
        return os.read(self._reading, REPORT_BYTES).startswith(b"begun\0")


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
    with inheritable(token) as descriptor, contextlib.closing(ReportPipe()) as report:
        # it ends when this process does, however it does: the wrapper then ends ssh, and git
        lifeline, writing = os.pipe()
        try:
            env = ssh_environment(settings, trust, configured) | {
                "DAYTONA_SSH_TOKEN_FD": str(descriptor),
                "DAYTONA_SSH_LIFELINE_FD": str(lifeline),
                "DAYTONA_SSH_REPORT_FD": str(report.writing),
            }
            yield Connection(env, (descriptor, lifeline, report.writing), report)
        finally:
            os.close(writing)
            os.close(lifeline)


def ssh_environment(
    settings: Settings, trust: Trust, configured: Iterable[tuple[str, str]]
) -> dict[str, str]:
    """Build the variables that make git use ``daytona-ssh`` for the gateway and the user's own ssh
    for every other host; no token."""
    env = {
        "GIT_SSH_COMMAND": shlex.join(WRAPPER),
        "GIT_SSH_VARIANT": "ssh",
        "DAYTONA_SSH_GATEWAY": trust.endpoint.url_authority,
        "DAYTONA_SSH_CLIENT_FILE": str(paths.own_state() / "ssh-client"),
    }
    if trust.known_hosts is not None:
        env["DAYTONA_SSH_TRUST_FILE"] = str(trust.known_hosts)
    if trust.alias is not None:
        env["DAYTONA_SSH_TRUST_NAME"] = trust.alias
    if settings.ssh_binary:
        env["DAYTONA_SSH_BINARY"] = settings.ssh_binary
    last = dict(configured)
    return env | user_ssh(os.environ, last.get("core.sshcommand"), last.get("ssh.variant"))


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
