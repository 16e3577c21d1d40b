"""``git daytona shell`` on a terminal: what is typed, seen and resized, how long its token lives,
and how it ends."""

import os
import subprocess
import urllib.request
from pathlib import Path

import pytest

from git_daytona.local.core.faults import CallFault
from git_daytona.sandbox import terminal as sandbox_terminal
from support import tmux
from support.lacking import needs_ps
from support.processes import descendants, gone
from support.round_trip import BIN
from support.waiting import until


@pytest.fixture
def session(begin, repo):
    return begin(repo)


def ended(local) -> bool:
    """Whether every token that was minted is revoked."""
    routes = [call.route for call in local.calls]
    return routes.count("mint") > 0 and routes.count("revoke") >= routes.count("mint")


def test_a_shell_on_a_terminal(local, repo, session):
    """Prompt, echo, size, resize, an editor, Ctrl-C and the status; no token is minted for it."""
    local.forget_calls()
    with tmux.start(
        [str(BIN / "git-daytona"), "shell", "1"], size=(91, 27), cwd=repo.path
    ) as screen:
        screen.type("PS1='READY> '; stty size; pwd; tty -s && echo on a terminal\n")
        screen.wait_for(r"^27 91$")
        screen.wait_for(r"^/home/daytona/project$")
        screen.wait_for(r"^on a terminal$")
        screen.wait_for(r"^READY>$")
        session.agent("echo made meanwhile >new.txt")
        session.sync()  # does not wait for the shell
        screen.resize(70, 20)
        # The size goes its own way there, and may come after what is typed.
        screen.type("until stty size | grep '^20 70$'; do sleep 0.1; done\n")
        screen.wait_for(r"^20 70$")
        screen.type("sleep 1000\n")
        until(lambda: "sleep 1000" in screen.screen())
        screen.send("C-c")  # goes there, and ends nothing here
        screen.type("echo back after $?\n")
        screen.wait_for(r"^back after 130$")
        screen.type("vi -u NONE written.txt\n")
        screen.wait_for(r"^~$")
        screen.type("ihello from vi")
        screen.send("Escape")
        screen.type(":wq\n")
        screen.wait_for(r"^READY>$")
        assert session.agent("cat written.txt") == "hello from vi\n"
        below = [screen.pid, *(each.pid for each in descendants(screen.pid))]
        assert not any(
            local.api_key.encode() in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in below
        )
        screen.type("exit 7\n")
        assert screen.status() == 7
    assert local.counts["mint"] == 1, "the sync's, and no other"


def test_it_says_that_there_is_no_connection(local, repo, session):
    local.faults.add(CallFault(route="pty/.*/connect", drop="before"))
    script = f"{BIN}/git-daytona shell 1; echo status $?; stty -a | grep -c ' icanon'; read end"
    with tmux.start(["sh", "-c", script], cwd=repo.path) as screen:
        screen.wait_for(r"error: the connection to the sandbox's terminal")
        screen.wait_for(r"^status 10$")
        screen.wait_for(r"^1$")  # our terminal is as it was


@pytest.mark.parametrize(("status", "ours"), [(401, 7), (403, 7), (500, 15)])
def test_a_terminal_that_is_refused(local, repo, session, status, ours):
    local.faults.add(CallFault(route="pty/.*/connect", status=status))
    with tmux.start(
        ["sh", "-c", f"{BIN}/git-daytona shell 1; echo status $?; read end"],
        size=(250, 20),
        cwd=repo.path,
    ) as screen:
        screen.wait_for("error: .*connect to the terminal of the sandbox")
        screen.wait_for(f"^status {ours}$")


def test_a_server_that_does_not_answer_can_be_left(local, repo, session):
    held = local.faults.add(CallFault(route="pty/.*/connect", hang=True))
    with tmux.start([str(BIN / "git-daytona"), "shell", "1"], cwd=repo.path) as screen:
        assert held.reached.wait(30)
        screen.send("C-c")
        assert screen.status() == 130


