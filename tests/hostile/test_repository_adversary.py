"""A repository as an adversary: what its files and its .git say counts for nothing against
settings, trust and secrets.

What git itself does with a configuration that it trusts (a .git of the user's own) is git's; what
is promised beyond that stands in git-daytona-security(7).
"""

import os
import shutil
import stat
from pathlib import Path

import pytest

from git_daytona.base.errors import GitDaytonaError
from git_daytona.settings import settings
from support.evil_api import response, serving

SETTINGS = (*settings.FROM_DOTENV, *settings.NEVER_FROM_DOTENV)
OTHERS = (
    "DAYTONA_DEBUG",
    "DAYTONA_SERVER_URL",
    "DAYTONA_JWT_TOKEN",
    "DAYTONA_ORGANIZATION_ID",
    "DAYTONA_OTEL_ENABLED",
    "DAYTONA_SSH_TOKEN",
    "DAYTONA_SSH_TOKEN_FD",
    "DAYTONA_SSH_GATEWAY",
    "DAYTONA_SSH_TRUST_FILE",
    "DAYTONA_SSH_TRUST_NAME",
    "DAYTONA_SSH_OTHER_COMMAND",
    "DAYTONA_SSH_LIFELINE_FD",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_EXEC_PATH",
    "GIT_CONFIG_GLOBAL",
    "GIT_DIR",
    "GIT_PROXY_COMMAND",
    "SSH_ASKPASS",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHON_KEYRING_BACKEND",
    "PATH",
    "HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "LD_PRELOAD",
    "NODE_OPTIONS",
    "OPENCODE_CONFIG",
    "SHELL",
    "EDITOR",
)

SHIM = """#!/bin/sh
{{ echo "== {name} $*"; env; ls -l /proc/self/fd; }} >>{record}
exec {real} "$@"
"""
TRAP = """#!/bin/sh
{{ echo "== $0 $*"; env; for fd in /proc/$$/fd/*; do readlink $fd; done; }} >>{record}
exit 1
"""


@pytest.fixture
def apart(tmp_path_factory) -> Path:
    """A folder that no snapshot looks into."""
    return tmp_path_factory.mktemp("apart")


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def recorded(apart, monkeypatch) -> Path:
    """git and ssh write down the environment that they are started with."""
    record, folder = apart / "record", apart / "bin"
    folder.mkdir()
    for name in ("git", "ssh"):
        executable(folder / name, SHIM.format(name=name, record=record, real=shutil.which(name)))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return record


def life(tell, repo, number: str = "1") -> None:
    """A whole session by the executables, as a user has it."""
    words = (
        ("start",),
        ("exec", number, "--", "echo work > work"),
        ("sync", number),
        ("status",),
        ("delete", number),
    )
    for each in words:
        done = tell("git-daytona", *each, cwd=repo.path)
        assert done.status == 0, (each, done)


def test_an_env_file(local, repo, tell, recorded, watched):
    """Two names count there, and they lose against the environment; no name of it reaches a child
    process."""
    with serving() as evil:
        evil.answer = lambda method, path: response(b"{}")
        text = "".join(
            f"{name}={evil.url}/evil\nexport {name}='{evil.url}/evil'\n"
            for name in (*SETTINGS[:1], *SETTINGS[2:], *OTHERS)
        )
        watched.remotes = True
        for place in (".env", ".env.local", "sub/.env"):
            repo.write(place, text)
        with watched.nothing_else_changed("an .env file"):
            started = tell("git-daytona", "start", cwd=repo.path)
            assert started.status == 0, started
            life_of_one = tell("git-daytona", "sync", "1", cwd=repo.path)
            assert life_of_one.status == 0, life_of_one
        warnings = [line for line in started.err.splitlines() if "warning" in line]
        assert len(warnings) == 1 and all(
            name in warnings[0] for name in settings.NEVER_FROM_DOTENV
        ), started.err
        assert evil.requests == []
        environment = recorded.read_text(errors="replace")
        assert "== git" in environment and "== ssh" in environment
        assert "/evil" not in environment
        assert local.api_key not in environment


def test_a_key_in_an_env_file_goes_to_the_users_own_api(
    local, repo, tell, recorded, watched, monkeypatch
):
    monkeypatch.delenv("DAYTONA_API_KEY")
    repo.write(".env", f"DAYTONA_API_KEY={local.api_key}\nDAYTONA_API_URL=http://127.0.0.1:1\n")
    watched.remotes = True
    with watched.nothing_else_changed("a key in an .env file"):
        assert tell("git-daytona", "start", cwd=repo.path).status == 0
    assert local.api_key not in recorded.read_text(errors="replace")


