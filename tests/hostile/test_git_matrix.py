"""The whole of a session under whatever git's configuration, hooks and environment can say, and in every form of repository: the
agent's commit arrives, the user's own repository stays as it is byte for byte, and nothing of theirs is run (CASES 10 to 18, 35 to 37)."""

import os
import re
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import gitkeys
import pytest

from git_daytona.transfer import RECEIVE_PACK, UPLOAD_PACK
from rig import Repo

# githooks(5).
HOOKS = (
    "applypatch-msg", "commit-msg", "fsmonitor-watchman", "p4-changelist", "p4-post-changelist", "p4-pre-submit",
    "p4-prepare-changelist", "post-applypatch", "post-checkout", "post-commit", "post-index-change", "post-merge", "post-receive",
    "post-rewrite", "post-update", "pre-applypatch", "pre-auto-gc", "pre-commit", "pre-merge-commit", "pre-push", "pre-rebase",
    "pre-receive", "prepare-commit-msg", "proc-receive", "push-to-checkout", "reference-transaction", "sendemail-validate", "update",
)  # fmt: skip


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def surroundings(d: Path) -> Path:
    """A folder with what gitkeys.py names: everything that is run leaves a mark and fails."""
    evil = executable(d / "evil", f'#!/bin/sh\necho "$0 $*" >>{d}/ran\necho "evil output"\necho "evil complaint" >&2\nexit 1\n')
    for hook in HOOKS:
        executable(d / "hooks" / hook, f'#!/bin/sh\nexec {evil} {hook} "$@"\n')
    (d / "attributes").write_text("* text=auto diff=evil merge=evil\n*.filtered filter=evil\n")
    (d / "excludes").write_text("*\n")
    (d / "skip").write_text("")
    (d / "included").write_text(f"[core]\n\thooksPath = {d}/hooks\n")
    return d


def ran(d: Path) -> str:
    return (d / "ran").read_text() if (d / "ran").exists() else ""


def foreign(text: str) -> str:
    """A file without the sections of sandbox-N, which are ours, whatever else stands in them."""
    return re.sub(r'\[remote "sandbox-\d+"\]\n(?:\t.*\n)*', "", text)


