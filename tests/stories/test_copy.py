"""``git daytona cp``: as cp does it, between here and a sandbox."""

import pytest

from git_daytona.sessions import copy


@pytest.fixture
def there(begin, repo):
    return begin(repo)


def test_both_ways(local, repo, there, tell, tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()

    def cp(*words: str, status: int = 0):
        done = tell("git-daytona", "cp", *words, cwd=repo.path)
        assert done.status == status, done
        return done

    # a file, in each form of a target
    there.agent("mkdir -p sub && printf 'bytes\\0\\377' >'sub/a b' && chmod +x 'sub/a b'")
    cp("1:sub/a b", str(here))
    assert (here / "a b").read_bytes() == b"bytes\0\xff" and (here / "a b").stat().st_mode & 0o100
    assert (
        cp("sandbox-1:/home/daytona/project/sub/a b", str(here / "other")).err.splitlines()[-1]
        == "1 file copied"
    )
    (here / "other").write_text("old")
    cp("opencode/1:sub/a b".replace("opencode/1", "1"), str(here / "other"))
    assert (here / "other").read_bytes() == b"bytes\0\xff"
    # a directory: below its own name, under another, added to
    there.agent(
        "ln -s 'a b' sub/link && ln -s /etc/passwd sub/out && mkdir -p sub/.git && echo x "
        ">sub/.git/config"
    )
    told = cp("-r", "1:sub", str(here), status=1)
    assert sorted(each.name for each in (here / "sub").iterdir()) == ["a b", "link"]
    assert (
        "left out: 'out' (a link out of it)" in told.err
        and "without '.git': history comes by git daytona sync" in told.err
    )
    there.agent("rm -r sub/.git sub/out")
    cp("1:sub/", str(here / "renamed"))
    assert (here / "renamed" / "link").read_bytes() == b"bytes\0\xff"
    there.agent("echo more >sub/more")
    (here / "sub" / "own").write_text("mine")
    cp("1:sub", str(here))
    assert sorted(each.name for each in (here / "sub").iterdir()) == ["a b", "link", "more", "own"]
    # and back
    (here / "file é").write_text("mine\n")
    cp(str(here / "file é"), "1:")
    cp(str(here / "file é"), "1:sub/renamed")
    cp(str(here / "sub"), "1:whole")
    cp(str(here / "sub"), "1:whole")
    assert (
        there.agent("cat 'file é' sub/renamed whole/own whole/sub/own; readlink whole/link")
        == "mine\nmine\nminemine" + "a b\n"
    )
    assert there.agent("ls -A /tmp | grep git-daytona || echo clean") == "clean\n"
    # more than one part
    monkeypatch.setattr(copy, "PART_BYTES", 100_000)
    there.agent("head -c 1000000 /dev/urandom >large; cp large large2")
    copy.copy_out(there.coordinator, "1", "large", str(here / "large"))
    copy.copy_in(there.coordinator, "1", str(here / "large"), "large2")
    there.agent("cmp large large2")
    monkeypatch.setattr(copy, "LIMIT_BYTES", 500_000)
    with pytest.raises(Exception, match="GiB"):
        copy.copy_out(there.coordinator, "1", "large", str(here / "large3"))
    assert not (here / "large3").exists()


def test_what_is_wrong_is_said(local, repo, there, tell, tmp_path):
    there.agent("mkdir dir; echo x >file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "plain").write_text("x")
    for words, status, says in (
        (("a", "b"), 2, "one of the two has to be in a sandbox"),
        (("1:a", "1:b"), 2, "one of the two has to be in a sandbox"),
        (("1:none", "x"), 8, "there is no 'none' in the sandbox"),
        (("none", "1:"), 8, "there is no 'none' here"),
        (("1:file", "no/such/place"), 8, "there is no directory 'no/such' here"),
        (("1:file", "nowhere/"), 8, "there is no directory 'nowhere' here"),
        (("1:dir", str(tmp_path / "plain")), 2, "is a file, and 'dir' a directory"),
        (("README", "1:none/such/"), 8, "there is no directory 'none/such/' in the sandbox"),
        (("README", "1:none/such"), 19, "the files could not be copied"),
        ((str(tmp_path / "folder"), "1:file"), 2, "'file' is a file there"),
        (("9:file", "x"), 8, "there is no session '9'"),
    ):
        done = tell("git-daytona", "cp", *words, cwd=repo.path)
        assert done.status == status and says in done.err, (words, done)
        assert done.err.count("error: ") == 1 and done.err.count("hint: ") == 1, (words, done)


def test_a_copy_that_fails_leaves_nothing_there(local, repo, there, tell):
    there.agent("ls -A /tmp >../before")
    with local.faults.call(route="files/bulk-upload", status=403):
        assert tell("git-daytona", "cp", "README", "1:x", cwd=repo.path).status == 7
    assert tell("git-daytona", "cp", "README", "1:none/such", cwd=repo.path).status == 19
    with local.faults.call(route="files/download", status=403):
        assert tell("git-daytona", "cp", "1:README", "x", cwd=repo.path).status == 7
    there.agent("ls -A /tmp | cmp - ../before")
    assert not (repo.path / "x").exists()


def test_a_colon_behind_a_slash_is_no_session():
    assert copy.place("./a:b") == copy.Place(None, "./a:b")
    assert copy.place("1:") == copy.Place("1", ".")
    assert copy.place("1:a:b") == copy.Place("1", "a:b")
    assert copy.place(":x") == copy.Place(None, ":x")


def test_case_105_a_link_keeps_its_own_name(local, repo, there, tell, tmp_path):
    """What it leads to is copied, under the name that was given."""
    (repo.path / "real").write_text("content\n")
    (repo.path / "folder").mkdir()
    (repo.path / "folder" / "inside").write_text("content\n")
    (repo.path / "link").symlink_to("real")
    (repo.path / "tree").symlink_to("folder")
    (tmp_path / "elsewhere").symlink_to(repo.path / "link")
    there.agent("mkdir dir")
    examples = {
        "link": "link",
        "tree": "tree/inside",
        "tree/": "tree/inside",
        "./tree/../link": "link",
        str(tmp_path / "elsewhere"): "elsewhere",
        "folder/.": "folder/inside",
    }
    for source, name in examples.items():
        done = tell("git-daytona", "cp", source, "1:dir/", cwd=repo.path)
        assert done.status == 0, done.err
        assert there.agent(
            f"cd dir && find . -type f -exec cat {{}} + && ls -d {name}; rm -r *"
        ) == (f"content\n{name}\n"), source
