"""What people read: the session's number and no id, advice that leads somewhere, an answer that is
no interruption, and what is left after Ctrl-C."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from git_daytona.git import changes
from git_daytona.git import repository as git
from git_daytona.sandbox import ownership
from git_daytona.sessions import project, state_file
from support import tmux
from support.round_trip import BIN

PROGRAM = (sys.executable, "-m", "git_daytona")
CALLED = "a title of its own"


@pytest.fixture
def unreachable(monkeypatch):
    """An API that nothing listens for; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/api"
    monkeypatch.setattr("git_daytona.transfer.leases._wait", lambda state: 0.01)
    monkeypatch.setenv("DAYTONA_API_URL", url)
    return url


def test_the_number_that_the_user_knows(local, repo, begin, tell, unreachable, monkeypatch):
    """No id of a sandbox, and no step that means nothing to the user, in front of the reason."""
    monkeypatch.setenv("DAYTONA_API_URL", local.api_url)
    session = begin(repo)
    monkeypatch.setenv("DAYTONA_API_URL", unreachable)
    file, id_ = session.coordinator.state, session.coordinator.find("1").id
    file.edit(id_, api_url=unreachable)
    for words in (("exec", "1", "true"), ("sync", "1"), ("delete", "1"), ("open", "1", "80")):
        told = tell("git-daytona", *words, cwd=repo.path)
        error, hint = told.complaint
        assert told.status == 4, words
        assert error == (
            f"git-daytona: error: cannot reach Daytona at {unreachable}: nothing listens there"
            " (session 1) [api-unreachable]"
        )
        assert "check the network and DAYTONA_API_URL" in hint
        assert session.sandbox_id not in told.out + told.err and id_ not in told.err, words


@pytest.mark.parametrize(
    ("route", "fault", "says"),
    [
        ("^get$", {"status": 503}, "could not find the sandbox: the server failed (HTTP 503)"),
        ("process/execute", {"status": 404}, "could not run a command in the sandbox"),
        ("^get$", {"status": 404}, ""),
    ],
)
def test_no_id_of_a_sandbox_is_in_an_error(local, repo, begin, tell, route, fault, says):
    session = begin(repo)
    with local.faults.call(route=route, times=20, **fault):
        told = tell("git-daytona", "sync", "1", cwd=repo.path)
    assert told.status != 0 and says in told.err
    assert " (session 1) [" in told.complaint[0] and session.sandbox_id not in told.err


def test_a_link_that_is_none(local, repo, begin, tell):
    begin(repo)
    with local.faults.call(route="signed-preview-url", body='{"url": "no link"}'):
        error, _ = tell("git-daytona", "open", "1", "8000", cwd=repo.path).complaint
    assert error == (
        "git-daytona: error: the Daytona API returned an invalid preview URL (session 1)"
        " [bad-answer]"
    )


def test_advice_that_does_not_go_in_circles(local, tell, tmp_path):
    """A session in which nothing was committed: a sync cannot bring its branch."""
    place = tmp_path / "empty"
    subprocess.run(("git", "init", "-q", str(place)), check=True)
    assert tell("git-daytona", "start", cwd=place).status == 0
    assert tell("git-daytona", "sync", "1", cwd=place).out == "nothing new in the sandbox\n"
    error, hint = tell("git-daytona", "diff", "1", cwd=place).complaint
    assert "there is no local branch 'opencode/1'" in error
    assert "nothing was committed there yet" in hint and "sync" not in hint
    assert tell("git-daytona", "exec", "1", "echo a >a", cwd=place).status == 0
    assert "opencode/1 is at" in tell("git-daytona", "sync", "1", cwd=place).out


def test_a_failure_that_is_over(local, repo, begin, tell):
    """Of a deletion that was taken back nothing is shown as failed."""
    session = begin(repo)
    session.agent("git init -q inner; echo 1 >inner/x; git -C inner add x")
    assert tell("git-daytona", "delete", "1", cwd=repo.path).status == 10
    assert "not deleted" in tell("git-daytona", "status", cwd=repo.path).err
    assert tell("git-daytona", "delete", "--cancel", "1", cwd=repo.path).out == "kept\n"
    told = tell("git-daytona", "status", cwd=repo.path)
    assert "pending" in told.out and "not deleted" not in told.out + told.err


def test_no_is_an_answer(local, repo, coordinate, tell):
    """Neither a failure nor an interruption; and where nobody can answer, that is said."""
    coordinator = coordinate(repo.path)
    started = coordinator.start("ses_1").session
    coordinator.state.set_title(started.id, CALLED)
    coordinator.forget("1")
    told = tell("git-daytona", "prune", cwd=repo.path, stdin=b"n\n")
    assert told.status == 130 and told.err.endswith("nothing was changed\n")
    assert "error" not in told.err and "interrupted" not in told.err
    # Whose it was: repository, title and age.
    name = re.escape(project.name_of(coordinator.repository))
    line = rf"sandbox {started.sandbox_id} \(started, \d+s old\), repository '{name}', "
    assert re.fullmatch(rf"{line}title '{CALLED}'\n", told.out)
    nobody = tell("git-daytona", "prune", cwd=repo.path)
    assert nobody.status == 2 and nobody.err.endswith("hint: add --yes if you are sure\n")
    assert started.sandbox_id in [box.id for box in local.sandboxes]
    assert tell("git-daytona", "prune", cwd=repo.path, stdin=b"y\n").out.endswith("pruned\n")
    assert started.sandbox_id not in [box.id for box in local.sandboxes]
    assert ownership.title(local.api_url, started.sandbox_id) == ""


