"""Numbers of sessions and the records that hold them: whatever somebody else has put there, the
next number is a sane one, and what cannot be read is left alone."""

import json
import shutil

import pytest

from git_daytona.base.errors import BadSetting, NotFound
from git_daytona.git import branches
from git_daytona.git.refs import COUNTER, LAST_NUMBER
from git_daytona.sessions import recovery, state_file
from support.round_trip import execute

FOREIGN = {
    "nine digits": ("branch", "opencode/999999999"),
    "the last one": ("branch", f"opencode/{LAST_NUMBER}"),
    "beyond int64": ("branch", "opencode/99999999999999999999"),
    "leading zeros": ("branch", "opencode/0007"),
    "below a number": ("branch", "opencode/1000000/x"),
    "a remote": ("config", "remote.sandbox-999999999.url", "x"),
    "a tracking ref": ("update-ref", "refs/remotes/sandbox-999999999/main", "HEAD"),
}


def count(repo, text):
    blob = repo.git("hash-object", "-w", "--stdin", stdin=text)
    repo.git("update-ref", COUNTER, blob)


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN)
def test_case_109_foreign_names_do_not_move_the_numbers(repo, coordinate, foreign):
    repo.git(*foreign)
    coordinator = coordinate(repo.path)
    assert [coordinator.reserve().number for _ in range(2)] == [1, 2]


@pytest.mark.parametrize(
    ("counter", "number"),
    [
        (str(LAST_NUMBER), 2),
        (f"{LAST_NUMBER - 1}\n", LAST_NUMBER),
        ("9" * 30, 2),
        ("x", 2),
        ("5", 6),
    ],
)
def test_case_109_a_foreign_counter(repo, coordinate, counter, number):
    """Nor does a number go beyond the last one, or to a name that is taken, or known."""
    count(repo, counter)
    repo.git("branch", "opencode/1")
    coordinator = coordinate(repo.path)
    names = coordinator.reserve()
    assert names.number == number
    coordinator.record("ses_a", "box", names)
    again = coordinate(repo.path).find("ses_a")
    assert again.number == number, "what is written can be read"
    repo.git("branch", "-D", f"opencode/{number}")
    count(repo, str(number - 1))
    known = {number}
    assert branches.reserve(coordinator.repository, known=known).number not in {1, number}


BROKEN = {
    "a number with a name": {"branchNumber": "1"},
    "a number beyond all": {"branchNumber": LAST_NUMBER + 1},
    "a broken one": {"branchNumber": 1.5},
    "no prefix": {"branchPrefix": "-x"},
    "another kind of prefix": {"branchPrefix": ["agent"]},
    "no sandbox": {"sandboxId": 7},
    "no repository": {"gitDir": 7},
}


def test_case_109_a_record_that_cannot_be_read(local, repo, begin, coordinate, tell):
    """It spoils neither the other sessions nor itself: nothing is deleted, replaced or pruned, and
    as soon as it is mended, all is as it was."""
    begin(repo, "ses_b")
    session = begin(repo, "ses_a")
    session.agent("echo work >work")
    file = session.coordinator.state.path
    whole = file.read_text()
    for what, values in BROKEN.items():
        document = json.loads(whole)
        document["sessions"]["ses_a"] |= values
        file.write_text(json.dumps(document))
        local.forget_calls()
        coordinator = coordinate(repo.path)
        assert [each.id for each in coordinator.sessions()] == ["ses_b"], what
        for act in (
            coordinator.start,
            coordinator.sync,
            coordinator.delete,
            lambda name, of=coordinator: of.delete(name, force=True),
            lambda name, of=coordinator: execute(of, name, "true"),
            lambda name, of=coordinator: of.within(name, lambda _id: None),
            coordinator.find,
        ):
            with pytest.raises(BadSetting, match="record of session 'ses_a'"):
                act("ses_a")
        with pytest.raises(NotFound):
            coordinator.delete("2", force=True)
        assert local.counts == {}
        assert recovery.recover(coordinator).failed == []
        found = recovery.leftovers(coordinator)
        assert not found.sandboxes, what
        told = tell("git-daytona", "status", "--offline", cwd=repo.path)
        assert told.status == 0 and "opencode/1" in told.out
        assert "record of session 'ses_a'" in told.err and next(iter(values)) in told.err
        pruned = tell("git-daytona", "prune", "--yes", cwd=repo.path)
        assert pruned.status == 0
        assert any(each.id == session.sandbox_id for each in local.sandboxes)
        assert (
            json.loads(file.read_text())["sessions"]["ses_a"] == (document["sessions"]["ses_a"])
        ), what
    file.write_text(whole)
    coordinate(repo.path).delete("ses_a")
    assert repo.show("opencode/2", "work") == "work"


@pytest.mark.parametrize("content", [b"{", b'{"sessions": 3}', b"\xff\xfe"])
def test_case_109_a_state_file_that_cannot_be_read(local, repo, begin, coordinate, content):
    """What stood in it is nobody's to prune, as far as it can be told."""
    session = begin(repo)
    file = session.coordinator.state.path
    file.write_bytes(content + file.read_bytes())
    coordinator = coordinate(repo.path)
    assert coordinator.sessions() == []
    found = recovery.leftovers(coordinator)
    assert session.sandbox_id not in {info.id for info in found.sandboxes}
    recovery.adopt(coordinator, session.sandbox_id)
    for aside in file.parent.glob("*.corrupt-*"):
        aside.unlink()


def test_numbers_of_older_versions_are_read(repo, coordinate):
    """They went one beyond the nine digits that they could read."""
    file = coordinate(repo.path).state
    file.path.parent.mkdir(parents=True)
    record = {"sandboxId": "box", "branchNumber": 10**9, "gitDir": str(repo.path / ".git")}
    file.path.write_text(json.dumps({"sessions": {"ses_a": record}}))
    assert coordinate(repo.path).find(str(10**9)).names.branch == "opencode/1000000000"
    shutil.rmtree(file.path.parent)
    assert state_file.all_sessions() == []
