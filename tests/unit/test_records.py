"""The state file's text: what a change writes says what it should, whoever wrote the file before
and whatever else stands in it."""

import json
import os

from hypothesis import given
from hypothesis import strategies as st

from git_daytona.base import paths
from git_daytona.sessions import records, state

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
)
RECORDS = st.dictionaries(
    st.text(max_size=8),
    VALUES | st.dictionaries(st.text(max_size=8), VALUES, max_size=4),
    max_size=6,
)
DOCUMENTS = st.builds(
    lambda others, sessions: {**others, "sessions": sessions},
    st.dictionaries(st.text(max_size=8), VALUES, max_size=3),
    RECORDS,
)


@given(
    document=DOCUMENTS,
    changes=st.lists(st.tuples(st.integers(0, 7), st.text(max_size=8), VALUES), max_size=5),
    indent=st.sampled_from([None, 2]),
)
def test_any_changes_of_any_file(document, changes, indent):
    content = records.parse(json.dumps(document, indent=indent).encode())
    expected = json.loads(json.dumps(document))
    for place, other, value in changes:
        name = [*expected["sessions"], other][place % (len(expected["sessions"]) + 1)]
        record = expected["sessions"].get(name)
        before = content.raw, json.dumps(content.document)

        def apply(found, name=name, record=record, value=value):
            value = json.loads(json.dumps(value))
            if isinstance(record, dict):
                found["sessions"][name]["x"] = value
            elif value is None:
                found["sessions"].pop(name, None)
            else:
                found["sessions"][name] = value
            return "given back"

        apply(expected)
        after, result = records.change(content, name, apply)
        assert result == "given back"
        assert (content.raw, json.dumps(content.document)) == before, (
            "the earlier content is as it was"
        )
        assert json.loads(after.raw) == after.document == expected
        assert list(json.loads(after.raw)["sessions"]) == list(expected["sessions"])
        # Whoever reads the file finds the same, and changes it to the same.
        again, _ = records.change(records.parse(after.raw), None, lambda document: None)
        assert again.raw == after.raw
        content = after


def test_a_line_for_each_session():
    content = records.empty("p", "/w")
    for number in range(3):
        content, _ = records.change(
            content,
            f"ses_{number}",
            lambda document, n=number: document["sessions"].update({f"ses_{n}": {"n": n}}),
        )
    assert content.raw.decode() == (
        '{\n  "projectId": "p",\n  "worktree": "/w",\n  "sessions": {\n"ses_0":{"n":0},\n'
        '"ses_1":{"n":1},\n"ses_2":{"n":2}\n  }\n}'
    )


def test_half_a_character_stays():
    content = records.parse(b'{"sessions": {"a": {"title": "\\ud83d", "n": 1}}}')
    changed, _ = records.change(
        content, "a", lambda document: document["sessions"]["a"].update(n=2)
    )
    assert records.parse(changed.raw).records == {"a": {"title": "\ud83d", "n": 2}}


def test_anothers_change_of_equal_size_and_time_is_seen(tmp_path, monkeypatch):
    """Two processes, or the plugin, which writes into the file in place."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    ours = state.StateFile("p", "/w")
    session = state.Session("ses_a", "box", 1, "/w", 1, 1, state.GitReturn(state.PENDING, "one"))
    ours.put(session)
    assert [each.git_return.message for each in ours.sessions()] == ["one"]
    path = paths.state_file("p")
    status = path.stat()
    with path.open("r+b") as file:
        file.write(path.read_bytes().replace(b'"one"', b'"two"'))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert [each.git_return.message for each in ours.sessions()] == ["two"]
    ours.touch("ses_a")
    assert b'"two"' in path.read_bytes()
    # Nothing is written for a session that is not there.
    before = path.stat()
    ours.touch("ses_b")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
