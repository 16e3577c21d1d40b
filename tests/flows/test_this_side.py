"""The user's side of a sync: worktrees wherever git has them, sparse ones, and those in which
somebody is in the middle of something."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from git_daytona.base import files, paths
from git_daytona.base.errors import TimedOut
from git_daytona.git import branches, worktrees
from git_daytona.git.repository import discover
from git_daytona.sessions import recovery, state
from support.round_trip import Repo, program

# -- where the worktree is -------------------------------------------------------------------------


def submodule(repo, tmp_path):
    outer = tmp_path / "outer"
    outer.mkdir()
    made = Repo(outer)
    made.git("init", "-q")
    allow = ("-c", "protocol.file.allow=always")
    made.git(*allow, "submodule", "--quiet", "add", str(repo.path), "in side")
    return Repo(outer / "in side")


def separate(repo, tmp_path):
    made = Repo(tmp_path / "apart")
    elsewhere = f"--separate-git-dir={tmp_path / 'elsewhere'}"
    repo.git("clone", "-q", elsewhere, ".", str(made.path))
    return made


def symlinked(repo, tmp_path):
    place = tmp_path / "kept" / "git-dir"
    place.parent.mkdir()
    (repo.path / ".git").rename(place)
    (repo.path / ".git").symlink_to(place)
    return repo


def linked(repo, tmp_path):
    repo.git("worktree", "add", "-q", "-b", "mine", str(tmp_path / "linked"))
    return Repo(tmp_path / "linked")


FORMS = {"submodule": submodule, "separate": separate, "symlinked": symlinked, "linked": linked}


@pytest.mark.parametrize("form", FORMS)
def test_case_77_the_worktree_is_where_git_says(local, repo, begin, tmp_path, form):
    """What only the files have is kept, ignored ones that would be overwritten, too; all follow."""
    repo.commit(".gitignore", "private\n")
    place = FORMS[form](repo, tmp_path)
    session = begin(place)
    place.git("switch", "-q", "opencode/1")
    place.write("private", "mine\n")
    place.write("README", "edited\n")
    session.agent("echo theirs >private; git add -f private; git commit -qm theirs")
    (kept,) = session.sync().kept
    assert f"uncommitted work in '{place.path}' kept as" in branches.describe([kept])
    assert place.show(kept.ref, "private") == "mine" and place.show(kept.ref, "README") == "edited"
    assert (place.path / "private").read_text() == "theirs\n"
    assert place.git("status", "--porcelain") == ""


def test_case_77_whatever_is_in_the_way_is_kept(local, repo, begin):
    """Ignored and untracked things that the agent's files would replace; what nothing replaces
    stays, and is no reason to keep anything."""
    repo.commit(".gitignore", "private*\n")
    session = begin(repo)
    repo.git("switch", "-q", "opencode/1")
    examples = {  # mine, the agent's
        "private": ("private", "private"),
        "a file for a folder": ("private1", "private1/deep/new"),
        "a folder for a file": ("private2/deep/old", "private2"),
        "an untracked file for a folder": ("new1", "new1/new"),
        "an untracked folder for a file": ("new2/old", "new2"),
        "a link for a folder": ("private-link", "private-link/new"),
    }
    repo.write("private-own", "mine\n")
    repo.write("other/own", "mine\n")
    for mine, _ in examples.values():
        if mine == "private-link":
            (repo.path / mine).symlink_to("nowhere")
        else:
            repo.write(mine, "mine\n")
    session.agent("echo agent >theirs")
    assert session.sync().kept == ()
    for _, theirs in examples.values():
        session.agent(f"mkdir -p $(dirname {theirs}); echo agent >{theirs}; git add -f {theirs}")
    (kept,) = session.sync().kept
    for name, (mine, theirs) in examples.items():
        text = "nowhere" if mine == "private-link" else "mine"
        assert repo.show(kept.ref, mine) == text, name
        assert (repo.path / theirs).read_text() == "agent\n", name
    assert (repo.path / "private-own").read_text() == "mine\n"
    assert (repo.path / "other/own").read_text() == "mine\n"


@pytest.mark.parametrize("form", ["submodule", "separate", "symlinked"])
def test_case_77_from_a_linked_worktree(local, repo, begin, tmp_path, form):
    """The main worktree follows where its git directory knows the way to it; else the branch stays,
    and what it would have become is here."""
    place = FORMS[form](repo, tmp_path)
    place.git("worktree", "add", "-q", "-b", "aside", str(tmp_path / "aside"))
    session = begin(Repo(tmp_path / "aside"))
    place.git("switch", "-q", "opencode/1")
    place.write("README", "edited\n")
    old = place.git("rev-parse", "opencode/1")
    session.agent("echo new >new")
    outcome = session.sync()
    if form == "submodule":
        assert place.show(outcome.kept[0].ref, "README") == "edited"
        assert (place.path / "new").exists()
    else:
        assert "opencode/1 stays where it is" in outcome.message
        assert "that git cannot find" in outcome.message
        assert place.git("rev-parse", "opencode/1") == old
        assert place.git("rev-parse", "sandbox-1/opencode") == outcome.head
        assert (place.path / "README").read_text() == "edited\n"
        session.coordinator.delete("1")
        assert outcome.head in place.kept().values(), "the last that had it was its remote"


# -- sparse worktrees ------------------------------------------------------------------------------


def test_case_80_sparse_worktrees_here(local, repo, begin, tmp_path):
    """The agent's files outside of the patterns come back and are not checked out; mine that lie
    there are kept, whether git would look at them or not."""
    examples = ("--cone", "--no-cone", "--sparse-index")
    for name in ("src/one", "out/one", "out/two"):
        repo.commit(name)
    session = begin(repo)
    places = [Repo(tmp_path / mode) for mode in examples]
    for place, mode in zip(places, examples, strict=True):
        repo.git("worktree", "add", "-q", "--force", str(place.path), "opencode/1")
        place.git("sparse-checkout", "set", mode, "src")
        assert not (place.path / "out").exists()
    session.agent("echo x >src/new; mkdir deep; echo x >deep/new; echo agent >out/one")
    outcome = session.sync()
    assert outcome.kept == () and repo.show("opencode/1", "deep/new") == "x"
    for place in places:
        assert (place.path / "src/new").exists() and not (place.path / "deep").exists()
        place.write("deep/mine", "mine\n")
        place.write("out/one", f"edited in {place.path}\n")
        place.write("src/one", "edited\n")
    session.agent("echo y >deep/new; echo again >out/one; echo z >src/one")
    kept = {repo.show(each.ref, "out/one"): each.ref for each in session.sync().kept}
    assert repo.show("opencode/1", "deep/new") == "y"
    for place in places:
        ref = kept.pop(f"edited in {place.path}")
        assert repo.show(ref, "deep/mine") == "mine" and repo.show(ref, "src/one") == "edited"
        assert repo.show(ref, "out/two") == "content", "what is not checked out is not deleted"
        assert (place.path / "src/one").read_text() == "z\n"
        assert place.git("status", "--porcelain", "--untracked-files=no") == ""
    assert kept == {}


# -- in the middle of something --------------------------------------------------------------------

RIVALS = """
git rev-parse -q --verify refs/stash && git stash drop -q
git checkout -q opencode/1; echo base >f; git add f; git commit -qm base; git branch -f other
echo ours >f; git commit -qam ours; echo more >g; git add g; git commit -qm more
git checkout -q other; echo other >f; git commit -qam other; git checkout -q opencode/1
"""


def test_case_85_in_the_middle_of_something_here(local, repo, begin, tmp_path):
    """The branch and the worktree are left alone, and that is said; the operation goes on; the next
    sync moves the branch."""
    examples = {
        "rebase": ("git rebase -q other", "rebase --continue"),
        "rebase of it": ("git rebase -q --apply other", "rebase --continue"),
        "bisection": ("git bisect start -q HEAD HEAD~2", "bisect reset"),
        "merge": ("git merge -q other", "commit -qm merged"),
        "git am": ("git format-patch -q --stdout HEAD..other | git am -q -3", "am --continue"),
        "conflicts": ("git stash apply -q", "commit -qm mine"),
        "a rebase of it": (
            "git checkout -qB above && git rebase -q --update-refs other",
            "rebase --continue",
        ),
    }
    session = begin(repo)
    place = Repo(tmp_path / "place")
    repo.git("worktree", "add", "-q", str(place.path), "opencode/1")

    def run(script):
        words, env = ("sh", "-c", script), os.environ | {"GIT_EDITOR": "true"}
        subprocess.run(words, cwd=place.path, env=env, capture_output=True, timeout=60)

    def seen():
        return place.git("status", "--porcelain=v2"), repo.git("rev-parse", "opencode/1")

    for number, (name, (begun, ended)) in enumerate(examples.items()):
        run(RIVALS)
        if name == "conflicts":
            run("echo stashed >f; git stash -q; echo again >f; git commit -qam again")
        run(begun)
        if name == "a rebase of it" and "detached" in place.git("status", "--porcelain=v2", "-b"):
            continue  # a git that does not know --update-refs
        before = seen()
        session.agent(f"echo {number} >new")
        outcome = session.sync()
        assert "opencode/1 stays where it is: " in outcome.message and name in outcome.message
        assert str(place.path) in outcome.message and seen() == before, name
        assert repo.git("rev-parse", "sandbox-1/opencode") == outcome.head, name
        if name != "bisection":
            place.write("f", "resolved\n")
            place.git("add", "f")
        run(f"git {ended}; git rebase --continue")
        assert "rebase" not in place.git("status") and place.git("status", "-s") == "", name
        mine = repo.git("rev-parse", "opencode/1")
        assert (mine == before[1]) == (name == "bisection"), "it has ended as its user wished"
        place.git("checkout", "-q", "opencode/1")
        assert session.sync().head == outcome.head == repo.git("rev-parse", "opencode/1"), name
        assert mine in repo.kept().values(), name
        assert (place.path / "new").read_text() == f"{number}\n", name


def test_case_85_the_operation_is_named(repo):
    repo.git("switch", "-q", "-c", "opencode/1")
    for text in ("one\n", "two\n", "three\n"):
        repo.commit("f", text)
    examples = {"cherry-pick": "HEAD~2", "revert": "HEAD~1"}
    for name, commit in examples.items():
        assert worktrees.in_use(discover(repo.path), "refs/heads/opencode/1") == ""
        repo.git(name, commit, check=False)
        told = worktrees.in_use(discover(repo.path), "refs/heads/opencode/1")
        assert told == f"a {name} is in progress in '{repo.path}'"
        repo.git(name, "--abort")


def test_case_85_a_worktree_that_is_gone_holds_nothing(local, repo, begin, tmp_path):
    session = begin(repo)
    place = Repo(tmp_path / "place")
    repo.git("worktree", "add", "-q", str(place.path), "opencode/1")
    place.commit("one")
    place.git("bisect", "start", "-q")
    shutil.rmtree(place.path)
    session.agent("echo new >new")
    outcome = session.sync()
    assert repo.git("rev-parse", "opencode/1") == outcome.head


def test_case_85_what_is_no_file_of_gits_is_not_waited_for(repo):
    """A repository may be a stranger's: a pipe, a file without end, one that makes no sense."""
    here, git_dir = discover(repo.path), repo.path / ".git"
    (git_dir / "rebase-merge").mkdir()
    os.mkfifo(git_dir / "BISECT_START")
    (git_dir / "rebase-merge" / "head-name").symlink_to("/dev/zero")
    (git_dir / "rebase-merge" / "update-refs").write_bytes(b"\xff\0\n")
    os.mkfifo(git_dir / "objects" / "pack" / "pack-x.keep")
    assert worktrees.in_use(here, "refs/heads/opencode/1") == ""
    worktrees.release(here)
    (git_dir / "BISECT_START").unlink()
    (git_dir / "BISECT_START").write_text("opencode/1\n")
    told = worktrees.in_use(here, "refs/heads/opencode/1")
    assert told == f"a bisection of it is in progress in '{repo.path}'"


