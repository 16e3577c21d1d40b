"""Recovery, deletion that is refused, pruning, adopting, waiting, and files of earlier tools."""

import dataclasses
import json
import os
import shutil
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from git_daytona.base import paths
from git_daytona.base.errors import (
    BadSetting,
    GitDaytonaError,
    SandboxBroken,
    SandboxGone,
    TimedOut,
    TransferFailed,
    UsageError,
)
from git_daytona.sessions import recovery, state, state_file, status
from support.round_trip import execute, stop
from support.waiting import until


def record(path):
    (document,) = [json.loads(each.read_text()) for each in paths.storage().glob("*.json")]
    return document


# -- what happened while nobody synced -------------------------------------------------------------


def test_case_44_stranded_work_is_brought_back_and_named(local, repo, begin, coordinate):
    session = begin(repo)
    session.sync()
    session.agent("echo stranded > stranded")
    found = recovery.recover(coordinate(repo.path))
    assert found.done == [f"session 1: opencode/1 is at {repo.git('rev-parse', 'opencode/1')[:10]}"]
    assert repo.show("opencode/1", "stranded") == "stranded"
    local.forget_calls()
    assert recovery.recover(coordinate(repo.path)).done == []
    assert len(local.calls) == 0, "what is synced costs no call"


def test_work_done_while_a_sync_runs_is_synced_later(local, repo, begin):
    session = begin(repo)
    session.agent("echo one > one")
    with local.faults.call(route="^mint$", hang=True) as held:
        syncing = threading.Thread(target=session.sync)
        syncing.start()
        assert held.reached.wait(30)
        session.agent("echo two > two")
        held.release()
        syncing.join(60)
    assert session.coordinator.sessions()[0].needs_sync
    session.sync()
    assert not session.coordinator.sessions()[0].needs_sync


def test_case_69_a_sandbox_that_is_gone_is_reported_once(local, repo, begin, coordinate):
    session = begin(repo)
    session.agent("echo x > x")
    session.coordinator.cloud.delete(session.sandbox_id)
    first = recovery.recover(coordinate(repo.path))
    assert len(first.failed) == 1 and "does not exist" in first.failed[0]
    assert recovery.recover(coordinate(repo.path)).failed == []
    result, notice = execute(coordinate(repo.path), "1", "git log --format=%s")
    assert "replaced" in notice and result.output == "Add README\n"
    assert execute(coordinate(repo.path), "1", "true")[1] == ""


def test_an_interrupted_deletion_that_is_used_again_is_off(local, repo, begin, coordinate):
    session = begin(repo)
    session.sync()
    with (
        local.faults.call(route="^delete$", status=403),
        pytest.raises(GitDaytonaError, match="may not delete"),
    ):
        session.coordinator.delete("1")
    session.agent("echo new > new")
    recovery.recover(coordinate(repo.path))
    assert repo.show("opencode/1", "new") == "new"
    assert session.agent("cat new") == "new\n"


# -- deletions that are refused --------------------------------------------------------------------


def refused(session, local, match, kind=GitDaytonaError):
    with pytest.raises(kind, match=match) as problem:
        session.coordinator.delete("1")
    assert "--force" in problem.value.hint
    current = session.coordinator.sessions()[0]
    assert current.git_return.state == "failed" and current.git_return.message
    assert any(
        each.id == session.sandbox_id and each.state != "destroyed" for each in local.sandboxes
    ), "it still stands"


def test_deletion_refused_without_a_way_back(local, repo, begin):
    session = begin(repo)
    session.agent("echo x > x")
    with local.faults.call(route="^mint$", status=403):
        refused(session, local, "may not mint")
    session.coordinator.delete("1")
    assert repo.show("opencode/1", "x") == "x"


def test_case_05_deletion_refused_in_an_error_state(local, repo, begin):
    session = begin(repo)
    local.force_state(session.sandbox_id, "error", reason="the disk is full", recoverable=False)
    refused(session, local, "the disk is full", SandboxBroken)


def test_deletion_recovers_what_can_be_recovered(local, repo, begin):
    session = begin(repo)
    session.agent("echo x > x")
    local.force_state(session.sandbox_id, "error", reason="hiccup", recoverable=True)
    session.coordinator.delete("1")
    assert repo.show("opencode/1", "x") == "x"


def test_case_63_deletion_refused_when_the_sandboxes_git_fails(local, repo, begin):
    session = begin(repo)
    session.agent("echo x > x; chmod -R a-w .git")
    try:
        refused(session, local, "failed in the sandbox|did not finish|moved during")
    finally:
        session.agent("chmod -R u+w .git")


