"""One tool call of a client, from its JSON-RPC request to the sandbox: the tools' Context."""

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from git_daytona.api.cloud import Cloud, Execution
from git_daytona.base.errors import NoKey
from git_daytona.sandbox import report
from git_daytona.service import permissions
from git_daytona.service.jsonrpc import Closed, Refused, Request
from git_daytona.service.permissions import Effect, Rule
from git_daytona.service.previews import Previews
from git_daytona.service.queues import Lane
from git_daytona.service.set_ups import SetUps
from git_daytona.service.turns import Turns
from git_daytona.service.workspace import Workspace
from git_daytona.sessions import state
from git_daytona.tools.context import Cancelled, Denied, Question, Result, Tool, ToolError

T = TypeVar("T")


class Shared:
    """What all calls of a service have in common."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace, self.previews = workspace, Previews(workspace)
        self.turns, self.set_ups = Turns(workspace, self.previews), SetUps(workspace)
        self.origin: Callable[[str], str | None] = lambda _root: None
        """Which session a new one was forked from."""
        self.approved: tuple[Rule, ...] = ()
        """What the user has allowed for good since the service began."""
        self._lock = threading.Lock()
        self._files: weakref.WeakValueDictionary[tuple[str, str], Any]
        self._files = weakref.WeakValueDictionary()
        self._shown: set[str] = set()
        self._known: dict[str, bool] = {}

    def approve(self, action: str, resources: Sequence[str]) -> None:
        """Keep that the user always allows something."""
        with self._lock:
            self.approved += tuple(Rule(action, each, Effect.ALLOW) for each in resources)

    def file_lock(self, root: str, path: str) -> "threading.Lock":
        """The lock of one file of a session, forgotten when nobody holds it."""
        with self._lock:
            lock: threading.Lock = self._files.setdefault((root, path), threading.Lock())
            return lock

    def known(self, root: str) -> bool:
        """Whether the session had a sandbox when it was first heard of; to be called before a call
        does anything: while one call makes the sandbox, others find it half made."""
        with self._lock:
            if root not in self._known:
                self._known[root] = self.workspace.coordinator().state.get(root) is not None
            return self._known[root]

    def show(self, session: state.Session, *, new: bool) -> str:
        """Show the first use of a sandbox in this process, and return it as one line."""
        with self._lock:
            if session.sandbox_id in self._shown:
                return ""
            self._shown.add(session.sandbox_id)
        toasts = self.workspace.toasts
        line = toasts.ready(session, new=new)
        for danger in self.workspace.coordinator().dangers(session):
            toasts.show("Sandbox", f"session {session.name}: {danger}", "warning")
        if session.number is None:
            toasts.show("Git syncing disabled", self.why_unsynced(session), "warning")
        elif new:
            Lane("what stays here", 1).submit(lambda: self._show_what_stays(session))
        return line

    def _show_what_stays(self, session: state.Session) -> None:
        if line := self.workspace.coordinator().stays_here(session):
            self.workspace.toasts.show("Sandbox", line)

    def why_unsynced(self, session: state.Session) -> str:
        return self.workspace.unsynced or session.git_return.message


class ToolCall:
    """One call of a tool. ``session_id`` is the root session's once that is known."""

    def __init__(
        self, shared: Shared, request: Request, tool: Tool, arguments: Mapping[str, Any], root: str
    ) -> None:
        self._shared, self.request, self.tool, self.arguments = shared, request, tool, arguments
        self.session_id, self.worktree = root, shared.workspace.worktree
        rules = request.params.get("rules")
        self._rules = permissions.read(rules) if isinstance(rules, list) else None
        """The user's rules, where the client does not apply them itself."""
        self.cancelled = threading.Event()
        self.notices: list[str] = []
        self._place = self.sandbox_id = ""
        self._session: state.Session | None = None
        """The session that something was done in for this call."""
        self._question: Future[Any] | None = None
        self._lock = threading.Lock()

    def run(self) -> Result:
        return self.tool.run(self, self.arguments)

    def answer(self, result: Result) -> dict[str, Any]:
        """The result as the client gets it, after what else the model has to know."""
        return {
            "title": result.title,
            "output": "\n\n".join([*filter(None, self.notices), result.output]),
            "place": self._place,
            # whose sandbox it was: what is left of it in a fork, which has copies of all messages
            "metadata": dict(result.metadata) | {"daytona": self.session_id},
            "attachments": [dict(each) for each in result.attachments],
        }

    def cancel(self) -> None:
        """Have the tool end what it runs in the sandbox; an open question is answered with no."""
        with self._lock:
            self.cancelled.set()
            question = self._question
        if question is not None:
            question.cancel()

    # -- Context -----------------------------------------------------------------------------------

    def execute(self, script: str, *arguments: str, timeout: float) -> Execution:
        return self._in_sandbox(report.in_directory(script, *arguments, timeout=timeout).run)

    def upload(self, path: str, content: bytes) -> None:
        self._in_sandbox(lambda cloud, sandbox_id: cloud.upload(sandbox_id, path, content))

    def exclusive(self, path: str) -> "threading.Lock":
        return self._shared.file_lock(self.session_id, path)

    def preview(self, port: int) -> str:
        previews = self._shared.previews
        link = self._in_sandbox(lambda _cloud, sandbox_id: previews.link(sandbox_id, port))
        previews.mark(self.session_id, port)
        return link

    def sync(self) -> str:
        before = self._shared.workspace.coordinator().ensure(self.session_id).session
        if before.number is None:
            return f"nothing is synced here: {self._shared.why_unsynced(before)}"
        return self._shared.turns.now(self.session_id).message

    def review(self, command: str, paths: Sequence[str]) -> str:
        coordinator = self._shared.workspace.coordinator()
        session = coordinator.ensure(self.session_id).session
        if session.number is None:
            return ""
        names, plain = session.names, ("--no-color", "--no-ext-diff", "--no-textconv")
        if not coordinator.repository.resolve(names.base):
            raise ToolError("it is not known from which commit this session started")
        words = (command, *plain, f"{names.base}..{names.ref}", "--", *paths)
        return coordinator.repository.git(*words).stdout.decode("utf-8", "replace")

    def ask(self, question: Question) -> None:
        params = {"call": self.request.id, **vars(question)}
        if self._rules is None:
            self._answer(params)
            return
        permission, patterns = question.permission, question.patterns
        rule = permissions.decide(self._rules, permission, patterns)
        if rule.effect is Effect.DENY:
            raise Denied(f"a permission rule denies this: {permission} '{rule.resource}'")
        approved = permissions.decide(self._shared.approved, permission, patterns)
        if Effect.ALLOW in (rule.effect, approved.effect):
            return
        words = permissions.question(permission, patterns, question.always)
        answer = self._answer(params | words)
        chosen = answer.get("answer") if isinstance(answer, dict) else None
        if chosen == permissions.ALWAYS:
            self._shared.approve(permission, question.always)
        elif chosen != permissions.ONCE:
            raise Denied("the user rejected this tool call")

    def _answer(self, params: Mapping[str, Any]) -> object:
        with self._lock:
            if self.cancelled.is_set():
                raise Cancelled("the call was aborted")
            self._question = self.request.peer.ask("ask", params)
        try:
            return self._question.result()
        except Refused as refused:
            raise Denied(refused.message) from None
        except (CancelledError, Closed):
            raise Cancelled("the call was aborted") from None
        finally:
            self._question = None

    def progress(self, title: str, metadata: Mapping[str, Any]) -> None:
        self.request.peer.notify(
            "progress", {"call": self.request.id, "title": title, "metadata": metadata}
        )

    def _in_sandbox(self, work: Callable[[Cloud, str], T]) -> T:
        """Do something in the session's sandbox, which is made or started as needed."""
        root, workspace = self.session_id, self._shared.workspace
        if self._shared.turns.is_deleted(root):
            raise ToolError("this session was deleted")
        known = self._shared.known(root)
        new = not known and workspace.coordinator().state.get(root) is None
        origin = self._shared.origin(root) if new else None

        def reached(sandbox_id: str) -> T:
            workspace.patience.done()  # from here on it is the tool that takes its time
            self.sandbox_id = sandbox_id
            self._session = self._session or workspace.coordinator().state.get(root)
            with self._shared.turns.awake.at_work(root):
                return work(workspace.coordinator().cloud, sandbox_id)

        def once() -> tuple[T, state.Session, str]:
            return workspace.coordinator().within(root, reached, begun=self._session, origin=origin)

        try:
            try:
                value, session, notice = once()
            except NoKey:
                if not workspace.key_came():
                    raise
                value, session, notice = once()
        finally:
            workspace.patience.done()
        if notice:
            self.notices.append(notice)
        self._shared.set_ups.seen(root, new=not known)
        self._place = self._shared.show(session, new=not known or bool(notice)) or self._place
        return value
