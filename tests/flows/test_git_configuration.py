"""A user's git configuration, hooks, environment and kinds of repositories: none changes a sandbox
transfer, all keep working for other remotes (cases 10 to 18)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from git_daytona.base.errors import BadSetting, GitDaytonaError, TransferFailed
from support.round_trip import BIN


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def round_trip(repo, begin, name: str = "x") -> None:
    """HEAD there, a change back."""
    session = begin(repo)
    session.agent(f"git log -1 --format=%H >{name}")
    session.sync()
    assert repo.show(f"opencode/{session.number}", name) == repo.git("rev-parse", "HEAD")
    assert repo.git("for-each-ref", "--format=%(refname)", "refs/tags") == ""
    session.coordinator.close()


@pytest.fixture
def evil(tmp_path) -> Path:
    """A program that must not run: it leaves a mark and fails."""
    return program(
        tmp_path / "evil program", f"#!/bin/sh\necho \"$0 $*\" >>'{tmp_path}/ran'\nexit 1\n"
    )


def ran(tmp_path: Path) -> str:
    mark = tmp_path / "ran"
    return mark.read_text() if mark.exists() else ""


@pytest.mark.parametrize(
    ("configuration", "environment"),
    [
        ({}, {"GIT_SSH_COMMAND": "'{evil}'", "GIT_SSH_VARIANT": "plink"}),
        ({}, {"GIT_SSH": "{evil}", "GIT_SSH_VARIANT": "simple"}),
        ({"core.sshCommand": "'{evil}'", "ssh.variant": "plink"}, {}),
        ({"core.sshCommand": "'{evil}'", "ssh.variant": "simple"}, {"GIT_SSH": "{evil}"}),
    ],
)
def test_case_10_other_ssh_commands_do_not_run_here_and_do_elsewhere(
    local, repo, begin, evil, tmp_path, monkeypatch, configuration, environment
):
    for key, value in configuration.items():
        repo.git("config", "--global", key, value.format(evil=evil))
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(evil=evil))
    round_trip(repo, begin)
    assert ran(tmp_path) == ""
    repo.git("fetch", "ssh://me@host.invalid/x", check=False)
    assert "host.invalid" in ran(tmp_path)


def test_case_12_settings_of_pushes_and_fetches(local, repo, begin, evil, tmp_path):
    """All at once: each would fail the transfer, change what it moves, or run a program."""
    examples = {
        "push.gpgSign": "true",
        "gpg.program": str(evil),
        "commit.gpgSign": "true",
        "tag.gpgSign": "true",
        "push.followTags": "true",
        "push.recurseSubmodules": "check",
        "push.default": "nothing",
        "push.negotiate": "true",
        "push.pushOption": "option",
        "push.useForceIfIncludes": "true",
        "fetch.recurseSubmodules": "true",
        "submodule.recurse": "true",
        "fetch.prune": "true",
        "fetch.pruneTags": "true",
        "fetch.fsckObjects": "false",
        "fetch.output": "compact",
        "fetch.writeCommitGraph": "true",
        "fetch.negotiationAlgorithm": "skipping",
        "remote.pushDefault": "nowhere",
        "branch.main.pushRemote": "nowhere",
        "core.askPass": str(evil),
        "core.fsmonitor": str(evil),
        "core.pager": str(evil),
        "core.gitProxy": str(evil),
        "core.editor": str(evil),
        "core.alternateRefsCommand": str(evil),
        "credential.helper": f"!'{evil}'",
        "color.ui": "always",
        "advice.detachedHead": "true",
        "protocol.version": "0",
        "transfer.hideRefs": "refs/none",
        "gc.auto": "1",
        "maintenance.auto": "true",
        "receive.denyCurrentBranch": "refuse",
        "i18n.logOutputEncoding": "latin1",
        "core.quotePath": "false",
        "log.showSignature": "true",
        "init.defaultBranch": "trunk",
        "clone.defaultRemoteName": "sandbox-1",
        "user.useConfigOnly": "true",
        "alias.fetch": f"!'{evil}'",
        "status.showUntrackedFiles": "no",
        "diff.external": str(evil),
        "core.attributesFile": str(tmp_path / "attributes"),
        "core.hooksPath": str(tmp_path / "hooks"),
        "core.commitGraph": "false",
        "fetch.parallel": "3",
        "checkout.defaultRemote": "nowhere",
    }
    (tmp_path / "attributes").write_text("* text=auto\n")
    repo.git("tag", "-a", "-m", "tag", "v1")
    repo.git("update-ref", "refs/daytona/tagged", repo.git("rev-parse", "v1"))
    for key, value in examples.items():
        repo.git("config", "--global", key, value)
    for hook in (
        "pre-push",
        "reference-transaction",
        "post-checkout",
        "pre-auto-gc",
        "pre-commit",
        "post-update",
        "post-index-change",
    ):
        program(tmp_path / "hooks" / hook, f"#!/bin/sh\nexec '{evil}' {hook}\n")
        shutil.copy(tmp_path / "hooks" / hook, repo.path / ".git" / "hooks" / hook)
    session = begin(repo)
    session.agent('test -z "$(git tag)"; git tag -a -m theirs theirs 2>/dev/null; echo x >x')
    session.sync()
    assert (
        session.agent("git for-each-ref --format='%(refname)' refs/heads")
        == "refs/heads/opencode\n"
    )
    assert repo.git("for-each-ref", "--format=%(refname)", "refs/tags") == "refs/tags/v1"
    assert ran(tmp_path) == ""
    session.coordinator.delete("1")
    assert ran(tmp_path) == ""
    for key in examples:
        repo.git("config", "--global", "--unset-all", key)
    assert repo.show("opencode/1", "x") == "x"


def test_case_13_a_hook_of_the_repository_that_takes_minutes(local, repo, begin):
    program(repo.path / ".git" / "hooks" / "pre-push", "#!/bin/sh\nsleep 1000\n")
    round_trip(repo, begin)


@pytest.mark.parametrize("key", ["insteadOf", "pushInsteadOf"])
def test_case_14_rewriting_of_ssh_addresses(local, repo, begin, key):
    host = f"ssh://127.0.0.1:{local.gateway_port}"
    for prefix in (
        "ssh:",
        "ssh://",
        "ssh://127.0.0.1",
        host,
        f"{host}/home/daytona/",
        f"{host}/home/daytona/projec",
    ):
        repo.git(
            "config",
            "--global",
            "--add",
            "url.https://evil.invalid/.insteadOf"
            if key == "insteadOf"
            else "url.https://evil.invalid/.pushInsteadOf",
            prefix,
        )
    round_trip(repo, begin)


@pytest.mark.parametrize("key", ["insteadOf", "pushInsteadOf"])
def test_case_14_rewriting_of_exactly_the_address_is_named_before_anything_is_minted(
    local, repo, begin, key
):
    session = begin(repo)
    session.agent("echo x >x")
    session.coordinator.close()
    local.forget_calls()
    repo.git(
        "config",
        f"url.https://evil.invalid/.{key}",
        f"ssh://127.0.0.1:{local.gateway_port}/home/daytona/project",
    )
    with pytest.raises(BadSetting, match="rewrites the sandbox's URL") as refused:
        session.sync()
    assert "evil.invalid" in refused.value.message
    assert local.counts["mint"] == 0
    assert (
        session.coordinator.state.get(session.coordinator.sessions()[0].id).git_return.state
        == "failed"
    )


@pytest.mark.parametrize(
    ("configuration", "environment"),
    [
        ({"protocol.allow": "never"}, {}),
        ({"protocol.ssh.allow": "never"}, {}),
        ({}, {"GIT_ALLOW_PROTOCOL": "https:file"}),
    ],
)
def test_case_15_a_policy_against_ssh_is_respected_and_recorded(
    local, repo, begin, monkeypatch, configuration, environment
):
    session = begin(repo)
    session.agent("echo x >x")
    session.coordinator.close()
    local.forget_calls()
    for key, value in configuration.items():
        repo.git("config", "--global", key, value)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(TransferFailed, match="'ssh' not allowed"):
        session.sync()
    session.coordinator.close()
    assert local.counts["mint"] == local.counts["revoke"] <= 1, "no second try"
    recorded = session.coordinator.sessions()[0].git_return
    assert recorded.state == "failed"
    assert "'ssh' not allowed" in recorded.message


SHIM = """#!{python} -IS
import os, sys
with open({log!r}, "a") as log:
    log.write(repr(sys.argv) + repr(dict(os.environ)) + "\\n")
