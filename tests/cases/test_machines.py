"""Odd machines: who one is there, what one was started with, what is full (cases 96, 97, 117)."""

import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from git_daytona.base.errors import ConnectionClosed, SandboxCommandFailed
from git_daytona.sandbox import report, scripts
from git_daytona.transfer import leases
from support.round_trip import BIN, Ran, in_project

ENV = {"LANG": "C.UTF-8"}


def run(*argv: str, cwd: Path, env: dict[str, str] | None = None, **how) -> Ran:
    how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE} | how
    environment = os.environ | ENV | (env or {})
    done = subprocess.run(argv, cwd=cwd, env=environment, stderr=subprocess.PIPE, timeout=60, **how)
    err = done.stderr.decode()
    assert "Traceback" not in err
    return Ran(done.returncode, (done.stdout or b"").decode(errors="surrogateescape"), err)


def complaint(ran: Ran) -> str:
    """The one line that says what happened."""
    (line,) = [each for each in ran.err.splitlines() if ": error: " in each]
    return line.partition(": error: ")[2]


# -- a user id without a name ----------------------------------------------------------------------

NAMELESS = ("unshare", "--user", "--map-user=54321", "--map-group=54321", "--")


@pytest.fixture
def nameless(repo):
    """Run a program of ours as a user id without a name."""
    if not shutil.which("unshare") or run(*NAMELESS, "true", cwd=repo.path).status != 0:
        pytest.skip("no other user id can be had: unshare --map-user")

    def do(program: str, *words: str, home: bool = True) -> Ran:
        argv = ("env", *(() if home else ("-u", "HOME")), str(BIN / program), *words)
        return run(*NAMELESS, *argv, cwd=repo.path, env={"LOGNAME": "", "USER": ""})

    return do


def test_case_96_a_user_id_without_a_name(local, nameless, monkeypatch):
    """What needs no name works; what does names what is missing."""
    assert nameless("daytona-pin", "pin").status == 0
    started = nameless("git-daytona", "start")
    assert (started.status, complaint(started)) == (
        10,
        "OpenSSH does not run for user id 54321, which has no name here [transfer-failed]",
    )
    examined = nameless("git-daytona", "doctor")
    assert "FAIL    ssh            OpenSSH does not run for user id 54321" in examined.out
    assert "ok      gateway " in examined.out
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("XDG_DATA_HOME")
    examples = (("git-daytona", "status"), ("daytona-pin", "verify"), ("daytona-local", "serve"))
    for program, *words in examples:
        told = nameless(program, *words, home=False)
        assert (told.status, complaint(told)) == (
            13,
            "there is no home directory: HOME is not set, and user id 54321 has no name"
            " [bad-setting]",
        )


# -- streams ---------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_case_96_a_full_disk_at_stdout(local, repo, begin):
    """One line and a status, and what was asked for is done."""
    session = begin(repo)
    examples = ("exec 1 -- echo made >made; echo", "sync 1", "status", "version")
    for line in examples:
        with Path("/dev/full").open("wb") as full:
            words = line.split(" ", 3) if "--" in line else line.split()
            told = run(str(BIN / "git-daytona"), *words, cwd=repo.path, stdout=full)
        assert told.status == 1, line
        assert complaint(told) == (
            "cannot write to standard output: No space left on device [failed]"
        ), line
    assert session.agent("cat made") == "made\n"
    assert repo.show("opencode/1", "made") == "made"


def test_case_117_closed_streams(local, repo, begin):
    """No file of ours becomes one of them, and the work is done."""
    session = begin(repo)
    made = "made\n"
    examples = {"<&-": made, ">&-": "", "2>&-": made, "<&- >&- 2>&-": ""}
    for number, (closed, out) in enumerate(examples.items()):
        work = f"echo {number} >>done; echo made"
        script = f'"$1" exec 1 -- "{work}" {closed} && "$1" sync 1 {closed}'
        told = run("sh", "-c", script, "sh", str(BIN / "git-daytona"), cwd=repo.path)
        assert told.status == 0 and told.out.startswith(out), (closed, told)
        assert repo.show("opencode/1", "done").split()[-1] == str(number), closed
    assert session.agent("cat done").split() == [*"0123"]


