"""What a deletion would destroy is here before, or refused by name: whatever holds it there."""

import base64
import hashlib
import itertools
import re
import secrets

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from git_daytona.api.cloud import Execution
from git_daytona.base.errors import BadAnswer, TransferFailed
from git_daytona.git.refs import MOST
from git_daytona.sandbox import report, scripts
from support.round_trip import execute
from support.waiting import until


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
    "FETCH_HEAD": "git clone -q -c user.name=a -c user.email=a@b . ../other;"
    f" cd ../other; echo X > f; {COMMIT};"
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
    "rest of a rebase": "git worktree add -q ../p -b p; cd ../p; echo x > x; git add x;"
    f" git commit -qm x; echo X > f; {COMMIT};"
    " GIT_SEQUENCE_EDITOR='sed -i 1s/pick/edit/' git rebase -qi HEAD~2 2>/dev/null;"
    " git update-ref -d refs/heads/p; git reflog expire --expire=all HEAD;"
    " cd $(git rev-parse --git-dir); rm ORIG_HEAD rebase-merge/orig-head",
    "refs gone": "git worktree add -q ../r -b r; cd ../r; git update-ref refs/worktree/x/y"
    " $(echo X | git hash-object -w --stdin); rm -rf ../r",
    "without a commit": "git worktree add -q --detach ../n; cd ../n; git checkout -q --orphan n;"
    " git rm -rfq .; echo X > f",
    "split index": "git worktree add -q ../o -b o; cd ../o; git update-index --split-index;"
    " echo X > f; git add f; echo Y > f",
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
            script = re.sub(rf"\b{letter}\b", content, script)
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


def test_case_74_marks_of_the_index_and_settings_hide_nothing(local, repo, begin):
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
        "time": "git config core.checkStat minimal; git config core.trustctime false;"
        " touch -d '1 hour ago' time; git update-index --refresh; touch -r time ../time;"
        # the files' clock, which comes after that of date
        " while touch ../now; [ $(stat -c %Z time) = $(stat -c %Z ../now) ]; do sleep 0.05; done;"
        " echo edited > time; touch -r ../time time",
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
    session.agent("git config core.ignoreCase true; echo edited > SKIP")
    marks = session.agent("git ls-files -v")
    assert session.sync().changed
    for name in (*examples, "SKIP"):
        assert repo.show("opencode/1", name).strip() == "edited", name
    assert repo.show("opencode/1", "absent"), "outside of a sparse checkout"
    assert session.agent("git ls-files -v | grep -v SKIP") == marks
    assert session.agent("git status --porcelain") == ""
    assert not session.sync().changed
    session.coordinator.delete("1")
    assert oid(repo, "staged\n") in reachable(repo)


def test_case_75_what_cannot_be_read_is_named(local, repo, begin):
    """A deletion is refused for it, and for nothing of the kind that git ignores."""
    examples = {
        "dir": "mkdir dir; echo X > dir/f; chmod 000 dir",
        "deep/er": "mkdir -p deep/er; echo X > deep/er/f; chmod 000 deep/er",
        "/wt/dir": "git worktree add -q ../wt -b a; mkdir ../wt/dir; echo X > ../wt/dir/f;"
        " chmod 000 ../wt/dir",
        "/closed/wt": "mkdir ../closed; git worktree add -q ../closed/wt -b b; chmod 000 ../closed",
        "/cut": "git worktree add -q ../cut -b c; echo X > ../cut/f; rm ../cut/.git",
        "/anew": "git worktree add -q ../anew -b d; rm ../anew/.git; git init -q ../anew;"
        " echo X > ../anew/f",
        "/else, where core.worktree leads": "mkdir ../else; echo X > ../else/f;"
        " git config core.worktree ../../else",
        "rebase-apply": "git worktree add -q ../am -b am; cd ../am; echo X > am; git add am;"
        " git commit -qm am; git format-patch -q -1; git reset -q --hard HEAD~1; echo Y > am;"
        " ! git am -q 0001* 2>/dev/null",
    }
    session = begin(repo)
    session.agent("mkdir ignored; echo x > ignored/f; chmod 000 ignored; echo ignored > .gitignore")
    for script in examples.values():
        session.agent(script)
    assert session.sync().changed
    with pytest.raises(TransferFailed, match="not deleted: files that cannot be comm") as refused:
        session.coordinator.delete("1")
    assert all(name in refused.value.message for name in examples)
    assert "ignored" not in refused.value.message
    assert "--force" in refused.value.hint
    session.agent(
        "chmod 700 dir deep/er ../wt/dir ../closed; git config --unset core.worktree;"
        " git -C ../am am --abort; rm -r ../cut ../anew"
    )
    outcome = session.coordinator.delete("1")
    here = reachable(repo)
    assert oid(repo, "X\n") in here and "ignored files do not travel: ignored/" in outcome.message


