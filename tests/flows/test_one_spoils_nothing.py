"""One path, name, lock or setting that git cannot take does not keep the rest from coming back, and
what stays is named; git is asked what the sandbox's repository is in, and what it refuses is not
taken for missing."""

import shlex

import pytest

from git_daytona.base.errors import SandboxCommandFailed, TransferFailed


def files(repo, revision="opencode/1"):
    names = repo.git("ls-tree", "-r", "-z", "--name-only", revision)
    return set(names.removesuffix("\0").split("\0"))


def environment(local, session) -> dict[str, str]:
    return next(each for each in local.sandboxes if each.id == session.sandbox_id).env


def image(local, monkeypatch, env=None, written=None):
    """Have each new sandbox come with these variables, and files in its home."""
    start = local.isolation.start

    def started(sandbox):
        start(sandbox)
        sandbox.env.update(env or {})
        for name, text in (written or {}).items():
            (sandbox.home / name).write_text(text)

    monkeypatch.setattr(local.isolation, "start", started)


# -- paths -----------------------------------------------------------------------------------------


def test_case_79_one_bad_path_spoils_nothing(local, repo, begin, command):
    """All else is committed; each bad one is named with its reason, in the status, too, and only it
    holds up a deletion."""
    session = begin(repo)
    examples = {
        "closed": ("echo x > closed; chmod 000 closed", "cannot be read"),
        "folder/": ("mkdir folder; echo x > folder/x; chmod 000 folder", "cannot be read"),
        "odd\\n'name": ('n="odd\n\'name"; echo > "$n"; chmod 0 "$n"', "cannot be read"),
        "wide.txt": (
            "echo 'wide.txt working-tree-encoding=UTF-16' > .gitattributes; echo x > wide.txt",
            "UTF-16",
        ),
        "filtered.bin": (
            "git config filter.none.required true; git config filter.none.clean no-such-program;"
            " echo '*.bin filter=none' >> .gitattributes; echo x > filtered.bin",
            "the program of filter 'none' is missing",
        ),
        "a/git~1": ("mkdir a; echo x > a/git~1", "invalid path"),
        "a/.g\\u200cit/x": (
            'd=$(printf \'a/.g\\342\\200\\214it\'); mkdir "$d"; echo x > "$d/x"',
            "invalid path",
        ),
    }
    for number, (script, _) in enumerate(examples.values()):
        session.agent(f"{script}; echo {number} > good{number}; echo {number} > a{number}.bin.txt")
    session.agent("mkfifo pipe; rm README; mkfifo README; printf '\\377' > bytes; ln -s / link")
    outcome = session.sync()
    good = {f"good{number}" for number in range(len(examples))}
    assert good | {".gitattributes", "bytes", "link", "README"} <= files(repo)
    for name, (_, reason) in examples.items():
        assert f"{name} (" in outcome.left_behind, (name, outcome.left_behind)
        told = outcome.left_behind.split(f"{name} (", 1)[1].split(")")[0]
        assert reason in told, (name, told)
        assert name.encode().decode("unicode_escape").rstrip("/") not in files(repo), name
    assert outcome.left_behind.count("(") == len(examples), "pipes are no work"
    status = command("git-daytona", "status", "--offline", "--json", cwd=repo.path).out
    assert "files that cannot be committed" in status and "closed (it cannot be read)" in status
    with pytest.raises(TransferFailed, match="not deleted: files that cannot be committed"):
        session.coordinator.delete("1")
    again = session.sync()
    assert not again.changed and again.left_behind == outcome.left_behind
    session.agent(
        "chmod -R u+rwX .; rm -r a/git~1 a/.g*; git config filter.none.required false;"
        " printf 'x' | iconv -t UTF-16 > wide.txt"
    )
    session.coordinator.delete("1")
    assert {"closed", "folder/x", "wide.txt", "filtered.bin", "odd\n'name"} <= files(repo)