@dataclass
class Stage:
    """A repository, a worktree of it that will have the session's branch checked out, and a way to look at it that no configuration
    of theirs has a part in."""

    path: Path
    d: Path
    plain: dict[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, path: Path, d: Path) -> "Stage":
        path.mkdir(parents=True)
        repo = Repo(path / "repository")
        repo.path.mkdir()
        repo.git("init", "-q")
        repo.commit("README", "hello\n")
        repo.commit("dir/file", "content\n")
        repo.git("tag", "-a", "-m", "tag", "v1")
        repo.git("worktree", "add", "-q", "--detach", str(path / "follower"))
        repo.write("untracked", "mine\n")
        repo.write("README", "hello\nedited\n")
        repo.write("dir/file", "staged\n")
        repo.git("add", "dir/file")
        Repo(path).git("init", "-q", "--bare", "aside")
        for hook in HOOKS:
            executable(repo.path / ".git" / "hooks" / hook, f'#!/bin/sh\nexec {d}/evil {hook} "$@"\n')
        return cls(path, d)

    @property
    def repo(self) -> Repo:
        return Repo(self.path / "repository")

    @property
    def follower(self) -> Path:
        return self.path / "follower"

    @property
    def dot_git(self) -> Path:
        return self.path / "repository" / ".git"

    def aside(self, *words: str) -> str:
        """git in a repository of its own with the objects of the other."""
        env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
        env |= {"GIT_DIR": str(self.path / "aside"), "GIT_OBJECT_DIRECTORY": str(self.dot_git / "objects")}
        env |= {f"GIT_{role}_{what}": "x@example.invalid" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        return subprocess.run(("git", *words), env=env, capture_output=True, text=True, check=True, timeout=60).stdout

    def ref(self, name: str) -> str:
        return (self.dot_git / name).read_text().strip()

    def move(self, name: str, oid: str) -> None:
        (self.dot_git / name).write_text(oid + "\n")

    def kept(self) -> list[str]:
        place = self.dot_git / "refs/daytona/kept"
        return [path.read_text().strip() for path in sorted(place.rglob("*")) if path.is_file()] if place.exists() else []

    def mine(self) -> dict[str, object]:
        """Everything of the user's, byte for byte."""
        found: dict[str, object] = {}
        for path in sorted(self.repo.path.rglob("*")):
            if path.is_file() and ".git/" not in str(path.relative_to(self.repo.path)):
                status = path.lstat()
                found[str(path)] = (path.read_bytes(), status.st_mode, status.st_mtime_ns, status.st_ino)
        for name in ("HEAD", "index", "logs/HEAD", "config", "config.worktree", "packed-refs", "info/exclude"):
            path = self.dot_git / name
            found[name] = foreign(path.read_text(errors="surrogateescape")) if path.exists() else None
        for path in sorted((self.dot_git / "refs").rglob("*")):
            name = str(path.relative_to(self.dot_git))
            if path.is_file() and not name.startswith(("refs/heads/opencode/", "refs/remotes/sandbox-", "refs/daytona/")):
                found[name] = path.read_text()
        ours = {"description", "objects", "refs", "logs"}
        found["files of git"] = sorted(path.name for path in self.dot_git.iterdir() if path.name not in ours)
        found["stray"] = sorted(path.name for path in (self.dot_git / "worktrees" / "follower").iterdir())
        return found


def whole(stage: Stage, begin) -> None:
    """A session from its start to its deletion, with the branch checked out in another worktree, edited there, and pushed back."""
    before = stage.mine()
    session = begin(stage.repo)
    branch = f"refs/heads/opencode/{session.number}"
    stage.move("worktrees/follower/HEAD", f"ref: {branch}")
    base = stage.ref(branch)

    session.agent("echo one >one; echo agent >>README; git add .; git commit -qm 'by the agent'")
    session.sync()
    assert stage.aside("log", "--format=%s %P", "-1", stage.ref(branch)) == f"by the agent {base}\n"
    assert stage.aside("show", f"{stage.ref(branch)}:README") == "hello\nagent\n"
    assert stage.kept() == [], "nobody had edited anything"
    assert (stage.follower / "one").read_text() == "one\n", "a worktree of the branch follows it"

    (stage.follower / "README").write_text("the user's edit\n")
    tip = stage.ref(branch)
    session.agent("echo again >>README; echo b >b")
    session.sync()
    assert stage.ref(branch) != tip
    assert (stage.follower / "README").read_text() == "hello\nagent\nagain\n"
    assert [stage.aside("show", f"{oid}:README") for oid in stage.kept()] == ["the user's edit\n"]

    mine = stage.aside("commit-tree", f"{stage.ref(branch)}^{{tree}}", "-p", stage.ref(branch), "-m", "by the user").strip()
    stage.move(branch, mine)
    session.coordinator.push(session.name)
    assert session.agent("git log -1 --format=%s; git for-each-ref --format='%(refname)' refs/tags") == "by the user\n"
    session.agent("echo last >last")
    session.sync()
    assert stage.aside("show", f"{stage.ref(branch)}:last") == "last\n"
    session.coordinator.delete(session.name)
    session.coordinator.close()
    after = stage.mine()
    assert {name: (value, after.get(name)) for name, value in before.items() if after.get(name) != value} == {}
    assert after.keys() == before.keys()
    assert ran(stage.d) == ""


# -- configuration --------------------------------------------------------------------------------------------------------

LEVELS = (("global", 0), ("system", 1), ("local", 0), ("worktree", 1), ("environment", 0), ("parameters", 1))


def quoted(text: str) -> str:
    """As git itself quotes for GIT_CONFIG_PARAMETERS (quote.c, sq_quote_buf): always."""
    return "'" + text.replace("'", "'\\''") + "'"


def apply(stage: Stage, level: str, chosen: dict[str, str], monkeypatch) -> None:
    text = gitkeys.written(chosen)
    if level == "global":
        (Path(os.environ["HOME"]) / ".gitconfig").write_text(text)
    elif level == "system":
        (stage.path / "system").write_text(text)
        monkeypatch.setenv("GIT_CONFIG_SYSTEM", str(stage.path / "system"))
    elif level == "local":
        with (stage.dot_git / "config").open("a") as config:
            config.write(text)
    elif level == "worktree":
        with (stage.dot_git / "config").open("a") as config:
            config.write("[extensions]\n\tworktreeConfig = true\n")
        (stage.dot_git / "config.worktree").write_text(text)
        (stage.dot_git / "worktrees" / "follower" / "config.worktree").write_text(text)
    elif level == "environment":
        monkeypatch.setenv("GIT_CONFIG_COUNT", str(len(chosen)))
        for number, (key, value) in enumerate(chosen.items()):
            monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", key)
            monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", value)
    else:
        monkeypatch.setenv("GIT_CONFIG_PARAMETERS", " ".join(f"{quoted(key)}={quoted(value)}" for key, value in chosen.items()))


@pytest.fixture
def trial(local, begin, tmp_path, home):
    """Run a whole session with keys at a level; the problem, or None."""
    numbers = iter(range(100000))

    def run(level: str, turn: int, only: list[str] | None = None) -> Exception | None:
        place = tmp_path / f"trial-{next(numbers)}"
        place.mkdir()
        d = surroundings(place / "d")
        table = gitkeys.keys(str(d))
        if level in ("local", "worktree"):
            table = {key: value for key, value in table.items() if not key.startswith(gitkeys.UNREAL)}
        chosen = {key: values[turn] for key, values in table.items() if only is None or key in only}
        identity = (home / ".gitconfig").read_text()
        with pytest.MonkeyPatch.context() as patch:
            stage = Stage.make(place / "stage", d)
            apply(stage, level, chosen, patch)
            try:
                whole(stage, begin)
                traced = d / "trace"
                assert not traced.exists() or "git-upload-pack" not in traced.read_text()
            except Exception as problem:  # noqa: BLE001 — told by the test, with the key
                return problem
            except AssertionError as problem:
                return problem
            finally:
                (home / ".gitconfig").write_text(identity)
        return None

    return run


def culprits(trial, level: str, turn: int, keys: list[str]) -> list[str]:
    """The key that breaks it, or those that do together: each in turn is the last of the shortest list that fails."""
    found: list[str] = []
    while trial(level, turn, found) is None:
        passes, fails = 0, len(keys)
        while fails - passes > 1:
            middle = (passes + fails) // 2
            if trial(level, turn, [*found, *keys[:middle]]) is None:
                passes = middle
            else:
                fails = middle
        found.append(keys[fails - 1])
        keys = keys[: fails - 1]
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("level", "turn"), LEVELS)
def test_no_key_of_gits_configuration_changes_a_session(trial, level, turn):
    problem = trial(level, turn)
    if problem is not None:
        keys = culprits(trial, level, turn, list(gitkeys.keys("")))
        raise AssertionError(f"{level}: {' with '.join(keys)}: {problem}") from problem


