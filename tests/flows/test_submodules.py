"""daytona.submodules: what is done in a submodule comes back as the project's own work does."""

import shutil

import pytest

from git_daytona.base.errors import TransferFailed
from git_daytona.sessions import submodules
from support.round_trip import Repo

ALLOWED = ("-c", "protocol.file.allow=always")
ODD = "späß\nline"
COMMIT = "git add -A && git commit -qm work"


def add(outer: Repo, source: Repo, path: str) -> Repo:
    """Add a submodule by a URL that nothing reaches later."""
    outer.git(*ALLOWED, "submodule", "--quiet", "add", str(source.path), path)
    outer.git("config", "-f", ".gitmodules", f"submodule.{path}.url", "ssh://nowhere.invalid/x")
    outer.git("commit", "-qam", f"Add {path}")
    return Repo(outer.path / path)


def made(path) -> Repo:
    path.mkdir()
    repo = Repo(path)
    repo.git("init", "-q")
    repo.commit("inner", "inner\n")
    return repo


@pytest.fixture
def source(tmp_path) -> Repo:
    return made(tmp_path / "source")


@pytest.fixture
def module(repo, source) -> Repo:
    """A submodule whose commit nobody has but this repository."""
    inner = add(repo, source, "lib")
    inner.git("checkout", "-q", "--detach")
    inner.commit("own", "own\n")
    repo.git("commit", "-qam", "Move lib")
    repo.git("config", "daytona.submodules", "true")
    shutil.rmtree(source.path)
    return inner


def tip(repo, name="opencode/1"):
    return repo.git("rev-parse", name)


def gitlink(repo, path="lib", revision="opencode/1"):
    return repo.git("rev-parse", f"{revision}:{path}")


def test_work_in_submodules_comes_back(repo, module, tmp_path, begin):
    deep = add(module, made(tmp_path / "deep"), "in/deep")
    repo.git("commit", "-qam", "Nest")
    odd = Repo(repo.path / ODD)  # git takes no such name into .gitmodules
    repo.git("clone", "-q", str(made(tmp_path / "odd").path), ODD)
    repo.git("add", ODD)
    repo.git("commit", "-qm", "Add another")
    session = begin(repo)
    assert session.agent("cat lib/own lib/in/deep/inner; git status --porcelain") == "own\ninner\n"
    assert not session.sync().changed
    session.agent("cd ..; rm -rf project")
    session.sync()
    session.agent(
        f"cd lib; echo 1 >committed; {COMMIT}; echo 2 >pending; echo 3 >in/deep/new;"
        " cd ../*line; echo 4 >new"
    )
    outcome = session.sync()
    assert outcome.changed and not outcome.left_behind
    assert "submodule 'lib': opencode/1 is at" in outcome.message
    for inner, outer, path in ((module, repo, "lib"), (deep, module, "in/deep"), (odd, repo, ODD)):
        assert gitlink(outer, path) == tip(inner)
    assert module.show("opencode/1", "pending") == "2"
    assert deep.show("opencode/1", "new") == "3" and odd.show("opencode/1", "new") == "4"
    assert module.git("status", "--porcelain", "--ignore-submodules=dirty") == ""
    assert not session.sync().changed
    assert session.coordinator.delete("1").left_behind == ""
    refs = module.git(
        "for-each-ref", "--format=%(refname)", "refs/daytona", "refs/remotes/sandbox-1"
    )
    assert refs == "refs/daytona/counter"
    assert "sandbox-1" not in module.git("config", "--list")


def test_histories_that_are_written_anew_are_kept(local, repo, module, begin):
    repo.git("config", "daytona.transport", "api")
    session = begin(repo)
    session.agent(f"cd lib; echo 1 >new; {COMMIT}")
    session.sync()
    first = tip(module)
    session.agent("cd lib; git commit -q --amend -m other")
    outcome = session.sync()
    assert tip(module) not in (first, gitlink(repo, revision="HEAD"))
    assert gitlink(repo) == tip(module)
    assert list(module.kept().values()) == [first] and outcome.kept
    session.agent(
        f"cd lib; git checkout -q --detach; echo gone >gone; {COMMIT}; git reset -q --hard @~"
    )
    session.coordinator.delete("1")
    objects = module.git("rev-list", "--objects", "--no-object-names", "--all").split()
    assert module.git("hash-object", "--stdin", stdin="gone\n") in objects
    assert "mint" not in local.counts


def test_what_takes_no_part_is_named(repo, module, source, tmp_path, begin):
    other = add(repo, made(tmp_path / "other"), "other")
    repo.git("submodule", "--quiet", "deinit", "-f", "other")
    module.write("inner", "dirty\n")
    session = begin(repo)
    assert not (other.path / "inner").exists()
    coordinator = session.coordinator
    said = coordinator.stays_here(coordinator.find("1"))
    assert said == "stays here: 1 uncommitted file (lib); 1 submodule (other)"
    # a new one, one in place of one that is not here, one that is a folder now, by a link
    session.agent(
        "git init -q new; cd new; echo x >x; git add x; git commit -qm x; cd ..;"
        " git add new; cp -R new/. other; git commit -qm new; rm -rf lib/.git; echo x >lib/x"
    )
    with pytest.raises(TransferFailed, match="nested repositories do not travel") as refused:
        session.coordinator.delete("1")
    for name in ("new/", "other/", "lib/"):
        assert name in refused.value.message
    session.agent("rm -rf lib; ln -s new lib")
    assert "new/" in session.sync().left_behind
    assert tip(module) == module.git("rev-parse", "HEAD")


