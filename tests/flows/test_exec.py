"""``git daytona exec``: output as it comes and as it is, input, signals, time limits, and what
happens when the sandbox or the session goes under it."""

import contextlib
import hashlib
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from git_daytona.base.errors import CutShort
from support import tmux
from support.lacking import needs_ps
from support.round_trip import BIN, Repo, Session, stop
from support.waiting import until

ALL = bytes(range(256))
PROGRAM = str(BIN / "git-daytona")


@pytest.fixture
def session(begin, repo) -> Session:
    return begin(repo)


@pytest.fixture
def execute(session, repo):
    """Run exec to its end, with bytes in and out."""

    def run(*words: str, stdin: bytes = b"", cwd=None, **how):
        done = subprocess.run(
            (PROGRAM, "exec", *words),
            cwd=cwd or repo.path,
            input=stdin,
            capture_output=True,
            timeout=120,
            **how,
        )
        print(done.stderr.decode(errors="replace"))
        return done

    return run


@contextlib.contextmanager
def running(repo: Repo, *words: str, **how) -> Iterator["subprocess.Popen[bytes]"]:
    """An exec that goes on while the block runs."""
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | how
    with subprocess.Popen(
        (PROGRAM, "exec", *words), cwd=repo.path, bufsize=0, **streams
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(stream, wanted: bytes) -> bytes:
    """What comes until it has that."""
    data = b""
    while wanted not in data:
        assert select.select([stream], [], [], 60)[0], data
        piece = os.read(stream.fileno(), 65536)
        assert piece, data
        data += piece
    return data


def send(process, number: int) -> None:
    """Send a signal twice, as git passes one on that it got itself: the second one when the first
    has been taken."""
    process.send_signal(number)
    bit = 1 << (number - 1)
    status = Path(f"/proc/{process.pid}/status")
    until(lambda: not int(status.read_text().split("ShdPnd:")[1].split()[0], 16) & bit)
    process.send_signal(number)


def sleeps(session: Session) -> bool:
    """Whether one of the commands that sleep so long runs in the sandbox."""
    return session.agent("pgrep -f '^sleep 100[0-9]$' >/dev/null && echo yes; true") == "yes\n"


# -- bytes -----------------------------------------------------------------------------------------


def test_case_104_bytes_both_ways_and_streams_apart(execute, session):
    session.coordinator.cloud.upload(session.sandbox_id, "/home/daytona/project/all", ALL)
    examples = {
        "cat all": (b"", ALL, b"", 0),
        "cat all >&2; printf end; exit 7": (b"", b"end", ALL, 7),
        "cat; echo done >&2": (ALL * 3, ALL * 3, b"done\n", 0),
        "printf 'no newline'": (b"", b"no newline", b"", 0),
        "printf 'cut \\303'": (b"", b"cut \xc3", b"", 0),
        'read line; echo "[$line]"': (b"one\ntwo\n", b"[one]\n", b"", 0),
        "cat | wc -c": (b"x" * 3_000_000, b"3000000\n", b"", 0),
        "head -c 5": (b"y" * 12_000_000, b"yyyyy", b"", 0),
        "true": (b"never read" * 500_000, b"", b"", 0),
        "kill -9 $$": (b"", b"", b"", 137),
    }
    for command, (stdin, out, err, status) in examples.items():
        done = execute("1", command, stdin=stdin)
        assert (done.returncode, done.stdout, done.stderr) == (status, out, err), command


def test_much_output_at_once(execute, session):
    done = execute("1", "seq 1500000; echo end >&2")
    wanted = "".join(f"{number}\n" for number in range(1, 1_500_001)).encode()
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(wanted).digest()
    assert done.stderr == b"end\n"


def test_both_into_one_file_keep_their_order(session, repo, tmp_path):
    lines = "for n in $(seq 300); do echo out $n; echo err $n >&2; done"
    with (tmp_path / "both").open("w+b") as both:
        subprocess.run((PROGRAM, "exec", "1", lines), cwd=repo.path, stdout=both, stderr=both)
        both.seek(0)
        wanted = "".join(f"out {n}\nerr {n}\n" for n in range(1, 301))
        assert both.read().decode() == wanted


# -- when ------------------------------------------------------------------------------------------


def test_a_short_command_is_one_call(execute, session, local):
    local.forget_calls()
    assert execute("1", "cat; echo err >&2", stdin=b"words").stdout == b"words"
    assert len([call for call in local.calls if "process" in call.route]) == 1
    assert len(local.calls) == 2, "and one to find the sandbox, of each process"


def test_output_comes_while_it_runs(session, repo):
    """Nothing goes on there until we have seen what came before."""
    wait = "until [ -e go$n ]; do sleep 0.05; done"
    command = f"for n in 1 2; do printf step$n; echo err$n >&2; {wait}; done"
    with running(repo, "1", command, stdin=subprocess.DEVNULL) as process:
        for step in (b"1", b"2"):
            assert read_until(process.stdout, b"step" + step) == b"step" + step
            read_until(process.stderr, b"err" + step)
            session.agent(f"touch go{step.decode()}")
        assert process.wait(60) == 0


def test_a_conversation(session, repo):
    """Input that comes later, in answer to output."""
    with running(
        repo, "1", 'echo ready; while read -r line; do echo "got $line"; done; echo bye'
    ) as it:
        read_until(it.stdout, b"ready\n")
        for word in (b"one", b"two"):
            it.stdin.write(word + b"\n")
            read_until(it.stdout, b"got " + word + b"\n")
        it.stdin.close()
        assert read_until(it.stdout, b"bye\n") == b"bye\n" and it.wait(60) == 0


def test_input_that_nobody_ends_holds_nothing_up(session, repo):
    with running(repo, "1", "echo done") as process:
        assert process.wait(60) == 0


# -- how it ends -----------------------------------------------------------------------------------


def test_case_104_ctrl_c_ends_it_there(session, repo):
    examples = {
        "sleep 1000": 130,
        "trap 'echo asked; exit 5' INT; echo ready; while :; do sleep 0.1; done": 5,
        "sleep 1001 | sleep 1002": 130,
    }
    for command, status in examples.items():
        with running(repo, "1", f"touch begun; {command}", stdin=subprocess.DEVNULL) as process:
            until(lambda: session.agent("rm begun 2>/dev/null && echo yes; true"))
            send(process, signal.SIGINT)
            assert process.wait(60) == status, command
            assert not sleeps(session)


def test_a_command_that_ignores_ctrl_c(session, repo):
    command = "trap '' INT; echo ready; while :; do sleep 0.1; done"
    with running(repo, "1", command, stdin=subprocess.DEVNULL) as process:
        read_until(process.stdout, b"ready\n")
        process.send_signal(signal.SIGINT)
        assert b"Ctrl-C again ends it" in read_until(process.stderr, b"for good\n")
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 137
    assert not sleeps(session)


@pytest.mark.parametrize("how", ["a closed pipe", "SIGTERM", "SIGHUP"])
def test_it_does_not_go_on_alone(session, repo, how):
    command = "echo $$ >pid; while :; do echo more; sleep 0.1; done"
    with running(repo, "1", command, stdin=subprocess.DEVNULL) as process:
        read_until(process.stdout, b"more\n")
        if how == "a closed pipe":
            process.stdout.close()
        else:
            send(process, getattr(signal, how))
        statuses = {"a closed pipe": 141, "SIGTERM": 143, "SIGHUP": 129}
        assert process.wait(60) == statuses[how]
    until(lambda: session.agent("kill -0 $(cat pid) 2>/dev/null || echo gone; true"))


def test_under_nohup_it_goes_on(session, repo):
    with running(
        repo, "1", "echo ready; until [ -e go ]; do sleep 0.05; done; echo end",
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    ) as process:  # fmt: skip
        read_until(process.stdout, b"ready\n")
        process.send_signal(signal.SIGHUP)
        session.agent("touch go")
        assert read_until(process.stdout, b"end\n") and process.wait(60) == 0


def test_its_time_is_over(execute, session):
    """In the middle of a character, with what came so far, and with all that it started."""
    done = execute(
        "--timeout", "1", "1", "printf 'so far \\303'; echo err >&2; sleep 1003 & sleep 1003"
    )
    assert (done.returncode, done.stdout) == (18, b"so far \xc3")
    lines = done.stderr.decode().splitlines()
    assert lines[0] == "err"
    assert "error: the command was ended: its time was over [timed-out]" in done.stderr.decode()
    assert not sleeps(session)


# -- what happens under it -------------------------------------------------------------------------


@pytest.fixture
def begun(session, repo):
    """An exec whose first output is here, so that it is followed; how it ends."""
    stack = contextlib.ExitStack()
    process = stack.enter_context(
        running(repo, "1", "echo once >>~/ran; echo begun; sleep 1004", stdin=subprocess.DEVNULL)
    )
    with stack:
        read_until(process.stdout, b"begun\n")
        yield process


def ended(process) -> tuple[int, str]:
    status = process.wait(120)
    return status, process.stderr.read().decode()


def test_case_106_the_sandbox_stops_under_it_while_it_is_followed(session, begun):
    stop(session.coordinator.cloud, session.sandbox_id)
    status, said = ended(begun)
    assert status == CutShort.status and "the sandbox stopped while this ran [cut-short]" in said
    assert session.coordinator.cloud.get(session.sandbox_id).state == "stopped", "and stays so"
    assert session.agent("cat ~/ran") == "once\n"


def test_case_92_the_session_is_deleted_while_it_is_followed(
    session, begun, coordinate, repo, local
):
    coordinate(repo.path).delete("1")
    status, said = ended(begun)
    assert status == CutShort.status and "session 1 was deleted while this ran" in said
    assert coordinate(repo.path).sessions() == [] and local.counts["create"] == 1


def test_case_92_the_sandbox_is_deleted_while_it_is_followed(session, begun, local):
    session.coordinator.cloud.delete(session.sandbox_id)
    status, said = ended(begun)
    assert status == CutShort.status
    assert "the sandbox of session 1 was deleted while this ran" in said
    assert local.counts["create"] == 1


def test_case_106_what_runs_it_is_killed(session, begun):
    session.agent("kill -9 $(cut -d' ' -f1 ~/.cache/git-daytona-exec/*/runner)")
    status, said = ended(begun)
    assert status == CutShort.status and "something in it ended it" in said


def test_lost_answers_lose_and_repeat_nothing(execute, session, local):
    command = "echo once >>~/ran; cat; sleep 2; echo end"
    examples = [("before", 1), ("after", 1), ("after", 2)]
    for drop, times in examples:
        with local.faults.call(route="process/execute", drop=drop, times=times):
            done = execute("1", command, stdin=b"word\n")
        assert (done.returncode, done.stdout) == (0, b"word\nend\n"), done.stderr
    assert session.agent("cat ~/ran") == "once\n" * len(examples)


@needs_ps
def test_a_connection_that_is_dead_for_a_while(session, repo, local, begun):
    with local.faults.call(route="process/execute", drop="after", times=5) as dead:
        assert dead.reached.wait(60)
    session.agent("pkill -x sleep")
    assert ended(begun)[0] == 143


# -- where -----------------------------------------------------------------------------------------


def test_it_begins_where_one_stands(execute, session, repo, tmp_path):
    session.agent("mkdir -p 'a dir/below'")
    for place in ("a dir/below", "only here"):
        (repo.path / place).mkdir(parents=True)
    examples = {
        repo.path: "",
        repo.path / "a dir" / "below": "/a dir/below",
        repo.path / "only here": "",
    }
    for here, there in examples.items():
        assert execute("1", "pwd", cwd=here).stdout.decode() == f"/home/daytona/project{there}\n"


# -- a terminal ------------------------------------------------------------------------------------


def test_a_terminal_gets_colours_and_nothing_else(session, repo):
    command = (
        "printf '\\033[31mred\\033[0m \\033]0;evil\\007 \\033[2J \\302\\233x\\n'; "
        "printf '\\033[3'; sleep 2; printf '2mgreen'"
    )
    master, slave = os.openpty()
    with os.fdopen(master, "rb", buffering=0) as screen:
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), slave)
        done = subprocess.run((PROGRAM, "exec", "1", command), cwd=repo.path, timeout=60, **streams)
        os.close(slave)
        shown = b""
        with contextlib.suppress(OSError):  # the terminal has ended
            while piece := os.read(screen.fileno(), 4096):
                shown += piece
    assert done.returncode == 0
    assert shown.startswith(b"\x1b[31mred\x1b[0m \\x1b]0;evil\\x07 \\x1b[2J \\x9bx\r\n"), shown
    assert shown.endswith(b"\x1b[32mgreen\x1b[0m"), shown


