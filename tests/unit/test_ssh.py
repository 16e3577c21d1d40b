"""The wrapper's pure parts, as tables: git's command lines, destinations, options, the token, other
people's ssh clients."""

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from git_daytona import ssh
from git_daytona.ssh import CommandLine, Refusal

UPLOAD = "git-upload-pack '/home/daytona/project'"
PROTOCOL = ("-o", "SendEnv=GIT_PROTOCOL")


# Every form of connect.c (push_ssh_options, fill_ssh_args), and what people write by hand.
@pytest.mark.parametrize(
    ("argv", "host", "port", "family", "protocol", "rest"),
    [
        (["host", UPLOAD], "host", "22", [], False, [UPLOAD]),
        ([*PROTOCOL, "host", UPLOAD], "host", "22", [], True, [UPLOAD]),
        ([*PROTOCOL, "-p", "2222", "user@host", UPLOAD], "host", "2222", [], True, [UPLOAD]),
        ([*PROTOCOL, "-4", "-p", "2222", "host", UPLOAD], "host", "2222", ["-4"], True, [UPLOAD]),
        (["-6", "-p", "2222", "::1", UPLOAD], "::1", "2222", ["-6"], False, [UPLOAD]),
        (["-p", "2222", "user@::1", UPLOAD], "::1", "2222", [], False, [UPLOAD]),
        (["-p2222", "-oSendEnv=GIT_PROTOCOL", "host", UPLOAD], "host", "2222", [], True, [UPLOAD]),
        (["-4p2222", "host"], "host", "2222", ["-4"], False, []),
        (["-o", "SendEnv GIT_PROTOCOL", "host"], "host", "22", [], True, []),
        (["-o", "SendEnv=*", "host"], "host", "22", [], False, []),
        (
            ["-l", "someone", "-i", "key", "-F", "file", "-o", "Port=1", "host"],
            "host",
            "22",
            [],
            False,
            [],
        ),
        (["-vAT", "host"], "host", "22", [], False, []),
        (["--", "host", UPLOAD], "host", "22", [], False, [UPLOAD]),
        (
            ["-p", "1", "--", "-oProxyCommand=x", UPLOAD],
            "-oProxyCommand=x",
            "1",
            [],
            False,
            [UPLOAD],
        ),
        (["host", "--", "ls", "-l"], "host", "22", [], False, ["ls", "-l"]),
        (["host", "ls", "--", "x"], "host", "22", [], False, ["ls", "--", "x"]),
        (["a@b@host"], "host", "22", [], False, []),
        (["-", "x"], "-", "22", [], False, ["x"]),
        (["-p"], "", "", [], False, []),
        (["--"], "", "22", [], False, []),
        ([], "", "22", [], False, []),
    ],
)
def test_git_command_lines(argv, host, port, family, protocol, rest):
    call = CommandLine(argv)
    assert (call.host, call.port, call.family, call.sends_protocol, call.rest) == (
        host,
        port,
        family,
        protocol,
        rest,
    )
    assert not call.probe


@pytest.mark.parametrize(
    "argv", [["-G", "host"], ["-G", *PROTOCOL, "-p", "22", "host"], ["-4G", "host"]]
)
def test_probe(argv):
    assert CommandLine(argv).probe


@pytest.mark.parametrize(
    ("gateway", "argv", "ours"),
    [
        ("host", ["host"], True),
        ("host", ["-p", "22", "HOST"], True),
        ("host", ["-p", "2222", "host"], False),
        ("host:2222", ["-p", "2222", "x@host"], True),
        ("host:2222", ["host"], False),
        ("host:2222", ["-p", "2222", "host.example"], False),
        ("host:2222", ["-p", "2222", "hos"], False),
        ("[::1]:2222", ["-p", "2222", "::1"], True),
        ("[::1]:2222", ["-p", "2222", "[::1]"], True),
        ("[::1]:22", ["::1"], True),
        ("[::1]", ["::1"], True),
        ("[2001:DB8::1]:22", ["2001:db8::1"], True),
        ("[::1]:2222", ["-p", "2222", "::2"], False),
        ("", ["host"], False),
        ("", [], False),
        (":22", ["-p", "22", ""], False),
    ],
)
def test_whose_destination(gateway, argv, ours):
    assert CommandLine(argv).is_for(gateway) is ours