@pytest.mark.parametrize("detached", [False, True])
def test_case_85_what_the_branch_did_not_take_is_kept_by_a_deletion(local, repo, begin, detached):
    session = begin(repo)
    repo.git("switch", "-q", "opencode/1")
    repo.git("bisect", "start", "-q")
    session.agent(("git switch -q --detach; " if detached else "") + "echo new >new")
    outcome = session.coordinator.delete("1")
    assert outcome.head in repo.kept().values()
    assert any(repo.git("rev-parse", each.ref) == outcome.head for each in outcome.kept)


# -- a gc at the worst moment ----------------------------------------------------------------------

WORST = """#!/bin/sh
case "$*" in *{repo}*) ;; *) exec {git} "$@" ;; esac
plain() {{
  env -u GIT_INDEX_FILE -u GIT_OBJECT_DIRECTORY -u GIT_ALTERNATE_OBJECT_DIRECTORIES \\
    {git} -C {repo} "$@"
}}
gc() {{ plain gc --quiet --prune=now >/dev/null 2>&1; }}
case " $* " in *" update-ref "*) doomed=$(plain prune -n --expire=now); gc ;; esac
{git} "$@"
status=$?
for oid in $(printf '%s' "$doomed" | cut -d ' ' -f 1); do # a gc that had looked before
  rest=${{oid#??}}
  rm -f {repo}/.git/objects/"${{oid%"$rest"}}/$rest"
done
case " $* " in
  *" add "* | *" write-tree "* | *" commit-tree "* | *" pack-objects "*) gc ;;
esac
exit $status
"""