def test_deletion_refused_by_a_locked_worktree_here(local, repo, begin):
    session = begin(repo)
    session.agent("echo x > x")
    repo.git("switch", "-q", "opencode/1")
    (repo.path / ".git/index.lock").touch()
    refused(session, local, "could not be reset|Unable to create|index", TransferFailed)
    (repo.path / ".git/index.lock").unlink()
    session.coordinator.delete("1")
    assert (repo.path / "x").exists()


def test_a_stopped_sandbox_is_started_for_its_last_sync(local, repo, begin):
    session = begin(repo)
    session.agent("echo x > x")
    stop(session.coordinator.cloud, session.sandbox_id)
    session.coordinator.delete("1")
    assert repo.show("opencode/1", "x") == "x"


def test_deleting_twice_at_once(local, repo, begin, coordinate):
    session = begin(repo)
    session.agent("echo x > x")
    problems = []

    def delete():
        try:
            coordinate(repo.path).delete("1")
        except GitDaytonaError as problem:
            problems.append(problem)

    threads = [threading.Thread(target=delete) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(problems) == 2
    assert local.counts["delete"] == 1


@pytest.mark.parametrize("call", ["create", "process/execute", "mint"])
def test_case_47_deleting_while_it_is_made(local, repo, coordinate, call):
    """Whether the sandbox is being created, prepared or pushed to: no sandbox is left behind."""
    starting = coordinate(repo.path)
    with local.faults.call(route=f"^{call}$", hang=True) as held:
        thread = threading.Thread(target=starting.start, args=("ses_early",))
        thread.start()
        assert held.reached.wait(30)
        deleting = threading.Thread(target=coordinate(repo.path).delete, args=("ses_early",))
        deleting.start()
        held.release()
        thread.join(60)
        deleting.join(60)
    left = [
        each for each in local.sandboxes if each.labels.get("git-daytona/session") == "ses_early"
    ]
    assert [each for each in left if each.state != "destroyed"] == []
    assert starting.sessions() == []
    assert repo.git("remote") == ""


def test_an_unknown_snapshot_is_named_and_never_the_default(local, repo, coordinate, monkeypatch):
    monkeypatch.setenv("DAYTONA_SNAPSHOT", "no-such-snapshot")
    before = len(local.sandboxes)
    with pytest.raises(BadSetting, match="'no-such-snapshot'"):
        coordinate(repo.path).start()
    assert len(local.sandboxes) == before


# -- prune, adopt, wait ----------------------------------------------------------------------------


def test_prune(local, repo, begin, coordinate, command):
    session = begin(repo)
    session.sync()
    session.coordinator.state.remove(session.coordinator.sessions()[0].id)
    listed = command("git-daytona", "prune", "--dry-run", cwd=repo.path)
    assert f"sandbox {session.sandbox_id}" in listed.out and "remote sandbox-1" in listed.out
    asked = command("git-daytona", "prune", cwd=repo.path, stdin="n\n")
    assert asked.status == 130
    assert command("git-daytona", "prune", "--yes", cwd=repo.path).status == 0
    found = recovery.leftovers(coordinate(repo.path))
    assert not found
    assert repo.git("remote") == "" and repo.git("branch", "--list", "opencode/1")


def orphan(session, script):
    """Do something in a session's sandbox and lose its record."""
    session.agent(script)
    session.coordinator.state.remove(session.coordinator.find(session.name).id)


def alive(local):
    return {each.id for each in local.sandboxes}


def test_prune_brings_work_back_first(local, repo, begin, command):
    """What a sandbox without a session holds is here before it goes; one whose work cannot all be
    brought stays."""
    examples = {
        "tag": "echo tag > f; git add f; git commit -qm f; git tag t; git reset -q --hard HEAD~1",
        "stash": "echo stash > README; git stash -q",
        "pending": "echo pending > f",
    }
    before = alive(local)
    orphan(begin(repo), ";".join(examples.values()))
    orphan(begin(repo), "true")
    kept = begin(repo)
    orphan(kept, "git init -q inner; echo x > inner/f; echo kept > f")
    told = command("git-daytona", "prune", "--yes", cwd=repo.path)
    assert told.status == 1 and told.out.count("sandbox ") == 3 + 1, told
    assert alive(local) - before == {kept.sandbox_id}
    here = repo.git("rev-list", "--objects", "--no-object-names", "--all").split()
    for name in (*examples, "kept"):
        oid = repo.git("hash-object", "--stdin", stdin=f"{name}\n")
        assert oid in here, name
    branches = repo.git("branch", "--list", "--format=%(refname:short)", "opencode/*").split()
    (session,) = kept.coordinator.sessions()
    assert f"sandbox {kept.sandbox_id} stays: not deleted: nested repositories" in told.err
    assert f"git daytona delete --force {session.number}" in told.err
    assert len(branches) == 3 + 2, "no branch says what others say"
    again = command("git-daytona", "prune", "--yes", cwd=repo.path)
    assert again.status == 0 and alive(local) - before == {kept.sandbox_id}
    kept.coordinator.delete(session.id, force=True)


def test_two_at_once_take_one_sandbox_over_once(local, repo, begin, coordinate):
    """Whoever comes second finds it in use, or gone."""
    session = begin(repo)
    coordinators = [coordinate(repo.path) for _ in range(3)]
    orphan(session, "echo x > x")
    found = recovery.leftovers(coordinators[0])
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda each: recovery.prune(each, found), coordinators))
    assert sum(len(each.done) for each in results) == 1
    assert all("belongs to session" in line for each in results for line in each.failed)
    assert session.coordinator.sessions() == [] and session.sandbox_id not in alive(local)
    assert repo.git("branch", "--list", "opencode/*").split() == ["opencode/1", "opencode/2"]
    assert repo.show("opencode/2", "x") == "x" and repo.git("remote") == ""


