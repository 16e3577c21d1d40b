"""The crash matrix: SIGKILL before each kind of step (``-m fuzz``: each step) of start, sync and
delete, and after the last, then a recovery. Printed by ``bin/test -k crash -s``."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from git_daytona.sessions import recovery
from support import crashes
from support.round_trip import execute


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
def test_crash_matrix(local, repo, begin, coordinate, tmp_path, operation, chosen):
    with ExitStack() as stack:
        workers = [stack.enter_context(crashes.worker()) for _ in range(3)]
        for name in ("ses_warm", "ses_count"):  # the first one pins the gateway's keys, too
            mine = clone(repo, tmp_path, name)
            scene(mine, begin, coordinate, operation, name)
            steps = workers[0].steps(mine.path, operation, name)
        assert len(steps) >= 8
        cases = [*((steps[at - 1], str(at)) for at in chosen(steps)), ("the end", "last")]

        def some(place):
            return [one(workers[place], *case) for case in cases[place :: len(workers)]]

        def one(worker, what, step):
            session_id = f"ses_{operation}_{step}"
            mine = clone(repo, tmp_path, session_id)
            scene(mine, begin, coordinate, operation, session_id)
            worker.kill(mine.path, operation, session_id, step=step)
            valid = crashes.valid_state_files()
            found = recovery.recover(coordinate(mine.path))
            assert found.failed == [], found.failed
            return f"{step:>4} {what}", session_id, mine, valid

        with ThreadPoolExecutor(len(workers)) as pool:
            results = [row for rows in pool.map(some, range(len(workers))) for row in rows]
    rows = []
    local_sandboxes = {
        each.labels.get("git-daytona/session"): each
        for each in local.sandboxes
        if each.state != "destroyed"
    }
    for what, session_id, mine, valid in sorted(results):
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
                execute(coordinator, session_id, "git log --format=%s")[0].output != "Add README\n"
            )
        assert mine.git("fsck", "--connectivity-only", "--no-dangling") == ""
        assert mine.git("for-each-ref", "refs/daytona/incoming", "refs/daytona/resetting") == ""
        rows.append((f"{operation} {what}", lost, orphaned, valid))
        coordinator.close()
    alive = local.live_tokens()
    print(f"\n{'killed before':44} {'lost':>5} {'orphaned':>9} {'tokens':>7} {'state valid':>12}")
    for what, lost, orphaned, valid in rows:
        print(f"{what:44} {lost:5} {orphaned:9} {alive:7} {'yes' if valid else 'NO':>12}")
    print(f"{len(rows)} crashes of {operation}")
    assert alive == 0
    assert all(lost == 0 and orphaned == 0 and valid for _, lost, orphaned, valid in rows)
