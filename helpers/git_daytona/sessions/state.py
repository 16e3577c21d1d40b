"""The state file: which session has which sandbox, number and worktree, and how its last sync went
(DESIGN.md §6).

One JSON file per OpenCode project, shared with the existing TypeScript plugin: fields that are not
ours are kept as they are.
"""

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from git_daytona.base import files, log, paths
from git_daytona.base.errors import BadSetting
from git_daytona.git.refs import SANDBOX_BRANCH, is_prefix
from git_daytona.sessions import records
from git_daytona.sessions.records import Content

T = TypeVar("T")

PENDING = "pending"
SYNCED = "synced"
FAILED = "failed"
SETUP_FAILED = "setup-failed"
DISABLED = "disabled"
CHILDREN = 500
"""How many sub-agents' sessions the file remembers."""
TITLE = 200
"""Characters of a session's title that are kept."""
NO_PROJECT = "global"
"""OpenCode's project id of a directory without a repository, or of one without commits."""


@dataclass(frozen=True)
class GitReturn:
    """How the work came back last: state, one line for people, milliseconds since the epoch."""

    state: str
    message: str = ""
    updated_at: int = 0


@dataclass(frozen=True)
class Session:
    """One session. ``number`` is None where there is no repository to sync with; times in
    milliseconds since the epoch."""

    id: str
    sandbox_id: str
    number: int | None
    worktree: str
    created: int
    last_accessed: int
    git_return: GitReturn
    git_dir: str | None = None
    """The repository's common directory (ours; the plugin's records lack it): tells clones of one
    project apart."""
    deleting: int = 0
    """When the deletion of its sandbox began, its work being here (ours); 0: it did not."""
    synced_at: int = 0
    """When the last successful sync began (ours): what was done later may not be here."""
    title: str = ""
    """What its host or its user calls it (ours), in one line."""
    prefix: str = SANDBOX_BRANCH
    """What stands before ``/N`` in its branch's name (ours)."""

    @property
    def needs_sync(self) -> bool:
        """Whether its sandbox may hold work that is not here: it was used since the last sync
        began, or that did not succeed."""
        return self.number is not None and (
            self.git_return.state != SYNCED or self.last_accessed > self.synced_at
        )


def now() -> int:
    """Milliseconds since the epoch, as JavaScript's Date.now()."""
    return int(time.time() * 1000)


