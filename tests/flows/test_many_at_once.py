"""Many sessions of one repository at once, in threads and in processes."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

WORKER = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from git_daytona import git, settings
from git_daytona.sessions import Coordinator

def coordinator():
    repository = git.discover(Path(sys.argv[1]))
    return Coordinator(repository, settings.load(repository.worktree))

def sync(number):
    each = coordinator()
    each.sync(number)
    each.close()

def start(name):
    each = coordinator()
    started = each.start(name)
    each.execute(str(started.names.number), f"echo {name} > who")
    each.sync(str(started.names.number))
    each.close()

with ThreadPoolExecutor(len(sys.argv) - 3) as pool:
    list(pool.map({"sync": sync, "start": start}[sys.argv[2]], sys.argv[3:]))
"""


def spawn(repo, verb, words):
    return subprocess.Popen(
        (sys.executable, "-c", WORKER, str(repo.path), verb, *words), env=os.environ, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.timeout(300)
def test_thirty_syncs_of_thirty_sandboxes(local, repo, begin):
    """In five processes of six threads each."""
    with ThreadPoolExecutor(4) as pool:
        sessions = list(pool.map(lambda _: begin(repo), range(30)))
        list(pool.map(lambda each: each.agent(f"echo {each.sandbox_id} > who; git switch -qc side-{each.number}"), sessions))
    assert sorted(each.number for each in sessions) == list(range(1, 31))
    for each in sessions:
        each.coordinator.close()
    local.forget_calls()
    names = [each.name for each in sessions]
    processes = [spawn(repo, "sync", names[place::5]) for place in range(5)]
    for process in processes:
        _, complaints = process.communicate(timeout=200)
        assert process.returncode == 0, complaints
    for each in sessions:
        assert repo.show(f"opencode/{each.number}", "who") == each.sandbox_id
        assert repo.git("rev-parse", f"sandbox-{each.number}/side-{each.number}") == repo.git(
            "rev-parse", f"opencode/{each.number}"
        )
    assert local.counts["mint"] == local.counts["revoke"] == 30
    assert local.live_tokens() == 0
    states = {each.number: each.git_return.state for each in sessions[0].coordinator.sessions()}
    assert states == dict.fromkeys(range(1, 31), "synced")


@pytest.mark.timeout(300)
def test_case_39_and_case_45_twenty_starts_on_one_state_file(local, repo, coordinate):
    """In twenty processes: 20 numbers, 20 right branches, no update of the state file lost."""
    names = [f"ses_{index}" for index in range(20)]
    processes = [spawn(repo, "start", [name]) for name in names]
    for process in processes:
        _, complaints = process.communicate(timeout=250)
        assert process.returncode == 0, complaints
    sessions = coordinate(repo.path).sessions()
    assert {each.id for each in sessions} == set(names)
    assert {each.number for each in sessions} == set(range(1, 21))
    for each in sessions:
        assert repo.show(f"opencode/{each.number}", "who") == each.id
    assert local.counts["create"] == 20
    assert local.live_tokens() == 0


def test_case_01_two_syncs_of_one_sandbox(local, repo, begin, coordinate):
    """Minting ends the sandbox's other tokens: they go one after the other, and both succeed (CASES 1)."""
    session = begin(repo)
    session.agent("echo x > x")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: coordinate(repo.path).fetch("1"), range(4)))
    assert repo.git("rev-parse", "sandbox-1/opencode")


def test_case_39_and_case_57_the_same_session_started_at_once(local, repo, coordinate):
    with ThreadPoolExecutor(4) as pool:
        started = list(pool.map(lambda _: coordinate(repo.path).start("ses_same"), range(4)))
    assert {each.session.sandbox_id for each in started} == {started[0].session.sandbox_id}
    assert local.counts["create"] == 1
