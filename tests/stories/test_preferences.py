"""``git daytona config``, and what ``git config daytona.*`` changes."""

import json
import time

import pytest

from git_daytona.git import branches
from git_daytona.git.refs import KEPT
from git_daytona.service import host_tools
from git_daytona.service.toasts import Toasts
from git_daytona.service.turns import Turns
from git_daytona.service.workspace import Workspace
from git_daytona.sessions import records, recovery, state
from git_daytona.sessions.branch import Outcome
from git_daytona.settings import preferences

CANARY = "dtn_canary0123456789abcdef"


def rows(told) -> dict[str, tuple]:
    assert told.status == 0, told.err
    return {
        each["name"]: (each["value"], each["isSet"], each["source"])
        for each in json.loads(told.out)
    }


def test_config_says_where_each_setting_is_from(repo, tell, monkeypatch, home):
    found = rows(tell("git-daytona", "config", "--json", cwd=repo.path))
    assert found["DAYTONA_API_URL"] == ("https://app.daytona.io/api", True, "default")
    assert found["DAYTONA_SNAPSHOT"] == found["DAYTONA_API_KEY"] == (None, False, "")
    assert found["daytona.branchPrefix"] == ("opencode", True, "default")
    assert found["daytona.keptAge"] == ("never", True, "default")
    (repo.path / ".env").write_text(
        f"DAYTONA_API_KEY={CANARY}\nDAYTONA_SNAPSHOT=theirs\nDAYTONA_TARGET=eu\n"
    )
    monkeypatch.setenv("DAYTONA_API_URL", "http://127.0.0.1:9/api")
    repo.git("config", "--global", "daytona.syncOnIdle", "false")
    told = tell("git-daytona", "config", "--json", cwd=repo.path)
    found = rows(told)
    assert "DAYTONA_TARGET in '.env' ignored" in told.err
    assert found["DAYTONA_API_KEY"] == (None, True, f"'.env' of '{repo.path}'")
    assert found["DAYTONA_SNAPSHOT"] == ("theirs", True, f"'.env' of '{repo.path}'")
    assert found["DAYTONA_API_URL"] == (
        "http://127.0.0.1:9/api",
        True,
        "the environment variable DAYTONA_API_URL",
    )
    assert found["daytona.syncOnIdle"] == ("false", True, f"git config (global, {home}/.gitconfig)")
    repo.git("config", "daytona.snapshot", "mine")
    own = "daytona.snapshot, git config (local, .git/config)"
    assert rows(tell("git-daytona", "config", "--json", cwd=repo.path))["DAYTONA_SNAPSHOT"] == (
        "mine",
        True,
        own,
    )
    monkeypatch.setenv("DAYTONA_SNAPSHOT", "now")
    found = rows(tell("git-daytona", "config", "--json", cwd=repo.path))
    assert found["DAYTONA_SNAPSHOT"] == ("now", True, "the environment variable DAYTONA_SNAPSHOT")
    for words in (("config",), ("config", "--json")):
        told = tell("git-daytona", *words, cwd=repo.path)
        assert CANARY not in told.out + told.err
    shown = tell("git-daytona", "config", cwd=repo.path).out
    assert "(set, not shown)" in shown
    assert tell("git-daytona", "config").status == 0  # outside a repository, too


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        (
            "branchPrefix",
            "a..b",
            "daytona.branchPrefix is 'a..b', which cannot begin a branch's name",
        ),
        ("branchPrefix", "-x", "cannot begin a branch's name"),
        ("branchPrefix", "a\x1bb", "cannot begin a branch's name"),
        ("branchPrefix", "", "cannot begin a branch's name"),
        ("syncOnIdle", "maybe", "daytona.syncOnIdle is 'maybe', which is neither true nor false"),
        ("syncEvery", "-1", "daytona.syncEvery is '-1', which is no number of minutes"),
        ("keptAge", "soonish", "daytona.keptAge is 'soonish', which is no age"),
    ],
)
def test_what_makes_no_sense_is_named(repo, tell, name, value, says):
    repo.git("config", f"daytona.{name}", value)
    told = tell("git-daytona", "config", cwd=repo.path)
    assert told.status == 13
    error, hint = told.complaint
    assert says in error and hint == f"hint: set it anew: git config --local daytona.{name} VALUE"
    assert f"daytona.{name}" in told.out
    # and is in the way of nothing else
    assert tell("git-daytona", "status", "--offline", cwd=repo.path).status == 0


