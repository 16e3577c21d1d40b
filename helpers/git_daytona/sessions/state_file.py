"""The state file, one per OpenCode project, shared with the existing plugin; its lock."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from git_daytona.base import files, log, paths
from git_daytona.base.errors import BadSetting
from git_daytona.base.secret import printable
from git_daytona.git import identity
from git_daytona.git.refs import LAST_NUMBER
from git_daytona.sandbox import ownership
from git_daytona.sessions import moved, records, state
from git_daytona.sessions.records import BadRecord, Document
from git_daytona.sessions.state import GitReturn, Session, SetUp, joined, one_line

CHILDREN = 500
"""How many sub-agents' sessions the file remembers."""


class StateFile:
    """One project's state file. Methods read it anew, and change it under a lock.

    Each program has its own idea of a project's id: OpenCode 1 and 2, we, and all of them before
    and after the repository got its first commit or an ``origin``. What counts for a repository
    (``git_dir``) is the file that has its sessions already.
    """

    def __init__(self, project_id: str, worktree: str, git_dir: str = "") -> None:
        self._given = project_id
        self._named = json.dumps(git_dir, ensure_ascii=False).encode("utf-8", "surrogatepass")
        self._git_dir, self.worktree = git_dir, worktree
        self.warnings: list[str] = []
        """Lines to show once."""

    @property
    def identity(self) -> str:
        """The repository's, as it is now; empty before its first session."""
        return identity.read(self._git_dir) if self._git_dir else ""

    @property
    def project_id(self) -> str:
        """The project's id as the file has it."""
        if self._git_dir and not self._names_it(paths.state_file(self._given)):
            for other in sorted(paths.storage().glob("*.json")):
                if self._names_it(other):
                    return unquote(other.stem)
        return self._given

    @property
    def path(self) -> Path:
        return paths.state_file(self.project_id)

    def _names_it(self, path: Path) -> bool:
        try:
            content = path.read_bytes() if path == paths.state_file(unquote(path.stem)) else b""
        except OSError:
            return False
        own = self.identity
        return self._named in content or (own != "" and f'"{own}"'.encode() in content)

    def sessions(self) -> list[Session]:
        """Read all sessions, by number; those without one in the order in which they came. Of a
        record that cannot be read there is a warning."""
        found = []
        for id_, record in self._read()["sessions"].items():
            try:
                session = self._session(id_, record)
            except BadRecord as problem:
                self._warn(f"{problem.message}; it is left alone")
                continue
            if session is not None:
                found.append(session)
        return sorted(found, key=lambda each: each.number or each.own_number or 0)

    def get(self, session_id: str) -> Session | None:
        """Read a session; None where there is none. Raises BadRecord."""
        return self._session(session_id, self._read()["sessions"].get(session_id))

    def put(self, session: Session) -> None:
        """Write a session; what it has no value for is kept as its record has it."""
        values = {field: value for field, value in vars(session).items() if field != "id"}
        with self._changing() as document:
            earlier = document["sessions"].get(session.id)
            record = earlier if isinstance(earlier, dict) else {}
            document["sessions"][session.id] = record
            records.write(record, values, keep=True)

    def give_number(self, session_id: str) -> None:
        """Give a session without a repository the number after its directory's last one."""
        with self._changing() as document:
            here = _objects(document).values()
            numbers = [each.get("number") for each in here if each.get("gitDir") == self._git_dir]
            whole = [each for each in numbers if type(each) is int and 0 < each < LAST_NUMBER]
            document["sessions"][session_id]["number"] = max(whole, default=0) + 1

    def edit(self, session_id: str, **values: Any) -> Session | None:
        """Change values of a session; return what it was before, None where there is none."""
        return self._edit(session_id, lambda _: values)

    def _edit(self, session_id: str, change: Callable[[Session], dict[str, Any]]) -> Session | None:
        with self._changing() as document:
            before = self._session(session_id, document["sessions"].get(session_id))
            if before is not None:
                records.write(document["sessions"][session_id], change(before))
        return before

    def note(self, session_id: str, result: str, message: str, **values: int) -> None:
        """Record how a sync went; ``synced_at``: ``last_accessed`` as a successful one began."""
        self.edit(session_id, git_return=GitReturn(result, message, state.now()), **values)

    def touch(self, session_id: str) -> int:
        """Record that a session is used now, which ends its deletion; return the moment."""
        moment = 0

        def later(before: Session) -> dict[str, Any]:
            nonlocal moment
            # than any use before, and than what the last sync found, whatever the clock says
            moment = max(state.now(), before.last_accessed + 1, before.synced_at + 1)
            return {"last_accessed": moment, "deleting": 0}

        self._edit(session_id, later)
        return moment

    def untouch(self, before: Session, moment: int) -> None:
        """Take a touch back, if nobody has used the session since."""
        current = self.get(before.id)
        if current is not None and current.last_accessed == moment:
            self.edit(before.id, last_accessed=before.last_accessed, deleting=before.deleting)

    def set_title(self, session_id: str, title: str) -> None:
        """Record what a session is called, if it is called something else."""
        session, text = self.get(session_id), one_line(title)
        if session is not None and session.title != text:
            self.edit(session_id, title=text)
            ownership.set_title(session.api_url, session.sandbox_id, text)

    def add_notice(self, session_id: str, text: str, **values: SetUp) -> None:
        """Leave something for the session's agent, behind what is left for it already."""
        self._edit(session_id, lambda before: {"notice": joined(before.notice, text), **values})

    def take_notice(self, session_id: str) -> str:
        """Return what was left for the session's agent, once; empty for nothing."""
        session = self.get(session_id)
        if session is None or not session.notice:
            return ""
        before = self.edit(session_id, notice="")
        return before.notice if before else ""

    def note_child(self, session_id: str, root: str) -> None:
        """Record that a session is a sub-agent's, whose root's sandbox it uses."""
        with self._changing() as document:
            children = document.get("children")
            others = dict(children) if isinstance(children, dict) else {}
            others.pop(session_id, None)
            document["children"] = dict([*others.items(), (session_id, root)][-CHILDREN:])

    def root_of(self, session_id: str) -> str | None:
        """Return the root of a sub-agent's session, as recorded by note_child."""
        children = self._read().get("children")
        root = children.get(session_id) if isinstance(children, dict) else None
        return root if isinstance(root, str) else None

    def gather(self) -> None:
        """Bring the repository's sessions that another program put into another file at the same
        time into this one.

        Written here before they are taken out there: at no moment is a session in neither.
        """
        path, own = self.path, self.identity
        others = (each for each in path.parent.glob("*.json") if each != path)
        for other in filter(self._names_it, others):
            elsewhere = StateFile(unquote(other.stem), self.worktree)
            for id_, record in _objects(elsewhere._read()).items():
                names = (record.get("gitDir"), record.get("repository"))
                if self._git_dir == names[0] or (own and own == names[1]):
                    with self._changing() as document:
                        document["sessions"].setdefault(id_, record)
                    elsewhere.remove(id_)
        self._settle()

    def _settle(self) -> None:
        """Make the file say where the repository is, and which one, if that is not what it says."""
        found, lines = list(_objects(self._read()).values()), list[str]()
        if not moved.is_settled(found, self._git_dir, self.identity):
            with self._changing() as document:
                found = list(_objects(document).values())
                lines = moved.settle(found, self._git_dir, self.worktree)
        lines += moved.left_here(found, self._git_dir, self.identity)
        self.warnings += [line for line in map(printable, lines) if line not in self.warnings]

    def remove(self, session_id: str) -> None:
        with self._changing() as document:
            document["sessions"].pop(session_id, None)

    # -- inside ------------------------------------------------------------------------------------

    def _session(self, session_id: str, record: object) -> Session | None:
        try:
            return records.read(session_id, record)
        except ValueError as problem:
            raise BadRecord(
                f"the record of session '{printable(session_id)}' in '{self.path}' cannot be read:"
                f" {problem}",
                hint="mend it: git-daytona-state(5) has the form; its sandbox stays as it is",
            ) from None

    def _warn(self, line: str) -> None:
        if line not in self.warnings:
            log.logger.error("%s", line)
            self.warnings.append(line)

    @contextmanager
    def _changing(self) -> Iterator[Document]:
        """Give the file's content as of now, under the lock; what the block changes is written."""
        path = self.path
        with _locked(path):
            document = self._read(path, locked=True)
            before = records.dump(document)
            yield document
            after = records.dump(document)
            if after != before or not path.exists():
                files.write_whole(path, after)

    def _read(self, path: Path | None = None, *, locked: bool = False) -> Document:
        """Read the file; a missing one is empty, so is an invalid one, which is moved aside."""
        path = path or self.path
        empty = {"projectId": unquote(path.stem), "worktree": self.worktree, "sessions": {}}
        try:
            document: Document = json.loads(path.read_bytes())
            if isinstance(document, dict) and isinstance(document.setdefault("sessions", {}), dict):
                return document
        except FileNotFoundError:
            return empty
        except OSError as problem:
            raise BadSetting(
                f"cannot read the state file '{path}': {problem.strerror}",
                hint="make it readable for you",
            ) from problem
        except (ValueError, RecursionError):
            pass
        if not locked:  # then it may be another process's new file by now
            with _locked(path):
                return self._read(path, locked=True)
        aside = _unused(f"{path}.corrupt-", state.now())
        path.rename(aside)
        line = (
            f"the state file could not be read and is kept as '{aside}'; "
            "'git daytona prune -n' lists the sandboxes that it knew"
        )
        self._warn(line)
        return empty


