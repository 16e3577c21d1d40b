"""What a sandbox gets beside the repository: files that git ignores (copied.py), and the project's
set-up (devcontainer.py), where there is consent to it (consent.py).

The set-up runs in the sandbox, apart from the call that starts it: nobody waits for it, and nothing
that fails here keeps a session from working.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from git_daytona.api.cloud import Cloud
from git_daytona.base import errors, log
from git_daytona.base.errors import BadSetting, CutShort, GitDaytonaError
from git_daytona.base.secret import Secret
from git_daytona.git.refs import PROJECT
from git_daytona.git.repository import Repository
from git_daytona.sandbox import report, scripts
from git_daytona.sandbox.parts import Parts
from git_daytona.sandbox.remote_command import COMMAND_BYTES, Cut, News, RemoteCommand, Wanted
from git_daytona.sessions import consent, copied, devcontainer
from git_daytona.sessions.consent import Answer
from git_daytona.sessions.devcontainer import AT_START, Plan
from git_daytona.sessions.state import Session, SetUp, joined
from git_daytona.sessions.state_file import StateFile
from git_daytona.settings import preferences
from git_daytona.settings.order import NOTHING, Order, configured
from git_daytona.settings.preferences import Preferences
from git_daytona.transfer import leases

SETUP_SECONDS = 3600
"""How long a set-up may take."""
NEWS = 20
"""How long its output is gathered before it is asked for, in hundredths of a second."""
WAITING, RUNNING, DONE, FAILED = "waiting", "running", "done", "failed"
RUN = "setup-{}"
LOG = "~/.cache/git-daytona-exec/" + RUN + "/out"
SAID = {
    RUNNING: "the project's set-up runs in the sandbox, in the background; its output is in {log}",
    WAITING: "the project's set-up (devcontainer.json) has not run: the user has not allowed it",
    DONE: "the project's set-up has ended well",
    FAILED: "the project's set-up: {message}; its output is in {log}",
}
"""What an agent is told of each state."""


@dataclass(frozen=True)
class Provision:
    """What is given to the sandboxes of a repository's sessions."""

    cloud: Cloud
    state: StateFile
    repository: Repository
    tell: Callable[[str], None]

    @property
    def _git_dir(self) -> str:
        return str(self.repository.common_dir)

    def completed(self, order: Order, earlier: Session | None, begin: str | None) -> Order:
        """Add the variables that a sandbox is to be made with, for a new session that begins with a
        commit (None: HEAD) or one that was there ``earlier``; what the user orders counts."""
        try:
            preferred = self._preferred()
            commit, plan = begin or "HEAD", None
            if preferred.setup() != "never":
                plan = self.of_branch(earlier)[1] if earlier else self.plan(commit)
            if plan and self._answer(preferred, plan) is Answer.RUN:
                variables = {name: Secret(each) for name, each in plan.container_env().items()}
                return order.over(NOTHING.with_env(variables))
        except GitDaytonaError as problem:  # it is said when the sandbox is there
            log.logger.warning("devcontainer.json: %s", problem.message)
        return order

    # -- by itself ---------------------------------------------------------------------------------

    def begin(self, session: Session, *, fresh: bool) -> None:
        """Give a ``fresh`` sandbox, with the repository in it, or one that got nothing, its due."""
        current = self.state.get(session.id) or session
        if current.setup.state and not fresh:
            return
        try:
            preferred = self._preferred()
            remarks = self._copy(session, preferred)
            found = self._begin(session, preferred, remarks)
        except GitDaytonaError as problem:
            found = SetUp(FAILED, message=problem.message)
        if found != current.setup:
            self._note(session, found)

    def started(self, sandbox_id: str) -> None:
        """The sandbox was started: run what is to run then, and what had not come to its end."""
        found = (each for each in self.state.sessions() if each.sandbox_id == sandbox_id)
        session = next(found, None)
        if session is not None and session.setup.state in (RUNNING, DONE, FAILED):
            self._run_recorded(session)

    def is_permitted(self, session: Session) -> bool:
        """Tell whether a session waits for consent that there is by now."""
        setup = session.setup
        return setup.state == WAITING and consent.is_allowed(self._git_dir, setup.digest)

    def permitted(self, session: Session) -> None:
        """Run the set-up of a session that waits for consent, if there is consent by now."""
        if self.is_permitted(session):
            self._run_recorded(session, session.setup.message)

    def _run_recorded(self, session: Session, remarks: str = "") -> None:
        """Run the set-up that a session has on record, if there still is consent to it."""
        setup = session.setup
        try:
            plan = self.plan(setup.commit)
            if plan is None or self._answer(self._preferred(), plan) is not Answer.RUN:
                return
            if setup.state == DONE and AT_START not in plan.wanted:
                return
            found = self._launch(session, plan, setup.commit, remarks)
        except GitDaytonaError as problem:
            found = replace(setup, state=FAILED, message=problem.message)
        self._note(session, found)

    # -- by a person -------------------------------------------------------------------------------

    def again(self, session: Session) -> Session:
        """Copy the files, and begin the set-up of the branch anew, unless one runs. Raises
        NotFound, Forbidden."""
        if session.setup.state == RUNNING:
            return session
        preferred = self._preferred()
        commit, plan = self.of_branch(session)
        if plan is None and not preferred.copy_files():
            raise errors.NotFound(
                f"session {session.name} has no devcontainer.json, nor is daytona.copyFiles set",
                hint=f"commit one, and bring it there: git daytona update {session.name}",
            )
        if plan and (answer := self._answer(preferred, plan)) is not Answer.RUN:
            raise self._refusal(answer, plan, commit)
        remarks = self._copy(session, preferred)
        setup = SetUp(DONE, message=remarks)
        if plan and commit:
            setup = self._launch(session, plan, commit, remarks, again=True)
        return self._note(session, setup)

    def follow(
        self,
        session: Session,
        show: Callable[[bytes], None],
        over: Callable[[], bool] = lambda: False,
    ) -> Session:
        """Show the output of a session's last set-up from its beginning, and what comes, until it
        ends or nobody wants more (``over``); record how it ended."""
        command = self._command(session.setup.run, "")
        command.sandbox_id = session.sandbox_id

        def show_written(output: bytes) -> None:
            # Where others have followed it, the room of a long beginning is given back (attach.sh).
            show(output.replace(b"\0", b""))

        try:
            news = leases.patiently(lambda: command.follow(0))
            show_written(news.output)
            while not news.ended and (command.behind or not over()):
                news = leases.patiently(lambda: command.follow(NEWS))
                show_written(news.output)
        except CutShort as cut:
            if isinstance(cut, Cut):
                show_written(cut.news.output)
            return self._ended(
                session, "it was cut off: the sandbox stopped, or it was killed there"
            )
        if not news.ended:
            return session
        return self._ended(session, _outcome(news))

    def plan(self, commit: str) -> Plan | None:
        """Read the plan of a commit; None where there is none. Raises BadSetting."""
        found = self.repository.resolve(commit) if commit else None
        return devcontainer.read(self.repository, found) if found else None

    def said(self, session: Session) -> list[str]:
        """Say what a person has to know of a session's set-up, as lines with hints."""
        setup, name, lines = session.setup, session.name, []
        if setup.state == WAITING:
            lines.append(
                f"{self._file(setup)} has a set-up for the sandbox, which you have not allowed\n"
                f"hint: see it, and allow it: git daytona allow{self._revision(setup)}"
            )
        elif setup.state == RUNNING:
            lines.append(
                "the project's set-up runs in the sandbox, in the background\n"
                f"hint: follow it: git daytona logs --setup {name}"
            )
        elif setup.state == FAILED:
            look = f"see why: git daytona logs --setup {name}; " if setup.run else ""
            lines.append(
                f"the project's set-up: {setup.message}\n"
                f"hint: {look}try again: git daytona setup {name}"
            )
        if setup.message and setup.state != FAILED:
            lines.append(setup.message)
        return lines

    # -- inside ------------------------------------------------------------------------------------

    def _preferred(self) -> Preferences:
        return preferences.load(self.repository.worktree or self.repository.git_dir)

    def _own(self, session: Session) -> set[str]:
        """Name the variables that the user has set for the session's sandbox."""
        order, given = Order.recorded(session.ordered or {})
        order = order.over(configured(self._preferred()))
        return {*given, *order.inherit, *order.secrets}

    def of_branch(self, session: Session) -> tuple[str | None, Plan | None]:
        """Find the commit that the session's branch is at, or began with, and its plan."""
        names = session.names
        refs = self.repository.refs(names.ref, names.base)
        commit = refs.get(names.ref) or refs.get(names.base)
        return commit, self.plan(commit or "")

    def _answer(self, preferred: Preferences, plan: Plan) -> Answer:
        allowed = consent.is_allowed(self._git_dir, plan.digest)
        return consent.decide(preferred.setup(), plan, allowed=allowed)

    def _begin(self, session: Session, preferred: Preferences, remarks: str) -> SetUp:
        commit, plan = self.of_branch(session)
        if preferred.setup() == "never" or plan is None or commit is None:
            return SetUp(message=remarks)
        if plan.unsupported:
            names = ", ".join(plan.unsupported)
            remarks = joined(remarks, f"not supported in {plan.path}, and left out: {names}")
        if not plan.wanted:
            return SetUp(message=remarks)
        if self._answer(preferred, plan) is not Answer.RUN:
            return SetUp(WAITING, commit, plan.digest, message=remarks)
        return self._launch(session, plan, commit, remarks)

    def _copy(self, session: Session, preferred: Preferences) -> str:
        """Copy the files that the user names; return what is to be said of it."""
        patterns = preferred.copy_files()
        if not patterns:
            return ""
        self.tell("copying ignored files")
        key = self.cloud.key().reveal().encode()
        try:
            parts = Parts(self.cloud, session.sandbox_id)
            copies = copied.send(parts, self.repository, patterns, key)
        except GitDaytonaError as problem:
            log.logger.warning("copyFiles: %s", problem.message)
            return f"not copied: {problem.message}"
        return f"not copied: {', '.join(copies.left_out)}" if copies.left_out else ""

    def _launch(
        self, session: Session, plan: Plan, commit: str, remarks: str, *, again: bool = False
    ) -> SetUp:
        """Start a set-up, and say where it stands: it may have ended at once."""
        _held = plan.held()  # until it has been sent
        run = (self.state.get(session.id) or session).setup.run + 1
        words = [RUN.format(run), plan.digest, "again" if again else "-"]
        words.append(plan.environment(self._own(session)))
        for each in plan.commands:
            words += [each.stage, "start" if each.stage == AT_START else "once"]
            words += [each.name, each.line()]
        script = report.script(scripts.read("set-up"), *words)
        if len(script.encode()) > COMMAND_BYTES // 2:
            raise BadSetting(
                f"what '{plan.path}' wants to run is too long",
                hint="put it into a script of the project, and name that",
            )
        setup = SetUp(RUNNING, commit, plan.digest, run, remarks)
        # Before it runs: whoever is killed meanwhile leaves it to be followed by others.
        self.state.edit(session.id, setup=setup)
        self.tell("starting the project's set-up")
        with log.event("sandbox.setup", session=session.id, sandbox=session.sandbox_id):
            try:
                news = self._command(run, script).begin(session.sandbox_id, 0)
            except (CutShort, errors.ApiUnreachable):
                return setup  # whoever follows it sees what became of it
            except GitDaytonaError as problem:
                why = f"it could not be started: {problem.message}"
                return _stands(setup, joined(remarks, why))
        if not news.ended:
            return setup
        return _stands(setup, joined(remarks, failure) if (failure := _outcome(news)) else "")

    def _command(self, run: int, script: str) -> RemoteCommand:
        wanted = Wanted(script, PROJECT, SETUP_SECONDS, merged=True)
        return RemoteCommand(self.cloud, wanted, RUN.format(run))

    def _ended(self, session: Session, failure: str) -> Session:
        """Record the end of a session's set-up, unless somebody else has."""
        current, ours = self.state.get(session.id), (RUNNING, session.setup.run)
        if current is None or (current.setup.state, current.setup.run) != ours:
            return current or session
        return self._note(current, _stands(current.setup, failure))

    def _note(self, session: Session, setup: SetUp) -> Session:
        """Record where a set-up stands, and what the session's agent is to be told of it."""
        text = SAID.get(setup.state, "").format(message=setup.message, log=LOG.format(setup.run))
        self.state.add_notice(session.id, text, setup=setup)
        return replace(self.state.get(session.id) or session, setup=setup)

    def _refusal(self, answer: Answer, plan: Plan, commit: str | None) -> GitDaytonaError:
        if answer is Answer.IGNORE:
            return BadSetting(
                "nothing of it is to run" if not plan.wanted else "daytona.setup is 'never'",
                hint="git config daytona.setup ask",
            )
        return errors.Forbidden(
            f"'{plan.path}' has not been allowed",
            hint=f"see it, and allow it: git daytona allow {(commit or '')[:10]}",
        )

    def _file(self, setup: SetUp) -> str:
        plan = self.plan(setup.commit)
        return plan.path if plan else devcontainer.FILES[0]

    def _revision(self, setup: SetUp) -> str:
        """Return what to name to see the same plan; empty where it is that of HEAD."""
        try:
            head = self.plan("HEAD")
        except GitDaytonaError:
            head = None
        same = head is not None and head.digest == setup.digest
        return "" if same else f" {setup.commit[:10]}"


def _outcome(news: News) -> str:
    """Say how a set-up failed; empty where it did not."""
    if news.late:
        return f"it was ended after {SETUP_SECONDS // 60} minutes"
    return f"it failed (exit status {news.status})" if news.status else ""


def _stands(setup: SetUp, failure: str) -> SetUp:
    if failure:
        return replace(setup, state=FAILED, message=failure)
    return replace(setup, state=DONE)
