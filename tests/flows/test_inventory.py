"""What a deletion would destroy is here before, or refused by name: whatever holds it there."""

import re

import pytest

from git_daytona.base.errors import TransferFailed


def reachable(repo):
    """The objects that any ref here holds."""
    return set(repo.git("rev-list", "--objects", "--no-object-names", "--all").split())


def oid(repo, content):
    return repo.git("hash-object", "--stdin", stdin=content)


COMMIT = "git add -A; git commit -qm work"
ASIDE = f"git checkout -q --detach; echo X > f; {COMMIT}"
BACK = "git checkout -q opencode"
REFS = {
    "tag": f"{ASIDE}; git tag wip; {BACK}",
    "annotated tag": f"{ASIDE}; git tag -am x annotated; {BACK}",
    "tag of a blob": "git tag -am x blob $(echo X | git hash-object -w --stdin)",
    "tag of a tag": f"{ASIDE}; git tag -am x one; git tag -am x two one; git tag -d one; {BACK}",
    "note": "echo X | git notes add -F -",
    "ref of its own": "git update-ref refs/mine/x $(echo X | git hash-object -w --stdin)",
    "tree": f"{ASIDE}; git update-ref refs/mine/tree HEAD^{{tree}}; {BACK}",
    "ref below ours": f"{ASIDE}; git update-ref refs/daytona/own HEAD; {BACK}",
    "a remote's branch": f"{ASIDE}; git update-ref refs/remotes/x/y HEAD; {BACK}",
    "replacement": f"{ASIDE}; git replace HEAD HEAD~1; {BACK}",
    "FETCH_HEAD": f"git clone -q -c user.name=a -c user.email=a@b . ../other; cd ../other; echo X > f; {COMMIT};"
    " cd - >/dev/null; git fetch -q ../other HEAD",
    "no reflog": "git reflog expire --expire=all --all",
    "autostash": "echo base > README; git commit -qam base; git switch -qc other HEAD~1;"
    " echo other > README; git commit -qam other; echo x > x; git add x; git commit -qm x;"
    " echo X > x; ! git rebase -q --autostash opencode >/dev/null 2>&1",
}
STASHES = {
    "the older": "echo X > README; git stash -q",
    "the untracked of one": "echo X > u; git stash -qu",
    "the index of one": "echo X > README; git add .; echo Y > README; git stash -q",
    "the newest": "echo X > README; git stash -q",
}
WORKTREES = {
    "not committed": "git worktree add -q ../a -b a; echo X > ../a/f",
    "staged, edited further": "git worktree add -q ../b -b b; cd ../b; echo X > f; git add f;"
    " echo Y > f",
    "detached": f"git worktree add -q --detach ../c; cd ../c; echo X > f; {COMMIT}",
    "inside": "git worktree add -q in/wt -b d; echo X > in/wt/f",
    "an odd name": 'git worktree add -q "../w t\n\'x" -b e; echo X > "../w t\n\'x/f"',
    "files gone": f"git worktree add -q --detach ../f; cd ../f; echo X > f; {COMMIT}; rm -rf ../f",
    "moved by hand": "git worktree add -q ../g -b g; echo X > ../g/f; mv ../g 'mo v\"ed'",
    "conflict": "git worktree add -q ../h -b h; cd ../h; echo x > README; git commit -qam x;"
    " git switch -qc h2 HEAD~1; echo y > README; git commit -qam y; git merge -q h >/dev/null ||"
    " echo X > README",
    "skip-worktree": "git worktree add -q ../i -b i; cd ../i;"
    " git update-index --skip-worktree README; echo X > README",
    "sparse": "git worktree add -q ../j -b j; cd ../j; git sparse-checkout set src 2>/dev/null;"
    " mkdir -p else; echo X > else/f",
    "bisect": f"git worktree add -q --detach ../k; cd ../k; echo X > f; {COMMIT};"
    " git update-ref refs/bisect/bad HEAD; git checkout -q HEAD~1;"
    " git reflog expire --expire=all HEAD",
    "all ignored but one": "git worktree add -q ../l -b l; cd ../l; echo '*' > .gitignore;"
    " echo X > f; git add -f f",
}
REFLOGS = {
    "reset": f"echo X > f; {COMMIT}; git reset -q --hard HEAD~1",
    "amended": f"echo X > f; {COMMIT}; echo Y > f; git add f; git commit -q --amend -m y",
    "rebased": f"echo X > g; {COMMIT}; git rebase -q HEAD~1 --exec 'git commit -q --amend -m y;"
    " echo Y > g; git add g; git commit -q --amend -m z' 2>/dev/null",
    "a deleted branch": f"git switch -qc gone; echo X > f; {COMMIT}; {BACK}; git branch -qD gone",
    "another worktree's": f"git worktree add -q --detach ../m; cd ../m; echo X > f; {COMMIT};"
    " git reset -q --hard HEAD~1",
    "many": f"for n in $(seq 12); do echo $n > f; {COMMIT}; git reset -q --hard HEAD~1; done;"
    f" echo X > f; {COMMIT}; git reset -q --hard HEAD~1",
    "staged, edited further": "echo X > h; git add h; echo Y > h",
}


