"""The canary: a complete run with every kind of tracing on, its failures included, and then a search for each token and the API key in
every file and every word that came out (STYLE 1, 2; CASES 4, 56)."""

import base64
import os
import re
import traceback
import zlib
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

import pytest

from git_daytona import git, settings
from git_daytona.errors import GitDaytonaError
from git_daytona.sessions import Coordinator
from rig import Ran

PLANTED = "Planted+Canary/0123456789"


def forms(secret: str) -> set[bytes]:
    """How a secret may be written down. (Of base64 the part that does not depend on what stands before it.)"""
    raw = secret.encode()
    encoded = {base64.b64encode(b"x" * shift + raw)[4:-4] for shift in range(3)}
    return {raw, quote(secret, safe="").encode(), raw.hex().encode(), raw[::-1], *encoded}


def contents(path: Path) -> Iterable[bytes]:
    """A file's bytes, and what is compressed in them (git's objects and packs)."""
    data = path.read_bytes()
    yield data
    for found in re.finditer(rb"\x78[\x01\x5e\x9c\xda]", data):
        try:
            yield zlib.decompressobj().decompress(data[found.start() :], 1 << 20)
        except zlib.error:
            continue


def leaks(places: Iterable[Path], texts: dict[str, str], secrets: Iterable[str]) -> list[str]:
    """Where any of the secrets stands: in a file's content or name, or in a text."""
    wanted = {form for secret in secrets for form in forms(secret)}
    found = [name for name, text in texts.items() if any(form in text.encode("utf-8", "surrogateescape") for form in wanted)]
    for place in places:
        for path in place.rglob("*"):
            if any(form in os.fsencode(path) for form in wanted):
                found.append(f"name of {path}")
            if path.is_file() and not path.is_symlink() and any(form in data for data in contents(path) for form in wanted):
                found.append(str(path))
    return found