def test_case_110_a_gc_beside_a_sync_that_keeps_a_worktree(
    local, repo, begin, tmp_path, monkeypatch
):
    """Every object of the kept ref is there, whether it was made for it or lay here unused."""
    examples = {
        "new": "true",
        "there already": "echo one | git hash-object -w --stdin",
        "packed already": "git commit -qam x; git reset -q HEAD~1; git reflog expire --expire=all"
        " --all; git repack -adq",
        "staged": "git add -A",
    }
    repo.commit("f", "f\n")
    session = begin(repo)
    repo.git("switch", "-q", "opencode/1")
    real = shutil.which("git")
    shim = program(tmp_path / "bin" / "git", WORST.format(git=real, repo=repo.path))
    for number, (name, script) in enumerate(examples.items()):
        session.agent(f"echo {number} >theirs")
        repo.write("f", "one\n")
        repo.write("untracked", f"{name}\n")
        subprocess.run(("sh", "-c", script), cwd=repo.path, check=True, timeout=60)
        with monkeypatch.context() as patched:
            patched.setenv("PATH", f"{shim.parent}:{os.environ['PATH']}")
            (kept,) = session.sync().kept
        assert repo.git("rev-list", "--objects", kept.ref), name
        assert repo.git("fsck", "--connectivity-only", "--no-dangling") == "", name
        assert repo.show(kept.ref, "f") == "one" and repo.show(kept.ref, "untracked") == name
        assert (repo.path / "f").read_text() == "f\n"
        objects = repo.path / ".git" / "objects"
        assert [*objects.glob("daytona-*"), *objects.glob("pack/*.keep")] == []