class StateFile:
    """The state file of one project. Every method reads it anew; changes happen under a lock
    between processes."""

    def __init__(self, project_id: str, worktree: str) -> None:
        self.project_id = project_id
        self.worktree = worktree
        self.path = paths.state_file(project_id)
        self.warnings: list[str] = []
        """Lines to show once."""
        self._known: Content | None = None
        self._listed: dict[str, tuple[object, Session | None]] = {}
        self._others: dict[Path, tuple[int, int, int]] = {}

    def sessions(self) -> list[Session]:
        """All sessions, by number, then age."""
        before = self._listed
        listed: dict[str, tuple[object, Session | None]] = {}
        for id_, record in self._read().records.items():
            known = before.get(id_)
            # The very record that it was made of: contents share what did not change.
            listed[id_] = (
                known
                if known is not None and known[0] is record
                else (record, _session(id_, record))
            )
        self._listed = listed
        found = [session for _, session in listed.values() if session is not None]
        return sorted(found, key=lambda each: (each.number or 0, each.created))

    def get(self, session_id: str) -> Session | None:
        return _session(session_id, self._read().records.get(session_id))

    def put(self, session: Session) -> None:
        """Write a session, keeping what its record holds besides."""
        fields: dict[str, Any] = {
            "sandboxId": session.sandbox_id,
            "worktree": session.worktree,
            "created": session.created,
            "lastAccessed": session.last_accessed,
            "gitReturn": _git_return(session.git_return),
        }
        if session.number is not None:
            fields["branchNumber"] = session.number
        if session.git_dir is not None:
            fields["gitDir"] = session.git_dir
        if session.prefix != SANDBOX_BRANCH:
            fields["branchPrefix"] = session.prefix

        def change(document: dict[str, Any]) -> None:
            record = document["sessions"].get(session.id)
            document["sessions"][session.id] = {
                **(record if isinstance(record, dict) else {}),
                **fields,
            }

        self._change(session.id, change)

    def note(
        self, session_id: str, state: str, message: str, *, synced_at: int | None = None
    ) -> None:
        """Record how a sync went, if the session still exists; ``synced_at`` is when a successful
        one began."""

        def change(record: dict[str, Any]) -> None:
            record["gitReturn"] = _git_return(GitReturn(state, message, now()))
            if synced_at is not None:
                record["syncedAt"] = synced_at

        self._edit(session_id, change)

    def touch(self, session_id: str) -> None:
        """Record that a session is used now. A deletion that failed or was interrupted is then
        off."""

        def change(record: dict[str, Any]) -> None:
            record["lastAccessed"] = now()
            record.pop("deleting", None)

        self._edit(session_id, change)

    def set_title(self, session_id: str, title: str) -> None:
        """Record what a session is called, if it exists and is called something else."""
        record = self._read().records.get(session_id)
        if isinstance(record, dict) and record.get("title") != (text := one_line(title)):
            self._edit(session_id, lambda record: record.update(title=text))

    def mark_deleting(self, session_id: str) -> None:
        """Record that a session's work is here and that its sandbox goes now."""
        self._edit(session_id, lambda record: record.update(deleting=now()))

    def leave_notice(self, session_id: str, text: str) -> None:
        """Leave something that the session's agent has to be told with its next tool result."""
        self._edit(session_id, lambda record: record.update(notice=text))

    def take_notice(self, session_id: str) -> str:
        """The notice that was left, once; empty for none."""
        record = self._read().records.get(session_id)
        if not isinstance(record, dict) or not record.get("notice"):
            return ""
        return str(self._edit(session_id, lambda record: record.pop("notice", "")) or "")

    def note_child(self, session_id: str, root: str) -> None:
        """Record that a session is a sub-agent's, whose root's sandbox it uses. The newest ones are
        kept (CHILDREN)."""

        def change(document: dict[str, Any]) -> None:
            children = document.get("children")
            others = (
                [item for item in children.items() if item[0] != session_id]
                if isinstance(children, dict)
                else []
            )
            document["children"] = dict([*others, (session_id, root)][-CHILDREN:])

        self._change(None, change)

    def root_of(self, session_id: str) -> str | None:
        """The root of a sub-agent's session, as recorded by note_child."""
        children = self._read().document.get("children")
        root = children.get(session_id) if isinstance(children, dict) else None
        return root if isinstance(root, str) else None

    def gather(self, git_dir: str) -> int:
        """Bring sessions of a repository that stand under another project (it had no commits then,
        or other roots) into this file.

        Written here before it is taken out there: at no moment is a session in neither. Returns how
        many.
        """
        moved = 0
        needle = json.dumps(git_dir, ensure_ascii=False).encode("utf-8", "surrogatepass")
        for other in self.path.parent.glob("*.json"):
            try:
                status = other.stat()
                seen = (status.st_ino, status.st_mtime_ns, status.st_size)
                if (
                    other == self.path
                    or self._others.get(other) == seen
                    or needle not in other.read_bytes()
                ):
                    self._others[other] = seen
                    continue
            except OSError:
                continue
            elsewhere = StateFile(unquote(other.stem), self.worktree)
            if elsewhere.path != other:
                continue
            for id_, record in elsewhere._read().records.items():
                if isinstance(record, dict) and record.get("gitDir") == git_dir:
                    self._change(id_, partial(_add, id_, record))
                    elsewhere.remove(id_)
                    moved += 1
        return moved

    def remove(self, session_id: str) -> None:
        def change(document: dict[str, Any]) -> None:
            document["sessions"].pop(session_id, None)

        self._change(session_id, change)

    # -- inside ------------------------------------------------------------------------------------

    def _edit(self, session_id: str, change: Callable[[dict[str, Any]], T]) -> T | None:
        """Change the record of a session; None where there is none."""

        def edit(document: dict[str, Any]) -> T | None:
            record = document["sessions"].get(session_id)
            return change(record) if isinstance(record, dict) else None

        return self._change(session_id, edit)

    def _change(self, session_id: str | None, change: Callable[[dict[str, Any]], T]) -> T:
        """Change the record of one session, or what stands beside the records, as of now."""
        with self._locked():
            before = self._load() or self._set_aside()
            after, result = records.change(before, session_id, change)
            if after.document != before.document or not before.raw:
                files.write_whole(self.path, after.raw)
                self._known = after
            return result

    def _read(self) -> Content:
        content = self._load()
        if content is None:
            # Only under the lock, and after another look, is it certain that it is not another
            # process's new file that is moved away.
            with self._locked():
                content = self._load() or self._set_aside()
        return content

    def _locked(self) -> AbstractContextManager[None]:
        return files.lock(paths.locks() / f"state-{self.path.stem}", holds="the state file")

    def _load(self) -> Content | None:
        """The file's content; an empty one where there is no file, None for one that makes no
        sense."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return records.empty(self.project_id, self.worktree)
        except OSError as problem:
            raise BadSetting(
                f"cannot read the state file '{self.path}': {problem.strerror}",
                hint="make it readable for you",
            ) from problem
        known = self._known
        # Compared byte for byte: times and sizes may be those of another's change within the same
        # tick.
        if known is None or known.raw != raw:
            known = records.parse(raw)
            self._known = known
        return known

    def _set_aside(self) -> Content:
        """Move a file that makes no sense out of the way, so that nothing of it is overwritten
        (CASES 45); an empty content."""
        aside = self.path.with_name(f"{self.path.name}.corrupt-{now()}")
        self.path.rename(aside)
        line = f"the state file could not be read and is kept as '{aside}'; 'git daytona prune -n' lists the sandboxes that it knew"
        log.logger.error("%s", line)
        self.warnings.append(line)
        return records.empty(self.project_id, self.worktree)


def _add(session_id: str, record: dict[str, Any], document: dict[str, Any]) -> None:
    document["sessions"].setdefault(session_id, record)


def _git_return(value: GitReturn) -> dict[str, Any]:
    return {"state": value.state, "message": value.message, "updatedAt": value.updated_at or now()}


def _session(session_id: str, record: object) -> Session | None:
    """A record as a Session; None for one that lacks a sandbox (it stays in the file)."""
    if (
        not isinstance(record, dict)
        or not isinstance(record.get("sandboxId"), str)
        or not record["sandboxId"]
    ):
        return None
    number = record.get("branchNumber")
    git_return = record.get("gitReturn")
    git_return = git_return if isinstance(git_return, dict) else {}
    git_dir = record.get("gitDir")
    updated_at = _milliseconds(git_return.get("updatedAt"))
    return Session(
        id=session_id,
        sandbox_id=record["sandboxId"],
        number=number
        if isinstance(number, int) and not isinstance(number, bool) and 0 < number < 10**9
        else None,
        worktree=str(record.get("worktree") or ""),
        created=_milliseconds(record.get("created")),
        last_accessed=_milliseconds(record.get("lastAccessed")),
        git_return=GitReturn(
            str(git_return.get("state") or PENDING),
            str(git_return.get("message") or ""),
            _milliseconds(git_return.get("updatedAt")),
        ),
        git_dir=git_dir if isinstance(git_dir, str) else None,
        deleting=_milliseconds(record.get("deleting")),
        synced_at=_milliseconds(record.get("syncedAt")) or updated_at,
        title=one_line(title) if isinstance(title := record.get("title"), str) else "",
        prefix=prefix
        if isinstance(prefix := record.get("branchPrefix"), str) and is_prefix(prefix)
        else SANDBOX_BRANCH,
    )


def one_line(title: str) -> str:
    """A title as one line of bounded length, without characters that could move a cursor or turn
    the direction of writing."""
    return "".join(c for c in " ".join(title.split()) if c.isprintable())[:TITLE]


def _milliseconds(value: object) -> int:
    return (
        int(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e15
        else 0
    )


def project_of(common_dir: Path, roots: str) -> str:
    """OpenCode's id of a project: what it wrote into ``.git/opencode``, else the first root commit
    in order, else ``global``."""
    try:
        cached = (common_dir / "opencode").read_text()[:200].strip()
    except (OSError, UnicodeDecodeError):
        cached = ""
    if cached and cached.isalnum():
        return cached
    return min((line for line in roots.split() if line), default=NO_PROJECT)


def all_sessions() -> list[Session]:
    """The sessions of every project on this machine."""
    return [
        session
        for path in sorted(paths.storage().glob("*.json"))
        for session in StateFile(unquote(path.stem), "").sessions()
    ]
