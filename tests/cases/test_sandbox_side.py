"""What is missing or different in the sandbox (case 49)."""

import shutil
import subprocess

import pytest

from git_daytona.base.errors import GitDaytonaError
from git_daytona.transfer import transfer
from support.round_trip import execute


def test_case_49_the_servers_side_in_any_shell(repo):
    """The gateway hands git's command to whatever shell the image has; one of them takes a * that
    matches nothing for an error."""
    examples = (("sh",), ("bash",), ("bash", "-O", "failglob"), ("zsh", "-f"))
    for shell in examples:
        for pack in (transfer.UPLOAD_PACK, transfer.receive_pack()):
            if shutil.which(shell[0]):
                line = f"{pack.replace('-pack', '-pack --advertise-refs')} '{repo.path}'"
                done = subprocess.run(
                    (*shell, "-c", line), cwd=repo.path, capture_output=True, timeout=30
                )
                assert (done.returncode, done.stderr) == (0, b""), shell
                assert repo.git("rev-parse", "HEAD").encode() in done.stdout, shell


def box(local, session) -> dict[str, str]:
    """The environment of the sandbox's commands."""
    return next(each for each in local.sandboxes if each.id == session.sandbox_id).env


def set_up_again(session) -> None:
    """As after a start that ended before the sandbox's repository was ready."""
    session.coordinator.state.note(
        session.coordinator.find(session.name).id, "setup-failed", "setting up"
    )


def test_case_49_git_is_missing_in_the_sandbox(local, repo, begin):
    """Named at the start as in a sync, and what was not set up stays so. Once it is there, all goes
    on."""
    session = begin(repo)
    session.agent("echo x > x; mkdir ~/bin; ln -sf /bin/* /usr/bin/* ~/bin/; rm ~/bin/git*")
    id_ = session.coordinator.sessions()[0].id
    environment = box(local, session)
    examples = {
        "sync": (session.sync, "failed"),
        "start": (lambda: session.coordinator.start(id_), "setup-failed"),
        "sync of what was not set up": (session.sync, "setup-failed"),
    }
    for name, (work, state) in examples.items():
        if state == "setup-failed":
            set_up_again(session)
        environment["PATH"] = "/home/daytona/bin"
        with pytest.raises(GitDaytonaError, match="git is not installed in the sandbox") as failed:
            work()
        del environment["PATH"]
        recorded = session.coordinator.sessions()[0].git_return
        assert (recorded.state, recorded.message) == (state, failed.value.message), name
    session.coordinator.start(id_)
    assert session.sync().changed
    assert repo.show("opencode/1", "x") == "x"


def test_case_49_toolbox_and_ssh_are_different_users(local, repo, begin):
    """git then finds "dubious ownership" on one side or both; it works at every step, and the
    agent's own configuration is as it was."""
    owner = {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}
    session = begin(repo)
    environment = box(local, session)
    session.agent("git config --global core.abbrev 20; git switch -qc side")
    environment |= owner
    assert "dubious ownership" in execute(session.coordinator, "1", "git status")[0].output, (
        "the test would see it"
    )
    session.coordinator.fetch("1")
    repo.git("switch", "-q", "opencode/1")
    mine = repo.commit("mine")
    for name in owner:
        environment.pop(name)
    session.agent("git switch -q opencode")
    environment |= owner
    examples = {
        "push": lambda: session.coordinator.push("1") == mine,
        "sync": lambda: session.agent("echo x > x") == "" and session.sync().changed,
        "start": lambda: (
            set_up_again(session)
            or session.coordinator.start(session.coordinator.find("1").id).session.names.number == 1
        ),
        "a .git that is gone": lambda: (
            session.agent("rm -rf .git; echo y > y") == "" and session.sync().changed
        ),
    }
    for name, work in examples.items():
        assert work(), name
    assert (
        repo.show("opencode/1", "x"),
        repo.show("opencode/1", "y"),
        repo.show("opencode/1", "mine"),
    ) == ("x", "y", "content")
    assert session.agent("cat ~/.gitconfig") == "[core]\n\tabbrev = 20\n"