@pytest.mark.parametrize(
    "token",
    [
        "",
        "-oProxyCommand=x",
        "a b",
        "a\nb",
        "a\tb",
        "user@host",
        "a/b",
        "a%b",
        "${HOME}",
        "a'b",
        'a"b',
        "a#b",
        "tökén",
        "x" * 513,
        "a\0b",
    ],
)
def test_case_03_malformed_tokens_are_refused(token):
    with pytest.raises(Refusal) as refused:
        ssh.take_token({"DAYTONA_SSH_TOKEN": token})
    assert token == "" or token not in refused.value.message + refused.value.hint


def test_token_from_a_descriptor(tmp_path):
    path = tmp_path / "token"
    path.write_text("FromDescriptor1\n")
    for _ in range(2):  # git connects twice, and the offset is shared
        descriptor = os.open(path, os.O_RDONLY)
        assert (
            ssh.take_token({"DAYTONA_SSH_TOKEN_FD": str(descriptor), "DAYTONA_SSH_TOKEN": "other"})
            == "FromDescriptor1"
        )
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


@pytest.mark.parametrize("number", ["999", "-1", "x", "²", ""])
def test_a_descriptor_that_is_none(number):
    with pytest.raises(Refusal, match="no token"):
        ssh.take_token({"DAYTONA_SSH_TOKEN_FD": number})


def test_the_options_hold_no_secret_and_name_each_thing_once():
    chosen = ssh.options("host", "/pins", "[host]:2222")
    names = [word.partition("=")[0].lower() for word in chosen if word != "-o"]
    assert len(names) == len(set(names))
    assert "hostkeyalias" in names
    assert "HostKeyAlias" not in " ".join(ssh.options("host", None, None))


def test_every_option_is_known_to_the_installed_ssh(home):
    """Also the oldest client that is supported knows them: none is newer than 8.7 (release notes of
    OpenSSH). All but what a build may lack."""
    lacking = ssh.unknown(shutil.which("ssh"), dict(os.environ), None)
    assert {each.partition("=")[0] for each in lacking} <= {"GSSAPIAuthentication"}
    chosen = ssh.options("host", str(home / "pins"), "host", lacking)
    line = ["ssh", "-G", "-F", "/dev/null", *chosen, "host"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("/a/b", '"/a/b"'),
        ("/with blank/x", '"/with blank/x"'),
        ("/100%/x", '"/100%%/x"'),
        ("/it's/$HOME/x", '"/it\'s/$HOME/x"'),
        ("/back\\slash", '"/back\\\\slash"'),
    ],
)
def test_paths_for_ssh(path, written, tmp_path):
    assert ssh.quoted(path) == written
    done = subprocess.run(
        ["ssh", "-G", "-F", "/dev/null", "-o", "UserKnownHostsFile=" + written, "host"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"userknownhostsfile {path}\n" in done.stdout


@pytest.mark.parametrize("path", ['/a"b', "/a${HOME}b", "/a\nb", "/a\tb", "/a\x7fb"])
def test_paths_that_ssh_cannot_be_told(path):
    with pytest.raises(Refusal):
        ssh.quoted(path)


def program(path: Path, mode: int = 0o755) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return str(path)


def test_case_22_which_ssh(tmp_path, monkeypatch):
    mine = program(tmp_path / "with blanks" / "my ssh")
    assert ssh.find_ssh(mine, "") == mine
    on_path = program(tmp_path / "bin" / "ssh")
    evil = tmp_path / "repository"
    program(evil / "ssh")
    monkeypatch.chdir(evil)
    for path in (
        f".:{tmp_path}/bin",
        f":{tmp_path}/bin",
        f"repository/..:{tmp_path}/none:{tmp_path}/bin",
    ):
        assert ssh.find_ssh(" ", path) == on_path
    (tmp_path / "folder" / "ssh").mkdir(parents=True)
    program(tmp_path / "plain" / "ssh", 0o644)
    assert ssh.find_ssh("", f"{tmp_path}/folder:{tmp_path}/plain:{tmp_path}/bin") == on_path
    with pytest.raises(Refusal, match="no OpenSSH client"):
        ssh.find_ssh("", ".:relative")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ssh", "absolute"),
        ("./ssh", "absolute"),
        ("~/ssh", "absolute"),
        ("{}/missing", "not exist"),
        ("{}", "directory"),
        ("{}/plain", "executed"),
    ],
)
def test_case_22_a_client_that_cannot_be_used(tmp_path, name, says):
    program(tmp_path / "plain", 0o644)
    with pytest.raises(Refusal, match=says) as refused:
        ssh.find_ssh(name.format(tmp_path), os.defpath)
    assert "DAYTONA_SSH_BINARY" in refused.value.message
    assert "DAYTONA_SSH_BINARY" in refused.value.hint
    assert refused.value.status == 12