def test_case_79_many_bad_paths(local, repo, begin):
    """Some are named, the others counted; good ones between them come back."""
    session = begin(repo)
    session.agent(
        "git config filter.none.required true; git config filter.none.clean no-such-program;"
        " echo '*.bin filter=none' > .gitattributes; echo 'w* working-tree-encoding=UTF-16' >>"
        " .gitattributes; for n in $(seq 100 999); do echo $n > $n.bin; done; for n in $(seq 9); do"
        " echo $n > w$n; echo $n > $n.txt; done; for n in $(seq 1 200); do echo > closed$n; done;"
        " chmod 0 closed*; echo > z; rm README"
    )
    outcome = session.sync()
    assert "; " not in outcome.left_behind and outcome.left_behind.endswith("1089 more")
    assert files(repo) == {".gitattributes", "z", *(f"{n}.txt" for n in range(1, 10))}


def test_case_79_ignored_ones_are_no_work(local, repo, begin):
    """Nor is what is unlike its filter's output only because there is no such program."""
    session = begin(repo)
    session.agent(
        "echo secret > .gitignore; mkdir secret; echo x > secret/x; chmod 0 secret; echo y > y;"
        " echo '*.bin filter=none' > .gitattributes; echo z > z.bin; git add z.bin; sleep 1;"
        " git config filter.none.required true; git config filter.none.clean no-such-program;"
        " touch z.bin"
    )
    outcome = session.sync()
    assert (outcome.left_behind, "y" in files(repo)) == ("", True)
    session.coordinator.delete("1")


def test_case_80_the_agents_sparse_checkout(local, repo, begin):
    """New files and edits outside of its cone come back; what it does not show is not deleted."""
    repo.commit("src/a")
    repo.commit("docs/b")
    repo.commit("docs/deep/c")
    examples = (
        "git sparse-checkout set src",
        "git sparse-checkout set --cone src",
        "git sparse-checkout set --no-cone /src/",
        "git sparse-checkout set --cone --sparse-index src",
    )
    session = begin(repo)
    for number, script in enumerate(examples):
        session.agent(f"{script} && ! test -e docs/b")
        session.agent(
            f"mkdir -p docs/new; echo {number} > docs/new/{number}; echo {number} > src/{number};"
            f" echo {number} > docs/b"
        )
        outcome = session.sync()
        assert (outcome.changed, outcome.left_behind) == (True, ""), script
        expected = {f"docs/new/{number}", f"src/{number}", "src/a", "docs/b", "docs/deep/c"}
        assert expected <= files(repo), script
        assert repo.show("opencode/1", "docs/b") == str(number), script
        assert not session.sync().changed, script
        session.agent("git sparse-checkout disable")
    session.coordinator.delete("1")


POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 12\n"


@pytest.mark.parametrize("name", ["lfs", "crypt", "other-1"])
def test_case_81_a_required_filter_is_not_in_the_sandbox(local, repo, begin, name):
    """Start and push check the file out as it is in the repository; what the agent makes of it is
    not committed unfiltered."""
    session = begin(repo)
    program = f"no-{name} %f"
    config = "".join(
        f"git config --file ~/image filter.{name}.{key} {value};"
        for key, value in {
            "required": "true",
            "clean": f"'{program}'",
            "smudge": f"'{program}'",
            "process": f"'{program}'",
        }.items()
    )
    session.agent(config)
    environment(local, session)["GIT_CONFIG_GLOBAL"] = "/home/daytona/image"
    repo.write(".gitattributes", f"*.bin filter={name}\n")
    repo.write("big.bin", POINTER)
    repo.git("add", ".")
    repo.git("commit", "-qm", "Pointer")
    # as a start would be in such an image
    session.agent("rm -rf .git README")
    repo.git("branch", "-f", "opencode/1", "HEAD")
    assert session.sync() is not None
    assert session.agent("cat big.bin") == POINTER
    assert repo.git("rev-parse", "opencode/1") == repo.git("rev-parse", "HEAD")
    repo.git("switch", "-q", "opencode/1")
    repo.write("big.bin", POINTER.replace("12", "13"))
    repo.write("more.bin", POINTER)
    repo.git("add", ".")
    repo.git("commit", "-qm", "More")
    session.coordinator.push("1")
    assert session.agent("cat big.bin more.bin | grep -c 'size 1[23]'").strip() == "2"
    session.agent("touch big.bin; echo new > new")
    outcome = session.sync()
    assert (outcome.left_behind, "new" in files(repo)) == ("", True)
    session.agent("echo real content > big.bin; echo newer > newer")
    outcome = session.sync()
    assert "newer" in files(repo) and repo.show("opencode/1", "big.bin") != "real content"
    assert f"big.bin (the program of filter '{name}' is missing)" in outcome.left_behind


