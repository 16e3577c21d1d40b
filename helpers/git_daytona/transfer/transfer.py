"""One push or fetch = trust + lease + ssh environment + git. Nothing else transfers objects."""

import contextlib
import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path

from git_daytona import ssh
from git_daytona.api.cloud import Cloud, SshAccess
from git_daytona.base import errors, log
from git_daytona.base.run import Limits, Result, run
from git_daytona.base.secret import Secret, printable
from git_daytona.base.threads import concurrently
from git_daytona.git import environment
from git_daytona.git.refs import PROJECT, url
from git_daytona.git.repository import Repository, failure, to_bytes
from git_daytona.settings import preferences
from git_daytona.settings.preferences import MAX_FETCH_SIZE
from git_daytona.settings.settings import Settings
from git_daytona.transfer import failures, leases
from git_daytona.transfer.environment import connection
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

# Of git rev-parse --local-env-vars what leads git's server to another repository or index: the
# sandbox may have been ordered with it.
_LOCAL = (
    "DIR WORK_TREE INDEX_FILE OBJECT_DIRECTORY ALTERNATE_OBJECT_DIRECTORIES COMMON_DIR NAMESPACE"
    " CONFIG_COUNT CONFIG_PARAMETERS SHALLOW_FILE GRAFT_FILE REPLACE_REF_BASE EXEC_PATH"
)
# The server's side of git, with what its repository needs for being pushed to and for "dubious
# ownership" (the SSH side may be another user than the toolbox): given with the command, so that
# nothing of it has to be configured, or can be changed, in the sandbox. The gateway takes no
# environment: variables are part of the command, too (the wrapper adds GIT_PROTOCOL). git-lfs there
# has nothing to fetch from: its files are pointers until their objects come.
_HOOKS = (
    "reference-transaction pre-receive update proc-receive post-receive post-update"
    " push-to-checkout post-checkout post-index-change"
)
SERVER = "env -u LD_PRELOAD" + "".join(f" -u GIT_{name}" for name in _LOCAL.split())
SERVER += " LC_ALL=C GIT_LFS_SKIP_SMUDGE=1 git -c 'safe.directory=*' -c core.hooksPath=/dev/null"
SERVER += " -c receive.autogc=false"
SERVER += "".join(f" -c hook.{event}.enabled=false" for event in _HOOKS.split())
UPLOAD_PACK = f"{SERVER} upload-pack"
_RECEIVING = (
    f"{SERVER} -c receive.denyCurrentBranch=updateInstead -c receive.shallowUpdate=true"
    " -c receive.denyNonFastForwards=true -c receive.certNonceSeed="
    " -c receive.fsckObjects=false"
)
# Nothing else is written here: no FETCH_HEAD, no tags, no submodules.
_FETCH_OPTIONS = (
    "--progress --no-tags --no-write-fetch-head --no-recurse-submodules --no-auto-maintenance"
    " --refmap= --prune"
)
_FETCH = ("fetch", *_FETCH_OPTIONS.split(), f"--upload-pack={UPLOAD_PACK}", "--stdin")
_PUSH_OPTIONS = (
    "--progress --no-verify --no-signed --no-follow-tags --no-recurse-submodules --porcelain"
)
_PUSH = ("push", *_PUSH_OPTIONS.split())


Leased = contextlib.AbstractContextManager[tuple[SshAccess, Trust]]
"""A lease, and the trust for the gateway that takes its token."""


@dataclass(frozen=True)
class _Job:
    """What one git command shall do; ``blocked`` tells whether trying again is in vain."""

    repository: Repository
    command: tuple[str, ...]
    refspecs: Sequence[str]
    show: bool
    blocked: Callable[[], bool] = lambda: False
    place: str = PROJECT
    """Where the repository lies in the sandbox."""

    @property
    def arguments(self) -> list[str]:
        """The refspecs of a push, with git's bytes whatever the locale is."""
        return [os.fsdecode(to_bytes(each)) for each in self.refspecs if self.stdin is None]

    @property
    def stdin(self) -> bytes | None:
        """The refspecs of a fetch: no list of arguments holds thousands."""
        lines = "".join(f"{refspec}\n" for refspec in self.refspecs)
        return to_bytes(lines) if self.command[0] == "fetch" else None


