"""Which session a command is for: none named, several, all, those that are merged."""

import os

import pytest

from git_daytona.git.refs import Names
from git_daytona.sessions import state
from support.round_trip import Repo


@pytest.fixture
def record(repo: Repo, coordinate):
    """Put sessions on record that need no sandbox: their numbers and titles."""

    def put(*sessions: tuple[int, str], place: Repo = repo) -> None:
        coordinator = coordinate(place.path)
        head = place.git("rev-parse", "HEAD")
        for number, title in sessions:
            done = state.GitReturn(state.SYNCED, "done", 1)
            names = Names(number)
            place.git("update-ref", names.ref, head)
            place.git("update-ref", names.base, head)
            session = state.Session(
                f"ses_{number}", f"box-{number}", number, str(place.path), 1, 1, done
            )
            coordinator.state.put(session)
            coordinator.state.edit(session.id, title=title, git_dir=coordinator.git_dir)

    return put


def test_none_is_named(repo, record, tell, tmp_path):
    """The only one; of several the one whose branch is checked out, here or in a worktree."""

    def wait(place=repo.path):
        return tell("git-daytona", "wait", "--timeout", "0", cwd=place)

    error, hint = wait().complaint
    assert "error: no sessions here yet [not-found]" in error and "git daytona start" in hint
    record((1, "fix the readme"))
    assert (wait().status, wait().out) == (0, "done\n")
    record((2, "add tests"), (3, ""))
    asked = wait()
    assert asked.status == 2
    error, hint = asked.complaint
    assert "error: which session? 1 (fix the readme), 2 (add tests), 3 [usage]" in error
    assert "git daytona status" in hint
    repo.git("worktree", "add", "-q", str(tmp_path / "tree"), "opencode/3")
    assert wait(tmp_path / "tree").status == 0
    repo.git("checkout", "-q", "opencode/2")
    (repo.path / "below").mkdir()
    assert wait(repo.path / "below").status == 0
    coordinate = tell("git-daytona", "log", "--format=%s", cwd=repo.path)
    assert "git log refs/daytona/base/2..opencode/2 --format=%s" in coordinate.err


def test_several_and_all(repo, record, tell):
    """One that fails does not keep the others from their turn; of several each line says whose."""
    record((1, ""), (2, ""), (5, ""))
    done = tell("git-daytona", "wait", "1", "opencode/2", "sandbox-1", "5", cwd=repo.path)
    assert done.out == "session 1: done\nsession opencode/2: done\nsession 5: done\n"
    done = tell("git-daytona", "wait", "1", "3", "5", cwd=repo.path)
    assert (done.status, done.out) == (8, "session 1: done\nsession 5: done\n")
    assert "error: session 3: there is no session '3'" in done.complaint[0]
    done = tell("git-daytona", "wait", "--all", cwd=repo.path)
    assert done.out.splitlines() == [f"session {number}: done" for number in (1, 2, 5)]
    done = tell("git-daytona", "wait", "--all", "1", cwd=repo.path)
    assert done.status == 2 and "--all and N exclude each other" in done.complaint[0]


def test_work_of_several(local, repo, begin, tell):
    for number in (1, 2):
        begin(repo).agent(f"echo {number} >file{number}")
    done = tell("git-daytona", "sync", "2", "1", cwd=repo.path)
    assert done.status == 0
    assert [line[:11] for line in done.out.splitlines()] == ["session 2: ", "session 1: "]
    assert [repo.show(f"opencode/{number}", f"file{number}") for number in (1, 2)] == ["1", "2"]


def test_delete_merged(local, repo, begin, tell, coordinate):
    """Work in HEAD or its upstream goes; what has just begun, is not merged, or turns out to have
    more, stays."""
    sessions = {name: begin(repo) for name in ("merged", "upstream", "fresh", "apart", "more")}
    for name in ("merged", "upstream", "apart", "more"):
        sessions[name].agent(f"echo {name} >{name}")
        sessions[name].sync()
    for number in (1, 5):
        repo.git("merge", "-q", "--no-edit", f"opencode/{number}")
    repo.git("branch", "up", "opencode/2")
    repo.git("branch", "--set-upstream-to", "up")
    sessions["more"].agent("echo again >again")
    done = tell("git-daytona", "delete", "--merged", cwd=repo.path)
    assert done.status == 1
    assert "error: session 5: not deleted: opencode/5 has got commits" in done.complaint[0]
    assert [line for line in done.out.splitlines() if "deleted" in line] == [
        "session 1: deleted",
        "session 2: deleted",
    ]
    left = coordinate(repo.path).sessions()
    assert [each.number for each in left] == [3, 4, 5] and not any(each.deleting for each in left)
    assert repo.show("opencode/5", "again") == "again", "it is here now"
    repo.git("branch", "--unset-upstream")
    none = tell("git-daytona", "delete", "--merged", cwd=repo.path)
    assert (none.status, none.out) == (0, "") and "no session has its work merged" in none.err
    for words in (("--merged", "3"), ("--merged", "--all"), ("--merged", "--force")):
        assert tell("git-daytona", "delete", *words, cwd=repo.path).status == 2
    done = tell("git-daytona", "rm", "--all", cwd=repo.path)
    assert done.status == 0 and coordinate(repo.path).sessions() == []