# -- locales ---------------------------------------------------------------------------------------

SMILE = "\N{GRINNING FACE}"


@pytest.fixture
def latin_1(tmp_path, monkeypatch):
    """A locale whose charset is Latin-1."""
    place = tmp_path / "xx_XX.ISO-8859-1"
    if shutil.which("localedef"):
        subprocess.run(("localedef", "-i", "en_US", "-f", "ISO-8859-1", place), capture_output=True)
    if not (place / "LC_CTYPE").exists():
        pytest.skip("no locale can be made (Debian: apt install locales)")
    monkeypatch.setenv("LOCPATH", str(tmp_path))
    monkeypatch.setenv("LC_ALL", "xx_XX.ISO-8859-1")


def test_case_96_a_latin_1_locale(local, repo, begin, latin_1):
    """Emoji in a branch here and there, in a file's name and in output."""
    repo.git("switch", "-q", "-c", f"wörk-{SMILE}")
    session = begin(repo)
    program = str(BIN / "git-daytona")
    examples = {
        "output": ("exec", "1", "--", f"echo 'é {SMILE}'"),
        "a branch there": ("exec", "1", "--", f"git branch 'ü-{SMILE}'; echo >'{SMILE}'"),
        "all of it": ("sync", "1"),
        "a table": ("status",),
    }
    told = {name: run(program, *words, cwd=repo.path) for name, words in examples.items()}
    assert [each.status for each in told.values()] == [0] * 4, told
    assert told["output"].out == f"é {SMILE}\n", "UTF-8, as for programs"
    assert repo.git("rev-parse", f"sandbox-1/ü-{SMILE}")
    assert repo.show("opencode/1", SMILE) == ""
    assert on_a_terminal(program, *examples["output"], cwd=repo.path) == b"\xe9 \\U0001f600\r\n"
    assert session.agent("true") == ""


def on_a_terminal(*argv: str, cwd: Path, env: dict[str, str] | None = None) -> bytes:
    """All that a program writes to a terminal."""
    ours, theirs = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        with os.fdopen(ours, "rb", buffering=0) as screen:
            try:
                while data := screen.read(65536):
                    shown.append(data)
            except OSError:  # all have closed it
                pass

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(theirs, "wb") as screen:
        subprocess.run(
            argv, cwd=cwd, env=os.environ | (env or {}), stdin=screen, stdout=screen, timeout=60
        )
    reader.join(30)
    return b"".join(shown)


def test_case_117_no_pager_passes_a_sandboxs_escapes_on(local, repo, begin):
    session = begin(repo)
    session.agent(
        "printf 'a\\033[2Jb\\r\\n\\302\\2330m \\303\\251\\n' >f; git add f; git commit -qm"
        " \"$(printf 'evil \\033]0;title\\007\\001[2J \\033[31mred\\033[0m \\303\\251')\""
    )
    session.sync()
    examples = (
        ("diff", {"PAGER": "cat"}, "a?[2Jb"),
        ("log", {"GIT_PAGER": ""}, "evil ?]0;title"),
        ("log", {"PAGER": "sed s/evil/worse/"}, "worse ?]0;title"),
        ("log", {"pager.log": "false"}, "evil ?]0;title"),
    )
    for command, how, words in examples:
        env = {"TERM": "xterm", "LANG": "C.UTF-8"} | how
        if "pager.log" in env:
            repo.git("config", "pager.log", env.pop("pager.log"))
        program = str(BIN / "git-daytona")
        shown = on_a_terminal(program, command, "1", cwd=repo.path, env=env).decode()
        plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
        assert all(each.isprintable() or each in "\r\n" for each in plain), shown
        assert plain != shown and words in shown and "é" in shown, shown
        assert command == "diff" or "\x1b[31mred" in shown, "colours stay"


# -- what whoever started us ignores ---------------------------------------------------------------

