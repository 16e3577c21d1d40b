"""What a client reports of its sessions, and which session is a sub-agent of which."""

import re
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from git_daytona.base.errors import GitDaytonaError
from git_daytona.service.jsonrpc import Closed, Peer, Refused, members, word
from git_daytona.service.queues import Lane
from git_daytona.sessions import working

if TYPE_CHECKING:
    from git_daytona.service.turns import Turns
    from git_daytona.service.workspace import Workspace

EVENTS = tuple(
    f"session.{each}" for each in ("created", "updated", "prompted", "status", "idle", "deleted")
)
PARENT_SECONDS = 10.0
DEFAULT_TITLE = re.compile(r"(New|Child) session - \d{4}-\d\d-\d\dT")
"""What OpenCode calls a session that has no title yet."""
DEPTH = 20
"""Generations of sub-agents that are followed."""


class Events:
    """Sub-agents use the sandbox of their root. Safe for many threads; ``handle`` never blocks."""

    def __init__(self, peer: Peer, workspace: "Workspace", turns: "Turns") -> None:
        self._peer, self._workspace, self._turns = peer, workspace, turns
        self._lock = threading.Lock()
        self._parents: dict[str, str | None] = {}
        """Session → its parent; None for a root. From events, else asked for."""
        self._titles: dict[str, str] = {}
        """Titles that are not on record yet: a session has a record from its first tool call on."""
        self._known_titles: dict[str, str] = {}
        self._prompts: dict[str, str] = {}
        """First lines of prompts, which stand for a title as long as there is none."""
        self._working: dict[str, ExitStack] = {}
        """The marks of sessions whose turn goes on; in the lane alone."""
        self._notes = Lane("sub-agents and titles", 1)

    def handle(self, kind: str, properties: Mapping[str, Any]) -> None:
        """One event of OpenCode's; one that we do not know, or names no session, is ignored."""
        info = members(properties.get("info"))
        session_id = word(properties, "sessionID") or word(info, "id")
        if session_id is None:
            return
        if kind in ("session.created", "session.updated"):
            self._called(session_id, info.get("title"))
        if kind == "session.created":
            self._born(session_id, word(info, "parentID") or word(properties, "parentID"))
        elif kind == "session.prompted" and (prompt := word(info, "prompt")):
            with self._lock:
                self._prompts.setdefault(session_id, prompt.strip().partition("\n")[0])
        elif kind == "session.deleted":
            self._deleted(session_id, info)
        elif kind in ("session.idle", "session.status") and not self._parents.get(session_id):
            status = members(properties.get("status"))
            idle = kind == "session.idle" or status.get("type") == "idle"
            self._notes.submit(lambda: self.note_title(session_id))
            self._notes.submit(lambda: self._note_turn(session_id, idle=idle))
            # A sub-agent's end is not the turn's: its root goes on, and ends later.
            (self._turns.ended if idle else self._turns.begun)(session_id)

    def _deleted(self, session_id: str, info: Mapping[str, Any]) -> None:
        with self._lock:
            parent = self._parents.pop(session_id, None)
            for known in (self._titles, self._known_titles, self._prompts):
                known.pop(session_id, None)
        if not (parent or info.get("parentID")):
            self._turns.delete(session_id)

    def root(self, session_id: str) -> str:
        """The session whose sandbox a tool call is for. A session that we never heard of (we, or
        OpenCode, were restarted) is looked up in the state file, and else asked for."""
        current = session_id
        for _ in range(DEPTH):
            if (parent := self._parent(current)) is None:
                break
            current = parent
        return current

    def origin(self, session_id: str) -> str | None:
        """The session with a sandbox that a new one was forked from, by its id, or an id without
        one where that is all that is known; None for no fork."""
        state, found = self._workspace.coordinator().state, None
        for _ in range(DEPTH):
            ids = [state.root_of(each) or each for each in self._forked_from(found or session_id)]
            if not ids:
                break
            found = next(filter(state.get, ids), ids[0])
            if state.get(found):
                break
        return found

    def _forked_from(self, session_id: str) -> list[str]:
        ids = self._ask("fork", session_id).get("sessionIDs")
        return [each for each in ids if isinstance(each, str)] if isinstance(ids, list) else []

    def _ask(self, what: str, session_id: str) -> Mapping[str, Any]:
        """What the client says of a session; nothing where it cannot say."""
        try:
            return members(self._peer.ask(what, {"sessionID": session_id}).result(PARENT_SECONDS))
        except (Refused, Closed, TimeoutError):
            return {}

    def _parent(self, session_id: str) -> str | None:
        with self._lock:
            if session_id in self._parents:
                return self._parents[session_id]
        found = self._workspace.coordinator().state.root_of(session_id)
        if found is None:  # with a client that cannot say, sessions have no sub-agents
            found = word(self._ask("parent", session_id), "parentID")
        self._born(session_id, found if found != session_id else None)
        with self._lock:
            return self._parents.get(session_id)

    def _born(self, session_id: str, parent: str | None) -> None:
        with self._lock:
            self._parents[session_id] = parent
        if parent is not None:
            self._notes.submit(lambda: self._note_child(session_id))

    def _note_child(self, session_id: str) -> None:
        """Record whose sandbox a sub-agent uses, for after a restart."""
        self._workspace.coordinator().state.note_child(session_id, self.root(session_id))

    def _called(self, session_id: str, title: object) -> None:
        """A session's title, which OpenCode repeats with everything that happens in it."""
        if not isinstance(title, str) or DEFAULT_TITLE.match(title):
            return
        with self._lock:
            if self._known_titles.get(session_id) == title:
                return
            self._known_titles[session_id] = self._titles[session_id] = title
        self._notes.submit(lambda: self.note_title(session_id))

    def note_title(self, session_id: str) -> None:
        """Record what a session is called, if that is not on record yet."""
        with self._lock:
            title, prompt = self._titles.get(session_id), self._prompts.get(session_id)
        if title is None and prompt is None:
            return
        try:
            file = self._workspace.coordinator().state
            session = file.get(session_id)
            if session is None:  # not yet, or a sub-agent's: these have no record
                return
            file.set_title(session_id, session.title or prompt or "" if title is None else title)
        except GitDaytonaError:  # it is only for people's eyes
            return
        with self._lock:
            self._prompts.pop(session_id, None)
            if title is not None and self._titles.get(session_id) == title:
                del self._titles[session_id]

    def _note_turn(self, session_id: str, *, idle: bool) -> None:
        if idle:
            self._working.pop(session_id, ExitStack()).close()
        elif session_id not in self._working:
            mark = working.mark(self._workspace.coordinator().git_dir, session_id)
            self._working.setdefault(session_id, ExitStack()).enter_context(mark)
