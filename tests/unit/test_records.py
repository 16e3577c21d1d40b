"""The state file's text: what a change writes says what it should, whoever wrote the file before
and whatever else is in it."""

import json
import os

import pytest

from git_daytona.base import paths
from git_daytona.sessions import state, state_file


@pytest.fixture
def ours(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return state_file.StateFile("p", "/w")


def session(id_, message=""):
    return state.Session(id_, "box", 1, "/w", 1, 1, state.GitReturn(state.PENDING, message, 5))


def test_a_line_for_each_session(ours):
    for number in range(2):
        ours.put(session(f"ses_{number}"))
    record = (
        '{"sandboxId":"box","branchNumber":1,"worktree":"/w","created":1,"lastAccessed":1,'
        '"gitReturn":{"state":"pending","message":"","updatedAt":5}}'
    )
    assert ours.path.read_text() == (
        '{\n  "projectId": "p",\n  "worktree": "/w",\n  "sessions": {\n'
        f'"ses_0":{record},\n"ses_1":{record}\n  }}\n}}'
    )


def test_half_a_character_and_unknown_fields_stay(ours):
    ours.path.parent.mkdir(parents=True)
    ours.path.write_text(
        '{"other": [1], "sessions": {"a": {"sandboxId": "b", "x": "\\ud83d"}, "c": 7}}'
    )
    ours.edit("a", deleting=1)
    assert ours.get("a").deleting
    ours.touch("a")
    content = json.loads(ours.path.read_bytes().decode("utf-8", "surrogatepass"))
    assert content["other"] == [1] and content["sessions"]["c"] == 7
    assert content["sessions"]["a"].pop("lastAccessed")
    assert content["sessions"]["a"] == {"sandboxId": "b", "x": "\ud83d"}


def test_anothers_change_of_equal_size_and_time_is_seen(ours):
    """Two processes, or the plugin, which writes into the file in place."""
    ours.put(session("ses_a", "one"))
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
