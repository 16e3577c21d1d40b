"""The state file: which session has which sandbox, number and worktree, and how its last sync went.

One JSON file per OpenCode project, shared with the existing TypeScript plugin: fields that are not
ours are kept as they are. git-daytona-state(5) describes it.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha1
from itertools import count
from pathlib import Path
from typing import Annotated, Any, get_type_hints
from urllib.parse import unquote, urlsplit

from git_daytona.base import files, log, paths
from git_daytona.base.errors import BadSetting, NoRepository
from git_daytona.base.secret import printable
from git_daytona.git import identity
from git_daytona.git.refs import LAST_NUMBER, SANDBOX_BRANCH, Names, is_prefix
from git_daytona.git.repository import Repository
from git_daytona.sandbox import ownership
from git_daytona.sessions import moved

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
    """Return milliseconds since the epoch, as JavaScript's Date.now()."""
    return int(time.time() * 1000)


def one_line(title: str) -> str:
    """Make a title one line of bounded length, without what moves a cursor or turns the writing."""
    return "".join(c for c in " ".join(title.split()) if c.isprintable())[:TITLE]


# -- the schema: each field's type has the function that reads any JSON value as one ---------------


def _milliseconds(value: Any) -> int:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool)
    return int(value) if usable and 0 <= value < 1e15 else 0


# Without these a session is another one, and its work would go nowhere: what they cannot read is
# left alone (see BadRecord).