def test_an_env_file_that_is_no_file(tmp_path, home):
    project = tmp_path / "project"
    project.mkdir()
    place = project / ".env"
    (home / "private").write_text(
        "secret line that is not for any log\nDAYTONA_SNAPSHOT=\x1b[2Jx\n"
    )
    makers = {
        "a pipe": lambda: os.mkfifo(place),
        "a folder": place.mkdir,
        "a device": lambda: place.symlink_to("/dev/zero"),
        "a loop": lambda: place.symlink_to(".env"),
        "a large one": lambda: place.write_bytes(b"A=b\n" * 500_000),
        "no text": lambda: place.write_bytes(b"\xff\xfeA\x00"),
        "somebody's file": lambda: place.symlink_to(home / "private"),
        "many bad lines": lambda: place.write_text("=\x1b[2J\n'\n" * 1000),
    }
    for what, make in makers.items():
        make()
        found = settings.load(project, {"DAYTONA_API_URL": "http://127.0.0.1:1"})
        assert found.key is None, what
        for text in found.warnings:
            assert text.isprintable() and "secret line" not in text, what
        shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()


def hostile_config(trap: Path, evil_url: str) -> str:
    """A .git/config as a tarball could bring it: each program that git knows, remotes prepared
    under our names, and rewriting."""
    return f"""
[core]
\tsshCommand = {trap} ssh
\tfsmonitor = {trap}
\thooksPath = {trap.parent}/hooks
\tpager = {trap}
\teditor = {trap}
\taskPass = {trap}
\tgitProxy = {trap}
\talternateRefsCommand = {trap} alternates
\tpreferSymlinkRefs = true
\tlogAllRefUpdates = always
[ssh]
\tvariant = plink
[diff]
\texternal = {trap}
[diff "evil"]
\ttextconv = {trap}
\tcommand = {trap}
[merge "evil"]
\tdriver = {trap}
[filter "evil"]
\tclean = {trap}
\tsmudge = {trap}
\tprocess = {trap}
\trequired = true
[credential]
\thelper = {trap}
[credential "{evil_url}"]
\thelper = {trap}
[gpg]
\tprogram = {trap}
[gpg "ssh"]
\tprogram = {trap}
\tdefaultKeyCommand = {trap}
[commit]
\tgpgSign = true
[push]
\tgpgSign = true
\trecurseSubmodules = on-demand
\tfollowTags = true
[fetch]
\trecurseSubmodules = true
\tfsckObjects = false
\turiProtocols = http
[transfer]
\tfsckObjects = false
\tbundleURI = true
[receive]
\tfsckObjects = false
[fsck]
\tskipList = /dev/null
[uploadpack]
\tpackObjectsHook = {trap}
[gc]
\tauto = 1
[maintenance]
\tauto = true
[protocol "ext"]
\tallow = always
[alias]
\tfetch = !{trap}
\tpush = !{trap}
\tdaytona = !{trap}
[trace2]
\teventTarget = {trap.parent}/trace
\tnormalTarget = {trap.parent}/trace
\tenvVars = DAYTONA_API_KEY,DAYTONA_SSH_TOKEN
[http]
\tproxy = {evil_url}
\tsslVerify = false
[remote "origin"]
\turl = ext::{trap} origin
\tpromisor = true
[remote "sandbox-1"]
\turl = ssh://stranger@127.0.0.1:1/x
\tpushurl = ext::{trap} sandbox
\tuploadpack = {trap}
\treceivepack = {trap}
\tproxy = {evil_url}
\tvcs = evil
\tfetch = +refs/heads/*:refs/heads/*
[branch "opencode/1"]
\tremote = sandbox-1
\tmerge = refs/heads/x
[branch "main"]
\tremote = ext::{trap} branch
[url "ext::{trap} url"]
\tinsteadOf = ssh://
\tpushInsteadOf = ssh://
[include]
\tpath = {trap.parent}/included
[daytona]
\tmaxFetchSize = 99g
"""


