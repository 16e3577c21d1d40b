"""The sandbox as an adversary: its git server, its commands, the names and contents of its files,
and what its repository holds for the host.

Each has a bound, which stands in git-daytona-security(7); and nothing outside of refs, objects and
the reset worktree changes.
"""

import base64
import contextlib
import logging
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from git_daytona.api.cloud import Execution
from git_daytona.base import log
from git_daytona.base.errors import (
    BadSetting,
    GitDaytonaError,
    SandboxCommandFailed,
    TimedOut,
    TransferFailed,
)
from git_daytona.base.secret import printable, redact
from git_daytona.git import refs
from git_daytona.git.refs import Names, places
from git_daytona.sandbox import report
from git_daytona.sessions import sandbox_branch, state
from git_daytona.settings import preferences
from git_daytona.tools import answers
from git_daytona.transfer import transfer
from support import evil_git
from support.round_trip import BIN, execute

LONG = 4000
"""The longest message that a sync gives."""


@pytest.fixture
def evil(local, repo, begin):
    """A session, and the hostile git server in its sandbox."""
    session = begin(repo)
    source = Path(evil_git.__file__).read_bytes()
    session.coordinator.cloud.upload(session.sandbox_id, "/home/daytona/evil_git.py", source)

    def serve(*words: str) -> None:
        local.faults.gateway.git_server = (
            f"exec python3 /home/daytona/evil_git.py {shlex.join(words)}"
        )

    session.serve = serve
    session.count = 0
    return session


@pytest.fixture
def logged():
    """Switch the log on, as the executables do."""
    yield log.to_file
    for handler in list(log.logger.handlers):
        if not isinstance(handler, logging.NullHandler):
            log.logger.removeHandler(handler)


def fit(text: str, most: int = LONG) -> None:
    """It moves no cursor and is of bounded length."""
    assert all(c == "\n" or c.isprintable() for c in text), repr(text[:2000])
    assert len(text) <= most, len(text)


def sync_fails(evil, *words: str, match: str | None = None) -> GitDaytonaError:
    """A sync meets the hostile server; what it says is fit to be shown, and no ref was moved."""
    evil.count += 1
    evil.serve(*words)
    repository = evil.coordinator.repository
    before = repository.refs("refs/heads", "refs/remotes", "refs/tags")
    evil.agent(f"echo {evil.count} > work")
    with pytest.raises(GitDaytonaError, match=match) as raised:
        evil.sync()
    fit(raised.value.message)
    fit(raised.value.hint or "")
    assert "\n" not in raised.value.message
    assert repository.refs("refs/heads", "refs/remotes", "refs/tags") == before, words
    assert transfer.leftovers(repository) == set(), words
    recorded = evil.coordinator.sessions()[0].git_return
    assert recorded.state == "failed" and recorded.message == raised.value.message
    return raised.value


def recovers(evil, local, repo) -> None:
    """Once the sandbox is honest again, the work comes back."""
    local.faults.gateway.git_server = None
    assert evil.sync().changed
    assert repo.show("opencode/1", "work") == str(evil.count)
    repo.git("fsck", "--connectivity-only")
    assert not [
        ref
        for ref in evil.coordinator.repository.refs()
        if "evil" in ref or "unasked" in ref or "incoming" in ref
    ]


# -- the git server --------------------------------------------------------------------------------


def test_a_server_that_does_not_end(local, repo, evil, watched, monkeypatch):
    monkeypatch.setattr(preferences, "FETCH_BYTES", 8 * 1024 * 1024)
    monkeypatch.setattr(transfer, "TALK_BYTES", 1024 * 1024)
    monkeypatch.setattr(transfer, "MEMORY_BYTES", 256 * 1024 * 1024)
    cases = {
        "endless-pack": "more than 8192 KiB",
        "large-object": "more than 8192 KiB|data too large|Out of memory",
        "endless-messages": "more than 1 MiB",
        "endless-line": "Out of memory|no progress",
        "endless-refs": "Out of memory|no progress",
        "endless-refs-v0": "Out of memory|no progress",
        "keepalive": "no progress",
        "hang": "no progress",
    }
    with watched.nothing_else_changed("a server that does not end"):
        for what, words in cases.items():
            silent = "no progress" in words
            monkeypatch.setattr(transfer, "IDLE_SECONDS", 1.5 if silent else 60.0)
            sync_fails(evil, what, match=words)
    recovers(evil, local, repo)
    evil.coordinator.close()
    assert local.live_tokens() == 0