# -- order without clocks --------------------------------------------------------------------------


def test_case_114_the_clock_is_set_back(local, repo, begin, coordinate, monkeypatch):
    """What is used after a sync needs one, and what is kept later is called so."""
    session = begin(repo)
    repo.git("switch", "-q", "opencode/1")
    names, behind = [], 0
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() - behind)
    for number, behind in enumerate((0, 3600, 2 * 86400, 366 * 86400)):  # noqa: B007 — read above
        session.agent(f"echo {number} >theirs")
        assert session.coordinator.find("1").needs_sync
        repo.write("README", f"{number}\n")
        (kept,) = session.sync().kept
        names.append(kept.ref)
        assert not session.coordinator.find("1").needs_sync
    assert names == sorted(names) == list(repo.kept())
    assert [repo.show(ref, "README") for ref in names] == ["0", "1", "2", "3"]
    session.agent("echo last >theirs")
    (line,) = recovery.recover(coordinate(repo.path)).done
    assert repo.git("rev-parse", "--short=10", "opencode/1") in line
    assert repo.show("opencode/1", "theirs") == "last"


def test_case_114_what_is_used_during_a_sync_needs_another(local, repo, begin, monkeypatch):
    """Also within one millisecond, and when the clock goes back in the middle of it."""
    session = begin(repo)
    monkeypatch.setattr(state, "now", lambda: 1_800_000_000_000)
    session.agent("echo 1 >theirs")
    monkeypatch.setattr(state, "now", lambda: 1_900_000_000_000)
    report = session.coordinator._sync

    def used_meanwhile(current, **how):
        outcome = report(current, **how)
        monkeypatch.setattr(state, "now", lambda: 1_700_000_000_000)
        session.coordinator.state.touch(current.id)
        return outcome

    monkeypatch.setattr(session.coordinator, "_sync", used_meanwhile)
    session.sync()
    assert session.coordinator.find("1").needs_sync


def test_case_114_commits_that_are_older_than_their_parents(local, repo, begin):
    """The agent's clock goes wrong: what is in the history of its branch is not kept besides it."""
    session = begin(repo)
    session.agent("GIT_COMMITTER_DATE='2038-01-01T00:00Z' git commit -q --allow-empty -m early")
    early = session.sync().head
    session.agent(
        'for n in 1 2 3 4 5 6 7 8; do GIT_COMMITTER_DATE="2001-01-0${n}T00:00Z" git commit -q '
        "--allow-empty -m $n; done"
    )
    outcome = session.sync()
    assert outcome.kept == () and repo.git("merge-base", early, "opencode/1") == early
    repo.git("update-ref", "refs/heads/opencode/1", early)
    session.sync()
    assert repo.kept() == {}


# -- what stays ------------------------------------------------------------------------------------


def left_here(repo):
    """What is there besides sessions: names of refs, files of locks, packs."""
    refs = repo.git("for-each-ref", "--format=%(refname)", "refs/daytona", "refs/remotes")
    packs = list((repo.path / ".git/objects/pack").glob("*.pack"))
    return refs.split(), [path.name for path in paths.locks().glob("*")], len(packs)


