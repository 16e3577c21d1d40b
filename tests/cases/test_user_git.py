"""What users have in their git configuration and around git, beyond flows/test_git_configuration.py
(cases 11, 13, 16 to 18)."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from git_daytona import ssh
from git_daytona.api.cloud import Cloud
from git_daytona.base import run
from git_daytona.git import environment as gitenv
from git_daytona.settings import settings
from git_daytona.transfer import environment
from git_daytona.transfer.environment import ssh_environment
from git_daytona.trust.gateway import Policy
from support.round_trip import program

# A stand-in for the user's own ssh: it notes everything it is given and runs the server's side
# here.
OWN_SSH = """#!{python} -IS
import os, sys
with open({log!r}, "a") as log:
    log.write(repr(sys.argv) + repr(dict(os.environ)) + "\\n")
os.execvp("sh", ["sh", "-c", sys.argv[-1]])
"""


def ran(tmp_path: Path) -> str:
    mark = tmp_path / "ran"
    return mark.read_text() if mark.exists() else ""


def test_case_11_what_is_missing_comes_from_its_origin(local, repo, begin, tmp_path):
    """Partial clones of several kinds, one of them with a submodule to be fetched on demand: the
    push gets what it lacks by the user's own ssh, and neither the token nor anything else of ours
    reaches any other host."""
    tokens: list[str] = []
    local.watch_tokens(tokens.append)
    own = program(
        tmp_path / "own ssh", OWN_SSH.format(python=sys.executable, log=str(tmp_path / "log"))
    )
    repo.commit("folder/big", "first\n" * 1000)
    repo.commit("folder/big", "second\n" * 1000)
    for key in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):
        repo.git("config", key, "true")
    repo.git("config", "--global", "core.sshCommand", f"'{own}' -i mine")
    repo.git("config", "--global", "ssh.variant", "ssh")
    repo.git("config", "--global", "fetch.recurseSubmodules", "on-demand")
    examples = {
        "no trees either": "tree:0",
        "no large blobs": "blob:limit=1k",
        "sparse": "blob:none",
    }
    for name, which in examples.items():
        partial = type(repo)(tmp_path / name)
        repo.git(
            "clone",
            "-q",
            f"--filter={which}",
            "--no-checkout",
            f"ssh://me@origin.invalid{repo.path}",
            str(partial.path),
        )
        if name == "sparse":
            partial.git("sparse-checkout", "set", "elsewhere")
            partial.git("config", "submodule.library.url", "ssh://submodule.invalid/x")
        missing = partial.git("rev-list", "--objects", "--all", "--missing=print")
        assert "\n?" in missing, name
        (tmp_path / "log").write_text("")
        session = begin(partial)
        assert (
            session.agent(
                "git show HEAD:folder/big | head -1; git show HEAD~1:folder/big | head -1"
            )
            == "second\nfirst\n"
        ), name
        session.agent("echo x >x")
        session.sync()
        assert partial.show("opencode/1", "x") == "x", name
        seen = (tmp_path / "log").read_text()
        assert "'-i', 'mine', " in seen and "'me@origin.invalid'" in seen, name
        assert "submodule.invalid" not in seen, name
        assert not any(leak in seen for leak in (*tokens, "DAYTONA_", local.api_key)), name
    assert len(tokens) == 2 * len(examples)


LFS_HOOK = """#!/bin/sh
command -v git-lfs >/dev/null 2>&1 || { printf >&2 "\\n%s\\n\\n" \
"This repository is configured for Git LFS but 'git-lfs' was not found on your path."; exit 2; }
git lfs pre-push "$@"
"""
"""As ``git lfs install`` writes it."""


def test_case_13_hooks_of_pushes(local, repo, begin, evil, tmp_path, monkeypatch):
    """LFS's, as `git lfs install` writes it, husky's, one for all repositories, one that waits for
    input: none runs for a sandbox, all of them for other remotes."""
    lfs = program(tmp_path / "bin" / "git-lfs", f"#!/bin/sh\nexec '{evil}' lfs \"$@\"\n")
    monkeypatch.setenv("PATH", f"{lfs.parent}:{os.environ['PATH']}")
    other = tmp_path / "other.git"
    repo.git("clone", "-q", "--bare", str(repo.path), str(other))
    hooks = repo.path / ".git" / "hooks"

    def install(place: Path, text: str, *configuration: str) -> None:
        program(place / "pre-push", text)
        if configuration:
            repo.git("config", *configuration)

    marked = f"#!/bin/sh\nexec '{evil}' pre-push\n"
    examples = {
        "LFS": lambda: install(hooks, LFS_HOOK),
        "husky": lambda: install(repo.path / ".husky", marked, "core.hooksPath", ".husky"),
        "all repositories": lambda: install(
            tmp_path / "hooks", marked, "--global", "core.hooksPath", str(tmp_path / "hooks")
        ),
        "asks a question": lambda: install(
            hooks, f"#!/bin/sh\nread answer </dev/tty; exec '{evil}' pre-push\n"
        ),
    }
    repo.git("config", "filter.lfs.required", "true")
    for name, make in examples.items():
        make()
        session = begin(repo)
        session.agent(f"echo '{name}' >what")
        session.sync()
        repo.git("switch", "-q", f"opencode/{session.number}")
        repo.commit("mine")
        session.coordinator.push(session.name)
        assert session.agent("cat mine; cat what") == f"content\n{name}\n"
        assert ran(tmp_path) == "", name
        repo.git(
            "push", "-q", str(other), f"HEAD:refs/heads/{session.number}", check=False, stdin=""
        )
        assert ran(tmp_path) != "", f"{name}: the test would see it"
        (tmp_path / "ran").unlink()
        repo.git("switch", "-q", "main")
        repo.git("config", "--unset-all", "core.hooksPath", check=False)
        repo.git("config", "--global", "--unset-all", "core.hooksPath", check=False)


@pytest.mark.parametrize(
    "environment",
    [
        {"LANG": "de_DE.UTF-8"},
        {"LC_ALL": "ja_JP.UTF-8", "LANGUAGE": "ja:de"},
        {"LC_MESSAGES": "tr_TR.UTF-8"},
        {"LC_ALL": "", "LANGUAGE": "fr"},
        {"LC_ALL": "de_DE.ISO-8859-1", "LC_CTYPE": "ja_JP.eucJP"},
    ],
)
def test_case_16_git_speaks_one_language(environment):
    """Whatever is set, git runs in the C locale, so that logs and what is quoted of git's words are
    of one language."""
    env = gitenv.base({"PATH": os.environ["PATH"], **environment})
    assert env["LC_ALL"] == "C" and "LANGUAGE" not in env
    said = run.run(("git", "--git-dir", "/none", "rev-parse"), env=env, timeout=30)
    assert "not a git repository" in said.complaint


@pytest.mark.parametrize(
    "folder",
    [
        "with blanks",
        "it's",
        'a "quoted" one',
        "$HOME",
        "`id`",
        "$(exit 1)",
        "back\\slash",
        "-dash",
        "per%cent",
        "semi;colon & more",
        "ünï 日本",
        "~",
        "#x",
        "*?[a]",
    ],
)
def test_case_17_the_wrapper_in_an_odd_folder(local, tmp_path, monkeypatch, folder):
    """What git is told to run as its ssh goes through a shell: the very wrapper is found, and its
    arguments arrive."""
    place = tmp_path / folder
    (place / "git_daytona").mkdir(parents=True)
    shutil.copy(ssh.__file__, place / "git_daytona")
    wrapper = (*environment.WRAPPER[:-1], str(place))
    monkeypatch.setattr(environment, "WRAPPER", wrapper)
    found = settings.load(None)
    command = ssh_environment(found, Policy(found, Cloud(found).config).default(), ())[
        "GIT_SSH_COMMAND"
    ]
    assert str(place) in shlex.split(command)
    done = subprocess.run(
        ("sh", "-c", f'{command} "$@"', "sh", "--help"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout[:6]) == (0, "Usage:"), done.stderr


def test_case_60_the_users_own_git_after_a_deletion(local, repo, begin):
    """While the remote is there `git fetch --all` passes it over; nothing of it is left once the
    session is deleted."""
    repo.git("config", "fetch.parallel", "0")
    repo.git("remote", "add", "origin", str(repo.path))
    session = begin(repo)
    session.agent("git switch -qc side; echo x >x")
    session.sync()
    examples = (
        ("fetch", "--all"),
        ("remote", "update"),
        ("fetch", "--multiple", "--all", "--jobs=3"),
        ("remote", "prune", "origin"),
    )
    for words in examples:
        done = subprocess.run(
            ("git", *words), cwd=repo.path, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, "sandbox-1" in done.stdout + done.stderr) == (0, False), words
    session.coordinator.delete("1")
    for words in examples:
        repo.git(*words)
    assert "sandbox-1" not in (repo.path / ".git" / "config").read_text()
    assert not list((repo.path / ".git").rglob("*sandbox-1*"))
    assert repo.show("opencode/1", "x") == "x"
