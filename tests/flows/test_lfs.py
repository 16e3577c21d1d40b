"""daytona.lfs: objects of Git LFS go with the commits that point to them, and come back."""

import hashlib

import pytest

from git_daytona.git import lfs
from git_daytona.git import repository as git
from support.lacking import needs
from support.round_trip import execute

needs_lfs = needs("git-lfs", "git-lfs")


def oid(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def pointer(text: str) -> str:
    size = len(text.encode())
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid(text)}\nsize {size}\n"


@pytest.fixture
def tracked(repo):
    """A repository with a file in LFS and one whose content is not here."""
    repo.git("lfs", "install", "--local", "--skip-repo")
    repo.commit(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    repo.commit("large.bin", "large\n")
    repo.git("config", "daytona.lfs", "true")
    return repo


def store(repo) -> lfs.Store:
    return lfs.store(git.discover(repo.path))


@needs_lfs
def test_objects_go_and_come_back(local, tracked, begin):
    tracked.commit("elsewhere.bin", pointer("elsewhere\n"))
    session = begin(tracked)
    said = session.agent("cat large.bin elsewhere.bin; git status --porcelain")
    assert said == "large\n" + pointer("elsewhere\n")
    local.forget_calls()
    assert not session.sync().changed
    assert local.counts == {"process/execute": 1}
    session.agent("echo 1 >one.bin; git add .; git commit -qm 1; echo 2 >one.bin; echo 3 >'3 .bin'")
    outcome = session.sync()
    assert "LFS objects that came: 3" in outcome.message
    assert tracked.show("opencode/1", "one.bin") == pointer("2\n").strip()
    assert all(store(tracked).has(oid(text), 2) for text in ("1\n", "2\n", "3\n"))
    tracked.git("merge", "-q", "--ff-only", "opencode/1")
    assert (tracked.path / "3 .bin").read_text() == "3\n"
    tracked.commit("mine.bin", "mine\n")
    session.coordinator.update("1")
    assert session.agent("cat mine.bin; cd ..; rm -rf project") == "mine\n"
    session.sync()
    assert session.agent("cat mine.bin; git status --porcelain") == "mine\n"
    assert "LFS" not in session.coordinator.delete("1").message


@needs_lfs
def test_what_a_lost_sandbox_had_during_its_turn(tracked, begin):
    session = begin(tracked)
    session.agent("echo new >new.bin")
    session.coordinator.sync_aside("1")
    session.coordinator.cloud.delete(session.sandbox_id)
    assert execute(session.coordinator, "1", "cat new.bin")[0].output == "new\n"


@needs_lfs
def test_objects_that_are_not_what_they_should_be(tracked, begin):
    session = begin(tracked)
    session.agent(
        "echo new >new.bin; git add .; git commit -qm new; cd .git/lfs/objects;"
        f" cd {oid('new' + chr(10))[:2]}/*; chmod u+w *; for each in *; do echo bad >$each; done"
    )
    outcome = session.sync()
    assert "not in the sandbox, or not what they should be: 1" in outcome.message
    new = store(tracked).path(oid("new\n"))
    assert not new.exists() and list(new.parent.iterdir()) == []
    session.agent(f"git rm -qf new.bin; git commit -qm gone; rm $(find .git/lfs -name {new.name})")
    assert "they should be: 1" in session.sync().message


def test_ten_thousand_pointers(repo):
    """Pointers are read in one go, and what only looks like one is none."""
    blobs = [pointer(str(number)) for number in range(10_000)]
    blobs += ["x" + pointer("x")[1:], pointer("y") + "z" * 2000]
    lines = []
    for number, blob in enumerate(blobs):
        lines.append(f"M 100644 inline {number}.bin\ndata {len(blob)}\n{blob}\n")
    commit = "commit refs/heads/many\ncommitter a <a@b> 0 +0000\ndata 1\nx\n"
    repo.git("fast-import", "--quiet", stdin=commit + "".join(lines))
    here = git.discover(repo.path)
    found = lfs.pointers(here, "many^{tree}")
    assert len(found) == 10_000 and found[oid("77")] == 2
    assert lfs.pointers(here, "many", "^many") == {}
    assert lfs.store(here).missing(found) == found