LIBRARY = """
git init -q ../lib; cd ../lib; git config user.name a; git config user.email a@b
echo lib > lib; git add .; git commit -qm lib; git tag -am v1 v1; git branch side; cd - >/dev/null
git config --global protocol.file.allow always
git config --global user.name a; git config --global user.email a@b
"""
ELSEWHERE = """
for config in .git/modules/*/config */.git/config; do
  [ ! -f $config ] || git config -f $config remote.origin.url https://example.invalid/lib
done
"""
"""The remotes are not in the sandbox."""


def test_case_86_a_repository_without_work_of_its_own_holds_up_nothing(local, repo, begin):
    examples = {
        "worktree": "git worktree add -q tree -b tree; cd tree; echo x > f; git add f;"
        " git commit -qm f",
        "odd name": "git worktree add -q 'ö\t d%\"' -b odd",
        "recorded worktree": "git worktree add -q recorded -b r;"
        " git -c advice.addEmbeddedRepo=false add recorded; git commit -qm recorded",
        "submodule": "git submodule --quiet add ../lib sub; git commit -qm sub",
        "one at another commit": "git submodule --quiet add ../lib other; cd other;"
        " git switch -qc own origin/side",
        "one whose commit was pushed": "git submodule --quiet add ../lib pushed; cd pushed;"
        " git switch -q side; echo x > f; git add f; git commit -qm f; git push -q",
        "clone": "git clone -q ../lib clone",
        "gone": "git submodule --quiet add ../lib gone; git commit -qm gone;"
        " git submodule --quiet deinit gone",
    }
    session = begin(repo)
    session.agent(LIBRARY)
    for script in examples.values():
        session.agent(f"(set -e; {script})")
    session.agent(ELSEWHERE)
    outcome = session.sync()
    assert outcome.left_behind == "" and "nested" not in outcome.message
    session.agent("echo ignored > clone/.git/info/exclude; echo x > clone/ignored")
    outcome = session.coordinator.delete("1")
    assert "ignored files do not travel: clone/ignored" in outcome.message


