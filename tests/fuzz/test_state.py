"""State files, of the other plugin's and of whoever's: read without an exception, changed without
losing what others wrote."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from git_daytona.sessions import state
from git_daytona.sessions.records import BadRecord, read
from git_daytona.sessions.state_file import StateFile
from support.foreign_values import encoded, json_values, nested, objects, text

MINE = state.Session("mine", "box", 3, "/repo", 1, 2, state.GitReturn(state.SYNCED))
records = objects(
    "sandboxId",
    "branchNumber",
    "worktree",
    "created",
    "lastAccessed",
    "gitReturn",
    "gitDir",
    "deleting",
    "syncedAt",
    "title",
    "notice",
)
good = st.tuples(st.text("abc-", min_size=1, max_size=9), records).map(
    lambda pair: pair[1] | {"sandboxId": pair[0]}
)
documents = st.fixed_dictionaries(
    {"sessions": st.dictionaries(text, records | good | json_values, max_size=4)},
    optional={
        "children": json_values | st.dictionaries(text, text),
        "projectId": json_values,
        "other": json_values,
    },
)


@given(text, records | good | json_values)
def fuzz_record(id_, record):
    try:
        found = read(id_, record)
    except ValueError:
        assert record is not None and (not isinstance(record, dict) or "sandboxId" in record)
        return
    none = record is None or record.get("sandboxId") in (None, "")
    assert (found is None) == none
    if found is None:
        return
    number = record.get("branchNumber")
    assert found.number == number and (number is None or 0 < number < 10**15)
    assert found.sandbox_id == record["sandboxId"] and found.git_dir == (
        record.get("gitDir") or None
    )
    for moment in (
        found.created,
        found.last_accessed,
        found.synced_at,
        found.deleting,
        found.git_return.updated_at,
    ):
        assert isinstance(moment, int) and 0 <= moment < 1e15
    assert found.title.isprintable() and isinstance(found.needs_sync, bool)


test_record = fuzz_record


def same(one, other):
    """Equal, and NaN is NaN."""
    return encoded(one) == encoded(other)


@settings(max_examples=25)
@given(documents, text)
def test_what_others_wrote_survives(document, id_):
    file = StateFile("fuzzed", "/repo")
    file.path.parent.mkdir(parents=True, exist_ok=True)
    file.path.write_bytes(encoded(document))
    before = json.loads(encoded(document))
    file.sessions()
    with contextlib.suppress(BadRecord):
        assert file.get(id_) is None or id_ in before["sessions"]
    file.put(MINE)
    file.touch("mine")
    file.note_child("child", "mine")
    assert file.root_of("child") == "mine"
    assert file.get("mine").sandbox_id == "box"
    after = json.loads(file.path.read_bytes())
    for name, value in before["sessions"].items():
        if name != "mine":
            assert same(after["sessions"][name], value)
    assert same(after.get("other"), before.get("other"))
    file.remove("mine")
    assert file.get("mine") is None
    assert not list(file.path.parent.glob("*.corrupt-*"))


@settings(max_examples=40)
@given(
    st.binary(max_size=60)
    | json_values.map(encoded)
    | st.integers(1, 3000).map(nested)
    | st.integers(100, 1100).map(lambda n: b'{"sessions": {"s": ' + nested(n // 2) + b"}}")
)
def test_what_makes_no_sense_is_set_aside_whole(data):
    file = StateFile("senseless", "/repo")
    file.path.parent.mkdir(parents=True, exist_ok=True)
    for path in file.path.parent.glob("senseless*"):
        path.unlink()
    file.path.write_bytes(data)
    assert isinstance(file.sessions(), list)
    file.put(MINE)
    assert file.get("mine").sandbox_id == "box"
    aside = list(file.path.parent.glob("*.corrupt-*"))
    try:
        document = json.loads(data)
        sensible = isinstance(document, dict) and isinstance(document.get("sessions", {}), dict)
    except (ValueError, RecursionError):
        sensible = False
    if aside:
        assert aside[0].read_bytes() == data
    assert sensible or aside


@pytest.mark.timeout(30)
def test_long_ones(home):
    file = StateFile("long", "/repo")
    file.path.parent.mkdir(parents=True, exist_ok=True)
    file.path.write_bytes(
        encoded(
            {"sessions": {f"s{n}": {"sandboxId": "x", "title": " x" * 50} for n in range(20_000)}}
        )
    )
    assert len(file.sessions()) == 20_000