def test_case_81_a_new_session_with_such_a_filter(local, repo, begin, monkeypatch):
    examples = {"lfs": "big.bin", "crypt": "secret", "any": "README"}
    configuration = "".join(
        f'[filter "{name}"]\n\trequired\n\tsmudge = no-{name}\n\tclean = no-{name}\n'
        for name in examples
    )
    attributes = "".join(f"{path} filter={name}\n" for name, path in examples.items())
    repo.write(".gitattributes", attributes)
    for path in examples.values():
        repo.write(path, POINTER)
    repo.git("add", ".")
    repo.git("commit", "-qm", "Pointers")
    image(local, monkeypatch, written={".gitconfig": configuration})
    session = begin(repo)
    for path in examples.values():
        assert session.agent(f"cat {path}") == POINTER, path


# -- formats and settings --------------------------------------------------------------------------


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_case_82_defaults_of_the_image(local, repo, begin, monkeypatch, tmp_path, object_format):
    """Start and sync work whatever the image's git would make by itself, or takes paths for."""
    if object_format == "sha256":
        path = tmp_path / "other"
        path.mkdir()
        repo = type(repo)(path)
        repo.git("init", "-q", "--object-format=sha256")
        repo.commit("README", "hello\n")
    examples = {
        "variables": (
            {"GIT_DEFAULT_HASH": "sha256", "GIT_DEFAULT_REF_FORMAT": "reftable"},
            {},
        ),
        "the other hash": ({"GIT_DEFAULT_HASH": "sha1", "GIT_LITERAL_PATHSPECS": "1"}, {}),
        "configuration": (
            {"GIT_ICASE_PATHSPECS": "1"},
            {
                ".gitconfig": "[init]\ndefaultObjectFormat = sha256\ndefaultRefFormat = reftable\n"
                "defaultBranch = trunk\ntemplateDir = /home/daytona/template\n"
                "[i18n]\ncommitEncoding = latin1\n[core]\nbare = true\n"
            },
        ),
    }
    for name, (env, written) in examples.items():
        with monkeypatch.context() as patch:
            image(local, patch, env, written)
            session = begin(repo)
        session.agent("echo x > x")
        assert session.sync().changed, name
        assert repo.show(f"opencode/{session.number}", "x") == "x", name
        assert repo.git("rev-parse", f"opencode/{session.number}~1") == repo.git(
            "rev-parse", "HEAD"
        ), name


# -- the repository --------------------------------------------------------------------------------


def test_case_83_settings_that_hide_the_files(local, repo, begin):
    """git is told where they are: syncs go on, and history with them."""
    session = begin(repo)
    examples = {
        "bare": ("git config core.bare true", "git config --unset core.bare"),
        "worktree": ("git config core.worktree /tmp", "git config --unset core.worktree"),
        "a link": ("mv .git ../apart; ln -s ../apart .git", ":"),
        "a file": ("rm .git; echo 'gitdir: ../apart' > .git; git config core.bare true", ":"),
        "worktree configuration": (
            "git config extensions.worktreeConfig true; git config --worktree core.bare true",
            ":",
        ),
    }
    before = repo.git("rev-parse", "opencode/1")
    for number, (name, (script, back)) in enumerate(examples.items()):
        session.agent(f"{script}; echo {number} > {number}")
        outcome = session.sync()
        assert repo.git("rev-parse", "opencode/1~1") == before, name
        assert repo.show("opencode/1", str(number)) == str(number), name
        assert "was gone" not in outcome.message, name
        before = outcome.head
        session.agent(back)


