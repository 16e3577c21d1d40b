"""Archives that a sandbox could send: nothing is written but below the target, and nothing through
a link."""

import io
import os
import tarfile

import pytest

from git_daytona.base.errors import BadAnswer
from git_daytona.sessions import archive as unpacking

DIR, SYM, LNK, CHR, FIFO, BLK = (
    each.decode()
    for each in (
        tarfile.DIRTYPE,
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.CHRTYPE,
        tarfile.FIFOTYPE,
        tarfile.BLKTYPE,
    )
)
"""Entries that are no files; as text, to be told from content."""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_text("mine")
    (tmp_path / "here").mkdir()
    return tmp_path


def archive(*entries, form=tarfile.PAX_FORMAT) -> io.BytesIO:
    """(name, content or what else it is, more of the header) each."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as tar:
        for name, what, *more in entries:
            entry = tarfile.TarInfo(name)
            if isinstance(what, bytes):
                entry.size = len(what)
            else:
                entry.type = what.encode()
            for key, value in (more[0] if more else {}).items():
                setattr(entry, key, value)
            tar.addfile(entry, io.BytesIO(what) if isinstance(what, bytes) else None)
    made.seek(0)
    return made


def tree(folder) -> dict[str, object]:
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = (
            str(path.readlink())
            if path.is_symlink()
            else path.read_bytes()
            if path.is_file()
            else None
        )
    return found


def test_a_directory_with_everything(place):
    long = "deep/" * 60 + "x" * 120
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        target = place / "here" / f"copy{form}"
        done = unpacking.unpack(
            archive(
                ("top", DIR),
                ("top/a", b"one", {"mode": 0o4755}),
                ("./top/sub/b é", b"two"),
                (f"top/{long}", b"far"),
                ("top/again", LNK, {"linkname": "top/a"}),
                ("top/sub/link", SYM, {"linkname": "../a"}),
                ("top/-rf", b""),
                ("top/new\nline", b""),
                form=form,
            ),
            target,
        )
        assert (done.files, done.left_out) == (7, [])
        assert (target / "a").stat().st_mode & 0o7111 == 0o111 & ~_umask()
        assert (target / "again").read_bytes() == b"one" and (target / long).read_bytes() == b"far"
        assert (target / "sub" / "link").read_bytes() == b"one" and (
            target / "sub" / "b é"
        ).read_bytes() == b"two"


def _umask() -> int:
    old = os.umask(0)
    os.umask(old)
    return old


def test_a_file_and_what_was_there(place):
    target = place / "here" / "file"
    assert unpacking.unpack(archive(("any name", b"new")), target).files == 1
    target.unlink()
    target.symlink_to(place / "outside" / "precious")
    unpacking.unpack(archive(("x", b"new")), target)
    assert not target.is_symlink() and target.read_bytes() == b"new"
    (place / "here" / "dir").mkdir()
    (place / "here" / "dir" / "kept").write_text("kept")
    unpacking.unpack(archive(("top", DIR), ("top/added", b"x")), place / "here" / "dir")
    assert tree(place / "here" / "dir") == {"added": b"x", "kept": b"kept"}


HOSTILE = {
    "up": [("top/../../outside/precious", b"x")],
    "up at the top": [("../outside/precious", b"x")],
    "absolute": [("/OUTSIDE/precious", b"x")],
    "through a link": [("top/l", SYM, {"linkname": "../../outside"}), ("top/l/precious", b"x")],
    "through an absolute link": [
        ("top/l", SYM, {"linkname": "/OUTSIDE"}),
        ("top/l/precious", b"x"),
    ],
    "through the top": [("top", SYM, {"linkname": "/OUTSIDE"}), ("top/precious", b"x")],
    "a hard link out": [("top/h", LNK, {"linkname": "/OUTSIDE/precious"}), ("top/h", b"x")],
    "a hard link up": [("top/h", LNK, {"linkname": "top/../../outside/precious"})],
    "links in turns": [
        ("top/d/up", SYM, {"linkname": ".."}),
        ("top/d/out", SYM, {"linkname": "up/../../outside"}),
    ],
    "git": [
        ("top/.git/config", b"[core]\n\tfsmonitor = touch /OUTSIDE/precious\n"),
        ("top/.GIT/config", b"x"),
    ],
    "git by a link": [("top/real/config", b"x"), ("top/g", SYM, {"linkname": ".git"})],
    "a device": [("top/null", CHR), ("top/pipe", FIFO), ("top/disk", BLK)],
    "a file in the way": [("top/a", b"x"), ("top/a/b", b"y")],
    "a folder in the way": [("top/a/b", b"x"), ("top/a", b"y")],
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_gets_out(place, kind):
    def placed(value):
        return (
            value.replace("/OUTSIDE", str(place / "outside")) if isinstance(value, str) else value
        )

    entries = [
        (
            placed(name),
            what,
            *[{key: placed(value) for key, value in each.items()} for each in more],
        )
        for name, what, *more in HOSTILE[kind]
    ]
    done = unpacking.unpack(archive(*entries), place / "here" / "copy")
    named = [*done.left_out, *done.repositories]
    assert named and all(each.isprintable() for each in named)
    assert tree(place / "outside") == {"precious": b"mine"}
    copy = place / "here" / "copy"
    for name, what in tree(copy).items():
        assert ".git" not in name.casefold()
        if isinstance(what, str):
            assert (copy / name).resolve().is_relative_to(copy.resolve()), (name, what)
        else:
            assert (copy / name).is_dir() or (copy / name).is_file()


def test_a_link_of_the_users_own_below_the_target_is_not_followed(place):
    copy = place / "here" / "copy"
    copy.mkdir()
    (copy / "sub").symlink_to(place / "outside")
    done = unpacking.unpack(archive(("top/sub/precious", b"x"), ("top/other", b"y")), copy)
    assert (done.files == 1 and "link" in done.left_out[0]) or "Not a directory" in done.left_out[0]
    assert tree(place / "outside") == {"precious": b"mine"}
    linked = place / "here" / "chosen"  # what the user names is followed: it is their choice
    linked.symlink_to(place / "outside")
    unpacking.unpack(archive(("top/added", b"x")), linked)
    assert (place / "outside" / "added").read_bytes() == b"x"


@pytest.mark.parametrize(
    "raw",
    [
        b"no archive at all " * 100,
        b"\xff" * 5120,
        archive(("top/a", b"x" * 4000)).getvalue()[:2000],
        archive(("top/" + "n" * 70_000, b"x")).getvalue(),
        archive(("top/" + "n" * 70_000, b"x"), form=tarfile.GNU_FORMAT).getvalue(),
    ],
    ids=["text", "bytes", "cut off", "a huge name", "a huge GNU name"],
)
def test_what_is_no_archive_is_refused(place, raw):
    with pytest.raises(BadAnswer):
        unpacking.unpack(io.BytesIO(raw), place / "here" / "copy")


def test_a_header_that_claims_gigabytes_is_not_read(place):
    made = bytearray(archive(("top/" + "n" * 300, b"x")).getvalue())
    assert made[156:157] == b"x"  # an extended header
    made[124:136] = b"%011o\0" % (8 * 1024**3 - 1)
    made[148:156] = b"%06o\0 " % sum(made[:148] + b" " * 8 + made[156:512])
    with pytest.raises(BadAnswer):
        unpacking.unpack(io.BytesIO(bytes(made)), place / "here" / "copy")


def test_too_many_files(place, monkeypatch):
    monkeypatch.setattr(unpacking, "ENTRIES", 3)
    with pytest.raises(BadAnswer, match="more than 3 files"):
        unpacking.unpack(
            archive(*[(f"top/{number}", b"") for number in range(4)]), place / "here" / "copy"
        )


def test_a_repository_is_named_once_and_is_no_failure(place):
    sent = archive(
        ("top/.git", DIR),
        ("top/.git/config", b"x"),
        ("top/sub/.GIT/hooks/pre-push", b"x"),
        ("top/.gitignore", b"x"),
    )
    done = unpacking.unpack(sent, place / "here" / "copy")
    assert (done.files, done.left_out, done.repositories) == (1, [], ["'.git'", "'sub/.GIT'"])
