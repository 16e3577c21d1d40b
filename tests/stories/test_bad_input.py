"""Bad input of every command of git-daytona and daytona-token: one error line, one hint line, the
documented status, no traceback."""

import http.server
import os
import shutil
import socket
import threading
from collections.abc import Iterator

import pytest

from develop import errors_page
from git_daytona.base.errors import InternalError
from support.program import Told

STATUSES = {status for status, _ in errors_page.table()}
USAGE, UNREACHABLE, NO_KEY, KEY_REFUSED, FORBIDDEN, NOT_FOUND, NO_REPOSITORY = 2, 4, 5, 6, 7, 8, 9
MISSING, SETTING, ANSWER = 12, 13, 15

GIT_VERBS = (
    ("start",),
    ("status",),
    ("sync", "1"),
    ("fetch", "1"),
    ("push", "1"),
    ("delete", "1"),
    ("exec", "1", "--", "true"),
)
TOKEN_VERBS = (("mint", "sb1"), ("revoke", "--all", "sb1"), ("exec", "sb1", "--", "true"))
"""Verbs that talk to Daytona; so does reap, when there is something to reap."""


def check(told: Told, program: str, status: int, says: str, hint: str) -> None:
    assert told.status == status, told.err
    assert status in STATUSES
    error, advice = told.complaint
    assert error.startswith(f"{program}: error: ")
    assert says in error, error
    assert hint in advice, advice
    assert not error.endswith(".")
    assert told.out == ""


@pytest.mark.parametrize(
    "verb", [("start",), ("sync", "1"), ("fetch", "1"), ("push", "1")], ids=lambda words: words[0]
)
def test_no_repository(local, tell, verb):
    check(
        tell("git-daytona", *verb),
        "git-daytona",
        NO_REPOSITORY,
        "is not in a git repository",
        "git init",
    )
    assert local.calls == []


@pytest.mark.parametrize(
    "verb", [("delete", "1"), ("exec", "1", "--", "true")], ids=lambda words: words[0]
)
def test_no_repository_and_no_session_either(local, tell, verb):
    """These work without a repository, too, for the sessions of OpenCode that have none."""
    check(
        tell("git-daytona", *verb),
        "git-daytona",
        NOT_FOUND,
        "there is no session '1'",
        "git daytona status",
    )
    assert local.calls == []


@pytest.mark.parametrize("verb", GIT_VERBS[2:], ids=lambda words: words[0])
@pytest.mark.parametrize(
    "name", ["1", "sandbox-9", "opencode/3", "ses_none", "0", "-1x", "../x", "a\x1b[2Jb\nc", "ö"]
)
def test_unknown_session(local, repo, tell, verb, name):
    words = [verb[0], *(["--"] if name.startswith("-") else []), name, *verb[2:]]
    told = tell("git-daytona", *words, cwd=repo.path)
    if words[:2] == ["exec", "--"]:  # then it is the command that stands there
        check(told, "git-daytona", NOT_FOUND, "no sessions here yet", "git daytona start")
    else:
        check(told, "git-daytona", NOT_FOUND, "there is no session '", "git daytona status")
    assert local.calls == []
    assert "\x1b" not in told.err


@pytest.mark.parametrize("verb", TOKEN_VERBS, ids=lambda words: words[0])
@pytest.mark.parametrize("sandbox", ["no-such-sandbox", "../x", "a b", "", "-x", "a\nb", "%2e%2e"])
def test_unknown_sandbox(local, tell, verb, sandbox):
    words = [
        verb[0],
        *(word for word in verb[1:] if word.startswith("--a")),
        *(["--"] if sandbox.startswith("-") else []),
        sandbox,
    ]
    told = tell("daytona-token", *words, *(["true"] if verb[0] == "exec" else []))
    if verb[0] == "revoke" and sandbox == "no-such-sandbox":
        assert told.status == 0, "it opens nothing, which is what was asked for"
        return
    check(told, "daytona-token", NOT_FOUND, "", "'git daytona status' lists the sessions")
    assert not any(call.status == 200 for call in local.calls if call.route in ("mint", "revoke"))