@pytest.fixture
def traced(monkeypatch, tmp_path, home) -> Path:
    """Every kind of tracing that git knows, to files and to stderr; TMPDIR and umask as they should not be."""
    traces = tmp_path / "traces"
    traces.mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("DAYTONA_DEBUG", "1")
    for name in ("GIT_TRACE", "GIT_TRACE_PACKET", "GIT_TRACE_SETUP", "GIT_TRACE_CURL", "GIT_TRACE2_EVENT"):
        monkeypatch.setenv(name, str(traces / name))
    for name in ("GIT_TRACE_PERFORMANCE", "GIT_TRACE2_PERF", "GIT_CURL_VERBOSE", "GIT_TRANSFER_TRACE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("GIT_TRACE2_ENV_VARS", "DAYTONA_SSH_TOKEN,DAYTONA_API_KEY")
    with (home / ".gitconfig").open("a") as file:
        file.write(f"[trace2]\n\tnormalTarget = {traces}/normal\n\tenvVars = DAYTONA_API_KEY,DAYTONA_SSH_TOKEN\n")
    before = os.umask(0)
    yield traces
    os.umask(before)


def test_case_04_and_case_56_a_complete_run_leaves_no_secret_anywhere(local, repo, command, traced, tmp_path, home, monkeypatch):
    tokens: list[str] = []
    local.watch_tokens(tokens.append)
    texts: dict[str, str] = {}
    before = set(home.rglob("*"))

    def run(*words: str, stdin: str = "", status: int | None = 0) -> Ran:
        told = command(*words, cwd=repo.path, stdin=stdin)
        assert status is None or told.status == status, told.err
        texts[f"stdout of {words} ({len(texts)})"] = told.out
        texts[f"stderr of {words} ({len(texts)})"] = told.err
        return told

    # As people and scripts run it.
    run("git-daytona", "start")
    run("git-daytona", "exec", "1", "env; echo x >x; tr '\\0' '\\n' </proc/self/environ; cat .git/config .git/FETCH_HEAD; true")
    run("git-daytona", "sync", "1")
    sandbox = local.sandboxes[-1].id
    # The command has the token in its environment, as asked; so whoever asks git to trace that variable gets it.
    run(
        "daytona-token",
        "exec",
        sandbox,
        "--",
        "sh",
        "-c",
        'unset GIT_TRACE2_ENV_VARS; GIT_CONFIG_GLOBAL=/dev/null git ls-remote "ssh://$DAYTONA_SSH_GATEWAY/home/daytona/project" >/dev/null',
    )
    minted = command("daytona-token", "mint", sandbox, cwd=repo.path)
    assert minted.out == f"{tokens[-1]}\n"
    texts["stderr of mint"] = minted.err
    run("daytona-token", "revoke", sandbox, stdin=minted.out)

    # In this process: pushes, failures of all kinds, and a server that repeats what it was told.
    repository = git.discover(repo.path)
    coordinator = Coordinator(
        repository, settings.load(repository.worktree), lambda line: texts.update({f"told {len(texts)}": line})
    )
    with pytest.MonkeyPatch.context() as own:  # git as this test calls it is traced, too
        own.delenv("DAYTONA_API_KEY")
        repo.git("switch", "-q", "opencode/1")
        repo.commit("mine")
    coordinator.push("1")
    for number, (fault, gateway) in enumerate(
        [
            ({"route": "mint", "status": 500, "message": local.api_key}, {}),
            ({"route": "mint", "drop": "after"}, {}),
            ({"route": "mint", "body": b'{"token": "-bad token"}'}, {}),
            ({"route": "revoke", "status": 400, "message": f"no {tokens[-1]} {local.api_key}"}, {}),
            ({"route": "revoke", "drop": "after"}, {}),
            ({"route": "nothing"}, {"drop_after_handshake": -1}),
            ({"route": "nothing"}, {"drop_after_bytes": 2000}),
        ]
    ):
        monkeypatch.setattr("git_daytona.leases._wait", lambda state: 0.01)
        local.faults.gateway = type(local.faults.gateway)(**gateway)
        with local.faults.call(**fault):
            try:
                coordinator.fetch("1", show=True)
                coordinator.close()
            except GitDaytonaError as problem:
                texts[f"error {number}"] = (
                    "".join(traceback.format_exception(problem)) + f"{problem!r} {problem.hint} {problem.details}"
                )
    assert len([name for name in texts if name.startswith("error")]) >= 4
    local.faults.gateway = type(local.faults.gateway)()
    coordinator.close()
    run("daytona-token", "reap", status=None)
    monkeypatch.setenv("DAYTONA_API_KEY", "dtn_AnotherKeyThatIsWrong")
    run("git-daytona", "sync", "1", status=6)
    monkeypatch.setenv("DAYTONA_API_KEY", local.api_key)
    run("git-daytona", "delete", "1")
    assert local.live_tokens() == 0

    secrets = {*tokens, local.api_key, "AnotherKeyThatIsWrong"}
    assert len(tokens) > 8
    assert leaks([home, repo.path, tmp_path / "tmp", traced], texts, secrets) == []
    log = (home / ".local/share/opencode/log/daytona.log").read_text()
    assert "token.mint" in log
    assert "token.revoke" in log
    assert list((tmp_path / "tmp").iterdir()) == [], "nothing is left in TMPDIR"
    for path in set(home.rglob("*")) - before:
        if ".cache" not in path.parts:
            assert oct(path.stat().st_mode & 0o777) == (oct(0o700) if path.is_dir() else oct(0o600)), path


def test_the_search_finds_what_is_planted(repo, tmp_path, home):
    """In a file, a file's name, a git object, a text; raw and encoded."""
    assert leaks([home, repo.path], {"text": "nothing"}, [PLANTED]) == []
    (home / "deep" / "er").mkdir(parents=True)
    for number, form in enumerate(sorted(forms(PLANTED))):
        (home / "deep" / "er" / f"file{number}").write_bytes(b"before " + form + b" after")
    (home / quote(PLANTED, safe="")).mkdir()
    (home / "base64").write_bytes(base64.b64encode(f"user:{PLANTED}:password".encode()))
    repo.commit("committed", f"x {PLANTED} y\n")
    (repo.path / "committed").unlink()
    repo.git("gc", "-q")
    found = leaks([home, repo.path], {"text": f"a{PLANTED}b"}, [PLANTED])
    assert len(found) == 1 + len(forms(PLANTED)) + 1 + 1 + 1
    assert any(path.endswith(".pack") for path in found)