def test_a_total_time(local, repo, evil, watched, monkeypatch):
    """Progress does not extend it: a server that always has something to say is ended as well."""
    monkeypatch.setattr(transfer, "TRANSFER_SECONDS", 2.0)
    monkeypatch.setattr(transfer, "TALK_BYTES", 1 << 40)
    with watched.nothing_else_changed("endless messages"):
        assert isinstance(
            sync_fails(evil, "endless-messages", match="did not finish within 2 seconds"), TimedOut
        )
    recovers(evil, local, repo)


def test_the_limit_of_a_fetch_is_the_users(local, repo, evil, monkeypatch):
    monkeypatch.setattr(preferences, "FETCH_BYTES", 64 * 1024)
    evil.agent("head -c 300000 /dev/urandom > work")
    with pytest.raises(TransferFailed, match="more than 64 KiB") as refused:
        evil.sync()
    assert "git config daytona.maxFetchSize" in (refused.value.hint or "")
    repo.git("config", "daytona.maxFetchSize", "1m")
    assert evil.sync().changed
    repo.git("config", "daytona.maxFetchSize", "much")
    evil.agent("echo more > more")
    with pytest.raises(BadSetting, match="no size such as"):
        evil.sync()


def test_objects_that_fsck_refuses(local, repo, evil, watched):
    """case 52: nothing of them gets a name here, and the half of a pack that was written is
    removed."""
    assert evil.sync() is not None
    with watched.nothing_else_changed("objects that fsck refuses"):
        for what in evil_git.bad_trees():
            problem = sync_fails(evil, "fsck", what)
            assert isinstance(problem, TransferFailed) and not problem.transient, what
            tip, _ = evil_git.hostile(what)
            # (.gitmodules is looked at once the pack is in place; nothing leads to it, and git gc
            # removes it.)
            assert (
                what.startswith("gitmodules") or repo.git("cat-file", "-t", tip, check=False) == ""
            ), what
    recovers(evil, local, repo)


def test_answers_that_make_no_sense(local, repo, evil, watched, monkeypatch):
    monkeypatch.setattr(transfer, "IDLE_SECONDS", 5.0)
    # They look like a broken connection, which is tried again; here once is enough.
    monkeypatch.setattr("git_daytona.transfer.leases.TRIES", 1)
    with watched.nothing_else_changed("answers that make no sense"):
        for what in ("garbage", "endless-garbage", "wrong-object", "error"):
            sync_fails(evil, what)
    recovers(evil, local, repo)


def test_more_than_was_asked_for(local, repo, evil, watched):
    """Other refs, other places to fetch from, a history that ends: nothing of it is taken."""
    with watched.nothing_else_changed("more than was asked for"):
        for what in ("more-refs", "names", "elsewhere", "shallow"):
            evil.count += 1
            evil.serve(what)
            evil.agent(f"echo {evil.count} > work")
            with contextlib.suppress(GitDaytonaError):
                evil.sync()
            names = set(repo.git("for-each-ref", "--format=%(refname)").splitlines())
            expected = {
                "refs/heads/main",
                "refs/heads/opencode/1",
                "refs/remotes/sandbox-1/opencode",
                "refs/daytona/base/1",
                "refs/daytona/counter",
            }
            assert names <= expected, what
            assert not (repo.path / ".git" / "shallow").exists()
    local.faults.gateway.git_server = None
    evil.sync()
    assert repo.show("opencode/1", "work") == str(evil.count)