def all_of(repo, begin, examples):
    """Do all examples in one sandbox, delete it; all that they wrote must be here."""
    session, wanted = begin(repo), {}
    for what, script in examples.items():
        for letter in "XY":
            wanted[what, letter] = content = re.sub(r"\W", "", what) + letter
            script = re.sub(rf"\b{letter}\b", content, script)  # noqa: PLW2901
        session.agent(f"(set -e; {script})")
    outcome = session.coordinator.delete(session.name)
    here = reachable(repo)
    lost = [
        (what, letter)
        for (what, letter), content in wanted.items()
        if f"echo {letter} " in examples[what] and oid(repo, content + "\n") not in here
    ]
    assert not lost, outcome.message
    assert set(repo.kept()) == {kept.ref for kept in outcome.kept}, "what is kept is named"
    return outcome


def test_case_71_what_any_ref_holds(local, repo, begin):
    examples = REFS
    all_of(repo, begin, examples)


def test_case_72_each_stash(local, repo, begin):
    examples = STASHES
    all_of(repo, begin, examples)


def test_case_73_each_worktree(local, repo, begin):
    examples = WORKTREES
    all_of(repo, begin, examples)


def test_case_76_what_only_a_reflog_or_the_index_holds(local, repo, begin):
    """In between there is a sync, which replaces the index; and what it brought is not kept
    twice."""
    examples = REFLOGS
    all_of(repo, begin, examples)


def test_case_74_marks_of_the_index_hide_nothing(local, repo, begin):
    """A sync brings the edits; the marks stay as the agent set them, and so does what is staged."""
    examples = {
        "skip": "git update-index --skip-worktree skip; echo edited > skip",
        "as sumed": "git update-index --assume-unchanged 'as sumed'; echo edited > 'as sumed'",
        "both": "git update-index --skip-worktree both; git update-index --assume-unchanged both;"
        " echo edited > both",
        "li\nne": "git update-index --skip-worktree 'li\nne'; echo edited > 'li\nne'",
        "staged": "echo staged > staged; git add staged; git update-index --skip-worktree staged;"
        " echo edited > staged",
        "a link": "git update-index --skip-worktree 'a link'; ln -sf edited 'a link'",
    }
    for name in examples:
        repo.write(name, "before\n")
    repo.write("absent")
    repo.git("add", "-A")
    repo.git("commit", "-qm", "files")
    session = begin(repo)
    session.agent("git update-index --skip-worktree absent; rm absent")
    for script in examples.values():
        session.agent(script)
    marks = session.agent("git ls-files -v")
    assert session.sync().changed
    for name in examples:
        assert repo.show("opencode/1", name).strip() == "edited", name
    assert repo.show("opencode/1", "absent"), "outside of a sparse checkout"
    assert session.agent("git ls-files -v") == marks
    assert session.agent("git status --porcelain") == ""
    assert not session.sync().changed
    session.coordinator.delete("1")
    assert oid(repo, "staged\n") in reachable(repo)