def test_case_86_and_case_48_one_with_work_of_its_own_does(local, repo, begin):
    examples = {
        "edited/": "echo x > edited/lib",
        "new/": "echo x > new/f",
        "committed/": "echo x > committed/f; git -C committed add f; git -C committed commit -qm f",
        "reset/": "cd reset; echo x > f; git add f; git commit -qm f; git reset -q --hard HEAD~1",
        "stashed/": "echo x > stashed/lib; git -C stashed stash -q",
        "hidden/": "git -C hidden update-index --skip-worktree lib; echo x > hidden/lib",
        "staged/": "echo x > staged/f; git -C staged add f; git submodule --quiet deinit -f staged",
        "linked/": "cd linked; git worktree add -q --detach ../../linked; echo x > ../../linked/f",
        "deinit/": "cd deinit; echo x > f; git add f; git commit -qm f; cd ..;"
        " git submodule --quiet deinit -f deinit",
        "empty/": "rm -rf empty; git init -q empty",
        "/wt/inner/": "git worktree add -q ../wt -b side; git init -q ../wt/inner;"
        " echo x > ../wt/inner/f",
    }
    session = begin(repo)
    session.agent(LIBRARY)
    for name, script in examples.items():
        path = name.strip("/")
        if not path.startswith(("wt", "empty")):
            session.agent(f"git submodule --quiet add ../lib {path}; git commit -qm {path}")
        session.agent(f"(set -e; {script})")
    session.agent(ELSEWHERE)
    examples["here/"] = "git clone -q ../lib here"  # what it has is in the sandbox alone
    session.agent(examples["here/"])
    session.sync()
    with pytest.raises(TransferFailed, match="not deleted: nested repositories") as refused:
        session.coordinator.delete("1")
    named = refused.value.message.partition("do not travel: ")[2].split(", ")
    assert {name.removeprefix("/home/daytona") for name in named} == set(examples)


def test_a_project_that_is_a_worktree_of_a_bare_repository(local, repo, begin):
    """That has no worktree of its own, so there is none that cannot be read."""
    session = begin(repo)
    session.agent(
        "git clone -q --bare . ../bare; git --git-dir=../bare worktree add -q --detach ../w;"
        " rm -rf .git; mv ../w/.git .git; cd ../bare; git worktree repair ../project 2>/dev/null;"
        f" cd ../project; git config user.name a; git config user.email a@b; echo x > f; {COMMIT};"
        " git tag x; git checkout -q HEAD~1; echo y > g"
    )
    session.coordinator.delete("1")
    assert {oid(repo, "x\n"), oid(repo, "y\n")} <= reachable(repo)


def test_what_a_deletion_costs(local, repo, begin):
    """Two calls where nothing is new, four where something is; what a refused one fetched is
    fetched and kept once."""
    aside = f"git checkout -q --detach; echo x > x; {COMMIT}; {BACK}; git stash list"
    for script, calls in (("git notes list", 2), (aside, 4)):
        session = begin(repo)
        session.agent(script)
        local.forget_calls()
        session.coordinator.delete(session.name)
        session.coordinator.close()
        assert len(local.calls) == calls, local.calls
    session = begin(repo)
    session.agent(f"{aside}; mkdir closed; chmod 000 closed")
    kept = []
    for calls in (3, 1):
        local.forget_calls()
        with pytest.raises(TransferFailed, match="closed"):
            session.coordinator.delete(session.name)
        session.coordinator.close()
        assert len(local.calls) == calls, local.calls
        kept.append(set(repo.kept()))
    assert kept[0] == kept[1]
    assert not session.sync().changed
    session.coordinator.delete(session.name, force=True)


def test_more_than_is_taken_is_refused(local, repo, begin, monkeypatch):
    real = scripts.read
    fewer = lambda name: re.sub(r"(?m)^(most_\w+)=\d+", r"\1=5", real(name))  # noqa: E731
    monkeypatch.setattr(scripts, "read", fewer)
    many = "seq 6 | awk '{print %s}' | git fast-import --quiet --export-marks=../marks"
    commits = many % (
        r'"commit refs/x\nmark :" $1 "\ncommitter a <a@b> " $1 " +0000\ndata 0\n"'
        r'"from refs/heads/opencode\n"'
    )
    files = many % r'"blob\nmark :" $1 "\ndata <<E\n" $1 "\nE"'
    examples = {
        "more than 5 worktrees": "for n in $(seq 6); do git worktree add --detach -q ../$n; done",
        "more than 5 tags": "seq -f 'tag t%g\nfrom refs/heads/opencode\ntagger a <a@b> 1 +0000\n"
        "data 0' 6 | git fast-import --quiet",
        "more than 5 commits that no branch holds": f"{commits} --force;"
        " awk '{print $2, $2, \"a <a@b> 1 +0000\"}' ../marks >> .git/logs/HEAD",
        "more than 5 files that no commit has": f"{files}; git update-ref refs/y"
        ' $(awk \'{print "100644 blob " $2 "\\t" $1}\' ../marks | git mktree)',
    }
    session = begin(repo)
    session.sync()
    for text, script in examples.items():
        session.agent(script)
        with pytest.raises(TransferFailed, match=f"cannot be read .*: {text}"):
            session.coordinator.delete("1")
        session.agent(
            "rm -rf ../[0-9]; git worktree prune; git tag -d $(git tag) >/dev/null;"
            " git update-ref -d refs/x; git update-ref -d refs/y;"
            " git reflog expire --expire=all --all"
        )
    session.coordinator.delete("1")