@pytest.mark.parametrize(
    ("named", "command", "program", "variant"),
    [
        ("", "", "", "ssh"),
        ("", "ssh -i key", "", "ssh"),
        ("", "'/opt/my tools/ssh' -v", "", "ssh"),
        ("", "/x/SSH.exe", "", "ssh"),
        ("", "C/plink.exe -load x", "", "plink"),
        ("", "", "/opt/my tools/TortoisePlink.exe", "tortoiseplink"),
        ("", "wrapper.sh", "", "auto"),
        ("", "'unbalanced", "", "auto"),
        ("", "", "/opt/ssh wrapper", "auto"),
        ("auto", "ssh", "", "auto"),
        ("putty", "ssh", "", "putty"),
        ("simple", "ssh", "", "simple"),
        ("plink", "", "", "plink"),
        ("anything", "plink", "", "ssh"),
    ],
)
def test_variant_of_the_users_own_client(named, command, program, variant):
    assert ssh.variant_of(named, command, program) == variant


@pytest.mark.parametrize(
    ("variant", "argv", "expected"),
    [
        ("ssh", [*PROTOCOL, "-4", "-p", "1", "u@h", "c"], [*PROTOCOL, "-4", "-p", "1", "u@h", "c"]),
        ("plink", [*PROTOCOL, "-4", "-p", "1", "u@h", "c"], ["-4", "-P", "1", "u@h", "c"]),
        ("putty", ["-p", "1", "h", "-p c"], ["-P", "1", "h", "-p c"]),
        ("tortoiseplink", ["-6", "-p", "1", "h", "c"], ["-batch", "-6", "-P", "1", "h", "c"]),
        ("simple", [*PROTOCOL, "h", "c"], ["h", "c"]),
    ],
)
def test_arguments_of_the_users_own_client(variant, argv, expected):
    assert ssh.variant_arguments(CommandLine(argv), variant) == expected


@pytest.mark.parametrize("option", [["-p", "1"], ["-4"], ["-6"]])
def test_a_simple_client_is_not_sent_to_the_wrong_place(option):
    with pytest.raises(Refusal, match="'simple' does not support"):
        ssh.variant_arguments(CommandLine([*option, "h", "c"]), "simple")