IGNORING = """
import os, signal, sys
for name in sys.argv[1].split():
    signal.signal(getattr(signal, name), signal.SIG_IGN)
os.umask(0o077)
os.execvp(sys.argv[2], sys.argv[2:])
"""
STORY = """
git daytona start >/dev/null || exit
git daytona exec 1 -- 'sh -c "kill -INT \\$\\$; echo survived"'; echo "exec $?"
printf '%s\\n' 'sh -c "kill -HUP \\$\\$; echo survived"; echo "hup $?"; umask; yes | head -1' |
  git daytona shell 1; echo "shell $?"
git daytona exec 1 -- 'git rev-parse -q --verify nonsense'; echo "git $?"
grep -c x file; echo "grep $?"
"""


@pytest.mark.parametrize(
    "ignored", ["SIGINT SIGQUIT", "SIGHUP", "SIGINT SIGHUP SIGPIPE SIGTERM SIGCHLD"]
)
def test_case_97_signals_that_whoever_started_us_ignores(repo, ignored):
    """They end what runs in a sandbox all the same; no status is lost, and no umask gets there."""
    (repo.path / "file").write_text("x\n")
    program = (str(BIN / "daytona-local"), "exec", "--", "sh", "-c", STORY)
    env = {"PATH": f"{BIN}:{os.environ['PATH']}"}
    told = run(sys.executable, "-c", IGNORING, ignored, *program, cwd=repo.path, env=env)
    assert told.out.split("\n") == [
        *("exec 130", "hup 129", "0022", "y", "shell 0", "git 1", "1", "grep 0", ""),
    ], told


# -- paths and variables ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["[x] \\y", "%d $HOME ${HOME}", "*?", "{a,b} ~ # '", f"ü {SMILE}", 'double"quote']
)
def test_case_117_a_home_of_any_name(tmp_path, name):
    """The user's ssh configuration is read from there."""
    home = tmp_path / name
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/config").write_text("Host *\n\tRekeyLimit 1234567\n")
    (tmp_path / "decoy" / ".ssh").mkdir(parents=True)
    argv = (str(BIN / "daytona-ssh"), "-G", "-p", "2222", "127.0.0.1")
    env = {"HOME": str(home), "DAYTONA_SSH_GATEWAY": "127.0.0.1:2222", "LC_ALL": "C"}
    told = run(*argv, cwd=tmp_path, env=env)
    assert (told.status, told.err) == (0, "")
    assert "rekeylimit 1234567 0" in told.out.splitlines()


def test_case_117_a_round_trip_with_a_home_of_an_odd_name(local, repo, tmp_path, monkeypatch):
    home = tmp_path / f"[h] \\ome %d ' {SMILE}"
    home.mkdir()
    for name in list(os.environ):
        if name.startswith("XDG_"):
            monkeypatch.delenv(name)
    env = {"HOME": str(home), "LC_ALL": "C"}
    program = str(BIN / "git-daytona")
    for words in (("start",), ("exec", "1", "--", "echo x >x"), ("sync", "1"), ("delete", "1")):
        told = run(program, *words, cwd=repo.path, env=env)
        assert told.status == 0, told
    assert repo.show("opencode/1", "x") == "x"