def test_a_repositorys_own_files_set_no_preference(repo):
    (repo.path / ".gitconfig").write_text(
        "[daytona]\n\tsyncOnIdle = false\n\tallowHostTools = true\n"
    )
    (repo.path / ".env").write_text("daytona.syncOnIdle=false\n")
    found = preferences.load(repo.path)
    assert (
        found.found == {}
        and found.sync_on_idle()
        and host_tools.opted_in(repo.path, {}) == frozenset()
    )
    repo.git("config", "daytona.allowHostTools", "lsp")
    assert host_tools.opted_in(repo.path, {}) == {"lsp"}


def test_sync_on_idle(repo, begin, tell):
    session = begin(repo)
    session.agent("echo made >new.txt")
    payload = json.dumps(
        {"session_id": session.coordinator.find("1").id, "cwd": str(repo.path)}
    ).encode()
    before = repo.git("rev-parse", "opencode/1")
    repo.git("config", "daytona.syncOnIdle", "no")
    assert tell("git-daytona", "hook", "session.idle", stdin=payload).status == 0
    assert repo.git("rev-parse", "opencode/1") == before
    repo.git("config", "daytona.syncOnIdle", "yes")
    assert tell("git-daytona", "hook", "session.idle", stdin=payload).status == 0
    assert repo.show("opencode/1", "new.txt") == "made"


def test_the_preferred_snapshot_is_used_and_a_wrong_one_named(local, repo, tell):
    repo.git("config", "daytona.snapshot", "no-such-snapshot")
    told = tell("git-daytona", "start", cwd=repo.path)
    assert told.status == 13 and "no-such-snapshot" in told.err
    assert (
        "hint: correct DAYTONA_SNAPSHOT (daytona.snapshot, git config (local, .git/config))"
        in told.err
    )
    repo.git("config", "--unset", "daytona.snapshot")
    assert tell("git-daytona", "start", cwd=repo.path).status == 0


def test_what_was_kept_long_ago_goes_only_when_it_is_asked_for(local, repo, coordinate, tell):
    head = repo.git("rev-parse", "HEAD")

    def stamp(days: float) -> str:
        return time.strftime("%Y%m%dT%H%M%S", time.gmtime(time.time() - days * 86400))

    old, new = (f"{KEPT}opencode-1/{stamp(days)}-commits-{head[:12]}" for days in (100, 80))
    odd = f"{KEPT}opencode-1/19990101-by-hand"
    for ref in (old, new, odd, "refs/heads/other"):
        repo.git("update-ref", ref, head)
    tell("git-daytona", "prune", "--yes", cwd=repo.path)  # what other tests left in the account
    assert set(repo.kept()) == {old, new, odd}
    repo.git("config", "daytona.keptAge", "90.days")
    told = tell("git-daytona", "prune", "--dry-run", cwd=repo.path)
    assert told.out == f"{old} ({head[:10]})\n" and old in repo.kept()
    coordinator = coordinate(repo.path)
    found = recovery.leftovers(coordinator)
    # somebody moves it meanwhile: then it stays
    repo.git("update-ref", old, repo.commit("another", "one\n"))
    recovery.prune(coordinator, found)
    assert old in repo.kept()
    repo.git("update-ref", old, head)
    assert tell("git-daytona", "prune", "--yes", cwd=repo.path).status == 0
    assert set(repo.kept()) == {new, odd} and repo.git("rev-parse", "other") == head
    assert f"kept.expire ref={old} commit={head}" in tell("git-daytona", "logs", cwd=repo.path).out
    repo.git("config", "daytona.keptAge", "now")
    assert set(
        branches.kept_before(coordinator.repository, preferences.load(repo.path).kept_until())
    ) == {new}