@pytest.mark.fuzz
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("level", "turn"), [("global", 0), ("global", 1)])
def test_each_key_alone(trial, level, turn):
    found = {key: problem for key in gitkeys.keys("") if (problem := trial(level, turn, [key])) is not None}
    assert found == {}


def test_every_key_of_gits_manual_is_tried(tmp_path):
    """Also those with a placeholder; and git itself can read every value of ours."""
    table = gitkeys.keys(str(tmp_path))
    known = {key.lower() for key in table}
    assert [name for name in gitkeys.names() if not gitkeys.covered(name, known)] == []
    for turn in (0, 1):
        (tmp_path / "config").write_text(gitkeys.written({key: values[turn] for key, values in table.items()}))
        listing = subprocess.run(("git", "config", "-f", tmp_path / "config", "-l"), capture_output=True, text=True, check=True)
        assert len(listing.stdout.splitlines()) == len(table)
    print(f"keys of git-config(1) tried: {len(table)}, each in {len(LEVELS)} ways")
    assert len(table) >= 800


def test_no_shell_expands_what_the_sandbox_runs():
    """Its login shell may be zsh, which refuses a * that matches no file."""
    for command in (UPLOAD_PACK, RECEIVE_PACK):
        assert shlex.join(shlex.split(command)) == command