def test_a_branch_that_goes_between_report_and_fetch(local, repo, evil):
    """Only what the report names is asked for; an agent that deletes a branch in that moment does
    not fail the sync."""
    evil.agent("echo work > work; git branch gone; git branch stays")
    local.faults.gateway.git_server = (
        'git -C /home/daytona/project branch -q -D gone 2>/dev/null; eval "$DAYTONA_COMMAND"'
    )
    assert evil.sync().changed
    assert repo.show("opencode/1", "work") == "work"
    tracking = set(repo.git("for-each-ref", "--format=%(refname)", "refs/remotes").splitlines())
    assert tracking == {"refs/remotes/sandbox-1/opencode", "refs/remotes/sandbox-1/stays"}


def test_words_for_the_terminal(local, repo, evil, watched, capsys, monkeypatch, logged):
    """What the server says is shown, as text; also to the log, the state file and who reads it as
    JSON."""
    monkeypatch.setattr("git_daytona.transfer.leases.TRIES", 1)
    logged()
    evil.coordinator.show = True
    with watched.nothing_else_changed("words for the terminal"):
        for what in ("escapes", "error"):
            evil.serve(what)
            evil.agent(f"echo {what} > work")
            with pytest.raises(GitDaytonaError) as raised:
                evil.coordinator.sync("1")
            fit(raised.value.message)
            assert "\x1b" not in (raised.value.hint or "")
    err = capsys.readouterr().err
    assert "evil" in err and all(c in "\r\n" or c.isprintable() for c in err), repr(err)
    log = (watched.home / ".local/share/opencode/log/daytona.log").read_text()
    assert "evil" in log and all(c == "\n" or c.isprintable() for c in log)


# -- names -----------------------------------------------------------------------------------------


def test_names_of_branches(local, repo, evil, watched):
    """What git allows comes back; what cannot have its name here, or would act on a terminal, comes
    back under another one, which is said."""
    good = [
        "-option",
        "--upload-pack=x",
        "HEAD",
        "opencode/1",
        "sandbox-1",
        "main",
        "a'b\"c",
        "$(touch)",
        "`x`",
        ";x",
        "ä",
        "日本",
        "🙂",
        "%s",
        "x" * 200,
    ]
    good += ["\u00a0", "\u3000", "\u2028", "👩\u200d💻"]
    odd = ["\u202etxt", "\u009b2J", "y" * 245, "/".join(["z" * 100] * 11)]
    create = "".join(
        f"git update-ref refs/heads/{shlex.quote(name)} HEAD\n" for name in [*good, *odd]
    )
    evil.agent(f"git switch -q -c work; git branch -D -q opencode; echo x > work; {create}")
    with watched.nothing_else_changed("names of branches"):
        outcome = evil.sync()
    listing = repo.git("for-each-ref", "--format=%(refname)", "refs/remotes/sandbox-1")
    tracking = {name.removeprefix("refs/remotes/sandbox-1/") for name in listing.split("\n")}
    renamed = {name for name in tracking if name.startswith("renamed-")}
    assert tracking - renamed == {*good, "work"} and len(renamed) == len(odd)
    fit(outcome.message)
    assert "'\\u202etxt' is sandbox-1/renamed-" in outcome.message and "y" * 50 in outcome.message
    assert all(name in outcome.message for name in renamed)
    assert outcome.left_behind == ""
    assert not evil.sync().changed, "and they are not fetched again and again"


def test_which_names_are_taken():
    def names(*short: str) -> list[str]:
        return [f"refs/heads/{each}" for each in short]

    def same(*found: str) -> dict[str, str]:
        return {name: name for name in found}

    good = names("a", "b/c", "-x", "HEAD", "ä", "x" * 240, "\u2028", "\u0085", "\udcff", "\u3000")
    assert places(good, folding=False) == same(*good)
    bad = [
        *names("", "a..b", "../x", "x.lock", "x.lock/y", ".x", "a/.x", "a//b", "a/", "a.", "a b"),
        *names("a\x1b", "@{", "a\\b", "a~", "a^", "a:b", "a?b", "a*b", "a[b", "a\x7f", "x" * 5000),
        "refs/tags/x",
        "HEAD",
        "refs/heads",
        "-x",
        "refs/remotes/x/y",
    ]
    assert places(bad, folding=False) == {}
    other = names("a\u202e", "a\x9b", "x" * 241, "/".join(["x"] * 600))
    found = places(other, folding=False)
    assert list(found) == other
    assert all(re.fullmatch("refs/heads/renamed-[0-9a-f]{12}", each) for each in found.values())
    alike = names("Main", "main", "\u00e9", "e\u0301", "A/x", "a/y", "a/y/z", "\udcff")
    assert places(alike[:6], folding=False) == same(*alike[:6])
    found = places(alike, folding=True)
    assert [name for name in alike if found[name] == name] == names("Main", "\u00e9", "A/x", "a/y")
    assert len(set(found.values())) == len(alike)
    found = places(names(*map(str, range(refs.MOST + 5))), folding=False)
    assert len(found) == refs.MOST


