"""A command runs at most once, whatever happens to its session and its sandbox meanwhile: what
cannot be known is said, and nothing runs a second time, there or in a new sandbox."""

import contextlib
import threading
from types import SimpleNamespace

import pytest

from git_daytona.base.errors import CutShort, GitDaytonaError
from git_daytona.sandbox import report
from support.lacking import needs_ps
from support.round_trip import execute, stop
from support.waiting import until

RAN = "$HOME/ran"
SLOW = f"echo begun; echo once >>{RAN}; touch begun; sleep 60; echo ended"


@pytest.fixture
def running(begin, repo, coordinate, command):
    """A session, and in it a command that has begun; join() returns how its caller ended."""

    class Running:
        def __init__(self, line=SLOW):
            self.session = begin(repo)
            self.done = None
            self.thread = threading.Thread(target=self._run, args=(line,))
            self.thread.start()
            until(lambda: self.session.agent("ls begun 2>/dev/null; true"))

        def _run(self, line):
            self.done = command("git-daytona", "exec", self.session.name, line, cwd=repo.path)

        def join(self):
            self.thread.join(60)
            return self.done

    return Running


def test_case_92_and_case_106_the_session_is_deleted_meanwhile(local, repo, running, coordinate):
    held = running()
    held.session.agent("rm begun")
    coordinate(repo.path).delete("1")
    done = held.join()
    assert done.status == CutShort.status and "session 1 was deleted while this ran" in done.err
    assert coordinate(repo.path).sessions() == [] and local.counts["create"] == 1
    assert "opencode/1" in repo.git("branch")


def test_case_92_the_sandbox_is_deleted_or_replaced_meanwhile(local, repo, running, coordinate):
    held = running()
    coordinator = coordinate(repo.path)
    coordinator.cloud.delete(held.session.sandbox_id)
    done = held.join()
    assert done.status == CutShort.status and "was deleted while this ran" in done.err
    (session,) = coordinator.sessions()
    assert session.sandbox_id != held.session.sandbox_id
    assert execute(coordinator, "1", f"cat {RAN}")[0].status == 1, "nothing ran in the new one"


def test_case_92_another_process_has_replaced_it(local, repo, running, coordinate):
    held = running()
    coordinator = coordinate(repo.path)
    sandbox = held.session.sandbox_id
    with local.faults.call(route="process/execute", sandbox=sandbox, hang=True) as at:
        coordinator.cloud.delete(sandbox)
        assert at.reached.wait(30)
        coordinator.start(coordinator.sessions()[0].id)
        at.release()
    assert held.join().status == CutShort.status
    assert execute(coordinator, "1", f"cat {RAN}")[0].status == 1
    assert local.counts["create"] == 2


@pytest.mark.parametrize("how", ["stop", pytest.param("pkill -9 sh", marks=needs_ps)])
def test_case_106_the_sandbox_stops_under_it(local, repo, running, how):
    held = running()
    session = held.session
    if how == "stop":
        stop(session.coordinator.cloud, session.sandbox_id)
    else:  # whatever may end the shell that runs it
        with contextlib.suppress(CutShort):  # that ends this command, too
            execute(session.coordinator, "1", how)
    done = held.join()
    assert done.status == CutShort.status and "stopped while this ran" in done.err
    assert done.out == "begun\n", "what it printed is not lost"
    assert session.agent(f"cat {RAN}") == "once\n"


def test_case_92_an_answer_that_was_lost_with_the_sandbox(local, repo, begin, monkeypatch):
    """It had ended, or had not begun: both are known once the sandbox is back."""
    session = begin(repo)
    cloud, running = session.coordinator.cloud, []

    def stopped_meanwhile(_: float) -> None:  # it is asked again once the sandbox has stopped
        if running:
            stop(cloud, running.pop())

    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=stopped_meanwhile))
    for number, drop in enumerate(("after", "before")):  # it ended, or has not begun
        running.append(session.sandbox_id)
        with local.faults.call(route="process/execute", drop=drop, times=1):
            result, _ = execute(session.coordinator, "1", f"echo {number} | tee -a {RAN}")
        assert not running
        assert (result.status, result.output) == (0, f"{number}\n")
    assert session.agent(f"cat {RAN}") == "0\n1\n"


def test_case_92_whoever_began_it_was_killed_at_once(repo, begin):
    """Before it wrote down who it is: nobody waits for it for ever."""
    session = begin(repo)
    command = report.Command("echo never", timeout=60)
    session.agent(f"mkdir -p ~/.cache/git-daytona/{command._id}")
    with pytest.raises(CutShort):
        command.run(session.coordinator.cloud, session.sandbox_id)


def test_case_92_a_server_that_fails_for_a_stopped_sandbox(local, repo, begin):
    """Its answer does not say that nothing was run, but the sandbox does."""
    session = begin(repo)
    stop(session.coordinator.cloud, session.sandbox_id)
    with local.faults.call(route="process/execute", status=502, times=3):
        assert session.agent(f"echo once >>{RAN}; cat {RAN}") == "once\n"


@needs_ps
def test_case_92_a_deletion_that_is_under_way(local, repo, begin, coordinate):
    """Whoever finds the sandbox gone before the record is does not make another one."""
    session = begin(repo)
    session.sync()
    with local.faults.call(route="^delete$", hang=True) as held:
        deleting = threading.Thread(target=coordinate(repo.path).delete, args=("1",))
        deleting.start()
        assert held.reached.wait(30)
        gone = coordinate(repo.path)
        problems = []

        def run():
            with pytest.raises(GitDaytonaError) as problem:
                execute(gone, "1", "sleep 30")
            problems.append(problem.value)

        thread = threading.Thread(target=run)
        thread.start()
        until(lambda: session.agent("pgrep -f 'slee[p] 30'; true"))
        held.release()
        deleting.join(60)
        thread.join(60)
    assert "session 1 was deleted while this ran" in problems[0].message
    assert local.counts["create"] == 1
