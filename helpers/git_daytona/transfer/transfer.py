"""One push or fetch = trust + lease + ssh environment + git. Nothing else in the suite talks to a
sandbox over SSH."""

import contextlib
import importlib.util
import os
import re
import shlex
import signal
import struct
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from git_daytona import ssh
from git_daytona.api.cloud import Cloud, SshAccess
from git_daytona.base import log
from git_daytona.base.errors import (
    BadSetting,
    ConnectionClosed,
    GitDaytonaError,
    HostKeyRefused,
    MissingProgram,
    SandboxNotRunning,
    TimedOut,
    TransferFailed,
)
from git_daytona.base.run import Limits, Result, run
from git_daytona.base.secret import Secret, printable
from git_daytona.base.threads import concurrently
from git_daytona.git import environment
from git_daytona.git.refs import url
from git_daytona.git.repository import Repository, failure
from git_daytona.settings import preferences
from git_daytona.settings.preferences import MAX_FETCH_SIZE
from git_daytona.settings.settings import Settings
from git_daytona.transfer import leases
from git_daytona.transfer.connection_report import Pipe, Report
from git_daytona.trust.gateway import Policy, Trust

TRANSFER_SECONDS = 3600.0
IDLE_SECONDS = 120.0
"""A transfer is ended when git reports no progress for this long; it reports every second while
anything moves."""
TALK_BYTES = 4 * 1024 * 1024
"""What git and the sandbox behind it may print in one transfer. git's own progress of an hour is a
tenth of that."""
MEMORY_BYTES = max(1024**3, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
"""What each of git's processes may hold, mapped files not counted: git reads the list of refs, and
a message without an end, into it."""

# A line of the user's own ssh configuration that ssh cannot read (readconf.c has both forms; no way
# out of it by trying again).
_CONFIGURATION = re.compile(r"^(/.*?):? (line \d+): (.*)$", re.MULTILINE)
# What the sandbox's side says on its stderr or in git's side band (both come as "remote: …"), what
# has happened, and what to do. First match wins. Its git runs in the C locale.
_REMOTE = tuple(
    (re.compile(rf"^remote: .*(?:{words})", re.MULTILINE), message, hint)
    for words, message, hint in (
        (
            "git: (?:command )?not found",
            "git is not installed in the sandbox",
            "install it there, or use a snapshot that has it: git daytona config daytona.snapshot",
        ),
        (
            "dubious ownership",
            "the sandbox's git refuses its repository, which belongs to another user there",
            'give it to the user who runs git: git daytona exec N -- chown -R "$(id -u)" .',
        ),
        (
            "does not appear to be a git repository|not a git repository",
            "the sandbox has no repository any more",
            "'git daytona sync N' makes it again",
        ),
        (
            "No space left on device|[Dd]isk quota exceeded",
            "the sandbox's disk is full",
            "make room there: git daytona exec N -- df -h; its work is still in it",
        ),
        (
            "[Oo]ut of memory|Cannot allocate memory",
            "the sandbox ran out of memory",
            "end what runs there: git daytona exec N -- ps aux; or use a larger snapshot",
        ),
    )
)

# The server's side of git, with what its repository needs for being pushed to and for "dubious
# ownership" (the SSH side may be another user than the toolbox): given with the command, so that
# nothing of it has to be configured, or can be changed, in the sandbox. The gateway takes no
# environment: what is needed of that stands in the command, too (the wrapper adds GIT_PROTOCOL).
_SERVER = "LC_ALL=C git -c 'safe.directory=*' -c core.hooksPath=/dev/null -c receive.autogc=false"
UPLOAD_PACK = f"{_SERVER} upload-pack"
RECEIVE_PACK = (
    f"{_SERVER} -c receive.denyCurrentBranch=updateInstead -c receive.shallowUpdate=true -c receive.denyNonFastForwards=true"
    " -c receive.certNonceSeed= -c receive.fsckObjects=false receive-pack"
)


@dataclass
class Transfers:
    """Pushes and fetches of one process. Safe for many threads."""

    settings: Settings
    cloud: Cloud
    policy: Policy
    _revocations: list[threading.Thread] = field(default_factory=list)

    def fetch(
        self,
        repository: Repository,
        sandbox_id: str,
        refspecs: Sequence[str],
        *,
        show: bool = False,
    ) -> Trust:
        """Fetch by explicit refspecs, objects checked, nothing else written: no FETCH_HEAD, no
        tags, no submodules.

        Returns the trust it was made under. Raises TransferFailed and its kinds, HostKeyRefused,
        and what minting raises.
        """
        return self._transfer(
            repository,
            sandbox_id,
            "fetch",
            (
                "--no-tags",
                "--no-write-fetch-head",
                "--no-recurse-submodules",
                "--no-auto-maintenance",
                "--refmap=",
                "--prune",
            ),
            f"--upload-pack={UPLOAD_PACK}",
            refspecs,
            show,
        )

    def push(
        self,
        repository: Repository,
        sandbox_id: str,
        refspecs: Sequence[str],
        *,
        show: bool = False,
        ahead: "Ahead | None" = None,
    ) -> Trust:
        """Push by explicit refspecs, without hooks, signatures, tags or submodules; fast-forward
        only unless a refspec has a ``+``.

        The first try uses the lease ``ahead``, if there is one.
        """
        arguments = (
            "--no-verify",
            "--no-signed",
            "--no-follow-tags",
            "--no-recurse-submodules",
            "--porcelain",
        )
        return self._transfer(
            repository,
            sandbox_id,
            "push",
            arguments,
            f"--receive-pack={RECEIVE_PACK}",
            refspecs,
            show,
            ahead,
        )

    @contextlib.contextmanager
    def ahead(self, repository: Repository, sandbox_id: str) -> Iterator["Ahead"]:
        """A lease that is begun now, in a thread, for a push that comes within the block. One that
        was not used ends with the block."""
        _check_address(configuration(repository), url(self.check().endpoint))
        leased = contextlib.ExitStack()
        with concurrently(
            lambda: leased.enter_context(self.lease(sandbox_id, background=True))
        ) as beside:
            ahead = Ahead(leased, beside)
            try:
                yield ahead
            finally:
                ahead.drop()

    def drain(self) -> None:
        """Wait for revocations that are still under way."""
        while under_way := list(self._revocations):
            for thread in under_way:
                thread.join()

    def check(self) -> Trust:
        """Everything that can be refused before a token is minted: the ssh client, the host keys.
        Returns the default trust."""
        try:
            ssh.find_ssh(self.settings.ssh_binary or "", os.environ.get("PATH", ""))
        except ssh.Refusal as problem:
            raise MissingProgram(problem.message, hint=problem.hint) from None
        return self.policy.default()

    @contextlib.contextmanager
    def lease(
        self, sandbox_id: str, *, background: bool = False
    ) -> Iterator[tuple[SshAccess, Trust]]:
        """A token and the trust for the gateway that takes it, while the block runs."""
        trust = self.check()
        with leases.lease(
            self.cloud, sandbox_id, background=self._revocations if background else None
        ) as access:
            if access.endpoint is not None and access.endpoint != trust.endpoint:
                trust = self.policy.for_endpoint(access.endpoint)
            yield access, trust

    # -- inside ------------------------------------------------------------------------------------

    def _transfer(
        self,
        repository: Repository,
        sandbox_id: str,
        verb: str,
        options: Sequence[str],
        server: str,
        refspecs: Sequence[str],
        show: bool,
        ahead: "Ahead | None" = None,
    ) -> Trust:
        attempts = 0

        def attempt() -> Trust:
            nonlocal attempts
            attempts += 1
            # told apart only now: twice closed is no longer a gateway that has just started (FACTS)
            if attempts == 3:
                self._need_running(sandbox_id)
            # before anything is minted, and so is the gateway's key
            theirs = configuration(repository)
            _check_address(theirs, url(self.check().endpoint))
            leased = (
                ahead.take() if ahead and attempts == 1 else self.lease(sandbox_id, background=True)
            )
            with leased as (access, trust):
                event.update(gateway=trust.endpoint, attempt=attempts)
                self._once(
                    repository, access.token, trust, theirs, verb, options, server, refspecs, show
                )
                return trust

        with log.event(f"git.{verb}", sandbox=sandbox_id) as event:
            # What minting raises was tried again already, inside the lease.
            return leases.patiently(attempt, kinds=(TransferFailed, HostKeyRefused))

    def _need_running(self, sandbox_id: str) -> None:
        info = self.cloud.get(sandbox_id)
        if info.state != "started":
            raise SandboxNotRunning(
                f"the sandbox is {info.state}", hint="'git daytona exec N -- true' starts it"
            )

    def _once(
        self,
        repository: Repository,
        token: Secret,
        trust: Trust,
        theirs: Sequence[tuple[str, str]],
        verb: str,
        options: Sequence[str],
        server: str,
        refspecs: Sequence[str],
        show: bool,
    ) -> None:
        address = url(trust.endpoint)
        # of another gateway, perhaps, than was known before the token was minted
        _check_address(theirs, address)
        shield = [f"url.{address}.insteadOf={address}", f"url.{address}.pushInsteadOf={address}"]
        keys = {key for key, _ in theirs}
        # a program that git would start, with the token in reach (git-config(1))
        if "core.alternaterefscommand" in keys:
            shield.append("core.alternateRefsCommand=:")
        most = (
            preferences.load(repository.existing_dir).max_fetch_bytes()
            if MAX_FETCH_SIZE.lower() in keys
            else preferences.FETCH_BYTES
        )
        limits = Limits(TALK_BYTES, most, MEMORY_BYTES)
        with inheritable(token) as descriptor, lifeline() as pipe, Pipe() as told:
            env = environment.base() | ssh_environment(self.settings, trust, theirs)
            env |= {"DAYTONA_SSH_TOKEN_FD": str(descriptor), "DAYTONA_SSH_LIFELINE_FD": str(pipe)}
            env["DAYTONA_SSH_REPORT_FD"] = str(told.writing)
            settings = environment.config_arguments((*environment.TRANSFER_CONFIG, *shield))
            # A worktree is the current directory of what we run: of nothing, if it is gone
            # meanwhile.
            place = ("--git-dir", str(repository.existing_dir))
            argv = (
                "git",
                *place,
                *settings,
                verb,
                "--progress",
                *options,
                server,
                "--",
                address,
                *refspecs,
            )
            before = leftovers(repository)
            try:
                result = run(
                    argv,
                    env=env,
                    timeout=TRANSFER_SECONDS,
                    idle=IDLE_SECONDS,
                    show=show,
                    pass_fds=(descriptor, pipe, told.writing),
                    limits=limits,
                )
            except TimedOut:
                remove_leftovers(repository, before)
                raise
            report = told.report()
        if result.status != 0:
            largest = remove_leftovers(repository, before)
            if largest >= most or f"died of signal {int(signal.SIGXFSZ)}" in result.complaint:
                raise TransferFailed(
                    f"the sandbox sent more than {most >> 10} KiB at once, which was refused",
                    hint=f"see what is in it; if it is meant: git config {MAX_FETCH_SIZE} 16g",
                    details=result.complaint,
                )
            raise self._explain(result, report, trust, verb)

    def _explain(self, result: Result, report: Report, trust: Trust, verb: str) -> GitDaytonaError:
        text = result.complaint
        # The wrapper knows for certain whether the sandbox's side ended by itself (ssh.py, Ending).
        cut = report.entry == ConnectionClosed.entry
        if report.entry and not cut:
            return TransferFailed(report.message, hint=report.hint, details=text)
        if wrong := _CONFIGURATION.search(report.said):
            return BadSetting(
                f"your ssh configuration cannot be used: '{wrong[1]}' {wrong[2]}: {printable(wrong[3])}",
                hint="mend that line; 'ssh -G localhost' shows whether ssh can read it",
                details=text,
            )
        refused: HostKeyRefused | None = self.policy.refusal(trust, report.said)
        if refused is not None:
            return refused
        for words, message, hint in _REMOTE:
            if words.search(text):
                return TransferFailed(message, hint=hint, details=text)
        rejected = [line for line in result.text.splitlines() if line.startswith("!")]
        if rejected and not cut:
            reason = printable(rejected[0].split("\t")[-1])
            hint = (
                "fetch first: git daytona sync N"
                if "fast-forward" in reason or "fetch first" in reason
                else "the log has all that git said"
            )
            return TransferFailed(
                f"git push was rejected by the sandbox: {reason}", hint=hint, details=text
            )
        if cut:
            return ConnectionClosed(
                f"git {verb} failed: the gateway {trust.endpoint} did not answer or closed the connection",
                hint="check the network; 'git daytona status' shows whether the sandbox runs",
                details=text,
            )
        return failure(result, f"git {verb} failed")


class Ahead:
    """A lease that was begun ahead of its use (Transfers.ahead)."""

    def __init__(
        self, leased: contextlib.ExitStack, beside: "Future[tuple[SshAccess, Trust]]"
    ) -> None:
        self._leased, self._beside = leased, beside

    @contextlib.contextmanager
    def take(self) -> Iterator[tuple[SshAccess, Trust]]:
        """Use it: it ends with the block. Raises what kept it from being had."""
        with self._leased:
            yield self._beside.result()

    def drop(self) -> None:
        """End it if it was not used."""
        with contextlib.suppress(GitDaytonaError):
            self._beside.result()
        self._leased.close()


def configuration(repository: Repository) -> list[tuple[str, str]]:
    """What git's configuration, of whatever file, has of the keys that matter here (in lower case);
    a key may come several times."""
    pattern = (
        r"^(url\..*\.(insteadof|pushinsteadof)|remote\..*://.*|core\.(sshcommand|alternaterefscommand)|ssh\.variant"
        rf"|{re.escape(MAX_FETCH_SIZE.lower())})$"
    )
    argv = (
        "git",
        "--git-dir",
        str(repository.existing_dir),
        "config",
        "-z",
        "--get-regexp",
        pattern,
    )
    result = run(argv, env=environment.base(), timeout=60)
    if result.status not in (0, 1):
        raise failure(result, "git cannot read its configuration")
    return [
        (key, value)
        for key, _, value in (entry.partition("\n") for entry in result.text.split("\0"))
        if key
    ]


def _check_address(theirs: Iterable[tuple[str, str]], address: str) -> None:
    """The URL that git really uses must be ours. The shield in ``_once`` rewrites the whole URL to
    itself, and the longest rule wins; only a rule of the user's for exactly this URL is as long
    (CASES 14). Nor may a remote have the URL for its name: git would take that one's URL for
    pushes, its programs and its refspecs. Raises BadSetting."""
    for key, value in theirs:
        if key.startswith("url.") and value == address:
            raise BadSetting(
                f"git's configuration rewrites the sandbox's URL: {printable(key)}",
                hint="remove that rule: git config --show-origin -l",
            )
        if key.startswith(f"remote.{address}."):
            raise BadSetting(
                f"git's configuration has a remote that is named like the sandbox's URL: {printable(key)}",
                hint="remove it: git config --show-origin -l",
            )


def ssh_environment(
    settings: Settings,
    trust: Trust,
    theirs: Iterable[tuple[str, str]],
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The variables that make git use ``daytona-ssh`` for the gateway and the user's own ssh, as
    ``configuration`` found it, for every other host; no token."""
    source = os.environ if environ is None else environ
    # The interpreter that runs us and the wrapper's own file: what PATH holds, or who installed
    # what where, does not matter.
    wrapper = shlex.join((sys.executable, "-I", "-S", "-B", str(_wrapper())))
    env = {
        "GIT_SSH_COMMAND": wrapper,
        "GIT_SSH_VARIANT": "ssh",
        "DAYTONA_SSH_GATEWAY": trust.endpoint.known_hosts_name
        if ":" in trust.endpoint.host
        else trust.endpoint.url_authority,
    }
    if ":" in trust.endpoint.host:
        env["DAYTONA_SSH_GATEWAY"] = f"[{trust.endpoint.host}]:{trust.endpoint.port}"
    if trust.known_hosts is not None:
        env["DAYTONA_SSH_TRUST_FILE"] = str(trust.known_hosts)
    if trust.alias is not None:
        env["DAYTONA_SSH_TRUST_NAME"] = trust.alias
    if settings.ssh_binary:
        env["DAYTONA_SSH_BINARY"] = settings.ssh_binary
    last = dict(theirs)
    return env | environment.user_ssh(source, last.get("core.sshcommand"), last.get("ssh.variant"))


def leftovers(repository: Repository) -> set[Path]:
    """The packs and objects that some git has begun to write."""
    objects = repository.common_dir / "objects"
    return {*objects.glob("pack/tmp_*"), *objects.glob("tmp_*")}


def remove_leftovers(repository: Repository, before: set[Path]) -> int:
    """Remove what a fetch that failed left half-written: git itself does after two weeks, and a
    sandbox may send gigabytes each time. Returns the size of the largest in bytes.

    Another git's files stay: those that were there before, and those that somebody has open. Where
    that cannot be seen (no /proc), all stay.
    """
    new, largest = leftovers(repository) - before, 0
    if not new or not Path("/proc/self/fd").is_dir():
        return largest
    opened = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # another user's, or ended meanwhile
            opened.add(os.readlink(link))  # noqa: PTH115 — a text to compare
    for path in new:
        if str(path.resolve()) not in opened:
            with contextlib.suppress(OSError):
                largest = max(largest, path.stat().st_size)
                path.unlink()
    return largest


def _wrapper() -> Path:
    """The wrapper's file: as Python compiled it when we imported it, because compiling it anew
    takes longer than Python's own start; its source where there is no such file, or one of another
    time (a folder that cannot be written)."""
    source = Path(ssh.__file__).resolve()
    compiled = Path(importlib.util.cache_from_source(str(source)))
    try:
        with compiled.open("rb") as file:
            head, stat = file.read(16), source.stat()
    except OSError:
        return source
    # Its format: a magic number, flags (0: what follows), the source's time and size, 32 bits each
    # (PEP 552).
    made_of = (0, int(stat.st_mtime) & 0xFFFFFFFF, stat.st_size & 0xFFFFFFFF)
    return (
        compiled if head == importlib.util.MAGIC_NUMBER + struct.pack("<III", *made_of) else source
    )


@contextlib.contextmanager
def inheritable(token: Secret) -> Iterator[int]:
    """A descriptor that holds the token and that one child may inherit: it is in no argument list,
    environment or named file."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("daytona-token", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "r+b", buffering=0) as anonymous:
            anonymous.write(token.reveal().encode())
            yield anonymous.fileno()
    else:
        with tempfile.TemporaryFile(buffering=0) as unlinked:
            unlinked.write(token.reveal().encode())
            yield unlinked.fileno()


@contextlib.contextmanager
def lifeline() -> Iterator[int]:
    """The reading end of a pipe that ends when this process does, however it does: the wrapper then
    ends ssh, and git with it."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(writing)
        os.close(reading)