os.execvp("sh", ["sh", "-c", sys.argv[-1]])
"""


def test_case_11_and_case_37_a_partial_clone_fetches_what_it_lacks_from_its_own_origin(
    local, repo, begin, tmp_path, monkeypatch
):
    """By ssh, with the user's own client: which gets neither the token nor anything else of
    ours."""
    tokens: list[str] = []
    local.watch_tokens(tokens.append)
    shim = program(
        tmp_path / "own ssh", SHIM.format(python=sys.executable, log=str(tmp_path / "log"))
    )
    repo.commit("big", "first\n" * 1000)
    repo.commit("big", "second\n" * 1000)
    repo.git("config", "uploadpack.allowFilter", "true")
    repo.git("config", "uploadpack.allowAnySHA1InWant", "true")
    repo.git("config", "--global", "core.sshCommand", f"'{shim}' -i mine")
    repo.git("config", "--global", "ssh.variant", "ssh")
    partial = type(repo)(tmp_path / "partial")
    repo.git(
        "clone",
        "-q",
        "--filter=blob:none",
        "--no-checkout",
        f"ssh://me@origin.invalid:2200{repo.path}",
        str(partial.path),
    )
    partial.git("config", "core.worktree", str(partial.path))
    missing = [
        line
        for line in partial.git("rev-list", "--objects", "--all", "--missing=print").splitlines()
        if line.startswith("?")
    ]
    assert missing
    (tmp_path / "log").write_text("")
    session = begin(partial)
    assert session.agent("cat big | head -1; git show HEAD~1:big | head -1") == "second\nfirst\n"
    session.agent("echo x >x")
    session.sync()
    assert partial.show("opencode/1", "x") == "x"
    seen = (tmp_path / "log").read_text()
    assert "'-i', 'mine'" in seen
    assert "'me@origin.invalid'" in seen
    assert tokens
    assert not any(leak in seen for leak in (*tokens, "DAYTONA_", local.api_key))


def test_case_11_a_submodule_stays_where_it_is(local, repo, begin, tmp_path, monkeypatch):
    """Its address is nobody's business; fetch.recurseSubmodules would go there with our ssh
    command."""
    library = type(repo)(tmp_path / "library")
    library.path.mkdir()
    library.git("init", "-q")
    library.commit("code")
    repo.git(
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        str(library.path),
        "library",
    )
    repo.git("commit", "-q", "-m", "Add a submodule")
    repo.git("config", "submodule.library.url", "ssh://submodule.invalid/x")
    repo.git("config", "--global", "fetch.recurseSubmodules", "true")
    repo.git("config", "--global", "push.recurseSubmodules", "on-demand")
    session = begin(repo)
    session.agent("echo x >x")
    session.sync()
    assert repo.show("opencode/1", "x") == "x"
    assert repo.git("ls-tree", "opencode/1", "library").startswith("160000 commit")
    assert (repo.path / "library" / "code").exists()


def test_the_environment_of_a_hook_or_an_alias(
    local, repo, begin, coordinate, tmp_path, monkeypatch
):
    """GIT_DIR and friends as a hook of another repository has them; every kind of tracing; nothing
    of it reaches the transfers."""
    session = begin(repo)
    session.agent("echo x >x")
    tokens: list[str] = []
    local.watch_tokens(tokens.append)
    other = type(repo)(tmp_path / "other")
    other.path.mkdir()
    other.git("init", "-q")
    before = (
        other.git("for-each-ref"),
        sorted(path.name for path in (other.path / ".git").rglob("*")),
    )
    traces = tmp_path / "traces"
    traces.mkdir()
    for name in (
        "GIT_TRACE",
        "GIT_TRACE_PACKET",
        "GIT_TRACE_SETUP",
        "GIT_TRACE_PERFORMANCE",
        "GIT_TRACE_PACK_ACCESS",
        "GIT_TRACE_CURL",
        "GIT_TRACE_REFS",
        "GIT_TRACE2",
        "GIT_TRACE2_EVENT",
        "GIT_TRACE2_PERF",
    ):
        monkeypatch.setenv(name, str(traces / name))
    for key in ("normalTarget", "eventTarget", "perfTarget"):
        repo.git("config", "--global", f"trace2.{key}", str(traces / key))
    repo.git(
        "config",
        "--global",
        "trace2.envVars",
        "DAYTONA_SSH_TOKEN,DAYTONA_SSH_TOKEN_FD,DAYTONA_API_KEY,GIT_SSH_COMMAND",
    )
    for path in traces.iterdir():
        path.unlink()
    environment = {
        "GIT_DIR": str(other.path / ".git"),
        "GIT_WORK_TREE": str(other.path),
        "GIT_INDEX_FILE": str(other.path / "index"),
        "GIT_OBJECT_DIRECTORY": str(other.path / "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(other.path),
        "GIT_NAMESPACE": "elsewhere",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.sshCommand",
        "GIT_CONFIG_VALUE_0": "false",
        "GIT_CONFIG_PARAMETERS": "'core.bare=true'",
        "GIT_CEILING_DIRECTORIES": "/",
        "GIT_CURL_VERBOSE": "1",
        "GIT_ASKPASS": "false",
        "SSH_ASKPASS": "false",
        "GIT_EDITOR": "false",
        "GIT_PAGER": "false",
        "GIT_AUTHOR_NAME": "",
        "GIT_PROTOCOL": "version=7",
        "GIT_QUARANTINE_PATH": "/none",
        "GIT_SHALLOW_FILE": "/none",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_FLUSH": "0",
        "GIT_PUSH_OPTION_COUNT": "2",
        "LC_ALL": "ja_JP.UTF-8",
        "LANG": "de_DE.UTF-8",
        "LANGUAGE": "de:ja",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    session.sync()
    session.coordinator.close()
    for name in environment:
        monkeypatch.delenv(name)
    assert len(tokens) == 1
    traced = {path.name: path.read_text() for path in traces.rglob("*") if path.is_file()}
    assert not any(leak in text for leak in (*tokens, local.api_key) for text in traced.values())
    assert traced == {}, "nothing of a transfer is traced at all"
    assert repo.show("opencode/1", "x") == "x"
    assert (
        other.git("for-each-ref"),
        sorted(path.name for path in (other.path / ".git").rglob("*")),
    ) == before


@pytest.mark.parametrize("locale", ["de_DE.UTF-8", "ja_JP.UTF-8", "nonsense"])
def test_case_16_locales_do_not_change_what_is_understood(local, repo, begin, monkeypatch, locale):
    for name in ("LANG", "LC_ALL", "LC_MESSAGES", "LANGUAGE"):
        monkeypatch.setenv(name, locale)
    session = begin(repo)
    session.agent("echo x >x")
    local.faults.gateway.drop_after_handshake = 1
    session.sync()
    assert repo.show("opencode/1", "x") == "x"


def test_filters_and_line_ends(local, repo, begin, tmp_path):
    """core.autocrlf and filter drivers belong to worktrees; what travels are objects."""
    for key, value in {
        "core.autocrlf": "true",
        "core.eol": "crlf",
        "filter.shout.clean": "tr a-z A-Z",
        "filter.shout.smudge": "tr A-Z a-z",
        "filter.shout.required": "true",
    }.items():
        repo.git("config", key, value)
    repo.write(".gitattributes", "*.shout filter=shout\n")
    repo.git("add", ".gitattributes")
    repo.commit("a.shout", "loud\n")
    assert repo.git("cat-file", "blob", "HEAD:a.shout") == "LOUD"
    session = begin(repo)
    assert session.agent("cat a.shout README | od -c") == session.agent(
        "printf 'LOUD\\nhello\\n' | od -c"
    )
    session.agent("printf 'one\\r\\ntwo\\n' >mixed")
    session.sync()
    done = subprocess.run(
        ("git", "cat-file", "blob", "opencode/1:mixed"),
        cwd=repo.path,
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"one\r\ntwo\n"
    assert repo.git("status", "--porcelain") == ""


def test_case_17_an_installation_with_an_odd_path(local, repo, tmp_path):
    """Blanks, quotes and $ in the path of the package and of the repository."""
    place = tmp_path / 'it\'s a "very" $odd `path` \\n ünï'
    shutil.copytree(
        BIN.parent / "helpers", place / "helpers", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(repo.path, place / "repository")
    script = """