def test_prune_looks_into_what_was_made_for_this_repository(
    local, repo, begin, coordinate, command, tmp_path
):
    """All else goes only if it is named, with what is in it; so does what cannot be looked at."""
    before = alive(local)
    session = begin(repo)
    orphan(session, "echo x > x")
    copy = type(repo)(tmp_path / "copy")
    shutil.copytree(repo.path, copy.path)
    other = type(repo)(tmp_path / "other")
    other.path.mkdir()
    other.git("init", "-q")
    other.commit("x")
    for folder in (copy.path, other.path, tmp_path):
        told = command("git-daytona", "prune", "--yes", cwd=folder)
        assert told.status == 0 and f"left alone: sandbox {session.sandbox_id}" in told.err, folder
    assert command("git-daytona", "prune", "--force", cwd=repo.path).status == 2
    with local.faults.call(route="process/execute", status=500):
        told = command("git-daytona", "prune", "--yes", cwd=repo.path)
    assert told.status == 1 and "git daytona delete --force 2" in told.err
    session.coordinator.state.remove(session.coordinator.find("2").id)
    local.forget_calls()
    coordinator = coordinate(repo.path)
    assert recovery.prune(coordinator, recovery.leftovers(coordinator)).done
    coordinator.close()
    routes = [each.route for each in local.calls if each.route != "config"]
    assert len(routes) == 1 + 2 + 4, routes
    lost = begin(repo)
    orphan(lost, "echo x > x")
    told = command("git-daytona", "prune", "--yes", lost.sandbox_id, cwd=other.path)
    assert told.status == 0 and ", with all that is in it\npruned\n" in told.out
    assert alive(local) <= before


def test_prune_leaves_sessions_of_other_repositories(local, repo, begin, coordinate, tmp_path):
    begin(repo)
    other = type(repo)(tmp_path / "other")
    other.path.mkdir()
    other.git("init", "-q")
    other.commit("x")
    assert not recovery.leftovers(coordinate(other.path)).sandboxes


def test_adopt(local, repo, begin, coordinate, tmp_path):
    session = begin(repo)
    session.agent("echo work > work")
    coordinator = coordinate(repo.path)
    with pytest.raises(UsageError, match="belongs to session 1"):
        recovery.adopt(coordinator, session.sandbox_id)
    coordinator.state.remove(coordinator.sessions()[0].id)
    started = recovery.adopt(coordinator, session.sandbox_id)
    assert started.session.names.number == 2
    assert repo.show("opencode/2", "work") == "work"
    with pytest.raises(SandboxGone):
        recovery.adopt(coordinator, "00000000-0000-0000-0000-000000000000")