def test_case_83_a_push_where_the_files_would_not_follow(local, repo, begin):
    session = begin(repo)
    session.agent("git config core.bare true")
    repo.git("switch", "-q", "opencode/1")
    repo.commit("mine")
    with pytest.raises(SandboxCommandFailed, match=r"core\.bare is set"):
        session.coordinator.push("1")
    session.agent("git config core.bare false")
    session.coordinator.push("1")
    assert session.agent("cat mine") == "content\n"


def test_case_83_a_repository_that_git_refuses_is_not_missing(local, repo, begin):
    """It is said, and nothing is changed, here or there; mended, it goes on where it was."""
    session = begin(repo)
    session.agent("echo x > x; git add x; git commit -qm x; echo y > y")
    refs = repo.git("for-each-ref")
    examples = {
        "an extension": (
            "cp .git/config ../config; git config core.repositoryformatversion 1;"
            " git config extensions.unheardOf true",
            "cp ../config .git/config",
        ),
        "no HEAD": ("mv .git/HEAD ../HEAD", "mv ../HEAD .git/HEAD"),
        "an empty HEAD": ("mv .git/HEAD ../HEAD; : > .git/HEAD", "mv ../HEAD .git/HEAD"),
        "a broken branch": (
            "cp .git/refs/heads/opencode ../branch; : > .git/refs/heads/opencode",
            "cp ../branch .git/refs/heads/opencode",
        ),
        "configuration": (
            "cp .git/config ../config; echo '[broken' >> .git/config",
            "cp ../config .git/config",
        ),
        "a link to nothing": ("mv .git ../away; ln -s nothing .git", "rm .git; mv ../away .git"),
        "closed": ("chmod 000 .git", "chmod 755 .git"),
        "no objects": ("mv .git/objects ../objects", "mv ../objects .git/objects"),
    }
    for name, (harm, mend) in examples.items():
        session.agent(f"({harm}; find .git ../project -type f | sort | xargs cksum > ../sums)")
        for work in (session.sync, lambda: session.coordinator.delete("1")):
            with pytest.raises(SandboxCommandFailed, match="git refuses its repository") as failed:
                work()
            assert "exec N" in failed.value.hint, name
        assert repo.git("for-each-ref") == refs, name
        session.agent("find .git ../project -type f | sort | xargs cksum | cmp - ../sums")
        session.agent(mend)
    session.sync()
    assert {"x", "y"} <= files(repo)
    assert repo.git("log", "--format=%s", "opencode/1").split("\n")[1:] == ["x", "Add README"]


def test_case_83_an_index_that_cannot_be_read(local, repo, begin):
    """Or is gone: what HEAD has is not deleted, ignored or not."""
    examples = (
        "echo x > .git/index",
        ": > .git/index",
        "printf DIRC > .git/index",
        "rm .git/index",
    )
    session = begin(repo)
    session.agent("echo kept | tee kept > .gitignore; git add -f kept; git commit -qm kept")
    for number, harm in enumerate(examples):
        session.agent(f"echo {number} > {number}; {harm}")
        session.sync()
        assert {"README", "kept", str(number)} <= files(repo), harm
        assert session.agent("git status --porcelain") == "", harm


def test_case_83_a_repair_that_fails_leaves_all_as_it_was(local, repo, begin, monkeypatch):
    """And is begun again by the next sync: one history, with the files on top."""
    session = begin(repo)
    session.agent("echo one > one")
    first = session.sync().head
    examples = {
        "no repository": "rm -rf .git; echo two > two",
        "a new one": "rm -rf .git; git init -q -b trunk; git add README; echo two > two",
        "an empty one": "rm -rf .git; mkdir .git; echo two > two",
        "no refs": "rm -rf .git/refs/heads .git/packed-refs; mkdir .git/refs/heads; echo two > two",
    }
    for name, harm in examples.items():
        session.agent(harm)
        before = session.agent("cat .git/HEAD 2>/dev/null; ls")
        local.faults.gateway.git_server = "exit 1"
        with pytest.raises(TransferFailed):
            session.sync()
        local.faults.gateway.git_server = None
        after = session.agent("cat .git/HEAD 2>/dev/null; ls")
        assert after.endswith(before), name
        assert repo.git("rev-parse", "opencode/1") == first, name
        outcome = session.sync()
        assert "was gone and was made again" in outcome.message, name
        assert repo.git("rev-parse", "opencode/1~1") == first, name
        assert repo.git("rev-list", "--max-parents=0", "opencode/1").count("\n") == 0, name
        assert files(repo) == {"README", "one", "two"}, name
        assert session.agent("git symbolic-ref HEAD; git status --porcelain").strip() == (
            "refs/heads/opencode"
        ), name
        session.agent("git reset -q --hard HEAD~1; rm -f two")
        session.sync()
        assert repo.git("rev-parse", "opencode/1") == first, name