def test_the_branch_prefix_is_for_new_sessions(local, repo, begin, tell, coordinate):
    begin(repo)
    repo.git("config", "daytona.branchPrefix", "work/agents")
    second = begin(repo)
    assert repo.git("for-each-ref", "--format=%(refname)", "refs/heads").split() == [
        "refs/heads/main",
        "refs/heads/opencode/1",
        "refs/heads/work/agents/2",
    ]
    second.agent("echo made >new.txt")
    repo.git("config", "daytona.branchPrefix", "others")  # a session keeps the branch that it has
    assert tell("git-daytona", "sync", "work/agents/2", cwd=repo.path).out.startswith(
        "work/agents/2 is at "
    )
    assert repo.show("work/agents/2", "new.txt") == "made"
    shown = tell("git-daytona", "status", "--porcelain", cwd=repo.path).out.splitlines()
    assert [line.split("\t")[1] for line in shown] == ["opencode/1", "work/agents/2"]
    assert [line.split("\t")[6] for line in shown] == ["0", "1"]
    assert tell("git-daytona", "sync", "1", cwd=repo.path).status == 0
    repo.git("branch", "others/3/taken")  # takes the name of others/3
    third = begin(repo)
    assert third.number == 4 and repo.git("rev-parse", "others/4")
    assert (
        tell("git-daytona", "delete", "2", cwd=repo.path).out
        == "nothing new in the sandbox\ndeleted\n"
    )
    assert repo.show("work/agents/2", "new.txt") == "made"


def test_a_prefix_that_cannot_be_is_named_before_anything_is_made(local, repo, tell):
    repo.git("branch", "work")
    repo.git("config", "daytona.branchPrefix", "work/agents")
    told = tell("git-daytona", "start", cwd=repo.path)
    assert (
        told.status == 9 and told.complaint[1] == "hint: rename it: git branch -m work other-name"
    )
    repo.git("config", "daytona.branchPrefix", "a b")
    assert tell("git-daytona", "start", cwd=repo.path).status == 13
    assert not [call for call in local.calls if "create" in str(call)]


def test_a_prefix_in_the_state_file_is_no_way_to_an_option(repo, coordinate):
    file = coordinate(repo.path).state
    file.put(
        state.Session(
            "ses_1", "box", 1, str(repo.path), 1, 1, state.GitReturn(state.PENDING), prefix="mine"
        )
    )
    assert file.get("ses_1").prefix == "mine"
    for bad in ("--output=x", "a b", "../..", "a\n", "x" * 101, "/", "a//b", "*", ".git"):
        document = json.loads(file.path.read_text())
        document["sessions"]["ses_1"]["branchPrefix"] = bad
        file.path.write_text(json.dumps(document))
        with pytest.raises(records.BadRecord, match="'branchPrefix' is not valid"):
            file.get("ses_1")


def test_sync_on_idle_in_the_service(repo, coordinate):
    """Off, the end of a turn syncs nothing; the end of OpenCode does, for then there is no later
    chance."""
    coordinator = coordinate(repo.path)
    made = state.Session(
        "ses_1", "box", 1, str(repo.path), 1, 1, state.GitReturn(state.PENDING), coordinator.git_dir
    )
    coordinator.state.put(made)
    synced, told = [], []
    coordinator.sync = lambda root: synced.append(root) or Outcome(False, None)
    toasts = Toasts(lambda _method, params: told.append(params["message"]))
    workspace = Workspace(repo.path, str(repo.path), None, toasts)
    workspace._made = coordinator
    turns = Turns(workspace, None)

    def turn() -> None:
        turns.begun("ses_1")
        turns.ended("ses_1")
        assert turns._lane("ses_1").wait(time.monotonic() + 30)

    turn()
    assert synced == ["ses_1"]
    repo.git("config", "daytona.syncOnIdle", "false")  # also while it runs
    turn()
    assert synced == ["ses_1"]
    repo.git("config", "daytona.syncOnIdle", "perhaps")
    turn()
    assert synced == ["ses_1"] and "daytona.syncOnIdle is 'perhaps'" in told[-1]
    repo.git("config", "daytona.syncOnIdle", "false")
    turn()
    assert turns.drain(30) and synced == ["ses_1", "ses_1"]


def test_an_operation_goes_by_what_was_set_at_its_beginning(repo, coordinate):
    coordinator = coordinate(repo.path)
    repo.git("config", "daytona.syncOnIdle", "false")
    with coordinator.one_at_a_time("ses_a"):
        before = preferences.load(repo.path)
        repo.git("config", "daytona.syncOnIdle", "true")
        with coordinator.one_at_a_time("ses_b"):
            assert preferences.load(repo.path) == before
    assert preferences.load(repo.path).sync_on_idle()