@pytest.mark.parametrize(
    ("route", "says"),
    [
        ("^create$", "a sandbox may have been made; make a session of it: git daytona recover"),
        (
            "process/execute",
            "session 1 has a sandbox, and the project is not in it yet; go on: git daytona sync 1;"
            " or give it up: git daytona delete 1",
        ),
    ],
)
def test_ctrl_c_in_start_says_what_is_left(local, repo, tell, route, says):
    argv = (*PROGRAM, "git-daytona", "start")
    with local.faults.call(route=route, hang=True) as held:
        with subprocess.Popen(argv, cwd=repo.path, stderr=subprocess.PIPE, text=True) as process:
            assert held.reached.wait(60)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        held.release()
    assert process.returncode == 130
    assert err.endswith(f"interrupted\nhint: {says}\n"), err
    # What it says works.
    for words in re.findall(r"git daytona ([a-z]+(?: 1)?)", says):
        told = tell("git-daytona", *words.split(), cwd=repo.path)
        assert told.status == 0, (words, told)


def test_help_is_as_wide_as_the_terminal(tell, monkeypatch):
    widths = {}
    for columns in (60, 80, 110, 300):
        monkeypatch.setenv("COLUMNS", str(columns))
        text = tell("git-daytona", "status", "--help").out
        widths[columns] = max(map(len, text.splitlines()))
    assert widths[60] <= 60 < widths[110] <= 110 < widths[300] <= 120


def test_env_for_another_terminal(tell, tmp_path):
    """Of the Daytona that runs on a root; where none does, that is all that happens."""
    root = tmp_path / "root"
    argv = (*PROGRAM, "daytona-local", "serve", "--root", str(root))
    none = tell("daytona-local", "env", "--root", str(root))
    assert none.status == 1 and none.complaint[1] == "hint: start one: daytona-local serve"
    assert not root.exists()
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            printed = process.stdout.readline() + process.stdout.readline()
            said = [process.stderr.readline() for _ in range(2)]
            assert f'eval "$(daytona-local env --root {root})"' in said[-1]
            told = tell("daytona-local", "env", "--root", str(root))
            assert (told.status, told.out, told.err) == (0, printed, "")
        finally:
            process.terminate()
    assert tell("daytona-local", "env", "--root", str(root)).status == 1


def test_exec_says_where_one_is_and_that_nothing_is_left(repo):
    env = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    script = "git-daytona start 2>&1 >started; read line"
    argv = [str(BIN / "daytona-local"), "exec", "--", "sh", "-c", script]
    with tmux.start(argv, env=env, size=(110, 30), cwd=repo.path) as screen:
        screen.wait_for(r"^daytona-local: git daytona uses a Daytona of its own here, on http://")
        screen.wait_for(r"^pushing ")
        screen.send("Enter")
        screen.wait_for(r"^daytona-local: that Daytona is gone, and nothing of it is left$")
    assert Path(repo.path, "started").read_text().startswith("session 1 started")
    assert state_file.all_sessions() == []


def test_the_doctor_on_a_terminal(repo, unreachable):
    """In columns, with a hint below its check, broken where the window ends."""
    argv = [str(BIN / "git-daytona"), "doctor"]
    with tmux.start(argv, size=(70, 40), cwd=repo.path) as screen:
        screen.wait_for(r"^ok +daytona-local  |^ok +daytona-local +\S")
        lines = screen.screen().splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("FAIL    api  "))
    assert lines[at] == "FAIL    api            cannot reach Daytona at"
    assert lines[at + 1].startswith(f"{' ' * 23}{unreachable}: nothing")
    assert any(line.startswith(f"{' ' * 23}hint: check") for line in lines[at + 2 : at + 4])


def test_what_came_in_a_few_words(repo):
    """For toasts and the last line of a run; what a sandbox calls a file is no escape sequence."""
    repository = git.discover(repo.path)
    first = repo.commit("one")
    second = repo.commit("\x1b[31mred\n")
    third = repo.commit("folder/three")
    assert changes.described(repository, first, first) == "0 commits"
    assert changes.described(repository, second, third) == "1 commit, folder/three"
    said = changes.described(repository, first, third)
    assert said == "2 commits, \\x1b[31mred, folder/three"
    assert changes.described(repository, None, third).endswith(" and 2 more")
    assert changes.described(repository, "0" * 40, third) == "", "git does not know it any more"