def test_a_whole_terminal(session, repo):
    session.agent("mkdir below")
    (repo.path / "below").mkdir()
    command = 'stty size; pwd; tty -s && echo on a terminal; read -r x; echo "it\'s $x"; sleep 1005'
    words = [PROGRAM, "exec", "-t", "--", command]
    with tmux.start(words, size=(90, 20), cwd=repo.path / "below") as screen:
        screen.wait_for(r"\A20 90\n/home/daytona/project/below\non a terminal$")
        screen.type("here\n")
        screen.wait_for("^it's here$")
        until(lambda: sleeps(session))
        screen.send("C-c")
        screen.status()
    assert not sleeps(session)


def test_no_terminal_to_give(execute):
    done = execute("-t", "1", "true")
    assert done.returncode == 2 and b"-t needs a terminal" in done.stderr


# -- argument lists --------------------------------------------------------------------------------


@needs_ps
def test_case_101_no_argument_list_has_the_commands_text(execute, session):
    examples = ["wonderful", "node server.js", "until"]
    for word in examples:
        done = execute("1", f"pgrep -f '{word}'; pkill -f '{word}'; echo survived {word}")
        assert done.stdout.decode() == f"survived {word}\n", word
        assert session.agent(f"pkill -f '{word}'; echo survived") == "survived\n"


def test_ctrl_c_on_a_terminal_as_git_has_it(session, repo):
    """git, whose subcommand it is, gets it as well; the command ends as it wants to."""
    command = "trap 'echo asked; exit 5' INT; echo ready; while :; do sleep 0.1; done"
    env = {"PATH": f"{BIN}:{os.environ['PATH']}"}
    words = ["git", "daytona", "exec", "1", command]
    with tmux.start(words, env, (90, 20), cwd=repo.path) as screen:
        screen.wait_for("^ready$")
        screen.send("C-c")
        screen.wait_for(r"^(\^C)?asked$")
        screen.status()