@pytest.mark.parametrize(
    ("words", "says", "where"),
    [
        (("git-daytona", "nonsense"), "no such command 'nonsense'", "git daytona -h"),
        (("git-daytona", "--nonsense"), "no such option", "git daytona -h"),
        (
            ("git-daytona", "start", "HEAD", "extra"),
            "unexpected extra argument",
            "git daytona start -h",
        ),
        (("git-daytona", "start", "--session"), "requires an argument", "git daytona -h"),
        (("git-daytona", "exec"), "missing argument", "git daytona exec -h"),
        (("git-daytona", "exec", "1"), "missing argument", "git daytona exec -h"),
        (("git-daytona", "exec", "1", "--"), "missing argument", "git daytona exec -h"),
        (
            ("git-daytona", "exec", "--timeout", "0", "1", "true"),
            "invalid value for '--timeout'",
            "git daytona exec -h",
        ),
        (
            ("git-daytona", "exec", "--timeout", "x", "1", "true"),
            "invalid value for '--timeout'",
            "git daytona exec -h",
        ),
        (("git-daytona", "fetch", "1", "2"), "unexpected extra argument", "git daytona fetch -h"),
        (("git-daytona", "status", "--jsn"), "no such option", "git daytona status -h"),
        (("daytona-token", "nonsense"), "no such command 'nonsense'", "daytona-token -h"),
        (("daytona-token", "mint"), "missing argument", "daytona-token mint -h"),
        (
            ("daytona-token", "mint", "a", "b"),
            "unexpected extra argument",
            "daytona-token mint -h",
        ),
        (
            ("daytona-token", "mint", "--minutes", "0", "a"),
            "invalid value for '--minutes'",
            "daytona-token mint -h",
        ),
        (
            ("daytona-token", "mint", "--minutes", "1441", "a"),
            "invalid value for '--minutes'",
            "daytona-token mint -h",
        ),
        (("daytona-token", "revoke"), "missing argument", "daytona-token revoke -h"),
        (("daytona-token", "exec", "a"), "missing argument", "daytona-token exec -h"),
        (("daytona-token", "exec", "a", "--"), "missing argument", "daytona-token exec -h"),
        (("daytona-token", "reap", "a"), "unexpected extra argument", "daytona-token reap -h"),
    ],
)
def test_wrong_arguments(local, repo, tell, words, says, where):
    check(tell(*words, cwd=repo.path), words[0], USAGE, says, f"see '{where}'")
    assert local.calls == []


@pytest.mark.parametrize("session", ["a\nb", "\x1b[2J", "x" * 201, "  "])
def test_a_session_id_that_is_none(local, repo, tell, session):
    check(
        tell("git-daytona", "start", "--session", session, cwd=repo.path),
        "git-daytona",
        USAGE,
        "the session id is not valid",
        "use letters",
    )
    assert local.counts["create"] == 0


def everything(tell, repo) -> Iterator[tuple[Told, str]]:
    """Every verb that needs the API, told in the repository."""
    yield tell("git-daytona", "start", cwd=repo.path), "git-daytona"
    for verb in TOKEN_VERBS:
        yield tell("daytona-token", *verb, cwd=repo.path), "daytona-token"


def test_no_key(local, repo, tell, monkeypatch):
    monkeypatch.delenv("DAYTONA_API_KEY")
    for told, program in everything(tell, repo):
        check(
            told, program, NO_KEY, f"there is no API key for {local.api_url}", "set DAYTONA_API_KEY"
        )
    assert not any(call.route in ("create", "mint", "revoke") for call in local.calls)


def test_a_broken_dotenv(local, repo, tell, monkeypatch):
    monkeypatch.delenv("DAYTONA_API_KEY")
    os.mkfifo(repo.path / ".env")
    for told, program in everything(tell, repo):
        check(told, program, NO_KEY, "there is no API key", "set DAYTONA_API_KEY")
        assert told.err.startswith(
            f"{program}: warning: '.env' of the project not read: it is not a regular file\n"
        )
    (repo.path / ".env").unlink()
    (repo.path / ".env").write_text("DAYTONA_API_KEY='open\nDAYTONA_SNAPSHOT=\n", encoding="utf-16")
    told = tell("daytona-token", "mint", "sb1", cwd=repo.path)
    check(told, "daytona-token", NO_KEY, "there is no API key", "")
    assert "not UTF-8" in told.err