def test_without_the_setting_it_is_as_before(repo, module, begin):
    repo.git("config", "--unset", "daytona.submodules")
    session = begin(repo)
    assert session.agent("ls -A lib") == ""
    session.sync()
    assert module.git("for-each-ref", "refs/daytona", "refs/heads/opencode") == ""
    own, before = begin(module), tip(module)  # of the same number
    repo.git("config", "daytona.submodules", "true")
    session.coordinator.delete("1")
    assert tip(module) == before and not own.sync().changed
    assert begin(repo).number == 2 and begin(module).number == 3


def test_the_project_follows_its_submodules(repo, module, begin, monkeypatch):
    """Its branch waits for what it records; killed in between, the next sync goes on."""
    session, before = begin(repo), tip(repo)
    real = submodules.sync
    work = f"cd lib; echo 1 >>new; {COMMIT}; cd ..; git commit -qam lib"

    def sync(branch, **options):
        found = real(branch, **options)
        if not branch.path:
            session.agent(work)  # after the submodule's turn, before the project's
        return found

    with monkeypatch.context() as patch:
        patch.setattr(submodules, "sync", sync)
        session.sync()
    assert gitlink(repo) == tip(module) != gitlink(repo, revision=before)
    before = tip(repo)
    session.agent(work)
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(submodules.Synced, "complete", lambda found, *_, **__: found.there and 1 / 0)
        session.sync()
    assert tip(repo) == before and tip(module) != gitlink(repo)
    assert session.sync().changed
    assert gitlink(repo) == tip(module)
    session.agent(
        f"git update-index --cacheinfo 160000,{'1' * 40},lib; git commit -qm never-there;"
        " git update-ref CHERRY_PICK_HEAD HEAD"  # or the sync would commit what is there
    )
    assert "'lib' is recorded at 1111111111, which it does not have" in session.sync().message


def test_updates_and_pushes_go_along(repo, module, begin):
    session = begin(repo)
    module.commit("mine", "mine\n")
    repo.git("commit", "-qam", "Move lib again")
    session.agent("echo theirs >lib/theirs")
    session.coordinator.update("1")
    assert session.agent("cat lib/mine lib/theirs; git status --porcelain") == "mine\ntheirs\n"
    assert gitlink(repo) == tip(module)
    for each in (module, repo):
        new = each.git("commit-tree", "-p", "opencode/1", "-m", "on", "opencode/1^{tree}")
        each.git("update-ref", "refs/heads/opencode/1", new)
    session.coordinator.push("1")
    assert session.agent("git -C lib rev-parse HEAD").strip() == tip(module)


def test_in_a_worktree(repo, module, tmp_path, begin, coordinate):
    place = tmp_path / "linked tree"
    repo.git("worktree", "add", "-q", "-b", "side", str(place))
    side = Repo(place)
    url = f"submodule.lib.url={module.path}"
    side.git(*ALLOWED, "-c", url, "submodule", "--quiet", "update", "--init")
    session = begin(side)
    session.agent("echo x >lib/x")
    coordinate(repo.path).sync("1")  # from elsewhere
    inner = Repo(place / "lib")
    assert inner.show("opencode/1", "x") == "x"
    assert module.git("for-each-ref", "refs/heads/opencode") == ""
    shutil.rmtree(place / "lib")  # gone here while the session lives
    session.agent("echo y >lib/y")
    with pytest.raises(TransferFailed, match="nested repositories do not travel: lib/"):
        session.coordinator.delete("1")


def test_in_the_middle_of_a_turn(repo, module, begin, monkeypatch):
    """The agent's submodules are left as they are, too, and nothing hangs on its sandbox."""
    session = begin(repo)
    coordinator = session.coordinator
    look = "git status --porcelain=v2 --branch; git log -1; git ls-files --debug -s"
    before = session.agent(f"echo 1 >mine; cd lib; echo 1 >new; git add new; echo 2 >new; {look}")
    coordinator.sync_aside("1")
    coordinator.fetch("1")
    assert repo.kept() == module.kept() == {}, "it is here"
    assert session.agent(f"cd lib; {look}") == before
    assert module.show("refs/daytona/turn/1", "new") == "2"

    # the agent commits between the reports of the two
    def late(branch, **options):
        found = synced(branch, **options)
        if not branch.path:
            session.agent(f"cd lib; {COMMIT}; cd ..; {COMMIT}; echo 3 >lib/new; git -C lib add new")
            monkeypatch.setattr(submodules, "sync", synced)
        return found

    synced = submodules.sync
    monkeypatch.setattr(submodules, "sync", late)
    coordinator.sync_aside("1")
    assert gitlink(repo) == session.agent("git -C lib rev-parse HEAD").strip()
    assert session.agent("git -C lib log -1 --format=%s") == "work\n"

    # and its project is gone
    coordinator.sync_aside("1")
    session.agent("cd ..; rm -rf project")
    session.sync()
    assert module.show("opencode/1", "new") == "3" == session.agent("cat lib/new").strip()
