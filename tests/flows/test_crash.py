"""The crash matrix: SIGKILL before every step of start, sync and delete, and after the last, then a
recovery. Printed by ``bin/test -k crash -s``."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from git_daytona.sessions import recovery

WORKER = Path(__file__).parents[1] / "support" / "crash_worker.py"


class Worker:
    """A process that crashes on demand."""

    def __init__(self):
        self.process = subprocess.Popen(
            (sys.executable, str(WORKER)),
            env=os.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, repo, operation, session_id, step, side="before"):
        """The exit status, after what the operation printed."""
        self.process.stdin.write(
            json.dumps([str(repo.path), operation, session_id, str(step), side]) + "\n"
        )
        self.process.stdin.flush()
        lines = [self.process.stdout.readline()]
        if step == "count" and lines[0].startswith("["):
            lines.append(self.process.stdout.readline())
        return int(lines[-1]), lines[0]

    def close(self):
        _, complaints = self.process.communicate(timeout=30)
        return complaints


def valid_state_files():
    for path in (Path(os.environ["XDG_DATA_HOME"]) / "opencode/storage/daytona").glob("*.json"):
        if not isinstance(json.loads(path.read_text())["sessions"], dict):
            return False
    return True


def scene(repo, begin, coordinate, operation, session_id):
    """A session with a synced commit, an unsynced commit and an unsynced file, so that a crash has
    something to lose."""
    if operation == "start":
        return
    session = begin(repo, session_id)
    session.agent("echo one > one")
    session.coordinator.sync(session_id)
    session.agent(
        "echo committed > committed; git add committed; git commit -qm own; echo pending > pending"
    )
    session.coordinator.close()


def clone(repo, tmp_path, name):
    path = tmp_path / name
    repo.git("clone", "-q", str(repo.path), str(path))
    return type(repo)(path)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("operation", ["start", "sync", "delete"])
def test_crash_matrix(local, repo, begin, coordinate, tmp_path, operation):
    workers = [Worker(), Worker(), Worker()]
    for name in ("ses_warm", "ses_count"):  # the first one pins the gateway's keys, too
        mine = clone(repo, tmp_path, name)
        scene(mine, begin, coordinate, operation, name)
        status, counted = workers[0].run(mine, operation, name, "count")
        assert status == 0, workers[0].close()
    steps = json.loads(counted)
    assert len(steps) >= 8
    rows = []

    def some(place):
        return [one(workers[place], *case) for case in cases[place :: len(workers)]]

    def one(worker, number, side):
        session_id = f"ses_{operation}_{number}_{side}"
        mine = clone(repo, tmp_path, session_id)
        scene(mine, begin, coordinate, operation, session_id)
        status, _ = worker.run(mine, operation, session_id, number, side)
        assert status == -signal.SIGKILL, worker.close()
        valid = valid_state_files()
        found = recovery.recover(coordinate(mine.path))
        assert found.failed == [], found.failed
        return (number, side), session_id, mine, valid

    # After one step is before the next: what lies between them changes nothing that lasts.
    last = len(steps)
    cases = [*((number, "before") for number in range(1, last + 1)), (last, "after")]
    with ThreadPoolExecutor(len(workers)) as pool:
        results = sorted(
            (row for rows in pool.map(some, range(len(workers))) for row in rows),
            key=lambda row: (row[0][0], row[0][1] == "after"),
        )
    for worker in workers:
        worker.close()
    local_sandboxes = {
        each.labels.get("git-daytona/session"): each
        for each in local.sandboxes
        if each.state != "destroyed"
    }
    for (number, side), session_id, mine, valid in results:
        coordinator = coordinate(mine.path)
        known = {each.id: each for each in coordinator.sessions()}
        there = session_id in local_sandboxes
        orphaned = int(there and session_id not in known)
        lost = 0
        if operation != "start":
            branch = next(
                (
                    ref
                    for ref in mine.git(
                        "for-each-ref", "--format=%(refname)", "refs/heads/opencode"
                    ).splitlines()
                ),
                None,
            )
            names = (
                set(mine.git("ls-tree", "-r", "--name-only", branch).split()) if branch else set()
            )
            if operation == "delete" and session_id in known:
                coordinator.delete(session_id)
                names |= set(mine.git("ls-tree", "-r", "--name-only", branch).split())
            lost = len({"one", "committed", "pending"} - names)
        elif session_id in known:
            lost = int(
                coordinator.execute(session_id, "git log --format=%s")[0].output != "Add README\n"
            )
        assert mine.git("fsck", "--connectivity-only", "--no-dangling") == ""
        assert mine.git("for-each-ref", "refs/daytona/incoming", "refs/daytona/resetting") == ""
        rows.append(
            (f"{operation} {number:2} {side:6} {steps[number - 1]}", lost, orphaned, 0, valid)
        )
        coordinator.close()
    alive = local.live_tokens()
    print(f"\n{'killed at':44} {'lost':>5} {'orphaned':>9} {'tokens':>7} {'state valid':>12}")
    for what, lost, orphaned, _tokens, valid in rows:
        print(f"{what:44} {lost:5} {orphaned:9} {alive:7} {'yes' if valid else 'NO':>12}")
    print(f"{len(rows)} crashes of {operation}")
    assert alive == 0
    assert all(lost == 0 and orphaned == 0 and valid for _, lost, orphaned, _, valid in rows)