def test_a_wrong_key(local, repo, tell, monkeypatch):
    monkeypatch.setenv("DAYTONA_API_KEY", "dtn_0123456789wrongwrong")
    for told, program in everything(tell, repo):
        check(
            told,
            program,
            KEY_REFUSED,
            "does not accept the API key from the environment",
            "set DAYTONA_API_KEY",
        )
        assert "dtn_" not in told.err
    assert len([call for call in local.calls if call.status == 401]) == 4, "no second try"


def test_a_key_that_may_not(local, repo, tell):
    with local.faults.call(route="create|mint|revoke", status=403):
        for told, program in everything(tell, repo):
            check(told, program, FORBIDDEN, "the API key may not", "use a key with the permission")


def test_an_api_that_is_not_there(local, repo, tell, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("DAYTONA_API_URL", f"http://127.0.0.1:{port}/api")
    monkeypatch.setattr("git_daytona.transfer.leases._wait", lambda state: 0.01)
    for told, program in everything(tell, repo):
        check(
            told,
            program,
            UNREACHABLE,
            f"http://127.0.0.1:{port}/api: nothing listens there",
            "check the network and DAYTONA_API_URL",
        )


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "ftp://x",
        "http://",
        "http://h:99999/",
        "https://user:secret@h/",
        "http://h/?key=x",
        "http://\x1b[2J",
    ],
)
def test_an_api_url_that_is_none(local, repo, tell, monkeypatch, url):
    monkeypatch.setenv("DAYTONA_API_URL", url)
    for words in (("git-daytona", "start"), ("daytona-token", "reap")):
        told = tell(*words, cwd=repo.path)
        check(told, words[0], SETTING, "DAYTONA_API_URL", "")
        assert "secret" not in told.err


class Strange(http.server.BaseHTTPRequestHandler):
    """A web server that is no Daytona, or one that Daytona sends people to; it notes the
    headers."""

    heard: list[str]

    def answer(self) -> None:
        self.heard.append(str(self.headers))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>Sign in</title>\x1b[2J")

    do_GET = do_POST = do_DELETE = answer

    def log_message(self, *arguments) -> None:
        pass


@pytest.fixture
def strange() -> Iterator[tuple[str, list[str]]]:
    heard: list[str] = []
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), type("Strange", (Strange,), {"heard": heard})
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", heard
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_server_that_is_no_daytona(repo, tell, monkeypatch, strange):
    monkeypatch.setenv("DAYTONA_API_URL", f"{strange[0]}/api")
    monkeypatch.setenv("DAYTONA_API_KEY", "whatever")
    for told, program in everything(tell, repo):
        check(told, program, ANSWER, "", "check DAYTONA_API_URL")
        assert "\x1b" not in told.err


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_case_33_a_redirect_takes_the_key_nowhere(local, repo, begin, tell, strange, status):
    """Not in any call: that of the generated client, and those of the SDK proper."""
    url, heard = strange
    session = begin(repo)
    session.coordinator.close()
    with local.faults.call(redirect=f"{url}/api/x", status=status):
        for words in (
            ("git-daytona", "start"),
            ("git-daytona", "sync", "1"),
            ("git-daytona", "exec", "1", "true"),
            ("git-daytona", "delete", "1"),
            ("daytona-token", "mint", session.sandbox_id),
            ("daytona-token", "exec", session.sandbox_id, "true"),
        ):
            told = tell(*words, cwd=repo.path)
            assert told.status in STATUSES - {0, 1, InternalError.status}, (words, told)
            assert told.complaint
    text = "\n".join(heard)
    assert local.api_key not in text
    assert "authorization" not in text.lower()