def test_wait_reads_the_ledger(local, repo, begin, coordinate, command):
    session = begin(repo)
    assert (
        command("git-daytona", "wait", "1", "--timeout", "0", cwd=repo.path).status
        == TimedOut.status
    )
    session.sync()
    done = command("git-daytona", "wait", "sandbox-1", cwd=repo.path)
    assert (done.status, done.out) == (0, "nothing new in the sandbox\n")
    session.agent("echo x > x")
    with local.faults.call(route="^mint$", status=403), pytest.raises(GitDaytonaError):
        session.sync()
    failed = command("git-daytona", "wait", "1", cwd=repo.path)
    assert failed.status == TransferFailed.status and "may not mint" in failed.err
    assert (
        command("git-daytona", "status", "--exit-code", "--offline", cwd=repo.path).status
        == TransferFailed.status
    )


def test_wait_ends_when_a_sync_does(local, repo, begin, coordinate):
    session = begin(repo)
    session.agent("echo x > x")
    with local.faults.call(route="^mint$", hang=True) as held:
        syncing = threading.Thread(target=session.sync)
        syncing.start()
        assert held.reached.wait(30)
        with pytest.raises(TimedOut):
            status.wait(coordinate(repo.path), "1", 0)
        held.release()
        assert "opencode/1 is at" in status.wait(coordinate(repo.path), "1", time.monotonic() + 60)
        syncing.join(60)


def test_logs(local, repo, begin, command):
    begin(repo)
    command("git-daytona", "status", cwd=repo.path)
    shown = command("git-daytona", "logs", "-n", "5", cwd=repo.path)
    assert shown.status == 0


# -- a directory without a repository --------------------------------------------------------------


def test_no_repository(local, tmp_path, command):
    plain = tmp_path / "plain"
    plain.mkdir()
    refused = command("git-daytona", "start", cwd=plain)
    assert refused.status == 9
    started = command("git-daytona", "start", "--no-sync", "--session", "ses_plain", cwd=plain)
    assert started.status == 0 and "nothing is synced" in started.out
    assert (
        command("git-daytona", "exec", "ses_plain", "--", "pwd", cwd=plain).out
        == "/home/daytona/project\n"
    )
    rows = json.loads(command("git-daytona", "status", "--json", cwd=plain).out)
    assert rows[0]["gitReturn"] == "disabled" and rows[0]["number"] == 1
    assert command("git-daytona", "sync", "ses_plain", cwd=plain).status == 9
    assert command("git-daytona", "delete", "ses_plain", cwd=plain).status == 0


# -- files of the existing plugin ------------------------------------------------------------------


def test_a_state_file_of_the_existing_plugin(local, repo, begin, coordinate):
    """Its documented form is read, used, and written so that it could read it again; what we do not
    know stays."""
    session = begin(repo)
    session.agent("echo x > x")
    path = session.coordinator.state.path
    document = json.loads(path.read_text())
    (session_id,) = document["sessions"]
    plugins = {
        "projectId": document["projectId"],
        "worktree": str(repo.path),
        "futureField": {"kept": True},
        "sessions": {
            session_id: {
                "sandboxId": session.sandbox_id,
                "branchNumber": 1,
                "worktree": str(repo.path),
                "created": 1760000000000,
                "lastAccessed": 1760000000000,
                "gitReturn": {"state": "pending", "message": "", "updatedAt": 1760000000000},
                "another": [1, 2],
            },
            "ses_without_gitReturn": {
                "sandboxId": "gone",
                "worktree": "/elsewhere",
                "created": 1,
                "lastAccessed": 2,
            },
        },
    }
    path.write_text(json.dumps(plugins))
    coordinator = coordinate(repo.path)
    assert [each.number for each in coordinator.sessions()] == [1]
    coordinator.sync("1")
    after = json.loads(path.read_text())
    assert after["futureField"] == {"kept": True}
    mine = after["sessions"][session_id]
    assert (
        mine["another"] == [1, 2] and mine["created"] == 1760000000000 and mine["branchNumber"] == 1
    )
    assert mine["gitReturn"]["state"] == "synced" and isinstance(
        mine["gitReturn"]["updatedAt"], int
    )
    assert (
        after["sessions"]["ses_without_gitReturn"] == plugins["sessions"]["ses_without_gitReturn"]
    )


@pytest.mark.parametrize(
    "content",
    [b"", b'{"projectId": "x", "sess', b"[]", b'{"sessions": 3}', b"\x00\xff", b"[" * 100000],
)
def test_case_45_a_corrupt_state_file_is_set_aside(local, repo, coordinate, content):
    coordinator = coordinate(repo.path)
    path = coordinator.state.path
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert coordinator.sessions() == []
    (aside,) = path.parent.glob("*.corrupt-*")
    assert aside.read_bytes() == content
    assert len(coordinator.state.warnings) == 1 and str(aside) in coordinator.state.warnings[0]


