"""The state file: which session has which sandbox, number and worktree, and how its last sync went.

One JSON file per OpenCode project, shared with the existing TypeScript plugin: fields that are not
ours are kept as they are. git-daytona-state(5) describes it.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import unquote

from git_daytona.base import files, log, paths
from git_daytona.base.errors import BadSetting
from git_daytona.git.refs import SANDBOX_BRANCH, is_prefix

CHILDREN = 500
"""How many sub-agents' sessions the file remembers."""
TITLE = 200
"""Characters of a session's title that are kept."""
NO_PROJECT = "global"
"""OpenCode's project id of a directory without a repository, or of one without commits."""


class GitState(StrEnum):
    """How the last sync of a session ended."""

    PENDING = "pending"
    SYNCED = "synced"
    FAILED = "failed"
    SETUP_FAILED = "setup-failed"
    DISABLED = "disabled"


PENDING, SYNCED, FAILED, SETUP_FAILED, DISABLED = GitState


def now() -> int:
    """Milliseconds since the epoch, as JavaScript's Date.now()."""
    return int(time.time() * 1000)


def one_line(title: str) -> str:
    """A title as one line of bounded length, without what moves a cursor or turns the writing."""
    return "".join(c for c in " ".join(title.split()) if c.isprintable())[:TITLE]


# -- the schema: each field with its name in the file and how any JSON value there is read ---------


def _json(name: str, read: Callable[[Any], object]) -> dict[str, Any]:
    return {"name": name, "read": read}


def _milliseconds(value: object) -> int:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool)
    return int(value) if usable and 0 <= value < 1e15 else 0  # type: ignore[operator, call-overload]


def _number(value: object) -> int | None:
    usable = isinstance(value, int) and not isinstance(value, bool)
    return value if usable and 0 < value < 10**9 else None  # type: ignore[operator, return-value]


def _text(value: object) -> str:
    return str(value or "")


@dataclass(frozen=True)
class GitReturn:
    """How the work came back last: state, one line for people, milliseconds since the epoch."""

    state: str = field(metadata=_json("state", lambda value: str(value or PENDING)))
    """A GitState, or a word of another program's."""
    message: str = field(default="", metadata=_json("message", _text))
    updated_at: int = field(default=0, metadata=_json("updatedAt", _milliseconds))


def _git_return(value: object) -> GitReturn:
    return GitReturn(**_read(GitReturn, value if isinstance(value, dict) else {}))


@dataclass(frozen=True)
class Session:
    """One session. ``number`` is None where there is no repository to sync with; times in
    milliseconds since the epoch. The existing plugin's records lack what is marked as ours."""

    id: str
    sandbox_id: str = field(metadata=_json("sandboxId", _text))
    number: int | None = field(metadata=_json("branchNumber", _number))
    worktree: str = field(metadata=_json("worktree", _text))
    created: int = field(metadata=_json("created", _milliseconds))
    last_accessed: int = field(metadata=_json("lastAccessed", _milliseconds))
    git_return: GitReturn = field(metadata=_json("gitReturn", _git_return))
    git_dir: str | None = field(
        default=None, metadata=_json("gitDir", lambda dir_: dir_ if isinstance(dir_, str) else None)
    )
    """The repository's common directory (ours): tells clones of one project apart."""
    deleting: int = field(default=0, metadata=_json("deleting", _milliseconds))
    """When the deletion of its sandbox began, its work being here (ours); 0: it did not."""
    synced_at: int = field(default=0, metadata=_json("syncedAt", _milliseconds))
    """When the last successful sync began (ours): what was done later may not be here."""
    title: str = field(
        default="",
        metadata=_json("title", lambda text: one_line(text) if isinstance(text, str) else ""),
    )
    """What its client or its user calls it (ours), in one line."""
    prefix: str = field(
        default=SANDBOX_BRANCH,
        metadata=_json(
            "branchPrefix",
            lambda text: text if isinstance(text, str) and is_prefix(text) else SANDBOX_BRANCH,
        ),
    )
    """What is before ``/N`` in its branch's name (ours)."""
    notice: str = field(default="", metadata=_json("notice", _text))
    """What its agent has to be told with the next tool result (ours)."""

    @property
    def needs_sync(self) -> bool:
        """Whether its sandbox may hold work that is not here: used since the last sync began, or
        that did not succeed."""
        return self.number is not None and (
            self.git_return.state != SYNCED or self.last_accessed > self.synced_at
        )