def test_much_output_and_a_directory_that_is_gone(local, repo, session):
    session.agent("mv ~/project ~/away")
    with tmux.start([str(BIN / "git-daytona"), "shell", "1"], cwd=repo.path) as screen:
        screen.type("yes 0123456789 | head -c 1000000; pwd; echo through $((6*7))\n")
        screen.wait_for(r"^through 42$", 90)
        assert "/home/daytona\n" in screen.screen()
        screen.type("exit 5\n")
        assert screen.status() == 5
    session.agent("mv ~/away ~/project")


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ('{"exitCode":0}', 0),
        ('{"exitCode":130,"exitReason":"Ctrl+C"}', 130),
        ('{"exitCode":-1}', 1),
        ("", None),
        ('{"exitCode":true}', None),
        ('{"exitCode":"0"}', None),
        ("[]", None),
        ("[" * 100_000, None),
    ],
)
def test_how_a_shell_ended(reason, status):
    assert sandbox_terminal._status(reason) == status


@needs_ps
def test_a_hangup_ends_everything(local, repo, session):
    with tmux.start([str(BIN / "git-daytona"), "shell", "1"], cwd=repo.path) as screen:
        screen.type("echo here $((6*7)); sleep 1234\n")
        screen.wait_for(r"^here 42$")
        pids = [screen.pid, *(each.pid for each in descendants(screen.pid))]
    assert gone(*pids)
    until(lambda: "sleep 1234" not in session.agent("ps -eo args"))


def test_without_a_terminal_it_reads_commands(local, repo, session, command, canary):
    """And its token is in no process's arguments or environment, and in no file, log or output."""
    lines = "echo a line; pwd; env | grep -c DAYTONA_API_KEY; sleep 1; exit 3\n"
    with canary.watching():
        done = command("git-daytona", "shell", "1", cwd=repo.path, stdin=lines)
    assert canary.tokens and {"ssh", "git-daytona"} & set(canary.seen)
    canary.texts["output"] = done.out + done.err
    assert canary.leaks() == []
    assert (done.status, done.out) == (3, "a line\n/home/daytona/project\n0\n")
    assert "hint" not in done.err


@pytest.mark.parametrize("place", [0, 3, 40, 200])
def test_a_piped_script_runs_at_most_once(local, repo, session, command, place):
    """However the channel breaks: it runs from its beginning on one connection, or not at all, or
    the status says that it was cut."""
    local.faults.gateway.cut_output_after = place
    script = (
        "echo run >>/home/daytona/runs; head -c 1000 /dev/zero; sleep 0.5; echo second "
        ">>/home/daytona/runs\n"
    )
    done = command("git-daytona", "shell", "1", cwd=repo.path, stdin=script)
    assert done.status in (10, 255)
    local.faults.clear()
    runs = session.agent("sleep 1; cat ~/runs 2>/dev/null; true").split()
    assert runs in ([], ["run"], ["run", "second"])


def test_what_can_go_wrong(local, repo, session, command):
    with local.faults.call(route="^mint$", status=403):
        refused = command("git-daytona", "shell", "1", cwd=repo.path)
    assert refused.status == 7
    assert command("git-daytona", "shell", "2", cwd=repo.path).status == 8
    local.forget_calls()
    local.faults.gateway.drop_after_handshake = -1
    closed = command("git-daytona", "shell", "1", cwd=repo.path)
    assert (
        closed.status == 10
        and "error: the gateway did not take the connection, or closed it" in closed.err
    )
    assert ended(local) and [call.route for call in local.calls].count("mint") == 3
    local.faults.gateway.drop_after_handshake = 1  # a sandbox whose ssh has just started
    done = command("git-daytona", "shell", "1", cwd=repo.path, stdin="echo there\n")
    assert (done.status, done.out) == (0, "there\n")


# -- open ------------------------------------------------------------------------------------------


