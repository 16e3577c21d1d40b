"""SIGKILL at each kind of step (``-m fuzz``: at each step) of push, recover, adopt, prune and cp,
then a recovery, then the command once more. One session goes through all crashes of a command."""

import pytest

from git_daytona.sessions import copy, recovery
from support import crashes

pytestmark = pytest.mark.timeout(300)

REST = pytest.mark.complete("crashes of commands that few people run")


@pytest.fixture
def session(begin, repo):
    found = begin(repo, "ses_crash")
    found.agent("echo agent >agent.txt")
    found.sync()
    return found


@pytest.fixture
def crash(local, repo, session, coordinate, chosen):
    """Return a function: kill an operation at the chosen ones of its steps, each time after
    ``prepare``, which returns the operation's arguments; then recover, then ``check``."""

    def everywhere(operation, prepare, check, where=chosen):
        with crashes.worker() as worker:
            steps = worker.steps(repo.path, operation, *prepare())
            check()
            for step in [*map(str, where(steps)), "last"]:
                worker.kill(repo.path, operation, *prepare(), step=step)
                print(f"{operation} killed at {step} of {steps}")
                assert crashes.valid_state_files()
                assert recovery.recover(coordinate(repo.path)).failed == []
                assert local.live_tokens() == 0
                check()
                assert repo.git("fsck", "--connectivity-only", "--no-dangling") == ""
                refs = ("refs/daytona/incoming", "refs/daytona/resetting")
                assert repo.git("for-each-ref", *refs) == ""
        return steps

    return everywhere


OLD = "find /tmp -maxdepth 1 -name '.git-daytona-*' -exec touch -d '1 day ago' {} +"
"""As if a copy had been killed long ago."""


def there(session, script):
    return session.agent(script).strip()


def test_push(repo, session, crash):
    commits = []

    def commit():
        tree = repo.git("rev-parse", "opencode/1^{tree}")
        commits.append(repo.git("commit-tree", "-p", "opencode/1", "-m", "mine", tree))
        repo.git("update-ref", "refs/heads/opencode/1", commits[-1])
        return ["1"]

    def check():
        # The recovery may have synced: the branch is where the sandbox is, and this one kept.
        assert commits[-1] in (repo.git("rev-parse", "opencode/1"), *repo.kept().values())
        repo.git("update-ref", "refs/heads/opencode/1", commits[-1])
        session.coordinator.push("1")
        assert there(session, "git rev-parse HEAD; git status --short") == commits[-1]

    assert "git push" in crash("push", commit, check)


def test_recover(repo, session, crash):
    """What it recovers: a sync that was killed while it held a token."""
    work = []
    with crashes.worker() as worker:
        there(session, "echo 0 >work.txt")
        steps = worker.steps(repo.path, "sync", "ses_crash")
        held = str(steps.index("git fetch") + 1)

        def interrupted():
            work.append(str(len(work) + 1))
            there(session, f"echo {work[-1]} >work.txt")
            worker.kill(repo.path, "sync", "ses_crash", step=held)
            return []

        def check():
            assert repo.show("opencode/1", "work.txt") == work[-1]

        assert "api revoke" in crash("recover", interrupted, check)


@REST
def test_adopt(local, repo, session, begin, coordinate, crash):
    sandboxes = []

    def nobodys():
        made = begin(repo)
        made.agent(f"echo {made.number} >made.txt; git add .; git commit -qm made; echo >pending")
        made.coordinator.state.remove(made.coordinator.find(made.name).id)
        sandboxes.append((made.sandbox_id, str(made.number)))
        return [made.sandbox_id]

    def check():
        sandbox_id, text = sandboxes[-1]
        coordinator = coordinate(repo.path)
        if not any(each.sandbox_id == sandbox_id for each in coordinator.sessions()):
            recovery.adopt(coordinator, sandbox_id)
        found = coordinator.find(sandbox_id)
        assert repo.show(found.names.branch, "made.txt") == text
        assert repo.show(found.names.branch, "pending") == ""

    assert "git fetch" in crash("adopt", nobodys, check)


@REST
def test_prune(local, repo, session, begin, coordinate, crash):
    others = {each.id for each in local.sandboxes} - {session.sandbox_id}
    repo.git("config", "daytona.keptAge", "1")
    with crashes.worker() as worker:
        there(session, "echo 0 >work.txt")
        held = str(worker.steps(repo.path, "sync", "ses_crash").index("git fetch") + 1)

        def leave():
            made = begin(repo)
            made.coordinator.state.remove(made.coordinator.find(made.name).id)
            there(session, "date +%N >work.txt")
            worker.kill(repo.path, "sync", "ses_crash", step=held)  # its lease, too
            old = {"GIT_COMMITTER_DATE": "2001-01-01T00:00:00Z"}
            tree = repo.git("rev-parse", "HEAD^{tree}")
            kept = repo.git("commit-tree", "-m", "kept long ago", tree, env=old)
            repo.git("update-ref", "refs/daytona/kept/1/1-work", kept)
            return []

        def check():
            coordinator = coordinate(repo.path)
            recovery.prune(coordinator, recovery.leftovers(coordinator))
            assert not recovery.leftovers(coordinator)
            alive = {each.id for each in local.sandboxes if each.state != "destroyed"}
            assert alive - others == {session.sandbox_id}
            assert repo.git("remote") == "sandbox-1"
            assert there(session, "cat agent.txt") == "agent"

        # Most of it is what adopt and delete do, too: once for each kind of step of its own.
        kinds = {"write daytona", "api delete", "api revoke", "git config", "git update-ref"}

        def last(steps):
            return sorted({e: at for at, e in enumerate(steps, 1) if e in kinds}.values())

        assert kinds <= set(crash("prune", leave, check, last))


def test_copy_in(session, coordinate, repo, crash, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    versions = []

    def changed():
        versions.append(str(len(versions)))
        (source / "a").write_text(versions[-1])
        return ["1", str(source), "."]

    def check():
        there(
            session, "find /tmp -maxdepth 1 -name '.git-daytona-*' -exec touch -d '1 day ago' {} +"
        )
        copy.copy_in(coordinate(repo.path), "1", str(source), ".")
        assert there(session, "cat source/a; ls -A /tmp | grep -c git-daytona || true") == (
            f"{versions[-1]}0"
        )

    assert "api upload" in crash("copy_in", changed, check)


def test_copy_out(session, coordinate, repo, crash, tmp_path):
    target = tmp_path / "target"
    versions = []

    def changed():
        versions.append(f"{len(versions)}" * 100_000)
        there(session, f"yes {len(versions) - 1} | tr -d '\\n' | head -c 100000 >big")
        target.write_text("of the user")
        return ["1", "big", str(target)]

    def check():
        assert target.read_text() in ("of the user", *versions), "half a file"
        there(
            session, "find /tmp -maxdepth 1 -name '.git-daytona-*' -exec touch -d '1 day ago' {} +"
        )
        copy.copy_out(coordinate(repo.path), "1", "big", str(target))
        assert there(session, "ls -A /tmp | grep -c git-daytona || true") == "0"
        assert [each.name for each in tmp_path.iterdir() if "target" in each.name] == ["target"]

    assert "api download" in crash("copy_out", changed, check)