class Document(TypedDict, total=False):
    """The file. A record may be anything that JSON knows: others write them, too."""

    projectId: str
    worktree: str
    sessions: dict[str, Any]
    """Session id → record."""
    children: dict[str, str]
    """Session id of a sub-agent → that of its root, oldest first."""


def names() -> set[str]:
    """The names of all fields of the file."""
    known = (*dataclasses.fields(Session), *dataclasses.fields(GitReturn))
    return {each.metadata["name"] for each in known if each.metadata} | set(
        Document.__annotations__
    )


def _read(kind: type[GitReturn | Session], record: dict[str, Any]) -> dict[str, Any]:
    return {
        each.name: each.metadata["read"](record.get(each.metadata["name"]))
        for each in dataclasses.fields(kind)
        if each.metadata
    }


def _session(session_id: str, record: object) -> Session | None:
    """A record as a Session; None for one that lacks a sandbox (it stays in the file)."""
    if not isinstance(record, dict):
        return None
    if not isinstance(record.get("sandboxId"), str) or not record["sandboxId"]:
        return None
    found = Session(id=session_id, **_read(Session, record))
    return dataclasses.replace(found, synced_at=found.synced_at or found.git_return.updated_at)


def _write(record: dict[str, Any], values: dict[str, Any]) -> None:
    """Write values of a Session into a record; what is a field's default is left out."""
    for each in dataclasses.fields(Session):
        if not each.metadata or each.name not in values:
            continue
        name, value = each.metadata["name"], values[each.name]
        if value is None or value == each.default:
            record.pop(name, None)
        elif isinstance(value, GitReturn):
            record[name] = {
                part.metadata["name"]: getattr(value, part.name)
                for part in dataclasses.fields(GitReturn)
            }
        else:
            record[name] = value


def _parse(raw: bytes) -> Document | None:
    """The content of a file; None if it is invalid."""
    try:
        document: Document = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or not isinstance(document.setdefault("sessions", {}), dict):
        return None
    return document


def _dump(document: Document) -> bytes:
    """The text of a file, with a line for each session."""

    def text(value: object) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    lines = ",\n".join(f"{text(id_)}:{text(each)}" for id_, each in document["sessions"].items())
    sessions = f"{{\n{lines}\n  }}" if lines else "{}"
    fields = ",\n".join(
        f"  {text(name)}: {sessions if name == 'sessions' else text(value)}"
        for name, value in document.items()
    )
    # surrogatepass: half of a character that was cut in two, as JavaScript writes it, is kept.
    return f"{{\n{fields}\n}}".encode("utf-8", "surrogatepass")


# -- the file --------------------------------------------------------------------------------------