def test_git_and_the_wrapper_agree_on_a_simple_client(tmp_path):
    """What git itself calls for each variant is what the wrapper calls: the same program, told by
    both of its arguments."""
    recorder = tmp_path / "client"
    recorder.write_text(
        '#!/bin/sh\nif [ "$1" = -G ]; then exit 3; fi\nfor word; do echo "$word"; done '
        f">>{tmp_path}/said\nexit 1\n"
    )
    recorder.chmod(0o755)
    base = {"HOME": os.environ["HOME"], "PATH": os.environ["PATH"]}
    for variant, port in (
        ("", ""),
        ("plink", ":2200"),
        ("putty", ":2200"),
        ("ssh", ":2200"),
        ("tortoiseplink", ":2200"),
    ):
        heard = []
        own = {"GIT_SSH": str(recorder), "GIT_SSH_VARIANT": variant or "auto"}
        ours = {
            "GIT_SSH_COMMAND": f"{sys.executable} -I -S -B {ssh.__file__}",
            "GIT_SSH_VARIANT": "ssh",
            "DAYTONA_SSH_GATEWAY": "elsewhere",
            "DAYTONA_SSH_OTHER_PROGRAM": str(recorder),
            "DAYTONA_SSH_OTHER_VARIANT": variant,
        }
        for extra in (own, ours):
            subprocess.run(
                ["git", "ls-remote", f"ssh://user@host.invalid{port}/x"],
                env=base | extra,
                capture_output=True,
            )
            heard.append((tmp_path / "said").read_text())
            (tmp_path / "said").unlink()
        assert heard[0] == heard[1], variant


