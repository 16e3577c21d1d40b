"""The whole of a session under whatever git's configuration, hooks and environment can say, and in
every form of repository: the agent's commit arrives, the user's own repository stays as it is byte
for byte, and nothing of theirs is run (cases 10 to 18, 35 to 37)."""

import os
import re
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from git_daytona.api.cloud import Execution
from git_daytona.base.errors import BadSetting, NoRepository
from git_daytona.git.environment import reset
from git_daytona.sandbox import report, scripts
from git_daytona.transfer.transfer import UPLOAD_PACK, receive_pack
from support import hostile_git_config
from support.hostile_git_config import HOOKS
from support.lacking import needs_man
from support.round_trip import BIN, Repo


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def surroundings(d: Path) -> Path:
    """A folder with what gitkeys.py names: everything that is run leaves a mark and fails."""
    evil = executable(
        d / "evil",
        f'#!/bin/sh\necho "$0 $*" >>{d}/ran\necho "evil output"\necho "evil complaint" >&2\n'
        "exit 1\n",
    )
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
    """A repository, a worktree of it that will have the session's branch checked out, and a way to
    look at it that no configuration of theirs has a part in."""

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
            executable(
                repo.path / ".git" / "hooks" / hook, f'#!/bin/sh\nexec {d}/evil {hook} "$@"\n'
            )
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
        env |= {
            "GIT_DIR": str(self.path / "aside"),
            "GIT_OBJECT_DIRECTORY": str(self.dot_git / "objects"),
        }
        env |= {
            f"GIT_{role}_{what}": "x@example.invalid"
            for role in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        return subprocess.run(
            ("git", *words), env=env, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    def ref(self, name: str) -> str:
        return (self.dot_git / name).read_text().strip()

    def move(self, name: str, oid: str) -> None:
        (self.dot_git / name).write_text(oid + "\n")

    def kept(self) -> list[str]:
        place = self.dot_git / "refs/daytona/kept"
        return (
            [path.read_text().strip() for path in sorted(place.rglob("*")) if path.is_file()]
            if place.exists()
            else []
        )

    def mine(self) -> dict[str, object]:
        """Everything of the user's, byte for byte."""
        found: dict[str, object] = {}
        for path in sorted(self.repo.path.rglob("*")):
            if path.is_file() and ".git/" not in str(path.relative_to(self.repo.path)):
                status = path.lstat()
                found[str(path)] = (
                    path.read_bytes(),
                    status.st_mode,
                    status.st_mtime_ns,
                    status.st_ino,
                )
        for name in (
            "HEAD",
            "index",
            "logs/HEAD",
            "config",
            "config.worktree",
            "packed-refs",
            "info/exclude",
        ):
            path = self.dot_git / name
            found[name] = (
                foreign(path.read_text(errors="surrogateescape")) if path.exists() else None
            )
        for path in sorted((self.dot_git / "refs").rglob("*")):
            name = str(path.relative_to(self.dot_git))
            if path.is_file() and not name.startswith(
                ("refs/heads/opencode/", "refs/remotes/sandbox-", "refs/daytona/")
            ):
                found[name] = path.read_text()
        ours = {"description", "objects", "refs", "logs", "git-daytona-id"}
        found["files of git"] = sorted(
            path.name for path in self.dot_git.iterdir() if path.name not in ours
        )
        found["stray"] = sorted(
            path.name for path in (self.dot_git / "worktrees" / "follower").iterdir()
        )
        return found


def whole(stage: Stage, begin) -> None:
    """A session from its start to its deletion, with the branch checked out in another worktree,
    edited there, and pushed back."""
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

    mine = stage.aside(
        "commit-tree", f"{stage.ref(branch)}^{{tree}}", "-p", stage.ref(branch), "-m", "by the user"
    ).strip()
    stage.move(branch, mine)
    session.coordinator.push(session.name)
    assert (
        session.agent("git log -1 --format=%s; git for-each-ref --format='%(refname)' refs/tags")
        == "by the user\n"
    )
    session.agent("echo last >last")
    session.sync()
    assert stage.aside("show", f"{stage.ref(branch)}:last") == "last\n"
    session.coordinator.delete(session.name)
    session.coordinator.close()
    after = stage.mine()
    assert {
        name: (value, after.get(name)) for name, value in before.items() if after.get(name) != value
    } == {}
    assert after.keys() == before.keys()
    assert ran(stage.d) == ""


# -- configuration ---------------------------------------------------------------------------------

LEVELS = (
    ("global", 0),
    ("system", 1),
    ("local", 0),
    ("worktree", 1),
    ("environment", 0),
    ("parameters", 1),
)


def quoted(text: str) -> str:
    """As git itself quotes for GIT_CONFIG_PARAMETERS (quote.c, sq_quote_buf): always."""
    return "'" + text.replace("'", "'\\''") + "'"


def apply(stage: Stage, level: str, chosen: dict[str, str], monkeypatch) -> None:
    text = hostile_git_config.written(chosen)
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
        monkeypatch.setenv(
            "GIT_CONFIG_PARAMETERS",
            " ".join(f"{quoted(key)}={quoted(value)}" for key, value in chosen.items()),
        )


def holding(tokens: list[str], *places: Path) -> list[Path]:
    """The files that hold one of the tokens of the transfers, of which there must have been
    some."""
    assert tokens
    wanted = re.compile("|".join(map(re.escape, tokens)).encode())
    return [
        path
        for place in places
        for path in place.rglob("*")
        if path.is_file() and wanted.search(path.read_bytes())
    ]


@pytest.fixture
def trial(local, begin, tmp_path, home, capfd):
    """Run a whole session with keys at a level; the problem, or None."""
    numbers = iter(range(100000))
    tokens: list[str] = []
    local.watch_tokens(tokens.append)

    def run(level: str, turn: int, only: list[str] | None = None) -> Exception | None:
        place = tmp_path / f"trial-{next(numbers)}"
        place.mkdir()
        d = surroundings(place / "d")
        table = hostile_git_config.keys(str(d))
        if level in ("local", "worktree"):
            table = {
                key: value
                for key, value in table.items()
                if not key.startswith(hostile_git_config.UNREAL)
            }
        chosen = {key: values[turn] for key, values in table.items() if only is None or key in only}
        identity = (home / ".gitconfig").read_text()
        with pytest.MonkeyPatch.context() as patch:
            stage = Stage.make(place / "stage", d)
            apply(stage, level, chosen, patch)
            try:
                capfd.readouterr()
                whole(stage, begin)
                assert capfd.readouterr() == ("", ""), (
                    "nothing is said beside what the coordinator returns"
                )
                assert not (d / "trace").exists(), "trace2.* of a configuration file"
                assert holding(tokens, place, home) == []
            except Exception as problem:  # noqa: BLE001 — told by the test, with the key
                return problem
            except AssertionError as problem:
                return problem
            finally:
                (home / ".gitconfig").write_text(identity)
        return None

    return run


def culprits(trial, level: str, turn: int, keys: list[str]) -> list[str]:
    """The key that breaks it, or those that do together: each in turn is the last of the shortest
    list that fails."""
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
        keys = culprits(trial, level, turn, list(hostile_git_config.keys("")))
        raise AssertionError(f"{level}: {' with '.join(keys)}: {problem}") from problem


@pytest.mark.fuzz
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("turn", [0, 1])
@pytest.mark.parametrize(
    "section", sorted({key.partition(".")[0] for key in hostile_git_config.keys("")})
)
def test_each_key_alone(trial, section, turn):
    """Whether one of them hides what another does."""
    chosen = [key for key in hostile_git_config.keys("") if key.partition(".")[0] == section]
    found = {
        key: problem for key in chosen if (problem := trial("global", turn, [key])) is not None
    }
    assert found == {}


def test_every_key_of_gits_manual_is_tried(tmp_path):
    """Also those with a placeholder; and git itself can read every value of ours."""
    table = hostile_git_config.keys(str(tmp_path))
    known = {key.lower() for key in table}
    assert [
        name for name in hostile_git_config.names() if not hostile_git_config.covered(name, known)
    ] == []
    for turn in (0, 1):
        (tmp_path / "config").write_text(
            hostile_git_config.written({key: values[turn] for key, values in table.items()})
        )
        listing = subprocess.run(
            ("git", "config", "-f", tmp_path / "config", "-l"),
            capture_output=True,
            text=True,
            check=True,
        )
        assert len(listing.stdout.splitlines()) == len(table)
    print(f"keys of git-config(1) tried: {len(table)}, each in {len(LEVELS)} ways")
    assert len(table) >= 800


def test_no_shell_expands_what_the_sandbox_runs():
    """Its login shell may be zsh, which refuses a * that matches no file."""
    for command in (UPLOAD_PACK, receive_pack()):
        assert shlex.join(shlex.split(command)) == command


@pytest.mark.parametrize("key", ["pushurl", "vcs"])
def test_a_remote_named_like_the_sandboxs_url_is_refused_before_anything_is_minted(
    local, repo, begin, key
):
    """``git push URL`` would be a push to that remote."""
    repo.git(
        "config",
        "--global",
        f"remote.ssh://127.0.0.1:{local.gateway_port}/home/daytona/project.{key}",
        "evil",
    )
    local.forget_calls()
    with pytest.raises(BadSetting, match="a remote that is named like the sandbox's URL"):
        begin(repo)
    assert local.counts["mint"] == 0


@pytest.mark.parametrize("mark", ["assume-unchanged", "skip-worktree"])
def test_an_edit_that_git_is_told_not_to_look_at(local, repo, begin, tmp_path, mark):
    """It is kept before it is overwritten. git reset leaves a skip-worktree file alone that did not
    change, the other mark not."""
    repo.commit("settings", "default\n")
    session = begin(repo)
    repo.git("worktree", "add", "-q", str(tmp_path / "follower"), "opencode/1")
    follower = Repo(tmp_path / "follower")
    follower.git("update-index", f"--{mark}", "README", "settings")
    follower.write("README", "the user's\n")
    follower.write("settings", "the user's\n")
    session.agent("echo agent >README")
    session.sync()
    assert (follower.path / "README").read_text() == "agent\n"
    (kept,) = repo.kept().values()
    assert repo.show(kept, "README") == "the user's"
    left = (
        repo.show(kept, "settings")
        if mark == "assume-unchanged"
        else (follower.path / "settings").read_text().strip()
    )
    assert left == "the user's"
    assert follower.git("status", "--porcelain") == ""


# -- the environment -------------------------------------------------------------------------------


def environment(d: Path) -> dict[str, str]:
    """Every variable that git, ssh, a shell, Python or a locale listens to, but those that say
    which repository is meant."""
    other = d / "other"
    traces = d / "traces"
    return {
        # git rev-parse --local-env-vars, without GIT_DIR and GIT_WORK_TREE
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(other),
        "GIT_CONFIG": str(d / "excludes"),
        "GIT_CONFIG_PARAMETERS": f"'core.bare'='true' 'core.hooksPath'='{d}/hooks' "
        f"'core.sshCommand'='{d}/evil'",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.worktree",
        "GIT_CONFIG_VALUE_0": str(other),
        "GIT_OBJECT_DIRECTORY": str(other / "objects"),
        "GIT_IMPLICIT_WORK_TREE": "0",
        "GIT_GRAFT_FILE": str(d / "excludes"),
        "GIT_INDEX_FILE": str(other / "index"),
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_REPLACE_REF_BASE": "refs/heads/",
        "GIT_PREFIX": "dir/",
        "GIT_INTERNAL_SUPER_PREFIX": "super/",
        "GIT_SHALLOW_FILE": str(d / "excludes"),
        "GIT_COMMON_DIR": str(other),
        # of later versions
        "GIT_INTERNAL_TOPLEVEL": str(other),
        "GIT_REF_STORAGE_FORMAT": "reftable",
        "GIT_DEFAULT_REF_FORMAT": "reftable",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ADVICE": "1",
        "GIT_ATTR_SOURCE": "HEAD",
        # tracing, of every form: to a file, to stderr, to a descriptor, to a folder, to a socket
        # that is not there
        "GIT_TRACE": str(traces / "trace"),
        "GIT_TRACE_PACKET": "1",
        "GIT_TRACE_PACKFILE": str(traces / "packfile"),
        "GIT_TRACE_PACK_ACCESS": "true",
        "GIT_TRACE_PERFORMANCE": "2",
        "GIT_TRACE_SETUP": "1",
        "GIT_TRACE_REFS": "1",
        "GIT_TRACE_SHALLOW": "1",
        "GIT_TRACE_CURL": str(traces / "curl"),
        "GIT_TRACE_CURL_NO_DATA": "0",
        "GIT_TRACE_REDACT": "0",
        "GIT_TRACE_FSMONITOR": "1",
        "GIT_TRACE_UNTRACKED_STATS": "1",
        "GIT_TRACE2": "1",
        "GIT_TRACE2_EVENT": str(traces),
        "GIT_TRACE2_PERF": f"af_unix:{d}/no-socket",
        "GIT_TRACE2_EVENT_NESTING": "9",
        "GIT_TRACE2_ENV_VARS": "DAYTONA_API_KEY,DAYTONA_SSH_TOKEN,DAYTONA_SSH_TOKEN_FD",
        "GIT_TRACE2_CONFIG_PARAMS": "*",
        "GIT_TRACE2_PARENT_SID": "x",
        "GIT_TRACE2_BRIEF": "1",
        "GIT_CURL_VERBOSE": "1",
        "GIT_MERGE_VERBOSITY": "5",
        # programs
        "GIT_SSH": f"{d}/evil",
        "GIT_SSH_COMMAND": f"'{d}/evil'",
        "GIT_SSH_VARIANT": "plink",
        "GIT_PROXY_COMMAND": f"{d}/evil",
        "GIT_ASKPASS": f"{d}/evil",
        "SSH_ASKPASS": f"{d}/evil",
        "SSH_ASKPASS_REQUIRE": "force",
        "SSH_AUTH_SOCK": str(d / "no-socket"),
        "SSH_SK_PROVIDER": str(d / "none.so"),
        "SSH_USE_STRONG_RNG": "1",
        "GIT_EDITOR": f"{d}/evil",
        "GIT_SEQUENCE_EDITOR": f"{d}/evil",
        "GIT_PAGER": f"{d}/evil",
        "GIT_EXTERNAL_DIFF": f"{d}/evil",
        "EDITOR": f"{d}/evil",
        "VISUAL": f"{d}/evil",
        "PAGER": f"{d}/evil",
        "BROWSER": f"{d}/evil",
        "DISPLAY": ":99",
        "LESSOPEN": f"|{d}/evil %s",
        # what git is to do
        "GIT_PROTOCOL": "version=7",
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_NAMESPACE": "elsewhere",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_GLOB_PATHSPECS": "1",
        "GIT_NOGLOB_PATHSPECS": "1",
        "GIT_ICASE_PATHSPECS": "1",
        "GIT_QUARANTINE_PATH": str(other),
        "GIT_OPTIONAL_LOCKS": "1",
        "GIT_FLUSH": "0",
        "GIT_TERMINAL_PROMPT": "1",
        "GIT_TEMPLATE_DIR": f"{d}/hooks",
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_DEFAULT_BRANCH": "trunk",
        "GIT_REFLOG_ACTION": "intruder",
        "GIT_PUSH_OPTION_COUNT": "1",
        "GIT_PUSH_OPTION_0": "option",
        "GIT_PRINT_SHA1_ELLIPSIS": "yes",
        "GIT_PREFETCH": "1",
        "GIT_SKIP_HOOKS": "0",
        "GIT_DISCOVERY_ACROSS_FILESYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": "/",
        "GIT_DIFF_OPTS": "-u0",
        "GIT_DIFF_PATH_COUNTER": "9",
        "GIT_NOTES_REF": "refs/notes/x",
        "GIT_NOTES_DISPLAY_REF": "refs/notes/*",
        "GIT_NOTES_REWRITE_REF": "refs/notes/*",
        "GIT_NOTES_REWRITE_MODE": "concatenate",
        "GIT_HTTP_USER_AGENT": "intruder",
        "GIT_SSL_NO_VERIFY": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CLONE_PROTECTION_ACTIVE": "false",
        "GIT_TEST_FSYNC": "1",
        "GIT_TEST_SPLIT_INDEX": "1",
        "GIT_TEST_FSMONITOR": f"{d}/evil",
        "GIT_TEST_PROTOCOL_VERSION": "0",
        "GIT_TEST_SIDEBAND_ALL": "1",
        "GIT_TEST_DEFAULT_HASH": "sha256",
        "GIT_TEST_DEFAULT_INITIAL_BRANCH_NAME": "trunk",
        "GIT_TEST_GETTEXT_POISON": "true",
        "GIT_AUTHOR_NAME": "",
        "GIT_AUTHOR_EMAIL": "<>",
        "GIT_AUTHOR_DATE": "nonsense",
        "GIT_COMMITTER_NAME": "",
        "GIT_COMMITTER_EMAIL": "<>",
        "GIT_COMMITTER_DATE": "nonsense",
        "EMAIL": "",
        # the locale and the terminal
        "LC_ALL": "ja_JP.UTF-8",
        "LANG": "de_DE.UTF-8",
        "LANGUAGE": "de:ja",
        "LC_MESSAGES": "tr_TR.UTF-8",
        "TZ": "Mars/Olympus",
        "TERM": "nonsense",
        "COLUMNS": "1",
        "LINES": "0",
        "FORCE_COLOR": "1",
        "CLICOLOR_FORCE": "1",
        # shells
        "POSIXLY_CORRECT": "1",
        "BASH_ENV": f"{d}/shell",
        "ENV": f"{d}/shell",
        "ZDOTDIR": str(d),
        "CDPATH": str(d),
        "IFS": "gitdayon/-",
        "PS4": f"$({d}/evil)",
        "SHELLOPTS": "xtrace:noexec",
        "BASHOPTS": "extdebug",
        "PROMPT_COMMAND": f"{d}/evil",
        "SHELL": "/bin/false",
        # Python
        "PYTHONPATH": str(d / "modules"),
        "PYTHONHOME": str(d),
        "PYTHONSTARTUP": str(d / "modules" / "os.py"),
        "PYTHONWARNINGS": "error",
        "PYTHONINSPECT": "1",
        "PYTHONVERBOSE": "1",
        "PYTHONDEVMODE": "1",
        "PYTHONIOENCODING": "utf-16",
        "PYTHONUTF8": "0",
        "PYTHONOPTIMIZE": "2",
        "PYTHONHASHSEED": "0",
        "PYTHONDUMPREFS": "1",
        "PYTHONPLATLIBDIR": "nowhere",
        "PYTHONSAFEPATH": "",
        "PYTHONBREAKPOINT": "evil",
        "PYTHONTRACEMALLOC": "9",
        "PYTHONFAULTHANDLER": "1",
        "PYTHONPYCACHEPREFIX": str(d / "cache"),
        "PYTHONUSERBASE": str(d / "modules"),
    }


def hostile_environment(d: Path) -> dict[str, str]:
    for module in ("os", "json", "click", "sitecustomize", "usercustomize", "ssh", "git_daytona"):
        executable(
            d / "modules" / f"{module}.py",
            f"open({str(d / 'ran')!r}, 'a').write({module!r})\nprint('evil output')\n",
        )
    executable(d / "shell", f"echo shell >>{d}/ran\necho evil output\n")
    (d / ".zshenv").write_text(f"echo zshenv >>{d}/ran\n")
    (d / "traces").mkdir()
    Repo(d).git("init", "-q", "--bare", "other")
    return environment(d)


def untouched(d: Path) -> list[str]:
    """The other repository's files, and whatever was traced."""
    return sorted(
        str(path.relative_to(d)) for place in ("other", "traces") for path in (d / place).rglob("*")
    )


def test_every_variable_that_git_calls_local_is_tried(tmp_path):
    listing = subprocess.run(
        ("git", "rev-parse", "--local-env-vars"), capture_output=True, text=True, check=True
    )
    tried = {*environment(tmp_path), "GIT_DIR", "GIT_WORK_TREE"}
    assert set(listing.stdout.split()) - tried == set()
    print(f"variables tried: {len(tried)}")
    assert len(tried) >= 150


def test_no_variable_changes_a_session(local, begin, tmp_path, home, monkeypatch):
    """In the process that works for OpenCode, which may have been started by anything, a git hook
    included."""
    d = surroundings(tmp_path / "d")
    tokens: list[str] = []
    local.watch_tokens(tokens.append)
    hostile = hostile_environment(d)
    stage = Stage.make(tmp_path / "stage", d)
    before = untouched(d)
    for name, value in hostile.items():
        if not name.startswith("PYTHON"):
            monkeypatch.setenv(name, value)

    def started(repo: Repo):
        session = begin(repo)
        monkeypatch.setenv("GIT_DIR", str(d / "other"))
        monkeypatch.setenv("GIT_WORK_TREE", str(d))
        return session

    whole(stage, started)
    assert untouched(d) == before
    assert holding(tokens, tmp_path, home) == []


def test_no_variable_changes_what_a_command_does_or_says(local, command, tmp_path, monkeypatch):
    """The program itself, from the shell script on: the same words on both streams, in a folder
    full of traps, with any umask."""
    d = surroundings(tmp_path / "d")
    hostile = hostile_environment(d)
    told = {}
    for turn in ("plain", "hostile"):
        stage = Stage.make(tmp_path / turn, d)
        before = stage.mine()
        env = {}
        if turn == "hostile":
            env = hostile
            for trap in (d / "modules").iterdir():
                executable(stage.follower / trap.name, trap.read_text())
        said = []

        def say(
            *words: str, env=env, said=said, here=str(tmp_path / turn), place=stage.follower
        ) -> None:
            script = 'umask 000; cd "$1"; shift; exec "$@"' if env else 'cd "$1"; shift; exec "$@"'
            argv = ("sh", "-c", script, "sh", str(place), str(BIN / "git-daytona"), *words)
            done = subprocess.run(
                argv,
                env=os.environ | env,
                capture_output=True,
                text=True,
                timeout=60,
                stdin=subprocess.DEVNULL,
            )
            text = f"{words} {done.returncode}\n{done.stdout}{done.stderr}"
            text = text.replace(here, "PLACE")
            text = re.sub("stays here: .*\n", "", text)  # the traps themselves
            said.append(
                re.sub(
                    r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{7,40}|\d{8}T\d{6}|\d+(?=m?s ( |ago))",
                    "#",
                    text,
                )
            )
            assert done.returncode == 0, text

        say("start")
        say("exec", "1", "--", "echo one >one; echo agent >>README")
        say("sync", "1")
        say("push", "1")
        say("status")
        say("delete", "1")
        told[turn] = said
        if turn == "hostile":
            for trap in (d / "modules").iterdir():
                (stage.follower / trap.name).unlink()
        assert stage.aside("show", stage.ref("refs/heads/opencode/1") + ":one") == "one\n"
        assert stage.mine() == before
        assert ran(d) == ""
    assert told["hostile"] == told["plain"]
    assert [path for path in untouched(d) if path.startswith("traces/")] == []
    exposed = [
        path
        for path in Path(os.environ["HOME"]).rglob("*")
        if path.is_file() and "daytona" in str(path) and path.stat().st_mode & 0o22
    ]
    assert exposed == [], "writable for others"


@pytest.mark.parametrize("how", ["GIT_DIR", "GIT_WORK_TREE", "both"])
def test_a_repository_that_is_named_but_does_not_belong_to_the_place(
    local, repo, coordinate, tmp_path, monkeypatch, how
):
    """``git --git-dir=… daytona`` from elsewhere: later commands in that folder would find another
    repository, or none."""
    other = Repo(tmp_path / "other")
    other.path.mkdir()
    other.git("init", "-q")
    if how != "GIT_WORK_TREE":
        monkeypatch.setenv("GIT_DIR", str(repo.path / ".git"))
    if how != "GIT_DIR":
        monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    with pytest.raises(NoRepository, match="is not the repository of the worktree"):
        coordinate(repo.path if how == "GIT_WORK_TREE" else other.path)
    (repo.path / "folder").mkdir()
    monkeypatch.setenv("GIT_DIR", "../.git")
    monkeypatch.delenv("GIT_WORK_TREE", raising=False)
    with pytest.raises(NoRepository, match="is not the repository of the worktree"):
        coordinate(repo.path / "folder")
    monkeypatch.setenv("GIT_DIR", ".git")  # as in a hook
    assert coordinate(repo.path).repository.worktree == repo.path
    monkeypatch.setenv("GIT_DIR", str(repo.path / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(repo.path))
    assert coordinate(repo.path / "folder").repository.worktree == repo.path


# -- hooks -----------------------------------------------------------------------------------------


@needs_man
def test_every_hook_of_gits_manual_is_there():
    manual = subprocess.run(
        ("man", "-P", "cat", "githooks"),
        capture_output=True,
        text=True,
        env=os.environ | {"MANWIDTH": "80"},
    )
    if manual.returncode != 0:
        pytest.skip("there is no manual page of githooks")
    assert set(re.findall(r"^   ([a-z0-9-]+)$", manual.stdout, re.MULTILINE)) - set(HOOKS) == set()


def test_no_hook_runs_and_all_do_for_the_user(local, begin, tmp_path):
    """Neither for transfers nor for what a sync does here: moving refs and resetting a worktree. In
    .git/hooks and in core.hooksPath."""
    d = surroundings(tmp_path / "d")
    stage = Stage.make(tmp_path / "stage", d)
    stage.repo.git("config", "core.hooksPath", str(d / "hooks"))
    whole(stage, begin)  # which asserts it
    for place in (d / "hooks", stage.dot_git / "hooks"):
        stage.repo.git("-c", f"core.hooksPath={place}", "commit", "-qm", "by the user", check=False)
        assert "pre-commit" in ran(d), "the test would see it"
        (d / "ran").unlink()


# -- forms of repositories -------------------------------------------------------------------------


def _plain(repo: Repo, _tmp: Path) -> Repo:
    return repo


def _unborn(_repo: Repo, tmp: Path) -> Repo:
    made = Repo(tmp / "unborn")
    made.path.mkdir()
    made.git("init", "-q")
    made.write("staged", "mine\n")
    made.git("add", "staged")
    return made


def _detached(repo: Repo, _tmp: Path) -> Repo:
    repo.git("checkout", "-q", "--detach")
    return repo


def _linked(repo: Repo, tmp: Path) -> Repo:
    repo.git("worktree", "add", "-q", "-b", "side", str(tmp / "linked"))
    linked = Repo(tmp / "linked")
    linked.commit("side")
    return linked


def _linked_to_bare(repo: Repo, tmp: Path) -> Repo:
    repo.git("clone", "-q", "--bare", str(repo.path), str(tmp / "bare.git"))
    Repo(tmp / "bare.git").git("worktree", "add", "-q", str(tmp / "linked"), "main")
    return Repo(tmp / "linked")


def _cloned(*how: str):
    def make(repo: Repo, tmp: Path) -> Repo:
        repo.git("config", "uploadpack.allowFilter", "true")
        for number in range(3):
            repo.commit("README", f"hello {number}\n")
            repo.commit(f"dir/{number}", f"{number}\n")
        repo.git("clone", "-q", *how, f"file://{repo.path}", str(tmp / "clone"))
        return Repo(tmp / "clone")

    return make


def _alternates(repo: Repo, tmp: Path) -> Repo:
    repo.git("clone", "-q", "--shared", str(repo.path), str(tmp / "clone"))
    return Repo(tmp / "clone")


def _made(*how: str):
    def make(_repo: Repo, tmp: Path) -> Repo:
        made = Repo(tmp / "made")
        made.path.mkdir()
        made.git("init", "-q", *how)
        made.commit("README", "hello\n")
        return made

    return make


def _submodules(repo: Repo, tmp: Path) -> Repo:
    repo.git("clone", "-q", str(repo.path), str(tmp / "library"))
    repo.git(
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        str(tmp / "library"),
        "library",
    )
    repo.git("commit", "-qm", "Add a submodule")
    repo.git("config", "submodule.recurse", "true")
    repo.git("config", "fetch.recurseSubmodules", "true")
    return repo


def _inside_a_submodule(repo: Repo, tmp: Path) -> Repo:
    return Repo(_submodules(repo, tmp).path / "library")


def _lfs(repo: Repo, tmp: Path) -> Repo:
    """As `git lfs install` sets it up, with a git-lfs that has no server to ask. (The sandbox may
    have one that is real.)"""
    lfs = executable(
        tmp / "git-lfs",
        "#!/bin/sh\ncase $1$GIT_LFS_SKIP_SMUDGE in clean* | smudge1) cat ;; *) exit 1 ;; esac\n",
    )
    repo.git("config", "filter.lfs.clean", f"'{lfs}' clean")
    repo.git("config", "filter.lfs.smudge", f"'{lfs}' smudge")
    repo.git("config", "filter.lfs.required", "true")
    repo.commit(".gitattributes", "large.bin filter=lfs diff=lfs merge=lfs -text\n")
    repo.commit("large.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
    return repo


def _sparse(*how: str):
    def make(repo: Repo, _tmp: Path) -> Repo:
        repo.commit("in/file")
        repo.commit("out/file")
        repo.git("sparse-checkout", "set", *how)
        return repo

    return make


def _odd_names(repo: Repo, _tmp: Path) -> Repo:
    for name in (
        b"-rf",
        b"new\nline",
        b"latin-\xe9",
        b" blank ",
        b"quote\"'",
        b"back\\slash",
        b"*",
        b":(top)x",
        "ünï/ö".encode(),
    ):
        path = repo.path / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(name)
    repo.git("add", ".")
    repo.git("commit", "-qm", "odd")
    return repo


def _separate_git_dir(repo: Repo, tmp: Path) -> Repo:
    repo.git("init", "-q", f"--separate-git-dir={tmp}/elsewhere.git")
    return repo


def _through_a_link(repo: Repo, tmp: Path) -> Repo:
    (tmp / "link").symlink_to(repo.path)
    return Repo(tmp / "link")


def _replaced(repo: Repo, _tmp: Path) -> Repo:
    """HEAD is shown as another commit, and its history as another one."""
    first = repo.git("rev-parse", "HEAD")
    second = repo.commit("second")
    repo.commit("third")
    repo.git("replace", second, repo.git("commit-tree", f"{second}^{{tree}}", "-m", "replacement"))
    assert first not in repo.git("rev-list", "HEAD")
    return repo


def _packed(repo: Repo, _tmp: Path) -> Repo:
    """Everything that maintenance makes: one pack with bitmaps, a multi-pack index, commit-graph
    and packed refs."""
    repo.git("tag", "v1")
    repo.git("repack", "-adqb")
    repo.git("multi-pack-index", "write")
    repo.git("commit-graph", "write")
    repo.git("pack-refs", "--all")
    return repo


def _odd_index(repo: Repo, _tmp: Path) -> Repo:
    """Split, version 4, with an untracked cache, and an entry that git is told not to look at."""
    repo.git(
        "update-index",
        "--index-version=4",
        "--split-index",
        "--untracked-cache",
        "--assume-unchanged",
        "README",
    )
    return repo


FORMS = {
    "plain": _plain,
    "unborn": _unborn,
    "detached": _detached,
    "linked worktree": _linked,
    "linked worktree of a bare repository": _linked_to_bare,
    "shallow": _cloned("--depth=2"),
    "shallow, one branch": _cloned("--depth=1", "--single-branch"),
    "partial without files": _cloned("--filter=blob:none"),
    "partial without trees": _cloned("--filter=tree:0"),
    "SHA-256": _made("--object-format=sha256"),
    "submodules": _submodules,
    "inside a submodule": _inside_a_submodule,
    "LFS": _lfs,
    "sparse": _sparse("--cone", "in"),
    "sparse, with a sparse index": _sparse("--cone", "--sparse-index", "in"),
    "sparse by patterns": _sparse("--no-cone", "/*", "!/out/"),
    "alternates": _alternates,
    "odd names": _odd_names,
    "git directory elsewhere": _separate_git_dir,
    "through a link": _through_a_link,
    "replaced commits": _replaced,
    "packed": _packed,
    "odd index": _odd_index,
}
"""20,000 files: test_surroundings.py."""
if "--ref-format" in subprocess.run(("git", "init", "-h"), capture_output=True, text=True).stdout:
    FORMS |= {  # git 2.45
        "reftable": _made("--ref-format=reftable"),
        "reftable and SHA-256": _made("--ref-format=reftable", "--object-format=sha256"),
    }


def users(repo: Repo) -> dict[str, object]:
    """What is the user's own in a repository of any form."""

    def content(name: str) -> bytes | None:
        path = repo.path / repo.git("rev-parse", "--git-path", name)
        return path.read_bytes() if path.exists() else None

    ours = ("refs/heads/opencode/", "refs/remotes/sandbox-", "refs/daytona/")
    refs = [
        line
        for line in repo.git("for-each-ref").splitlines()
        if not line.split("\t")[1].startswith(ours)
    ]
    tree = {
        str(path): (path.read_bytes(), path.lstat().st_mode, path.lstat().st_mtime_ns)
        for path in repo.path.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(repo.path).parts
    }
    config = foreign((content("config") or b"").decode())
    return {name: content(name) for name in ("HEAD", "index", "logs/HEAD", "shallow")} | {
        "config": config,
        "refs": refs,
        "tree": tree,
    }


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_repository(local, repo, begin, tmp_path, form):
    """HEAD is there, the agent's commit comes back, also into a worktree of its branch, and nothing
    of the user's changes."""
    place = FORMS[form](repo, tmp_path)
    before = users(place)
    session = begin(place)
    if form != "unborn":
        assert session.agent("git rev-parse HEAD").strip() == place.git("rev-parse", "HEAD")
        assert session.agent("git status --porcelain") == ""
    session.agent(
        "mkdir -p in out; echo x >x; echo x >in/x; echo x >out/x; echo pointer >new.bin; "
        "git add .; git commit -qm agent"
    )
    session.sync()
    assert place.show("opencode/1", "out/x") == "x"
    assert place.git("log", "-1", "--format=%s", "opencode/1") == "agent"
    place.git("worktree", "add", "-q", "--no-checkout", str(tmp_path / "follower"), "opencode/1")
    follower = Repo(tmp_path / "follower")
    follower.git(
        "-c", "submodule.recurse=false", "reset", "-q", "--hard", env={"GIT_LFS_SKIP_SMUDGE": "1"}
    )
    session.agent("echo more >>x; echo another >other.bin")
    session.sync()
    assert (follower.path / "x").read_text() == "x\nmore\n"
    assert (follower.path / "other.bin").read_text() == "another\n"
    assert place.kept() == {}
    mine = place.git("commit-tree", "opencode/1^{tree}", "-p", "opencode/1", "-m", "mine")
    place.git("update-ref", "refs/heads/opencode/1", mine)
    session.coordinator.push("1")
    assert session.agent("git log -1 --format=%s").strip() == "mine"
    session.coordinator.delete("1")
    assert users(place) == before


def test_a_bare_repository_is_told_why_it_is_not_synced(local, repo, coordinate, tmp_path):
    repo.git("clone", "-q", "--bare", str(repo.path), str(tmp_path / "bare.git"))
    coordinator = coordinate(tmp_path / "bare.git")
    with pytest.raises(NoRepository, match="bare repository, and syncing needs a worktree"):
        coordinator.start()
    started = coordinator.ensure("ses_bare")
    assert started.session.git_return.state == "disabled"
    assert Repo(tmp_path / "bare.git").git("for-each-ref", "refs/heads") == repo.git(
        "for-each-ref", "refs/heads"
    )


@pytest.mark.parametrize(
    "defaults",
    [
        {"GIT_DEFAULT_HASH": "sha256"},
        {"GIT_DEFAULT_REF_FORMAT": "reftable", "GIT_DEFAULT_HASH": "sha256"},
        {"init.defaultObjectFormat": "sha256", "init.defaultRefFormat": "reftable"},
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("wanted", ["sha1", "sha256"])
def test_case_99_an_images_defaults_do_not_make_another_repository(tmp_path, defaults, wanted):
    """git 3 has others than git 2, and an image may have them today."""
    text = hostile_git_config.written({key: value for key, value in defaults.items() if "." in key})
    (tmp_path / "config").write_text(text)
    variables = {key: value for key, value in defaults.items() if "." not in key}
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": str(tmp_path / "config")} | variables
    source = scripts.read("repository") + scripts.read("prepare")
    project = str(tmp_path / "project")
    done = subprocess.run(
        ("sh", "-c", scripts.read("records"), "sh", source, "mark", project, wanted),
        env=env,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert report.parse(Execution(0, done.stdout), "mark").head is None
    config = (tmp_path / "project" / ".git" / "config").read_text()
    assert ("objectformat = sha256" in config.lower()) is (wanted == "sha256")
    assert "reftable" not in config


KINDS = {
    "promisor": "promisor.acceptFromServerUrl promisor.of.a.later.git promisor.quiet",
    "bundle": "bundle.version bundle.x.uri fetch.bundleuri fetch.bundlecreationtoken",
    "hook": "hook.mine.command hook.mine.event hook.a=b.command hook.a.b.event",
    "sideband": "sideband.allowcontrolcharacters sideband.https://x/?a=b.allowcontrolcharacters",
}


@pytest.mark.parametrize("kind", KINDS)
def test_case_99_a_key_that_reaches_out_is_reset_whatever_its_name(repo, kind):
    """As git reads it then, over any file and from its command line."""
    keys = KINDS[kind].split()
    for key in keys:
        repo.git("config", key, "evil")
    env = reset([*keys, "core.editor", "fetch.prune", "remote.origin.promisor"])
    for key in keys:
        section, _, _ = key.rpartition(".")
        asked = f"{section}.enabled" if kind == "hook" else key
        assert repo.git("config", "--get", asked, env=env) == ("false" if kind == "hook" else "")
    assert not [value for value in env.values() if value.startswith(("core.", "fetch.p", "rem"))]
    assert reset([]) == {}


def test_case_99_hooks_of_the_configuration_run_neither_here_nor_there(begin, repo, tmp_path):
    """git 2.54 takes them from there; the agent's are its own, but end no sync."""
    for event in HOOKS:
        repo.git("config", f"hook.x-{event}.event", event)
        repo.git("config", f"hook.x-{event}.command", f"echo {event} >>{tmp_path}/ran; exit 1")
    session = begin(repo)
    session.agent(
        f"for event in {' '.join(HOOKS)}; do git config hook.x-$event.event $event;"
        ' git config hook.x-$event.command "echo $event >>~/ran; exit 1"; done; echo x >new'
    )
    session.sync()
    assert repo.show("opencode/1", "new") == "x"
    mine = repo.git("commit-tree", "opencode/1^{tree}", "-p", "opencode/1", "-m", "mine")
    config = ["-c", "hook.reference-transaction.enabled=false"]
    repo.git(*config, "update-ref", "refs/heads/opencode/1", mine)
    session.coordinator.push(session.name)
    assert session.agent("git log -1 --format=%s; cat ~/ran 2>&1 || true").startswith("mine\n")
    assert not (tmp_path / "ran").exists()
    assert "No such file" in session.agent("cat ~/ran 2>&1 || true")