def test_case_83_a_session_that_began_without_commits(local, repo, begin, tmp_path):
    """There is no history to give it: its first commit is made there."""
    path = tmp_path / "empty"
    path.mkdir()
    repo = type(repo)(path)
    repo.git("init", "-q")
    session = begin(repo)
    examples = ("echo x > x", "rm -rf .git; echo y > y", "git checkout -q --orphan new; echo z > z")
    for script in examples:
        session.agent(script)
        outcome = session.sync()
        assert repo.git("rev-parse", f"opencode/{session.number}") == outcome.head
        assert ("was gone" in outcome.message) == ("rm -rf" in script)
    assert files(repo, f"opencode/{session.number}") == {"x", "y", "z"}


CONFLICT = """
echo base > f; git add f; git commit -qm base
git switch -qc other; echo other > f; git commit -qam other
git switch -q opencode; echo ours > f; git commit -qam ours
"""


def test_case_84_conflicts_of_every_kind(local, repo, begin):
    """Markers are not committed, and the agent's index stays as it is."""
    session = begin(repo)
    session.agent(CONFLICT)
    examples = {
        "stash pop": "echo mine > f; git stash -q; echo again > f; git commit -qam again;"
        " git stash pop",
        "stash apply": "echo mine > f; git stash -q; echo more > f; git commit -qam more;"
        " git stash apply",
        "squash": "git merge --squash other",
        "three ways": "git diff opencode other > ../patch; echo third > f; git commit -qam third;"
        " git apply -3 ../patch",
        "checkout": "echo mine > f; git checkout -m other",
        "read-tree": "git read-tree -m $(git merge-base HEAD other) HEAD other",
        "merge": "git merge other",
        "am": "git format-patch -1 --stdout other > ../mail; git am -3 ../mail",
    }
    for name, script in examples.items():
        session.agent(
            f"({script}) >/dev/null 2>&1; echo {name} > extra; git ls-files -u | grep -q ."
        )
        before = session.agent("git status --porcelain=v2; git ls-files -s; cat f; git log -1")
        tip = session.agent("git rev-parse HEAD").strip()
        outcome = session.sync()
        assert (outcome.head, repo.git("rev-parse", "opencode/1")) == (tip, tip), name
        after = session.agent("git status --porcelain=v2; git ls-files -s; cat f; git log -1")
        assert after == before, name
        assert "a conflict is not resolved" in outcome.message or "in progress" in outcome.message
        held = [each.ref for each in outcome.kept if "files as they are" in each.what]
        assert len(held) == 1 and repo.show(held[0], "extra") == name, name
        assert not session.sync().kept, name
        session.agent(
            "git am --abort 2>/dev/null; git reset -q --hard; git clean -qfd;"
            " git switch -q opencode; git stash clear"
        )
    session.agent("git merge -q other >/dev/null; echo both > f; git commit -qam both")
    session.sync()
    assert repo.git("log", "-1", "--format=%s", "opencode/1") == "both"


# -- the project -----------------------------------------------------------------------------------