def _number(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= LAST_NUMBER:
        raise ValueError
    return value


def _sandbox(value: Any) -> str:
    if not isinstance(value, str | None):
        raise ValueError
    return value or ""


def _git_dir(value: Any) -> str | None:
    return _sandbox(value) or None


def _git_return(value: object) -> "GitReturn":
    return GitReturn(**_read(GitReturn, value if isinstance(value, dict) else {}))


def _set_up(value: object) -> "SetUp":
    return SetUp(**_read(SetUp, value if isinstance(value, dict) else {}))


def _object(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) and value else None


def _prefix(value: Any) -> str:
    if value is not None and not is_prefix(_sandbox(value)):
        raise ValueError
    return value or SANDBOX_BRANCH


Milliseconds = Annotated[int, _milliseconds]
Text = Annotated[str, lambda value: str(value or "")]


@dataclass(frozen=True)
class GitReturn:
    """How the work came back last: state, one line for people, when."""

    state: Annotated[str, lambda value: str(value or PENDING)]
    """A GitState, or a word of another program's."""
    message: Text = ""
    updated_at: Milliseconds = 0


@dataclass(frozen=True)
class SetUp:
    """How a sandbox's set-up went (sessions/provision.py): ``waiting`` for consent, ``running``,
    ``done`` or ``failed``; empty where there is none."""

    state: Text = ""
    commit: Text = ""
    """What the set-up is read from."""
    digest: Text = ""
    """What there has to be consent to."""
    run: Milliseconds = 0
    """The number of the run there."""
    message: Text = ""


@dataclass(frozen=True)
class Session:
    """One session; times are since the epoch. The existing plugin's records lack what is ours."""

    id: str
    sandbox_id: Annotated[str, _sandbox]
    number: Annotated[int | None, _number]
    """None where there is no repository to sync with."""
    worktree: Text
    created: Milliseconds
    last_accessed: Milliseconds
    git_return: Annotated[GitReturn, _git_return]
    git_dir: Annotated[str | None, _git_dir] = None
    """The repository's common directory (ours): tells clones of one project apart."""
    repository: Text = ""
    """The repository's identity (ours), by which it is known wherever it is moved; empty for a
    directory without one, and in records of versions that went by ``git_dir`` alone."""
    deleting: Milliseconds = 0
    """When a deletion began that has not succeeded (ours); 0: none did."""
    synced_at: Milliseconds = 0
    """``last_accessed`` as the last successful sync found it (ours): what was done later may not be
    here."""
    title: Annotated[str, lambda value: one_line(value) if isinstance(value, str) else ""] = ""
    """What its client or its user calls it (ours), in one line."""
    prefix: Annotated[str, _prefix] = SANDBOX_BRANCH
    """What is before ``/N`` in its branch's name (ours)."""
    notice: Text = ""
    """What its agent has to be told with the next tool result (ours)."""
    api_url: Text = ""
    """The API that its sandbox was seen on first (ours); empty until then."""
    organization_id: Text = ""
    """The sandbox's organisation there (ours); empty where that API does not say."""
    depth: Annotated[int, _milliseconds] = 0
    """How many generations of the history its sandbox has (ours); 0: all."""
    setup: Annotated[SetUp, _set_up] = SetUp()
    """How the project's set-up went in its sandbox (ours)."""
    own_number: Annotated[int | None, _number] = None
    """What it is called where nothing is synced, and ``number`` is missing (ours)."""
    ordered: Annotated[dict[str, Any] | None, _object] = None
    """What of its sandbox was ordered on the command line (ours), as ``Order.record`` has it."""

    @property
    def names(self) -> Names:
        """The names of its branch and remote; raises NoRepository if it is not synced."""
        if self.number is None:
            raise NoRepository(
                f"session {self.name} is not synced: {self.git_return.message}",
                hint=f"reach it: git daytona exec {self.name} -- COMMAND",
            )
        return Names(self.number, self.prefix)

    @property
    def name(self) -> str:
        """What a person calls it: its number, or its id if it has none."""
        return str(self.number or self.own_number or self.id)

    @property
    def branch(self) -> str:
        """The branch here that its work comes back to; empty if it is not synced."""
        return "" if self.number is None else Names(self.number, self.prefix).branch

    @property
    def needs_sync(self) -> bool:
        """Whether its sandbox may hold work that is not here."""
        return self.number is not None and (
            self.git_return.state != SYNCED or self.last_accessed > self.synced_at
        )


Document = dict[str, Any]
"""The file: ``sessions`` by their ids, records which others write, too; ``children``, the id of a
sub-agent's session → that of its root, oldest first; ``projectId``; ``worktree``."""


def camel_case(name: str) -> str:
    """Return a field's name in JSON: ``lastAccessed`` for ``last_accessed``."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


_NAMES = {"number": "branchNumber", "prefix": "branchPrefix", "own_number": "number"}
_FIELDS: dict[type[GitReturn | SetUp | Session], dict[str, tuple[str, Callable[[Any], Any]]]] = {
    kind: {
        field: (_NAMES.get(field) or camel_case(field), hint.__metadata__[0])
        for field, hint in get_type_hints(kind, include_extras=True).items()
        if field != "id"  # the record's key
    }
    for kind in (GitReturn, SetUp, Session)
}
"""Each field's name in the file and its reader."""


def names() -> set[str]:
    """Return the names of all fields of the file."""
    known = {name for fields in _FIELDS.values() for name, _ in fields.values()}
    return known | {"projectId", "worktree", "sessions", "children"}


class BadRecord(BadSetting):
    """A session's record cannot be read: it is neither taken for another one nor for none."""


def _read(kind: type[GitReturn | SetUp | Session], record: dict[str, Any]) -> dict[str, Any]:
    values = {}
    for field, (name, read) in _FIELDS[kind].items():
        try:
            values[field] = read(record.get(name))
        except ValueError:
            raise ValueError(f"'{name}' is not valid") from None
    return values


def _session(session_id: str, record: object) -> Session | None:
    """Read a record; None for one without a sandbox (it stays in the file). Raises ValueError."""
    if not isinstance(record, dict | None):
        raise ValueError("it is not an object")
    if record is None or record.get("sandboxId") in (None, ""):
        return None
    found = Session(id=session_id, **_read(Session, record))
    synced_at = found.synced_at or found.git_return.updated_at
    return replace(found, synced_at=synced_at)


def _write(record: dict[str, Any], values: dict[str, Any]) -> None:
    """Write values of a Session into a record; what is a field's default is left out."""
    for field, value in values.items():
        name, _ = _FIELDS[Session][field]
        if value is None or value == getattr(Session, field, None):
            record.pop(name, None)
        elif isinstance(value, (GitReturn, SetUp)):
            record[name] = {camel_case(part): each for part, each in vars(value).items()}
        else:
            record[name] = value


def _dump(document: Document) -> bytes:
    """Write the text of a file, with a line for each session."""

    def text(value: object) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    lines = ",\n".join(f"{text(id_)}:{text(each)}" for id_, each in document["sessions"].items())
    sessions = f"{{\n{lines}\n  }}" if lines else "{}"
    entries = ",\n".join(
        f"  {text(name)}: {sessions if name == 'sessions' else text(value)}"
        for name, value in document.items()
    )
    # surrogatepass: half of a character that was cut in two, as JavaScript writes it, is kept.
    return f"{{\n{entries}\n}}".encode("utf-8", "surrogatepass")


# -- the file --------------------------------------------------------------------------------------


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
        values = {
            field: value
            for field in _FIELDS[Session]
            if (value := getattr(session, field)) not in (None, getattr(Session, field, None))
        }
        with self._changing() as document:
            earlier = document["sessions"].get(session.id)
            record = earlier if isinstance(earlier, dict) else {}
            document["sessions"][session.id] = record
            _write(record, values)

    def give_number(self, session_id: str) -> None:
        """Give a session of a directory without a repository the number after the last of those
        that are there."""
        with self._changing() as document:
            records = document["sessions"]
            numbers = [
                each.get("number")
                for each in records.values()
                if isinstance(each, dict) and each.get("gitDir") == self._git_dir
            ]
            whole = [each for each in numbers if type(each) is int and 0 < each < LAST_NUMBER]
            records[session_id]["number"] = max(whole, default=0) + 1

    def edit(self, session_id: str, **values: Any) -> Session | None:
        """Change values of a session; return what it was before, None where there is none."""
        return self._edit(session_id, lambda _: values)

    def _edit(self, session_id: str, change: Callable[[Session], dict[str, Any]]) -> Session | None:
        with self._changing() as document:
            before = self._session(session_id, document["sessions"].get(session_id))
            if before is not None:
                _write(document["sessions"][session_id], change(before))
        return before

    def note(self, session_id: str, state: str, message: str, **values: int) -> None:
        """Record how a sync went; ``synced_at`` is what ``last_accessed`` was when a successful one
        began."""
        self.edit(session_id, git_return=GitReturn(state, message, now()), **values)

    def touch(self, session_id: str) -> int:
        """Record that a session is used now; a deletion that was not finished is then off. Return
        the moment."""
        moment = 0

        def later(before: Session) -> dict[str, Any]:
            nonlocal moment
            # than any use before, and than what the last sync found, whatever the clock says
            moment = max(now(), before.last_accessed + 1, before.synced_at + 1)
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
            for id_, record in elsewhere._records().items():
                names = (record.get("gitDir"), record.get("repository"))
                if self._git_dir == names[0] or (own and own == names[1]):
                    with self._changing() as document:
                        document["sessions"].setdefault(id_, record)
                    elsewhere.remove(id_)
        self._settle()

    def _settle(self) -> None:
        """Make the file say where the repository is, and which one, if that is not what it says."""
        records = list(self._records().values())
        lines: list[str] = []
        if not moved.is_settled(records, self._git_dir, self.identity):
            with self._changing() as document:
                records = [each for each in document["sessions"].values() if isinstance(each, dict)]
                lines = moved.settle(records, self._git_dir, self.worktree)
        lines += moved.left_here(records, self._git_dir, self.identity)
        self.warnings += [line for line in map(printable, lines) if line not in self.warnings]

    def remove(self, session_id: str) -> None:
        with self._changing() as document:
            document["sessions"].pop(session_id, None)

    # -- inside ------------------------------------------------------------------------------------

    def _records(self) -> dict[str, dict[str, Any]]:
        records = self._read()["sessions"].items()
        return {id_: record for id_, record in records if isinstance(record, dict)}

    def _session(self, session_id: str, record: object) -> Session | None:
        try:
            return _session(session_id, record)
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
            before = _dump(document)
            yield document
            after = _dump(document)
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
        aside = _unused(f"{path}.corrupt-", now())
        path.rename(aside)
        line = (
            f"the state file could not be read and is kept as '{aside}'; "
            "'git daytona prune -n' lists the sandboxes that it knew"
        )
        self._warn(line)
        return empty


def _unused(name: str, number: int) -> Path:
    """Return the first path of the name, with the number or a later one, where nothing is."""
    return next(path for each in count(number) if not (path := Path(f"{name}{each}")).exists())


def _locked(path: Path) -> AbstractContextManager[None]:
    return files.lock(paths.locks() / f"state-{path.stem}", holds="the state file")


def project_of(repository: Repository | None) -> str:
    """Return OpenCode's id of a project, as 1.18.33 and 2.0.14 were seen to form it: of ``origin``,
    else what it wrote into ``.git/opencode``, else the first root of HEAD in order, else
    ``global``."""
    if repository is None:
        return NO_PROJECT
    if place := _place(repository.section("remote.origin").get("url", "").strip()):
        return sha1(f"git-remote:{place}".encode(), usedforsecurity=False).hexdigest()
    with suppress(OSError, UnicodeDecodeError):
        cached = (repository.common_dir / "opencode").read_text()[:200].strip()
        if cached.isalnum():
            return cached
    roots = repository.git("rev-list", "--max-parents=0", "HEAD", check=False)
    return min(roots.text.split() if roots.status == 0 else (), default=NO_PROJECT)


def name_of(repository: Repository) -> str:
    """Return what a person calls a repository: the last part of where ``origin`` is, or the name of
    its folder."""
    place = _place(repository.section("remote.origin").get("url", "").strip())
    own = repository.common_dir
    folder = own.parent if own.name == ".git" else own
    return place.rpartition("/")[2] or folder.name


def _place(url: str) -> str:
    """Return host and path of a remote's URL, whatever its form; empty for one of this machine."""
    if "://" in url:
        parts = urlsplit(url)
        host, path = parts.hostname or "", parts.path
        host = f"[{host}]" if ":" in host else host
        if parts.scheme == "file":
            return ""
    else:  # git's short form of ssh, USER@HOST:PATH; OpenCode takes none without a user
        user, _, place = url.partition("@")
        host, _, path = place.partition(":")
        if not user:
            return ""
    path = path.strip("/").removesuffix(".git").rstrip("/")
    return f"{host.lower()}/{path}" if host and path else ""


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
    """Find which sandboxes any file of the storage names, also one that was set aside, or a record
    that cannot be read. Raises BadSetting."""
    try:
        files = [path.read_bytes() for path in paths.storage().glob("*.json*")]
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