class StateFile:
    """The state file of one project. Every method reads it anew; changes happen under a lock
    between processes."""

    def __init__(self, project_id: str, worktree: str) -> None:
        self.project_id = project_id
        self.worktree = worktree
        self.path = paths.state_file(project_id)
        self.warnings: list[str] = []
        """Lines to show once."""

    def sessions(self) -> list[Session]:
        """All sessions, by number, then age."""
        read = (_session(id_, record) for id_, record in self._read()["sessions"].items())
        found = [session for session in read if session is not None]
        return sorted(found, key=lambda each: (each.number or 0, each.created))

    def get(self, session_id: str) -> Session | None:
        return _session(session_id, self._read()["sessions"].get(session_id))

    def put(self, session: Session) -> None:
        """Write a session; what it has no value for is kept as its record has it."""
        values = {
            each.name: value
            for each in dataclasses.fields(session)
            if (value := getattr(session, each.name)) not in (None, each.default)
        }
        if not session.git_return.updated_at:
            values["git_return"] = dataclasses.replace(session.git_return, updated_at=now())
        with self._changing() as document:
            earlier = document["sessions"].get(session.id)
            record = earlier if isinstance(earlier, dict) else {}
            document["sessions"][session.id] = record
            _write(record, values)

    def note(
        self, session_id: str, state: str, message: str, *, synced_at: int | None = None
    ) -> None:
        """Record how a sync went, if the session still exists; ``synced_at`` is when a successful
        one began."""
        began = {} if synced_at is None else {"synced_at": synced_at}
        self._edit(session_id, git_return=GitReturn(state, message, now()), **began)

    def touch(self, session_id: str) -> None:
        """Record that a session is used now; a deletion that was not finished is then off."""
        self._edit(session_id, last_accessed=now(), deleting=0)

    def set_title(self, session_id: str, title: str) -> None:
        """Record what a session is called, if it exists and is called something else."""
        session, text = self.get(session_id), one_line(title)
        if session is not None and session.title != text:
            self._edit(session_id, title=text)

    def mark_deleting(self, session_id: str) -> None:
        """Record that a session's work is here and that its sandbox goes now."""
        self._edit(session_id, deleting=now())

    def leave_notice(self, session_id: str, text: str) -> None:
        """Leave something that the session's agent has to be told with its next tool result."""
        self._edit(session_id, notice=text)

    def take_notice(self, session_id: str) -> str:
        """The notice that was left, once; empty for none."""
        session = self.get(session_id)
        if session is None or not session.notice:
            return ""
        before = self._edit(session_id, notice="")
        return before.notice if before else ""

    def note_child(self, session_id: str, root: str) -> None:
        """Record that a session is a sub-agent's, whose root's sandbox it uses."""
        with self._changing() as document:
            children = document.get("children")
            others = dict(children) if isinstance(children, dict) else {}
            others.pop(session_id, None)
            document["children"] = dict([*others.items(), (session_id, root)][-CHILDREN:])

    def root_of(self, session_id: str) -> str | None:
        """The root of a sub-agent's session, as recorded by note_child."""
        children = self._read().get("children")
        root = children.get(session_id) if isinstance(children, dict) else None
        return root if isinstance(root, str) else None

    def gather(self, git_dir: str) -> int:
        """Bring a repository's sessions that are in another project's file (it had no commits then,
        or other roots) into this one; returns how many.

        Written here before they are taken out there: at no moment is a session in neither.
        """
        moved = 0
        # Only a file that names the repository is opened as one of ours, and locked.
        needle = json.dumps(git_dir, ensure_ascii=False).encode("utf-8", "surrogatepass")
        for other in self.path.parent.glob("*.json"):
            elsewhere = StateFile(unquote(other.stem), self.worktree)
            try:
                if other == self.path or other != elsewhere.path:
                    continue
                if needle not in other.read_bytes():
                    continue
            except OSError:
                continue
            for id_, record in elsewhere._read()["sessions"].items():
                if isinstance(record, dict) and record.get("gitDir") == git_dir:
                    with self._changing() as document:
                        document["sessions"].setdefault(id_, record)
                    elsewhere.remove(id_)
                    moved += 1
        return moved

    def remove(self, session_id: str) -> None:
        with self._changing() as document:
            document["sessions"].pop(session_id, None)

    # -- inside ------------------------------------------------------------------------------------

    def _edit(self, session_id: str, **values: Any) -> Session | None:
        """Change values of a session; what it was before, None where there is none."""
        with self._changing() as document:
            before = _session(session_id, document["sessions"].get(session_id))
            if before is not None:
                _write(document["sessions"][session_id], values)
        return before

    @contextmanager
    def _changing(self) -> Iterator[Document]:
        """The file's content as of now, under the lock; what the block changes in it is written."""
        with self._locked():
            document = self._load() or self._set_aside()
            before = _dump(document)
            yield document
            after = _dump(document)
            if after != before or not self.path.exists():
                files.write_whole(self.path, after)

    def _read(self) -> Document:
        document = self._load()
        if document is None:
            # Only under the lock is it certain that it is not another process's new file that is
            # moved away.
            with self._locked():
                document = self._load() or self._set_aside()
        return document

    def _locked(self) -> AbstractContextManager[None]:
        return files.lock(paths.locks() / f"state-{self.path.stem}", holds="the state file")

    def _load(self) -> Document | None:
        """The file's content, an empty one where there is no file; None for an invalid one."""
        try:
            return _parse(self.path.read_bytes())
        except FileNotFoundError:
            return self._empty()
        except OSError as problem:
            raise BadSetting(
                f"cannot read the state file '{self.path}': {problem.strerror}",
                hint="make it readable for you",
            ) from problem

    def _empty(self) -> Document:
        return {"projectId": self.project_id, "worktree": self.worktree, "sessions": {}}

    def _set_aside(self) -> Document:
        """Move an invalid file out of the way, so that nothing of it is overwritten; the content of
        an empty one."""
        aside = self.path.with_name(f"{self.path.name}.corrupt-{now()}")
        self.path.rename(aside)
        line = (
            f"the state file could not be read and is kept as '{aside}'; "
            "'git daytona prune -n' lists the sandboxes that it knew"
        )
        log.logger.error("%s", line)
        self.warnings.append(line)
        return self._empty()


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