def _objects(document: Document) -> dict[str, dict[str, Any]]:
    """The records that are objects, by the ids of their sessions."""
    records = document["sessions"].items()
    return {id_: record for id_, record in records if isinstance(record, dict)}


def _unused(name: str, number: int) -> Path:
    """Return the first path of the name, with the number or a later one, where nothing is."""
    return next(path for each in count(number) if not (path := Path(f"{name}{each}")).exists())


def _locked(path: Path) -> AbstractContextManager[None]:
    return files.lock(paths.locks() / f"state-{path.stem}", holds="the state file")


def unreadable() -> set[str]:
    """Return the ids of all sessions, of any project, whose records cannot be read."""
    found = set()
    for file in all_files():
        for id_, record in file._read()["sessions"].items():
            try:
                file._session(id_, record)
            except BadRecord:
                found.add(id_)
    return found


def named(sandbox_ids: Iterable[str]) -> set[str]:
    """Find the sandboxes that any file of the storage names, also one that was set aside or cannot
    be read. Raises BadSetting."""
    files = []
    try:
        for path in paths.storage().glob("*.json*"):
            try:
                files.append(path.read_bytes())
            except FileNotFoundError:
                if not path.name.startswith("."):  # what was being written has its own name now
                    raise
    except OSError as problem:
        raise BadSetting(
            f"cannot read the state file '{problem.filename}': {problem.strerror}",
            hint="make it readable for you",
        ) from problem
    return {each for each in sandbox_ids if any(each.encode() in content for content in files)}


def all_files() -> list[StateFile]:
    """Return the state file of every project on this machine."""
    return [StateFile(unquote(path.stem), "") for path in sorted(paths.storage().glob("*.json"))]


def all_sessions() -> list[Session]:
    """Read the sessions of every project on this machine."""
    return [session for file in all_files() for session in file.sessions()]
