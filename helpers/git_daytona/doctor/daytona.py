"""The links to Daytona: settings, key, API, snapshot, gateway; and what earlier transfers left."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from git_daytona.api import network
from git_daytona.api.cloud import Cloud, KeyInfo
from git_daytona.base.endpoint import Endpoint
from git_daytona.base.errors import GitDaytonaError, NotFound, SandboxGone
from git_daytona.doctor.findings import Finding, fail, ok, skipped, warn
from git_daytona.git.repository import Repository, find
from git_daytona.sessions import state
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.settings import cli_profile, order, preferences, settings
from git_daytona.settings.settings import KEYS_PAGE, Settings
from git_daytona.transfer import leases
from git_daytona.trust import presented, verify
from git_daytona.trust.gateway import Policy
from git_daytona.trust.host_keys import HostKey

REQUEST_SECONDS = 8.0
PROBE_SECONDS = 6.0
SKEW_SECONDS = 60.0


class Service:
    """What the checks share: settings, client and policy, and so one ``GET /config``."""

    def __init__(self, start: Path) -> None:
        self.start = start
        self.repository: Repository | None = None
        self._key: KeyInfo | None = None

    def find(self) -> Repository | None:
        self.repository = find(self.start)
        return self.repository

    @property
    def worktree(self) -> Path | None:
        return self.repository.worktree if self.repository else None

    @property
    def directory(self) -> Path:
        return self.worktree or self.start

    def settings(self) -> Finding:
        preferred = preferences.load(self.directory)
        self.found: Settings = order.applied(settings.load(self.directory), preferred)
        self.cloud = Cloud(self.found)
        self.cloud.request_seconds = REQUEST_SECONDS
        self.policy = Policy(self.found, self.cloud.config, preflight=False)
        # that keys are pinned is the rule, and so is what is not set
        values = self.found.values().items()
        text = ", ".join(f"{name} {it}" for name, it in values if it not in (None, "true"))
        if problems := order.problems(preferred):  # in the way of what needs it, and of no more
            return warn(problems[0].message, problems[0].hint)
        if self.found.warnings:
            text = "; ".join((text, *self.found.warnings))
            return warn(text, "see SETTINGS in git-daytona(1)")
        return ok(text)

    def key(self) -> Finding:
        _, source = self.found.api_key()
        if remark := cli_profile.warning(self.found.api_url, source):
            return warn(f"from {source}", remark)
        return ok(f"from {source}")

    def api(self) -> Finding:
        answer = self.policy.answer()
        if isinstance(answer, GitDaytonaError):
            raise answer.but()  # it may be raised again
        proxy = network.proxy_for(self.found.api_url)
        return ok(f"{self.found.api_url} answers{f', through {proxy}' if proxy else ''}")

    def accepted(self) -> Finding:
        self._key = self.cloud.key_info()
        text = f"accepted, named '{self._key.name}'" if self._key.name else "accepted"
        if lacks := self._key.lacks:
            text = f"{text}, but it lacks the permission {lacks}"
            return fail(text, f"make a key that has it: {KEYS_PAGE}")
        left = self._key.expires_at - datetime.now(UTC) if self._key.expires_at else None
        if left is not None and left < timedelta(days=7):
            text = f"{text}, but it expires in {max(0, left.days)} days"
            return warn(text, f"make a new one: {KEYS_PAGE}")
        return ok(text)

    def clock(self) -> Finding:
        if self._key is None or self._key.answered_at is None:
            return skipped("the API did not say what time it is")
        skew = (datetime.now(UTC) - self._key.answered_at).total_seconds()
        if abs(skew) > SKEW_SECONDS:
            way = "ahead of" if skew > 0 else "behind"
            text = f"this machine is {abs(skew):.0f} seconds {way} the API"
            return warn(text, "set the clock (timedatectl set-ntp true)")
        return ok("within a minute of the API's")

    def snapshot(self) -> Finding:
        name = self.found.snapshot
        if name is None:
            return ok("Daytona's default")
        try:
            found = self.cloud.snapshot_state(name)
        except NotFound:
            remedy = "correct DAYTONA_SNAPSHOT, or unset it for the default"
            return fail(f"there is no snapshot '{name}'", remedy)
        if found in ("error", "build_failed", "removing"):
            remedy = "build it again, or unset DAYTONA_SNAPSHOT"
            return fail(f"the snapshot '{name}' cannot be used: {found}", remedy)
        if found != "active":
            remedy = "wait until it is active, or activate it in the dashboard"
            return warn(f"the snapshot '{name}' is {found}", remedy)
        return ok(f"'{name}' is active")

    def gateway(self) -> Finding:
        """As ``daytona-pin verify --live`` judges."""

        asked: list[Endpoint] = []

        def ask(endpoint: Endpoint) -> tuple[HostKey, ...]:
            asked.append(endpoint)
            return presented.all_keys(endpoint, seconds=PROBE_SECONDS)

        try:
            report = verify.look(self.policy, offline=False, probe=ask)
        except presented.GatewayUnreachable as problem:
            if not problem.is_cut:
                raise
            return self._blocked(asked[0], problem)
        text = f"{report.endpoint.known_hosts_name}, {report.mode.value}, {report.verdict}"
        hint = report.advice or "see: daytona-pin verify --live"
        if report.status == verify.NOTHING:
            return warn(text, hint)
        if report.status != verify.VERIFIED:
            return fail(text, hint)
        return warn(f"{text}; {report.notes[0]}", hint) if report.notes else ok(text)

    def _blocked(self, gateway: Endpoint, problem: GitDaytonaError) -> Finding:
        """Say what is likely where HTTPS comes through and SSH does not."""
        if presented.has_proxy(gateway):
            text = f"{gateway}: behind a proxy of your ssh configuration, and was not looked at"
            return warn(text, "try it: git daytona exec -- true")
        remedy = "have that port opened, or name a way out for ssh in ~/.ssh/config"
        if proxy := network.proxy_for(self.found.api_url):
            place = proxy.url.partition("//")[2]
            return fail(
                f"{problem.message}; the API is reached through {proxy}, which is not for ssh",
                f"{remedy}, such as: ProxyCommand nc -X connect -x {place} %h %p",
            )
        return fail(f"{problem.message}; the API answers, so a firewall may block SSH", remedy)

    def leases(self) -> Finding:
        stale = leases.stale(self.found.api_url)
        if stale:
            text = f"{len(stale)} left by killed processes: their tokens may be alive"
            return warn(text, "revoke them: git daytona recover")
        return ok("none is stale")

    def sessions(self) -> Finding:
        if self.repository is None:
            return skipped("there is no repository here")
        every = Coordinator(self.repository, self.found).sessions()
        if not every:
            return ok("none yet")
        for each in every:
            if each.git_return.state in (state.FAILED, state.SETUP_FAILED):
                why = f"{each.git_return.message}{self._asleep(each.sandbox_id)}"
                text = f"session {each.name} was not synced: {why}"
                return warn(text, f"try again: git daytona sync {each.name}")
        if waiting := [each for each in every if each.needs_sync]:
            text = f"{len(waiting)} of {len(every)} may hold work that is not here"
            return warn(text, f"sync: git daytona sync {waiting[0].name}")
        return ok(f"{len(every)}, all of them synced")

    def _asleep(self, sandbox_id: str) -> str:
        """What is known of a sandbox that does not run."""
        if isinstance(self.policy.answer(), GitDaytonaError):
            return ""  # the API is another check's
        try:
            found = self.cloud.get(sandbox_id).state
        except SandboxGone:
            found = "gone"
        except GitDaytonaError:
            return ""
        return "" if found == "started" else f"; its sandbox is {found}"

    @property
    def is_local(self) -> bool:
        """Whether the API is on loopback, and so most likely the embedded one."""
        found: Settings | None = getattr(self, "found", None)
        place = found.api_url.partition("//")[2] if found else ""
        return place.startswith(("127.", "localhost", "[::1]"))