def test_a_long_lifes_objects_are_packed_there(local, repo, begin):
    """As often as git itself would, and nothing is lost: what only a reflog has stays, however old
    it is."""
    digest = lambda text: hashlib.sha1(b"blob %d\0%s" % (len(text), text)).hexdigest()  # noqa: E731
    numbers = (n for n in itertools.count() if digest(b"%d\n" % n).startswith("17"))
    names = " ".join(map(str, itertools.islice(numbers, 28)))
    session = begin(repo)
    old = "GIT_COMMITTER_DATE=2001-01-01T00:00:00Z"
    session.agent(f"echo old > x; git add x; {old} git commit -qm x; {old} git reset -q HEAD~1")
    session.agent(f"rm x .git/ORIG_HEAD; for n in {names}; do echo $n > $n; done")
    session.sync()
    until(lambda: "in-pack: 0" not in session.agent("git count-objects -v"), "a pack")
    session.coordinator.delete("1")
    assert oid(repo, "old\n") in reachable(repo)


def said(*records):
    """The answer of a script that says these (scripts/records.sh)."""
    data = "".join(f"{record}\0" for record in records).encode()
    return Execution(0, f"m {base64.b64encode(data).decode()}")


def test_an_inventory_that_does_not_end_or_lies():
    long = "x" * 500 + "\x1b[2J"
    lines = [
        *(f"held {n:040x} {long}" for n in range(3000)),
        *(f"{key} {long}{n}" for key in ("ignored", "unread") for n in range(3000)),
        f"ref {'1' * 40} refs/daytona/inventory/{'1' * 40}",
        f"ref {'2' * 40} refs/daytona/inventory/{2:040x}",
        "inventory ok",
        "end ok",
    ]
    found = report.parse(said(*lines), "m")
    texts = (*found.inventory.held.values(), *found.inventory.ignored, *found.inventory.unread)
    assert len(texts) <= MOST + 1 + 2 * report.NOTES
    assert all(len(text) <= 200 and text.isprintable() for text in texts)
    assert found.refs == {}, "what is no part of it"
    with pytest.raises(BadAnswer):
        report.parse(said("held -x refs/tags/y", "end ok"), "m")


# -- whatever an agent does ------------------------------------------------------------------------