def test_case_45_many_processes_find_the_same_corrupt_state_file(local, repo, coordinate):
    """One of them sets it aside; what another has written since then is not moved away with it."""
    coordinators = [coordinate(repo.path) for _ in range(8)]
    path = coordinators[0].state.path
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half a fi")
    barrier = threading.Barrier(len(coordinators))

    def write(number):
        barrier.wait(30)
        one = state.Session(
            f"ses_{number}",
            f"sandbox-{number}",
            number + 1,
            str(repo.path),
            1,
            1,
            state.GitReturn("synced", "", 1),
        )
        coordinators[number].state.put(one)

    threads = [
        threading.Thread(target=write, args=(number,)) for number in range(len(coordinators))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert {each.id for each in coordinators[0].state.sessions()} == {
        f"ses_{number}" for number in range(len(coordinators))
    }
    assert len(list(path.parent.glob("*.corrupt-*"))) == 1


def test_a_lost_state_file_is_repaired_by_labels(local, repo, begin, coordinate):
    session = begin(repo, "ses_lost")
    session.agent("echo x > x")
    session.coordinator.state.path.write_bytes(b"")
    assert coordinate(repo.path).sessions() == []
    found = recovery.leftovers(coordinate(repo.path))
    assert [
        info.id for info in found.sandboxes if info.labels["git-daytona/session"] == "ses_lost"
    ] == [session.sandbox_id]
    started = recovery.adopt(coordinate(repo.path), session.sandbox_id)
    assert started.session.id == "ses_lost"
    assert repo.show(started.session.names.branch, "x") == "x"


def test_a_session_stays_in_the_file_where_it_began(local, tmp_path, begin, coordinate, repo):
    """A repository without commits is OpenCode's project 'global'; with its first commit, and with
    an origin, it becomes another project: the file stays what it is."""
    fresh = type(repo)(tmp_path / "fresh")
    fresh.path.mkdir()
    fresh.git("init", "-q")
    first = begin(fresh, "ses_stays").coordinator
    assert first.state.path.stem == "global"
    fresh.commit("first")
    fresh.git("remote", "add", "origin", "git@example.com:some/project.git")
    for coordinator in (first, coordinate(fresh.path)):
        assert coordinator.state.path.stem == "global"
        assert [each.id for each in coordinator.sessions()] == ["ses_stays"]


def test_a_session_in_two_programs_files_comes_into_one(local, repo, begin, coordinate):
    """Two that began at once, each in the file of its own id for the project."""
    begin(repo, "ses_ours")
    other = state_file.StateFile("theirs", str(repo.path))
    [mine] = coordinate(repo.path).sessions()
    other.put(dataclasses.replace(mine, id="ses_theirs", number=2))
    assert [each.id for each in coordinate(repo.path).sessions()] == ["ses_ours", "ses_theirs"]
    assert other.sessions() == []


def test_case_42_remotes_of_earlier_tools(local, repo, begin, coordinate):
    """Tokens in url, pushurl, branch.*.remote, FETCH_HEAD and reflogs: after a recovery a grep of
    .git finds none (case 42)."""
    token = "Tok3nOfAnEarlierTool"
    url = f"ssh://{token}@ssh.app.daytona.io:2222/home/daytona/project"
    repo.git("remote", "add", "sandbox-9", url)
    repo.git("config", "remote.sandbox-9.pushurl", url)
    repo.git("config", "branch.main.remote", url)
    repo.git("remote", "add", "origin", "ssh://git@example.invalid/their/repository")
    (repo.path / ".git/FETCH_HEAD").write_text(
        f"{repo.git('rev-parse', 'HEAD')}\t\tbranch 'x' of {url}\n"
    )
    with (repo.path / ".git/logs/HEAD").open("a") as log:
        log.write(f"{'0' * 40} {'0' * 40} A <a@b> 1 +0000\tfetch {url}: storing head\n")
    found = recovery.recover(coordinate(repo.path))
    assert found.done == ["3 URLs of earlier tools rewritten without their tokens"]
    for path in (repo.path / ".git").rglob("*"):
        assert not path.is_file() or token.encode() not in path.read_bytes(), path
    assert (
        repo.git("remote", "get-url", "sandbox-9")
        == "ssh://ssh.app.daytona.io:2222/home/daytona/project"
    )
    assert repo.git("remote", "get-url", "origin") == "ssh://git@example.invalid/their/repository"


def test_case_42_the_log_of_earlier_tools_is_scrubbed_once(local, repo, command):
    log = paths.log_file()
    log.parent.mkdir(parents=True)
    log.write_text("pushed to ssh://S3cretTok3n@host/home/daytona/project\n")
    assert command("git-daytona", "status", cwd=repo.path).status == 0
    assert "S3cretTok3n" not in log.read_text() and "pushed to ssh://" in log.read_text()


def test_case_09_a_killed_process_leaves_no_git_behind(local, repo, begin, tmp_path):
    """SIGKILL to the coordinator during a transfer: ssh and git end by themselves (case 9)."""
    session = begin(repo)
    session.agent("echo x > x")
    session.coordinator.close()
    local.faults.gateway.hang = 1
    process = subprocess.Popen(
        (str(Path(__file__).parents[2] / "bin/git-daytona"), "sync", "1"),
        cwd=repo.path,
        env=os.environ,
    )
    with process:
        try:
            children = until(lambda: connected(process))
        finally:
            process.kill()
    until(lambda: not any(b"git" in argv(pid) or b"ssh" in argv(pid) for pid in children))
    local.faults.clear()
    assert recovery.recover(session.coordinator).failed == []
    assert local.live_tokens() == 0
    assert repo.show("opencode/1", "x") == "x"


def connected(process):
    """What runs below it, once an ssh of ours does."""
    assert process.poll() is None
    children = descendants(process.pid)
    return children if any(b"ssh" in argv(pid) and b"-F" in argv(pid) for pid in children) else None


def descendants(pid):
    found, todo = set(), [pid]
    while todo:
        current = todo.pop()
        try:
            kids = [
                int(kid)
                for task in Path(f"/proc/{current}/task").iterdir()
                for kid in (task / "children").read_text().split()
            ]
        except OSError:
            continue
        found.update(kids)
        todo += kids
    return found


def argv(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_case_115_wait_brings_what_was_done_since(local, repo, begin, coordinate, command):
    """By `exec`, `cp`, a shell or a tool, before the first sync or after it; with nothing done, or
    with the last sync failed, nothing is asked for."""
    session = begin(repo)
    (repo.path / "c").write_text("c\n")
    examples = {
        "a": ("exec", "1", "echo a >a"),
        "b": ("shell", "1"),
        "c": ("cp", "c", "1:"),
        "d": (
            "exec",
            "1",
            "echo d >d; git checkout -q --detach",
        ),
    }
    for name, words in examples.items():
        done = command("git-daytona", *words, cwd=repo.path, stdin="echo b >b\n")
        assert done.status == 0, done.err
        assert coordinate(repo.path).find("1").needs_sync, name
        waited = command("git-daytona", "wait", "1", cwd=repo.path)
        assert waited.status == 0 and repo.show("opencode/1", name) == name
    local.forget_calls()
    assert "opencode/1 is at" in status.wait(coordinate(repo.path), "1", time.monotonic() + 60)
    assert local.counts == {}
    assert not session.coordinator.find("1").needs_sync


def test_case_115_a_session_of_another_clone(local, repo, begin, tmp_path, command, coordinate):
    """The clones of a project share a state file. It is said where the session lives; nothing is
    made, run, or taken for its own."""
    repo.git("remote", "add", "origin", "https://example.invalid/project.git")
    session = begin(repo, "ses_x")
    clone = type(repo)(tmp_path / "clone")
    repo.git("clone", "-q", str(repo.path), str(clone.path))
    clone.git("remote", "set-url", "origin", "https://example.invalid/project.git")
    assert coordinate(clone.path).state.get("ses_x"), "they do share it"
    local.forget_calls()
    tool = {"sessionID": "ses_x", "tool": "bash", "arguments": {"command": "true"}}
    examples = {
        "start": (("start", "--session", "ses_x"), ""),
        "exec": (("exec", "ses_x", "--", "true"), ""),
        "delete": (("delete", "--force", "ses_x"), ""),
        "a tool": (("hook", "tool"), json.dumps(tool | {"directory": str(clone.path)})),
    }
    for what, (words, stdin) in examples.items():
        told = command("git-daytona", *words, cwd=clone.path, stdin=stdin)
        assert told.status == 8, what
        assert f"session 'ses_x' lives in another repository, that of '{repo.path}'" in told.err
    assert local.counts == {} and clone.git("branch", "--list", "opencode/*") == ""
    assert session.agent("pwd") == "/home/daytona/project\n"
    assert coordinate(clone.path).start("ses_y").session.number == 1
