"""One path, name, lock or setting that git cannot take does not keep the rest from coming back, and
what stays is named; git is asked what the sandbox's repository is in, and what it refuses is not
taken for missing."""

import pytest

from git_daytona.base.errors import TransferFailed


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
            "clean filter 'none' failed",
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
        " echo '*.bin filter=none' > .gitattributes; for n in $(seq 10 69); do echo $n > $n.bin;"
        " echo $n > $n.txt; done; for n in $(seq 1 200); do echo > closed$n; done; chmod 0 closed*"
    )
    outcome = session.sync()
    assert "; " not in outcome.left_behind and outcome.left_behind.endswith("240 more")
    assert len(files(repo)) == 62


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
    assert f"big.bin (big.bin: clean filter '{name}' failed)" in outcome.left_behind


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