def test_open(local, repo, session, command, tmp_path, home):
    nothing = command("git-daytona", "open", "1", cwd=repo.path)
    assert nothing.status == 8 and "nothing listens in the sandbox" in nothing.err
    serve = (
        "import http.server as h; s = h.HTTPServer(('127.0.0.1', 0), "
        "h.SimpleHTTPRequestHandler); print(s.server_port, flush=True)"
    )
    session.agent(f'nohup python3 -c "{serve}; s.serve_forever()" >port 2>/dev/null </dev/null &')
    port = until(lambda: session.agent("cat port").strip())
    found = command("git-daytona", "open", "1", cwd=repo.path)
    assert found.status == 0, found.err
    link = found.out.strip()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    assert browser.open(link, timeout=20).status == 200
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/called\n')
    browser.chmod(0o755)
    opened = command(
        "git-daytona",
        "open",
        "--browser",
        "sandbox-1",
        port,
        cwd=repo.path,
        env={"BROWSER": f"{browser} %s"},
    )
    assert opened.status == 0
    page = home / ".local/state/git-daytona/open.html"
    assert (
        until((tmp_path / "called").exists)
        and (tmp_path / "called").read_text() == f"file://{page}\n"
    )
    assert opened.out.strip() in page.read_text() and page.stat().st_mode & 0o777 == 0o600
    other = command("git-daytona", "open", "1", "1", cwd=repo.path)
    assert (
        other.status == 0 and "warning: nothing listens on port 1 in the sandbox yet" in other.err
    )
    session.agent(f'nohup python3 -c "{serve}; s.serve_forever()" >port2 2>/dev/null </dev/null &')
    until(lambda: session.agent("cat port2").strip())
    several = command("git-daytona", "open", "1", cwd=repo.path)
    assert several.status == 2 and "several ports listen there: " in several.err


@needs_ps
def test_case_113_a_script_runs_once_and_whole_or_the_status_says_no(
    local, repo, session, command, tmp_path
):
    """Whichever connections the gateway closes, and when; longer than a pipe holds, and without a
    newline at its end."""
    gateway = local.faults.gateway
    lines = [f"echo {number} >>~/runs # {'x' * 60}" for number in range(2000)]
    script = "\n".join([*lines, "echo end >>~/runs"])
    whole = "".join(f"{number}\n" for number in range(2000)) + "end\n"
    examples = {
        "the first before its handshake": {"drop_before_handshake": 1},
        "the first two after it": {"drop_after_handshake": 2},
        "the first in the middle of the script": {"drop_after_bytes": 90_000},
        "with a status of success": {"cut_output_after": 0, "cut_with_status": True},
        "without a status": {"lost_statuses": 1.0},
    }
    outcomes = {}
    for what, faults in examples.items():
        before = {name: getattr(gateway, name) for name in faults}
        for name, value in faults.items():
            setattr(gateway, name, value)
        done = command("git-daytona", "shell", "1", cwd=repo.path, stdin=script)
        for name, value in before.items():
            setattr(gateway, name, value)
        # a shell that lost its connection goes on with what it has read
        session.agent("while pgrep -x bash; do sleep 0.1; done >/dev/null; touch ~/runs")
        runs = session.agent("cat ~/runs; rm ~/runs")
        outcomes[what] = (done.status, runs == whole)
        assert whole.startswith(runs), "never twice"
        assert done.status != 0 or runs == whole, what
    assert outcomes["the first before its handshake"] == (0, True)
    assert outcomes["the first two after it"] == (0, True)
    descriptor = os.open(tmp_path / "for writing only", os.O_WRONLY | os.O_CREAT)
    told = subprocess.run(
        (str(BIN / "git-daytona"), "shell", "1"),
        cwd=repo.path,
        stdin=descriptor,
        capture_output=True,
        timeout=60,
    )
    os.close(descriptor)
    assert told.returncode == 1 and b"standard input could not be read: Bad file" in told.stderr