@dataclass
class Transfers:
    """Pushes and fetches of one process. Safe for many threads."""

    settings: Settings
    cloud: Cloud
    policy: Policy
    _revocations: list[Future[None]] = field(default_factory=list)

    def fetch(
        self,
        repository: Repository,
        sandbox_id: str,
        refspecs: Sequence[str],
        *,
        show: bool = False,
        blocked: Callable[[], bool] = lambda: False,
        place: str = PROJECT,
    ) -> Trust:
        """Fetch by explicit refspecs, objects checked; returns the trust it was made under.

        ``blocked`` is asked before the last try. Raises Blocked, TransferFailed and its kinds,
        HostKeyRefused, and what minting raises.
        """
        return self._transfer(_Job(repository, _FETCH, refspecs, show, blocked, place), sandbox_id)

    def push(
        self,
        repository: Repository,
        sandbox_id: str,
        refspecs: Sequence[str],
        *,
        show: bool = False,
        ahead: Callable[[], Leased] | None = None,
        relaxed: Sequence[str] = (),
        blocked: Callable[[], bool] = lambda: False,
        place: str = PROJECT,
    ) -> Trust:
        """Push by explicit refspecs, without hooks, signatures, tags or submodules; fast-forward
        only unless a refspec has a ``+``. The first try uses the lease ``ahead``; the sandbox's
        checkout passes the ``relaxed`` filters by."""
        command = (*_PUSH, f"--receive-pack={receive_pack(relaxed)}")
        job = _Job(repository, command, refspecs, show, blocked, place)
        return self._transfer(job, sandbox_id, ahead)

    @contextlib.contextmanager
    def ahead(self, repository: Repository, sandbox_id: str) -> Iterator[Callable[[], Leased]]:
        """Begin a lease now, in a thread, for a push that comes within the block."""
        _check_address(configuration(repository, now=False), url(self.check().endpoint))
        lease = self.lease(sandbox_id, background=True)
        with (
            contextlib.ExitStack() as held,
            concurrently(lambda: held.enter_context(lease)) as begun,
        ):

            @contextlib.contextmanager
            def take() -> Iterator[tuple[SshAccess, Trust]]:
                with held:
                    yield begun.result()

            yield take

    def drain(self) -> None:
        """Wait for revocations that are still under way."""
        wait(list(self._revocations))

    def check(self) -> Trust:
        """Check all that can be refused before a token is minted: the ssh client, the host keys.
        Returns the default trust."""
        try:
            ssh.find_ssh(self.settings.ssh_binary or "", os.environ.get("PATH", ""))
        except ssh.Refusal as problem:
            raise errors.MissingProgram(problem.message, hint=problem.hint) from None
        return self.policy.default()

    @contextlib.contextmanager
    def lease(
        self, sandbox_id: str, *, background: bool = False
    ) -> Iterator[tuple[SshAccess, Trust]]:
        """Hold a token and the trust for the gateway that takes it, while the block runs."""
        trust = self.check()
        revocations = self._revocations if background else None
        with leases.lease(self.cloud, sandbox_id, background=revocations) as access:
            if access.endpoint is not None and access.endpoint != trust.endpoint:
                trust = self.policy.for_endpoint(access.endpoint)
            yield access, trust

    def _transfer(
        self, job: _Job, sandbox_id: str, ahead: Callable[[], Leased] | None = None
    ) -> Trust:
        attempts = 0

        def attempt() -> Trust:
            nonlocal attempts
            attempts += 1
            # only now: twice closed is no longer a gateway that has just started
            if attempts == 3 and job.blocked():
                raise failures.Blocked(
                    f"the gateway {self.policy.endpoint()} does not answer",
                    hint="check the network; or go another way: git config daytona.transport api",
                )
            if attempts == 3 and (state := self.cloud.get(sandbox_id).state) != "started":
                raise errors.SandboxNotRunning(
                    f"the sandbox is {state}", hint="'git daytona exec N -- true' starts it"
                )
            # before anything is minted, and so is the gateway's key
            configured = configuration(job.repository)
            _check_address(configured, url(self.check().endpoint, job.place))
            early = ahead if attempts == 1 else None
            with early() if early else self.lease(sandbox_id, background=True) as (access, trust):
                event.update(gateway=trust.endpoint, attempt=attempts)
                self._once(job, access.token, trust, configured)
                return trust

        with log.event(f"git.{job.command[0]}", sandbox=sandbox_id) as event:
            # What minting raises was tried again already, inside the lease.
            return leases.patiently(attempt, kinds=(errors.TransferFailed, errors.HostKeyRefused))

    def _once(
        self, job: _Job, token: Secret, trust: Trust, configured: Sequence[tuple[str, str]]
    ) -> None:
        address = url(trust.endpoint, job.place)
        # of another gateway, perhaps, than was known before the token was minted
        _check_address(configured, address)
        shield = [f"url.{address}.insteadOf={address}", f"url.{address}.pushInsteadOf={address}"]
        # a program that git would start, with the token in reach (git-config(1))
        if "core.alternaterefscommand" in (key for key, _ in configured):
            shield.append("core.alternateRefsCommand=:")
        with connection(self.settings, token, trust, configured) as connected:
            env = environment.reset(key for key, _ in configured) | connected.env
            result = _git(job, address, shield, env, connected.pass_fds)
            end = connected.report.end()
        if result.status != 0:
            raise failures.explain(result, end, trust, job.command[0], self.policy)

    def take(
        self, repository: Repository, source: Path, refspecs: Sequence[str], *, show: bool = False
    ) -> None:
        """Fetch from a repository of ours by explicit refspecs, with all checks of a fetch from a
        sandbox. Raises TransferFailed."""
        # what the user's policy says of protocols is about others' repositories
        own = ("protocol.file.allow=always", "core.alternateRefsCommand=:")
        env = environment.reset(key for key, _ in configuration(repository))
        result = _git(_Job(repository, _FETCH, refspecs, show), str(source), own, env)
        if result.status != 0:
            raise failure(result, "git fetch failed")