def test_more_branches_than_are_taken(local, repo, evil, watched, monkeypatch):
    monkeypatch.setattr(refs, "MOST", 20)
    evil.agent(
        "echo x > work; for n in $(seq 100 140); do"
        " git update-ref refs/heads/b$n $(git commit-tree -m $n HEAD:); done"
    )
    with watched.nothing_else_changed("many branches"):
        outcome = evil.sync()
    assert len(repo.git("for-each-ref", "refs/remotes").splitlines()) <= 20
    assert "cannot be taken" in outcome.left_behind
    assert repo.show("opencode/1", "work") == "x", "the branch that is checked out is among them"


# -- the report ------------------------------------------------------------------------------------

OID = "1" * 40
MARK = "m"


def printed(*records: str) -> str:
    data = "".join(f"{record}\0" for record in [*records, "end ok"]).encode()
    return f"{MARK} {base64.b64encode(data).decode()}\n"


def parse(*records: str) -> report.Report:
    return report.parse(Execution(0, printed(*records)), MARK)


def test_a_report_that_does_not_end():
    many = 100_000
    found = parse(
        f"head {OID}",
        *(f"nested {'x' * 5000}\x1b[2J" for _ in range(many // 100)),
        *(f"note {'x' * 5000}\x1b[2J" for _ in range(many // 100)),
        *(f"left {'x' * 5000}\x1b[2J\t{'x' * 5000}" for _ in range(many // 100)),
        *(f"port {n % 65536:04x}" for n in range(many)),
        *(f"ref {OID} refs/heads/{n}" for n in range(many)),
        "lfs " + "9" * 4000,
    )
    assert len(found.nested) == len(found.notes) == len(found.left) == report.NOTES
    assert (len(found.ports), len(found.refs)) == (report.PORTS, refs.MOST)
    for text in (*found.nested, *found.notes, *found.refused, *found.left):
        fit(text, 500)
    nested = "; ".join(found.nested)
    message = sandbox_branch._remarks(Names(1), found, [], nested, with_lfs=False)
    fit(message, state.MESSAGE_LENGTH)


@pytest.mark.parametrize(
    "line",
    [
        *(
            "head -x",
            "head --all",
            "head " + "1" * 39,
            "head " + "g" * 40,
            "head HEAD",
            f"head {OID} {OID}",
            "ref x refs/heads/a",
        ),
        *(f"error {'x' * 100_000}\x1b[2J", "busy"),
    ],
)
def test_a_report_that_lies(line):
    with pytest.raises(GitDaytonaError) as raised:
        parse(line)
    fit(raised.value.message, 600)


def test_values_of_a_report_that_are_ignored():
    found = parse(
        "branch refs/heads/../x",
        "branch -x",
        "operation $(x)",
        "port zzzz",
        "port 123456",
        "lfs -1",
        "lfs ٣x",
        "missing all",
        "key",
        "",
        "ports x",
    )
    assert (found.head, found.branch, found.operation, found.ports, found.missing) == (
        None,
        None,
        None,
        [],
        None,
    )


# -- commands --------------------------------------------------------------------------------------


def test_output_without_end_or_sense(local, repo, evil, watched):
    """case 51: 1 GB of it is cut in the sandbox; escapes do not reach the terminal."""
    with watched.nothing_else_changed("output"):
        result = execute(
            evil.coordinator,
            "1",
            "echo first; head -c 1000000000 /dev/zero | tr '\\0' x; echo; echo last",
        )[0]
        assert result.status == 0 and len(result.output) < 5_000_000
        assert result.output.startswith("first\n") and result.output.endswith("last\n")
        assert re.search(r"\[\d+ bytes of output left out here\]", result.output)
        shown = on_a_terminal(
            "exec", "1", "--", "printf '\\033]0;evil\\007\\033[2J\\233x\\0y\\r\\n'", cwd=repo.path
        )
        assert "evil" in shown and all(c in "\r\n" or c.isprintable() for c in shown), repr(shown)


def on_a_terminal(*words: str, cwd: Path) -> str:
    """What git-daytona writes to a terminal."""
    master, slave = os.openpty()
    with os.fdopen(master, "rb") as screen:
        done = subprocess.run(
            (str(BIN / "git-daytona"), *words),
            cwd=cwd,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            timeout=60,
        )
        os.close(slave)
        assert done.returncode == 0
        shown = b""
        with contextlib.suppress(OSError):  # EIO: its end
            while chunk := screen.read1():
                shown += chunk
    return shown.decode()


@pytest.mark.timeout(20)
def test_text_that_is_dear_to_clean():
    """What is done to each text from a stranger takes time in proportion to its length."""
    texts = (
        "x" * 50_000 + "\b" * 50_000,
        "\x90" * 100_000,
        "\x1b]" * 50_000,
        "\x9b0" * 50_000,
        "\r" * 100_000,
        "a." * 50_000,
        "bearer " * 20_000,
    )
    for text in texts:
        assert answers.output(text).isprintable()
        assert answers.line(text).isprintable()
        assert printable(redact(text)).isprintable()
        fit(parse(f"note {text}").notes[0])
    assert answers.output("abc\b\bX\n\bY") == "aX\nY"


def test_commands_that_do_not_end(local, repo, evil, watched):
    with watched.nothing_else_changed("commands that do not end"):
        for script in (
            "sleep 1000",
            "while :; do :; done",
            "trap '' TERM INT HUP; sleep 1000",
            "i=0; while [ $i -lt 300 ]; do sleep 1000 & i=$((i + 1)); done; wait",
        ):
            with pytest.raises(GitDaytonaError) as raised:
                execute(evil.coordinator, "1", script, timeout=1)
            fit(raised.value.message)
        assert evil.agent("echo still there") == "still there\n"


def test_a_guard_that_the_agent_replaced(local, repo, evil, watched):
    """The scripts run in the sandbox: what stands in for their tools there can lie, but only about
    the sandbox."""
    # git repeats the first four bytes in its complaint
    script = "#!/bin/sh\nprintf '\\033\\t\\200\\t'\nhead -c 100000 /dev/urandom"
    evil.agent(
        f"mkdir -p ~/bin; printf %s {shlex.quote(script)} > ~/bin/git; chmod +x ~/bin/git; "
        "echo x > work"
    )
    with watched.nothing_else_changed("a git of the agent's"):
        local.faults.gateway.git_server = 'PATH=$HOME/bin:$PATH; eval "$DAYTONA_COMMAND"'
        with pytest.raises(GitDaytonaError) as raised:
            evil.sync()
        fit(raised.value.message)
    with pytest.raises(SandboxCommandFailed) as raised:
        report.parse(Execution(0, "\x1b[2J" * 100_000), MARK)
    fit(raised.value.message)
    fit(raised.value.details or "", 20_000)


# -- what the repository holds ---------------------------------------------------------------------

TRAP = "touch {mark}; echo ran >>{mark}"


def test_what_is_meant_to_run_on_the_host(local, repo, evil, watched, tmp_path_factory, home):
    """Hooks, configuration, attributes, submodules and links of the sandbox, with opencode/N
    checked out here and reset to each of them."""
    mark = tmp_path_factory.mktemp("mark") / "ran"
    trap = TRAP.format(mark=mark)
    repo.git("switch", "-q", "opencode/1")
    watched.worktree = True
    (home / "victim").mkdir()
    (home / "victim" / "file").write_text("mine\n")
    scripts = {
        "hooks and configuration": f"""
            for hook in post-checkout post-merge pre-push post-rewrite \\
                reference-transaction fsmonitor-watchman post-index-change; do
              printf '#!/bin/sh\\n%s\\n' {shlex.quote(trap)} > .git/hooks/$hook
              chmod +x .git/hooks/$hook
            done
            git config core.fsmonitor {shlex.quote(trap)}
            git config core.sshCommand {shlex.quote(trap)}
            git config filter.evil.smudge {shlex.quote(trap)}
            git config diff.external {shlex.quote(trap)}
            mkdir -p .githooks hooks; cp .git/hooks/post-checkout .githooks/post-checkout
            cp .git/hooks/post-checkout hooks/post-checkout
            printf '[core]\\n\\thooksPath = hooks\\n' > .gitconfig
            printf 'echo hello > work' > config
        """,
        "attributes": "printf '* filter=evil diff=evil merge=evil ident eol=crlf\\n' > "
        ".gitattributes; "
        "echo x > filtered",
        "lfs": "printf '*.bin filter=lfs diff=lfs merge=lfs -text\\n' > .gitattributes; printf "
        "'[lfs]\\n\\turl = http://127.0.0.1:1/evil\\n' > .lfsconfig; echo x > a.bin",
        "submodule": """
            printf '[submodule "s"]\\n\\tpath = s\\n\\turl = %s\\n\\tupdate = checkout\\n' \\
              'ext::sh -c touch% /tmp/x' \\
              > .gitmodules
            git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),s
            git add .gitmodules; git commit -qm submodule
        """,
        "links": f"ln -s {home}/victim out; ln -s / root; ln -s ../../../.. up; ln -s .git/hooks "
        "hook; ln -s /dev/zero zero; ln -s loop loop",
        "a directory in place of a link": "rm -f out; mkdir out; echo evil > out/file; rm -f hook; "
        "mkdir "
        "hook; "
        "echo "
        "evil "
        "> "
        "hook/post-checkout; rm up; mkdir up; echo x > up/x",
        "a link in place of a directory": f"rm -rf out; ln -s {home}/victim out",
        "names": """
            touch -- -rf '$(touch x)' '`x`' ';x' "$(printf '\\033[2J')" \\
              "$(printf 'a\\nb')" "$(printf 'latin\\351')" ' ' '~' '%s' con .env
            echo evil > .gitignore; git init -q "$(printf 'nest\\033[2Jed')"
            git -C nest* commit -q --allow-empty -m x
        """,
        "modes": "echo x > setuid; chmod 6777 setuid; mkfifo pipe 2>/dev/null; :",
        "an end of the tree": "rm -rf nest*; git rm -q -r --cached . ; rm -rf -- * .gitattributes "
        ".gitmodules "
        ".lfsconfig; echo alone > work",
    }
    for what, script in scripts.items():
        evil.count += 1
        evil.agent(f"{script}\necho {evil.count} > counted")
        with watched.nothing_else_changed(what):
            outcome = evil.sync()
        fit(outcome.message)
        assert ("ed" in outcome.left_behind) == (what in ("names", "modes")), outcome
        assert repo.git("rev-parse", "HEAD") == outcome.head, what
        assert (repo.path / "counted").read_text().split() == [str(evil.count)], what
        assert not mark.exists(), what
        assert (home / "victim" / "file").read_text() == "mine\n"
    assert not (repo.path / ".git" / "modules").exists()


def test_filters_of_the_users_own(local, repo, evil, watched, tmp_path_factory, monkeypatch):
    """A filter that the user has configured runs where the sandbox's attributes name it, as on any
    checkout: that is git's design. What LFS would fetch from where the sandbox's .lfsconfig points
    is switched off."""
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")  # where git-lfs may have a filter.lfs.process
    seen = tmp_path_factory.mktemp("filter") / "seen"
    subprocess.run(
        ("git", "config", "--global", "filter.lfs.smudge", f"env >>{seen}; cat"), check=True
    )
    repo.git("switch", "-q", "opencode/1")
    evil.agent("printf '*.bin filter=lfs\\n' > .gitattributes; echo x > a.bin")
    watched.worktree = True
    with watched.nothing_else_changed("filters"):
        evil.sync()
    environment = seen.read_text()
    assert "GIT_LFS_SKIP_SMUDGE=1" in environment
    assert "DAYTONA_" not in environment