def test_a_private_file_is_read_twice_and_then_gone(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with ssh.private_file("User secret\n") as path:
        assert [Path(path).read_text() for _ in range(2)] == ["User secret\n"] * 2
        if path.startswith("/proc/"):
            assert list(tmp_path.iterdir()) == []
    assert not Path(path).exists()


def test_a_private_file_without_memfd(tmp_path, monkeypatch):
    """As on macOS."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delattr(os, "memfd_create", raising=False)
    old = os.umask(0)
    try:
        with ssh.private_file("User secret\n") as path:
            assert oct(Path(path).stat().st_mode)[-3:] == "600"
            assert oct(Path(path).parent.stat().st_mode)[-3:] == "700"
    finally:
        os.umask(old)
    assert list(tmp_path.iterdir()) == []


# -- how a command ended ---------------------------------------------------------------------------

NONCE = "0123456789abcdef" * 2
MARK = b"\xfb" + NONCE.encode()


def tail(status: int, stderr: bytes = b"") -> bytes:
    """What remote_command puts behind the output."""
    return MARK + f"{status}".encode() + (b"\n" + stderr if stderr else b"") + MARK


def taken(pieces: list[bytes], *, hurried: bool = False) -> tuple[bytes, ssh.Ending]:
    """What passes through an Ending; ``hurried``: whoever waits is given everything at once."""
    ending, out = ssh.Ending(NONCE), b""
    for piece in pieces:
        out += ending.feed(piece)
        if hurried and ending.holds:
            out += ending.release()
    return out + ending.rest(), ending


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[first:last] for first, last in itertools.pairwise(edges)]


@given(
    data=st.lists(
        st.sampled_from(
            [b"\xfb", MARK[:5], MARK[:-1], b"0000", b"\n", b"\0", NONCE.encode(), b"text"]
        ),
        max_size=9,
    ),
    status=st.integers(0, 255),
    stderr=st.sampled_from([b"", b"fatal: \xfb no\n", b"x" * 8000, MARK[:-1]]),
    places=st.lists(st.integers(0, 10_000), max_size=12),
)
def test_output_status_and_stderr_come_apart_wherever_the_stream_is_split(
    data, status, stderr, places
):
    output = b"".join(data)
    assume(MARK not in output)
    out, ending = taken(cut(MARK + output + tail(status, stderr), places))
    assert (out, ending.begun, ending.status, ending.stderr) == (output, True, status, stderr)


@given(places=st.lists(st.integers(0, 10_000), max_size=12))
def test_whoever_waits_gets_what_is_held_back_and_the_end_is_seen_all_the_same(places):
    out, ending = taken(cut(MARK + b"\xfb0000\xfb" + tail(7), places), hurried=True)
    assert ending.status == 7
    assert b"\xfb0000\xfb" in out and len(out) < 7 + 2 * ssh._LIKELY, (
        "of a mark that comes slowly, its first bytes at the most"
    )


def test_a_stream_that_was_cut_anywhere_has_no_status():
    whole = MARK + b"0000" + tail(0, b"said\n")
    for length in range(len(whole)):
        out, ending = taken([whole[:length]])
        assert (ending.begun, ending.status) == (length >= len(MARK), None), length
        assert b"0000".startswith(out) or (out.startswith(b"0000") and len(out) < 4 + ssh._LIKELY)
    assert taken([whole])[1].status == 0


def test_what_the_background_writes_after_the_end_is_output():
    out, ending = taken([MARK + b"before" + tail(3) + b"after", b" all"])
    assert (out, ending.status) == (b"beforeafter all", 3)


@pytest.mark.parametrize("broken", [b"", b"x", b"x\nsaid", b"1234", b"\n0"])
def test_a_tail_that_makes_no_sense_is_no_status_and_swallows_nothing(broken):
    out, ending = taken([MARK + b"out" + MARK + broken + MARK + b"more"])
    assert (out, ending.status) == (b"outmore", None)


def test_a_tail_without_an_end_is_bounded():
    ending = taken([MARK + b"out" + MARK, *[b"e" * 65536] * 10])[1]
    assert ending.status is None
    assert len(ending._tail) <= 2 * ssh.STDERR_BYTES


@pytest.mark.parametrize(
    "shell", ["dash", "bash --posix", "bash", "zsh --emulate sh", "busybox sh"]
)
@pytest.mark.parametrize(
    ("command", "output", "status", "stderr"),
    [
        ("cat; echo no >&2; exit 3", b"input", 3, b"no"),
        ("exec cat", b"input", 0, b""),
        ("exit 300", b"", 44, b""),
        ("kill -9 $$", b"", 137, None),
        ("echo \"it's", b"", 2, None),
        ("printf '\\373\\000\\373'; printf 'no newline' >&2", b"\xfb\0\xfb", 0, b"no newline"),
        ("head -c 6000000 /dev/zero | tr '\\0' e >&2; echo done", b"done\n", 0, None),
        ("nothing-of-that-name", b"", 127, None),
        ("true\n# a comment", b"", 0, b""),
        ("echo $GIT_PROTOCOL", b"version=2\n", 0, b""),
        ("(sleep 0.2; printf 5 >&2) & exit 1", b"", 1, b"5"),
        ("(sleep 0.2; head -c 20000 /dev/zero | tr '\\0' e >&2) & exit 0", b"", 0, None),
    ],
)
def test_every_shell_says_how_a_command_ended(shell, command, output, status, stderr):
    program, *options = shell.split()
    if not shutil.which(program):
        pytest.skip(f"{program} is not there")
    line = ssh.remote_command(command, "version=2", NONCE)
    done = subprocess.run(
        (program, *options, "-c", line), input=b"input", capture_output=True, timeout=60
    )
    out, ending = taken([done.stdout])
    assert (out, ending.status) == (output, status)
    assert len(ending.stderr) <= ssh.STDERR_BYTES
    assert stderr is None or ending.stderr == stderr


def test_a_sandbox_without_tail_has_no_stderr_but_a_status(tmp_path):
    line = ssh.remote_command("echo on; echo lost >&2; exit 4", "", NONCE)
    done = subprocess.run(
        (shutil.which("dash"), "-c", line),
        env={"PATH": str(tmp_path)},
        capture_output=True,
        timeout=60,
    )
    out, ending = taken([done.stdout])
    assert (out, ending.status) == (b"on\n", 4)


@pytest.mark.parametrize(
    "protocol", ["", "version=2; touch evil", "$(touch evil)", "version=2\nx", "version=\uff12"]
)
def test_a_protocol_that_is_none_is_not_passed_on(protocol):
    assert ssh.remote_command("true", protocol, NONCE).count("GIT_PROTOCOL") == 0


def test_a_start_loads_what_it_needs_and_no_more() -> None:
    """It starts for every connection."""
    code = "import sys; __name__ = 'ssh'; exec(open(sys.argv[1]).read()); print(*sys.modules)"
    argv = (sys.executable, "-I", "-S", "-B", "-c", code, ssh.__file__)
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    assert "subprocess" in loaded
    assert loaded & {"ctypes", "shutil", "tempfile", "typing", "zlib"} == set()