def receive_pack(relaxed: Sequence[str] = ()) -> str:
    """Build the command of git's server for a push; its checkout passes the ``relaxed`` filters
    by."""
    keys = [f"filter.{name}.{key}" for name in relaxed for key in ("process=", "required=false")]
    return " ".join((_RECEIVING, *environment.config_arguments(tuple(keys)), "receive-pack"))


def _git(
    job: _Job,
    address: str,
    settings: Sequence[str],
    env: Mapping[str, str],
    pass_fds: Sequence[int] = (),
) -> Result:
    """Run git's part of a transfer; nothing half-written stays. Raises TransferFailed for a fetch
    that is too large, TimedOut."""
    # A worktree is the current directory of what we run: of nothing, if it is gone meanwhile.
    git_dir = job.repository.existing_dir
    most = most_bytes(job.repository)
    arguments = environment.config_arguments((*environment.TRANSFER_CONFIG, *settings))
    argv = ("git", "--git-dir", str(git_dir), *arguments, *job.command, "--", address)
    before = leftovers(job.repository)
    try:
        result = run(
            (*argv, *job.arguments),
            stdin=job.stdin,
            env=environment.base() | environment.ALL_REFS | dict(env),
            timeout=TRANSFER_SECONDS,
            idle=IDLE_SECONDS,
            show=job.show,
            pass_fds=pass_fds,
            limits=limits(most),
        )
    except errors.TimedOut:
        remove_leftovers(job.repository, before)
        raise
    if result.status != 0:
        largest = remove_leftovers(job.repository, before)
        if largest >= most or f"died of signal {int(signal.SIGXFSZ)}" in result.complaint:
            raise too_large(most, result.complaint)
    return result


def limits(most: int) -> Limits:
    """What git may use that reads what a sandbox sends, a pack of so many bytes at most."""
    return Limits(TALK_BYTES, most, MEMORY_BYTES)


def most_bytes(repository: Repository) -> int:
    """The largest pack that a fetch takes. Raises BadSetting."""
    return preferences.load(repository.directory).max_fetch_bytes()


def too_large(most: int, details: str = "") -> errors.TransferFailed:
    return errors.TransferFailed(
        f"the sandbox sent more than {most >> 10} KiB at once, which was refused",
        hint=f"see what is in it; if it is meant: git config {MAX_FETCH_SIZE} 16g",
        details=details,
    )


def configuration(repository: Repository, *, now: bool = True) -> list[tuple[str, str]]:
    """Read the keys of git's configuration that matter here (lower case; one may come twice)."""
    keys = re.compile(
        r"url\..*\.(insteadof|pushinsteadof)|remote\..*://.*|ssh\.variant"
        rf"|core\.(sshcommand|alternaterefscommand)|{environment.REACHING_OUT}",
        re.DOTALL,
    )
    entries = repository.configuration(now=now)
    return [(each.key, each.value or "") for each in entries if keys.fullmatch(each.key)]


def _check_address(configured: Iterable[tuple[str, str]], address: str) -> None:
    """Check that the URL which git really uses is ours; raises BadSetting.

    The shield in ``_once`` rewrites the whole URL to itself, and the longest rule wins; only a rule
    of the user's for exactly this URL is as long (case 14). Nor may a remote have the URL for its
    name: git would take that one's URL for pushes, its programs and its refspecs.
    """
    for key, value in configured:
        if key.startswith("url.") and value == address:
            raise errors.BadSetting(
                f"git's configuration rewrites the sandbox's URL: {printable(key)}",
                hint="remove that rule: git config --show-origin -l",
            )
        if key.startswith(f"remote.{address}."):
            raise errors.BadSetting(
                "git's configuration has a remote that is named like the sandbox's URL:"
                f" {printable(key)}",
                hint="remove it: git config --show-origin -l",
            )


def leftovers(repository: Repository) -> set[Path]:
    """List the packs and objects that some git has begun to write."""
    objects = repository.common_dir / "objects"
    return {*objects.glob("pack/tmp_*"), *objects.glob("tmp_*")}


def remove_leftovers(repository: Repository, before: set[Path]) -> int:
    """Remove what a failed fetch left half-written, maybe gigabytes, as git does after two weeks;
    returns the size of the largest in bytes.

    Another git's files stay: those that were there before, and those that somebody has open. Where
    that cannot be found out (no /proc), all stay.
    """
    new, largest = leftovers(repository) - before, 0
    if not new or not Path("/proc/self/fd").is_dir():
        return largest
    opened = _opened()
    for path in new:
        if str(path.resolve()) not in opened:
            with contextlib.suppress(OSError):
                largest = max(largest, path.stat().st_size)
                path.unlink()
    return largest


def _opened() -> set[str]:
    """List what the processes of this machine have open, as far as we may look (proc(5))."""
    opened = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # another user's, or ended meanwhile
            for link in (process / "fd").iterdir():
                with contextlib.suppress(OSError):  # closed meanwhile
                    opened.add(os.readlink(link))  # noqa: PTH115 — a text to compare
    return opened