def test_case_89_a_project_that_was_moved(local, repo, begin):
    """It is said where it is; nothing was deleted, and moved back, all comes."""
    session = begin(repo)
    session.agent("echo x > x; mkdir -p src; echo y > src/y")
    before = session.sync().head
    examples = {
        "beside it": ("mv project elsewhere", "mv elsewhere project", "/home/daytona/elsewhere"),
        "deeper": (
            "mkdir -p a/b; mv project a/b/c",
            "mv a/b/c project",
            "/home/daytona/a/b/c",
        ),
        "to /tmp": (
            "mv project /tmp/p; mkdir project",
            "rm -r project; mv /tmp/p project",
            "/tmp/p",
        ),
        "an empty one in its place": (
            "mv project 'other one'; git init -q project",
            "rm -r project; mv 'other one' project",
            "/home/daytona/other one",
        ),
    }
    for number, (name, (away, back, place)) in enumerate(examples.items()):
        session.agent(f"echo {number} > new; cd; {away}")
        for work in (session.sync, lambda: session.coordinator.delete("1")):
            with pytest.raises(SandboxCommandFailed, match=f"was moved .* to {place}") as failed:
                work()
            assert shlex.quote(place) in failed.value.hint, name
        assert repo.git("rev-parse", "opencode/1") == before, name
        session.agent(f"cd; {back}")
        before = session.sync().head
        assert files(repo) == {"README", "x", "src/y", "new"}, name
        assert repo.show("opencode/1", "new") == str(number), name


def test_case_89_a_project_that_is_gone(local, repo, begin):
    """Nobody deleted its files one by one: they are there again."""
    session = begin(repo)
    session.agent("echo x > x; mkdir -p src; echo y > src/y")
    before = session.sync().head
    examples = {
        "removed": "rm -rf project",
        "made anew": "rm -rf project; mkdir project",
        "with another file": "rm -rf project; mkdir project; echo z > project/z",
        "emptied": "find project -mindepth 1 -delete",
    }
    for name, script in examples.items():
        session.agent(f"cd; {script}")
        assert "was gone and was made again" in session.sync().message, name
        after = repo.git("rev-parse", "opencode/1")
        if name == "with another file":
            assert repo.git("rev-parse", "opencode/1~1") == before, name
            assert files(repo) == {"README", "x", "src/y", "z"}
            before = after
        assert after == before, name
        assert session.agent("cat src/y; git status --porcelain") == "y\n", name


def test_case_111_stale_locks(local, repo, begin):
    """As a stale index.lock: said, and gone on."""
    examples = (
        ("HEAD.lock", "refs/heads/opencode.lock", "index.lock", "config.lock"),
        ("packed-refs.lock", "refs/daytona/head.lock", "refs/heads/näh/🙂.lock"),
        ("HEAD.lock", "refs/heads/näh/🙂.lock"),
    )
    session = begin(repo)
    session.sync()
    for number, names in enumerate(examples):
        branch = "opencode" if number == 0 else "näh/🙂"
        session.agent(
            f"git branch -f {branch} 2>/dev/null; git switch -q {branch}; echo {number} > x;"
            f" cd .git; touch {' '.join(names)}"
        )
        if number == 2:  # a push looks, too
            repo.git("switch", "-q", "opencode/1")
            session.agent("git restore x")
            mine = repo.commit("mine")
            assert session.coordinator.push("1") == mine
            continue
        outcome = session.sync()
        assert outcome.changed and repo.show("opencode/1", "x") == str(number)
        for name in names:
            assert f"a stale {name} was removed" in outcome.message, (name, outcome.message)


def test_case_111_a_lock_of_a_git_that_runs(local, repo, begin):
    session = begin(repo)
    session.sync()
    session.agent(
        'cp "$(command -v sleep)" /tmp/git; touch .git/HEAD.lock .git/index.lock; echo x > x;'
        " /tmp/git 1000 & echo $! > /tmp/pid"
    )
    assert "stale" not in session.sync().message
    session.agent("ls .git/HEAD.lock .git/index.lock; kill $(cat /tmp/pid)")
    assert session.sync().message.count("stale") == 2
    assert repo.show("opencode/1", "x") == "x"


# -- names -----------------------------------------------------------------------------------------

RENAMED = ("turned", "acting", "long")


def octal(name: str) -> str:
    data = name.encode("utf-8", "surrogateescape")
    return "".join(f"\\{byte:03o}" for byte in data)


