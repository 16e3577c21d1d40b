"""Many sessions of one repository at once, in threads and in processes."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.round_trip import BIN
from support.waiting import until

WORKER = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from git_daytona.git.repository import discover
from git_daytona.sandbox import report
from git_daytona.settings import settings
from git_daytona.sessions.coordinator import Coordinator

def coordinator():
    repository = discover(Path(sys.argv[1]))
    return Coordinator(repository, settings.load(repository.worktree))

def sync(number):
    each = coordinator()
    each.sync(number)
    each.close()

def start(name):
    each = coordinator()
    started = each.start(name)
    write = report.in_directory('echo "$1" > who', name, timeout=60)
    each.within(name, lambda sandbox_id: write.run(each.cloud, sandbox_id))
    each.sync(str(started.session.names.number))
    each.close()

with ThreadPoolExecutor(len(sys.argv) - 3) as pool:
    list(pool.map({"sync": sync, "start": start}[sys.argv[2]], sys.argv[3:]))
"""


@pytest.fixture
def spawn(repo):
    """Begin workers; those that are left are killed."""
    begun = []

    def worker(verb, words):
        argv = (sys.executable, "-c", WORKER, str(repo.path), verb, *words)
        begun.append(subprocess.Popen(argv, stderr=subprocess.PIPE, text=True))
        return begun[-1]

    yield worker
    for process in begun:
        with process:
            process.kill()


@pytest.mark.timeout(300)
def test_twelve_syncs_of_twelve_sandboxes(local, repo, begin, spawn):
    """In three processes of four threads each."""
    with ThreadPoolExecutor(4) as pool:
        sessions = list(pool.map(lambda _: begin(repo), range(12)))
        list(
            pool.map(
                lambda each: each.agent(
                    f"echo {each.sandbox_id} > who; git switch -qc side-{each.number}"
                ),
                sessions,
            )
        )
    assert sorted(each.number for each in sessions) == list(range(1, 13))
    for each in sessions:
        each.coordinator.close()
    local.forget_calls()
    names = [each.name for each in sessions]
    processes = [spawn("sync", names[place::3]) for place in range(3)]
    for process in processes:
        _, complaints = process.communicate(timeout=200)
        assert process.returncode == 0, complaints
    for each in sessions:
        assert repo.show(f"opencode/{each.number}", "who") == each.sandbox_id
        assert repo.git("rev-parse", f"sandbox-{each.number}/side-{each.number}") == repo.git(
            "rev-parse", f"opencode/{each.number}"
        )
    assert local.counts["mint"] == local.counts["revoke"] == 12
    assert local.live_tokens() == 0
    states = {each.number: each.git_return.state for each in sessions[0].coordinator.sessions()}
    assert states == dict.fromkeys(range(1, 13), "synced")


@pytest.mark.timeout(300)
def test_case_39_and_case_45_twelve_starts_on_one_state_file(local, repo, coordinate, spawn):
    """In twelve processes: 12 numbers, 12 right branches, no update of the state file lost."""
    names = [f"ses_{index}" for index in range(12)]
    processes = [spawn("start", [name]) for name in names]
    for process in processes:
        _, complaints = process.communicate(timeout=250)
        assert process.returncode == 0, complaints
    sessions = coordinate(repo.path).sessions()
    assert {each.id for each in sessions} == set(names)
    assert {each.number for each in sessions} == set(range(1, 13))
    for each in sessions:
        assert repo.show(f"opencode/{each.number}", "who") == each.id
    assert local.counts["create"] == 12
    assert local.live_tokens() == 0


@pytest.mark.parametrize("transport", ["ssh", "api"])
def test_a_ref_that_vanishes_while_git_reads_them_all(local, repo, begin, transport):
    """As another session's do at the end of its sync: git takes one that it cannot read any more
    for a null ref, and that for a damage."""
    session = begin(repo)
    repo.git("config", "daytona.transport", transport)
    vanished = repo.path / ".git" / "refs" / "daytona" / "incoming" / "7" / "heads" / "opencode"
    vanished.parent.mkdir(parents=True)
    vanished.write_text("0" * 40 + "\n")
    session.agent("echo work > file")
    assert session.coordinator.sync(session.name).changed
    assert repo.show("opencode/1", "file") == "work"
    assert session.coordinator.repository.has(repo.git("rev-parse", "HEAD"))


def test_case_01_many_at_one_sandbox(local, repo, begin, coordinate, spawn):
    """Minting ends the sandbox's other tokens: they go one after the other, and all succeed."""
    session = begin(repo)
    session.coordinator.close()

    def threads(*verbs):
        with ThreadPoolExecutor(len(verbs)) as pool:
            each = [pool.submit(getattr(coordinate(repo.path), verb), "1") for verb in verbs]
            assert all(done.result(60) for done in each)

    def processes():
        other = spawn("sync", ["1"])
        until(lambda: local.counts["process/execute"])
        assert coordinate(repo.path).sync("1")
        _, complaints = other.communicate(timeout=60)
        assert other.returncode == 0, complaints

    def beside_a_command():
        words = (str(BIN / "daytona-token"), "exec", session.sandbox_id, "--", "cat")
        with subprocess.Popen(words, stdin=subprocess.PIPE) as holder, ThreadPoolExecutor() as pool:
            until(lambda: local.counts["mint"])
            syncing = pool.submit(coordinate(repo.path).sync, "1")
            # it has looked, and waits for its turn to mint
            until(lambda: local.counts["process/execute"])
            for _ in range(3):
                session.agent("true")  # time enough for a mint that does not wait
            assert local.counts["mint"] == 1
            holder.stdin.close()
            assert syncing.result(60).changed
            assert holder.wait(20) == 0

    examples = {
        "two processes sync": processes,
        "a sync, two fetches": lambda: threads("sync", "fetch", "fetch"),
        "daytona-token holds one": beside_a_command,
    }
    for name, work in examples.items():
        session.agent(f"echo '{name}' > what")
        local.forget_calls()
        work()
        until(lambda: local.live_tokens() == 0)
        assert repo.show("opencode/1", "what") == name
        leases = [call.route for call in local.calls if call.route in ("mint", "revoke")]
        assert leases == ["mint", "revoke"] * (len(leases) // 2) != [], name


def test_case_39_and_case_57_the_same_session_started_at_once(local, repo, coordinate):
    with ThreadPoolExecutor(4) as pool:
        started = list(pool.map(lambda _: coordinate(repo.path).start("ses_same"), range(4)))
    assert {each.session.sandbox_id for each in started} == {started[0].session.sandbox_id}
    assert local.counts["create"] == 1