def test_a_configuration_from_a_tarball(local, repo, tell, watched, apart, monkeypatch):
    """None of its programs runs in a session whose branch is not checked out here, and its remotes
    are not talked to."""
    repo.commit(".gitattributes", "* filter=evil diff=evil merge=evil\n")
    record = apart / "ran"
    trap = executable(apart / "trap", TRAP.format(record=record))
    (apart / "hooks").mkdir()
    for hook in (
        "pre-push",
        "post-checkout",
        "reference-transaction",
        "post-index-change",
        "pre-auto-gc",
        "post-merge",
        "fsmonitor-watchman",
    ):
        executable(apart / "hooks" / hook, TRAP.format(record=record))
        executable(repo.path / ".git" / "hooks" / hook, TRAP.format(record=record))
    (apart / "included").write_text(f"[core]\n\tsshCommand = {trap}\n")
    other = type(repo)(apart / "other")
    other.path.mkdir()
    other.git("init", "-q")
    other.commit("x")
    (repo.path / ".git/objects/info/alternates").write_text(f"{other.path}/.git/objects\n")
    with serving() as evil, (repo.path / ".git/config").open("a") as config:
        config.write(hostile_config(trap, evil.url))
        config.close()
        before = (repo.path / ".git/config").read_text()
        with watched.nothing_else_changed("a hostile configuration"):
            life(tell, repo, "2")
        assert evil.requests == []
    assert not record.exists(), record.read_text()
    assert not (apart / "trace").exists()
    assert (repo.path / ".git/config").read_text() == before
    assert local.live_tokens() == 0


def test_programs_that_git_runs_by_the_users_will_get_no_secret(
    local, repo, begin, watched, apart, monkeypatch
):
    """Filters run where opencode/N is checked out, and a partial clone fetches what it lacks
    through core.sshCommand: both as git does by itself. Neither sees key or token."""
    record = apart / "ran"
    trap = executable(apart / "trap", TRAP.format(record=record))
    passing = executable(apart / "filter", TRAP.format(record=record).replace("exit 1", "exec cat"))
    repo.git("config", "filter.mine.clean", str(passing))
    repo.git("config", "filter.mine.smudge", str(passing))
    repo.git("config", "core.sshCommand", str(trap))
    session = begin(repo)
    repo.git("switch", "-q", "opencode/1")
    session.agent("printf '* filter=mine\\n' > .gitattributes; echo x > filtered")
    watched.worktree = True
    # of what the user's own git started, with the user's own environment
    record.unlink(missing_ok=True)
    with watched.nothing_else_changed("filters"):
        session.sync()
    seen = record.read_text()
    assert str(passing) in seen, "it ran"
    # A blob that is missing, and promised by a host that is reached by ssh.
    blob = repo.git("hash-object", "-w", "--no-filters", "--stdin", stdin="promised\n")
    repo.git("update-index", "--add", "--cacheinfo", f"100644,{blob},promised")
    repo.git("commit", "-q", "--no-verify", "-m", "promised")
    (repo.path / ".git/objects" / blob[:2] / blob[2:]).unlink()
    for key, value in {
        "extensions.partialClone": "elsewhere",
        "core.repositoryFormatVersion": "1",
        "remote.elsewhere.promisor": "true",
        "remote.elsewhere.url": "ssh://elsewhere.invalid/x",
        "remote.elsewhere.partialCloneFilter": "blob:none",
    }.items():
        repo.git("config", key, value)
    record.unlink(missing_ok=True)
    with pytest.raises(GitDaytonaError, match="push"):
        session.coordinator.push("1")
    session.coordinator.close()
    seen += record.read_text()
    assert "elsewhere.invalid" in seen, "it ran"
    assert local.api_key not in seen
    assert "DAYTONA_" not in seen
    assert "daytona-token" not in seen, "no descriptor that holds the token"
    assert local.live_tokens() == 0


DEEP = "[" * 100_000
BAD_JSON = (
    "{",
    DEEP,
    '{"plugin": ' + DEEP,
    '{"plugin": ["file:///evil.js", 7, null, "\\u001b[2J"], "mcp": {}}',
    "\x00",
    "/*" * 1000,
    '"' * 999,
    "null",
)


def test_files_of_opencode(local, repo, tell, watched, apart):
    """OpenCode reads them, and runs what they name if the user lets it; we look only whether our
    plugin is listed, and say so."""
    mark = apart / "ran"
    evil = f"require('fs').writeFileSync('{mark}', 'ran'); export default async () => ({{}})\n"
    for place in (
        ".opencode/plugin/evil.js",
        ".opencode/plugins/evil.ts",
        ".opencode/tool/bash.ts",
        ".opencode/agent/build.md",
    ):
        repo.write(place, evil)
    for number, text in enumerate(BAD_JSON):
        for name in ("opencode.json", "opencode.jsonc", ".opencode/opencode.json"):
            repo.write(name, text)
        with watched.nothing_else_changed("OpenCode's files"):
            done = tell("git-daytona", "doctor", cwd=repo.path)
        assert done.status in (0, 1), (text[:50], done)
        assert "\x1b" not in done.out + done.err
        if number == 0:
            watched.remotes = True
            with watched.nothing_else_changed("OpenCode's files"):
                life(tell, repo)
    assert not mark.exists()
