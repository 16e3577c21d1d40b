"""What a sandbox gets beside the repository: devcontainer.json with consent, daytona.copyFiles."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from git_daytona.local.server import LocalDaytona
from git_daytona.sessions import consent
from git_daytona.sessions.coordinator import Coordinator
from git_daytona.sessions.provision import DONE, FAILED, RUNNING, WAITING, Provision
from git_daytona.sessions.state import SetUp
from support.program import Told
from support.round_trip import BIN, Repo, Session, execute, stop

FILE = ".devcontainer/devcontainer.json"
PROJECT = """{
  // as people write it
  "image": "node:22", "features": {},
  "onCreateCommand": ["sh", "-c", "echo \\"$0 made\\" >made", "${containerWorkspaceFolder}"],
  "postCreateCommand": {"one": "echo one >one", "two": "sleep 0.1; echo two >two"},
  "postStartCommand": "echo started >>starts",
  "containerEnv": {"COLOUR": "deep 'blue'", "UP": "${containerEnv:HOME}/up"},
  "remoteEnv": {"TOKEN": "${localEnv:CANARY}", "PATH": "${containerEnv:PATH}:/tools",
    "KEY": "${localEnv:DAYTONA_API_KEY}",},
  "forwardPorts": [3000, "db:5432"],
}
"""


def allowed(session: Session) -> None:
    provision = session.coordinator.provision
    plan = provision.plan("HEAD")
    assert plan is not None
    consent.allow(session.coordinator.git_dir, plan)


def setup(session: Session) -> SetUp:
    return session.coordinator.find(session.name).setup


def exec_(repo: Repo, name: str, line: str) -> str:
    words = (str(BIN / "git-daytona"), "exec", name, "--", line)
    return subprocess.run(words, cwd=repo.path, capture_output=True, text=True, timeout=60).stdout


def ended(session: Session) -> bytes:
    """Wait for the end of the set-up; return its output."""
    shown: list[bytes] = []
    coordinator = session.coordinator
    coordinator.provision.follow(coordinator.find(session.name), shown.append)
    return b"".join(shown)


def test_consent(
    repo: Repo,
    begin: Callable[..., Session],
    local: LocalDaytona,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CANARY", "canary-4711")
    repo.commit(".gitignore", "made\none\ntwo\nstarts\n")
    repo.commit(FILE, PROJECT)
    session = begin(repo)
    assert setup(session).state == WAITING
    assert "not allowed it" in execute(session.coordinator, session.name, "ls")[1]
    assert session.agent("ls").split() == ["README"]

    allowed(session)
    session.agent("true")
    ended(session)
    assert (setup(session).state, setup(session).run) == (DONE, 1)
    assert session.agent("cat made one two starts").splitlines() == [
        "/home/daytona/project made",
        "one",
        "two",
        "started",
    ]

    # its variables, in commands of a person and of an agent
    line = 'echo "$COLOUR $UP $TOKEN ${KEY:-none}"; echo "$PATH" | grep -c ":/tools"'
    done = exec_(repo, session.name, line)
    assert done.splitlines() == ["deep 'blue' /home/daytona/up canary-4711 none", "1"], done

    # once in a sandbox, but for what is of each start
    stop(session.coordinator.cloud, session.sandbox_id)
    session.agent("true")
    ended(session)
    assert session.agent("cat starts one").splitlines() == ["started", "started", "one"]
    assert setup(session) == replace(setup(session), state=DONE, run=2)


def test_a_change_asks_again(
    repo: Repo,
    coordinate: Callable[[Path], Coordinator],
    tell: Callable[..., Told],
    local: LocalDaytona,
) -> None:
    def git_daytona(*words: str, status: int = 0) -> Told:
        done = tell("git-daytona", *words, cwd=repo.path)
        assert done.status == status, (words, done.out, done.err)
        return done

    assert "there is no .devcontainer/devcontainer.json" in git_daytona("allow", status=8).err
    repo.commit(FILE, '{"postCreateCommand": "echo trouble; exit 7", "forwardPorts": [3000]}')
    shown = git_daytona("allow", "--show").out
    assert "  postCreateCommand: echo trouble; exit 7\n  forwardPorts: 3000\n" in shown
    first = git_daytona("start")
    assert "hint: see it, and allow it: git daytona allow\n" in first.err
    assert (
        "'.devcontainer/devcontainer.json' has not been allowed"
        in git_daytona("setup", "1", status=7).err
    )
    assert "hint: see it, and allow it: git daytona allow\n" in git_daytona("fork", "1").err
    git_daytona("delete", "2")
    assert git_daytona("allow").out == shown
    failed = git_daytona("setup", "1", status=19)
    assert "trouble\n== postCreateCommand failed (exit status 7)" in failed.out
    assert "the set-up of session 1: it failed (exit status 7)" in failed.err
    assert git_daytona("logs", "--setup", "1").out == failed.out
    told = git_daytona("exec", "1", "--", "echo works")
    assert (told.out, "it failed (exit status 7); its output is in" in told.err) == (
        "works\n",
        True,
    )

    # the consent was to that alone, and is taken back
    repo.commit(FILE, '{"containerEnv": {"COLOUR": "blue"}, "postCreateCommand": "echo well"}')
    assert "git daytona allow\n" in git_daytona("start").err
    assert git_daytona("allow", "--revoke").out.startswith("revoked: 1;")
    assert "has not been allowed" in git_daytona("setup", "1", status=7).err

    # what counts without a question is there from the beginning, and what the user sets before it
    repo.git("config", "daytona.setup", "always")
    git_daytona("start")
    session = coordinate(repo.path).find("4")
    printed = coordinate(repo.path).cloud.execute(session.sandbox_id, "echo $COLOUR", timeout=60)
    assert printed.output.strip() == "blue"
    assert "well\n" in git_daytona("logs", "--setup", "-f", "4").out
    repo.git("config", "daytona.setup", "never")
    assert "daytona.setup is 'never'" in git_daytona("setup", "1", status=13).err


def test_ignored_files(repo: Repo, begin: Callable[..., Session], local: LocalDaytona) -> None:
    repo.commit(".gitignore", ".env*\n*.pem\nlocal/\nodd*\n")
    outside = repo.path.parent / "secret"
    outside.write_text("not of the project")
    for name, text in {
        ".env.test": "A=1\n",
        "sub/.env.test": "B=2\n",
        "local/deep/key.pem": "PEM\n",
        "odd [x]": "odd\n",
        ".env": f"DAYTONA_API_KEY={local.api_key}\n",
        "left.pem": "not named\n",
    }.items():
        repo.write(name, text)
    (repo.path / "local/deep/key.pem").chmod(0o600)
    (repo.path / ".env.link").symlink_to(outside)
    for pattern in ("**/.env*", "local", "odd*", "README", "../secret"):
        repo.git("config", "--add", "daytona.copyFiles", pattern)
    repo.git("config", "--unset", "daytona.copyFiles", r"\.\./secret")
    session = begin(repo)
    assert setup(session) == SetUp(
        message="not copied: .env (it holds Daytona's API key), .env.link (no regular file)"
    )
    found = "find . -path ./.git -prune -o -type f -printf '%m %P\\n'"
    assert sorted(session.agent(found).splitlines()) == [
        "600 local/deep/key.pem",
        "644 .env.test",
        "644 .gitignore",
        "644 README",
        "644 odd [x]",
        "644 sub/.env.test",
    ]

    # whatever becomes of .gitignore there, and whatever is staged
    session.agent(
        "echo '!.env.test' >.gitignore; git add -A; git add -f 'odd [x]'; echo 3 >>'odd [x]'"
    )
    session.sync()
    assert repo.git("ls-tree", "-r", "--name-only", "opencode/1").split("\n") == [
        ".gitignore",
        "README",
    ]
    session.agent("rm .gitignore; git commit -qam 'No more'; git add -A; git commit -qm Mine || :")
    session.sync()
    assert repo.git("ls-tree", "-r", "--name-only", "opencode/1") == "README"
    session.coordinator.delete(session.name)
    assert (repo.path / ".env.test").read_text() == "A=1\n"
    everything = repo.git("log", "--all", "--format=", "--name-only").split()
    assert {"README", ".gitignore"} == {*everything}


def test_a_start_that_ends_before_the_set_up(
    repo: Repo,
    coordinate: Callable[[Path], Coordinator],
    monkeypatch: pytest.MonkeyPatch,
    local: LocalDaytona,
) -> None:
    repo.commit(".devcontainer.json", '{"postCreateCommand": "true"}')
    repo.git("config", "daytona.setup", "always")
    coordinator = coordinate(repo.path)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Provision, "begin", Mock(side_effect=KeyboardInterrupt))
        coordinator.start()
    coordinator.sync("1")
    assert coordinator.find("1").setup.run == 1


def test_what_was_cut_off_goes_on_and_a_bad_path_stays_with_commands(
    repo: Repo, begin: Callable[..., Session], local: LocalDaytona
) -> None:
    line = "echo begun >>log; [ -e again ] || /bin/sleep 100; echo over >>log"
    plan = {"containerEnv": {"PATH": "/nowhere"}, "onCreateCommand": "echo a >>log"}
    repo.commit(".gitignore", "log\n")
    repo.commit(".devcontainer.json", json.dumps({**plan, "postCreateCommand": line}))
    repo.git("config", "daytona.setup", "always")
    session = begin(repo)
    session.agent("until grep -q begun log; do sleep 0.1; done; touch again")
    assert setup(session).state == RUNNING
    stop(session.coordinator.cloud, session.sandbox_id)
    session.agent("true")
    ended(session)
    assert (setup(session).state, setup(session).run) == (DONE, 2)
    assert session.agent("cat log").split() == ["a", "begun", "begun", "over"]
    assert session.sync().changed


def test_a_copy_that_git_has_by_now_comes_back(
    repo: Repo, begin: Callable[..., Session], local: LocalDaytona
) -> None:
    repo.commit(".gitignore", ".env*\n")
    repo.write(".env.test", "A=1\n")
    repo.write(".env.own", "B=1\n")
    repo.git("config", "daytona.copyFiles", ".env.*")
    session = begin(repo)
    repo.git("add", "-f", ".env.test")
    repo.git("commit", "-qm", "Have it for all")
    session.coordinator.update(session.name)
    session.agent("echo A=2 >.env.test; echo B=2 >.env.own; echo >.gitignore; git add -A")
    session.sync()
    assert repo.show("opencode/1", ".env.test") == "A=2"
    names = repo.git("ls-tree", "-r", "--name-only", "opencode/1").split()
    assert names == [".env.test", ".gitignore", "README"]


def test_what_is_large_and_read_meanwhile_has_a_log(
    repo: Repo, begin: Callable[..., Session], local: LocalDaytona, tell: Callable[..., Told]
) -> None:
    """Though the room of its beginning is given back."""
    wait = "until [ -e {0} ]; do sleep .1; done; echo {0}"
    first = "head -c 17000000 /dev/zero | tr '\\0' '\\n'; echo none"
    steps = (first, *map(wait.format, ("one", "two")))
    repo.commit(".devcontainer.json", json.dumps({"onCreateCommand": "; ".join(steps)}))
    repo.git("config", "daytona.setup", "always")
    session = begin(repo)
    coordinator, last = session.coordinator, b""

    def show(output: bytes) -> None:
        nonlocal last
        last = output[-5:] or last
        for before, after in ((b"none\n", "one"), (b"one\n", "two")):
            if last == before:
                session.agent(f"touch {after}")

    coordinator.provision.follow(coordinator.find(session.name), show)
    told = tell("git-daytona", "logs", "--setup", "1", cwd=repo.path)
    assert told.out.lstrip("\n").removeprefix("none\n") == "one\ntwo\n"


def test_what_removes_its_own_log_is_cut_off(
    repo: Repo, begin: Callable[..., Session], local: LocalDaytona, tell: Callable[..., Told]
) -> None:
    line = "rm -rf ~/.cache/git-daytona-exec/*; until [ -e ~/go ]; do sleep 0.1; done"
    repo.commit(".devcontainer.json", json.dumps({"onCreateCommand": line}))
    repo.git("config", "daytona.setup", "always")
    session = begin(repo)
    session.agent("touch ~/go")  # not before: an end that the start sees is no lost one
    told = tell("git-daytona", "logs", "--setup", "1", cwd=repo.path)
    assert (told.status, told.out) == (0, "")
    assert told.err == "the set-up's log in the sandbox is empty, or was removed there\n"
    assert setup(session).state == FAILED
    assert session.agent("echo works") == "works\n"
    assert not session.sync().changed
