"""The JSON form of the state file, as this and earlier versions and the existing TypeScript plugin
wrote it: fields that are not ours are kept as they are."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, get_type_hints

from git_daytona.base.errors import BadSetting
from git_daytona.sessions.state import GitReturn, Session, SetUp

Document = dict[str, Any]
"""The file: ``sessions`` by their ids, records which others write, too; ``children``, the id of a
sub-agent's session → that of its root, oldest first; ``projectId``; ``worktree``."""


def camel_case(name: str) -> str:
    """Return a field's name in JSON: ``lastAccessed`` for ``last_accessed``."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


_NAMES = {"number": "branchNumber", "prefix": "branchPrefix", "own_number": "number"}
_PARTS = (GitReturn, SetUp)


def _part(kind: type[GitReturn | SetUp], value: object) -> GitReturn | SetUp:
    return kind(**_read(kind, value if isinstance(value, dict) else {}))


_FIELDS: dict[type[GitReturn | SetUp | Session], dict[str, tuple[str, Callable[[Any], Any]]]] = {
    kind: {
        field: (
            _NAMES.get(field) or camel_case(field),
            partial(_part, hint) if hint in _PARTS else hint.__metadata__[0],
        )
        for field, hint in get_type_hints(kind, include_extras=True).items()
        if field != "id"  # the record's key
    }
    for kind in (*_PARTS, Session)
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


def read(session_id: str, record: object) -> Session | None:
    """Read a record; None for one without a sandbox (it stays in the file). Raises ValueError."""
    if not isinstance(record, dict | None):
        raise ValueError("it is not an object")
    if record is None or record.get("sandboxId") in (None, ""):
        return None
    found = Session(id=session_id, **_read(Session, record))
    return replace(found, synced_at=found.synced_at or found.git_return.updated_at)


def write(record: dict[str, Any], values: Mapping[str, Any], *, keep: bool = False) -> None:
    """Write values of a Session into a record; defaults are left out, or ``keep`` what is there."""
    for field, value in values.items():
        name, _ = _FIELDS[Session][field]
        if value not in (None, getattr(Session, field, None)):
            is_part = isinstance(value, _PARTS)
            record[name] = {camel_case(k): v for k, v in vars(value).items()} if is_part else value
        elif not keep:
            record.pop(name, None)


def dump(document: Document) -> bytes:
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