def test_case_87_and_case_112_names_that_are_gits(local, repo, begin, command):
    """Each comes back, whatever else is there, also by 'fetch' and by a process whose locale cannot
    write it; each can be checked out, pushed to, deleted; those that cannot have their names here
    get another one, which moves with them."""
    session = begin(repo)
    examples = {
        "zwj": "👩‍💻/fix",
        "newest emoji": "\U0001fae9\U0001f6d8",
        "wide space": "a\u3000b",
        "line separator": "a\u2028b\u2029c",
        "next line": "a\u0085b",
        "latin-1": "caf\udce9",
        "no utf-8": "\udcff\udcfe/\udc80",
        "unassigned": "\U000e0fff\u0378",
        "blanks": "\u00a0\ufeff\u200b",
        "turned": "abc\u202edef",
        "acting": "\u009b2J",
        "long": "y" * 250,
    }
    made = "".join(
        f"git update-ref \"refs/heads/$(printf '{octal(name)}')\" $(git commit-tree -m {number} "
        "HEAD:); "
        for number, name in enumerate(examples.values())
    )
    session.agent(f"{made} git branch ordinary; echo x > x")
    outcome = session.sync()
    assert outcome.left_behind == ""
    listing = repo.git("for-each-ref", "--format=%(contents:subject)%00%(refname)", "refs/remotes")
    lines = [line.split("\0") for line in listing.split("\n")]
    tracking = {ref.removeprefix("refs/remotes/sandbox-1/"): subject for subject, ref in lines}
    for number, (kind, name) in enumerate(examples.items()):
        if kind not in RENAMED:
            assert tracking.pop(name) == str(number), kind
    renamed = {name for name in tracking if name.startswith("renamed-")}
    assert {tracking[name] for name in renamed} == {"9", "10", "11"}
    assert set(tracking) - renamed == {"ordinary", "opencode"}
    assert not session.sync().changed
    session.agent(
        f"git update-ref \"refs/heads/$(printf '{octal(examples['long'])}')\" $(git commit-tree -m"
        " moved HEAD:)"
    )
    assert session.sync().changed
    subjects = repo.git("for-each-ref", "--format=%(contents:subject)", "refs/remotes").split("\n")
    assert "moved" in subjects and "11" not in subjects
    for number, name in enumerate((examples["zwj"], examples["next line"], examples["latin-1"])):
        session.agent(f"git switch -q \"$(printf '{octal(name)}')\"; echo {number} > number")
        session.sync()
        repo.git("switch", "-q", "opencode/1")
        mine = repo.commit(f"mine{number}")
        if number == 2:
            done = command("git-daytona", "push", "1", cwd=repo.path, env={"LC_ALL": "C"})
            assert done.status == 0, done.err
        else:
            session.coordinator.push("1")
        assert session.agent("git rev-parse HEAD").strip() == mine
        repo.git("switch", "-q", "main")
    session.coordinator.fetch("1")
    session.coordinator.delete("1")
    kept = {repo.git("log", "-1", "--format=%s", each) for each in repo.kept().values()}
    assert {str(number) for number in range(len(examples) - 1)} - {"0", "4", "5"} <= kept


def test_case_87_a_branch_that_cannot_be_taken_holds_up_only_what_is_not_here(
    local, repo, begin, monkeypatch
):
    examples = {"contained": "HEAD", "an ancestor": "HEAD~1", "the base": "main-copy"}
    session = begin(repo)
    session.agent("git branch main-copy; echo x > x; git add x; git commit -qm x")
    monkeypatch.setattr("git_daytona.git.refs.MOST", 3)
    for name, tip in examples.items():
        session.agent(f"for n in 1 2 3 4 5 6; do git update-ref refs/heads/z$n {tip}; done")
        assert session.sync().left_behind == "", name
    session.agent("git update-ref refs/heads/z6 $(git commit-tree -m other HEAD:)")
    outcome = session.sync()
    assert outcome.left_behind == "branches that cannot be taken stay in the sandbox: refs/heads/z6"
    with pytest.raises(TransferFailed, match="not deleted: branches that cannot be taken"):
        session.coordinator.delete("1")
    session.agent("git update-ref refs/heads/z6 HEAD")
    session.coordinator.delete("1")