# Each writes T, or T1 and T2, and overwrites nothing that git does not hold.
STEPS = {
    "edit": "w T >> F",
    "commit": "w T >> F; git add -A && git commit -qm T",
    "branch": "git add -A; git commit -qm b; git switch -qc B && w T >> F && git commit -qam T",
    "switch": "git switch -q opencode; w T >> F",
    "aside": "git add -A; git commit -q --allow-empty -m a; git switch -q --detach && w T >> F"
    f" && {COMMIT} && git switch -q -",
    "tag": "git tag -m T B && w T",
    "light tag": f"w T >> F; {COMMIT} && git tag B && git reset -q --hard HEAD~1",
    "note": "git notes append -m T && w T",
    "stash": "w T > T; git stash -qu",
    # its own stash: what another pop drops, git itself does not hold
    "stash and pop": "w T > T; git add T; git stash -q && { w T >> F; git stash pop -q; }",
    # git stashes nothing beside a conflict, and the next 'git add' would end what was staged
    "staged stash": "git ls-files -u | grep -q . ||"
    " { w T1 > T; git add T; w T2 > T; git stash -q; }",
    "worktree": "git worktree add -q ../B -b B && w T > ../B/T",
    "inner worktree": "git worktree add -q --detach B && w T > B/T",
    "commit there": f"git worktree add -q --detach ../B && cd ../B && w T > T && {COMMIT};"
    " cd ~/project",
    "reset": f"w T >> F; {COMMIT} && git reset -q --hard HEAD~1",
    "amend": f"w T1 > T; {COMMIT} && w T2 > T && git add T && git commit -q --amend -m T",
    "closed": "mkdir B; w T > B/T; chmod 000 B",
    "mode": "chmod +x F; w T >> F",
    "link": "ln -sfn T B && w T",
    "ignore": "w T > T; git add T; w T > .gitignore",
    "conflict": f"git add -A; git commit -qm c; git switch -qc B && w T1 > F && {COMMIT} &&"
    f" git switch -q - && w T2 > F && {COMMIT} && git merge -q B",
    "rebase": f"git add -A; git commit -qm c; git switch -qc B && w T1 > F && {COMMIT} &&"
    f" git switch -q - && w T2 > F && {COMMIT} && git rebase -q B",
    "bisect": f"w T >> F; {COMMIT} && git bisect start -q HEAD HEAD~1",
    "nested": "git init -q B && cd B && git config user.name a && git config user.email a@b &&"
    f" w T > T && {COMMIT}; cd ~/project",
    "gc": "git gc -q",
    "pack refs": "git pack-refs --all; w T >> F",
}
LAST = {
    "nothing": ":",
    "stage": "w T1 > T; git add T; w T2 > T",
    "skip": "git update-index --skip-worktree F; w T >> F",
    "assume": "git update-index --assume-unchanged F; w T >> F",
    "stage and skip": "w T1 >> F; git add F; git update-index --skip-worktree F; w T2 > F",
}
"""What the agent's own git would overwrite without a word."""

RESTART = """
chmod -R u+rwx .; cd ..; rm -rf project b*; mkdir project; cd project; git init -q -b opencode
git config user.name a; git config user.email a@b; mkdir dir; echo f > f; echo g > dir/g
git add .; git commit -qm start; : >../written
w() { echo "$1"; echo "$1" >>~/written; }
"""


@pytest.fixture
def here(local, repo, begin):
    """A session, whose project each example makes anew, and the repository here."""
    return begin(repo), repo


@settings(
    max_examples=3, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(data=st.data())
def test_whatever_an_agent_does(here, data):
    """Every blob that was written and not ignored is here, or its place is named in a refusal."""
    session, repo = here
    script, places = [RESTART], {}
    steps = st.lists(st.sampled_from(list(STEPS)), min_size=6, max_size=10)
    last = data.draw(st.sampled_from(list(LAST)))
    for number, what in enumerate([*data.draw(steps, "steps"), last]):
        name, file = f"b{number}", data.draw(st.sampled_from(["f", "dir/g"]))
        token = f"{secrets.token_hex(4)}{number:02}"
        places[token] = what, name
        step = re.sub(r"\bT(?=\d?\b)", token, (STEPS | LAST)[what])
        script.append(re.sub(r"\bB\b", name, re.sub(r"\bF\b", file, step)))
    lines = "\n".join(f"{{ {each}\n}}" for each in script)
    output = execute(session.coordinator, "1", lines)[0].output
    if data.draw(st.booleans(), "sync in between"):
        session.sync()
    outcome = session.coordinator._sync(session.coordinator.find("1"), everything=True)
    text = repo.git("cat-file", "--batch", stdin="\n".join(reachable(repo)))
    note(f"{output}\n{outcome}")
    for written in session.agent("cat ../written").split():
        what, place = places[written[:10]]
        assert written in text or place in outcome.left_behind, what