def test_missing_programs(local, repo, begin, tell, monkeypatch, tmp_path):
    session = begin(repo)
    session.agent("echo x >x")
    session.coordinator.close()
    local.forget_calls()
    only_git = tmp_path / "only-git"
    only_git.mkdir()
    (only_git / "git").symlink_to(shutil.which("git"))
    monkeypatch.setenv("PATH", str(only_git))
    for words in (
        ("git-daytona", "start"),
        ("git-daytona", "sync", "1"),
        ("git-daytona", "push", "1"),
        ("git-daytona", "fetch", "1"),
        ("daytona-token", "exec", session.sandbox_id, "--", "true"),
    ):
        if words[1] == "push":
            continue  # nothing to push: nothing needs ssh
        check(
            tell(*words, cwd=repo.path),
            words[0],
            MISSING,
            "no OpenSSH client found on PATH",
            "install it",
        )
    assert local.counts["mint"] == local.counts["create"] == 0
    (tmp_path / "nothing").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    check(
        tell("git-daytona", "status", cwd=repo.path),
        "git-daytona",
        MISSING,
        "git is not installed",
        "install it",
    )


@pytest.mark.parametrize(
    ("binary", "says"),
    [
        ("ssh", "not an absolute path"),
        ("{}/none", "does not exist"),
        ("{}", "is a directory"),
        ("{}/plain", "cannot be executed"),
    ],
)
def test_case_22_a_named_ssh_that_cannot_be_used(
    local, repo, tell, monkeypatch, tmp_path, binary, says
):
    (tmp_path / "plain").write_text("")
    monkeypatch.setenv("DAYTONA_SSH_BINARY", binary.format(tmp_path))
    for words in (("git-daytona", "start"), ("daytona-token", "exec", "sb1", "--", "true")):
        check(
            tell(*words, cwd=repo.path),
            words[0],
            MISSING,
            f"DAYTONA_SSH_BINARY {'is' if 'is ' in says or 'not an' in says else 'names'}",
            "DAYTONA_SSH_BINARY",
        )
        assert local.counts["create"] == local.counts["mint"] == 0


@pytest.mark.parametrize("name", ["XDG_DATA_HOME", "XDG_STATE_HOME"])
@pytest.mark.parametrize("place", ["{}/file", "/proc/readonly", "/dev/null"])
def test_case_55_a_folder_that_cannot_be_written(
    local, repo, tell, monkeypatch, tmp_path, name, place
):
    """A clear error before a sandbox is created."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(name, place.format(tmp_path))
    told = tell("git-daytona", "start", cwd=repo.path)
    check(told, "git-daytona", SETTING, place.format(tmp_path), "make")
    assert local.counts["create"] == 0


def test_case_36_kinds_of_repositories_that_cannot_be_used(local, repo, tell, tmp_path):
    repo.git("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    check(
        tell("git-daytona", "start", cwd=tmp_path / "bare.git"),
        "git-daytona",
        NO_REPOSITORY,
        "bare repository",
        "worktree",
    )
    check(
        tell("git-daytona", "start", cwd=repo.path / ".git"),
        "git-daytona",
        NO_REPOSITORY,
        "inside a .git directory",
        "worktree",
    )
    repo.git("branch", "opencode")
    told = tell("git-daytona", "start", cwd=repo.path)
    assert "opencode" in told.complaint[0]
    assert told.status in STATUSES - {0}
    assert local.counts["create"] == 0


def test_a_directory_that_is_gone(local, tell, monkeypatch, tmp_path):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    told = tell("git-daytona", "status")
    assert told.status == NO_REPOSITORY, told.err
    assert told.complaint


@pytest.mark.parametrize("words", [("git-daytona",), ("daytona-token",)])
def test_no_arguments_at_all(local, tell, words):
    told = tell(*words)
    assert told.status in (0, USAGE)
    assert "Usage: " in told.out + told.err
    assert local.calls == []


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("git-daytona", "sync", "7"), NOT_FOUND),
        (("daytona-token", "mint", "../x"), NOT_FOUND),
        (("daytona-token", "revoke", "sb1"), USAGE),
    ],
)
def test_the_executables_say_the_same(local, repo, command, words, status):
    told = command(*words, cwd=repo.path)
    assert (told.status, told.out) == (status, "")
    assert told.err.startswith(f"{words[0]}: error: ")
    assert told.err.count("\n") == 2