def test_case_118_a_session_that_is_deleted_leaves_its_branch(local, repo, begin, coordinate):
    """No base, remote, lock, journal; packs are git's to join, as the user lets it."""
    repo.git("config", "gc.autoPackLimit", "5")
    repo.git("config", "gc.autoDetach", "false")
    repo.git("config", "maintenance.auto", "false")
    for number in range(11):
        repo.commit(f"n{number}")
        repo.git("repack", "-q")
    session = begin(repo)
    assert repo.git("rev-parse", "refs/daytona/base/1") == repo.git("rev-parse", "HEAD")
    session.agent("echo 1 >new")
    session.sync()
    assert left_here(repo)[2] > 11
    repo.git("config", "--unset", "maintenance.auto")
    session.agent("echo 2 >new")
    session.sync()
    assert left_here(repo)[2] <= 5
    session.coordinator.delete("1")
    session.coordinator.close()
    assert left_here(repo)[:2] == (["refs/daytona/counter"], [])
    assert repo.show("opencode/1", "new") == "2"
    assert [*paths.leases().iterdir()] == []


def test_case_118_what_killed_runs_left_is_cleaned_by_the_next(local, repo, begin, coordinate):
    """Of bases of versions before, of locks, files half-written, folders, packs held for a ref."""
    session = begin(repo)
    repo.git("switch", "-q", "opencode/1")
    head = repo.git("rev-parse", "HEAD")
    for number in ("7", "12"):
        repo.git("update-ref", f"refs/daytona/base/{number}", head)
    repo.git("config", "remote.sandbox-12.url", "ssh://other/user")
    objects = repo.path / ".git" / "objects"
    old = {
        "a folder": objects / "daytona-index-dead" / "index",
        "a journal": paths.leases() / ".x.json.0123456789ab",
        "a mark": paths.own_state() / "creating" / ".x.0123456789ab",
        "state": paths.storage() / f".{session.coordinator.state.path.name}.0123456789ab",
    }
    young = {name: path.with_name(f"{path.name[:-1]}c") for name, path in old.items()}
    young["a folder"] = objects / "daytona-index-live" / "index"
    others = objects / "pack" / "pack-mine.keep"
    for path in (*old.values(), *young.values(), others, objects / "pack" / "pack-dead.keep"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("git-daytona: its ref is being made\n" if "dead" in path.name else "x")
    for path in old.values():
        os.utime(path, (1, 1))
        if path.parent.name.startswith("daytona-index"):
            os.utime(path.parent, (1, 1))
    lock = paths.locks() / "session-dead"
    lock.touch()
    session.agent("echo new >new")
    found = recovery.recover(coordinate(repo.path))
    assert found.failed == [] and "opencode/1 is at" in found.done[0]
    assert [name for name, path in old.items() if path.exists()] == []
    assert [name for name, path in young.items() if not path.exists()] == []
    assert others.exists() and not (objects / "pack" / "pack-dead.keep").exists()
    assert repo.git("for-each-ref", "--format=%(refname)", "refs/daytona/base").split() == [
        "refs/daytona/base/1",
        "refs/daytona/base/12",
    ]
    assert not lock.exists()


def test_case_118_a_lock_that_is_held_stays(tmp_path):
    """And so does the exclusion, however often its file goes and comes."""
    inside, most = 0, 0
    with files.lock(tmp_path / "held"):
        files.remove_locks(tmp_path)
        assert (tmp_path / "held").exists()
        with pytest.raises(TimedOut), files.lock(tmp_path / "held", seconds=0.05):
            pass

    def enter(_number):
        nonlocal inside, most
        with files.lock(tmp_path / "one"):
            inside += 1
            most = max(most, inside)
            inside -= 1
        files.remove_locks(tmp_path)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(enter, range(200)))
    assert (most, [*tmp_path.iterdir()]) == (1, [])


def test_case_118_a_lock_whose_file_was_removed_meanwhile_holds_nothing(tmp_path, monkeypatch):
    """Between the opening of the file and its lock the holder lets go, and another one begins."""
    path, flock = tmp_path / "one", fcntl.flock
    with contextlib.ExitStack() as other:

        def late(descriptor, operation):
            monkeypatch.setattr(fcntl, "flock", flock)
            path.unlink()
            other.enter_context(files.lock(path))
            flock(descriptor, operation)

        monkeypatch.setattr(fcntl, "flock", late)
        with pytest.raises(TimedOut), files.lock(path, seconds=0.05):
            pass
    with files.lock(path, seconds=0):
        pass