def test_a_number_without_a_repository(local, repo, tell, tmp_path):
    plain = tmp_path / "plain"
    plain.mkdir()
    (tmp_path / "other").mkdir()
    for number in (1, 2):
        started = tell("git-daytona", "start", "--no-sync", cwd=plain)
        assert f"session {number} started: sandbox " in started.out, started
    assert tell("git-daytona", "exec", "2", "pwd", cwd=plain).out == "/home/daytona/project\n"
    assert (
        tell("git-daytona", "exec", "--", "pwd", cwd=plain)
        .complaint[0]
        .endswith("error: which session? 1, 2 [usage]")
    )
    rows = tell("git-daytona", "ls", "--porcelain", cwd=plain).out.splitlines()
    assert [row.split("\t")[:2] for row in rows] == [["1", "-"], ["2", "-"]]
    other = tell("git-daytona", "start", "--no-sync", cwd=tmp_path / "other")
    assert "session 1 started" in other.out, "each directory has its own"
    assert tell("git-daytona", "delete", "1", "2", cwd=plain).status == 0
    # where there is a repository no number is given twice
    assert "session 1 started" in tell("git-daytona", "start", "--no-sync", cwd=repo.path).out
    assert "session 2 started" in tell("git-daytona", "start", cwd=repo.path).out
    assert tell("git-daytona", "delete", "--all", cwd=repo.path).status == 0


def test_help_and_other_names(repo, tell, tmp_path, monkeypatch):
    asked = tell("git-daytona", "help", "rm", cwd=repo.path)
    assert asked.status == 0 and asked.out == tell("git-daytona", "delete", "-h").out.replace(
        "delete ", "rm ", 1
    )
    wrong = tell("git-daytona", "help", "delte", cwd=repo.path)
    assert wrong.status == 2 and "did you mean 'delete'?" in wrong.complaint[0]
    for alias, command in {"list": "status", "ps": "status", "ssh": "shell"}.items():
        assert (
            tell("git-daytona", alias, "-h").out.splitlines()[2:]
            == (tell("git-daytona", command, "-h").out.splitlines()[2:])
        )
    man = tmp_path / "man"
    man.write_text('#!/bin/sh\necho "man $1"; grep -c "^.SH" "$1"\n')
    man.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert "/git-daytona.1\n" in tell("git-daytona", "help").out
    man.write_text("#!/bin/sh\nexit 1\n")
    assert "Work in sessions:" in tell("git-daytona", "help").out


@pytest.mark.parametrize(
    "words",
    [
        ("forward", "8080:80"),
        ("forward", "8080"),
        ("forward", "8080:80", "3000"),
        ("forward",),
        ("open", "3000"),
        ("open",),
        ("shell",),
        ("push",),
        ("fetch",),
        ("merge", "--no-ff"),
        ("exec", "--timeout", "3", "--", "true"),
        ("exec", "-t", "--", "--odd"),
    ],
)
def test_every_command_asks(repo, record, tell, words, monkeypatch):
    record((1, "one"), (2, ""))
    monkeypatch.setattr("git_daytona.sandbox.terminal.is_there", lambda: True)
    asked = tell("git-daytona", *words, cwd=repo.path)
    assert asked.status == 2 and "error: which session? 1 (one), 2 [usage]" in asked.complaint[0]


def test_one_word_of_forward_is_a_port_or_a_session(repo, record, tell):
    """Which its project's devcontainer.json may say the ports of."""
    record((1, "one"), (2, ""))
    told = tell("git-daytona", "forward", "sandbox-2", cwd=repo.path)
    assert "the project of session 2 forwards none" in told.complaint[0]
    told = tell("git-daytona", "forward", "sandbox-3", cwd=repo.path)
    assert "there is no session 'sandbox-3'" in told.complaint[0]
