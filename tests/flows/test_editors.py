"""Sandboxes in ~/.ssh/config: git daytona ssh-config, the proxy that it names, and git daytona
code, with the user's own ssh, scp, sftp, rsync and git."""

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import tmux
from support.processes import descendants, until
from support.round_trip import BIN

GIT_DAYTONA = str(BIN / "git-daytona")


@pytest.fixture
def config(home: Path, local) -> Path:
    """ssh's configuration, installed. (The home of OpenSSH is that of passwd(5).)"""
    done = subprocess.run((GIT_DAYTONA, "ssh-config", "--install"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return home / ".ssh" / "config"


@pytest.fixture
def session(begin, repo):
    return begin(repo)


@pytest.fixture
def ran(config: Path, repo) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run one of OpenSSH's programs, or another, in the repository."""

    def run(
        *words: str, stdin: str = "", cwd: Path | None = None, **env: str
    ) -> "subprocess.CompletedProcess[str]":
        if words[0] in ("ssh", "scp", "sftp"):
            words = (words[0], "-F", str(config), *words[1:])
        done = subprocess.run(
            words,
            cwd=cwd or repo.path,
            env=os.environ | env,
            input=stdin,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=60,
        )
        print(done.stderr)
        return done

    return run


def all_revoked(local) -> bool:
    return local.live_tokens() == 0 and local.counts["mint"] == local.counts["revoke"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def running(*words: str, cwd: Path, **how) -> Iterator["subprocess.Popen[bytes]"]:
    """A program that runs until the block ends."""
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE} | how
    with subprocess.Popen(words, cwd=cwd, **streams) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)


# -- what programs do with a host ------------------------------------------------------------------


def test_commands(local, session, ran):
    minted = local.counts["mint"]
    done = ran("ssh", "sandbox-1", "cat; pwd >&2; exit 3", stdin="in and out")
    assert (done.returncode, done.stdout, done.stderr) == (3, "in and out", "/home/daytona\n")
    assert ran("ssh", "sandbox-1", stdin="echo a shell; exit 4\n").returncode == 4
    assert local.counts["mint"] == minted + 2
    found = session.coordinator.find("1")
    assert found.last_accessed > found.synced_at  # what was done there is known not to be here yet
    much = "printf 'begins as the mark \\373'; head -c 3000000 /dev/zero; kill $$"
    much = ran("ssh", "sandbox-1", much)
    assert (much.returncode, len(much.stdout)) == (143, 3_000_020)
    # no variable of ours gets there but git's
    env = ran(
        "ssh",
        "-o",
        "SendEnv=* GIT_PROTOCOL",
        "sandbox-1",
        "env",
        GIT_PROTOCOL="version=2",
        CANARY="x",
    )
    assert "GIT_PROTOCOL=version=2" in env.stdout and "CANARY" not in env.stdout
    assert all_revoked(local)


def test_sftp_scp_rsync_and_git(local, session, ran, repo, tmp_path):
    (tmp_path / "there").write_bytes(os.urandom(300_000))
    for old in ([], ["-O"]):
        sent = ran("scp", *old, str(tmp_path / "there"), "sandbox-1:project/copied")
        back = ran("scp", *old, "sandbox-1:project/copied", str(tmp_path / "back"))
        assert sent.returncode == back.returncode == 0
        assert (tmp_path / "back").read_bytes() == (tmp_path / "there").read_bytes()
    batch = ran("sftp", "-b", "-", "sandbox-1", stdin="ls project\nrm project/copied\n")
    assert (batch.returncode, "project/copied" in batch.stdout) == (0, True)
    ssh = f"ssh -F {Path.home()}/.ssh/config"
    if shutil.which("rsync"):
        assert ran("rsync", "-e", ssh, "-a", "README", "sandbox-1:project/new").returncode == 0
        assert session.agent("cat new; rm new") == "hello\n"
    head = session.agent("git rev-parse HEAD").strip()
    assert head in ran("git", "ls-remote", "sandbox-1:project", GIT_SSH_COMMAND=ssh).stdout
    assert ran("ssh", "-s", "sandbox-1", "nonesuch").returncode == 255
    assert all_revoked(local)


def test_a_terminal(local, session, config, repo):
    with tmux.start(
        ["ssh", "-F", str(config), "sandbox-1"], size=(90, 20), cwd=repo.path
    ) as screen:
        screen.type("PS1='READY> '; tty -s && echo on a terminal\n")
        screen.wait_for(r"^on a terminal$")
        until(lambda: all_revoked(local))  # while it is open
        screen.type("stty size\n")
        screen.wait_for(r"^20 90$")
        screen.type("sh -c 'echo asleep; exec sleep 1000'\n")
        screen.wait_for(r"^asleep$")
        screen.send("C-c")
        screen.type("echo it goes on\n")
        screen.wait_for(r"^it goes on$")
        screen.type("exit\n")
        screen.status()


def test_channels_of_one_connection(local, session, config, repo, ran, tmp_path):
    """Commands, ports and an upload at once, as editors do, over one lease."""
    session.agent("nohup python3 -u -m http.server -b 127.0.0.1 0 >log 2>&1 </dev/null &")
    until(lambda: "port " in session.agent("cat log"))
    port = session.agent("cat log").split("port ")[1].split()[0]
    minted, socks = local.counts["mint"], free_port()
    control = ("-S", str(tmp_path / "s"))
    words = ("ssh", "-F", str(config), "-M", *control, "-T", "-D", str(socks), "sandbox-1", "sh")
    with running(*words, cwd=repo.path) as editor:
        editor.stdin.write(b"echo there\n")
        editor.stdin.flush()
        assert editor.stdout.readline() == b"there\n"
        assert ran("ssh", *control, "sandbox-1", "cat", stdin="another").stdout == "another"
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", socks), 20) as proxied:
                proxied.sendall(b"\5\1\0\5\1\0\1\177\0\0\1" + int(port).to_bytes(2, "big"))
                proxied.sendall(b"GET /log HTTP/1.0\r\n\r\n")
                assert b"Serving HTTP" in proxied.makefile("rb").read()
        place = f"localhost:{port}"
        page = running("ssh", "-F", str(config), *control, "-W", place, "sandbox-1", cwd=repo.path)
        with page as direct:
            direct.stdin.write(b"GET /log HTTP/1.0\r\n\r\n")
            direct.stdin.flush()
            assert b"Serving HTTP" in direct.stdout.read()
        # a channel that is closed takes its command's ssh along
        with running(
            "ssh", "-F", str(config), *control, "sandbox-1", "echo x; cat", cwd=repo.path
        ) as one:
            one.stdout.readline()
            children = len(descendants(editor.pid))
        until(lambda: len(descendants(editor.pid)) < children)
        assert local.counts["mint"] == minted + 1
        assert all_revoked(local)