def test_case_117_a_home_that_cannot_be_written_to(local, repo, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    start: tuple[str, ...] = (str(BIN / "git-daytona"),)
    if os.geteuid() == 0:  # who writes everywhere
        if not shutil.which("bwrap"):
            pytest.skip("nothing can be mounted here: bwrap")
        start = ("bwrap", "--dev-bind", "/", "/", "--ro-bind", str(home), str(home), *start)
    for name in list(os.environ):
        if name.startswith("XDG_"):
            monkeypatch.delenv(name)
    for words in (("start",), ("doctor",), ("install", "--global")):
        told = run(*start, *words, cwd=repo.path, env={"HOME": str(home)})
        said = told.out + told.err
        reasons = ("Permission denied", "Read-only", "cannot be written")
        assert told.status != 0 and any(reason in said for reason in reasons), told


VARIABLES = {
    "PYTHONEXECUTABLE": "/nonexistent",
    "__PYVENV_LAUNCHER__": "/nonexistent",
    "PYTHONHOME": "/nonexistent",
    "PYTHONPATH": "evil",
    "PYTHONWARNINGS": "error",
    "PYTHONIOENCODING": "ascii",
    "PYTHONUTF8": "0",
    "PYTHONPLATLIBDIR": "nolib",
    "PYTHONHASHSEED": "nonsense",
    "PYTHONSTARTUP": "/nonexistent",
}


@pytest.mark.parametrize("name", VARIABLES)
@pytest.mark.parametrize("program", ["git-daytona", "daytona-ssh"])
def test_case_117_variables_of_python(tmp_path, name, program):
    for module in ("encodings", "site", "click", "shlex", "git_daytona"):
        (tmp_path / "evil" / module).mkdir(parents=True)
        (tmp_path / "evil" / module / "__init__.py").write_text("raise SystemExit('evil')")
    told = run(str(BIN / program), "--help", cwd=tmp_path, env={name: VARIABLES[name]})
    assert (told.status, told.err) == (0, "")
    assert told.out.startswith("Usage: ")


# -- the way to the gateway, and the sandbox's disk ------------------------------------------------


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/no/such/program %h", "/no/such/program: not found"),
        ("nosuchprogram %h %p", "nosuchprogram: not found"),
        ("/etc/passwd", "/etc/passwd: Permission denied"),
        ("sh -c 'echo no way out >&2; exit 1'", "no way out"),
    ],
)
def test_case_117_a_proxy_program_that_does_not_run(
    local, repo, begin, home, monkeypatch, command, said
):
    """ssh runs it by $SHELL, whose words are shown."""
    monkeypatch.setattr(leases, "PAUSE_SECONDS", 0.0)
    monkeypatch.setenv("SHELL", "/bin/sh")
    session = begin(repo)
    session.agent("echo x >x")
    (home / ".ssh").mkdir(mode=0o700)
    (home / ".ssh/config").write_text(f"Host *\n\tProxyCommand {command}\n")
    with pytest.raises(ConnectionClosed) as failed:
        session.sync()
    assert said in failed.value.message and "\n" not in failed.value.message


def test_case_117_nothing_can_be_written_in_the_sandbox(local, repo, begin):
    """The guard says so by its status; work is not lost, and a deletion is refused."""
    session = begin(repo)
    cloud, name = session.coordinator.cloud, session.sandbox_id
    spoil = "cd project; echo work >work; rm -r ~/.cache/git-daytona; : >~/.cache/git-daytona"
    cloud.execute(name, f"sh -c '{spoil}'", timeout=60)
    for work in (session.sync, lambda: session.coordinator.delete("1")):
        with pytest.raises(SandboxCommandFailed, match="its disk is full") as failed:
            work()
        assert "git daytona exec N -- df -h" in failed.value.hint
    status = in_project("true", timeout=60).run(cloud, name).status
    assert status == report.CANNOT_WRITE
    cloud.execute(name, "rm ~/.cache/git-daytona", timeout=60)
    session.sync()
    assert repo.show("opencode/1", "work") == "work"


SMALL = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")


@pytest.mark.parametrize(
    ("script", "status", "out"),
    [
        ("echo short", 0, "short\n"),
        ("yes", 125, "y\ny\n"),
        ("head -c 1000000 /dev/zero >~/file; echo lost", 125, ""),
        ("head -c 1000000 /dev/zero >~/file; exit 3", 125, ""),
    ],
)
def test_case_117_a_full_disk_under_the_guard(tmp_path, script, status, out):
    """What came is given, and that something is missing is said (endless output fills a disk)."""
    mount = f"mount -t tmpfs -o size=128k none {shlex.quote(str(tmp_path))}"
    if run(*SMALL, mount, cwd=tmp_path).status != 0:
        pytest.skip("nothing can be mounted here: unshare --mount")
    words = ("sh", "-c", scripts.read("guard"), "sh", "id", script)
    argv = shlex.join(words)
    told = run(*SMALL, f"{mount} && {argv}", cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert told.status == status, told
    assert told.out.startswith("id\n")
    said = told.out.removeprefix("id\n")
    if status:
        first, _, rest = said.partition("\n")
        assert first.endswith("in the sandbox; is its disk full?")
        assert rest.startswith(out)
    else:
        assert said == out