import sys
from pathlib import Path
import git_daytona
assert git_daytona.__file__.startswith(sys.argv[1]), git_daytona.__file__
from git_daytona.git.repository import discover
from git_daytona.sandbox import report
from git_daytona.settings import settings
from git_daytona.sessions.coordinator import Coordinator
repository = discover(Path.cwd())
coordinator = Coordinator(repository, settings.load(repository.worktree))
number = str(coordinator.start().session.names.number)
made = report.in_directory("echo x >x", timeout=60)
coordinator.work_in(coordinator.find(number), lambda id_: made.run(coordinator.cloud, id_))
print(coordinator.sync(number).head)
coordinator.close()
"""
    done = subprocess.run(
        (sys.executable, "-B", "-c", script, str(place)),
        cwd=place / "repository",
        env=os.environ | {"PYTHONPATH": str(place / "helpers")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert type(repo)(place / "repository").git("rev-parse", "opencode/1") == done.stdout.strip()


def test_case_15_somebody_elses_repository(local, repo, coordinate, monkeypatch):
    """git's own refusal, and the exception in the user's own configuration, count for us as for
    git."""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(GitDaytonaError, match="somebody else owns it") as refused:
        coordinate(repo.path)
    assert "safe.directory" in refused.value.hint
    repo.git("config", "--global", "--add", "safe.directory", str(repo.path))
    assert coordinate(repo.path).repository.worktree == repo.path


def test_case_42_remotes_of_earlier_tools_lose_their_tokens(local, repo, begin):
    """Wherever the token stands (case 42)."""
    token = "OldToken1234567890abcdef"
    address = f"ssh://{token}@127.0.0.1:{local.gateway_port}/home/daytona/project"
    repo.git("remote", "add", "sandbox-1", address)
    repo.git("config", "remote.sandbox-1.pushurl", address)
    repo.git("config", "branch.main.remote", address)
    repo.git("config", "remote.sandbox-1.mine", "kept")
    session = begin(repo)
    assert repo.git("config", "remote.sandbox-1.mine") == "kept"
    assert token not in (repo.path / ".git" / "config").read_text()
    session.agent("echo x >x")
    session.sync()
    left = [
        path
        for path in (repo.path / ".git").rglob("*")
        if path.is_file() and token.encode() in path.read_bytes()
    ]
    assert left == []
